/* block_path - what is asked of block devices, by device, operation and submitter, and how long it takes in the queue and on the device.
 *
 * An I/O is a bio that a submitter gave to a device. It becomes a request, or part of one (a merge); or it is too large for one request, and
 * is split. A device without requests (dm, md) passes bios on. A request may be issued several times (requeues) and may complete in
 * parts, or once more after it was written: it ends with the completion whose bytes are all that is left of it. The request of a
 * flush belongs to nobody: flushes are counted as they were asked for.
 *
 * Only a task that asks is the submitter: requests are issued by kernel workers and completed in whichever task is interrupted.
 */

#include "../../common/netconsole.h"
#include "../../common/block.h"
#include "submitter.h"

enum { IOS, REQUESTS, ERRORS };     /* counters */

struct io_key {
    u64 device[4];      /* name of the disk */
    u64 operation;      /* text */
    struct submitter by;
};
struct io_row {
    u64 ios, bytes, requests, merges, splits;
    u64 requeues, errors, refused, unqueued;
};
BPF_TABLE("hash", struct io_key, struct io_row, ios, NC_ROWS_ios);

#define QUEUE NC_WORD('q', 'u', 'e', 'u', 'e', 0, 0, 0)
#define DEVICE NC_WORD('d', 'e', 'v', 'i', 'c', 'e', 0, 0)
#define WHOLE NC_WORD('w', 'h', 'o', 'l', 'e', 0, 0, 0)
struct time_key {
    struct io_key io;
    u64 stage;
    u32 pad;
    u32 slot;
};
BPF_TABLE("percpu_hash", struct time_key, struct nc_bucket, times, NC_ROWS_times);

/* ---- what is in flight ----
 *
 * A request, or a bio of a device without requests, from its beginning to its end: by its address, in a set-associative table in an array,
 * whose look-up is inlined. The kernel uses the same requests again and again, so an entry stays that of its address until another address
 * needs room: then one that is not in flight gives way. Two CPUs that take the same entry in the same nanoseconds are noticed: the one
 * that lost it counts join_missed. */
#define SETS 2048
#define WAYS 8
#define GOLDEN 0x9e3779b97f4a7c15ull

/* One of the ways. To the verifier it may be any (pad is 0): else it would go through all that follows once for each. */
#define WAY_OF(config, number) (((number) + (config)->pad) & (WAYS - 1))

struct flight {
    u64 address;
    u64 flies;          /* see below; 0: it has ended */
    u64 began_ns;       /* of what has no bytes or is no request: else 0 */
    u64 inserted_ns;    /* 0: no insert was seen */
    u64 issued_ns;      /* the last time */
    u64 sector;
    u64 bytes;          /* as it was last issued; 0: it ends with its first completion */
    u64 asked;          /* bytes of the I/O that it began with */
    u64 disk;
    struct io_key io;
};
enum { ENDED, COUNTED, UNCOUNTED };     /* its I/O is counted when it ends, where it was not before: one row has to be found, not two */
struct flight_set {
    struct flight way[WAYS];
};
BPF_ARRAY(flights, struct flight_set, SETS);

static inline struct flight_set *flight_set_of(u64 address)
{
    u32 index = address * GOLDEN >> 53;     /* Fibonacci hashing, 11 bits */
    return flights.lookup(&index);
}

/* Its entry, in flight or not; NULL: it has none. */
static inline struct flight *entry_of(struct nc_config *config, u64 address)
{
    struct flight_set *set = flight_set_of(address);
    int found = WAYS;

    if (!set)
        return NULL;
#pragma unroll
    for (int i = 0; i < WAYS; i++)
        if (set->way[i].address == address)
            found = i;
    return found < WAYS ? &set->way[WAY_OF(config, found)] : NULL;
}

static inline struct flight *flight_at(struct nc_config *config, u64 address)
{
    struct flight *entry = entry_of(config, address);
    return entry && entry->flies ? entry : NULL;
}

