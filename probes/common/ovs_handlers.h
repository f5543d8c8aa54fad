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

struct thread {
    u64 woken_ns, running_ns;
};
BPF_TABLE("lru_hash", u32, struct thread, threads, 4096);

/* A thread handler<N> of a process that began as ovs-vswitchd (udpif_start_threads, OVS ofproto/ofproto-dpif-upcall.c). */
static inline int is_handler(struct task_struct *task, struct handler_key *key)
{
    struct task_struct *leader;
    u64 process[2];

    bpf_probe_read_kernel(key->name, sizeof(key->name), &task->comm);
    if ((key->name[0] ^ NC_WORD('h', 'a', 'n', 'd', 'l', 'e', 'r', 0)) & NC_WORD(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0))
        return 0;
    leader = NC_READ(task, group_leader);
    bpf_probe_read_kernel(process, sizeof(process), &leader->comm);
    key->tid = NC_READ(task, pid);
    key->pid = NC_READ(task, tgid);
    return process[0] == NC_WORD('o', 'v', 's', '-', 'v', 's', 'w', 'i') && (u32)process[1] == (u32)NC_WORD('t', 'c', 'h', 'd', 0, 0, 0, 0);
}

static inline struct handler_row *handler_row_of(struct handler_key *key)
{
    struct handler_row none = {}, *row = handlers.lookup_or_try_init(key, &none);

    if (!row)
        nc_ledger_add(NC_MAP_FULL);
    return row;
}

static inline void count_answer(void)
{
    struct handler_key key = {};
    struct handler_row *row;

    if (!is_handler((void *)bpf_get_current_task(), &key))
        return;
    row = handler_row_of(&key);
    if (row)
        row->answered++;
}

/* ---- as the scheduler sees them ---- */

static inline void is_woken(struct task_struct *task)
{
    struct handler_key key = {};
    struct handler_row *row;
    struct thread *thread, none = {};

    if (!is_handler(task, &key))
        return;
    thread = threads.lookup_or_try_init(&key.tid, &none);
    row = handler_row_of(&key);
    if (!thread || !row)
        return;
    row->wakeups++;
    thread->woken_ns = bpf_ktime_get_ns();
}

static inline void leaves(struct task_struct *task, u64 now)
{
    struct handler_key key = {};
    struct handler_row *row;
    struct thread *thread;

    if (!is_handler(task, &key))
        return;
    thread = threads.lookup(&key.tid);
    row = handler_row_of(&key);
    if (!thread || !row || !thread->running_ns)
        return;
    row->cpu_ns += now - thread->running_ns;
    row->switches++;
    row->cpu = bpf_get_smp_processor_id();
    thread->running_ns = 0;
}

static inline void comes(struct task_struct *task, u64 now)
{
    struct scheduled_key slot = {};
    struct handler_key key = {};
    struct thread *thread, none = {};
    struct nc_bucket empty = {};

    if (!is_handler(task, &key))
        return;
    thread = threads.lookup_or_try_init(&key.tid, &none);
    if (!thread)
        return;
    thread->running_ns = now;
    if (!thread->woken_ns)
        return;
    __builtin_memcpy(slot.name, key.name, sizeof(slot.name));
    slot.tid = key.tid;
    slot.slot = nc_slot(between(thread->woken_ns, now));
    nc_bucket_add(scheduled.lookup_or_try_init(&slot, &empty), between(thread->woken_ns, now));
    thread->woken_ns = 0;
}

#endif /* NETCONSOLE_OVS_HANDLERS_H */
