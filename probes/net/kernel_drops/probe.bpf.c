/* kernel_drops - every packet that the kernel frees as dropped: the tracepoint kfree_skb (net/core/skbuff.c).
 *
 * Packets that ended well go by another tracepoint, consume_skb. From 6.3 some of them come here with the reason SKB_CONSUMED
 * (net_tx_action, and callers that found nothing wrong): these are not counted.
 */

#include "../../common/netconsole.h"
#include "../../common/example.h"

struct drop_key {
    u64 location;       /* the caller that dropped */
    struct nc_place place;
#define hook place.pad  /* HOOK_*, in the four bytes that a place leaves free */
    u32 reason;
    u16 ethertype;
    u16 l4;
};
struct drop_row {
    u64 count;
    u64 example;        /* see nc_example_due */
};
BPF_TABLE("percpu_hash", struct drop_key, struct drop_row, drops, NC_ROWS_drops);
BPF_TABLE("hash", struct drop_key, struct nc_example, examples, NC_ROWS_drops);

/* Rows that a CPU finds without hashing, which is the dearest part of a drop. The first key that comes to a place keeps it; what others of
 * this place count is in `drops` alone. Nothing moves from one to the other: the collector adds them up (near_rows.py). */
#define NEAR_SHIFT 6
struct near_drop {
    struct drop_key key;
    struct drop_row row;
};
BPF_PERCPU_ARRAY(near_drops, struct near_drop, 1 << NEAR_SHIFT);

#define STACK_DEPTH 16
struct drop_event {
    u64 mono_ns;
    struct drop_key key;
    struct nc_flow flow;
    u32 length;
    u32 cpu;
    u8 source_mac[6];   /* zeros: no Ethernet header */
    u8 target_mac[6];
    u8 pad[4];
    u64 stack[STACK_DEPTH];
    struct nc_begin begin;
};
BPF_PERCPU_ARRAY(records, struct drop_event, 1);

/* In mode details: who sent what was dropped, and by which way the kernel came there. Those that came last. */
struct flow_key {
    u64 location;
    u64 device[2];
    u64 source[2];
    u64 target[2];
    u32 netns;
    u32 reason;
    u16 source_port;
    u16 target_port;
    u16 ethertype;
    u16 vlan;
    u16 l4;
    u16 pad[3];
};
BPF_TABLE("lru_hash", struct flow_key, u64, flows, NC_ROWS_flows);

#define WAY_DEPTH 12
struct way_key {
    u64 location;
    u32 reason;
    u32 pad;
    u64 stack[WAY_DEPTH];
};
BPF_TABLE("lru_hash", struct way_key, u64, stacks, NC_ROWS_stacks);

struct way_scratch {
    u64 filling;        /* an interrupt must not fill it too */
    struct way_key key;
};
BPF_PERCPU_ARRAY(ways, struct way_scratch, 1);

/* Kernels before 5.17 give no reason: only the location tells. */
static inline u32 drop_reason(struct bpf_raw_tracepoint_args *ctx)
{
#if NARGS_kfree_skb >= 3
    return ctx->args[2];
#else
    return 0;
#endif
}

/* A message between processes of this host, or of one that could not be connected: it is no packet, has no protocol and no device. */
#define FAMILY_UNIX 1   /* AF_UNIX */
static inline int is_unix(struct sk_buff *skb)
{
    struct sock *sk = NC_READ(skb, sk);

    return sk && NC_READ(sk, __sk_common.skc_family) == FAMILY_UNIX;
}

/* Is this the device that a packet is at? While a packet is in a tree of TCP or of defragmentation, that memory holds a node of the tree. It
 * is a device if its queues point back. */
static inline int is_device(struct sk_buff *skb, struct net_device *dev)
{
    return dev && (!NC_GET(skb, next) || NC_GET(NC_GET(dev, _tx), dev) == dev);
}

