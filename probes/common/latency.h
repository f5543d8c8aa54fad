/* latency.h - the tables and the event of the probes that time packets: by direction and devices, by stage, by flow. */
#ifndef NETCONSOLE_LATENCY_H
#define NETCONSOLE_LATENCY_H

#include "netconsole.h"

/* Directions and stages that all of these probes have. */
#define OUT NC_WORD('o', 'u', 't', 0, 0, 0, 0, 0)
#define IN NC_WORD('i', 'n', 0, 0, 0, 0, 0, 0)
#define DEVICES NC_WORD('d', 'e', 'v', 'i', 'c', 'e', 's', 0)      /* first -> last device */
#define QDISC NC_WORD('q', 'd', 'i', 's', 'c', 0, 0, 0)            /* handed to the last device -> to its driver */

struct crossing_key {
    u64 direction;
    u64 from[2];
    u64 to[2];
    u32 pad;
    u32 slot;
};
BPF_TABLE("percpu_hash", struct crossing_key, struct nc_bucket, crossing, NC_ROWS_crossing);

struct stage_key {
    u64 direction;
    u64 stage;
    u32 pad;
    u32 slot;
};
BPF_TABLE("percpu_hash", struct stage_key, struct nc_bucket, stages, NC_ROWS_stages);

struct flow_key {
    u64 direction;
    u64 source[2];
    u64 target[2];
    u16 source_port;
    u16 target_port;
    u16 l4;
    u16 vlan;
};
struct flow_value {
    u64 packets;
    u64 bytes;
    u64 samples;
    u64 latency_ns;
    u64 slow;
    u64 latency_max_ns;
};
BPF_TABLE("percpu_hash", struct flow_key, struct flow_value, flows, NC_ROWS_flows);

/* One timed packet. Each probe's event begins with it. */
struct latency_sample {
    u64 mono_ns;
    u64 from[2];
    u64 to[2];
    struct flow_key flow;
    u64 total_ns;
    u32 length;
    u32 packets;
};

/* For programs that run with softirqs off: none interrupts another on its CPU, so they may share a counter. */
static inline void latency_count(u32 slot, u64 n)
{
    u64 *counter = nc_counters.lookup(&slot);
    if (counter)
        nc_add(counter, n);
}

static inline void latency_stage(u64 direction, u64 stage, u64 duration_ns)
{
    struct nc_bucket none = {};
    struct stage_key key = { .direction = direction, .stage = stage, .slot = nc_slot(duration_ns) };

    nc_bucket_add(stages.lookup_or_try_init(&key, &none), duration_ns);
}

static inline void latency_flow_of(struct flow_key *key, u64 direction, struct nc_flow *flow)
{
    key->direction = direction;
    __builtin_memcpy(key->source, flow->source, sizeof(key->source));
    __builtin_memcpy(key->target, flow->target, sizeof(key->target));
    key->source_port = flow->source_port;
    key->target_port = flow->target_port;
    key->l4 = flow->l4;
    key->vlan = flow->vlan;
}

/* Adds a sample to the histogram and to its flow. `slow`: it is above the threshold. */
static inline void latency_add(struct latency_sample *sample, int slow)
{
    struct crossing_key key = { .direction = sample->flow.direction, .slot = nc_slot(sample->total_ns) };
    struct nc_bucket none = {};
    struct flow_value no_flow = {}, *value;

    __builtin_memcpy(key.from, sample->from, sizeof(key.from));
    __builtin_memcpy(key.to, sample->to, sizeof(key.to));
    nc_bucket_add(crossing.lookup_or_try_init(&key, &none), sample->total_ns);
    value = flows.lookup_or_try_init(&sample->flow, &no_flow);
    if (!value) {
        nc_ledger_add(NC_MAP_FULL);
        return;
    }
    nc_add(&value->packets, sample->packets);
    nc_add(&value->bytes, sample->length);
    nc_add(&value->samples, 1);
    nc_add(&value->latency_ns, sample->total_ns);
    nc_add(&value->slow, slow);
    if (sample->total_ns > value->latency_max_ns)
        value->latency_max_ns = sample->total_ns;
}

/* Is it above the threshold? */
static inline int latency_slow(struct nc_config *config, u64 total_ns)
{
    return config->flags & NC_F_THRESHOLD && total_ns > config->threshold_ns;
}

static inline int latency_event_wanted(struct nc_config *config, int slow, u64 now)
{
    return config->flags & NC_F_DETAILS && (slow || !(config->flags & NC_F_THRESHOLD)) && nc_event_allowed(config, now);
}

#endif /* NETCONSOLE_LATENCY_H */
