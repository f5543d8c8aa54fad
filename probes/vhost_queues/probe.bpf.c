/* vhost_queues - what vhost's workers do for each virtqueue: how soon they come, what they move, and whether the guest is told.
 *
 * A run is one call of the four work functions of vhost_net (drivers/vhost/net.c); only addresses of them are taken, so none is ever
 * inlined. What a run moves is collected in its worker's record and added to the queue's row when it ends: no hook is per packet.
 */

enum { RUNS, STRANGERS, SIGNALS };      /* counters */
enum { BACKEND, RING };                 /* checks */
enum { RX, TX };

struct queue_row {
    u64 runs, empty_runs, starved_runs;
    u64 packets, buffers, bytes;
    u64 kicks, arrivals;
    u64 batches, signals, suppressed;
    u64 run_ns;
    u64 depth_buffers, size_buffers, unsignalled_buffers, starving;    /* gauges, at the end of the last run */
    u64 detached;                                                       /* gauge */
};
BPF_TABLE("hash", struct tap_queue, struct queue_row, queues, NC_ROWS_queues);

/* include/uapi/linux/vhost.h: _IOW(0xAF, 0x30, struct vhost_vring_file) */
#define VHOST_NET_SET_BACKEND 0x4008AF30

/* One writer each, the worker: plain hashes, not one copy per CPU of every queue of every machine. */
BPF_TABLE("hash", struct tap_queue, struct nc_bucket, wake, NC_ROWS_wake);
BPF_TABLE("hash", struct tap_queue, struct nc_bucket, run, NC_ROWS_run);
BPF_TABLE("hash", struct tap_queue, struct nc_bucket, batch, NC_ROWS_batch);
BPF_TABLE("hash", struct tap_queue, struct nc_bucket, scheduled, NC_ROWS_scheduled);

struct worker_key {
    struct nc_place place;
    u32 queue;
    u32 tid;
};
struct worker_row {
    u64 cpu_ns, switches;
    u64 cpu, node;      /* gauges */
};
BPF_TABLE("hash", struct worker_key, struct worker_row, workers, NC_ROWS_workers);

/* ---- what is going on, by worker thread ---- */
struct worker {
    struct tap_queue tap;
    u64 vq;             /* 0: no run */
    u64 call;           /* the eventfd that interrupts the guest; 0: there is none */
    u64 since_ns;
    u64 packets, buffers, bytes, batches, signals;
    u64 unsignalled;    /* buffers given back since the last interrupt of this run */
    u64 kicks, arrivals;
    u64 ring;           /* the tap's ring ... */
    u32 consumed;       /* ... vhost's position in it ... */
    u32 waiting;        /* ... and packets taken from there but not delivered: at the start of the run */
    /* what the scheduler had booked for the thread when its last run began: how often it was given a CPU, and how long it waited for one */
    u64 pcount, run_delay;
    /* ... and when its row was last brought up to date: CPU time, and how often it was given one */
    u64 booked, ran_ns, booked_pcount;
};
BPF_TABLE("lru_hash", u32, struct worker, threads, 8192);

/* ---- wake-ups, by the work that they queue ---- */
struct wakeups {
    u64 since_ns;       /* the first that no run has answered */
    u64 count;
    u64 answered;
};
BPF_TABLE("lru_hash", u64, struct wakeups, wakeups, 16384);

/* A kick of the guest, or a packet at the tap that vhost waits for (vhost_poll_wakeup). */
int woken(struct pt_regs *ctx, struct wait_queue_entry *wait, u32 mode, int sync, void *key)
{
    struct vhost_poll *poll = (void *)wait - offsetof(struct vhost_poll, wait);
    u64 work = (u64)&poll->work;
    struct wakeups *wakeup, none = {};

    if (!((u64)key & NC_READ(poll, mask)))
        return 0;
    wakeup = wakeups.lookup_or_try_init(&work, &none);
    if (!wakeup)
        return 0;
    __sync_fetch_and_add(&wakeup->count, 1);
    if (!wakeup->since_ns)
        wakeup->since_ns = bpf_ktime_get_ns();
    return 0;
}

/* ---- runs ---- */

static inline struct vhost_net_virtqueue *net_queue(struct vhost_virtqueue *vq)
{
    return (void *)vq - offsetof(struct vhost_net_virtqueue, vq);
}

