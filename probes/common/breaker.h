/* breaker.h - the circuit breaker: it bounds in the kernel what a probe does in a storm. The collector reacts too late for that, and not
 * at all when it is starved, stopped or dead.
 *
 * Time is divided into windows. In a window only so many runs may do the work of details, only so many may do more than count, and all
 * together may take only so much time. Each CPU gets runs in portions, called grants. Only at a new grant the clock is read and the CPUs
 * share a cache line, so each CPU may exceed the bounds by one grant. A grant also ends after eight ticks, so that one from a storm does
 * not hold for the few packets after it. Reading the ticks is a plain load, which the verifier inlines.
 *
 * Timing every run would cost as much as the run: one run of each grant is timed and stands for all of them. Time over the bound, which
 * counting takes as well, is owed by the windows that follow.
 */
#ifndef NETCONSOLE_BREAKER_H
#define NETCONSOLE_BREAKER_H

#include "config.h"
#include "accounting.h"

#define NC_WINDOW_SHIFT 27  /* a window is 2^27 ns, 134 ms: no division */
#define NC_GRANT_RUNS 64
#define NC_GRANT_TIMED 62   /* runs left when one is timed: the second run, because the first one reads the clock for the grant */
#define NC_GRANT_TICKS_SHIFT 3
#define NC_LONGEST_NS (1 << 14)     /* a run that took longer was interrupted: it does not stand for the others */
#define NC_CALL_NS 50       /* the cost of being called, which a run cannot measure itself */
#define NC_OWED_WINDOWS 8   /* at most so many windows (1 s) are owed: details are back soon after a storm */
#define NC_ATTENDED 2       /* times the bound, while the governor is at work */

struct nc_window {
    u64 number;
    u64 runs;           /* that have ended */
    u64 took_ns;        /* by them, and what windows before took over the bound */
};
BPF_ARRAY(nc_window, struct nc_window, 1);

struct nc_grant {
    u64 ticks;
    u64 number;         /* of the window */
    u32 left;           /* runs */
    u32 flags;          /* what they may do: NC_F_DETAILS, NC_F_STORM (rows of a share), NC_F_COUNTERS (no more than that) */
    u32 unwanted;       /* runs that a filter has ended */
    u32 pad;
    u64 began_ns;       /* when the run began that is being timed; 0: none is */
    u64 took_ns;        /* by the last run that was timed */
};

/* NC_FLAGS: runs that ask nc_flags. NC_ROWS: runs that ask to make rows and histograms, in probes of several programs. */
enum { NC_FLAGS, NC_ROWS, NC_GRANTS };
BPF_PERCPU_ARRAY(nc_grant, struct nc_grant, NC_GRANTS);

/* The last window in which the governor is known to be at work. It keeps the budget in order, so the breaker leaves it room until then. */
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
    if (window->number != number)       /* of several CPUs that come here at once, some grants are not counted */
        nc_window_begin(window, bound_ns, number);
    if (grant->number == number) {      /* only runs that have ended count: many CPUs with one packet each are no storm */
        if (kind == NC_FLAGS)
            __sync_fetch_and_add(&window->runs, used - grant->unwanted);
        if (bound_ns)
            __sync_fetch_and_add(&window->took_ns, used * grant->took_ns * times);
    }
    grant->flags = window->runs < config->details_runs ? NC_F_DETAILS : 0;
    if (config->rows_runs && window->runs >= config->rows_runs)
        grant->flags |= NC_F_COUNTERS;
    if (bound_ns && window->took_ns >= bound_ns) {
        grant->flags &= ~NC_F_DETAILS;
        grant->flags |= config->flags & NC_F_ROWS_SHARE ? NC_F_STORM : NC_F_COUNTERS;
    }
    grant->number = number;
    grant->ticks = ticks;
    grant->left = NC_GRANT_RUNS;
    grant->unwanted = 0;
}

/* Takes one run of the CPU's grant. It counts as `times` runs of that length. */
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

/* The flags for this run: without details, or with counters alone, when the window's runs are used up. NC_F_STORM: see row_share.h. */
static inline u32 nc_flags(struct nc_config *config)
{
    struct nc_grant *grant;

    if (!(config->flags & NC_F_BREAKER))
        return config->flags;
    grant = nc_granted(config, NC_FLAGS, 1);
    if (!grant)
        return config->flags & ~NC_F_DETAILS;
    return (config->flags & ~NC_F_DETAILS) | (config->flags & grant->flags & NC_F_DETAILS) | (grant->flags & (NC_F_COUNTERS | NC_F_STORM));
}

/* A run that asked nc_flags is ended by a filter: it is not one of those that may do the work of details, so that what the filter leaves
 * out cannot use them up. Its time counts. */
static inline void nc_unwanted(void)
{
    u32 kind = NC_FLAGS;
    struct nc_grant *grant = nc_grant.lookup(&kind);

    if (grant)
        grant->unwanted++;
}

/* At the end of a run that asked nc_flags. */
static inline void nc_leave(struct nc_config *config)
{
    nc_grant_timed(config, NC_FLAGS);
}

/* For probes that join what several programs see of a packet. These programs always run: a missed end would leave its start behind, which
 * would be taken for that of another packet at the same address. Only the rows of the joined packet are left out. A run counts twice, for
 * the programs before it are not timed. */
#define NC_TIMES_OF_A_ROW 2
static inline int nc_within_bound(struct nc_config *config, u32 left_out)
{
    struct nc_grant *grant = config->bound_ns ? nc_granted(config, NC_ROWS, NC_TIMES_OF_A_ROW) : NULL;

    if (!grant || !(grant->flags & NC_F_COUNTERS))
        return 1;
    nc_ledger_add(left_out);
    return 0;
}

/* May this packet go into rows and histograms? Call nc_listed after either answer. */
static inline int nc_may_list(struct nc_config *config)
{
    return nc_within_bound(config, NC_UNLISTED);
}

static inline void nc_listed(struct nc_config *config)
{
    nc_grant_timed(config, NC_ROWS);
}

/* The same for probes whose rows are always whole and whose histograms are the expensive part. Call nc_measured after either answer. */
static inline int nc_may_measure(struct nc_config *config)
{
    return nc_within_bound(config, NC_UNMEASURED);
}

static inline void nc_measured(struct nc_config *config)
{
    nc_grant_timed(config, NC_ROWS);
}

#endif /* NETCONSOLE_BREAKER_H */
