/* shared.h - what the parts of host_path share: counters, the points of a transit, and what each CPU handled last. */
#ifndef HOST_PATH_SHARED_H
#define HOST_PATH_SHARED_H

#include "../../common/netconsole.h"
#include "../../common/allowance.h"
#include "../../common/path.h"
#include "../../common/latency.h"

enum {      /* counters */
    RECEIVED, REUSED, EVICTED, COPIES, CROSSED, PACKETS, SEGMENTS, SLOW, EXCHANGED, UNMATCHED, FROM_HOST, ASKED, RETURNED,
};

enum { INSIDE = NC_SET_inside_devices, OUTSIDE = NC_SET_outside_devices };
enum { UPCALL, ACTION, CONNTRACK, FIRST_QUEUE, LAST_QUEUE };   /* points of a transit; CONNTRACK: where it entered conntrack */
enum { FROM_DEVICE, FROM_HOST_STACK, FROM_USER_SPACE };         /* tag of a transit: who made its sk_buff */

/* The packet that this CPU handled last. Copies and segments of it follow on the same CPU. */
struct recent {
    u64 received;           /* address of the packet; 0: it is not timed */
    u64 queued;             /* address of the last packet longer than its device's MTU; below: how to know its segments */
    u64 device;
    u32 ports;
    u32 sequence;
    u32 length;
    u32 pad;
    struct nc_allowance follows;    /* packets that may still be followed */
    u64 ticks_ns;           /* when its ticks were first seen */
};

/* The stages of a transit. They add up to the total. */
struct durations {
    u64 forward_ns;         /* received -> handed to the first device, when no Open vSwitch was seen */
    u64 lookup_ns;          /* received -> first action of Open vSwitch, or -> its upcall */
    u64 upcall_ns;          /* upcall -> first action of the packet that came back */
    u64 actions_ns;         /* first action -> handed to the first device, without ct_ns */
    u64 ct_ns;              /* in conntrack: from each such action -> the next action */
    u64 devices_ns;         /* first -> last device: tunnels, bonds, VLANs */
    u64 qdisc_ns;           /* handed to the last device -> to its driver */
};

/* Where asked (with_stacks), by which way the kernel came to the points of a packet. One that it did not come to is empty. Conntrack's
 * point is an action of Open vSwitch, as the first one is: the same functions lead to both. */
#define STACK_DEPTH 12
struct way_stacks {
    u64 queued[STACK_DEPTH];            /* handed to the last device, */
    u64 received[STACK_DEPTH];          /* received, */
    u64 asked[STACK_DEPTH];             /* Open vSwitch asked its user space, */
    u64 acted[STACK_DEPTH];             /* it began to act, */
    u64 first[STACK_DEPTH];             /* handed to the first device, where it is not the last */
};

struct slow_event {
    struct latency_sample sample;
    struct durations took;
    u32 cpu;
    u32 flow_hash;          /* of the packet, by NIC or kernel; 0: none has been made */
    u32 queue_packets;      /* behind it in its queue. 0 with a qdisc that counts them for each CPU alone (pfifo_fast) */
    u32 pad;
    u64 stack[STACK_DEPTH];             /* at the driver */
    struct way_stacks way;
};

/* One of each CPU, so that one look-up finds all: what the CPU handled last, and working memory. The BPF stack is too small for that. */
struct scratch {
    struct recent recent;
    struct path_packet packet;
    struct nc_flow flow;
    struct path_transit transit;
    struct slow_event event;
};
BPF_PERCPU_ARRAY(scratches, struct scratch, 1);

/* Stacks of packets on their way, by address: of those that came last. */
BPF_TABLE("lru_hash", u64, struct way_stacks, ways, 1024);
BPF_PERCPU_ARRAY(no_ways, struct way_stacks, 1);        /* all zeros */

/* The rest of the array becomes zeros. Without a stack it is empty. */
static inline void take_stack(void *ctx, u64 *stack)
{
    if (bpf_get_stack(ctx, stack, STACK_DEPTH * sizeof(*stack), 0) < 0)
        stack[0] = 0;
}

static inline int wants_stacks(struct nc_config *config)
{
    return config->flags & NC_F_DETAILS && nc_knob(config, with_stacks);
}

/* A packet enters, or its stack is that of no packet before it. */
static inline struct way_stacks *new_way(u64 address)
{
    u32 zero = 0;
    struct way_stacks *none = no_ways.lookup(&zero);

    if (!none)
        return NULL;
    ways.update(&address, none);
    return ways.lookup(&address);
}

/* Where the stacks of a packet are kept. NULL: none are asked for, or it is only counted. */
static inline struct way_stacks *way_of(struct path_transit *transit)
{
    struct nc_config *config = transit->unlisted ? NULL : nc_config_get();
    u64 address = transit->address;
    struct way_stacks *way;

    if (!config || !wants_stacks(config))
        return NULL;
    way = ways.lookup(&address);
    return way ? way : new_way(address);
}

/* The packet goes on at another address: its copy, or what user space sent back. */
static inline struct way_stacks *way_goes_on(u64 from, u64 to)
{
    struct nc_config *config = nc_config_get();
    struct way_stacks *way;

    if (!config || !wants_stacks(config))
        return NULL;
    way = ways.lookup(&from);
    if (!way)
        return new_way(to);
    ways.update(&to, way);
    return ways.lookup(&to);
}

/* The flow of a packet in a tunnel: that of the packet inside, or of the tunnel itself (knob tunnel_flow)? */
static inline int flow_is_inside(struct nc_config *config)
{
    return !nc_knob(config, tunnel_flow);
}

/* Does the packet's flow pass the filters? With filters set, this reads the packet's headers into scratch. */
static inline int flow_wanted(struct nc_config *config, struct scratch *scratch, struct sk_buff *skb, int sent)
{
    if (!(config->flags & NC_F_FLOW))
        return 1;
    path_read(&scratch->packet, skb, sent, flow_is_inside(config));
    path_flow_of(&scratch->flow, &scratch->packet, skb);
    return nc_packet_wanted(config, &scratch->flow, skb);
}

/* In a storm most packets are only counted. A CPU follows so many in each eight ticks, and what it does not use of them it keeps for a
 * burst. Where a filter, a threshold or details were asked for, it follows each. */
#define FOLLOWED_PER_TICKS 16
#define FOLLOWED_MOST 1024
#define NC_F_EACH (NC_F_FLOW | NC_F_ENDS | NC_F_PLACE | NC_F_THRESHOLD | NC_F_DETAILS)
static inline int may_follow(struct nc_config *config, struct recent *recent)
{
    if (nc_allowance_earn(&recent->follows, FOLLOWED_PER_TICKS, FOLLOWED_MOST) || recent->ticks_ns < nc_resumed_ns())
        recent->ticks_ns = bpf_ktime_get_ns();
    return config->flags & NC_F_EACH || nc_allowance_use(&recent->follows);
}

/* The time of a point. That of a packet which is only counted is no more than a mark. */
static inline u64 time_of(struct path_transit *transit)
{
    return transit->unlisted ? transit->since_ns : bpf_ktime_get_ns();
}

/* An entry for a packet that enters. A packet that loses its entry is counted. */
static inline struct path_transit *claim_for(u64 address)
{
    struct path_transit *transit = path_claim(address);

    if (transit && transit->state == PATH_IN_TRANSIT)
        nc_count(transit->address == address ? REUSED : EVICTED);
    return transit;
}

#endif /* HOST_PATH_SHARED_H */
