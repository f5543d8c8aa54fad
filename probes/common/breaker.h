/* breaker.h - the circuit breaker: what the collector cannot do in time, or not at all when it is starved, stopped or dead.
 *
 * In each window only so many runs do the work of details, or more than count, and only for so long. Runs are handed out to the CPUs by
 * the grant: only then the clock is read, and the CPUs meet at one cache line. The bounds may be exceeded by a grant for each CPU. So that a
 * grant of a storm does not hold for the few packets after it, it ends with the eighth tick as well: reading those is a plain load (the
 * verifier inlines it).
 *
 * Timing every run would cost as much as many a run: one of each grant is timed, and stands for all of it. What was taken over the bound,
 * by counting too, is owed by the windows that follow.
 */
#ifndef NETCONSOLE_BREAKER_H
#define NETCONSOLE_BREAKER_H

#include "config.h"
#include "accounting.h"

#define NC_WINDOW_SHIFT 27  /* of nanoseconds: 134 ms; no division */
#define NC_GRANT_RUNS 64
#define NC_GRANT_TIMED 62   /* left: the second run, for the first one reads the clock for all of them */
#define NC_GRANT_TICKS_SHIFT 3
#define NC_LONGEST_NS (1 << 14)     /* what took longer was interrupted: it does not stand for the others */
#define NC_CALL_NS 50       /* being called at all, which no run sees of itself */
#define NC_OWED_WINDOWS 8   /* at most: a second, so that details are back soon after a storm */
#define NC_ATTENDED 2       /* times the bound */

struct nc_window {
    u64 number;
    u64 runs;           /* that are over */
    u64 took_ns;        /* by them, and what the windows before took too much */
};
BPF_ARRAY(nc_window, struct nc_window, 1);

struct nc_grant {
    u64 ticks;
    u64 number;         /* of the window */
    u32 left;           /* runs */
    u32 flags;          /* what they may do: NC_F_DETAILS, NC_F_COUNTERS (no more than that) */
    u64 began_ns;       /* of the run that is being timed; 0: none is */
    u64 took_ns;        /* by the last one that was */
};

/* Runs that ask for their flags; and those that want to make rows and histograms of what was counted, in probes of several programs. */
enum { NC_FLAGS, NC_ROWS, NC_GRANTS };
BPF_PERCPU_ARRAY(nc_grant, struct nc_grant, NC_GRANTS);

/* Until which window somebody keeps the budget, by giving up in order and saying so: then the breaker leaves him room. */
BPF_ARRAY(nc_attended, u64, 1);

static inline u64 nc_bound_ns(struct nc_config *config, u64 number)
{
    int zero = 0;
    u64 *until = nc_attended.lookup(&zero);

    return until && number < *until ? config->bound_ns * NC_ATTENDED : config->bound_ns;
}

/* Advances every eighth tick of the kernel's clock. */
static inline u64 nc_grant_ticks(void)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 6, 0)
    return bpf_jiffies64() >> NC_GRANT_TICKS_SHIFT;
#else
    return bpf_ktime_get_ns() >> (20 + NC_GRANT_TICKS_SHIFT);
#endif
}

static inline void nc_window_begin(struct nc_window *window, u64 bound_ns, u64 number)
{
    u64 paid = bound_ns * (number - window->number), most = bound_ns * NC_OWED_WINDOWS;

    window->took_ns = window->took_ns > paid ? window->took_ns - paid : 0;
    if (window->took_ns > most)
        window->took_ns = most;
    window->number = number;
    window->runs = 0;
}

