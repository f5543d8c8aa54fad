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
    u64 in_flight, most;        /* gauges */
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

/* A request, or a bio of a device without requests, from the beginning to its end: by its address. */
struct flight {
    struct io_key io;
    u64 began_ns;       /* of what has no bytes or is no request: else 0 */
    u64 inserted_ns;    /* 0: no insert was seen */
    u64 issued_ns;      /* the last time */
    u64 sector;
    u64 bytes;          /* as it was last issued; 0: it ends with its first completion */
};
BPF_TABLE("hash", u64, struct flight, flights, 16384);

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

#define OPERATION_MASK 0xff     /* REQ_OP_MASK */
static inline u64 operation_of(u32 flags, u64 bytes)
{
    switch (flags & OPERATION_MASK) {
    case REQ_OP_READ:
        return NC_WORD('r', 'e', 'a', 'd', 0, 0, 0, 0);
    case REQ_OP_WRITE:
        if (bytes || !(flags & 1u << __REQ_PREFLUSH))
            return NC_WORD('w', 'r', 'i', 't', 'e', 0, 0, 0);
        return NC_WORD('f', 'l', 'u', 's', 'h', 0, 0, 0);
    case REQ_OP_FLUSH:
        return NC_WORD('f', 'l', 'u', 's', 'h', 0, 0, 0);
    case REQ_OP_DISCARD:
    case REQ_OP_SECURE_ERASE:
        return NC_WORD('d', 'i', 's', 'c', 'a', 'r', 'd', 0);
    }
    return NC_WORD('o', 't', 'h', 'e', 'r', 0, 0, 0);
}
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

static inline void takes_off(struct io_row *row)
{
    if (!row)
        return;
    __sync_fetch_and_add(&row->in_flight, 1);
    if (*(volatile u64 *)&row->in_flight > row->most)
        row->most = *(volatile u64 *)&row->in_flight;
}

static inline void lands(struct io_row *row)
{
    if (row && (s64)row->in_flight > 0)         /* not of a row that was made anew */
        __sync_fetch_and_add(&row->in_flight, -1);
}

/* One at this address whose end was not seen gives way. */
static inline void begin(u64 address, struct flight *flight, struct io_row *row)
{
    struct flight *stale;

    if (flights.insert(&address, flight)) {
        stale = flights.lookup(&address);
        if (!stale) {
            nc_ledger_add(NC_MAP_FULL);
            return;
        }
        nc_ledger_add(NC_JOIN_MISSED);
        lands(ios.lookup(&stale->io));
        flights.update(&address, flight);
    }
    takes_off(row);
}

static inline void add_time(struct time_key *key, u64 stage, u64 ns)
{
    struct nc_bucket none = {};

    key->stage = stage;
    key->slot = nc_slot(ns);
    nc_bucket_add(times.lookup_or_try_init(key, &none), ns);
}

