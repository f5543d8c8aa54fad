/* events.h - events: a sample of details, within a budget. */
#ifndef NETCONSOLE_EVENTS_H
#define NETCONSOLE_EVENTS_H

#include "config.h"
#include "accounting.h"
#include "breaker.h"

#if NC_EVENTS

#if NC_RING
BPF_RINGBUF_OUTPUT(nc_events, 64);      /* pages */
#else
BPF_PERF_OUTPUT(nc_events);
#endif

/* One token bucket for all CPUs, in its GCRA form, which needs no division: the theoretical arrival time of the next event. It is written
 * only for an event that has budget, so the CPUs share its cache line in a storm of others. */
BPF_ARRAY(nc_arrival, u64, 1);

struct nc_budget {
    u64 filling;        /* 1: this CPU's record is being filled, and an interrupt must not fill it too */
    u64 began_ns;       /* when that began, in programs that are not timed as a whole; 0: in others */
};
BPF_PERCPU_ARRAY(nc_budget, struct nc_budget, 1);

static inline struct nc_budget *nc_budget_get(void)
{
    int zero = 0;
    return nc_budget.lookup(&zero);
}

/* Is the next event too early by more than a burst? Signed: the collector may reset the bucket amid nc_charge. */
static inline int nc_too_early(struct nc_config *config, u64 arrival_ns, u64 now)
{
    return (s64)(arrival_ns - now) > (s64)config->event_burst_ns;
}

/* Takes one event from the bucket. Kernels before 5.12 have no compare-and-swap for programs: so a CPU adds first, then looks, and takes
 * back what was too much. Of CPUs that come at once some get nothing, but never all of them too much. */
static inline int nc_charge(struct nc_config *config, u64 *arrival_ns, u64 now)
{
    u64 idle_ns = now - *arrival_ns, charge_ns = config->event_every_ns;

    if ((s64)idle_ns > 0)       /* what was not used is not saved up */
        charge_ns += idle_ns;
    __sync_fetch_and_add(arrival_ns, charge_ns);
    if (!nc_too_early(config, *(volatile u64 *)arrival_ns - config->event_every_ns, now))
        return 1;
    __sync_fetch_and_add(arrival_ns, -charge_ns);
    return 0;
}

/* Is there budget for an event now? Counts the event as seen, and as suppressed if there is none. After a yes, call nc_submit. */
static inline int nc_event_in_budget(struct nc_config *config, u64 now)
{
    int zero = 0;
    u64 *arrival_ns = nc_arrival.lookup(&zero);
    struct nc_budget *budget;

    nc_ledger_add(NC_SEEN);
    if (arrival_ns && !nc_too_early(config, *arrival_ns, now)) {
        budget = nc_budget_get();
        if (budget && !budget->filling && nc_charge(config, arrival_ns, now)) {
            budget->filling = 1;
            return 1;
        }
    }
    nc_ledger_add(NC_SUPPRESSED);
    return 0;
}

/* Details of one flow in so many. The same flows are taken on every CPU and in both directions, so a flow is seen whole or not at all. */
#define NC_GOLDEN 0x9e3779b97f4a7c15ull
static inline int nc_flow_sampled(struct nc_config *config, u64 *source, u64 *target, u32 source_port, u32 target_port)
{
    u64 hash;

    if (!config->flow_shift)
        return 1;
    hash = (source[0] ^ source[1] ^ target[0] ^ target[1] ^ ((u64)source_port + target_port) << 32) * NC_GOLDEN;
    hash = (hash ^ hash >> 32) * NC_GOLDEN;
    if (!(hash >> (64 - config->flow_shift)))
        return 1;
    nc_ledger_add(NC_UNSAMPLED);
    return 0;
}

/* nc_event_in_budget within the circuit breaker's bounds, for programs that do not ask nc_flags. Their events are few: each is timed. */
static inline int nc_event_allowed(struct nc_config *config, u64 now)
{
    struct nc_budget *budget;

    if (!(nc_flags(config) & NC_F_DETAILS)) {
        nc_ledger_add(NC_BREAKER);
        return 0;
    }
    if (!nc_event_in_budget(config, now))
        return 0;
    budget = nc_budget_get();
    if (budget)
        budget->began_ns = now;
    return 1;
}

static inline void nc_event_timed(u64 began_ns)
{
    int zero = 0;
    struct nc_window *window = nc_window.lookup(&zero);

    if (window)
        __sync_fetch_and_add(&window->took_ns, bpf_ktime_get_ns() - began_ns);
}

/* The only place where events leave. Nobody is woken: the collector polls. */
static inline void nc_submit(void *ctx, void *record, u64 size)
{
    struct nc_budget *budget = nc_budget_get();
#if NC_RING
    long refused = nc_events.ringbuf_output(record, size, BPF_RB_NO_WAKEUP);
#else
    long refused = nc_events.perf_submit(ctx, record, size);
#endif
    nc_ledger_add(refused ? NC_LOST : NC_SUBMITTED);
    if (!budget)
        return;
    if (budget->began_ns)
        nc_event_timed(budget->began_ns);
    budget->began_ns = budget->filling = 0;
}

/* Puts the kernel stack into the record itself: the slots of a stack map are used again, and would show a wrong stack then. The helper
 * fills the rest of the array with zeros (kernel/bpf/stackmap.c). */
static inline void nc_stack(void *ctx, u64 *stack, u32 size)
{
    if (bpf_get_stack(ctx, stack, size, 0) < 0)
        nc_ledger_add(NC_STACK_FAILED);
}
#endif /* NC_EVENTS */

#endif /* NETCONSOLE_EVENTS_H */
