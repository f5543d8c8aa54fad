/* shared.h - what the parts of the probe host_path share: its counters, the moments of a way, and the packet that a CPU has in hand. */
#ifndef HOST_PATH_SHARED_H
#define HOST_PATH_SHARED_H

#include "../../common/netconsole.h"
#include "../../common/path.h"
#include "../../common/latency.h"

enum {      /* counters */
    RECEIVED, REUSED, EVICTED, COPIES, CROSSED, PACKETS, SEGMENTS, SLOW, EXCHANGED, UNMATCHED, FROM_HOST, ASKED, RETURNED,
};

enum { INSIDE = NC_SET_inside_devices, OUTSIDE = NC_SET_outside_devices };
enum { UPCALL, ACTION, TRACKING, FIRST_QUEUE, LAST_QUEUE };     /* moments of a way; what it has spent: time in conntrack */
enum { FROM_DEVICE, FROM_HOST_STACK, FROM_USER_SPACE };         /* marks of a way: where its sk_buff was made */

/* What this CPU had in hand last: whose copies come next, and whose segments. */
struct hand {
    u64 received;           /* address of the packet; 0: of one that is not timed */
    u64 queued;             /* that of one longer than its device takes */
    u64 device;
    u32 ports;
    u32 sequence;
    u32 length;
    u32 pad;
};
BPF_PERCPU_ARRAY(hands, struct hand, 1);

/* The stages of a way: they add up to the whole. */
struct durations {
    u64 forward_ns;         /* received → handed to the first device, where no Open vSwitch is seen */
    u64 lookup_ns;          /* received → first action of Open vSwitch, or → its upcall */
    u64 upcall_ns;          /* upcall → first action of the packet that came back */
    u64 actions_ns;         /* first action → handed to the first device, but for */
    u64 ct_ns;              /* conntrack: from each such action → the next action */
    u64 devices_ns;         /* first → last device: tunnels, bonds, VLANs */
    u64 qdisc_ns;           /* handed to the last device → to its driver */
};

struct slow_event {
    struct latency_sample sample;
    struct durations took;
};

/* What a program works with; the stack is too small for it. */
struct desk {
    u64 address;
    struct path_packet packet;
    struct nc_flow flow;
    struct path_way way;
    struct slow_event event;
};
BPF_PERCPU_ARRAY(desks, struct desk, 1);

/* A packet in a tunnel: is its flow that of the packet inside, or the tunnel's own (knob tunnel_flow)? */
static inline int flow_is_inside(struct nc_config *config)
{
    return !nc_knob(config, tunnel_flow);
}

/* Does its flow pass the filters? What the desk has of the packet is read for that. */
static inline int flow_wanted(struct nc_config *config, struct desk *desk, struct sk_buff *skb, int sent)
{
    if (!(config->flags & NC_F_FLOW))
        return 1;
    path_read(&desk->packet, skb, sent, flow_is_inside(config));
    path_flow_of(&desk->flow, &desk->packet, skb);
    return nc_flow_wanted(config, &desk->flow);
}

/* A place for a way that begins; the one that has to go for it is counted. */
static inline struct path_way *place_for(u64 address)
{
    struct path_way *way = path_place(address);

    if (way && way->state == PATH_UNDER_WAY)
        nc_count(way->address == address ? REUSED : EVICTED);
    return way;
}

#endif /* HOST_PATH_SHARED_H */