/* Packets that the worker has taken out of the tap's ring but not delivered. */
static inline u32 packets_inside(struct vhost_virtqueue *vq)
{
    struct vhost_net_buf inside = NC_READ(net_queue(vq), rxq);
    return inside.tail - inside.head;
}

static inline void begin_rx(struct worker *worker, struct vhost_virtqueue *vq, struct socket *sock)
{
    struct tun_file *tfile = (void *)sock - offsetof(struct tun_file, socket);
    struct ptr_ring *ring = NC_READ(net_queue(vq), rx_ring);

    nc_check(RING, ring == &tfile->tx_ring);
    worker->ring = (u64)ring;
    worker->consumed = NC_READ(ring, consumer_head);
    worker->waiting = packets_inside(vq);
}

static inline void account_wakeups(struct worker *worker, u64 work, u64 now, int kicked)
{
    struct wakeups *wakeup = wakeups.lookup(&work);
    struct nc_bucket none = {};
    u64 count;

    if (!wakeup)
        return;
    count = wakeup->count;
    if (kicked)
        worker->kicks += count - wakeup->answered;
    else
        worker->arrivals += count - wakeup->answered;
    wakeup->answered = count;
    if (wakeup->since_ns && now > wakeup->since_ns) {
        worker->tap.slot = nc_slot(now - wakeup->since_ns);
        nc_bucket_add(wake.lookup_or_try_init(&worker->tap, &none), now - wakeup->since_ns);
    }
    wakeup->since_ns = 0;
}

/* ---- the worker as the scheduler sees it: in its own books, for hooks of its would run on every context switch of the host ---- */

/* How long the worker has waited for a CPU since its last run began. Less than then is another thread of that number. */
static inline void account_delay(struct worker *worker)
{
#ifdef HAVE_sched_info_run_delay
    struct task_struct *self = (void *)bpf_get_current_task();
    struct sched_info booked = NC_READ(self, sched_info);
    struct tap_queue key = worker->tap;
    struct nc_bucket none = {};
    u64 delay_ns = booked.run_delay - worker->run_delay;

    /* Not when this is the first look, or it had its CPU all the time. */
    if (worker->pcount && booked.pcount > worker->pcount && booked.run_delay >= worker->run_delay) {
        key.direction[0] = key.direction[1] = 0;
        key.slot = nc_slot(delay_ns);
        nc_bucket_add(scheduled.lookup_or_try_init(&key, &none), delay_ns);
    }
    worker->pcount = booked.pcount;
    worker->run_delay = booked.run_delay;
#endif
}

#define BOOKED_SHIFT 22     /* of nanoseconds: 4 ms, a tick, for so late the scheduler may be itself; no division */

/* At most once in that time: these are totals, so that nothing is lost. */
static inline void account_cpu(struct worker *worker, u64 now)
{
    struct worker_key key = { .place = worker->tap.place, .queue = worker->tap.queue };
    struct worker_row *row, none = {};
    struct task_struct *self;
    u64 ran_ns;

    if (worker->booked == now >> BOOKED_SHIFT)
        return;
    worker->booked = now >> BOOKED_SHIFT;
    key.tid = bpf_get_current_pid_tgid();
    row = workers.lookup_or_try_init(&key, &none);
    if (!row) {
        nc_ledger_add(NC_MAP_FULL);
        return;
    }
    self = (void *)bpf_get_current_task();
    ran_ns = NC_READ(self, se.sum_exec_runtime);
    if (worker->ran_ns && ran_ns > worker->ran_ns)
        row->cpu_ns += ran_ns - worker->ran_ns;
    if (worker->booked_pcount && worker->pcount > worker->booked_pcount)
        row->switches += worker->pcount - worker->booked_pcount;
    worker->ran_ns = ran_ns;
    worker->booked_pcount = worker->pcount;
    row->cpu = bpf_get_smp_processor_id();
    row->node = bpf_get_numa_node_id();
}

/* ---- where a run begins ---- */

