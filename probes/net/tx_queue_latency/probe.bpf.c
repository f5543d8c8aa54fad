/* tx_queue_latency - how long packets wait in a queueing discipline, and which are dropped there or refused by the driver.
 *
 * A wait begins at net_dev_queue and ends at net_dev_start_xmit, or at kfree_skb for a packet that was dropped in the queue. net_dev_xmit
 * tells what the driver returned. Only packets of devices that really queue are timed: loopback, veth, bridges and taps without a qdisc
 * cost a few loads.
 *
 * A root with classes gives a packet to the enqueue function of the leaf below its class (htb_enqueue), between net_dev_queue and its
 * end. No tracepoint tells the leaf: in mode details the functions of leaves do.
 */

#include "../../common/netconsole.h"
#include "../../common/resumed.h"

enum { QUEUED, SENT, DROPPED, REFUSED };        /* counters */

/* ---- packets that wait, by the address of packet and device ----
 *
 * A set-associative table in an array, whose look-up is inlined. Some packets never leave: of one that is segmented in software, the
 * original is consumed. Their entry is taken by the next packet with that address, or evicted when the set is full. Both are counted as
 * join_missed, so queued = sent + dropped + join_missed + waiting. A segment passes no queue itself and may have that address: by its
 * length it is another packet. Two CPUs that write into one set in the same nanoseconds may take the
 * same entry: the packet that was overwritten has no sample. */
#define SETS 4096
#define WAYS 4

struct wait {
    u64 key;            /* 0: free */
    u64 since_ns;
    u32 class;          /* of the root that has classes; 0: none is known */
    u32 length;
};
struct wait_set {
    struct wait way[WAYS];
};
BPF_ARRAY(waiting, struct wait_set, SETS);

/* One number for packet and device. The factor keeps pairs apart: no distance between two devices equals one between two packets. */
#define GOLDEN 0x9e3779b97f4a7c15ull
static inline u64 wait_key(struct nc_config *config, void *skb, void *dev)
{
    return nc_number_of(config, skb) + nc_number_of(config, dev) * GOLDEN;
}

static inline struct wait_set *wait_set_of(u64 key)
{
    u32 index = key * GOLDEN >> 52;     /* Fibonacci hashing, 12 bits */
    return waiting.lookup(&index);
}

static inline void wait_begin(u64 key, u32 length, u64 now)
{
    struct wait_set *set = wait_set_of(key);
    int chosen = 0;

    if (!set)
        return;
#pragma unroll
    for (int i = WAYS - 1; i >= 0; i--) {       /* the entry of this packet, else a free one, else that of the longest wait */
        if (set->way[i].key == key) {
            chosen = i;
            break;
        }
        if (set->way[chosen].key && (!set->way[i].key || set->way[i].since_ns < set->way[chosen].since_ns))
            chosen = i;
    }
    if (set->way[chosen & (WAYS - 1)].key)
        nc_ledger_add(NC_JOIN_MISSED);
    set->way[chosen & (WAYS - 1)].since_ns = now;
    set->way[chosen & (WAYS - 1)].class = 0;
    set->way[chosen & (WAYS - 1)].length = length;
    set->way[chosen & (WAYS - 1)].key = key;
}

#define TAGS 8          /* bytes: behind the queue the kernel may push VLAN tags into a packet */

/* When the wait began, and its class; 0 when the packet was not waiting. If it began before the programs were attached again, another
 * packet may have had this address since; if the length differs, this one is another. */
static inline u64 wait_end(u64 key, u32 length, u32 *class)
{
    struct wait_set *set = wait_set_of(key);

    if (!set)
        return 0;
#pragma unroll
    for (int i = 0; i < WAYS; i++) {
        if (set->way[i].key == key) {
            u64 since_ns = set->way[i].since_ns;
            u32 grown = length - set->way[i].length;
            *class = set->way[i].class;
            set->way[i].key = 0;        /* last: from here on the entry may be taken */
            if (since_ns >= nc_resumed_ns() && grown <= TAGS)
                return since_ns;
            nc_ledger_add(NC_JOIN_MISSED);
            return 0;
        }
    }
    return 0;
}

