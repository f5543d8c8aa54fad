/* fs_path - what a process reads, writes and synchronises, as it sees that itself: system calls on files and block devices.
 *
 * Two programs see every system call of the machine. So what is no read, write or fsync is left at once, by its number alone, and what is no
 * file by a few loads. What a caller waits for and asks of devices is read from the kernel's own books of its task, before and after the call:
 * no other hook is needed.
 */

#include "../../common/netconsole.h"
#include "../../common/resumed.h"
#include "calls.h"
#include "file.h"

enum { CALLS, ERRORS };     /* counters */

struct call_key {
    u64 device[4];
    u64 file_system[2];     /* of a block device that is opened itself: none */
    u64 call;               /* text */
    u64 way;                /* text */
    u64 process[2];         /* name of the process, not of its thread */
    u64 vm;                 /* the pid again: the collector shows it as the VM */
    u32 pid;
    u32 pad;
};
struct call_row {
    u64 calls, bytes, errors, waited, asked;
};
BPF_TABLE("percpu_hash", struct call_key, struct call_row, calls, NC_ROWS_calls);

struct time_key {
    struct call_key of;
    u32 pad;
    u32 slot;
};
BPF_TABLE("percpu_hash", struct time_key, struct nc_bucket, times, NC_ROWS_times);

#define READ_WORD NC_WORD('r', 'e', 'a', 'd', 0, 0, 0, 0)
#define WRITE_WORD NC_WORD('w', 'r', 'i', 't', 'e', 0, 0, 0)
#define FSYNC_WORD NC_WORD('f', 's', 'y', 'n', 'c', 0, 0, 0)
#define DIRECT_WORD NC_WORD('d', 'i', 'r', 'e', 'c', 't', 0, 0)
#define BUFFERED_WORD NC_WORD('b', 'u', 'f', 'f', 'e', 'r', 'e', 'd')
#define SYNCED_WORD NC_WORD('s', 'y', 'n', 'c', 'e', 'd', 0, 0)
#define CACHE_WORD NC_WORD('c', 'a', 'c', 'h', 'e', 0, 0, 0)
#define DEVICE_WORD NC_WORD('d', 'e', 'v', 'i', 'c', 'e', 0, 0)

/* ---- calls that have not returned ----
 *
 * By their task, in a set-associative table in an array, whose look-up makes no call. An entry stays that of its task until another task needs
 * room. */
#define SETS 1024
#define WAYS 8
#define GOLDEN 0x9e3779b97f4a7c15ull

/* One of the ways. To the verifier it may be any (pad is 0): else it would go through all that follows once for each. */
#define WAY_OF(config, number) (((number) + (config)->pad) & (WAYS - 1))

struct visit {
    u64 task;
    u64 began_ns;       /* 0: it has returned */
    u64 number;         /* of the call */
    u64 slept;          /* how often its task had given up the CPU by itself */
    u64 asked;          /* bytes that it had asked devices for */
    u64 file;
    struct call_key of;
};
struct visit_set {
    struct visit way[WAYS];
};
BPF_ARRAY(visits, struct visit_set, SETS);

static inline struct visit_set *visit_set_of(u64 task)
{
    u32 index = task * GOLDEN >> 54;        /* 10 bits */
    return visits.lookup(&index);
}

/* The entry of the task; NULL: it has none. */
static inline struct visit *visit_of(struct nc_config *config, u64 task)
{
    struct visit_set *set = visit_set_of(task);
    int found = WAYS;

    if (!set)
        return NULL;
#pragma unroll
    for (int i = 0; i < WAYS; i++)
        if (set->way[i].task == task)
            found = i;
    return found < WAYS ? &set->way[WAY_OF(config, found)] : NULL;
}

/* ... or that of a task whose call has returned, or that was in a call when the probe began to rest: it may be gone. */
static inline struct visit *room_for(struct nc_config *config, u64 task)
{
    struct visit_set *set = visit_set_of(task);
    u64 resumed = nc_resumed_ns();
    int found = WAYS;

    if (!set)
        return NULL;
#pragma unroll
    for (int i = 0; i < WAYS; i++)
        if (!set->way[i].began_ns || set->way[i].began_ns < resumed)
            found = i;
#pragma unroll
    for (int i = 0; i < WAYS; i++)
        if (set->way[i].task == task)
            found = i;
    return found < WAYS ? &set->way[WAY_OF(config, found)] : NULL;
}

/* Two CPUs may take one entry in the same nanoseconds: the one that lost it is counted. */
static inline void keep(struct nc_config *config, struct visit *visit)
{
    struct visit *entry = room_for(config, visit->task);

    if (!entry) {
        nc_ledger_add(NC_MAP_FULL);
        return;
    }
    if (entry->began_ns)    /* the end of that one was not seen, or will not be joined */
        nc_ledger_add(NC_JOIN_MISSED);
    *entry = *visit;
    if (*(volatile u64 *)&entry->task != visit->task)
        nc_ledger_add(NC_JOIN_MISSED);
}

/* ---- what the kernel knows of the task ---- */

/* Bytes for which the task itself has asked devices, its read-ahead among them. */
#ifdef HAVE_task_io_accounting_read_bytes
#define ASKED(task) NC_READ(task, ioac.read_bytes)
#define OF_CACHE CACHE_WORD
#else
#define ASKED(task) 0
#define OF_CACHE BUFFERED_WORD
#endif
#define SLEPT(task) NC_READ(task, nvcsw)

static inline int is_wanted(struct nc_config *config, struct call_key *of)
{
    return !(config->flags & NC_F_DEVICE) || (of->device[0] == config->device[0] && of->device[1] == config->device[1]);
}

