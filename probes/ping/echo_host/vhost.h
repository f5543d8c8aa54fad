/* vhost.h - the stages of an echo between this host's tap and its guest, where vhost carries it (docs/subjects/vhost.md has the points).
 *
 * To the guest, of the echo's own packet: S1 it is sent on the tap (net_dev_start_xmit, which the tap's driver follows at once),
 * S2 vhost_add_used_and_signal_n, S3 eventfd_signal, S4 irqfd_wakeup, S5 kvm_apic_accept_irq. The address of an object joins each point to
 * the next: packet, socket, eventfd. The packet's mark stays with its batch; a batch with two echoes keeps that of the first.
 *
 * From the guest, of the run that brings the echo's packet: K1 ioeventfd_write, K2 handle_tx_kick, K3 tun_sendmsg of its batch, K4
 * netif_receive_skb. Only the first batch of a run has the kick that began it.
 */
#ifndef ECHO_HOST_VHOST_H
#define ECHO_HOST_VHOST_H

#include "../../common/netconsole.h"
#include "../../common/echo.h"
#include "../../common/path.h"
#define KVM_DELIVERIES
#include "../../common/kvm.h"

#define ECHO_VHOST (defined(HAVE_vhost_virtqueue_call_ctx) && defined(HAVE_vhost_net_virtqueue_rx_ring) && defined(HAVE_kvm_kernel_irqfd_eventfd) && \
    defined(HAVE__ioeventfd_eventfd) && defined(HAVE_tun_file_tun))

/* ---- marks: which echo an object carries ---- */

#define ECHO_MARKS 4096
BPF_TABLE("lru_hash", u64, struct echo_key, echo_packets, ECHO_MARKS);      /* by packet: sent on a tap */
BPF_TABLE("lru_hash", u64, struct echo_key, echo_batches, ECHO_MARKS);      /* by socket: read by vhost */
BPF_TABLE("lru_hash", u64, struct echo_key, echo_signals, ECHO_MARKS);      /* by eventfd: given to the guest */

struct echo_kick {
    u64 first_ns;           /* of the first kick that no run has answered */
};
BPF_TABLE("lru_hash", u64, struct echo_kick, echo_kicks, ECHO_MARKS);       /* by eventfd */

struct echo_run {
    u64 kick_ns[3];         /* K1 to K3 */
    u64 device;
    u64 batches;
};
BPF_TABLE("lru_hash", u32, struct echo_run, echo_runs, ECHO_MARKS);         /* by worker thread */

static inline u64 echo_number(void *pointer)
{
    u64 storage;

    *(volatile u64 *)&storage = (u64)pointer;
    return *(volatile u64 *)&storage;
}

/* An echo's packet is sent on a tap: S1. */
static inline void echo_to_guest(struct echo *echo, struct echo_record *record, struct sk_buff *skb, u32 point)
{
    u64 packet = echo_number(skb);

    record->irq_ns[0] = record->at_ns[point];
    echo_packets.update(&packet, &echo->key);
}

/* An echo's packet is received from a tap: K4. */
static inline void echo_from_guest(struct echo_record *record, struct net_device *dev)
{
    u32 thread = bpf_get_current_pid_tgid();
    struct echo_run *run = echo_runs.lookup(&thread);

    if (!run || run->batches != 1 || !run->kick_ns[0] || run->device != echo_number(dev))
        return;
    record->kick_ns[0] = run->kick_ns[0];
    record->kick_ns[1] = run->kick_ns[1];
    record->kick_ns[2] = run->kick_ns[2];
}

#if ECHO_VHOST

/* ---- to the guest ---- */

/* Is this the echo's packet? One that the tap drops leaves its mark to whatever is at its address next. */
static inline int echo_is_in(struct echo_key *key, struct sk_buff *skb)
{
    u64 *wanted = (u64 *)key, *found;
    struct path_packet packet;
    struct echo echo;
    u32 end;

    path_read_switched(&packet, skb, &end);
    if (!echo_find(&echo, &packet, NC_READ(skb, head), end, 0, NC_READ(skb, data_len) ? NC_READ(skb, end) : 0))
        return 0;
    found = (u64 *)&echo.key;
#pragma unroll
    for (u32 i = 0; i < sizeof(*key) / 8; i++)
        if (wanted[i] != found[i])
            return 0;
    return 1;
}

/* vhost has read a packet from the tap, and passes its address in msg_control. */
int on_read(void *ctx)
{
    struct socket *sock = NC_PARAMETER(0);
    struct msghdr *message = NC_PARAMETER(1);
    u64 packet = (u64)NC_READ(message, msg_control), socket = (u64)sock;
    struct echo_key *key = echo_packets.lookup(&packet), copy;

    if (!key)
        return 0;
    copy = *key;
    echo_packets.delete(&packet);
    if (echo_is_in(&copy, nc_pointer(packet)) && !echo_batches.lookup(&socket))
        echo_batches.update(&socket, &copy);
    return 0;
}

static inline void echo_irq(struct echo_key *key, u32 point)
{
    struct echo_record *record = echoes.lookup(key);

    if (record && record->irq_ns[point - 1] && !record->irq_ns[point])
        record->irq_ns[point] = bpf_ktime_get_ns();
}

