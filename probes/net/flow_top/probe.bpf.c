/* flow_top - each flow, by device and direction: netif_receive_skb and net_dev_start_xmit (net/core/dev.c).
 *
 * `flows` has room for NC_ROWS_flows flows of all CPUs together. Each of them is counted exactly, from its first packet on.
 *
 * A flow that finds no place there is listed beyond: each CPU has a table of its own, so no two programs write one entry. It has SETS sets
 * of WAYS flows. A flow belongs to one set, by a hash with a secret seed. In each set runs Space-Saving (Metwally, Agrawal, El Abbadi, ICDT
 * 2005): a flow that is not there takes the place of the one with the lowest weight, and goes on from that weight. With each window of 2^30
 * ns all weights are halved, so that what was heavy long ago gives way.
 *
 * The bound, for one CPU: in a window a weight never falls, and a flow that takes a place begins with all that its place had. So while a
 * flow is listed, its weight is at least what it sent in this window, and a flow that is not listed sent at most the highest weight that
 * was taken over in it: `at_most` of the table `cpus`. What a row may lack of the window in which it came is its `missed`, the weight that
 * it took over. Each packet adds one to one weight: at the end of a window the weights of a set add up to at most its packets and half of
 * what they were before, so to twice its packets at a steady rate. The lowest of WAYS weights is at most twice the packets / WAYS: a flow
 * with more than that is listed.
 *
 * A row counts only the packets since its flow has a place, so it is never too high. What a flow had when it left is counted, too:
 * received + sent = packets of all rows + left_packets + what was not listed. Who has a place in `flows` keeps it until the collector takes
 * it out, idle.
 */

#include "../../common/netconsole.h"
#include "../../common/path.h"

enum { RECEIVED, SENT, RECEIVED_BYTES, SENT_BYTES, LEFT_PACKETS };     /* counters */

#define SETS 64
#define WAYS 8          /* in the manifest, too */
#define WINDOW_SHIFT 30
#define GOLDEN 0x9e3779b97f4a7c15ull
#define TUNNEL_BYTES 50         /* IPv4, UDP, VXLAN or Geneve, and Ethernet: what lies at least before an inner packet */

#define RETRY_SHIFT 27  /* ns: for so long a CPU looks for no place in a full `flows`, where each look costs a sum over all CPUs */

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 1, 0)
#define BY_NEED BPF_F_NO_PREALLOC   /* memory for the flows that there are; before, programs on tracepoints must not allocate */
#else
#define BY_NEED 0
#endif

#define WORDS 9
struct flow_key {
    u64 direction;      /* "in", "out" */
    u64 device[2];
    u64 source[2];
    u64 target[2];
    u32 netns;
    u16 source_port;
    u16 target_port;
    u16 ethertype;
    u16 vlan;
    u16 l4;
    u16 inner;          /* 1: a packet inside a tunnel */
};
struct flow_row {
    u64 packets;
    u64 bytes;
    u64 missed;         /* of a flow that may have been beyond before: as below */
    u64 first_ns;
    u64 last_ns;
};
BPF_F_TABLE("hash", struct flow_key, struct flow_row, flows, NC_ROWS_flows, BY_NEED);

struct entry {
    struct flow_key key;
    u64 packets;        /* since the flow is in the table; 0: free */
    u64 bytes;
    u64 missed;         /* at most so many packets of the window in which it came are not in `packets` */
    u64 hash;
    u32 window;
    u32 weight;         /* as it was in that window */
};
struct entry_set {
    struct entry way[WAYS];
};
BPF_PERCPU_ARRAY(beyond, struct entry_set, SETS);

struct of_cpu {
    u64 seed;
    u64 at_most;        /* in this window */
    u64 retry_ns;       /* until then no place is looked for in `flows` */
    u32 window;
    u32 pad;
};
BPF_PERCPU_ARRAY(own, struct of_cpu, 1);

struct left {
    u64 flows;
    u64 packets;
    u64 at_most;        /* in the last whole window, or in this one if that is more */
};
BPF_TABLE("hash", u32, struct left, cpus, NC_ROWS_cpus);

/* Programs for both directions write the counters, but no slot is written by two: `LEFT_PACKETS` is, and they do not interrupt each other. */
static inline void count_many(u32 slot, u64 n)
{
    u64 *counter = nc_counters.lookup(&slot);

    if (counter)
        __sync_fetch_and_add(counter, n);
}

static inline u64 flow_hash(u64 hash, struct flow_key *key)
{
    u64 *words = (u64 *)key;

#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        hash = (hash ^ words[i]) * GOLDEN;
        hash ^= hash >> 29;
    }
    return hash | 1;
}

static inline int same_flow(struct flow_key *a, struct flow_key *b)
{
    u64 *one = (u64 *)a, *other = (u64 *)b, differs = 0;

#pragma unroll
    for (int i = 0; i < WORDS; i++)
        differs |= one[i] ^ other[i];
    return !differs;
}

static inline u32 weight_in(struct entry *entry, u32 window)
{
    u32 windows = window - entry->window;

    return windows < 32 ? entry->weight >> windows : 0;
}

static inline void count_left(struct of_cpu *own, u32 window, u64 packets, u32 weight)
{
    struct left *left, none = {};
    u32 cpu = bpf_get_smp_processor_id();

    count_many(LEFT_PACKETS, packets);
    left = cpus.lookup_or_try_init(&cpu, &none);
    if (!left) {
        nc_ledger_add(NC_MAP_FULL);
        return;
    }
    if (own->window != window) {
        left->at_most = own->window + 1 == window ? own->at_most : 0;
        own->window = window;
        own->at_most = 0;
    }
    left->flows++;
    left->packets += packets;
    if (weight > own->at_most)
        own->at_most = weight;
    if (weight > left->at_most)
        left->at_most = weight;
}