/* ---- tables ---- */
#define tc_class place.pad  /* in the four bytes that a place leaves free */
struct queue_key {
    struct nc_place place;
    u32 queue;
    u32 slot;           /* of the histogram */
};
BPF_TABLE("percpu_hash", struct queue_key, struct nc_bucket, wait, NC_ROWS_wait);

struct dropped_key {
    struct nc_place place;
    u32 queue;
    u32 no_carrier;     /* 1: nothing is plugged in, so the kernel's noop_qdisc drops all */
};
BPF_TABLE("percpu_hash", struct dropped_key, u64, dropped, NC_ROWS_dropped);

#define QUEUE_UNKNOWN 0xffffffff
struct refused_key {
    struct nc_place place;
    u32 queue;
    s32 code;           /* what the driver returned */
};
BPF_TABLE("percpu_hash", struct refused_key, u64, refused, NC_ROWS_refused);

struct wait_event {
    u64 mono_ns;
    u64 waited_ns;
    struct nc_place place;
    struct nc_flow flow;
    u32 queue;
    u32 length;
};
BPF_PERCPU_ARRAY(records, struct wait_event, 1);

/* Does the device queue? noqueue has no enqueue function and is the qdisc of the first queue itself. mq, the root of a multi-queue
 * device, has no enqueue function either, but each of its queues has a qdisc of its own. */
static inline int device_queues(struct net_device *dev)
{
    struct Qdisc *root = NC_GET(dev, qdisc);
    struct netdev_queue *first = NC_GET(dev, _tx);
    return NC_GET(root, enqueue) || root != NC_GET(first, qdisc);
}

static inline int wanted(struct nc_config *config, struct sk_buff *skb, struct net_device *dev)
{
    struct nc_place place = {};
    struct nc_flow flow = {};

    if (config->flags & NC_F_PLACE) {
        nc_place_of(&place, dev);
        if (!nc_place_wanted(config, &place))
            return 0;
    }
    if (config->flags & NC_F_FLOW) {
        nc_parse(&flow, skb);
        nc_parse_ports(&flow, skb);
        return nc_packet_wanted(config, &flow, skb);
    }
    return 1;
}

int queued(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct sk_buff *skb = NC_ARG(0);
    struct net_device *dev = NC_GET(skb, dev);
    u32 class;

    if (!config || !device_queues(dev))
        return 0;
    if (!wanted(config, skb, dev)) {
        /* Its address may be that of a wanted packet that never left: it must not end that one's wait. */
        if (wait_end(wait_key(config, skb, dev), NC_GET(skb, len), &class))
            nc_ledger_add(NC_JOIN_MISSED);
        return 0;
    }
    nc_count(QUEUED);
    wait_begin(wait_key(config, skb, dev), NC_GET(skb, len), bpf_ktime_get_ns());
    return 0;
}

/* A leaf is given a packet. Of leaves in each other the innermost comes last. To the verifier an argument of a function is a number
 * (kernel_memory.h), and so must be what it is compared with. */
#define CLASS_OF_ROOT 0xffffffff        /* TC_H_ROOT: it is the leaf of no class */
int leaf(void *ctx)
{
    struct sk_buff *skb = NC_PARAMETER(0);
    struct Qdisc *qdisc = NC_PARAMETER(1);
    struct nc_config *config = nc_config_get();
    u32 class = NC_READ(qdisc, parent);
    struct wait_set *set;
    u64 key, base = 0;

    if (!config || !class || class == CLASS_OF_ROOT)
        return 0;
#if NC_DIRECT
    base = (u64)nc_number((u64)config);
#endif
    key = (u64)skb - base + ((u64)NC_READ(skb, dev) - base) * GOLDEN;
    set = wait_set_of(key);
    if (!set)
        return 0;
#pragma unroll
    for (int i = 0; i < WAYS; i++)
        if (set->way[i].key == key)
            set->way[i].class = class;
    return 0;
}

