/* vhost_queues - what vhost's workers do for each virtqueue: how soon they run, what they move, and whether the guest is interrupted.
 *
 * A run is one call of one of the four work functions of vhost_net (drivers/vhost/net.c). They are called by their address alone, so none
 * is ever inlined. What a run moves is collected in its worker's record (worker.h) and added to the queue's row when it ends: no hook runs
 * per packet.
 */

#include "../../common/netconsole.h"
#include "../../common/checks.h"
#include "../../common/tap.h"
#include "worker.h"
#include "bytes.h"

enum { RUNS, STRANGERS };   /* counters */
enum { BACKEND, RING };     /* checks */
enum { RX, TX };

struct queue_row {
    u64 runs, empty_runs, starved_runs;
    u64 packets, buffers, bytes;
    u64 kicks, arrivals;
    u64 batches, signals, suppressed;
    u64 run_ns;
    u64 depth_buffers, size_buffers, unsignalled_buffers, starving;    /* gauges, at the end of the last run */
    u64 detached;                                                       /* gauge */
    u64 unanswered;                                                     /* gauge: starving, and told */
    /* gauges: the ring's indices at the end of the last run, each a count of buffers modulo 2^16; has_event: used_event is one */
    u64 avail_idx, taken_idx, used_idx, has_event, used_event, avail_flags;
    u64 told;                                                           /* see account_answer */
};
BPF_TABLE("hash", struct tap_queue, struct queue_row, queues, NC_ROWS_queues);

/* include/uapi/linux/vhost.h: _IOW(0xAF, 0x30, struct vhost_vring_file) */
#define VHOST_NET_SET_BACKEND 0x4008AF30
/* include/uapi/linux/virtio_ring.h: the bit of a feature */
#ifndef VIRTIO_RING_F_EVENT_IDX
#define VIRTIO_RING_F_EVENT_IDX 29
#endif

/* Written by the worker alone, see worker.h. */
BPF_TABLE("hash", struct tap_queue, struct nc_bucket, run, NC_ROWS_run);
BPF_TABLE("hash", struct tap_queue, struct nc_bucket, batch, NC_ROWS_batch);

/* ---- runs ---- */

static inline struct vhost_net_virtqueue *net_queue(struct vhost_virtqueue *vq)
{
    return (void *)vq - offsetof(struct vhost_net_virtqueue, vq);
}

static inline void begin_rx(struct worker *worker, struct vhost_virtqueue *vq, struct socket *sock)
{
    struct tun_file *tfile = (void *)sock - offsetof(struct tun_file, socket);
    NC_SPAN(struct vhost_net_virtqueue, nvq, rx_ring, rxq, net_queue(vq));
    struct ptr_ring *ring = NC_OF(nvq, rx_ring);

    nc_check(RING, ring == &tfile->tx_ring);
    worker->ring = (u64)ring;
    worker->consumed = NC_READ(ring, consumer_head);
    worker->waiting = NC_OF(nvq, rxq.tail) - NC_OF(nvq, rxq.head);     /* taken from the ring but not delivered */
}

/* ---- where a run begins ---- */

static inline int begin(struct vhost_work *work, struct vhost_virtqueue *vq, int direction, int kicked)
{
    struct nc_config *config = nc_config_get();
    struct socket *sock = NC_READ(vq, private_data);
    u32 tid = bpf_get_current_pid_tgid();
    struct worker *worker, none = {};
    u64 now = bpf_ktime_get_ns();
    struct answered answered;

    if (!config)
        return 0;
    answered = answer((u64)work);
    if (!sock) {                /* the guest's driver has not set it up yet, or is gone: where vhost runs, not for long */
        nc_check(BACKEND, 0);
        return 0;
    }
    worker = threads.lookup_or_try_init(&tid, &none);
    if (!worker)
        return 0;
    if (worker->vq)             /* the end of the last run was missed */
        nc_ledger_add(NC_JOIN_MISSED);
    worker->vq = 0;
    worker->tap.direction[0] = direction == RX ? 'r' : 't';
    worker->tap.direction[1] = 'x';
    if (checked_tap_of_socket(&worker->tap, sock, BACKEND)) {
        nc_count_shared(STRANGERS);
        return 0;
    }
    if (!nc_place_wanted(config, &worker->tap.place)) {
        leave_out(worker);
        return 0;
    }
    worker->packets = worker->buffers = worker->bytes = worker->batches = worker->signals = worker->unsignalled = 0;
    worker->kicks = worker->arrivals = 0;
    worker->call = (u64)NC_READ(vq, call_ctx.ctx);
    if (direction == RX)
        begin_rx(worker, vq, sock);
    note_gap(worker);
    account_wakeups(worker, &answered, now, kicked);
    account_delay(worker);
    worker->since_ns = now;
    worker->vq = (u64)vq;
    return 0;
}

