/* shared.h - what the parts of ovs_upcalls share: counters, tables, and the packets that wait for an answer of user space. */
#ifndef OVS_UPCALLS_SHARED_H
#define OVS_UPCALLS_SHARED_H

#include "../../common/netconsole.h"
#include "../../common/ovs.h"
#include "../../common/resumed.h"

enum {      /* counters */
    UPCALLS, FAILED, PACKETS, ANSWERED, DROPPED, UNANSWERED, LATE, UNASKED, REFUSED,
};

#define MISS NC_WORD('m', 'i', 's', 's', 0, 0, 0, 0)
#define ACTION NC_WORD('a', 'c', 't', 'i', 'o', 'n', 0, 0)

/* ---- tables ---- */

struct port_key {
    u64 datapath[2];
    struct nc_place port;
    u64 kind;
};
struct port_row {
    u64 upcalls, failed, packets, answered, dropped, unanswered, late;
};
BPF_TABLE("percpu_hash", struct port_key, struct port_row, upcalls, NC_ROWS_upcalls);

struct latency_key {
    struct port_key port;
    u32 pad;
    u32 slot;
};
BPF_TABLE("percpu_hash", struct latency_key, struct nc_bucket, latency, NC_ROWS_latency);

struct failure_key {
    u64 datapath[2];
    u64 port[2];
    u32 netns;
    s32 error;
    u64 kind;
};
BPF_TABLE("percpu_hash", struct failure_key, u64, failures, NC_ROWS_failures);

struct cpu_key {
    u64 datapath[2];
    u64 kind;
    u32 cpu;
    u32 pad;
};
struct cpu_row {
    u64 upcalls, failed;
};
BPF_TABLE("hash", struct cpu_key, struct cpu_row, cpus, NC_ROWS_cpus);      /* only one CPU writes a row */

struct flow_key {
    u64 port[2];
    u32 netns;
    u32 pad;
    struct ovs_table_flow flow;
};
BPF_TABLE("lru_hash", struct flow_key, u64, flows, NC_ROWS_flows);

struct upcall_event {
    u64 mono_ns;
    struct port_key port;
    struct nc_flow flow;
    u64 latency_ns;
    u32 length;
    u32 cpu;
    u32 handler;
    u32 pad;
};

/* ---- packets that wait for an answer, by fingerprint; those with the same one are twins, told apart by a number ---- */

#define WAITING 16384
#define TWINS 8

struct waiting_key {
    u64 fingerprint;
    u32 twin;
    u32 pad;
};
struct waiting {
    struct port_key port;
    struct ovs_packet packet;
    u64 since_ns;
    u32 cpu;
    u32 has_twins;
};
BPF_TABLE("hash", struct waiting_key, struct waiting, waiting, WAITING);
BPF_TABLE("lru_hash", struct waiting_key, struct waiting, overdue, WAITING);    /* not answered in time; the answer may still come */

/* When user space last put a flow without actions (a drop), by fingerprint of the flow. */
BPF_TABLE("lru_hash", u64, u64, drop_flows, 4096);

/* ---- working memory: the BPF stack is too small; programs that share one never interrupt each other ---- */

enum { UPCALL_SCRATCH, PUT_SCRATCH, DROP_SCRATCH, ANSWER_SCRATCH, SWEEP_SCRATCH, SCRATCHES };
struct scratch {
    struct waiting packet;
    struct ovs_key key;
    struct nc_flow flow;
    struct upcall_event event;
    u64 skb;                    /* of the upcall that is being made; 0: none, or it does not pass the filters */
    u64 queued;                 /* how many packets of it were queued to user space */
    struct waiting_key last;    /* of the last of these */
};
BPF_PERCPU_ARRAY(scratches, struct scratch, SCRATCHES);

static inline struct scratch *scratch_of(u32 which)
{
    return scratches.lookup(&which);
}

static inline struct port_row *row_of(struct port_key *port)
{
    struct port_row none = {}, *row = upcalls.lookup_or_try_init(port, &none);

    if (!row)
        nc_ledger_add(NC_MAP_FULL);
    return row;
}

static inline struct cpu_row *cpu_row_of(struct port_key *port)
{
    struct cpu_key key = { .datapath = { port->datapath[0], port->datapath[1] }, .kind = port->kind, .cpu = bpf_get_smp_processor_id() };
    struct cpu_row none = {}, *row = cpus.lookup_or_try_init(&key, &none);

    if (!row)
        nc_ledger_add(NC_MAP_FULL);
    return row;
}

static inline void add_latency(struct port_key *port, u64 ns)
{
    struct latency_key key = { .port = *port, .slot = nc_slot(ns) };
    struct nc_bucket none = {};

    nc_bucket_add(latency.lookup_or_try_init(&key, &none), ns);
}

static inline u64 elapsed(u64 from, u64 to)     /* clocks of two CPUs may differ a little */
{
    return to > from ? to - from : 0;
}

/* The kernel's ticks. Where the verifier inlines it, this is no call. */
static inline u64 ovs_tick(void)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 6, 0)
    return bpf_jiffies64();
#else
    return bpf_ktime_get_ns() >> 22;
#endif
}

#endif /* OVS_UPCALLS_SHARED_H */