static inline struct sock *socket_of(struct bpf_raw_tracepoint_args *ctx, struct sk_buff *skb)
{
    struct sock *sk = NULL;

#if NARGS_kfree_skb >= 4        /* read by a helper: the verifiers of 6.11 and 6.12 do not know that it may be NULL */
    bpf_probe_read_kernel(&sk, sizeof(sk), &ctx->args[3]);
#endif
    return sk ? sk : NC_READ(skb, sk);
}

#define DST_POINTER (~1UL)          /* the rest of _skb_refdst: SKB_DST_PTRMASK */
#define DST_OF_BRIDGE 0x10          /* DST_FAKE_RTABLE */
#define DST_OF_TUNNEL 0x80          /* DST_METADATA: where the packet came from, no route */

/* The namespace of a packet without a device: that of its socket, else of its route. Before 6.11 the kernel does not tell the socket of
 * what TCP throws away. */
static inline struct net *net_of(struct bpf_raw_tracepoint_args *ctx, struct sk_buff *skb)
{
    struct sock *sk = socket_of(ctx, skb);
    struct dst_entry *dst;
    struct net_device *dev;

    if (sk)
        return NC_READ(sk, __sk_common.skc_net.net);
    dst = (void *)(NC_READ(skb, _skb_refdst) & DST_POINTER);
    if (!dst || NC_READ(dst, flags) & (DST_OF_BRIDGE | DST_OF_TUNNEL))
        return NULL;
    dev = NC_READ(dst, dev);
    return dev ? NC_READ(dev, nd_net.net) : NULL;
}

/* Sockets clear or overwrite skb->dev (tcp_v4_rcv, udp_set_dev_scratch). Then the index of the receiving device tells where the packet
 * came in. It is looked up in the packet's namespace. */
static inline void drop_place(struct nc_place *place, struct bpf_raw_tracepoint_args *ctx, struct sk_buff *skb)
{
    struct net_device *dev = NC_GET(skb, dev);
    struct net *net;

    if (is_device(skb, dev))
        nc_place_of(place, dev);
    if (place->device[0])
        return;
    net = net_of(ctx, skb);
    if (!net)
        return;
    place->netns = NC_READ(net, ns.inum);
    nc_name_by_index(place->device, net, NC_READ(skb, skb_iif));
}

/* The hook at which a firewall dropped (HOOKS of netconsole_collector/names/labels.py). The kernel does not say it, but what it has
 * done to the packet until then does: a packet that came in has its device's index (skb_iif), one that was routed has a route, and one that
 * goes out has the device that it goes out by. Not told apart: ingress and prerouting, and on lo, which keeps the route, those and input. */
enum { HOOK_NONE, HOOK_PREROUTING, HOOK_INPUT, HOOK_FORWARD, HOOK_OUTPUT, HOOK_POSTROUTING, HOOK_LOOPBACK, HOOK_TO_HOST, HOOK_TO_MANY,
       HOOK_SOURCE_ROUTE, HOOK_NO_SYN };
#define ROUTE_IS_LOCAL 0xb0000000   /* RTCF_LOCAL, RTCF_MULTICAST, RTCF_BROADCAST */
#define ROUTE6_IS_LOCAL 0x80100000  /* RTF_LOCAL, RTF_ANYCAST */
#define DEVICE_IS_LOOPBACK 8        /* IFF_LOOPBACK */
static inline u32 hook_of(struct sk_buff *skb, struct nc_place *place, struct nc_flow *flow)
{
    struct net_device *dev = NC_GET(skb, dev);
    struct dst_entry *dst = (void *)(NC_GET(skb, _skb_refdst) & DST_POINTER);
    u32 index = NC_GET(skb, skb_iif), flags = dst ? NC_READ(dst, flags) : 0;
    int is_local;

    if (!place->device[0] || !dev)
        return dst ? HOOK_OUTPUT : HOOK_NONE;
    if (flags & DST_OF_BRIDGE)
        return HOOK_NONE;
    if (!dst || flags & DST_OF_TUNNEL)
        return index == NC_GET(dev, ifindex) ? HOOK_PREROUTING : HOOK_NONE;
    if (index != NC_GET(dev, ifindex))
        return HOOK_POSTROUTING;
    if (NC_GET(dev, flags) & DEVICE_IS_LOOPBACK)
        return HOOK_LOOPBACK;
    if (flow->ethertype == ETH_P_IP)
        is_local = NC_READ((struct rtable *)dst, rt_flags) & ROUTE_IS_LOCAL;
    else
        is_local = NC_READ((struct rt6_info *)dst, rt6i_flags) & ROUTE6_IS_LOCAL || *(u8 *)flow->target == 0xff;
    return is_local ? HOOK_INPUT : HOOK_FORWARD;
}