/* A place for a new flow. NULL: there is none. */
static inline struct flow_row *place(struct of_cpu *mine, struct flow_key *key, u64 now)
{
    struct flow_row fresh = { .first_ns = now };
    u32 window = now >> WINDOW_SHIFT;

    if (now < mine->retry_ns)
        return NULL;
    if (mine->at_most && window - mine->window < 2)
        fresh.missed = mine->at_most;
    if (flows.insert(key, &fresh) == -7)        /* E2BIG */
        mine->retry_ns = now + (1ull << RETRY_SHIFT);
    return flows.lookup(key);
}

static inline void list_beyond(struct of_cpu *mine, struct flow_key *key, u32 packets, u32 bytes, u64 now)
{
    struct entry_set *set;
    struct entry *entry;
    u32 window, index, chosen = 0, lowest = ~0u, weight;
    u64 hash;

    if (!mine->seed)
        mine->seed = ((u64)bpf_get_prandom_u32() << 32 | bpf_get_prandom_u32()) | 1;
    hash = flow_hash(mine->seed, key);
    index = hash >> 58;         /* 6 bits */
    set = beyond.lookup(&index);
    if (!set)
        return;
    window = now >> WINDOW_SHIFT;
#pragma unroll
    for (u32 i = 0; i < WAYS; i++) {
        if (set->way[i].hash == hash) {
            chosen = i;
            break;
        }
        weight = set->way[i].packets ? weight_in(&set->way[i], window) + 1 : 0;     /* a free one first */
        if (weight < lowest) {
            lowest = weight;
            chosen = i;
        }
    }
    entry = &set->way[chosen & (WAYS - 1)];
    weight = weight_in(entry, window);
    if (entry->hash != hash || !same_flow(&entry->key, key)) {
        if (entry->packets)
            count_left(mine, window, entry->packets, weight);
        entry->key = *key;
        entry->hash = hash;
        entry->packets = entry->bytes = 0;
        entry->missed = weight;
    }
    entry->window = window;
    entry->weight = weight + packets;
    entry->packets += packets;
    entry->bytes += bytes;
}

static inline void list(struct flow_key *key, u32 packets, u32 bytes)
{
    int zero = 0;
    u64 now = bpf_ktime_get_ns();
    struct flow_row *row = flows.lookup(key);
    struct of_cpu *mine;

    if (!row) {
        mine = own.lookup(&zero);
        if (!mine)
            return;
        row = place(mine, key, now);
        if (!row) {
            list_beyond(mine, key, packets, bytes, now);
            return;
        }
    }
    __sync_fetch_and_add(&row->packets, packets);
    __sync_fetch_and_add(&row->bytes, bytes);
    row->last_ns = now;
}

static inline int account(struct sk_buff *skb, struct net_device *dev, int is_sent)
{
    struct nc_config *config = nc_config_get();
    struct path_packet packet;
    struct nc_place place = {};
    struct flow_key key = {};
    struct nc_flow flow;
    u32 packets, bytes, before;

    if (!config)
        return 0;
    nc_place_of(&place, dev);
    if (!nc_place_wanted(config, &place))
        return 0;
    path_read(&packet, skb, is_sent, 1);
    path_flow_of(&flow, &packet, skb);
    if (flow.l4 == NC_L4_UNPARSED)
        nc_ledger_add(NC_PARSE_FAILED);
    if (!nc_packet_wanted(config, &flow, skb))
        return 0;
    packets = path_packets(skb, &packet);
    before = (u64)NC_GET(skb, data) - (u64)NC_GET(skb, head);
    bytes = NC_GET(skb, len);
    if (is_sent) {
        before = NC_GET(skb, network_header);
    } else if (NC_GET(skb, mac_header) < before) {
        bytes += before - NC_GET(skb, mac_header);
    }
    count_many(is_sent ? SENT : RECEIVED, packets);
    count_many(is_sent ? SENT_BYTES : RECEIVED_BYTES, bytes);
    if (nc_may_list(config)) {
        key.direction = is_sent ? NC_WORD('o', 'u', 't', 0, 0, 0, 0, 0) : NC_WORD('i', 'n', 0, 0, 0, 0, 0, 0);
        key.device[0] = place.device[0];
        key.device[1] = place.device[1];
        key.netns = place.netns;
        __builtin_memcpy(key.source, flow.source, sizeof(key.source));
        __builtin_memcpy(key.target, flow.target, sizeof(key.target));
        key.source_port = flow.source_port;
        key.target_port = flow.target_port;
        key.ethertype = flow.ethertype;
        key.vlan = flow.vlan;
        key.l4 = flow.l4;
        key.inner = packet.at >= before + TUNNEL_BYTES;
        list(&key, packets, bytes);
    } else if (packets > 1) {
        nc_ledger_add_many(NC_UNLISTED, packets - 1);   /* nc_may_list has counted one */
    }
    nc_listed(config);
    return 0;
}

int received(struct bpf_raw_tracepoint_args *ctx)
{
    struct sk_buff *skb = NC_ARG(0);

    return account(skb, NC_GET(skb, dev), 0);
}

int sent(struct bpf_raw_tracepoint_args *ctx)
{
    struct sk_buff *skb = NC_ARG(0);
    struct net_device *dev = NC_ARG(1);

    return account(skb, dev, 1);
}
