/* virtio_blk - from a guest's kick to the interrupt that says that its I/O is done, in five points. An object joins each point to the next:
 *
 *   B1 ioeventfd_write: the guest kicks, KVM signals the eventfd           (eventfd)
 *   B2 eventfd_read: a thread of QEMU takes the kick                       (the same thread; of a worker: the same process)
 *   B3 submit_bio: it, or a worker for it, asks a block device             (bio)
 *   B4 bio_endio: the I/O is done                                          (bio -> thread)
 *   B5 irqfd_wakeup: the thread raises the interrupt                       (the same thread)
 *
 * A trip is what a thread does from a kick to an interrupt. Nothing in the kernel tells whose of several I/Os an interrupt is, so only a
 * trip of one I/O is timed as a whole, where no other kick was taken. All I/Os are counted, and two stages are known of them all: how long
 * the kick waited (of the first I/O that followed it), and how long the device took (B3-B4).
 */

#include "../../common/netconsole.h"
#include "../../common/block.h"
#include "../../common/kicks.h"

enum { IOS };       /* counters */

/* A thread of QEMU that takes kicks. */
struct server {
    u64 vm;         /* its process */
    u64 name[2];
    u32 tid;        /* 0: the workers of a process, of which it is not known for which thread they work */
    u32 pad;
};
struct server_row {
    u64 kicks, runs, without_io;
};
BPF_TABLE("hash", struct server, struct server_row, servers, NC_ROWS_servers);

struct io_key {
    struct server by;
    u64 device[4];  /* name of the disk */
    u64 operation;  /* text */
};
struct io_row {
    u64 ios, bytes, by_workers, unkicked, timed;
};
BPF_TABLE("hash", struct io_key, struct io_row, ios, NC_ROWS_ios);

struct stage_key {
    struct io_key io;
    char stage[6];
    u16 pad;
    u32 pad2;
    u32 slot;
};
BPF_TABLE("percpu_hash", struct stage_key, struct nc_bucket, stages, NC_ROWS_stages);

struct trip {
    u64 ns[5];          /* B1 to B5; B1 is 0 where no kick began it */
    u64 number;         /* which of its thread's trips */
    u64 unkicked_ns;    /* until when its thread did last what it was not kicked for */
    u64 late_ns;        /* how long the last kick waited that no I/O has followed yet; 0: there is none */
    u64 ios;
    u64 in_flight;
    u32 is_open;
    u32 is_alone;
    struct io_key io;   /* its first one */
};
BPF_TABLE("lru_hash", u32, struct trip, trips, 8192);       /* by thread */

/* A bio. Its end belongs to a trip, if it is known for which thread it was asked. */
struct flight {
    u64 number;
    u64 began_ns;
    u64 late_ns;        /* how long the kick waited that it was the first to follow; 0: it was not */
    u32 thread;         /* 0: not known */
    u32 pad;
    struct io_key io;
};
BPF_TABLE("lru_hash", u64, struct flight, flights, 16384);

/* A process whose threads take kicks. The number of a process is used again, with other memory. */
#define SERVERS 4
struct process {
    u64 mm;
    u32 server[SERVERS];    /* the threads; 0: no more */
    u32 has_more;           /* ... than that */
    u32 pad;
};
BPF_TABLE("lru_hash", u32, struct process, processes, 4096);

struct trip_event {
    u64 mono_ns;
    struct io_key io;
    u64 b1_b2_ns, b2_b3_ns, b3_b4_ns, b4_b5_ns, total_ns;
};
BPF_PERCPU_ARRAY(records, struct trip_event, 1);

/* An end that was not seen, or an interrupt that the guest did not want, must not keep a trip open for ever. */
#define LOST_NS 2000000000ull

static inline int is_open(struct trip *trip)
{
    return trip->is_open && trip->number >= nc_resumed_ns();
}

static inline void begin(struct trip *trip, u64 now, u64 kicked_ns)
{
    trip->ns[0] = kicked_ns;
    trip->ns[1] = now;
    trip->ns[2] = trip->ns[3] = trip->ns[4] = 0;
    trip->number = now;
    trip->ios = trip->in_flight = trip->late_ns = 0;
    trip->is_open = 1;
    trip->is_alone = kicked_ns != 0;
}

/* ---- B2 ---- */

static inline u64 memory_of_this_process(void)
{
    struct task_struct *task = nc_pointer(bpf_get_current_task());

    return (u64)NC_READ(task, mm);
}

static inline void note_server(u32 pid, u32 thread)
{
    struct process now = { .mm = memory_of_this_process(), .server = { thread } }, *process = processes.lookup(&pid);

    if (!process || process->mm != now.mm) {
        processes.update(&pid, &now);
        return;
    }
#pragma unroll
    for (int i = 0; i < SERVERS; i++) {
        if (!process->server[i])
            process->server[i] = thread;
        if (process->server[i] == thread)
            return;
    }
    process->has_more = 1;
}