/* Whether the sender of an IPv4 packet prescribes its way (RFC 791): by its first option, or the one behind a padding. */
#define OPTION_PADDING 1
#define OPTION_LOOSE_ROUTE 131
#define OPTION_STRICT_ROUTE 137
static inline int has_source_route(struct sk_buff *skb)
{
    u8 first[4] = {}, options[4] = {}, option;
    u16 network = NC_GET(skb, network_header);

    if (nc_load_4(first, skb, network) || (first[0] & 15) <= 5 || nc_load_4(options, skb, network + 20))
        return 0;
    option = options[0] == OPTION_PADDING ? options[1] : options[0];
    return option == OPTION_LOOSE_ROUTE || option == OPTION_STRICT_ROUTE;
}

static inline int is_ipv6_off(u32 reason)
{
#ifdef HAVE_SKB_DROP_REASON_IPV6DISABLED
    return reason == SKB_DROP_REASON_IPV6DISABLED;
#else
    return 0;
#endif
}

static inline int is_without_reason(u32 reason)
{
#ifdef HAVE_SKB_DROP_REASON_NOT_SPECIFIED
    return reason == SKB_DROP_REASON_NOT_SPECIFIED;
#else
    return 1;           /* this kernel has none */
#endif
}

/* Whether there was no port or end to send a packet to (br_dev_xmit, vxlan_xmit). */
static inline int is_without_target(u32 reason)
{
#ifdef HAVE_SKB_DROP_REASON_NO_TX_TARGET
    return reason == SKB_DROP_REASON_NO_TX_TARGET;
#else
    return is_without_reason(reason);
#endif
}

/* Whether a frame is to more than one host, by its MAC (IEEE 802.3, 3.2.3). */
static inline int is_to_group(struct sk_buff *skb)
{
    u32 mac = NC_GET(skb, mac_header);
    u8 first = 0;

    return mac != 0xffff && !nc_load(&first, sizeof(first), skb, mac) && first & 1;
}

/* Whether IP may have turned a packet away because of its addresses. */
static inline int is_of_addresses(u32 reason)
{
    if (is_without_reason(reason))
        return 1;
#ifdef HAVE_SKB_DROP_REASON_IP_INADDRERRORS
    if (reason == SKB_DROP_REASON_IP_INADDRERRORS)
        return 1;
#endif
#ifdef HAVE_SKB_DROP_REASON_IP_INNOROUTES
    if (reason == SKB_DROP_REASON_IP_INNOROUTES)
        return 1;
#endif
#ifdef HAVE_SKB_DROP_REASON_IP_RPFILTER
    if (reason == SKB_DROP_REASON_IP_RPFILTER)
        return 1;
#endif
    return 0;
}

/* Whether to whom the frame was sent tells more of a drop. */
static inline int is_of_frames(u32 reason)
{
    return is_of_addresses(reason) || is_ipv6_off(reason) || is_without_target(reason);
}

