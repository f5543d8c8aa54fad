/* kicks.h - the kicks of guests, by the eventfd that KVM signals for them: a program, and who answers them. */
#ifndef NETCONSOLE_KICKS_H
#define NETCONSOLE_KICKS_H

#include "netconsole.h"
#include "resumed.h"
#include "kvm.h"

struct kicks {
    u64 first_ns;   /* of the first kick that nobody has answered */
    u64 count;
    u64 answered;
};
BPF_TABLE("lru_hash", u64, struct kicks, kicks, 8192);      /* by eventfd */

/* Are these kicks from before a rest? Then somebody has answered them unseen. */
static inline int is_forgotten(struct kicks *kick)
{
    return kick->first_ns && kick->first_ns <= nc_resumed_ns();
}

int kicked(void *ctx)
{
    struct kvm_io_device *device = NC_PARAMETER(1);
    u64 address = (u64)NC_PARAMETER(2);
    int length = (long)NC_PARAMETER(3);
    void *value = NC_PARAMETER(4);
    struct _ioeventfd *one = (void *)device - offsetof(struct _ioeventfd, dev);
    struct kicks *kick, none = {};
    u64 eventfd;

    if (!nc_config_get() || !kvm_kick_is_meant(one, address, length, value))
        return 0;
    eventfd = (u64)NC_READ(one, eventfd);
    kick = kicks.lookup_or_try_init(&eventfd, &none);
    if (!kick)
        return 0;
    if (is_forgotten(kick))
        kick->answered = kick->count;
    __sync_fetch_and_add(&kick->count, 1);
    if (kick->first_ns <= nc_resumed_ns())
        kick->first_ns = bpf_ktime_get_ns();
    return 0;
}

/* Answers what there is: how many kicks, and when the first of them was. Zeros: none, or they are from before a rest. */
static inline u64 answer(struct kicks *kick, u64 *first_ns)
{
    u64 count = kick->count, answered = 0;

    if (!is_forgotten(kick)) {
        *first_ns = kick->first_ns;
        answered = count - kick->answered;
    }
    kick->answered = count;
    kick->first_ns = 0;
    return answered;
}

#endif /* NETCONSOLE_KICKS_H */
