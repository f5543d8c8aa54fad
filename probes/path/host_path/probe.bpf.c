/* host_path - how long packets take through the host between two sets of devices: from netif_receive_skb (net/core/dev.c,
 * __netif_receive_skb_core) to net_dev_start_xmit (net/core/dev.c, xmit_one), the last point before the driver owns the packet.
 *
 * All of these tracepoints fire with softirqs off, so no program of this probe ever interrupts another on its CPU. This also holds for
 * packets that Open vSwitch's user space sends (net/openvswitch/datapath.c, ovs_packet_cmd_execute).
 * Open vSwitch is in openvswitch.h, the stages in breakdown.h, what all parts share in shared.h.
 */

#include "../../common/netconsole.h"
#include "../../common/devices.h"
#include "../../common/path.h"
#include "../../common/latency.h"
#include "shared.h"
#include "openvswitch.h"
#include "breakdown.h"

/* ---- a packet enters ---- */

/* The filters keep this packet out. */
static inline void keep_out(struct sk_buff *skb, struct nc_member *member)
{
    if (path_keep_out(path_address(skb), member->name))
        nc_count(REUSED);
}

static inline void start_transit(void *ctx, struct nc_config *config, struct sk_buff *skb, struct net_device *dev, struct nc_member *member, int sent)
{
    u32 zero = 0;
    struct scratch *scratch = scratches.lookup(&zero);
    struct path_transit *transit;
    struct recent *recent;
    u64 address;

    if (!scratch)
        return;
    recent = &scratch->recent;
    recent->received = 0;
    if (!flow_wanted(config, scratch, skb, sent) || !nc_netns_wanted(config, dev)) {
        keep_out(skb, member);
        return;
    }
    path_read(&scratch->packet, skb, sent, 1);
    if (scratch->packet.broken)
        nc_ledger_add(NC_PARSE_FAILED);
    address = path_address(skb);
    transit = claim_for(address);
    if (!transit)
        return;
    transit->address = address;
    transit->point_ns[UPCALL] = transit->point_ns[ACTION] = transit->point_ns[CONNTRACK] = transit->conntrack_ns = 0;
    transit->point_ns[FIRST_QUEUE] = transit->point_ns[LAST_QUEUE] = 0;
    transit->device[0] = member->name[0];
    transit->device[1] = member->name[1];
    path_fingerprint_of(&transit->fingerprint, &scratch->packet, nc_data_end(skb));
    transit->set = member->set;
    transit->tag = sent ? FROM_HOST_STACK : FROM_DEVICE;
    transit->origin = sent ? 0 : path_origin(config, NC_GET(dev, nd_net.net), NC_GET(dev, ifindex));
    transit->unlisted = !may_follow(config, recent);
    transit->state = PATH_IN_TRANSIT;
    recent->received = address;
    nc_count(RECEIVED);
    transit->since_ns = transit->unlisted ? recent->ticks_ns : bpf_ktime_get_ns();
    if (wants_stacks(config)) {
        struct way_stacks *way = new_way(address);
        if (way)
            take_stack(ctx, way->received);
    }
}

/* ---- a packet is queued to a device ---- */

/* Is the queued packet the one of this transit? It is when this CPU handled it last. Otherwise its end may have been missed, and the
 * address may hold another packet. A packet that this host did not receive is another one, unless a tunnel has made it look so since. */
static inline int is_same_transit(struct path_transit *transit, struct sk_buff *skb, struct scratch *scratch)
{
    struct path_fingerprint fingerprint;

    if (transit->state != PATH_IN_TRANSIT || (!NC_GET(skb, skb_iif) && !transit->tag && !transit->point_ns[FIRST_QUEUE]))
        return 0;
    if (transit->address == scratch->recent.received)
        return 1;
    path_read(&scratch->packet, skb, 1, 1);
    path_fingerprint_of(&fingerprint, &scratch->packet, nc_data_end(skb));
    return path_same_packet(&fingerprint, &transit->fingerprint);
}