/* To whom the frame was sent, of a packet that IP turned away, or IPv6 because it is off, or of this host itself with nobody to take it.
 * HOOK_TO_MANY: by broadcast or multicast, so that nobody misses it: in a network of several subnets each host gets the broadcasts of
 * all, and a bridge without ports has multicasts of its own. HOOK_TO_HOST: to this host alone. Of IPv4 it has no route yet, and the kernel
 * gives no reason: from an address that cannot be its sender, or to one that cannot be its target (before 6.14). HOOK_SOURCE_ROUTE: it has
 * a route, and options that the kernel refuses without a reason (ip_rcv_options). */
#define PACKET_TYPE 7   /* the lowest bits of a byte that has no other name */
enum { FRAME_TO_HOST, FRAME_TO_ALL, FRAME_TO_GROUP };   /* PACKET_HOST, PACKET_BROADCAST, PACKET_MULTICAST */
static inline u32 sent_to(struct sk_buff *skb, u32 reason, u16 ethertype)
{
    if (!NC_GET(skb, skb_iif))
        return is_without_target(reason) && is_to_group(skb) ? HOOK_TO_MANY : HOOK_NONE;
    if (ethertype == ETH_P_IP ? !is_of_addresses(reason) : !is_ipv6_off(reason))
        return HOOK_NONE;
#ifdef HAVE_sk_buff___pkt_type_offset
    u8 type = NC_AT(u8, (u8 *)skb + offsetof(struct sk_buff, __pkt_type_offset)) & PACKET_TYPE;

    if (type == FRAME_TO_ALL || type == FRAME_TO_GROUP)
        return HOOK_TO_MANY;
    if (is_without_reason(reason) && type == FRAME_TO_HOST) {
        if (!NC_GET(skb, _skb_refdst))
            return HOOK_TO_HOST;
        return has_source_route(skb) ? HOOK_SOURCE_ROUTE : HOOK_NONE;
    }
    if (is_ipv6_off(reason) && type == FRAME_TO_HOST)
        return HOOK_TO_HOST;
#endif
    return HOOK_NONE;
}

/* A TCP packet that no socket takes, and that begins no connection (RFC 9293, 3.1): mostly the rest of one that a program has ended while
 * data was on its way. */
static inline int is_rest_of_connection(struct sk_buff *skb, u32 reason, struct nc_flow *flow)
{
#ifdef HAVE_SKB_DROP_REASON_NO_SOCKET
    int flags = reason == SKB_DROP_REASON_NO_SOCKET ? nc_tcp_flags(flow, skb) : -1;

    return flags >= 0 && !(flags & NC_TCP_SYN);
#else
    return 0;
#endif
}

/* The device by which a packet came in, in the namespace that it is in now. */
static inline void came_in_by(u64 *name, struct bpf_raw_tracepoint_args *ctx, struct sk_buff *skb)
{
    u32 index = NC_GET(skb, skb_iif);
    struct net_device *dev = NC_GET(skb, dev);
    struct net *net = NULL;

    if (!index)         /* it was made on this host */
        return;
    if (is_device(skb, dev)) {
        if (NC_GET(dev, ifindex) == index) {
            NC_NAME(name, dev);
            return;
        }
        net = NC_READ(dev, nd_net.net);
    } else {
        net = net_of(ctx, skb);
    }
    if (net)
        nc_name_by_index(name, net, index);
}

static inline void keep_example(struct bpf_raw_tracepoint_args *ctx, struct sk_buff *skb, struct drop_key *key, struct nc_flow *flow)
{
    struct nc_example example = {};

    nc_example_of(&example, skb, flow);
    came_in_by(example.device, ctx, skb);
    examples.update(key, &example);
}

static inline int is_same(struct drop_key *one, struct drop_key *other)
{
    u64 *a = (u64 *)one, *b = (u64 *)other, differ = 0;

#pragma unroll
    for (int i = 0; i < sizeof(*one) / sizeof(u64); i++)
        differ |= a[i] ^ b[i];
    return !differ;
}

