/* tx_kick_path - from a guest's kick to its packet in the host's stack, in four points. An object joins each point to the next:
 *
 *   K1 ioeventfd_write: the guest kicks, KVM signals the eventfd     (eventfd)
 *   K2 handle_tx_kick: vhost's worker begins its run                 (eventfd -> virtqueue)
 *   K3 tun_sendmsg: it sends the first packet, or batch              (the same thread)
 *   K4 netif_receive_skb: the host's stack receives the first        (the same thread, and the tap's device)
 *
 * A run is timed from the first kick that it answers. Further kicks and packets are counted. A run that no kick began is not timed: vhost
 * stops after so many packets and queues itself again (vhost_exceeds_weight). What such runs move is counted separately.
 */

#include "../../common/netconsole.h"
#include "../../common/checks.h"
#include "../../common/resumed.h"
#include "../../common/kicks.h"
#include "../../common/tap.h"
#include "../../common/stages.h"

enum { RUNS };              /* counters */
enum { BACKEND, KICK };     /* checks */

struct run {
    struct tap_queue tap;
    u64 vq;         /* 0: none */
    u64 ns[4];      /* K1 to K4; K1 is 0 when no kick began it */
    u64 kicks, packets, batches;
    u64 device;
};
BPF_TABLE("lru_hash", u32, struct run, runs, 8192);         /* by worker thread */

/* The run of this thread. NULL: none, or its begin was not seen. */
static inline struct run *run_of(u32 *thread)
{
    struct run *run = runs.lookup(thread);

    return run && run->vq && run->ns[1] >= nc_resumed_ns() ? run : NULL;
}

/* The thread that called tun_sendmsg and whose first packet is expected. The packet enters the stack on the same CPU with softirqs off.
 * The tracepoint of K4 sees every packet of the host, and for all others this is all that it reads. */
struct handover {
    u64 device;
    u32 thread;
    u32 pad;
};
BPF_PERCPU_ARRAY(handovers, struct handover, 1);

struct queue_key {
    struct nc_place place;
    u32 queue;
    u32 pad;
};
struct queue_row {
    u64 runs, kicks, packets, unseen;
    u64 continued_runs, continued_packets;
    u64 batches;
};
BPF_TABLE("hash", struct queue_key, struct queue_row, queues, NC_ROWS_queues);

struct run_event {
    u64 mono_ns;
    struct nc_place place;
    u32 queue;
    u32 worker;
    u64 k1_k2_ns, k2_k3_ns, k3_k4_ns, total_ns;
    u64 kicks;
};
BPF_PERCPU_ARRAY(records, struct run_event, 1);

/* ---- K2 ---- */

/* include/uapi/linux/virtio_ring.h */
#ifndef VRING_USED_F_NO_NOTIFY
#define VRING_USED_F_NO_NOTIFY 1
#endif

/* Has vhost queued this run itself? Then the run before it has left the guest told not to kick (vhost_disable_notify). */
static inline int is_queued_again(struct vhost_virtqueue *vq)
{
    return NC_READ(vq, used_flags) & VRING_USED_F_NO_NOTIFY;
}

int begun(void *ctx)
{
    struct vhost_work *work = NC_PARAMETER(0);
    struct vhost_virtqueue *vq = (void *)work - offsetof(struct vhost_virtqueue, poll.work);
    struct socket *sock = NC_READ(vq, private_data);
    struct file *file = NC_READ(vq, kick);
    u64 eventfd = (u64)NC_READ(file, private_data);
    struct kicks *kick = kicks.lookup(&eventfd);
    struct nc_config *config = nc_config_get();
    u32 thread = bpf_get_current_pid_tgid();
    struct run run = {}, *earlier;

    if (!config)        /* kicks were not noted either */
        return 0;
    if (!is_queued_again(vq) && !nc_check(KICK, kick != NULL))
        return 0;
    if (kick)           /* also of a run that is left out: they must not wait for the next one */
        run.kicks = answer(kick, &run.ns[0]);
    if (checked_tap_of_socket(&run.tap, sock, BACKEND) || !nc_place_wanted(config, &run.tap.place))
        return 0;
    run.ns[1] = bpf_ktime_get_ns();
    run.vq = (u64)vq;
    earlier = runs.lookup(&thread);
    if (earlier && earlier->vq && earlier->ns[1] >= nc_resumed_ns())    /* its end was missed */
        nc_ledger_add(NC_JOIN_MISSED);
    if (earlier)        /* in place: an update takes a new node */
        *earlier = run;
    else
        runs.update(&thread, &run);
    return 0;
}