int rx_kick(void *ctx)
{
    struct vhost_work *work = NC_PARAMETER(0);

    return begin(work, (void *)work - offsetof(struct vhost_virtqueue, poll.work), RX, 1);
}

int tx_kick(void *ctx)
{
    struct vhost_work *work = NC_PARAMETER(0);

    return begin(work, (void *)work - offsetof(struct vhost_virtqueue, poll.work), TX, 1);
}

int rx_net(void *ctx)
{
    struct vhost_work *work = NC_PARAMETER(0);
    struct vhost_net *net = (void *)work - offsetof(struct vhost_net, poll[RX].work);
    return begin(work, (void *)&net->vqs[RX].vq, RX, 0);
}

int tx_net(void *ctx)
{
    struct vhost_work *work = NC_PARAMETER(0);
    struct vhost_net *net = (void *)work - offsetof(struct vhost_net, poll[TX].work);
    return begin(work, (void *)&net->vqs[TX].vq, TX, 0);
}

/* ---- what a run moves ---- */

/* Buffers go back to the guest: vhost_add_used_and_signal_n. One module calls it in another, so it is never inlined. */
int flushed(void *ctx)
{
    struct vhost_virtqueue *vq = NC_PARAMETER(1);
    struct vring_used_elem *heads = NC_PARAMETER(2);

#if NARGS_vhost_add_used_and_signal_n == 5      /* from 6.18 the number of buffers per packet comes before it */
    u32 count = (u64)NC_PARAMETER(4);
#else
    u32 count = (u64)NC_PARAMETER(3);
#endif
    struct worker *worker = worker_of_thread();
    struct nc_bucket none = {};

    if (!worker || worker->vq != (u64)vq)
        return 0;
    worker->batches++;
    worker->buffers += count;
    worker->unsignalled += count;
    if (worker->tap.direction[0] == 'r')
        worker->bytes += bytes_of(heads, count);
    else
        worker->packets += count;       /* one chain of descriptors, one packet */
    worker->tap.slot = nc_slot(count);
    nc_bucket_add(batch.lookup_or_try_init(&worker->tap, &none), count);
    return 0;
}

/* The guest is interrupted. */
int signalled(void *ctx)
{
    struct eventfd_ctx *eventfd = NC_PARAMETER(0);
    struct worker *worker = worker_of_thread();

    if (worker && worker->call == (u64)eventfd) {
        worker->signals++;
        worker->unsignalled = 0;
    }
    return 0;
}

/* Packets of the guest go to the tap: a large one, or a batch. */
int sent(void *ctx)
{
    struct msghdr *message = NC_PARAMETER(1);
    u64 length = (u64)NC_PARAMETER(2);
    struct worker *worker = worker_of_thread();
    struct tun_msg_ctl control;

    if (!worker)
        return 0;
    control = NC_AT(struct tun_msg_ctl, NC_READ(message, msg_control));
    if (NC_READ(message, msg_controllen) && control.type == TUN_MSG_PTR) {
        worker->bytes += bytes_sent(&control);
        return 0;
    }
    worker->bytes += length - NC_READ(net_queue((void *)worker->vq), sock_hlen);
    return 0;
}

/* ---- the end of a run ---- */

/* Notes what the guest's side of the ring says. `told`: the guest was interrupted, and has shown no reaction since, neither more buffers
 * nor another wish for interrupts. A guest that says by an index when it wants an interrupt (VIRTIO_RING_F_EVENT_IDX) gets one, and none
 * after it until it moves the index: interrupts that vhost suppresses then do not mean that the guest polls. */