/* NULL: the key has no place near this CPU. A place that is free becomes its own: its next drop is counted there, so that nobody reads a
 * count beside half of a key. Before 6.1 an interrupt may run the program amid a run of it, and there are no such places. */
static inline struct drop_row *near_row(struct drop_key *key)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 1, 0)
    u64 hash = (key->location ^ key->place.device[0] ^ ((u64)key->reason << 40 | (u64)key->l4 << 24) ^ key->place.netns) * NC_ROW_HASH;
    u32 place = hash >> (64 - NEAR_SHIFT);
    struct near_drop *near = near_drops.lookup(&place);

    if (near && is_same(&near->key, key))
        return &near->row;
    if (near && !near->key.location) {
        near->key = *key;
        nc_example_due(&near->row.example);     /* the row in `drops` keeps this one */
    }
#endif
    return NULL;
}

static inline void count_flow(struct drop_key *drop, struct nc_flow *flow, u64 weight)
{
    struct flow_key key = {
        .location = drop->location,
        .device = { drop->place.device[0], drop->place.device[1] },
        .netns = drop->place.netns,
        .reason = drop->reason,
        .source = { flow->source[0], flow->source[1] },
        .target = { flow->target[0], flow->target[1] },
        .source_port = flow->source_port,
        .target_port = flow->target_port,
        .ethertype = flow->ethertype,
        .vlan = flow->vlan,
        .l4 = flow->l4,
    };
    u64 none = 0, *count = flows.lookup_or_try_init(&key, &none);

    if (count)
        __sync_fetch_and_add(count, weight);
    else
        nc_ledger_add(NC_MAP_FULL);
}

static inline void count_stack(struct bpf_raw_tracepoint_args *ctx, struct drop_key *drop)
{
    u64 none = 0, *count;
    int zero = 0;
    struct way_scratch *way = ways.lookup(&zero);

    if (!way || way->filling) {
        nc_ledger_add(NC_STACK_FAILED);
        return;
    }
    way->filling = 1;
    way->key.location = drop->location;
    way->key.reason = drop->reason;
    nc_stack(ctx, way->key.stack, sizeof(way->key.stack));
    count = stacks.lookup_or_try_init(&way->key, &none);
    if (count)
        __sync_fetch_and_add(count, 1);
    else
        nc_ledger_add(NC_MAP_FULL);
    way->filling = 0;
}

/* Of a packet with an Ethernet header before its network header. */
static inline void read_macs(struct drop_event *record, struct sk_buff *skb)
{
    u16 mac = NC_GET(skb, mac_header), network = NC_GET(skb, network_header);
    u8 macs[12] = {};

    if (mac != 0xffff && mac + 14 <= network)
        nc_load(macs, sizeof(macs), skb, mac);
    __builtin_memcpy(record->target_mac, macs, 6);
    __builtin_memcpy(record->source_mac, macs + 6, 6);
}

static inline void sample(struct bpf_raw_tracepoint_args *ctx, struct nc_config *config, struct sk_buff *skb, struct drop_key *key,
                          struct nc_flow *flow)
{
    u64 now = bpf_ktime_get_ns();
    struct drop_event *record;
    int zero = 0;

    if (!nc_event_in_budget(config, now))
        return;
    record = records.lookup(&zero);
    if (!record)
        return;
    record->mono_ns = now;
    record->key = *key;
    record->flow = *flow;
    record->length = NC_GET(skb, len);
    record->cpu = bpf_get_smp_processor_id();
    read_macs(record, skb);
    nc_stack(ctx, record->stack, sizeof(record->stack));
    record->begin.captured = 0;
    if (nc_knob(config, packets))
        nc_begin_of(&record->begin, skb);
    nc_submit(ctx, record, sizeof(*record));
}

static inline int reason_wanted(struct nc_config *config, u32 reason)
{
    int is_named = 0;

    if (!(config->flags & NC_F_REASON))
        return 1;
#pragma unroll
    for (int i = 0; i < NC_REASONS; i++)
        is_named |= config->reasons[i] == reason;
    return is_named != !!(config->flags & NC_F_NOT_REASON);
}