/* A copy for another port of a switch has an address of its own. It is made while its CPU still handles the original. */
static inline struct path_transit *start_copy(struct sk_buff *skb, struct scratch *scratch)
{
    u64 address = path_address(skb), received = scratch->recent.received;
    struct path_transit *transit = received ? path_find(received) : NULL;
    struct way_stacks *way;

    if (!transit || transit->address == address || (!NC_GET(skb, skb_iif) && !transit->tag))
        return NULL;
    scratch->transit = *transit;
    path_read(&scratch->packet, skb, 1, 1);
    path_fingerprint_of(&scratch->transit.fingerprint, &scratch->packet, nc_data_end(skb));
    if (!scratch->transit.fingerprint.network || !path_same_packet(&scratch->transit.fingerprint, &transit->fingerprint))
        return NULL;
    transit = claim_for(address);
    if (!transit)
        return NULL;
    scratch->transit.address = address;
    scratch->transit.state = PATH_IN_TRANSIT;
    scratch->transit.point_ns[FIRST_QUEUE] = scratch->transit.point_ns[LAST_QUEUE] = 0;
    *transit = scratch->transit;
    way = way_goes_on(received, address);
    if (way)
        way->first[0] = way->queued[0] = 0;
    nc_count(COPIES);
    return transit;
}

/* A packet longer than the device's MTU may be segmented before it is sent. Its segments are other sk_buffs. */
static inline void expect_segments(struct sk_buff *skb, struct net_device *dev, struct scratch *scratch, u32 length)
{
    struct recent *recent = &scratch->recent;

    path_read(&scratch->packet, skb, 1, 1);
    recent->queued = path_address(skb);
    recent->device = (u64)dev;
    recent->length = length;
    recent->ports = path_u32(&scratch->packet, scratch->packet.version == 4 ? 20 : 40);
    recent->sequence = bpf_ntohl(path_u32(&scratch->packet, scratch->packet.version == 4 ? 24 : 44));
}

int on_queue(struct bpf_raw_tracepoint_args *ctx)
{
    struct sk_buff *skb = NC_ARG(0);
    u32 zero = 0, length;
    struct scratch *scratch = scratches.lookup(&zero);
    struct path_transit *transit;
    struct net_device *dev;
    struct way_stacks *way;
    u64 now;

    if (!scratch)
        return 0;
    transit = path_find(path_address(skb));
    if (!transit || !is_same_transit(transit, skb, scratch))
        transit = start_copy(skb, scratch);
    if (!transit)
        return 0;
    now = time_of(transit);
    way = way_of(transit);
    if (way) {
        if (transit->point_ns[FIRST_QUEUE] && !way->first[0])
            __builtin_memcpy(way->first, way->queued, sizeof(way->first));
        take_stack(ctx, way->queued);
    }
    if (!transit->point_ns[FIRST_QUEUE])
        transit->point_ns[FIRST_QUEUE] = now;
    transit->point_ns[LAST_QUEUE] = now;
    length = NC_GET(skb, len);
    if (length <= PATH_NEVER_CUT)       /* no usual device segments it: most packets end here, without a look at theirs */
        return 0;
    dev = NC_GET(skb, dev);
    if (length > NC_GET(dev, mtu) + ETH_HLEN + VLAN_HLEN)
        expect_segments(skb, dev, scratch, length);
    return 0;
}

/* ---- inside Open vSwitch ---- */

#ifdef HAVE_OVS_ACTION_ATTR_CT
int on_action(struct bpf_raw_tracepoint_args *ctx)
{
    struct nlattr *action = NC_ARG(3);

    account_action(ctx, NC_ARG(1), ctx->args[1], action);
    return 0;
}
#endif

int on_actions(void *ctx)
{
    struct sk_buff *skb = NC_PARAMETER(1);

    account_action(ctx, skb, (u64)skb, NULL);
    return 0;
}

#ifdef HAVE_dp_upcall_info_cmd
int on_upcall(struct bpf_raw_tracepoint_args *ctx)
{
    struct dp_upcall_info *upcall = NC_ARG(3);

    account_upcall(ctx, NC_ARG(1), ctx->args[1], NC_READ(upcall, cmd) != OVS_PACKET_CMD_MISS);
    return 0;
}

int on_upcall_function(void *ctx)
{
    struct sk_buff *skb = NC_PARAMETER(1);
    struct dp_upcall_info *upcall = NC_PARAMETER(3);

    account_upcall(ctx, skb, (u64)skb, NC_READ(upcall, cmd) != OVS_PACKET_CMD_MISS);
    return 0;
}
#endif

/* ---- a packet leaves ---- */