/* Another address's entry that is not in flight; NULL: there is none. */
static inline struct flight *free_entry(struct nc_config *config, u64 address)
{
    struct flight_set *set = flight_set_of(address);
    int found = WAYS;

    if (!set)
        return NULL;
#pragma unroll
    for (int i = 0; i < WAYS; i++)
        if (!set->way[i].flies)
            found = i;
    return found < WAYS ? &set->way[WAY_OF(config, found)] : NULL;
}

/* ---- devices: how many are in flight ---- */
#define DEVICE_SETS 32
struct device_row {
    u64 name[4];
    u64 started, in_flight, most, full;
    u64 disk;
};
struct device_set {
    struct device_row way[WAYS];
};
BPF_ARRAY(devices, struct device_set, DEVICE_SETS);

/* One number for the name of a disk: one that is gone and comes back is the same device. */
static inline u64 disk_number(u64 *name)
{
    return ((name[0] * GOLDEN + name[1]) * GOLDEN + name[2]) * GOLDEN + name[3];
}

static inline struct device_row *device_of(struct nc_config *config, u64 disk, u64 *name)
{
    u32 index = disk * GOLDEN >> 59;        /* 5 bits */
    struct device_set *set = devices.lookup(&index);
    int found = WAYS, free = WAYS;
    struct device_row *row;

    if (!set)
        return NULL;
#pragma unroll
    for (int i = 0; i < WAYS; i++)
        if (set->way[i].disk == disk)
            found = i;
    if (found < WAYS)
        return &set->way[WAY_OF(config, found)];
#pragma unroll
    for (int i = 0; i < WAYS; i++)
        if (!set->way[i].in_flight && (free == WAYS || !set->way[i].disk))
            free = i;
    if (free >= WAYS)
        return NULL;
    row = &set->way[WAY_OF(config, free)];
    row->started = row->most = row->full = 0;
    row->name[0] = name[0];
    row->name[1] = name[1];
    row->name[2] = name[2];
    row->name[3] = name[3];
    row->disk = disk;
    return row;
}

#ifdef NARGS_block_io_start
#define HAS_START 1     /* from 6.5: the submitter's task names the request */
#else
/* Before, it names the bio alone: whose first request's first bio it becomes. What is never looked up is overwritten by a later bio there. */
#define HAS_START 0
struct asked {
    struct io_key io;
    u64 began_ns;       /* of a flush, which has no insert and no issue: else 0 */
};
BPF_TABLE("lru_hash", u64, struct asked, unstarted, 8192);
#endif

struct io_event {
    u64 mono_ns;
    u64 total_ns;
    u64 queue_ns;
    u64 device_ns;
    struct io_key io;
    u64 sector;
    u64 bytes;
};
BPF_PERCPU_ARRAY(records, struct io_event, 1);

/* ---- what the arguments are: 5.10 passes the queue first ---- */
#define BIO_QUEUED NC_ARG(NARGS_block_bio_queue - 1)
#define BIO_STARTED NC_ARG(NARGS_block_getrq > 1)
#define BIO_MERGED NC_ARG(NARGS_block_bio_backmerge - 1)
#define BIO_SPLIT NC_ARG(NARGS_block_split - 2)
#define REQUEST_INSERTED NC_ARG(NARGS_block_rq_insert - 1)
#define REQUEST_ISSUED NC_ARG(NARGS_block_rq_issue - 1)
#define REQUEST_REQUEUED NC_ARG(NARGS_block_rq_requeue - 1)
#define REQUEST_MERGED NC_ARG(NARGS_block_rq_merge - 1)

#ifdef HAVE_bio_bi_disk
#define DISK_OF_BIO(bio) NC_GET(bio, bi_disk)
#else
#define DISK_OF_BIO(bio) ({ struct block_device *nc_part = NC_GET(bio, bi_bdev); NC_GET(nc_part, bd_disk); })
#endif
#ifdef HAVE_request_rq_disk
#define DISK_OF_REQUEST(request) NC_GET(request, rq_disk)
#else
#define DISK_OF_REQUEST(request) ({ struct request_queue *nc_queue = NC_GET(request, q); NC_GET(nc_queue, disk); })
#endif