static inline void account(struct bpf_raw_tracepoint_args *ctx, struct nc_config *config)
{
    struct sk_buff *skb = NC_ARG(0);
    struct drop_key key = { .location = ctx->args[1], .reason = drop_reason(ctx) };
    struct nc_flow flow = {};
    struct drop_row *row, none = {};
    u64 weight;
    u32 flags;

#ifdef HAVE_SKB_CONSUMED
    if (key.reason == SKB_CONSUMED)
        return;
#endif
    flags = nc_flags(config);
    weight = nc_row_weight(config, flags, 0);
    if (!weight)        /* it is only counted */
        flags = (flags & ~NC_F_DETAILS) | NC_F_COUNTERS;
    if (!reason_wanted(config, key.reason)) {
        nc_unwanted();
        return;
    }
    if (!(flags & NC_F_COUNTERS) || flags & NC_F_PLACE)
        drop_place(&key.place, ctx, skb);
    if (!nc_place_wanted(config, &key.place)) {
        nc_unwanted();
        return;
    }
    if (!(flags & NC_F_COUNTERS) || flags & NC_F_FLOW)
        nc_parse(&flow, skb);
    if (flow.l4 == NC_L4_NONE && !flow.ethertype && (!(flags & NC_F_COUNTERS) || flags & NC_F_FLOW) && is_unix(skb))
        flow.l4 = NC_L4_UNIX;
    if (flags & NC_F_PORT || (config->flags & NC_F_DETAILS && !(flags & NC_F_COUNTERS)))
        nc_parse_ports(&flow, skb);
    if (!nc_packet_wanted(config, &flow, skb)) {
        nc_unwanted();
        return;
    }
    key.ethertype = flow.ethertype;
    key.l4 = flow.l4;
#ifdef HAVE_SKB_DROP_REASON_NETFILTER_DROP
    if (key.reason == SKB_DROP_REASON_NETFILTER_DROP && !(flags & NC_F_COUNTERS))
        key.hook = hook_of(skb, &key.place, &flow);
#endif
    if (!(flags & NC_F_COUNTERS) && is_of_frames(key.reason) && (flow.ethertype == ETH_P_IP || flow.ethertype == ETH_P_IPV6))
        key.hook = sent_to(skb, key.reason, flow.ethertype);
    if (!(flags & NC_F_COUNTERS) && is_rest_of_connection(skb, key.reason, &flow))
        key.hook = HOOK_NO_SYN;

    nc_count(0);
    if (flags & NC_F_COUNTERS) {
        if (weight)
            nc_ledger_add(NC_UNLISTED);
    } else {
        row = near_row(&key);
        if (!row)
            row = drops.lookup_or_try_init(&key, &none);
        if (row) {
            nc_add(&row->count, weight);
            nc_row_weighed(weight);
            if (nc_example_due(&row->example))
                keep_example(ctx, skb, &key, &flow);
        } else {
            nc_ledger_add_many(NC_MAP_FULL, weight);
        }
    }

    if (config->flags & NC_F_DETAILS && !(flags & NC_F_COUNTERS))
        count_flow(&key, &flow, weight);
    if (flags & NC_F_DETAILS) {
        if (nc_knob(config, by_stack))
            count_stack(ctx, &key);
        if (nc_flow_sampled(config, flow.source, flow.target, flow.source_port, flow.target_port))
            sample(ctx, config, skb, &key, &flow);
    } else if (config->flags & NC_F_DETAILS)
        nc_ledger_add(NC_BREAKER);
}

/* The collector puts another probe's program on this tracepoint here. */
BPF_PROG_ARRAY(nc_followers, 1);

int drop(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();

    if (config) {
        account(ctx, config);
        nc_leave(config);
    }
    nc_followers.call(ctx, 0);
    return 0;
}
