/* handlers.h - the threads of ovs-vswitchd that answer upcalls: their CPU time, and how long they wait for a CPU.
 *
 * Both are read from the scheduler's own totals of a thread, when it answers an upcall. Hooks in the scheduler would run on every wake-up
 * and context switch of the host. Totals lose nothing between two readings.
 */
#ifndef OVS_UPCALLS_HANDLERS_H
#define OVS_UPCALLS_HANDLERS_H

#include "shared.h"

struct handler_key {
    u64 name[2];
    u32 tid;
    u32 pid;
};
struct handler_row {
    u64 cpu_ns, switches, wakeups, answered;
    u64 cpu;            /* gauge */
};
BPF_TABLE("hash", struct handler_key, struct handler_row, handlers, NC_ROWS_handlers);  /* each value has one writer at a time */

struct scheduled_key {
    u64 name[2];
    u32 tid;
    u32 slot;
};
BPF_TABLE("hash", struct scheduled_key, struct nc_bucket, scheduled, NC_ROWS_scheduled);

/* The scheduler's totals of a thread at one moment. */
struct sched_totals {
    u64 cpu_ns;
    u64 slept, preempted;       /* how often it gave up its CPU, and had it taken away */
    u64 ran;                    /* how often it was given one */
    u64 waited_ns;              /* how long it waited for one */
};

/* A handler, by the number of its thread. */
struct thread {
    u64 task;           /* address of the task: thread numbers are used again */
    u64 tick;           /* of the last reading */
    struct sched_totals totals;
    struct handler_key key;
};
BPF_TABLE("lru_hash", u32, struct thread, threads, 4096);

/* Needs CONFIG_SCHED_INFO, which SCHEDSTATS and TASK_DELAY_ACCT select. Without it nothing says how long a thread has waited. */
static inline void read_waits(struct sched_totals *totals, struct task_struct *task)
{
#ifdef HAVE_sched_info_run_delay
    struct sched_info info = NC_READ(task, sched_info);

    totals->ran = info.pcount;
    totals->waited_ns = info.run_delay;
#endif
}

static inline void read_runs(struct sched_totals *totals, struct task_struct *task)
{
    totals->cpu_ns = NC_READ(task, se.sum_exec_runtime);
    totals->slept = NC_READ(task, nvcsw);
    totals->preempted = NC_READ(task, nivcsw);
}

/* A thread named handler<N> of ovs-vswitchd (udpif_start_threads, OVS ofproto/ofproto-dpif-upcall.c). NULL: the task is none. */
static inline struct thread *learn_handler(struct task_struct *task, u32 tid)
{
    struct task_struct *leader = NC_READ(task, group_leader);
    struct thread thread = { .task = (u64)task };
    u64 process[2];

    NC_COPY(thread.key.name, sizeof(thread.key.name), &task->comm);
    if ((thread.key.name[0] ^ NC_WORD('h', 'a', 'n', 'd', 'l', 'e', 'r', 0)) & NC_WORD(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0))
        return NULL;
    NC_COPY(process, sizeof(process), &leader->comm);
    if (process[0] != NC_WORD('o', 'v', 's', '-', 'v', 's', 'w', 'i') || (u32)process[1] != (u32)NC_WORD('t', 'c', 'h', 'd', 0, 0, 0, 0))
        return NULL;
    thread.key.tid = tid;
    thread.key.pid = NC_READ(task, tgid);
    read_waits(&thread.totals, task);
    read_runs(&thread.totals, task);
    threads.update(&tid, &thread);
    return threads.lookup(&tid);
}

static inline void account_wait(struct thread *thread, u64 ns)
{
    struct scheduled_key slot = { .tid = thread->key.tid, .slot = nc_slot(ns) };
    struct nc_bucket empty = {};

    __builtin_memcpy(slot.name, thread->key.name, sizeof(slot.name));
    nc_bucket_add(scheduled.lookup_or_try_init(&slot, &empty), ns);
}

/* This thread answers an upcall. The scheduler adds CPU time at ticks and switches: without either the totals have not changed. */
static inline void count_answer(void)
{
    struct task_struct *task = (void *)bpf_get_current_task();
    u32 tid = bpf_get_current_pid_tgid();
    struct thread *thread = threads.lookup(&tid);
    struct handler_row none = {}, *row;
    struct sched_totals totals = {};
    u64 tick = ovs_tick();

    if (!thread || thread->task != (u64)task)
        thread = learn_handler(task, tid);
    if (!thread)
        return;
    row = handlers.lookup_or_try_init(&thread->key, &none);
    if (!row) {
        nc_ledger_add(NC_MAP_FULL);
        return;
    }
    row->answered++;
    row->cpu = bpf_get_smp_processor_id();
    read_waits(&totals, task);
    if (totals.ran != thread->totals.ran)
        account_wait(thread, totals.waited_ns - thread->totals.waited_ns);
    else if (thread->tick == tick)
        return;
    read_runs(&totals, task);
    row->cpu_ns += totals.cpu_ns - thread->totals.cpu_ns;
    row->wakeups += totals.slept - thread->totals.slept;
    row->switches += totals.slept - thread->totals.slept + totals.preempted - thread->totals.preempted;
    thread->totals = totals;
    thread->tick = tick;
}

#endif /* OVS_UPCALLS_HANDLERS_H */