/* S2. A batch without an echo takes the eventfd from an echo whose guest wanted no interrupt: the next signal is not its own. */
int on_given(void *ctx)
{
    struct vhost_virtqueue *vq = NC_PARAMETER(1);
    struct vhost_net_virtqueue *nvq = (void *)vq - offsetof(struct vhost_net_virtqueue, vq);
    u64 socket = (u64)NC_READ(vq, private_data), eventfd = (u64)NC_READ(vq, call_ctx.ctx);
    struct echo_key *key, copy;

    if (!NC_READ(nvq, rx_ring))         /* the guest's transmit queue has the same socket but no ring */
        return 0;
    key = echo_batches.lookup(&socket);
    if (!key) {
        echo_signals.delete(&eventfd);
        return 0;
    }
    copy = *key;
    echo_batches.delete(&socket);
    echo_irq(&copy, 1);
    echo_signals.update(&eventfd, &copy);
    return 0;
}

/* S3 */
int on_told(void *ctx)
{
    struct eventfd_ctx *context = NC_PARAMETER(0);
    u64 eventfd = (u64)context;
    struct echo_key *key = echo_signals.lookup(&eventfd);

    if (key)
        echo_irq(key, 2);
    return 0;
}

/* S4 */
int on_heard(void *ctx)
{
    struct wait_queue_entry *wait = NC_PARAMETER(0);
    void *key = NC_PARAMETER(3);
    struct kvm_kernel_irqfd *irqfd = (void *)wait - offsetof(struct kvm_kernel_irqfd, wait);
    u64 eventfd = (u64)NC_READ(irqfd, eventfd);
    struct echo_key *echo;

    if (!((u64)key & EPOLLIN))
        return 0;
    echo = echo_signals.lookup(&eventfd);
    if (echo)
        echo_irq(echo, 3);
    kvm_deliver(echo && NC_READ(irqfd, irq_entry.type) >= KVM_IRQ_ROUTING_MSI ? eventfd : 0, KVM_AT_ONCE);
    return 0;
}

/* It could not be delivered at once: a kernel worker delivers it. */
int on_deferred(void *ctx)
{
    struct work_struct *work = NC_PARAMETER(0);
    struct kvm_kernel_irqfd *irqfd = (void *)work - offsetof(struct kvm_kernel_irqfd, inject);
    u64 eventfd = (u64)NC_READ(irqfd, eventfd);

    kvm_deliver(echo_signals.lookup(&eventfd) ? eventfd : 0, KVM_DEFERRED);
    return 0;
}

/* S5 */
int on_accepted(struct bpf_raw_tracepoint_args *ctx)
{
    u32 way;
    u64 eventfd = kvm_delivered(&way);
    struct echo_key *key, copy;

    if (!eventfd)
        return 0;
    key = echo_signals.lookup(&eventfd);
    if (!key)
        return 0;
    copy = *key;
    echo_signals.delete(&eventfd);
    echo_irq(&copy, 4);
    return 0;
}

/* ---- from the guest ---- */

/* K1 */
int on_kicked(void *ctx)
{
    struct kvm_io_device *device = NC_PARAMETER(1);
    u64 address = (u64)NC_PARAMETER(2);
    int length = (long)NC_PARAMETER(3);
    void *value = NC_PARAMETER(4);
    struct _ioeventfd *one = (void *)device - offsetof(struct _ioeventfd, dev);
    struct echo_kick *kick, none = {};
    u64 eventfd;

    if (!kvm_kick_is_meant(one, address, length, value))
        return 0;
    eventfd = (u64)NC_READ(one, eventfd);
    kick = echo_kicks.lookup_or_try_init(&eventfd, &none);
    if (kick && !kick->first_ns)
        kick->first_ns = bpf_ktime_get_ns();
    return 0;
}

/* K2 */
int on_run(void *ctx)
{
    struct vhost_work *work = NC_PARAMETER(0);
    struct vhost_virtqueue *vq = (void *)work - offsetof(struct vhost_virtqueue, poll.work);
    struct file *file = NC_READ(vq, kick);
    u64 eventfd = (u64)NC_READ(file, private_data);
    struct echo_kick *kick = echo_kicks.lookup(&eventfd);
    u32 thread = bpf_get_current_pid_tgid();
    struct echo_run run = {};

    if (!kick)
        return 0;
    run.kick_ns[0] = kick->first_ns;
    run.kick_ns[1] = bpf_ktime_get_ns();
    kick->first_ns = 0;
    echo_runs.update(&thread, &run);
    return 0;
}

/* K3 */
int on_handed(void *ctx)
{
    struct socket *sock = NC_PARAMETER(0);
    struct tun_file *tfile = (void *)sock - offsetof(struct tun_file, socket);
    u32 thread = bpf_get_current_pid_tgid();
    struct echo_run *run = echo_runs.lookup(&thread);
    struct tun_struct *tun;

    if (!run)
        return 0;
    tun = NC_READ(tfile, tun);
    run->device = (u64)NC_READ(tun, dev);
    run->kick_ns[2] = bpf_ktime_get_ns();
    run->batches++;
    return 0;
}

int on_run_ended(void *ctx)
{
    u32 thread = bpf_get_current_pid_tgid();

    echo_runs.delete(&thread);
    return 0;
}

#endif /* ECHO_VHOST */

#endif /* ECHO_HOST_VHOST_H */