static inline void sample(struct bpf_raw_tracepoint_args *ctx, struct nc_config *config, struct sk_buff *skb, struct queue_key *key,
                          u64 now, u64 waited)
{
    struct wait_event *record;
    int zero = 0;

    if (config->flags & NC_F_THRESHOLD && waited <= config->threshold_ns)
        return;
    if (!nc_event_allowed(config, now))
        return;
    record = records.lookup(&zero);
    if (!record)
        return;
    __builtin_memset(&record->flow, 0, sizeof(record->flow));
    nc_parse(&record->flow, skb);
    nc_parse_ports(&record->flow, skb);
    record->mono_ns = now;
    record->waited_ns = waited;
    record->place = key->place;
    record->queue = key->queue;
    record->length = NC_GET(skb, len);
    nc_submit(ctx, record, sizeof(*record));
}

/* The queue of the packet that this CPU hands to a driver, and whether its flow passes the filters. net_dev_xmit, which is watched in mode
 * details, comes when the driver may have freed the packet already. */
struct handover {
    u64 skb;            /* 0: its flow does not pass the filters */
    u64 dev;
    u32 queue;
    u32 pad;
};
BPF_PERCPU_ARRAY(handovers, struct handover, 1);

int sent(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct sk_buff *skb = NC_ARG(0);
    struct net_device *dev = NC_ARG(1);
    struct handover *handover;
    struct queue_key key = {};
    struct nc_bucket none = {};
    u64 since, now, waited;
    u32 class = 0;
    int zero = 0;

    if (!config)
        return 0;
    key.queue = NC_GET(skb, queue_mapping);
    handover = config->flags & NC_F_DETAILS ? handovers.lookup(&zero) : NULL;
    if (handover) {
        handover->skb = wanted(config, skb, dev) ? ctx->args[0] : 0;
        handover->dev = ctx->args[1];
        handover->queue = key.queue;
    }
    since = wait_end(wait_key(config, skb, dev), NC_GET(skb, len), &class);
    if (!since)
        return 0;
    now = bpf_ktime_get_ns();
    waited = now > since ? now - since : 0;     /* between CPUs this clock may go back a little (ktime_get_mono_fast_ns) */
    nc_count(SENT);
    nc_place_of(&key.place, dev);
    key.tc_class = class;
    if (nc_may_list(config)) {
        key.slot = nc_slot(waited);
        nc_bucket_add(wait.lookup_or_try_init(&key, &none), waited);
    }
    nc_listed(config);
    if (config->flags & NC_F_DETAILS)
        sample(ctx, config, skb, &key, now, waited);
    return 0;
}

static inline void count_dropped(struct sk_buff *skb, struct net_device *dev, u32 class)
{
    struct dropped_key key = { .queue = NC_GET(skb, queue_mapping) };
    u64 *count, none = 0;

    nc_place_of(&key.place, dev);
    key.tc_class = class;
    key.no_carrier = NC_GET(dev, state) >> __LINK_STATE_NOCARRIER & 1;
    count = dropped.lookup_or_try_init(&key, &none);
    if (count)
        nc_add(count, 1);
    else
        nc_ledger_add(NC_MAP_FULL);
}

int freed(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct sk_buff *skb = NC_ARG(0);
    struct net_device *dev = NC_GET(skb, dev);
    u32 class = 0;

    if (!config || !wait_end(wait_key(config, skb, dev), NC_GET(skb, len), &class))
        return 0;
    nc_count(DROPPED);
    if (nc_may_list(config))
        count_dropped(skb, dev, class);
    nc_listed(config);
    return 0;
}

int returned(struct bpf_raw_tracepoint_args *ctx)
{
    s32 code = ctx->args[1];
    struct refused_key key = { .queue = QUEUE_UNKNOWN, .code = code };
    struct nc_config *config;
    struct handover *handover;
    u64 *count, none = 0;
    int zero = 0;

    if (code == 0)      /* NETDEV_TX_OK: the driver owns the packet and may have freed it */
        return 0;
    config = nc_config_get();
    handover = handovers.lookup(&zero);
    nc_place_of(&key.place, NC_ARG(2));
    if (!config || !nc_place_wanted(config, &key.place))
        return 0;
    if (handover && handover->skb == ctx->args[0] && handover->dev == ctx->args[2])
        key.queue = handover->queue;
    else if (config->flags & NC_F_FLOW)
        return 0;
    nc_count(REFUSED);
    count = refused.lookup_or_try_init(&key, &none);
    if (count)
        nc_add(count, 1);
    else
        nc_ledger_add(NC_MAP_FULL);
    return 0;
}
