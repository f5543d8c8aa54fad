/* kvm.h - what probes of the way between a guest and vhost share: which kick is meant, and which interrupt a thread delivers.
 *
 * The map of deliveries is only there for a probe that defines KVM_DELIVERIES.
 */
#ifndef NETCONSOLE_KVM_H
#define NETCONSOLE_KVM_H

#include "netconsole.h"

/* include/uapi/linux/kvm.h. Lines of lower types, a chip's and those of several routes or none, are never delivered at once
 * (kvm_arch_set_irq_inatomic); of x86, those of higher ones are. */
#define KVM_IRQ_ROUTING_MSI 2

#if defined(HAVE__ioeventfd_eventfd)

/* As ioeventfd_in_range of virt/kvm/eventfd.c: KVM asks every eventfd at an address. Legacy devices have one address for all queues. */
static inline int kvm_kick_is_meant(struct _ioeventfd *one, u64 address, int length, void *value)
{
    u64 written;
    int wanted = NC_READ(one, length);

    if (address != NC_READ(one, addr))
        return 0;
    if (!wanted)
        return 1;
    if (length != wanted)
        return 0;
    if (NC_READ(one, wildcard))
        return 1;
    written = NC_AT(u64, value);        /* KVM's buffer always has 8 bytes */
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
    u64 eventfd;        /* 0: of a line that is not followed */
    u64 thread;
    u64 awaited;
};
enum { KVM_AT_ONCE, KVM_DEFERRED, KVM_WAYS };   /* the first may come while the other one is noted, on the same CPU */
BPF_PERCPU_ARRAY(kvm_deliveries, struct kvm_delivery, KVM_WAYS);

/* Called for every line, and with 0 for one that is not followed: the interrupt accepted next in this thread is of that line. */
static inline void kvm_deliver(u64 eventfd, u32 way)
{
    struct kvm_delivery *delivery = kvm_deliveries.lookup(&way), *earlier;
    u64 thread = bpf_get_current_pid_tgid();
    u32 at_once = KVM_AT_ONCE;

    if (!delivery)
        return;
    earlier = way == KVM_AT_ONCE ? NULL : kvm_deliveries.lookup(&at_once);
    if (earlier && earlier->thread == thread)   /* what was to come at once has not come */
        earlier->awaited = 0;
    delivery->eventfd = eventfd;
    delivery->thread = thread;
    delivery->awaited = 1;
}

static inline struct kvm_delivery *kvm_begun(u32 way, u64 thread)
{
    struct kvm_delivery *delivery = kvm_deliveries.lookup(&way);

    return delivery && delivery->awaited && delivery->thread == thread ? delivery : NULL;
}

/* The eventfd whose interrupt this thread has begun to deliver, and in which way; it is over then. 0: none that is followed. */
static inline u64 kvm_delivered(u32 *way)
{
    u64 thread = bpf_get_current_pid_tgid();
    struct kvm_delivery *delivery = kvm_begun(KVM_AT_ONCE, thread);

    *way = delivery ? KVM_AT_ONCE : KVM_DEFERRED;
    if (!delivery)
        delivery = kvm_begun(KVM_DEFERRED, thread);
    if (!delivery)
        return 0;
    delivery->awaited = 0;
    return delivery->eventfd;
}

#endif /* KVM_DELIVERIES */

#endif /* NETCONSOLE_KVM_H */