static inline u64 way_of(enum call call, u32 flags)
{
    switch (call) {
    case SYNC_ALL:
        return NC_WORD('a', 'l', 'l', 0, 0, 0, 0, 0);
    case SYNC_DATA:
        return NC_WORD('d', 'a', 't', 'a', 0, 0, 0, 0);
    case SYNC_RANGE:
        return NC_WORD('r', 'a', 'n', 'g', 'e', 0, 0, 0);
    default:
        break;
    }
    if (flags & O_DIRECT)
        return DIRECT_WORD;
    if (call == READ)
        return OF_CACHE;    /* unless it asks a device */
    return flags & O_DSYNC ? SYNCED_WORD : BUFFERED_WORD;
}

static inline u64 word_of(enum call call)
{
    return call == READ ? READ_WORD : call == WRITE ? WRITE_WORD : FSYNC_WORD;
}

int entered(struct bpf_raw_tracepoint_args *ctx)
{
    struct pt_regs *regs = NC_ARG(0);
    enum call call = call_of(ctx->args[1]);
    struct task_struct *task, *leader;
    struct nc_config *config;
    struct visit visit = {};
    struct file *file;
    u32 flags;

    if (call == OTHER_CALL)
        return 0;
    config = nc_config_get();
    if (!config)
        return 0;
    task = nc_pointer(bpf_get_current_task());
    visit.of.vm = visit.of.pid = NC_READ(task, tgid);
    if (nc_knob(config, pid) && nc_knob(config, pid) != visit.of.pid)
        return 0;
    file = file_of(task, FILE_NUMBER(regs));
    if (!file || HAS_OTHER_NUMBERS(task) || !name_file(visit.of.device, visit.of.file_system, file) || !is_wanted(config, &visit.of))
        return 0;
    leader = NC_READ(task, group_leader);
    NC_COPY(visit.of.process, sizeof(visit.of.process), &leader->comm);
    visit.of.call = word_of(call);
    flags = NC_READ(file, f_flags);
    if (ctx->args[1] == PWRITEV2 && CALL_FLAGS(regs) & RWF_SYNCED)
        flags |= O_DSYNC;
    visit.of.way = way_of(call, flags);
    visit.task = (u64)task;
    visit.number = ctx->args[1];
    visit.file = (u64)file;
    visit.asked = ASKED(task);
    visit.slept = SLEPT(task);
    visit.began_ns = bpf_ktime_get_ns();
    keep(config, &visit);
    return 0;
}

/* ---- a call returns ---- */

struct call_event {
    u64 mono_ns;
    u64 total_ns;
    struct call_key of;
    u64 bytes;
    u64 asked;
    u64 waited;
    u64 file[4];        /* its name, without directories */
};
BPF_PERCPU_ARRAY(records, struct call_event, 1);

static inline void sample(void *ctx, struct nc_config *config, struct visit *visit, u64 now, s64 result, u64 asked, u64 slept)
{
    struct call_event *record;
    struct dentry *dentry;
    struct file *file = (struct file *)visit->file;
    int zero = 0;

    if (config->flags & NC_F_THRESHOLD && now - visit->began_ns <= config->threshold_ns)
        return;
    if (!nc_event_allowed(config, now))
        return;
    record = records.lookup(&zero);
    if (!record)
        return;
    record->mono_ns = now;
    record->total_ns = now - visit->began_ns;
    record->of = visit->of;
    record->bytes = result > 0 ? result : 0;
    record->asked = asked;
    record->waited = slept;
    dentry = NC_READ(file, f_path.dentry);
    NC_COPY(record->file, sizeof(record->file), NC_READ(dentry, d_name.name));
    nc_submit(ctx, record, sizeof(*record));
}

int returned(struct bpf_raw_tracepoint_args *ctx)
{
    struct pt_regs *regs = NC_ARG(0);
    u64 number = CALL_NUMBER(regs), now, asked, slept;
    s64 result = ctx->args[1];
    struct call_row none = {}, *row;
    struct nc_bucket empty = {};
    struct task_struct *task;
    struct nc_config *config;
    struct time_key key = {};
    struct visit *visit;

    if (call_of(number) == OTHER_CALL)
        return 0;
    config = nc_config_get();
    if (!config)
        return 0;
    task = nc_pointer(bpf_get_current_task());
    visit = visit_of(config, (u64)task);
    if (!visit || !visit->began_ns)
        return 0;
    if (visit->number != number || visit->began_ns < nc_resumed_ns()) {     /* the end of that one was not seen */
        nc_ledger_add(NC_JOIN_MISSED);
        visit->began_ns = 0;
        return 0;
    }
    now = bpf_ktime_get_ns();
    asked = ASKED(task) - visit->asked;
    slept = SLEPT(task) - visit->slept;
    if (visit->of.way == CACHE_WORD && asked)
        visit->of.way = DEVICE_WORD;
    key.of = visit->of;

    nc_count(CALLS);
    if (result < 0)
        nc_count(ERRORS);
    row = calls.lookup_or_try_init(&key.of, &none);
    if (row) {
        nc_add(&row->calls, 1);
        nc_add(&row->bytes, result > 0 && key.of.call != FSYNC_WORD ? result : 0);
        nc_add(&row->errors, result < 0);
        nc_add(&row->waited, slept != 0);
        nc_add(&row->asked, asked);
    } else {
        nc_ledger_add(NC_MAP_FULL);
    }
    if (nc_may_measure(config)) {
        key.slot = nc_slot(now - visit->began_ns);
        nc_bucket_add(times.lookup_or_try_init(&key, &empty), now - visit->began_ns);
    }
    nc_measured(config);
    if (config->flags & NC_F_DETAILS)
        sample(ctx, config, visit, now, result, asked, slept);
    visit->began_ns = 0;
    return 0;
}