#define IS_DISCARD(flags) (((flags) & OPERATION_MASK) == REQ_OP_DISCARD || ((flags) & OPERATION_MASK) == REQ_OP_SECURE_ERASE)

/* The name, by a pointer as NC_GET takes it. */
static inline void name_disk(u64 *name, struct gendisk *disk)
{
#if NC_DIRECT
    name[0] = *(u64 *)&disk->disk_name[0];
    name[1] = *(u64 *)&disk->disk_name[8];
    name[2] = *(u64 *)&disk->disk_name[16];
    name[3] = *(u64 *)&disk->disk_name[24];
#else
    NC_COPY(name, 32, &disk->disk_name);
#endif
}

static inline int wanted(struct nc_config *config, struct io_key *io)
{
    if (!io->device[0])         /* no block device: a tape, a scanner */
        return 0;
    return !(config->flags & NC_F_DEVICE) || (io->device[0] == config->device[0] && io->device[1] == config->device[1]);
}

/* ---- counting ---- */

static inline void count(u32 slot, u64 n)
{
    u64 *counter = nc_counters.lookup(&slot);

    if (counter)
        __sync_fetch_and_add(counter, n);
}

static inline struct io_row *row_of(struct io_key *io)
{
    struct io_row none = {}, *row = ios.lookup_or_try_init(io, &none);

    if (!row)
        nc_ledger_add(NC_MAP_FULL);
    return row;
}

/* An I/O was asked for, of so many bytes. */
static inline struct io_row *count_io(struct io_key *io, u64 bytes)
{
    struct io_row *row = row_of(io);

    count(IOS, 1);
    if (row) {
        __sync_fetch_and_add(&row->ios, 1);
        __sync_fetch_and_add(&row->bytes, bytes);
    }
    return row;
}

/* So many requests the device has at once (0: not known): those of its queues for everything and of its queues for reads (block/blk-mq.c),
 * not of those for polling. Who asks for more waits for one before any tracepoint. */
static inline u64 room_of(struct request *request)
{
    struct request_queue *queue = NC_GET(request, q);
    struct blk_mq_tag_set *set = NC_GET(queue, tag_set);

    return (u64)NC_GET(queue, nr_requests) * (NC_GET(set, map[HCTX_TYPE_DEFAULT].nr_queues) + NC_GET(set, map[HCTX_TYPE_READ].nr_queues));
}

static inline void takes_off(struct nc_config *config, struct flight *flight, u64 room)
{
    struct device_row *device = device_of(config, flight->disk, flight->io.device);
    u64 in_flight;

    if (!device) {
        nc_ledger_add(NC_MAP_FULL);
        return;
    }
    __sync_fetch_and_add(&device->started, 1);
    __sync_fetch_and_add(&device->in_flight, 1);
    in_flight = *(volatile u64 *)&device->in_flight;
    if (in_flight > device->most)
        device->most = in_flight;
    if (room && in_flight >= room)
        __sync_fetch_and_add(&device->full, 1);
}

static inline void lands(struct nc_config *config, struct flight *flight)
{
    struct device_row *device = device_of(config, flight->disk, flight->io.device);

    flight->flies = 0;
    if (device && (s64)device->in_flight > 0)
        __sync_fetch_and_add(&device->in_flight, -1);
}

/* One at this address whose end was not seen gives way. */
static inline struct flight *begin(struct nc_config *config, u64 address, struct flight *flight, u64 room)
{
    struct flight *entry = entry_of(config, address);

    if (entry && entry->flies) {
        nc_ledger_add(NC_JOIN_MISSED);
        lands(config, entry);
    }
    if (!entry)
        entry = free_entry(config, address);
    if (!entry) {
        nc_ledger_add(NC_MAP_FULL);
        return NULL;
    }
    flight->address = address;
    *entry = *flight;
    if (*(volatile u64 *)&entry->address != address) {
        nc_ledger_add(NC_JOIN_MISSED);
        return NULL;
    }
    takes_off(config, entry, room);
    return entry;
}

static inline void add_time(struct time_key *key, u64 stage, u64 ns)
{
    struct nc_bucket none = {};

    key->stage = stage;
    key->slot = nc_slot(ns);
    nc_bucket_add(times.lookup_or_try_init(key, &none), ns);
}

