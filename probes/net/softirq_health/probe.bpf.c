/* softirq_health - whether network softirqs start in time and finish their work: kernel/softirq.c, and napi_poll of net/core/dev.c.
 *
 * All softirqs come by here: all but the two of the network return at once. For those, the cost is reading the clock, three times for each
 * softirq. In a storm only the first ones in a few ticks are timed, and the others are taken to last as long. Counts stay exact.
 */

#include "../../common/netconsole.h"
#include "../../common/resumed.h"

enum { RX_RUNS, TX_RUNS, POLLS };       /* counters */

struct cpu_row {
    u64 rx_runs;
    u64 rx_ns;
    u64 tx_runs;
    u64 tx_ns;
    u64 polls;
    u64 packets;        /* work done by polls, as drivers count it */
    u64 exhausted;      /* polls that used all their budget: more packets were waiting */
    u64 rx_longest_ns;
};
BPF_ARRAY(cpus, struct cpu_row, NC_CPUS);

BPF_PERCPU_ARRAY(late, struct nc_cpu_histogram, NET_RX_SOFTIRQ + 1);    /* by softirq */

struct exhausted_key {
    struct nc_place place;
    u32 cpu;
    u32 pad;
};
BPF_TABLE("percpu_hash", struct exhausted_key, u64, exhausted, NC_ROWS_exhausted);

struct late_event {
    u64 mono_ns;
    u64 late_ns;
    u32 cpu;
    u32 softirq;
    u32 pid;
    u32 pad;
    char process[16];   /* the one that the softirq waited for, or interrupted */
};
BPF_PERCPU_ARRAY(records, struct late_event, 1);

#define TIMED_PER_TICKS 256     /* on one CPU, while nc_grant_ticks stays the same */
#define UNMEASURED 1            /* instead of a time */

struct times {
    u64 raised_ns[2];   /* first raise since the last entry; 0: none */
    u64 entered_ns;
    u64 mean_ns[2];     /* of the last timed runs: a new one counts for an eighth */
    u64 ticks;
    u64 timed;          /* how many in these ticks */
};
BPF_PERCPU_ARRAY(times, struct times, 1);

static inline int is_network(u32 softirq)
{
    return softirq == NET_RX_SOFTIRQ || softirq == NET_TX_SOFTIRQ;
}

static inline struct times *times_get(void)
{
    int zero = 0;
    return times.lookup(&zero);
}

static inline struct cpu_row *cpu_row(void)
{
    int cpu = bpf_get_smp_processor_id();
    return cpus.lookup(&cpu);
}

/* Whether this time is of before the programs were attached again: what began then may have ended unseen. */
static inline int began_unseen(u64 ns)
{
    return ns != UNMEASURED && ns < nc_resumed_ns();
}

static inline u64 now_or_unmeasured(struct nc_config *config, struct times *times)
{
    u64 ticks = nc_grant_ticks();

    if (times->ticks != ticks) {
        times->ticks = ticks;
        times->timed = 0;
    }
    /* In mode details, as many more as the circuit breaker allows. */
    if (times->timed >= TIMED_PER_TICKS && !(nc_flags(config) & NC_F_DETAILS))
        return UNMEASURED;
    times->timed++;
    return bpf_ktime_get_ns();
}

int raised(struct bpf_raw_tracepoint_args *ctx)
{
    u32 softirq = ctx->args[0];
    struct nc_config *config = nc_config_get();
    struct times *times;
    u64 earlier;

    if (!is_network(softirq))
        return 0;
    times = times_get();
    if (!config || !times)
        return 0;
    earlier = times->raised_ns[softirq == NET_RX_SOFTIRQ];
    if (!earlier || began_unseen(earlier))
        times->raised_ns[softirq == NET_RX_SOFTIRQ] = now_or_unmeasured(config, times);
    return 0;
}