static inline struct queue_row *row_of(struct run *run)
{
    struct queue_key key = { .place = run->tap.place, .queue = run->tap.queue };
    struct queue_row none = {}, *row = queues.lookup_or_try_init(&key, &none);

    if (!row)
        nc_ledger_add(NC_MAP_FULL);
    return row;
}

int ended(void *ctx)
{
    u32 thread = bpf_get_current_pid_tgid();
    struct run *run = run_of(&thread);
    struct queue_row *row;

    if (!run)
        return 0;
    run->vq = 0;
    if (run->ns[3])             /* not counted at K4: a worker may wait seconds for its CPU there, and the row comes here */
        nc_count_shared(RUNS);
    row = row_of(run);
    if (!row)
        return 0;
    row->kicks += run->kicks;
    row->batches += run->batches;
    if (!run->ns[0]) {
        row->continued_runs++;
        row->continued_packets += run->packets;
        return 0;
    }
    row->packets += run->packets;
    if (run->ns[3])
        row->runs++;
    else                        /* nothing to send, or the packet was dropped or taken by XDP before the stack */
        row->unseen++;
    return 0;
}

/* ---- K3 ---- */

int handed_over(void *ctx)
{
    struct socket *sock = NC_PARAMETER(0);
    struct msghdr *message = NC_PARAMETER(1);
    u32 thread = bpf_get_current_pid_tgid();
    struct run *run = run_of(&thread);
    struct tun_file *tfile = (void *)sock - offsetof(struct tun_file, socket);
    struct tun_struct *tun = NC_READ(tfile, tun);
    struct tun_msg_ctl control;
    struct handover *handover;
    int zero = 0;

    if (!run)
        return 0;
    control = NC_AT(struct tun_msg_ctl, NC_READ(message, msg_control));
    run->packets += NC_READ(message, msg_controllen) && control.type == TUN_MSG_PTR ? control.num : 1;
    run->batches++;
    if (!run->ns[0] || run->ns[2])
        return 0;
    run->ns[2] = bpf_ktime_get_ns();
    run->device = (u64)NC_READ(tun, dev);
    handover = handovers.lookup(&zero);
    if (handover) {
        handover->device = run->device;
        handover->thread = thread;
    }
    return 0;
}

/* ---- K4 ---- */

static inline void sample(struct bpf_raw_tracepoint_args *ctx, struct nc_config *config, struct run *run, u32 thread)
{
    struct run_event *record;
    u64 *ns = run->ns;
    int zero = 0;

    if (config->flags & NC_F_THRESHOLD && ns[3] - ns[0] <= config->threshold_ns)
        return;
    if (!nc_event_allowed(config, ns[3]))
        return;
    record = records.lookup(&zero);
    if (!record)
        return;
    record->mono_ns = ns[3];
    record->place = run->tap.place;
    record->queue = run->tap.queue;
    record->worker = thread;
    record->k1_k2_ns = ns[1] - ns[0];
    record->k2_k3_ns = ns[2] - ns[1];
    record->k3_k4_ns = ns[3] - ns[2];
    record->total_ns = ns[3] - ns[0];
    record->kicks = run->kicks;
    nc_submit(ctx, record, sizeof(*record));
}

int arrived(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct handover *handover;
    struct sk_buff *skb = NC_ARG(0);
    struct run *run;
    int zero = 0;
    u32 thread;
    u64 *ns;

    handover = handovers.lookup(&zero);
    if (!handover || !handover->device || !config)
        return 0;
    thread = bpf_get_current_pid_tgid();
    if (handover->thread != thread || (u64)NC_READ(skb, dev) != handover->device)
        return 0;
    handover->device = 0;
    run = run_of(&thread);
    if (!run || !run->ns[2] || run->ns[3] || run->batches > 1)      /* what was sent first has not come here: this is a later one */
        return 0;
    ns = run->ns;
    ns[3] = bpf_ktime_get_ns();
    put_in_order(ns, 4);
    if (nc_may_measure(config))
        account_stages(&run->tap.place, run->tap.queue, 'K', run->ns, 4);
    nc_measured(config);
    if (config->flags & NC_F_DETAILS)
        sample(ctx, config, run, thread);
    return 0;
}
