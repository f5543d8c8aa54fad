/* tap.h - what the probes of a virtual machine's data path share: to which queue of which tap a packet, socket or virtqueue belongs.
 *
 * Private structures of tun and vhost_net are read where the modules' own BTF says. Nothing is believed because of that alone: each object
 * is checked against another that must point back to it, and one that does not is counted as a stranger and left alone. Needs checks.h.
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

/* The sockets that a CPU has looked at last. To find out costs seven calls, to look here none: an array's look-up is inlined, and so is
 * reading the ticks. Taps are renamed and moved: after eight ticks each is looked at anew. */
#define RECENT_BITS 6
struct recent_tap {
    u64 socket;
    u64 ticks;
    struct nc_place place;
    u64 queue;
};
BPF_PERCPU_ARRAY(recent_taps, struct recent_tap, 1 << RECENT_BITS);

static inline u32 recent_index(u64 number)
{
    return (number * 0x9e3779b97f4a7c15ull) >> (64 - RECENT_BITS);  /* Fibonacci hashing */
}

/* A tap's queue is a tun_file; vhost knows its socket (drivers/net/tun.c). The device's table of queues must name it.
 * Returns 0 when it does; macvtap's sockets and a layout that is not what BTF says give -1. */
static inline int tap_of_socket(struct tap_queue *tap, struct socket *sock)
{
    struct tun_file *tfile = (void *)sock - offsetof(struct tun_file, socket), *listed = NULL;
    u32 index = recent_index((u64)sock);
    struct recent_tap *recent = recent_taps.lookup(&index);
    u64 ticks = nc_grant_ticks();
    struct tun_struct *tun;
    u16 queue;

    if (!recent)
        return -1;
    if (recent->socket == (u64)sock && recent->ticks == ticks) {
        tap->queue = recent->queue;
        tap->place = recent->place;
        return 0;
    }
    tun = NC_READ(tfile, tun);
    queue = NC_READ(tfile, queue_index);
    bpf_probe_read_kernel(&listed, sizeof(listed), &tun->tfiles[queue & 255]);
    if (!tun || listed != tfile)
        return -1;
    tap->queue = queue;
    nc_place_of(&tap->place, NC_READ(tun, dev));
    recent->socket = (u64)sock;
    recent->ticks = ticks;
    recent->place = tap->place;
    recent->queue = queue;
    return 0;
}

/* macvtap and ipvtap have sockets of another kind (drivers/net/tap.c): no queue of a tap, and no wrong layout either. */
static inline int is_macvtap(struct socket *sock)
{
    struct sock *sk = NC_READ(sock, sk);
    struct proto *protocol = NC_READ(sk, __sk_common.skc_prot);
    char name[4] = {};

    bpf_probe_read_kernel(name, sizeof(name), &protocol->name);
    return name[0] == 't' && name[1] == 'a' && name[2] == 'p' && !name[3];
}

/* tap_of_socket, as the check that a probe has for what vhost calls its backend. */
static inline int checked_tap_of_socket(struct tap_queue *tap, struct socket *sock, u32 check)
{
    int stranger = tap_of_socket(tap, sock);

    if (!stranger || !is_macvtap(sock))
        nc_check(check, !stranger);
    return stranger;
}

/* What netdev_priv of a tun device gives (include/linux/netdevice.h: behind the device, at a multiple of 32 bytes). */
static inline struct tun_struct *tun_of_device(struct net_device *dev)
{
#ifdef HAVE_net_device_priv
    return (void *)dev + offsetof(struct net_device, priv);
#else
    return (void *)dev + ((sizeof(struct net_device) + 31) & ~31);
#endif
}

/* The queue that tun_net_xmit puts a packet on. NULL when it drops the packet for want of that queue, or is no tun device after all. */
static inline struct tun_file *tap_queue_of_device(struct net_device *dev, u16 queue)
{
    struct tun_struct *tun = tun_of_device(dev);
    struct tun_file *tfile = NULL;

    if (NC_READ(tun, dev) == dev)
        bpf_probe_read_kernel(&tfile, sizeof(tfile), &tun->tfiles[queue & 255]);
    return tfile;
}

#endif /* NETCONSOLE_TAP_H */