static inline int begin(struct vhost_work *work, struct vhost_virtqueue *vq, int direction, int kicked)
{
    struct nc_config *config = nc_config_get();
    struct socket *sock = NC_READ(vq, private_data);
    u32 tid = bpf_get_current_pid_tgid();
    struct worker *worker, none = {};
    u64 now = bpf_ktime_get_ns();

    if (!config)
        return 0;
    if (!sock) {                /* the guest's driver has not set it up, or is gone: not for long, where vhost runs */
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
        nc_count(STRANGERS);
        return 0;
    }
    if (!nc_place_wanted(config, &worker->tap.place))
        return 0;
    worker->packets = worker->buffers = worker->bytes = worker->batches = worker->signals = worker->unsignalled = 0;
    worker->kicks = worker->arrivals = 0;
    worker->call = (u64)NC_READ(vq, call_ctx.ctx);
    if (direction == RX)
        begin_rx(worker, vq, sock);
    account_wakeups(worker, (u64)work, now, kicked);
    account_delay(worker);
    worker->since_ns = now;
    worker->vq = (u64)vq;
    return 0;
}

int rx_kick(struct pt_regs *ctx, struct vhost_work *work)
{
    return begin(work, (void *)work - offsetof(struct vhost_virtqueue, poll.work), RX, 1);
}

int tx_kick(struct pt_regs *ctx, struct vhost_work *work)
{
    return begin(work, (void *)work - offsetof(struct vhost_virtqueue, poll.work), TX, 1);
}

int rx_net(struct pt_regs *ctx, struct vhost_work *work)
{
    struct vhost_net *net = (void *)work - offsetof(struct vhost_net, poll[RX].work);
    return begin(work, (void *)&net->vqs[RX].vq, RX, 0);
}

int tx_net(struct pt_regs *ctx, struct vhost_work *work)
{
    struct vhost_net *net = (void *)work - offsetof(struct vhost_net, poll[TX].work);
    return begin(work, (void *)&net->vqs[TX].vq, TX, 0);
}

static inline struct worker *worker_of_thread(void)
{
    u32 tid = bpf_get_current_pid_tgid();
    struct worker *worker = threads.lookup(&tid);
    return worker && worker->vq ? worker : NULL;
}

/* ---- what a run moves ---- */
#define HEADS 64
#define CHUNKS 17       /* a batch is less than VHOST_NET_BATCH + UIO_MAXIOV buffers */
struct heads {
    struct vring_used_elem head[HEADS];
    struct vring_used_elem behind[HEADS];
    struct vring_used_elem zero[HEADS];
};
BPF_PERCPU_ARRAY(scratch, struct heads, 1);

/* Bytes written to the guest: the lengths of the buffers given back, a chunk at a time. What is behind the last one is set to zero first,
 * so that the sum needs no branches: the verifier would follow each. */
static inline u64 bytes_of(struct vring_used_elem *heads, u32 count)
{
    struct heads *chunk;
    u64 bytes = 0;
    int zero = 0;

    if (count == 1)
        return NC_READ(heads, len);
    chunk = scratch.lookup(&zero);
    if (!chunk)
        return 0;
    for (u32 at = 0; at < CHUNKS * HEADS && at < count; at += HEADS) {
        u32 used = count - at;
        bpf_probe_read_kernel(chunk->head, sizeof(chunk->head), heads + at);
        if (used < HEADS)
            bpf_probe_read_kernel(&chunk->head[used], sizeof(chunk->zero), chunk->zero);
        for (u32 i = 0; i < HEADS; i++)
            bytes += chunk->head[i].len;
    }
    return bytes;
}

