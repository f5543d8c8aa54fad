/* tap.h - the queue of a tap to which a packet, a socket or a virtqueue belongs.
 *
 * Private structures of tun and vhost_net are read by the modules' own BTF. That alone is not believed: each object is checked against
 * another one that must point back to it. One that does not is counted as a stranger and ignored.
 */
#ifndef NETCONSOLE_TAP_H
#define NETCONSOLE_TAP_H

#include "netconsole.h"
#include "checks.h"

struct tap_queue {
    struct nc_place place;
    u16 queue;
    char direction[2];  /* as vhost_net names it: "rx" to the guest, "tx" from it */
    u32 slot;           /* of a histogram */
};

/* The sockets that a CPU has looked up last. A look-up costs seven helper calls, this table none: the look-up in an array is inlined, and
 * so is reading the ticks. Taps are renamed and moved: each is looked up again after eight ticks. */
#define RECENT_BITS 6
struct recent_tap {
    u64 socket;
    u64 ticks;
    struct nc_place place;
    u64 queue;
    u64 sum;            /* of all the words before: where a thread can be preempted in a program, two may write here at once */
};
BPF_PERCPU_ARRAY(recent_taps, struct recent_tap, 1 << RECENT_BITS);

static inline u32 recent_index(u64 number)
{
    return (number * 0x9e3779b97f4a7c15ull) >> (64 - RECENT_BITS);  /* Fibonacci hashing */
}

static inline u64 recent_sum(struct recent_tap *recent)
{
    u64 *word = (void *)recent, sum = 0;

#pragma unroll
    for (u32 i = 0; i < offsetof(struct recent_tap, sum) / 8; i++)
        sum = (sum ^ word[i]) * 0x9e3779b97f4a7c15ull;
    return sum;
}

/* A queue of a tap is a tun_file; vhost knows its socket (drivers/net/tun.c). The device's table of queues must point to it.
 * Returns 0 when it does. Returns -1 for a socket of macvtap, and when the layout is not what BTF says. */
static inline int tap_of_socket(struct tap_queue *tap, struct socket *sock)
{
    struct tun_file *tfile = (void *)sock - offsetof(struct tun_file, socket);
    u32 index = recent_index((u64)sock);
    struct recent_tap *recent = recent_taps.lookup(&index);
    u64 ticks = nc_grant_ticks();
    struct recent_tap found = {};
    struct tun_struct *tun;
    u16 queue;

    if (!recent)
        return -1;
    if (recent->socket == (u64)sock && recent->ticks == ticks) {
        struct recent_tap copy = *recent;

        tap->queue = copy.queue;
        tap->place = copy.place;
        if (copy.socket == (u64)sock && copy.sum == recent_sum(&copy))
            return 0;
    }
    tun = NC_READ(tfile, tun);
    queue = NC_READ(tfile, queue_index);
    if (!tun || NC_AT(struct tun_file *, &tun->tfiles[queue & 255]) != tfile)
        return -1;
    tap->queue = queue;
    nc_place_of(&tap->place, NC_READ(tun, dev));
    found.socket = (u64)sock;
    found.ticks = ticks;
    found.place = tap->place;
    found.queue = queue;
    found.sum = recent_sum(&found);
    *recent = found;
    return 0;
}

/* macvtap and ipvtap have sockets of another kind (drivers/net/tap.c). They are no queue of a tap, but no wrong layout either. */
static inline int is_macvtap(struct socket *sock)
{
    struct sock *sk = NC_READ(sock, sk);
    struct proto *protocol = NC_READ(sk, __sk_common.skc_prot);
    u32 name = NC_AT(u32, &protocol->name);
    char *letter = (void *)&name;

    return letter[0] == 't' && letter[1] == 'a' && letter[2] == 'p' && !letter[3];
}

/* tap_of_socket for what vhost calls its backend, counted as a check of the probe. */
static inline int checked_tap_of_socket(struct tap_queue *tap, struct socket *sock, u32 check)
{
    int stranger = tap_of_socket(tap, sock);

    if (!stranger || !is_macvtap(sock))
        nc_check(check, !stranger);
    return stranger;
}

/* netdev_priv of a tun device: after the device, at a multiple of 32 bytes (include/linux/netdevice.h). */
static inline struct tun_struct *tun_of_device(struct net_device *dev)
{
#ifdef HAVE_net_device_priv
    return (void *)dev + offsetof(struct net_device, priv);
#else
    return (void *)dev + ((sizeof(struct net_device) + 31) & ~31);
#endif
}

/* The queue into which tun_net_xmit puts a packet. NULL: there is no such queue and the packet is dropped, or it is no tun device. */
static inline struct tun_file *tap_queue_of_device(struct net_device *dev, u16 queue)
{
    struct tun_struct *tun = tun_of_device(dev);

    return NC_READ(tun, dev) == dev ? NC_AT(struct tun_file *, &tun->tfiles[queue & 255]) : NULL;
}

#endif /* NETCONSOLE_TAP_H */
