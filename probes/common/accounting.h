/* accounting.h - exact counts, and the ledger of what a count may lack. Both are kept for each CPU. */
#ifndef NETCONSOLE_ACCOUNTING_H
#define NETCONSOLE_ACCOUNTING_H

/* Adds to a value that only one program writes. From 6.1 the kernel does not enter a raw tracepoint program that already runs on this CPU
 * (it counts such runs as missed, and the ledger shows them): a plain addition is enough. Before, an interrupt could nest the program:
 * the addition must be one instruction. That is also right for vendor kernels that backported the guard. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 1, 0)
#define nc_add(counter, n) (*(counter) += (n))
#else
#define nc_add(counter, n) __sync_fetch_and_add((counter), (n))
#endif

/* Counters of the manifest. */
BPF_PERCPU_ARRAY(nc_counters, u64, 32);

/* Only one program writes this slot. */
static inline void nc_count(u32 slot)
{
    u64 *counter = nc_counters.lookup(&slot);
    if (counter)
        nc_add(counter, 1);
}

/* For a slot that several programs write: on a kernel that preempts its own code, one of two on functions may interrupt the other. */
static inline void nc_count_shared(u32 slot)
{
    u64 *counter = nc_counters.lookup(&slot);
    if (counter)
        __sync_fetch_and_add(counter, 1);
}

enum nc_ledger_slot {
    NC_SEEN, NC_SUBMITTED, NC_SUPPRESSED, NC_LOST,      /* events */
    NC_MAP_FULL, NC_JOIN_MISSED, NC_PARSE_FAILED, NC_STACK_FAILED,
    NC_BREAKER,         /* events seen, and suppressed by the circuit breaker: the collector adds them to both */
    NC_UNLISTED,        /* counted, but in no row: by the circuit breaker, in mode counters, or in a storm */
    NC_UNMEASURED,      /* counted, but not timed */
    NC_UNSAMPLED,       /* events seen, and suppressed because of their flow: the collector adds them to both */
    NC_ESTIMATED,       /* in rows, but not looked at: others stand for them (row_share.h) */
    NC_SCATTER,         /* for each that stands for w: w * (w - 1), from which the collector knows how exact the rows are */
    NC_LEDGER_SLOTS = 16,
};
BPF_PERCPU_ARRAY(nc_ledger, u64, NC_LEDGER_SLOTS);

/* The programs of a probe share the ledger and may interrupt each other: the addition is always one instruction. */
static inline void nc_ledger_add_many(u32 slot, u64 n)
{
    u64 *entry = nc_ledger.lookup(&slot);
    if (entry)
        __sync_fetch_and_add(entry, n);
}

static inline void nc_ledger_add(u32 slot)
{
    nc_ledger_add_many(slot, 1);
}

#endif /* NETCONSOLE_ACCOUNTING_H */
