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

/* A token bucket for each CPU, in its GCRA form, which needs no division. */
struct nc_budget {
    u64 arrival_ns;     /* theoretical arrival time of the next event */
    u64 filling;        /* 1: this CPU's record is being filled, and an interrupt must not fill it too */
    u64 began_ns;       /* when that began, in programs that are not timed as a whole; 0: in others */
};
BPF_PERCPU_ARRAY(nc_budget, struct nc_budget, 1);

static inline struct nc_budget *nc_budget_get(void)
{
    int zero = 0;
    return nc_budget.lookup(&zero);
}

/* Is there budget for an event now? Counts the event as seen, and as suppressed if there is none. After a yes, call nc_submit. */
static inline int nc_event_in_budget(struct nc_config *config, u64 now)
{
    struct nc_budget *budget = nc_budget_get();

    nc_ledger_add(NC_SEEN);
    if (!budget || budget->filling || budget->arrival_ns > now + config->event_burst_ns) {
        nc_ledger_add(NC_SUPPRESSED);
        return 0;
    }
    budget->filling = 1;
    budget->arrival_ns = (budget->arrival_ns > now ? budget->arrival_ns : now) + config->event_every_ns;
    return 1;
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
