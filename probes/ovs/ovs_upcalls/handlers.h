/* handlers.h - the threads of ovs-vswitchd that answer upcalls: their CPU time, and how long they wait for a CPU.
 *
 * It is read from the scheduler's own books when one of them answers: hooks of the scheduler would run on every wake-up and context switch of
 * the host. What is booked are totals, so that nothing is lost between two looks.
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

/* What the scheduler has booked for a thread, all of it at that moment. */
struct books {
    u64 cpu_ns;
    u64 slept, preempted;       /* how often it left its CPU */
    u64 ran;                    /* how often it was given one */
    u64 waited_ns;              /* for that */
};

/* What is known of a handler, by its thread's number. */
struct thread {
    u64 task;           /* address: the number may be used again */
    u64 tick;           /* of the last look */
    struct books books;
    struct handler_key key;
};
BPF_TABLE("lru_hash", u32, struct thread, threads, 4096);

/* CONFIG_SCHED_INFO, which comes with SCHEDSTATS and with TASK_DELAY_ACCT: without it nothing tells how long a thread has waited. */
static inline void read_waits(struct books *books, struct task_struct *task)
{
#ifdef HAVE_sched_info_run_delay
    struct sched_info info = NC_READ(task, sched_info);

    books->ran = info.pcount;
    books->waited_ns = info.run_delay;
#endif
}

static inline void read_runs(struct books *books, struct task_struct *task)
{
    books->cpu_ns = NC_READ(task, se.sum_exec_runtime);
    books->slept = NC_READ(task, nvcsw);
    books->preempted = NC_READ(task, nivcsw);
}

/* A thread handler<N> of a process that began as ovs-vswitchd (udpif_start_threads, OVS ofproto/ofproto-dpif-upcall.c). NULL: it is none. */
static inline struct thread *learn_handler(struct task_struct *task, u32 tid)
{
    struct task_struct *leader = NC_READ(task, group_leader);
    struct thread thread = { .task = (u64)task };
    u64 process[2];

    bpf_probe_read_kernel(thread.key.name, sizeof(thread.key.name), &task->comm);
    if ((thread.key.name[0] ^ NC_WORD('h', 'a', 'n', 'd', 'l', 'e', 'r', 0)) & NC_WORD(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0))
        return NULL;
    bpf_probe_read_kernel(process, sizeof(process), &leader->comm);
    if (process[0] != NC_WORD('o', 'v', 's', '-', 'v', 's', 'w', 'i') || (u32)process[1] != (u32)NC_WORD('t', 'c', 'h', 'd', 0, 0, 0, 0))
        return NULL;
    thread.key.tid = tid;
    thread.key.pid = NC_READ(task, tgid);
    read_waits(&thread.books, task);
    read_runs(&thread.books, task);
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

/* This thread gives a packet back. CPU time is booked by ticks and switches: without either there is nothing new in the books. */
static inline void count_answer(void)
{
    struct task_struct *task = (void *)bpf_get_current_task();
    u32 tid = bpf_get_current_pid_tgid();
    struct thread *thread = threads.lookup(&tid);
    struct handler_row none = {}, *row;
    struct books books = {};
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
    read_waits(&books, task);
    if (books.ran != thread->books.ran)
        account_wait(thread, books.waited_ns - thread->books.waited_ns);
    else if (thread->tick == tick)
        return;
    read_runs(&books, task);
    row->cpu_ns += books.cpu_ns - thread->books.cpu_ns;
    row->wakeups += books.slept - thread->books.slept;
    row->switches += books.slept - thread->books.slept + books.preempted - thread->books.preempted;
    thread->books = books;
    thread->tick = tick;
}

#endif /* OVS_UPCALLS_HANDLERS_H */
