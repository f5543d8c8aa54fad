/* ovs_handlers.h - the threads of ovs-vswitchd that answer upcalls: their CPU time, and how long they wait for a CPU. */
#ifndef NETCONSOLE_OVS_HANDLERS_H
#define NETCONSOLE_OVS_HANDLERS_H

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

/* What is known of a handler, by its thread's number: reading it anew at each switch of tasks would be most of what this costs. */
struct thread {
    u64 task;           /* address: the number may be used again */
    u64 woken_ns, running_ns;
    struct handler_key key;
};
BPF_TABLE("lru_hash", u32, struct thread, threads, 4096);

/* A thread handler<N> of a process that began as ovs-vswitchd (udpif_start_threads, OVS ofproto/ofproto-dpif-upcall.c). */
static inline struct thread *learn_handler(struct task_struct *task, u32 tid)
{
    struct task_struct *leader = NC_READ(task, group_leader);
    struct thread thread = { .task = (u64)task };
    u64 process[2];

    bpf_probe_read_kernel(process, sizeof(process), &leader->comm);
    if (process[0] != NC_WORD('o', 'v', 's', '-', 'v', 's', 'w', 'i') || (u32)process[1] != (u32)NC_WORD('t', 'c', 'h', 'd', 0, 0, 0, 0))
        return NULL;
    bpf_probe_read_kernel(thread.key.name, sizeof(thread.key.name), &task->comm);
    thread.key.tid = tid;
    thread.key.pid = NC_READ(task, tgid);
    threads.update(&tid, &thread);
    return threads.lookup(&tid);
}

/* NULL: it is none. */
static inline struct thread *handler_of(struct task_struct *task)
{
    struct thread *thread;
    u64 name;
    u32 tid;

    bpf_probe_read_kernel(&name, sizeof(name), &task->comm);
    if ((name ^ NC_WORD('h', 'a', 'n', 'd', 'l', 'e', 'r', 0)) & NC_WORD(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0))
        return NULL;
    tid = NC_READ(task, pid);
    thread = threads.lookup(&tid);
    return thread && thread->task == (u64)task ? thread : learn_handler(task, tid);
}

static inline struct handler_row *handler_row_of(struct handler_key *key)
{
    struct handler_row none = {}, *row = handlers.lookup_or_try_init(key, &none);

    if (!row)
        nc_ledger_add(NC_MAP_FULL);
    return row;
}

static inline struct thread *this_handler(void)
{
    struct task_struct *task = (void *)bpf_get_current_task();
    u32 tid = bpf_get_current_pid_tgid();
    struct thread *thread = threads.lookup(&tid);

    return thread && thread->task == (u64)task ? thread : handler_of(task);
}

static inline void count_answer(void)
{
    struct thread *thread = this_handler();
    struct handler_row *row = thread ? handler_row_of(&thread->key) : NULL;

    if (row)
        row->answered++;
}

/* ---- as the scheduler sees them ---- */

static inline void is_woken(struct task_struct *task)
{
    struct thread *thread = handler_of(task);
    struct handler_row *row = thread ? handler_row_of(&thread->key) : NULL;

    if (!row)
        return;
    row->wakeups++;
    thread->woken_ns = bpf_ktime_get_ns();
}

static inline void leaves(struct task_struct *task)
{
    struct thread *thread = handler_of(task);
    struct handler_row *row = thread && thread->running_ns ? handler_row_of(&thread->key) : NULL;

    if (!row)
        return;
    row->cpu_ns += between(thread->running_ns, bpf_ktime_get_ns());
    row->switches++;
    row->cpu = bpf_get_smp_processor_id();
    thread->running_ns = 0;
}

static inline void comes(struct task_struct *task)
{
    struct thread *thread = handler_of(task);
    struct scheduled_key slot = {};
    struct nc_bucket empty = {};
    u64 waited_ns;

    if (!thread)
        return;
    thread->running_ns = bpf_ktime_get_ns();
    if (!thread->woken_ns)
        return;
    waited_ns = between(thread->woken_ns, thread->running_ns);
    thread->woken_ns = 0;
    __builtin_memcpy(slot.name, thread->key.name, sizeof(slot.name));
    slot.tid = thread->key.tid;
    slot.slot = nc_slot(waited_ns);
    nc_bucket_add(scheduled.lookup_or_try_init(&slot, &empty), waited_ns);
}

#endif /* NETCONSOLE_OVS_HANDLERS_H */