static inline void sample(void *ctx, struct nc_config *config, struct flight *flight, u64 queue_ns, u64 device_ns, u64 total_ns, u64 now)
{
    struct io_event *record;
    int zero = 0;

    if (config->flags & NC_F_THRESHOLD && total_ns <= config->threshold_ns)
        return;
    if (!nc_event_allowed(config, now))
        return;
    record = records.lookup(&zero);
    if (!record)
        return;
    record->mono_ns = now;
    record->total_ns = total_ns;
    record->queue_ns = queue_ns;
    record->device_ns = device_ns;
    record->io = flight->io;
    record->sector = flight->sector;
    record->bytes = flight->bytes;
    nc_submit(ctx, record, sizeof(*record));
}

/* Its stages, for the histograms and as a sample. */
static inline void measure(void *ctx, struct nc_config *config, struct flight *flight)
{
    u64 now = bpf_ktime_get_ns(), queue_ns = 0, device_ns = 0, total_ns = 0;
    struct time_key key = { .io = flight->io };

    if (flight->inserted_ns && flight->issued_ns)
        total_ns = queue_ns = between(flight->inserted_ns, flight->issued_ns);
    if (flight->issued_ns)
        total_ns += device_ns = between(flight->issued_ns, now);
    else if (flight->began_ns)
        total_ns = between(flight->began_ns, now);
    else
        return;
    if (nc_may_measure(config)) {
        if (!flight->issued_ns)
            add_time(&key, WHOLE, total_ns);
        else
            add_time(&key, DEVICE, device_ns);
        if (flight->inserted_ns)
            add_time(&key, QUEUE, queue_ns);
    }
    nc_measured(config);
    if (config->flags & NC_F_DETAILS)
        sample(ctx, config, flight, queue_ns, device_ns, total_ns, now);
}

/* The last completion of a request, or that of a bio. */
static inline void end(void *ctx, struct nc_config *config, struct flight *flight, int has_failed)
{
    struct io_row *row = flight->flies == UNCOUNTED ? count_io(&flight->io, flight->asked) : row_of(&flight->io);

    count(REQUESTS, 1);
    if (has_failed)
        count(ERRORS, 1);
    if (row) {
        __sync_fetch_and_add(&row->requests, 1);
        if (has_failed)
            __sync_fetch_and_add(&row->errors, 1);
        if (!flight->inserted_ns)
            __sync_fetch_and_add(&row->unqueued, 1);
    }
    measure(ctx, config, flight);
    lands(config, flight);
}

/* ---- bios ---- */

static inline u64 key_of_bio(struct io_key *io, struct bio *bio)
{
    struct gendisk *disk = DISK_OF_BIO(bio);
    u64 bytes = NC_GET(bio, bi_iter.bi_size);

    name_disk(io->device, disk);
    io->operation = operation_of(NC_GET(bio, bi_opf), bytes);
    return bytes;
}

/* Whether the device of a bio has no requests. */
static inline int has_bios_alone(struct bio *bio)
{
    struct gendisk *disk = DISK_OF_BIO(bio);
    struct request_queue *queue = NC_GET(disk, queue);

    return !NC_GET(queue, mq_ops);
}

/* Of other bios we count what they become. A discard may be merged without a word. */
int bio_queued(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct bio *bio = BIO_QUEUED;
    u32 flags = NC_GET(bio, bi_opf);
    int is_alone = has_bios_alone(bio);
    struct flight flight = { .flies = COUNTED };

    if (!config || !(is_alone || IS_DISCARD(flags)))
        return 0;
    flight.bytes = key_of_bio(&flight.io, bio);
    if (!wanted(config, &flight.io))
        return 0;
    submitted_by(&flight.io.by, bio);
    count_io(&flight.io, flight.bytes);
    if (is_alone) {
        flight.began_ns = bpf_ktime_get_ns();
        flight.sector = NC_GET(bio, bi_iter.bi_sector);
        flight.disk = disk_number(flight.io.device);
        begin(config, nc_number_of(config, bio), &flight, 0);
    }
    return 0;
}

