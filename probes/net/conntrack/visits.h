/* visits.h - the packets that are in nf_conntrack_in now, on each CPU: what came is joined with what leaves. */
#ifndef CONNTRACK_VISITS_H
#define CONNTRACK_VISITS_H

#include "../../common/allowance.h"
#include "../../common/resumed.h"
#include "shared.h"

/* A packet in nf_conntrack_in. */
struct visit {
    u64 skb;            /* 0: it has left */
    u64 nfct;           /* what it had when it came */
    u64 began_ns;       /* 0: it is counted, and not listed */
    u64 ticks;          /* when it came, in those of the nest */
    u64 said;           /* address of the text that the kernel would log; 0: none */
    u16 zone;           /* that a rule gave it */
    u8 before;          /* state of its TCP connection */
    u8 is_tcp;          /* of a connection that there was, or was made */
    u8 pad[4];
};

/* The packets that came on one CPU: that of a task, and that of the softirq which interrupts it; others only if their end was not seen, or
 * if the kernel preempts its own code. An array for each CPU is found by the kernel's inlined code, a hash by a call. */
#define VISITS 4
#define LISTED_PER_TICKS 64
#define LISTED_MOST 256
struct nest {
    struct nc_allowance lists;      /* packets that may still be listed */
    u64 evicted;        /* so many visits have lost their place */
    u64 resumed_ns;     /* the programs were attached again then: no visit is from before */
    /* The last packet that came. Where only a kretprobe tells of its return, it has no arguments. A packet that came amid another one
     * takes its place here: that other one is in the ledger (join_missed). */
    u64 skb;
    u64 state;
    struct visit visits[VISITS];
};
BPF_ARRAY(nests, struct nest, NC_CPUS);

static inline struct nest *nest_here(void)
{
    u32 cpu = bpf_get_smp_processor_id();
    return nests.lookup(&cpu);
}

static inline struct visit *visit_in(struct nest *nest, u64 skb)
{
#pragma unroll
    for (u32 i = 0; i < VISITS; i++)
        if (nest->visits[i].skb == skb)
            return &nest->visits[i];
    return NULL;
}

/* A task that the kernel has preempted amid nf_conntrack_in may go on on another CPU. What came long ago, or before the programs were
 * attached again, is another packet at the same address, whose end was not seen. */
#define AWAY_TICKS 32           /* 1 s at 250 Hz */
static inline struct visit *visit_of(struct nest *nest, u64 skb)
{
    struct visit *visit = visit_in(nest, skb);

#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 3, 0)       /* before, there are no loops */
    for (u32 cpu = 0; cpu < NC_CPUS && !visit; cpu++) {
        u32 key = cpu;          /* in memory the verifier does not see that it grows */

        nest = nests.lookup(&key);
        visit = nest ? visit_in(nest, skb) : NULL;
    }
#endif
    if (!visit || !nest || nest->resumed_ns != nc_resumed_ns() || nc_grant_ticks() - visit->ticks > AWAY_TICKS)
        return NULL;
    return visit;
}

static inline struct visit *place_for(struct nest *nest, u64 skb)
{
    struct visit *visit = visit_in(nest, skb);  /* of a packet whose end was not seen */

    if (!visit)
        visit = visit_in(nest, 0);
    return visit ? visit : &nest->visits[nest->evicted++ % VISITS];
}

/* May one more packet of this CPU be listed? */
static inline int may_list(struct nest *nest)
{
    nc_allowance_earn(&nest->lists, LISTED_PER_TICKS, LISTED_MOST);
    if (nest->resumed_ns != nc_resumed_ns()) {
        nest->resumed_ns = nc_resumed_ns();
#pragma unroll
        for (u32 i = 0; i < VISITS; i++)
            nest->visits[i].skb = 0;
    }
    return nest->lists.left != 0;
}

#endif /* CONNTRACK_VISITS_H */