#define WITHIN NC_WORD('w', 'i', 't', 'h', 'i', 'n', 0, 0)
#define THROUGH NC_WORD('t', 'h', 'r', 'o', 'u', 'g', 'h', 0)

static inline u64 direction_of(u32 from, u32 to)
{
    if (from == INSIDE)
        return to == INSIDE ? WITHIN : OUT;
    return to == INSIDE ? IN : THROUGH;
}

/* What waits in the queue that a packet has just left, for its driver. */
static inline u32 packets_behind(struct sk_buff *skb)
{
    struct net_device *dev = NC_GET(skb, dev);
    u64 queues = (u64)NC_READ(dev, _tx);
    struct netdev_queue *queue = (void *)(queues + NC_GET(skb, queue_mapping) * sizeof(*queue));
    struct Qdisc *qdisc = NC_READ(queue, qdisc);

    return qdisc ? NC_READ(qdisc, q.qlen) : 0;
}

static inline void add_stacks(void *ctx, struct nc_config *config, struct slow_event *event, u64 address)
{
    struct way_stacks *way = wants_stacks(config) ? ways.lookup(&address) : NULL;

    event->stack[0] = event->way.queued[0] = event->way.received[0] = 0;
    event->way.asked[0] = event->way.acted[0] = event->way.first[0] = 0;
    if (way)
        event->way = *way;
    if (wants_stacks(config))
        take_stack(ctx, event->stack);
}

/* It crossed, and as long as it was only counted, nothing else is known. */
static inline void count_crossed(struct path_transit *transit, u32 packets)
{
    nc_count(CROSSED);
    latency_count(PACKETS, packets);
    if (transit->unlisted)
        nc_ledger_add(NC_UNLISTED);
}

static inline void account(void *ctx, struct nc_config *config, struct scratch *scratch, struct path_transit *transit,
                           struct nc_member *member, struct sk_buff *skb, int sent, u64 now)
{
    struct latency_sample *sample = &scratch->event.sample;
    u64 direction = direction_of(transit->set, member->set);
    int slow;

    sample->packets = path_packets(skb, &scratch->packet);
    count_crossed(transit, sample->packets);
    if (transit->unlisted)
        return;
    sample->mono_ns = now;
    __builtin_memcpy(sample->from, transit->device, sizeof(sample->from));
    __builtin_memcpy(sample->to, member->name, sizeof(sample->to));
    if (!flow_is_inside(config))
        path_read(&scratch->packet, skb, sent, 0);
    path_flow_of(&scratch->flow, &scratch->packet, skb);
    latency_flow_of(&sample->flow, direction, &scratch->flow);
    sample->total_ns = split(&scratch->event.took, transit, now);
    sample->length = NC_GET(skb, len);
    slow = latency_slow(config, sample->total_ns);

    if (slow)
        nc_count(SLOW);
    if (nc_may_list(config)) {
        latency_add(sample, slow);
        add_stages(direction, transit, &scratch->event.took);
    }
    nc_listed(config);
    if (!latency_event_wanted(config, slow, now))
        return;
    scratch->event.cpu = bpf_get_smp_processor_id();
    scratch->event.flow_hash = NC_GET(skb, hash);
    scratch->event.queue_packets = sent ? packets_behind(skb) : 0;
    add_stacks(ctx, config, &scratch->event, transit->address);
    nc_submit(ctx, &scratch->event, sizeof(scratch->event));
}

/* The transit of a packet that was segmented after it was queued. The CPU that segments it sends the segments one after another. */
static inline struct path_transit *transit_of_segment(struct scratch *scratch, struct net_device *dev)
{
    struct recent *recent = &scratch->recent;
    struct path_packet *packet = &scratch->packet;
    u32 sequence = bpf_ntohl(path_u32(packet, packet->version == 4 ? 24 : 44));
    struct path_transit *transit;

    if (recent->device != (u64)dev || recent->ports != path_u32(packet, packet->version == 4 ? 20 : 40))
        return NULL;
    if (packet->protocol == 6 && sequence - recent->sequence >= recent->length)
        return NULL;
    transit = path_find(recent->queued);
    if (!transit || transit->state == PATH_FREE)
        return NULL;
    transit->state = PATH_DONE;
    nc_count(SEGMENTS);
    return transit;
}

