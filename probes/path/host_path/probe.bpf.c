/* host_path - how long packets take through the host between two sets of devices: from netif_receive_skb (net/core/dev.c,
 * __netif_receive_skb_core) to net_dev_start_xmit (net/core/dev.c, xmit_one), the last moment when a packet is not the driver's.
 *
 * All of these tracepoints fire with softirqs off, so no program of this probe ever interrupts another on its CPU. That holds for
 * packets that Open vSwitch's user space sends as well (net/openvswitch/datapath.c, ovs_packet_cmd_execute).
 * What the parts share is in host_path.h, the way through Open vSwitch in host_path_ovs.h, the stages in host_path_stages.h.
 */

#include "../../common/netconsole.h"
#include "../../common/devices.h"
#include "../../common/path.h"
#include "../../common/latency.h"
#include "shared.h"
#include "openvswitch.h"
#include "breakdown.h"

/* ---- a packet enters ---- */

static inline void begin(struct nc_config *config, struct sk_buff *skb, struct net_device *dev, struct nc_member *member, int sent)
{
    u32 zero = 0;
    struct desk *desk = desks.lookup(&zero);
    struct hand *hand = hands.lookup(&zero);
    struct path_way *way;
    u64 address;

    if (!desk || !hand)
        return;
    hand->received = 0;
    if (!flow_wanted(config, desk, skb, sent) || !nc_netns_wanted(config, dev))
        return;
    path_read(&desk->packet, skb, sent, 1);
    if (desk->packet.broken)
        nc_ledger_add(NC_PARSE_FAILED);
    address = path_address(&desk->address, skb);
    way = place_for(address);
    if (!way)
        return;
    way->address = address;
    way->moment_ns[UPCALL] = way->moment_ns[ACTION] = way->moment_ns[TRACKING] = way->spent_ns = 0;
    way->moment_ns[FIRST_QUEUE] = way->moment_ns[LAST_QUEUE] = 0;
    way->device[0] = member->name[0];
    way->device[1] = member->name[1];
    path_print_of(&way->print, &desk->packet, nc_data_end(skb));
    way->set = member->set;
    way->mark = sent ? FROM_HOST_STACK : FROM_DEVICE;
    way->state = PATH_UNDER_WAY;
    hand->received = address;
    nc_count(RECEIVED);
    way->since_ns = bpf_ktime_get_ns();
}

/* ---- on its way ---- */

/* Is the packet that is queued the one of this way? What this CPU has in hand is; else an unseen end may have freed the address. What was not
 * received by this host is another one, unless it was known before a tunnel made it look so. */
static inline int still_is(struct path_way *way, struct sk_buff *skb, struct hand *hand, struct desk *desk)
{
    struct path_print print;

    if (way->state != PATH_UNDER_WAY || (!NC_GET(skb, skb_iif) && !way->mark && !way->moment_ns[FIRST_QUEUE]))
        return 0;
    if (way->address == hand->received)
        return 1;
    path_read(&desk->packet, skb, 1, 1);
    path_print_of(&print, &desk->packet, nc_data_end(skb));
    return path_same(&print, &way->print);
}

/* A copy (for another port of a switch) has an address of its own: it is made while its CPU still has the packet in hand. */
static inline struct path_way *adopt(struct sk_buff *skb, struct hand *hand, struct desk *desk)
{
    u64 address = path_address(&desk->address, skb);
    struct path_way *way = hand->received ? path_find(hand->received) : NULL;

    if (!way || way->address == address || (!NC_GET(skb, skb_iif) && !way->mark))
        return NULL;
    desk->way = *way;
    path_read(&desk->packet, skb, 1, 1);
    path_print_of(&desk->way.print, &desk->packet, nc_data_end(skb));
    if (!desk->way.print.network || !path_same(&desk->way.print, &way->print))
        return NULL;
    way = place_for(address);
    if (!way)
        return NULL;
    desk->way.address = address;
    desk->way.state = PATH_UNDER_WAY;
    desk->way.moment_ns[FIRST_QUEUE] = desk->way.moment_ns[LAST_QUEUE] = 0;
    *way = desk->way;
    nc_count(COPIES);
    return way;
}

/* A device may want a packet cut that is longer than its MTU: its segments are other packets. */
static inline void expect_segments(struct sk_buff *skb, struct net_device *dev, struct hand *hand, struct desk *desk, u32 length)
{
    path_read(&desk->packet, skb, 1, 1);
    hand->queued = path_address(&desk->address, skb);
    hand->device = (u64)dev;
    hand->length = length;
    hand->ports = path_u32(&desk->packet, desk->packet.version == 4 ? 20 : 40);
    hand->sequence = bpf_ntohl(path_u32(&desk->packet, desk->packet.version == 4 ? 24 : 44));
}

int on_queue(struct bpf_raw_tracepoint_args *ctx)
{
    struct sk_buff *skb = NC_ARG(0);
    struct net_device *dev = NC_GET(skb, dev);
    u32 zero = 0, length = NC_GET(skb, len);
    struct desk *desk = desks.lookup(&zero);
    struct hand *hand = hands.lookup(&zero);
    struct path_way *way;
    u64 now;

    if (!desk || !hand)
        return 0;
    way = path_find(path_address(&desk->address, skb));
    if (!way || !still_is(way, skb, hand, desk))
        way = adopt(skb, hand, desk);
    if (!way)
        return 0;
    now = bpf_ktime_get_ns();
    if (!way->moment_ns[FIRST_QUEUE])
        way->moment_ns[FIRST_QUEUE] = now;
    way->moment_ns[LAST_QUEUE] = now;
    if (length > NC_GET(dev, mtu) + ETH_HLEN + VLAN_HLEN)
        expect_segments(skb, dev, hand, desk, length);
    return 0;
}