static inline void account_answer(struct worker *worker, struct queue_row *row, u64 offered, u64 flags, u64 event)
{
    if (worker->signals)
        row->told = 1;
    else if (offered != row->avail_idx || flags != row->avail_flags || event != row->used_event)
        row->told = 0;
    row->avail_idx = offered;
    row->avail_flags = flags;
    row->used_event = event;
}

/* Buffers that the guest has offered and vhost has not given back. The ring is shared memory (virtio 1.1, 2.6); the worker runs in the
 * address space of its owner, and can read it. */
static inline void look_at_ring(struct worker *worker, struct queue_row *row, struct vhost_virtqueue *vq)
{
    NC_SPAN(struct vhost_virtqueue, ring, num, avail, vq);
    struct vring_avail *avail = (void *)NC_OF(ring, avail);
    struct { u16 flags, offered; } head;
    u32 size = NC_OF(ring, num);
    u16 event = 0;

    row->size_buffers = size;
    row->taken_idx = NC_READ(vq, last_avail_idx);
    row->used_idx = NC_READ(vq, last_used_idx);
    if (bpf_probe_read_user(&head, sizeof(head), avail))
        return;
    row->depth_buffers = (u16)(head.offered - row->used_idx);
    /* used_event, behind the last buffer (virtio 1.1, 2.6.6). Without the feature other data may be there. */
    row->has_event = (NC_READ(vq, acked_features) & 1ull << VIRTIO_RING_F_EVENT_IDX) != 0;
    if (row->has_event)
        bpf_probe_read_user(&event, sizeof(event), &avail->ring[size]);
    account_answer(worker, row, head.offered, head.flags, event);
}

#define MOST_PACKETS 256    /* of a run (VHOST_NET_PKT_WEIGHT of drivers/vhost/net.c) */

static inline void account_rx(struct worker *worker, struct queue_row *row, struct vhost_virtqueue *vq)
{
    NC_SPAN(struct vhost_net_virtqueue, nvq, vhost_hlen, rxq, net_queue(vq));
    NC_SPAN(struct ptr_ring, ring, consumer_head, size, worker->ring);
    u32 consumed = NC_OF(ring, consumer_head), size = NC_OF(ring, size), waiting = NC_OF(nvq, rxq.tail) - NC_OF(nvq, rxq.head);
    u64 most = worker->buffers < MOST_PACKETS ? worker->buffers : MOST_PACKETS, headers;

    /* Packets delivered: taken from the ring, plus those that waited before the run, minus those that wait now, a whole ring at most. */
    if (size)
        worker->packets = (2ull * size + consumed - worker->consumed + worker->waiting - waiting) % size;
    if (!worker->packets && size <= most)               /* as many as the ring has slots: some were delivered */
        worker->packets = size;
    if (size && worker->packets + size <= most)         /* it may have gone round once more: packets and bytes are the least */
        nc_ledger_add(NC_JOIN_MISSED);
    else
        most = worker->packets;
    headers = most * (NC_OF(nvq, sock_hlen) + NC_OF(nvq, vhost_hlen));
    worker->bytes -= headers < worker->bytes ? headers : worker->bytes;     /* fewer when flushed() was missed, which is in the ledger */
    row->starving = waiting && !row->depth_buffers;
    row->starved_runs += row->starving;
    row->unanswered = row->starving && row->told;
    worker->waiting = waiting;
}

/* ---- samples of runs: what each has moved, and the ring's indices after it ---- */

struct run_event {
    u64 mono_ns;
    struct nc_place place;
    u16 queue;
    char direction[2];
    u32 packets, buffers, batches, signals;
    u32 waiting;        /* packets that vhost has taken from the tap and not delivered */
    u64 took_ns;
    u16 avail_idx, taken_idx, used_idx, has_event, used_event, avail_flags, pad[2];
};
BPF_PERCPU_ARRAY(records, struct run_event, 1);