static inline struct trip *trip_of_this_thread(u32 pid, u32 thread)
{
    struct trip none = {}, *trip = trips.lookup_or_try_init(&thread, &none);

    if (trip && trip->io.by.vm != pid) {
        trip->io.by.vm = pid;
        trip->io.by.tid = thread;
        bpf_get_current_comm(trip->io.by.name, sizeof(trip->io.by.name));
        trip->is_open = 0;
    }
    return trip;
}

static inline struct server_row *row_of_server(struct trip *trip)
{
    struct server key = trip->io.by;
    struct server_row none = {}, *row = servers.lookup_or_try_init(&key, &none);

    if (!row)
        nc_ledger_add(NC_MAP_FULL);
    return row;
}

int taken(void *ctx)
{
    struct kiocb *call = NC_PARAMETER(0);
    struct file *file = NC_READ(call, ki_filp);
    u64 eventfd = (u64)NC_READ(file, private_data), kicked_ns = 0, count, now, id;
    struct kicks *kick = kicks.lookup(&eventfd);
    struct server_row *row;
    struct trip *trip;

    if (!kick || !nc_config_get())
        return 0;
    count = answer(kick, &kicked_ns);
    id = bpf_get_current_pid_tgid();
    note_server(id >> 32, id);
    trip = trip_of_this_thread(id >> 32, id);
    if (!trip)
        return 0;
    row = row_of_server(trip);
    if (row) {          /* this thread alone writes it */
        row->kicks += count;
        row->runs++;
    }
    if (kicked_ns <= trip->unkicked_ns)     /* QEMU has seen this in the queue before it took the kick */
        return 0;
    now = bpf_ktime_get_ns();
    if (is_open(trip) && trip->ios && now - trip->number < LOST_NS)
        trip->is_alone = 0;
    else
        begin(trip, now, is_open(trip) && trip->in_flight ? 0 : kicked_ns);
    trip->late_ns = between(kicked_ns, now);
    return 0;
}

/* ---- B3 ---- */

#ifdef HAVE_bio_bi_disk
#define DISK_OF_BIO(bio) NC_READ(bio, bi_disk)
#else
#define DISK_OF_BIO(bio) ({ struct block_device *nc_part = NC_READ(bio, bi_bdev); NC_READ(nc_part, bd_disk); })
#endif

/* The open trip of a process's n-th thread that takes kicks; NULL: there is none. */
static inline struct trip *open_trip(struct process *process, int n)
{
    u32 thread = process->server[n];
    struct trip *trip = thread ? trips.lookup(&thread) : NULL;

    return trip && is_open(trip) ? trip : NULL;
}

/* The thread for which a worker asks: the only one that takes kicks, or that has asked for nothing yet. 0: it is not known, and no trip of
 * the process is sure to be alone. */
static inline u32 served_by_worker(struct process *process)
{
    u32 thread = 0, waiting = 0;
    struct trip *trip;

    if (!process->server[1])
        return process->server[0];
#pragma unroll
    for (int i = 0; i < SERVERS; i++) {
        trip = open_trip(process, i);
        if (trip && !trip->ios) {
            thread = process->server[i];
            waiting++;
        }
    }
    if (waiting == 1 && !process->has_more)
        return thread;
#pragma unroll
    for (int i = 0; i < SERVERS; i++) {
        trip = open_trip(process, i);
        if (trip)
            trip->is_alone = 0;
    }
    return 0;
}

static inline void depart(struct trip *trip, struct flight *flight)
{
    flight->number = trip->number;
    flight->late_ns = trip->late_ns;
    trip->late_ns = 0;
    __sync_fetch_and_add(&trip->in_flight, 1);
    __sync_fetch_and_add(&trip->ios, 1);
    if (*(volatile u64 *)&trip->ios == 1) {
        trip->io = flight->io;
        trip->ns[2] = flight->began_ns;
    } else {
        trip->is_alone = 0;
    }
}

int asked(void *ctx)
{
    struct bio *bio = NC_PARAMETER(0);
    u64 id = bpf_get_current_pid_tgid(), bytes;
    u32 thread = id, pid = id >> 32;
    struct process *process = processes.lookup(&pid);
    struct flight flight = {};
    struct io_key *io = &flight.io;
    struct io_row none = {}, *row;
    u64 address = (u64)bio;
    struct gendisk *disk;
    struct trip *trip;
    int is_worker, is_unkicked;

    if (!process || process->mm != memory_of_this_process() || !nc_config_get())
        return 0;
    trip = trips.lookup(&thread);
    is_worker = !trip;
    if (is_worker) {
        thread = served_by_worker(process);
        trip = trips.lookup(&thread);
    }
    if (trip) {
        io->by = trip->io.by;
    } else {
        io->by.vm = pid;
        io->by.name[0] = NC_WORD('w', 'o', 'r', 'k', 'e', 'r', 's', 0);
    }
    disk = DISK_OF_BIO(bio);
    NC_COPY(io->device, sizeof(io->device), &disk->disk_name);
    bytes = NC_READ(bio, bi_iter.bi_size);
    io->operation = operation_of(NC_READ(bio, bi_opf), bytes);
    flight.began_ns = bpf_ktime_get_ns();
    flight.thread = io->by.tid;
    is_unkicked = trip && !is_open(trip);
    if (is_unkicked) {
        trip->unkicked_ns = flight.began_ns;
        begin(trip, flight.began_ns, 0);
    }
    nc_count_shared(IOS);
    row = ios.lookup_or_try_init(io, &none);
    if (row) {
        __sync_fetch_and_add(&row->ios, 1);
        __sync_fetch_and_add(&row->bytes, bytes);
        __sync_fetch_and_add(&row->by_workers, is_worker);
        __sync_fetch_and_add(&row->unkicked, is_unkicked);
    } else {
        nc_ledger_add(NC_MAP_FULL);
    }
    if (trip)
        depart(trip, &flight);
    flights.update(&address, &flight);
    return 0;
}