/* It ends here on a device without requests. On others only what never became a request does. */
int bio_completed(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct bio *bio = NC_ARG(1);
    int has_failed = NC_GET(bio, bi_status) != 0;
    struct io_key io = {};
    struct flight *flight;
    struct io_row *row;

    if (!config)
        return 0;
    flight = flight_at(config, nc_number_of(config, bio));
    if (flight) {
        end(ctx, config, flight, has_failed);
        return 0;
    }
    if (!has_failed || has_bios_alone(bio))
        return 0;
    key_of_bio(&io, bio);
    if (!wanted(config, &io))
        return 0;
    submitted_by(&io.by, bio);
    row = row_of(&io);
    if (row)
        __sync_fetch_and_add(&row->refused, 1);
    return 0;
}

/* It becomes part of a request, behind what is there. */
static inline int merge(struct nc_config *config, struct bio *bio, struct io_key *io)
{
    u64 bytes = key_of_bio(io, bio);
    struct io_row *row;

    if (!wanted(config, io))
        return 0;
    submitted_by(&io->by, bio);
    row = count_io(io, bytes);
    if (row)
        __sync_fetch_and_add(&row->merges, 1);
    return 1;
}

int back_merged(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct bio *bio = BIO_MERGED;
    struct io_key io = {};

    if (config)
        merge(config, bio, &io);
    return 0;
}

/* ... or before it, so that it is the request's first one. */
int front_merged(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct bio *bio = BIO_MERGED;
#if HAS_START
    struct io_key io = {};

    if (config)
        merge(config, bio, &io);
#else
    struct asked asked = {};
    u64 address;

    if (!config || !merge(config, bio, &asked.io))
        return 0;
    address = nc_number_of(config, bio);
    unstarted.update(&address, &asked);
#endif
    return 0;
}

/* Each part becomes a request, or is merged, as an I/O does: so there is one too many. */
int bio_split(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct bio *bio = BIO_SPLIT;
    u32 flags = NC_GET(bio, bi_opf);
    int is_alone = has_bios_alone(bio);
    struct io_key io = {};
    struct io_row *row;

    if (!config)
        return 0;
    key_of_bio(&io, bio);
    if (!wanted(config, &io))
        return 0;
    submitted_by(&io.by, bio);
    row = row_of(&io);
    if (row)
        __sync_fetch_and_add(&row->splits, 1);
    if (is_alone || IS_DISCARD(flags))
        return 0;
    count(IOS, -1);
    if (row)
        __sync_fetch_and_add(&row->ios, -1);
    return 0;
}

/* ---- requests ---- */

static inline u64 key_of_request(struct io_key *io, struct request *request)
{
    u64 bytes = NC_GET(request, __data_len);

    name_disk(io->device, DISK_OF_REQUEST(request));
    io->operation = operation_of(NC_GET(request, cmd_flags), bytes);
    return bytes;
}

#if HAS_START
int started(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct request *request = NC_ARG(0);
    u32 flags = NC_GET(request, cmd_flags);
    struct flight flight = { .flies = IS_DISCARD(flags) ? COUNTED : UNCOUNTED };

    if (!config)
        return 0;
    flight.asked = flight.bytes = key_of_request(&flight.io, request);
    if (!wanted(config, &flight.io))
        return 0;
    submitted_by(&flight.io.by, NC_GET(request, bio));
    if (!flight.bytes)
        flight.began_ns = bpf_ktime_get_ns();
    flight.disk = disk_number(flight.io.device);
    begin(config, nc_number_of(config, request), &flight, room_of(request));
    return 0;
}

static inline struct flight *flight_of(struct nc_config *config, struct request *request)
{
    return flight_at(config, nc_number_of(config, request));
}