static inline u64 between(u64 from, u64 to)     /* between CPUs this clock may go back a little */
{
    return to > from ? to - from : 0;
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
static inline void end(void *ctx, struct nc_config *config, u64 address, struct flight *flight, int has_failed)
{
    struct flight ended = *flight;
    struct io_row *row;

    flights.delete(&address);
    row = row_of(&ended.io);
    count(REQUESTS, 1);
    if (has_failed)
        count(ERRORS, 1);
    if (row) {
        __sync_fetch_and_add(&row->requests, 1);
        if (has_failed)
            __sync_fetch_and_add(&row->errors, 1);
        if (!ended.inserted_ns)
            __sync_fetch_and_add(&row->unqueued, 1);
    }
    lands(row);
    measure(ctx, config, &ended);
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
    struct flight flight = {};
    struct io_row *row;
    u64 bytes;

    if (!config || !(is_alone || IS_DISCARD(flags)))
        return 0;
    bytes = key_of_bio(&flight.io, bio);
    if (!wanted(config, &flight.io))
        return 0;
    submitted_by(&flight.io.by);
    row = count_io(&flight.io, bytes);
    if (is_alone) {
        flight.began_ns = bpf_ktime_get_ns();
        flight.bytes = bytes;
        flight.sector = NC_GET(bio, bi_iter.bi_sector);
        begin(nc_number_of(config, bio), &flight, row);
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
    u64 address;

    if (!config)
        return 0;
    address = nc_number_of(config, bio);
    flight = flights.lookup(&address);
    if (flight) {
        end(ctx, config, address, flight, has_failed);
        return 0;
    }
    if (!has_failed || has_bios_alone(bio))
        return 0;
    key_of_bio(&io, bio);
    if (!wanted(config, &io))
        return 0;
    submitted_by(&io.by);
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
    submitted_by(&io->by);
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
    submitted_by(&io.by);
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
    struct flight flight = {};
    struct io_row *row;

    if (!config)
        return 0;
    flight.bytes = key_of_request(&flight.io, request);
    if (!wanted(config, &flight.io))
        return 0;
    submitted_by(&flight.io.by);
    if (!flight.bytes)
        flight.began_ns = bpf_ktime_get_ns();
    row = IS_DISCARD(flags) ? row_of(&flight.io) : count_io(&flight.io, flight.bytes);
    begin(nc_number_of(config, request), &flight, row);
    return 0;
}

static inline struct flight *flight_of(struct nc_config *config, struct request *request, u64 address)
{
    return flights.lookup(&address);
}

static inline struct flight *flight_of_flush(struct nc_config *config, struct request *request, u32 bytes, u64 *address)
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
    submitted_by(&asked.io.by);
    if (!bytes)
        asked.began_ns = bpf_ktime_get_ns();
    if (!IS_DISCARD(flags))
        count_io(&asked.io, bytes);
    address = nc_number_of(config, bio);
    unstarted.update(&address, &asked);
    return 0;
}

/* Of a request that is new to us: a flight begins, of the submitter of its first bio. */
static inline struct flight *flight_of(struct nc_config *config, struct request *request, u64 address)
{
    struct flight flight = {}, *known = flights.lookup(&address);
    struct bio *bio;
    struct asked *asked;
    u64 of_bio;

    if (known)
        return known;
    flight.bytes = key_of_request(&flight.io, request);
    if (!flight.bytes || !wanted(config, &flight.io))   /* the request of a flush belongs to nobody */
        return NULL;
    bio = NC_GET(request, bio);
    of_bio = nc_number_of(config, bio);
    asked = unstarted.lookup(&of_bio);
    if (asked) {
        flight.io.by = asked->io.by;
        unstarted.delete(&of_bio);
    }
    begin(address, &flight, row_of(&flight.io));
    return flights.lookup(&address);
}

/* A flush has no insert and no issue: its flight is that of its bio. */
static inline struct flight *flight_of_flush(struct nc_config *config, struct request *request, u32 bytes, u64 *address)
{
    struct flight flight = {};
    struct asked *asked;
    struct bio *bio;

    if (bytes)
        return NULL;
    bio = NC_GET(request, bio);
    *address = nc_number_of(config, bio);
    asked = unstarted.lookup(address);
    if (!asked || !asked->began_ns)
        return NULL;
    flight.io = asked->io;
    flight.began_ns = asked->began_ns;
    unstarted.delete(address);
    begin(*address, &flight, row_of(&flight.io));
    return flights.lookup(address);
}
#endif

int inserted(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct request *request = REQUEST_INSERTED;
    struct flight *flight;

    if (!config)
        return 0;
    flight = flight_of(config, request, nc_number_of(config, request));
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
    flight = flight_of(config, request, nc_number_of(config, request));
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
    u64 address;

    if (!config)
        return 0;
    address = nc_number_of(config, request);
    flight = flights.lookup(&address);
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
    u64 address;

    if (!config)
        return 0;
    address = nc_number_of(config, request);
    flight = flight_of(config, request, address);
    row = flight ? row_of(&flight->io) : NULL;
    if (row)
        __sync_fetch_and_add(&row->merges, 1);
    if (flight) {
        lands(row);
        flights.delete(&address);
    }
    return 0;
}

int completed(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct request *request = NC_ARG(0);
    int has_failed = (u32)ctx->args[1] != 0;
    u32 bytes = ctx->args[2];
    struct flight *flight;
    u64 address;

    if (!config)
        return 0;
    address = nc_number_of(config, request);
    flight = flights.lookup(&address);
    if (!flight)
        flight = flight_of_flush(config, request, bytes, &address);
    if (flight && (!flight->bytes || (bytes && bytes == NC_GET(request, __data_len))))
        end(ctx, config, address, flight, has_failed);
    return 0;
}