/* A packet leaves and no transit is known. It counts as missed only if it was received on a device of a set. A packet that the filters
 * kept out has no transit either, and is not missed: it was received in the namespace where it leaves. */
static inline void unmatched(u32 slot, struct nc_config *config, struct scratch *scratch, struct sk_buff *skb, struct net_device *dev,
                             int sent)
{
    if (!flow_wanted(config, scratch, skb, sent) || !nc_netns_wanted(config, dev))
        return;
    if (!NC_GET(skb, skb_iif)) {
        nc_count(FROM_HOST);
        return;
    }
    nc_count(slot);
    if (nc_received_in(skb, NC_GET(dev, nd_net.net)))
        nc_ledger_add(NC_JOIN_MISSED);
}

/* Is this the packet of a transit that is only counted, without a look at its headers? It is when it came to this CPU last, was queued, and
 * says that it came in where that one did. Segments and fragments that the kernel makes say that as well, and may have the address of a
 * packet that was dropped. */
static inline int is_sure(struct path_transit *transit, struct nc_config *config, struct scratch *scratch, struct sk_buff *skb,
                          struct net_device *dev)
{
    return scratch->recent.received == transit->address && transit->point_ns[LAST_QUEUE] && path_came_there(transit, config, skb, dev);
}

/* The headers of a packet that is only counted are read where it stands for several. */
static inline void end_unlisted(struct scratch *scratch, struct path_transit *transit, struct sk_buff *skb, int sent)
{
    u32 packets = 1;

    transit->state = PATH_DONE;
    if (path_gso_size(skb)) {
        path_read(&scratch->packet, skb, sent, 1);
        packets = path_packets(skb, &scratch->packet);
    }
    count_crossed(transit, packets);
}

static inline void end(void *ctx, struct nc_config *config, struct sk_buff *skb, struct net_device *dev, struct nc_member *member, int sent)
{
    u32 zero = 0, otherwise = UNMATCHED;
    u64 now;
    struct scratch *scratch = scratches.lookup(&zero);
    struct path_transit *transit;
    struct path_fingerprint fingerprint;

    if (!scratch)
        return;
    transit = path_find(path_address(skb));
    if (transit && transit->unlisted && transit->state == PATH_IN_TRANSIT && is_sure(transit, config, scratch, skb, dev)) {
        end_unlisted(scratch, transit, skb, sent);
        return;
    }
    now = bpf_ktime_get_ns();
    path_read(&scratch->packet, skb, sent, 1);
    path_fingerprint_of(&fingerprint, &scratch->packet, nc_data_end(skb));
    if (transit && transit->state == PATH_DONE && path_same_packet(&fingerprint, &transit->fingerprint))
        return;         /* sent again because the driver was busy, or it crosses another device of a set */
    if (transit && transit->state == PATH_IN_TRANSIT) {
        int known = transit->point_ns[FIRST_QUEUE] || transit->tag || NC_GET(skb, skb_iif);
        transit->state = PATH_DONE;
        if (!known || !path_same_packet(&fingerprint, &transit->fingerprint)) {
            otherwise = EXCHANGED;
            transit = NULL;
        }
    } else {
        transit = NULL;
    }
    if (!transit)
        transit = transit_of_segment(scratch, dev);
    if (!transit) {
        unmatched(otherwise, config, scratch, skb, dev, sent);
        return;
    }
    account(ctx, config, scratch, transit, member, skb, sent, now);
}

int on_receive(struct bpf_raw_tracepoint_args *ctx)
{
    struct sk_buff *skb = NC_ARG(0);
    struct net_device *dev = NC_GET(skb, dev);
    struct nc_config *config = nc_config_get();
    struct nc_member *member = nc_member_of(dev);

    if (!config || !member)
        return 0;
    if (member->faces_host)
        end(ctx, config, skb, dev, member, 0);
    else
        start_transit(ctx, config, skb, dev, member, 0);
    return 0;
}

int on_send(struct bpf_raw_tracepoint_args *ctx)
{
    struct sk_buff *skb = NC_ARG(0);
    struct net_device *dev = NC_ARG(1);
    struct nc_config *config = nc_config_get();
    struct nc_member *member = nc_member_of(dev);

    if (!config || !member)
        return 0;
    if (member->faces_host)
        start_transit(ctx, config, skb, dev, member, 1);
    else
        end(ctx, config, skb, dev, member, 1);
    return 0;
}
