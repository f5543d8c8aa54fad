/* Programs that call the shared headers, one for each thing that those do, at a time that the test sets. */
struct made_clock {
    u64 ns;
    u64 jiffies;
};
BPF_ARRAY(made_clock, struct made_clock, 1);

static inline u64 made_ns(u64 more)
{
    int zero = 0;
    struct made_clock *clock = made_clock.lookup(&zero);

    return clock ? clock->ns += more : 0;
}

static inline u64 made_jiffies(void)
{
    int zero = 0;
    struct made_clock *clock = made_clock.lookup(&zero);

    return clock ? clock->jiffies : 0;
}

#define bpf_ktime_get_ns() made_ns(0)
#define bpf_jiffies64() made_jiffies()
#include "../../common/netconsole.h"

struct value_key {
    u32 which;
    u32 slot;
};
BPF_TABLE("percpu_hash", struct value_key, struct nc_bucket, values, NC_ROWS_values);
BPF_PERCPU_ARRAY(whole, struct nc_cpu_histogram, 1);

int slot(struct bpf_raw_tracepoint_args *ctx)
{
    return nc_slot(ctx->args[0]);
}

/* Into both kinds of histogram. */
int value(struct bpf_raw_tracepoint_args *ctx)
{
    struct value_key key = { .slot = nc_slot(ctx->args[0]) };
    struct nc_bucket none = {};
    u32 zero = 0;

    nc_bucket_add(values.lookup_or_try_init(&key, &none), ctx->args[0]);
    nc_cpu_histogram_add(whole.lookup(&zero), ctx->args[0]);
    return 0;
}

int count(struct bpf_raw_tracepoint_args *ctx)
{
    nc_count(0);
    nc_count_shared(1);
    nc_ledger_add_many(NC_JOIN_MISSED, ctx->args[0]);
    return 0;
}

/* A run that takes so many ns: what it may do. The second argument: a filter ends it. */
int flags(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    u32 flags;

    if (!config)
        return 0;
    flags = nc_flags(config);
    if (ctx->args[1])
        nc_unwanted();
    made_ns(ctx->args[0]);
    nc_leave(config);
    return flags;
}

/* Rows of a packet, which take so many ns: whether they may be made. */
int list(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    int may;

    if (!config)
        return 0;
    may = nc_may_list(config);
    made_ns(ctx->args[0]);
    nc_listed(config);
    return may;
}

int measure(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    int may;

    if (!config)
        return 0;
    may = nc_may_measure(config);
    made_ns(ctx->args[0]);
    nc_measured(config);
    return may;
}

struct event {
    u64 mono_ns;
};

/* An event that takes so many ns: whether there is budget. The second argument: it is submitted, too. */
int event(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct event record = { .mono_ns = bpf_ktime_get_ns() };

    if (!config || !nc_event_allowed(config, record.mono_ns))
        return 0;
    made_ns(ctx->args[0]);
    if (ctx->args[1])
        nc_submit(ctx, &record, sizeof(record));
    return 1;
}

/* Whether the bucket has an event, asked by a CPU that has found it so before another one took it. */
int charge(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    int zero = 0;
    u64 *arrival_ns = nc_arrival.lookup(&zero);

    return config && arrival_ns ? nc_charge(config, arrival_ns, bpf_ktime_get_ns()) : 0;
}

/* Whether details of a flow are wanted: four halves of addresses, and two ports. */
int sampled(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    u64 source[2] = { ctx->args[0], ctx->args[1] }, target[2] = { ctx->args[2], ctx->args[3] };

    return config ? nc_flow_sampled(config, source, target, ctx->args[4], ctx->args[5]) : 0;
}
