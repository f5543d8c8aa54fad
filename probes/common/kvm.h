/* kvm.h - what probes of the way between a guest and vhost share: which kick is meant, and which interrupt a thread delivers.
 *
 * The map of deliveries is only there for a probe that defines KVM_DELIVERIES.
 */
#ifndef NETCONSOLE_KVM_H
#define NETCONSOLE_KVM_H

#include "netconsole.h"

#if defined(HAVE__ioeventfd_eventfd)

/* As ioeventfd_in_range of virt/kvm/eventfd.c: KVM asks every eventfd at an address. Legacy devices have one address for all queues. */
static inline int kvm_kick_is_meant(struct _ioeventfd *one, u64 address, int length, void *value)
{
    u64 written = 0;
    int wanted = NC_READ(one, length);

    if (address != NC_READ(one, addr))
        return 0;
    if (!wanted)
        return 1;
    if (length != wanted)
        return 0;
    if (NC_READ(one, wildcard))
        return 1;
    bpf_probe_read_kernel(&written, sizeof(written), value);    /* KVM's buffer always has 8 bytes */
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    written >>= (64 - 8 * length) & 63;
#else
    written &= ~0ull >> ((64 - 8 * length) & 63);
#endif
    return written == NC_READ(one, datamatch);
}

#endif

#ifdef KVM_DELIVERIES

/* The eventfd whose interrupt this thread delivers: with interrupts off, or in a kernel worker bound to its CPU. */
struct kvm_delivery {
    u64 eventfd;
    u64 thread;
};
BPF_PERCPU_ARRAY(kvm_deliveries, struct kvm_delivery, 1);

/* Called for every line, and with 0 for one that is not followed: the interrupt accepted next in this thread is of that line. */
static inline void kvm_deliver(u64 eventfd)
{
    int zero = 0;
    struct kvm_delivery *delivery = kvm_deliveries.lookup(&zero);

    if (delivery) {
        delivery->eventfd = eventfd;
        delivery->thread = bpf_get_current_pid_tgid();
    }
}

/* The delivery that this thread has begun. NULL: none. */
static inline struct kvm_delivery *kvm_delivering(void)
{
    int zero = 0;
    struct kvm_delivery *delivery = kvm_deliveries.lookup(&zero);

    return delivery && delivery->eventfd && delivery->thread == bpf_get_current_pid_tgid() ? delivery : NULL;
}

#endif /* KVM_DELIVERIES */

#endif /* NETCONSOLE_KVM_H */