/* Buffers go back to the guest: vhost_add_used_and_signal_n. Its call crosses from one module to another, so it is never inlined. */
int flushed(struct pt_regs *ctx, struct vhost_dev *dev, struct vhost_virtqueue *vq, struct vring_used_elem *heads)
{
#if NARGS_vhost_add_used_and_signal_n == 5      /* 6.18: the number of buffers per packet came before it */
    u32 count = PT_REGS_PARM5(ctx);
#else
    u32 count = PT_REGS_PARM4(ctx);
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
int signalled(struct pt_regs *ctx, struct eventfd_ctx *eventfd)
{
    struct worker *worker = worker_of_thread();

    if (worker && worker->call == (u64)eventfd) {
        worker->signals++;
        worker->unsignalled = 0;
    }
    return 0;
}

/* Packets of the guest leave for the tap: one large one, or a batch of up to 64 (struct tun_msg_ctl, from 4.20). */
#define XDP_BATCH 64
struct sent_batch {
    struct xdp_buff buffers[XDP_BATCH];
};
BPF_PERCPU_ARRAY(sent_batch, struct sent_batch, 1);

/* Copied as a whole: a call for each packet would cost more than all else here. */
static inline u64 bytes_sent(struct tun_msg_ctl *control)
{
    u32 count = control->num;
    struct sent_batch *copy;
    u64 bytes = 0;
    int zero = 0;

    copy = sent_batch.lookup(&zero);
    if (!copy || count > XDP_BATCH || bpf_probe_read_kernel(copy, count * sizeof(struct xdp_buff), control->ptr)) {
        nc_ledger_add(NC_PARSE_FAILED);
        return 0;
    }
    for (u32 i = 0; i < XDP_BATCH && i < count; i++) {
        bytes += (u64)copy->buffers[i].data_end - (u64)copy->buffers[i].data;
        asm volatile("" : "+r"(i));     /* the verifier wants to see it counted up, not down */
    }
    return bytes;
}

int sent(struct pt_regs *ctx, struct socket *sock, struct msghdr *message, u64 length)
{
    struct worker *worker = worker_of_thread();
    struct tun_msg_ctl control = {};

    if (!worker)
        return 0;
    bpf_probe_read_kernel(&control, sizeof(control), NC_READ(message, msg_control));
    if (NC_READ(message, msg_controllen) && control.type == TUN_MSG_PTR) {
        worker->bytes += bytes_sent(&control);
        return 0;
    }
    worker->bytes += length - NC_READ(net_queue((void *)worker->vq), sock_hlen);
    return 0;
}

/* ---- the end of a run ---- */

/* Buffers that the guest has offered and vhost has not given back: the ring is shared (virtio 1.1, 2.6), the worker runs in the address
 * space of its owner. */
static inline void look_at_ring(struct queue_row *row, struct vhost_virtqueue *vq)
{
    struct vring_avail *avail = (void *)NC_READ(vq, avail);
    u16 offered;

    row->size_buffers = NC_READ(vq, num);
    if (!bpf_probe_read_user(&offered, sizeof(offered), &avail->idx))
        row->depth_buffers = (u16)(offered - NC_READ(vq, last_used_idx));
}

static inline void account_rx(struct worker *worker, struct queue_row *row, struct vhost_virtqueue *vq)
{
    struct vhost_net_virtqueue *nvq = net_queue(vq);
    struct ptr_ring *ring = (void *)worker->ring;
    u32 consumed = NC_READ(ring, consumer_head), size = NC_READ(ring, size), waiting = packets_inside(vq);

    /* Taken from the ring, minus those that wait now, plus those that waited before. */
    if (size)
        worker->packets = (consumed + size - worker->consumed) % size + worker->waiting - waiting;
    if (worker->packets)
        worker->bytes -= worker->packets * (NC_READ(nvq, sock_hlen) + NC_READ(nvq, vhost_hlen));
    row->starving = waiting && !row->depth_buffers;
    row->starved_runs += row->starving;
}

int ended(struct pt_regs *ctx)
{
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
    nc_count(RUNS);
    row = queues.lookup_or_try_init(&worker->tap, &none);
    if (!row) {
        nc_ledger_add(NC_MAP_FULL);
        return 0;
    }
    row->detached = 0;
    look_at_ring(row, vq);
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
    row->unsignalled_buffers = worker->unsignalled + (worker->signals ? 0 : row->unsignalled_buffers);
    if (worker->call)
        row->suppressed += worker->batches - worker->signals;
    /* Between CPUs this clock may go back a little (ktime_get_mono_fast_ns). */
    took_ns = now > worker->since_ns ? now - worker->since_ns : 0;
    row->run_ns += took_ns;
    worker->tap.slot = nc_slot(took_ns);
    nc_bucket_add(run.lookup_or_try_init(&worker->tap, &empty), took_ns);
    account_cpu(worker, now);
    return 0;
}

/* ---- QEMU takes a queue away from vhost: the machine is paused, its driver reset, or it leaves for another host ---- */

int configured(struct pt_regs *ctx, struct file *file, unsigned int request, unsigned long argument)
{
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