static inline struct flight *flight_of_flush(struct nc_config *config, struct request *request, u32 bytes)
{
    return NULL;
}
#else
/* A bio becomes the first one of a request. */
int started(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct bio *bio = BIO_STARTED;
    u32 flags = NC_GET(bio, bi_opf);
    struct asked asked = {};
    u64 bytes, address;

    if (!config)
        return 0;
    bytes = key_of_bio(&asked.io, bio);
    if (!wanted(config, &asked.io))
        return 0;
    submitted_by(&asked.io.by, bio);
    if (!bytes)
        asked.began_ns = bpf_ktime_get_ns();
    if (!IS_DISCARD(flags))
        count_io(&asked.io, bytes);
    address = nc_number_of(config, bio);
    unstarted.update(&address, &asked);
    return 0;
}

/* Of a request that is new to us: a flight begins, of the submitter of its first bio. */
static inline struct flight *flight_of(struct nc_config *config, struct request *request)
{
    u64 address = nc_number_of(config, request), of_bio;
    struct flight flight = { .flies = COUNTED }, *known = flight_at(config, address);
    struct asked *asked;

    if (known)
        return known;
    flight.bytes = key_of_request(&flight.io, request);
    if (!flight.bytes || !wanted(config, &flight.io))   /* the request of a flush belongs to nobody */
        return NULL;
    of_bio = nc_number_of(config, NC_GET(request, bio));
    asked = unstarted.lookup(&of_bio);
    if (asked) {
        flight.io.by = asked->io.by;
        unstarted.delete(&of_bio);
    }
    flight.disk = disk_number(flight.io.device);
    return begin(config, address, &flight, room_of(request));
}

/* A flush has no insert and no issue: its flight is that of its bio. */
static inline struct flight *flight_of_flush(struct nc_config *config, struct request *request, u32 bytes)
{
    struct flight flight = { .flies = COUNTED };
    struct asked *asked;
    u64 of_bio;

    if (bytes)
        return NULL;
    of_bio = nc_number_of(config, NC_GET(request, bio));
    asked = unstarted.lookup(&of_bio);
    if (!asked || !asked->began_ns)
        return NULL;
    flight.io = asked->io;
    flight.began_ns = asked->began_ns;
    unstarted.delete(&of_bio);
    flight.disk = disk_number(flight.io.device);
    return begin(config, of_bio, &flight, 0);
}
#endif

int inserted(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct request *request = REQUEST_INSERTED;
    struct flight *flight;

    if (!config)
        return 0;
    flight = flight_of(config, request);
    if (flight && !flight->inserted_ns)
        flight->inserted_ns = bpf_ktime_get_ns();
    return 0;
}

int issued(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct request *request = REQUEST_ISSUED;
    struct flight *flight;

    if (!config)
        return 0;
    flight = flight_of(config, request);
    if (!flight)
        return 0;
    flight->issued_ns = bpf_ktime_get_ns();
    flight->sector = NC_GET(request, __sector);
    flight->bytes = NC_GET(request, __data_len);
    return 0;
}

int requeued(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct request *request = REQUEST_REQUEUED;
    struct flight *flight;
    struct io_row *row;

    if (!config)
        return 0;
    flight = flight_at(config, nc_number_of(config, request));
    row = flight ? row_of(&flight->io) : NULL;
    if (row)
        __sync_fetch_and_add(&row->requeues, 1);
    return 0;
}

/* It becomes part of another request. */
int absorbed(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct request *request = REQUEST_MERGED;
    struct flight *flight;
    struct io_row *row;

    if (!config)
        return 0;
    flight = flight_of(config, request);
    if (!flight)
        return 0;
    row = flight->flies == UNCOUNTED ? count_io(&flight->io, flight->asked) : row_of(&flight->io);
    if (row)
        __sync_fetch_and_add(&row->merges, 1);
    lands(config, flight);
    return 0;
}

int completed(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct request *request = NC_ARG(0);
    int has_failed = (u32)ctx->args[1] != 0;
    u32 bytes = ctx->args[2];
    struct flight *flight;

    if (!config)
        return 0;
    flight = flight_at(config, nc_number_of(config, request));
    if (!flight)
        flight = flight_of_flush(config, request, bytes);
    if (flight && (!flight->bytes || (bytes && bytes == NC_GET(request, __data_len))))
        end(ctx, config, flight, has_failed);
    return 0;
}