static inline void nc_grant_more(struct nc_config *config, struct nc_grant *grant, u64 ticks, u32 kind, u32 times)
{
    int zero = 0;
    struct nc_window *window = nc_window.lookup(&zero);
    u64 number = bpf_ktime_get_ns() >> NC_WINDOW_SHIFT, used = NC_GRANT_RUNS - grant->left;
    u64 bound_ns = nc_bound_ns(config, number);

    if (!window)
        return;
    if (window->number != number)       /* of several CPUs that come here at once, some grants may not be counted */
        nc_window_begin(window, bound_ns, number);
    if (grant->number == number) {      /* what is over counts, not what was handed out: many CPUs with a packet each are no storm */
        if (kind == NC_FLAGS)
            __sync_fetch_and_add(&window->runs, used);
        if (bound_ns)
            __sync_fetch_and_add(&window->took_ns, used * grant->took_ns * times);
    }
    grant->flags = window->runs < config->details_runs ? NC_F_DETAILS : 0;
    if (config->rows_runs && window->runs >= config->rows_runs)
        grant->flags |= NC_F_COUNTERS;
    if (bound_ns && window->took_ns >= bound_ns)
        grant->flags = NC_F_COUNTERS;
    grant->number = number;
    grant->ticks = ticks;
    grant->left = NC_GRANT_RUNS;
}

/* One run of the CPU's grant; it stands for so many that take as long. */
static inline struct nc_grant *nc_granted(struct nc_config *config, u32 kind, u32 times)
{
    struct nc_grant *grant = nc_grant.lookup(&kind);
    u64 ticks;

    if (!grant)
        return NULL;
    ticks = nc_grant_ticks();
    if (grant->ticks != ticks || !grant->left)
        nc_grant_more(config, grant, ticks, kind, times);
    if (--grant->left == NC_GRANT_TIMED && config->bound_ns)
        grant->began_ns = bpf_ktime_get_ns();
    return grant;
}

static inline void nc_grant_timed(struct nc_config *config, u32 kind)
{
    struct nc_grant *grant;
    u64 took_ns;

    if (!config->bound_ns)
        return;
    grant = nc_grant.lookup(&kind);
    if (!grant || !grant->began_ns)
        return;
    took_ns = bpf_ktime_get_ns() - grant->began_ns;
    grant->took_ns = NC_CALL_NS + (took_ns < NC_LONGEST_NS ? took_ns : NC_LONGEST_NS);
    grant->began_ns = 0;
}

/* The flags as they hold for this run: without details, or with nothing but counters, when the window's runs are used up. */
static inline u32 nc_flags(struct nc_config *config)
{
    struct nc_grant *grant;

    if (!(config->flags & NC_F_BREAKER))
        return config->flags;
    grant = nc_granted(config, NC_FLAGS, 1);
    if (!grant)
        return config->flags & ~NC_F_DETAILS;
    return (config->flags & ~NC_F_DETAILS) | (config->flags & grant->flags & NC_F_DETAILS) | (grant->flags & NC_F_COUNTERS);
}

/* The end of a run that asked for nc_flags. */
static inline void nc_leave(struct nc_config *config)
{
    nc_grant_timed(config, NC_FLAGS);
}

/* For probes that join what several programs see of a packet: those go on, for an end that is not seen would leave a start behind, to be
 * taken for that of another packet at the same address. What is made of the joined packet is left out. So that what the programs before it
 * take is in the bound, too, a run counts twice. */
#define NC_TIMES_OF_A_ROW 2
static inline int nc_within_bound(struct nc_config *config, u32 left_out)
{
    struct nc_grant *grant = config->bound_ns ? nc_granted(config, NC_ROWS, NC_TIMES_OF_A_ROW) : NULL;

    if (!grant || !(grant->flags & NC_F_COUNTERS))
        return 1;
    nc_ledger_add(left_out);
    return 0;
}

/* May what was counted go into rows and histograms? After either answer comes nc_listed. */
static inline int nc_may_list(struct nc_config *config)
{
    return nc_within_bound(config, NC_UNLISTED);
}

static inline void nc_listed(struct nc_config *config)
{
    nc_grant_timed(config, NC_ROWS);
}

/* The same where the row is whole in any case, and the histograms are the dear part. */
static inline int nc_may_measure(struct nc_config *config)
{
    return nc_within_bound(config, NC_UNMEASURED);
}

static inline void nc_measured(struct nc_config *config)
{
    nc_grant_timed(config, NC_ROWS);
}

#endif /* NETCONSOLE_BREAKER_H */