static inline void sample(struct bpf_raw_tracepoint_args *ctx, struct nc_config *config, u32 softirq, u64 now, u64 late_ns)
{
    struct late_event *record;
    int zero = 0;

    if (config->flags & NC_F_THRESHOLD && late_ns <= config->threshold_ns)
        return;
    if (!nc_event_allowed(config, now))
        return;
    record = records.lookup(&zero);
    if (!record)
        return;
    record->mono_ns = now;
    record->late_ns = late_ns;
    record->cpu = bpf_get_smp_processor_id();
    record->softirq = softirq;
    record->pid = bpf_get_current_pid_tgid() >> 32;
    bpf_get_current_comm(record->process, sizeof(record->process));
    nc_submit(ctx, record, sizeof(*record));
}

int entered(struct bpf_raw_tracepoint_args *ctx)
{
    u32 softirq = ctx->args[0];
    struct nc_config *config = nc_config_get();
    struct times *times;
    u64 now = UNMEASURED, raised_ns;

    if (!is_network(softirq))
        return 0;
    times = times_get();
    if (!times || !config)
        return 0;
    raised_ns = times->raised_ns[softirq == NET_RX_SOFTIRQ];
    if (raised_ns != UNMEASURED)
        now = bpf_ktime_get_ns();
    times->entered_ns = now;
    times->raised_ns[softirq == NET_RX_SOFTIRQ] = 0;
    if (!raised_ns || began_unseen(raised_ns)) {
        /* An interrupt raised it after the kernel took the pending bits and before this point: that raise found a time stamp already.
         * Or it was raised before the probe was attached: then this CPU has seen no raise yet, and nothing was missed.
         * Or the probe was not attached for a while. */
        if (times->ticks)
            nc_ledger_add(NC_JOIN_MISSED);
        return 0;
    }
    if (raised_ns == UNMEASURED) {
        nc_ledger_add(NC_UNMEASURED);
        return 0;
    }
    nc_cpu_histogram_add(late.lookup(&softirq), now - raised_ns);
    if (config->flags & NC_F_DETAILS)
        sample(ctx, config, softirq, now, now - raised_ns);
    return 0;
}

/* How long the run took that ends; the mean of the last ones when it was not timed. */
static inline u64 how_long(struct times *times, int is_rx)
{
    u64 took;

    if (times->entered_ns == UNMEASURED)
        return times->mean_ns[is_rx];
    took = bpf_ktime_get_ns() - times->entered_ns;
    if (times->mean_ns[is_rx])
        times->mean_ns[is_rx] += (took >> 3) - (times->mean_ns[is_rx] >> 3);
    else
        times->mean_ns[is_rx] = took;
    return took;
}

int left(struct bpf_raw_tracepoint_args *ctx)
{
    u32 softirq = ctx->args[0];
    struct times *times;
    struct cpu_row *row;
    u64 took;

    if (!is_network(softirq))
        return 0;
    times = times_get();
    row = cpu_row();
    if (!times || !row || !times->entered_ns || began_unseen(times->entered_ns))    /* it was running when the probe was attached */
        return 0;
    took = how_long(times, softirq == NET_RX_SOFTIRQ);
    times->entered_ns = 0;
    if (softirq == NET_TX_SOFTIRQ) {
        nc_add(&row->tx_runs, 1);
        nc_add(&row->tx_ns, took);
        return 0;
    }
    nc_add(&row->rx_runs, 1);
    nc_add(&row->rx_ns, took);
    if (took > row->rx_longest_ns)
        row->rx_longest_ns = took;
    return 0;
}

int polled(struct bpf_raw_tracepoint_args *ctx)
{
    s32 work = ctx->args[1], budget = ctx->args[2];
    struct napi_struct *napi = NC_ARG(0);
    struct cpu_row *row = cpu_row();
    struct exhausted_key key = {};
    u64 *count, none = 0;

    if (!nc_config_get() || !row || budget <= 0)    /* netpoll passes 0 */
        return 0;
    nc_add(&row->polls, 1);
    nc_add(&row->packets, work);
    if (work < budget)
        return 0;
    nc_add(&row->exhausted, 1);
    nc_place_of(&key.place, NC_GET(napi, dev));         /* empty for the backlog of a CPU, which has no device */
    key.cpu = bpf_get_smp_processor_id();
    count = exhausted.lookup_or_try_init(&key, &none);
    if (count)
        nc_add(count, 1);
    else
        nc_ledger_add(NC_MAP_FULL);
    return 0;
}