/* ---- B4 ---- */

/* What is known of each I/O. */
static inline void account_flight(struct nc_config *config, struct flight *flight, u64 now)
{
    struct stage_key key = { .io = flight->io, .stage = "all" };
    struct nc_bucket none = {};
    u64 ns = between(flight->began_ns, now);

    if (nc_may_measure(config)) {
        key.slot = nc_slot(ns);
        nc_bucket_add(stages.lookup_or_try_init(&key, &none), ns);
        if (flight->late_ns) {
            __builtin_memcpy(key.stage, "kick", 5);
            key.slot = nc_slot(flight->late_ns);
            nc_bucket_add(stages.lookup_or_try_init(&key, &none), flight->late_ns);
        }
    }
    nc_measured(config);
}

int completed(void *ctx)
{
    struct bio *bio = NC_PARAMETER(0);
    u64 address = (u64)bio, now;
    struct flight *flight = flights.lookup(&address);
    struct nc_config *config = nc_config_get();
    struct trip *trip;

    /* A bio that was split ends as often as it has parts: the last time ends it. */
    if (!flight || NC_READ(bio, __bi_remaining.counter) > 1)
        return 0;
    now = bpf_ktime_get_ns();
    trip = trips.lookup(&flight->thread);
    if (trip && trip->number == flight->number) {
        __sync_fetch_and_add(&trip->in_flight, -1);
        if (!*(volatile u64 *)&trip->in_flight)
            trip->ns[3] = now;
    }
    if (config && flight->began_ns > nc_resumed_ns())
        account_flight(config, flight, now);
    flights.delete(&address);
    return 0;
}

/* ---- B5 ---- */

static inline void account_stages(struct trip *trip)
{
    struct stage_key key = { .io = trip->io, .stage = "total" };
    struct nc_bucket none = {};
    u64 ns = trip->ns[4] - trip->ns[0];

    key.slot = nc_slot(ns);
    nc_bucket_add(stages.lookup_or_try_init(&key, &none), ns);
    __builtin_memcpy(key.stage, "B0-B0", sizeof(key.stage));
#pragma unroll
    for (int i = 1; i < 5; i++) {
        key.stage[1] = '0' + i;
        key.stage[4] = '1' + i;
        ns = trip->ns[i] - trip->ns[i - 1];
        key.slot = nc_slot(ns);
        nc_bucket_add(stages.lookup_or_try_init(&key, &none), ns);
    }
}

static inline void sample(void *ctx, struct nc_config *config, struct trip *trip)
{
    u64 *ns = trip->ns, total_ns = ns[4] - ns[0];
    struct trip_event *record;
    int zero = 0;

    if (config->flags & NC_F_THRESHOLD && total_ns <= config->threshold_ns)
        return;
    if (!nc_event_allowed(config, ns[4]))
        return;
    record = records.lookup(&zero);
    if (!record)
        return;
    record->mono_ns = ns[4];
    record->io = trip->io;
    record->b1_b2_ns = ns[1] - ns[0];
    record->b2_b3_ns = ns[2] - ns[1];
    record->b3_b4_ns = ns[3] - ns[2];
    record->b4_b5_ns = ns[4] - ns[3];
    record->total_ns = total_ns;
    nc_submit(ctx, record, sizeof(*record));
}

static inline void arrive(void *ctx, struct nc_config *config, struct trip *trip)
{
    struct io_key io = trip->io;
    struct io_row *row = ios.lookup(&io);

    trip->ns[4] = bpf_ktime_get_ns();
    put_in_order(trip->ns, 5);
    if (row)
        __sync_fetch_and_add(&row->timed, 1);
    if (nc_may_measure(config))
        account_stages(trip);
    nc_measured(config);
    if (config->flags & NC_F_DETAILS)
        sample(ctx, config, trip);
}

int raised(void *ctx)
{
    u32 thread = bpf_get_current_pid_tgid();
    struct trip *trip = trips.lookup(&thread);
    struct nc_config *config = nc_config_get();
    u64 key = (u64)NC_PARAMETER(3);
    struct server_row *row;

    if (!trip || !config || !(key & EPOLLIN) || !is_open(trip) || trip->in_flight)
        return 0;
    trip->is_open = 0;
    if (!trip->ns[0])
        trip->unkicked_ns = bpf_ktime_get_ns();
    if (!trip->is_alone)
        return 0;
    if (trip->ios) {
        arrive(ctx, config, trip);
        return 0;
    }
    row = row_of_server(trip);
    if (row)
        row->without_io++;
    return 0;
}