/* ---- inside Open vSwitch ---- */

#ifdef HAVE_OVS_ACTION_ATTR_CT
int on_action(struct bpf_raw_tracepoint_args *ctx)
{
    struct nlattr *action = NC_ARG(3);

    act(NC_ARG(1), ctx->args[1], NC_READ(action, nla_type) == OVS_ACTION_ATTR_CT);
    return 0;
}
#endif

int on_actions(struct pt_regs *ctx, void *datapath, struct sk_buff *skb)
{
    act(skb, (u64)skb, 0);
    return 0;
}

#ifdef HAVE_dp_upcall_info_cmd
int on_upcall(struct bpf_raw_tracepoint_args *ctx)
{
    struct dp_upcall_info *upcall = NC_ARG(3);

    ask(NC_ARG(1), ctx->args[1], NC_READ(upcall, cmd) != OVS_PACKET_CMD_MISS);
    return 0;
}

int on_upcall_function(struct pt_regs *ctx, void *datapath, struct sk_buff *skb, void *key, struct dp_upcall_info *upcall)
{
    ask(skb, (u64)skb, NC_READ(upcall, cmd) != OVS_PACKET_CMD_MISS);
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

static inline void account(void *ctx, struct nc_config *config, struct desk *desk, struct path_way *way, struct nc_member *member,
                           struct sk_buff *skb, int sent, u64 now)
{
    struct latency_sample *sample = &desk->event.sample;
    u64 direction = direction_of(way->set, member->set);
    int slow;

    sample->mono_ns = now;
    __builtin_memcpy(sample->from, way->device, sizeof(sample->from));
    __builtin_memcpy(sample->to, member->name, sizeof(sample->to));
    sample->packets = path_packets(skb, &desk->packet);
    if (!flow_is_inside(config))
        path_read(&desk->packet, skb, sent, 0);
    path_flow_of(&desk->flow, &desk->packet, skb);
    latency_flow_of(&sample->flow, direction, &desk->flow);
    sample->total_ns = split(&desk->event.took, way, now);
    sample->length = NC_GET(skb, len);
    slow = latency_slow(config, sample->total_ns);

    nc_count(CROSSED);
    latency_count(PACKETS, sample->packets);
    if (slow)
        nc_count(SLOW);
    if (nc_may_list(config)) {
        latency_add(sample, slow);
        add_stages(direction, way, &desk->event.took);
    }
    nc_listed(config);
    if (latency_event_wanted(config, slow, now))
        nc_submit(ctx, &desk->event, sizeof(desk->event));
}

/* Segments of a packet that was cut after it was queued: sent one after the other by the CPU that cut it. */
static inline struct path_way *way_of_segment(struct desk *desk, struct net_device *dev)
{
    u32 zero = 0;
    struct hand *hand = hands.lookup(&zero);
    struct path_packet *packet = &desk->packet;
    u32 sequence = bpf_ntohl(path_u32(packet, packet->version == 4 ? 24 : 44));
    struct path_way *way;

    if (!hand || hand->device != (u64)dev || hand->ports != path_u32(packet, packet->version == 4 ? 20 : 40))
        return NULL;
    if (packet->protocol == 6 && sequence - hand->sequence >= hand->length)
        return NULL;
    way = path_find(hand->queued);
    if (!way || way->state == PATH_FREE)
        return NULL;
    way->state = PATH_OVER;
    nc_count(SEGMENTS);
    return way;
}

/* An end without a start: a loss only when the packet did begin on a device of a set. */
static inline void unmatched(u32 slot, struct nc_config *config, struct desk *desk, struct sk_buff *skb, struct net_device *dev, int sent)
{
    if (!flow_wanted(config, desk, skb, sent))
        return;
    if (!NC_GET(skb, skb_iif)) {
        nc_count(FROM_HOST);
        return;
    }
    nc_count(slot);
    if (nc_received_in(skb, NC_GET(dev, nd_net.net)))
        nc_ledger_add(NC_JOIN_MISSED);
}

static inline void end(void *ctx, struct nc_config *config, struct sk_buff *skb, struct net_device *dev, struct nc_member *member, int sent)
{
    u32 zero = 0;
    u64 now = bpf_ktime_get_ns();
    struct desk *desk = desks.lookup(&zero);
    struct path_way *way;
    struct path_print print;

    if (!desk)
        return;
    way = path_find(path_address(&desk->address, skb));
    path_read(&desk->packet, skb, sent, 1);
    path_print_of(&print, &desk->packet, nc_data_end(skb));
    if (way && way->state == PATH_OVER && path_same(&print, &way->print))
        return;         /* its driver was busy and it is sent again, or it crosses another device of a set */
    if (way && way->state == PATH_UNDER_WAY) {
        int known = way->moment_ns[FIRST_QUEUE] || way->mark || NC_GET(skb, skb_iif);
        way->state = PATH_OVER;
        if (!known || !path_same(&print, &way->print)) {
            unmatched(EXCHANGED, config, desk, skb, dev, sent);
            return;
        }
    } else {
        way = way_of_segment(desk, dev);
        if (!way) {
            unmatched(UNMATCHED, config, desk, skb, dev, sent);
            return;
        }
    }
    account(ctx, config, desk, way, member, skb, sent, now);
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
        begin(config, skb, dev, member, 0);
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
        begin(config, skb, dev, member, 1);
    else
        end(ctx, config, skb, dev, member, 1);
    return 0;
}
