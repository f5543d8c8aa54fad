/* flow_table.h - a table of flows, which counts NC_ROWS_flows of them exactly, from the first packet on, and of those beyond the heavy ones.
 *
 * A flow that finds no place in `flows` is listed beyond: each CPU has sets of its own, so no two programs write one entry. A set has WAYS
 * flows. A flow belongs to one set, by a hash with a secret seed. In each set runs Space-Saving (Metwally, Agrawal, El Abbadi, ICDT
 * 2005): a flow that is not there takes the place of the one with the lowest weight, and goes on from that weight. With each window of 2^30
 * ns all weights are halved, so that what was heavy long ago gives way.
 *
 * The bound, for one CPU: in a window a weight never falls, and a flow that takes a place begins with all that its place had. So while a
 * flow is listed, its weight is at least what it sent in this window, and a flow that is not listed sent at most the highest weight that
 * was taken over in it: `at_most` of the table `cpus`. What a row may lack of the window in which it came is its `missed`, the weight that
 * it took over. Each packet adds one to one weight: at the end of a window the weights of a set add up to at most its packets and half of
 * what they were before, so to twice its packets at a steady rate. The lowest of WAYS weights is at most twice the packets / WAYS: a flow
 * with more than that is listed. All CPUs together list 131 072 flows beyond (at least 512 each): where the packets are spread over the CPUs, a
 * row lacks no more than one packet of some 65 536.
 *
 * A row counts only the packets since its flow has a place, so it is never too high. What a flow had when it left is counted, too: all
 * packets = those of all rows + left_packets. Who has a place in `flows` keeps it until the collector takes it out, idle.
 *
 * A probe that includes this has struct flow_key, whose size is a multiple of 8; struct flow_row, which begins with packets, bytes and missed
 * and has first_ns and last_ns; BEYOND_ZEROS, the number of further gauges in its table, which are 0 beyond; and the counter LEFT_PACKETS.
 */
#ifndef NETCONSOLE_FLOW_TABLE_H
#define NETCONSOLE_FLOW_TABLE_H

#include "netconsole.h"

#define WAYS 8          /* in the manifest, too */
/* Sets of a CPU: 2 to the power of this, of all CPUs together 16 384 (at least 64 each). */
#define SET_BITS (NC_CPUS > 128 ? 6 : NC_CPUS > 64 ? 7 : NC_CPUS > 32 ? 8 : NC_CPUS > 16 ? 9 : NC_CPUS > 8 ? 10 : NC_CPUS > 4 ? 11 : \
                  NC_CPUS > 2 ? 12 : 13)
#define WINDOW_SHIFT 30
#define GOLDEN 0x9e3779b97f4a7c15ull
#define RETRY_SHIFT 27  /* ns: for so long a CPU looks for no place in a full table, where each look costs a sum over all CPUs */

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 1, 0)
#define BY_NEED BPF_F_NO_PREALLOC   /* memory for what there is; before, programs on tracepoints must not allocate */
#else
#define BY_NEED 0
#endif

#define WORDS (sizeof(struct flow_key) / 8)

BPF_F_TABLE("hash", struct flow_key, struct flow_row, flows, NC_ROWS_flows, BY_NEED);

struct entry {
    struct flow_key key;
    u64 packets;        /* since the flow is in the table; 0: free */
    u64 bytes;
    u64 missed;         /* at most so many packets of the window in which it came are not in `packets` */
    u64 zeros[BEYOND_ZEROS];
    u64 hash;
    u32 window;
    u32 weight;         /* as it was in that window */
};
struct entry_set {
    struct entry way[WAYS];
};
BPF_F_TABLE("hash", u32, struct entry_set, beyond, NC_CPUS << SET_BITS, BY_NEED);     /* by CPU and set */
BPF_ARRAY(no_entries, struct entry_set, 1);     /* zeros */

struct flow_own {
    u64 seed;
    u64 at_most;        /* in this window */
    u64 retry_ns;       /* until then no place is looked for in `flows` */
    u32 window;
    u32 pad;
};
BPF_PERCPU_ARRAY(flow_own, struct flow_own, 1);

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

static inline void count_left(struct flow_own *own, u32 window, u64 packets, u32 weight)
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
static inline struct flow_row *flow_place(struct flow_own *mine, struct flow_key *key, u64 now)
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

/* A set of this CPU, which is made when it is needed. */
static inline struct entry_set *set_of(u32 index)
{
    struct entry_set *set = beyond.lookup(&index), *none;
    u32 zero = 0;

    if (set)
        return set;
    none = no_entries.lookup(&zero);
    if (!none)
        return NULL;
    beyond.insert(&index, none);
    return beyond.lookup(&index);
}

static inline void list_beyond(struct flow_own *mine, struct flow_key *key, u32 packets, u32 bytes, u64 now)
{
    struct entry_set *set;
    struct entry *entry;
    u32 window, index, chosen = 0, lowest = ~0u, weight;
    u64 hash;

    if (!mine->seed)
        mine->seed = ((u64)bpf_get_prandom_u32() << 32 | bpf_get_prandom_u32()) | 1;
    hash = flow_hash(mine->seed, key);
    index = (bpf_get_smp_processor_id() << SET_BITS) + (hash >> (64 - SET_BITS));
    set = set_of(index);
    if (!set) {
        nc_ledger_add_many(NC_MAP_FULL, packets);
        return;
    }
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

/* Counts packets of a flow. Returns its row; NULL: it is listed beyond. */
static inline struct flow_row *flow_count(struct flow_key *key, u32 packets, u32 bytes, u64 now)
{
    struct flow_row *row = flows.lookup(key);
    struct flow_own *mine;
    u32 zero = 0;

    if (!row) {
        mine = flow_own.lookup(&zero);
        if (!mine)
            return NULL;
        row = flow_place(mine, key, now);
        if (!row) {
            list_beyond(mine, key, packets, bytes, now);
            return NULL;
        }
    }
    __sync_fetch_and_add(&row->packets, packets);
    __sync_fetch_and_add(&row->bytes, bytes);
    row->last_ns = now;
    return row;
}

#endif /* NETCONSOLE_FLOW_TABLE_H */