static inline void sample(void *ctx, struct nc_config *config, struct worker *worker, struct queue_row *row, u64 now, u64 took_ns)
{
    struct run_event *record;
    int zero = 0;

    if (config->flags & NC_F_THRESHOLD && took_ns <= config->threshold_ns)
        return;
    record = records.lookup(&zero);
    if (!record || !nc_event_in_budget(config, now))
        return;
    record->mono_ns = now;
    record->place = worker->tap.place;
    record->queue = worker->tap.queue;
    record->direction[0] = worker->tap.direction[0];
    record->direction[1] = worker->tap.direction[1];
    record->packets = worker->packets;
    record->buffers = worker->buffers;
    record->batches = worker->batches;
    record->signals = worker->signals;
    record->waiting = worker->tap.direction[0] == 'r' ? worker->waiting : 0;
    record->took_ns = took_ns;
    record->avail_idx = row->avail_idx;
    record->taken_idx = row->taken_idx;
    record->used_idx = row->used_idx;
    record->has_event = row->has_event;
    record->used_event = row->used_event;
    record->avail_flags = row->avail_flags;
    nc_submit(ctx, record, sizeof(*record));
}

int ended(void *ctx)
{
    struct nc_config *config = nc_config_get();
    struct worker *worker = worker_of_thread();
    u64 now = bpf_ktime_get_ns(), took_ns;
    struct queue_row *row, none = {};
    struct nc_bucket empty = {};
    struct vhost_virtqueue *vq;

    if (!worker)
        return 0;
    vq = (void *)worker->vq;
    worker->vq = 0;
    worker->tap.slot = 0;
    nc_count_shared(RUNS);
    row = queues.lookup_or_try_init(&worker->tap, &none);
    if (!row) {
        nc_ledger_add(NC_MAP_FULL);
        return 0;
    }
    row->detached = 0;
    look_at_ring(worker, row, vq);
    if (worker->tap.direction[0] == 'r')
        account_rx(worker, row, vq);
    row->runs++;
    row->empty_runs += !worker->batches;
    row->packets += worker->packets;
    row->buffers += worker->buffers;
    row->bytes += worker->bytes;
    row->kicks += worker->kicks;
    row->arrivals += worker->arrivals;
    row->batches += worker->batches;
    row->signals += worker->signals;
    row->unsignalled_buffers = worker->unsignalled + (worker->signals || worker->is_first ? 0 : row->unsignalled_buffers);
    if (worker->call && worker->batches > worker->signals)
        row->suppressed += worker->batches - worker->signals;
    /* Between CPUs this clock may go back a little (ktime_get_mono_fast_ns). */
    took_ns = now > worker->since_ns ? now - worker->since_ns : 0;
    row->run_ns += took_ns;
    worker->tap.slot = nc_slot(took_ns);
    nc_bucket_add(run.lookup_or_try_init(&worker->tap, &empty), took_ns);
    account_cpu(worker, now);
    if (config && config->flags & NC_F_DETAILS) {
        if (nc_flags(config) & NC_F_DETAILS)
            sample(ctx, config, worker, row, now, took_ns);
        else
            nc_ledger_add(NC_BREAKER);
        nc_leave(config);
    }
    return 0;
}

/* ---- QEMU takes a queue away from vhost: the machine is paused, its driver reset, or it leaves for another host ---- */

int configured(void *ctx)
{
    struct file *file = NC_PARAMETER(0);
    unsigned int request = (u64)NC_PARAMETER(1);
    unsigned long argument = (u64)NC_PARAMETER(2);
    struct vhost_net *net = NC_READ(file, private_data);
    struct vhost_vring_file wanted = {};
    struct vhost_virtqueue *vq;
    struct tap_queue tap = {};
    struct queue_row *row;

    if (request != VHOST_NET_SET_BACKEND || bpf_probe_read_user(&wanted, sizeof(wanted), (void *)argument) || wanted.fd >= 0)
        return 0;
    vq = (void *)&net->vqs[wanted.index & TX].vq;
    if (tap_of_socket(&tap, NC_READ(vq, private_data)))
        return 0;
    tap.direction[0] = wanted.index == RX ? 'r' : 't';
    tap.direction[1] = 'x';
    row = queues.lookup(&tap);
    if (row)
        row->detached = 1;
    return 0;
}
