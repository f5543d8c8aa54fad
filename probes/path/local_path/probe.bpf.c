/* local_path - how long this host's own packets take between socket and device, in both directions.
 *
 * in: from netif_receive_skb (net/core/dev.c) to the socket: tcp_probe (net/ipv4/tcp_input.c, tcp_rcv_established), or sk_data_ready
 * (net/core/sock.c, sock_def_readable) for datagrams.
 * out: from the moment when TCP made the packet (its time stamp, net/ipv4/tcp_output.c), or when IP got it (__ip_local_out), to
 * net_dev_start_xmit, the last point before the driver owns the packet.
 */

#include "../../common/netconsole.h"
#include "../../common/devices.h"
#include "../../common/path.h"
#include "../../common/latency.h"

enum {      /* counters */
    RECEIVED, DELIVERED, LEFT, PACKETS, SLOW, REUSED, EVICTED, EXCHANGED,
};

/* Set of a transit. The tag of one to a socket is the VLAN that it came with, the origin of one to a device the socket that it left. */
enum { TO_SOCKET = 1, TO_DEVICE };
enum { FIRST_QUEUE, LAST_QUEUE };                               /* points of a transit */

#define TCP NC_WORD('t', 'c', 'p', 0, 0, 0, 0, 0)
#define DATAGRAM NC_WORD('d', 'a', 't', 'a', 'g', 'r', 'a', 'm')
#define QUEUE NC_WORD('q', 'u', 'e', 'u', 'e', 0, 0, 0)         /* the time when it left its socket is not known */
#define STACK NC_WORD('s', 't', 'a', 'c', 'k', 0, 0, 0)

#define LOOPBACK 1                      /* index of lo in each network namespace */
#define UDP_LITE 136
#define STAMP_MAX_NS 10000000000ull     /* 10 s: an older time stamp is not of the monotonic clock */

struct slow_event {
    struct latency_sample sample;
    u64 stack_ns;
    u64 devices_ns;
    u64 qdisc_ns;
};

/* Working memory of a program: the BPF stack is too small for it. Softirqs are off where a packet is received, queued or sent. TCP has
 * one of its own, and so have other sockets: they may take a packet from their backlog in the process, which can be interrupted. */
enum { SOFTIRQ_SCRATCH, TCP_SCRATCH, READY_SCRATCH, SCRATCHES };
struct scratch {
    u64 received;           /* where the packet is in the table that this CPU received last; 0: it is not followed */
    u64 merged;             /* 1: GRO or the sender has merged it, and its socket may take its parts alone */
    struct path_packet packet;
    struct nc_flow flow;
    struct slow_event event;
#if NC_DIRECT
    struct sk_buff skb;
#endif
};
BPF_PERCPU_ARRAY(scratches, struct scratch, SCRATCHES);

static inline struct scratch *scratch_of(u32 number)
{
    return scratches.lookup(&number);
}

/* For counters of several programs, which may interrupt each other. */
static inline void count(u32 slot, u64 n)
{
    u64 *counter = nc_counters.lookup(&slot);

    if (counter)
        __sync_fetch_and_add(counter, n);
}

static inline void start_transit(struct path_transit *transit, u64 address)
{
    if (transit->state == PATH_IN_TRANSIT)
        count(transit->address == address ? REUSED : EVICTED, 1);
    transit->address = address;
    transit->point_ns[FIRST_QUEUE] = transit->point_ns[LAST_QUEUE] = 0;
    transit->state = PATH_IN_TRANSIT;
}

static inline int wanted(struct nc_config *config, struct scratch *scratch, struct sk_buff *skb)
{
    if (!(config->flags & NC_F_FLOW))
        return 1;
    path_flow_of(&scratch->flow, &scratch->packet, skb);
    return nc_packet_wanted(config, &scratch->flow, skb);
}

static inline void describe(struct scratch *scratch, struct sk_buff *skb, u64 direction)
{
    struct latency_sample *sample = &scratch->event.sample;

    path_flow_of(&scratch->flow, &scratch->packet, skb);
    latency_flow_of(&sample->flow, direction, &scratch->flow);
    sample->length = NC_GET(skb, len);
    sample->packets = path_packets(skb, &scratch->packet);
}

/* One sample: the packet described in scratch went from socket to device, or back. */
static inline void account(void *ctx, struct nc_config *config, struct scratch *scratch, u64 socket, u64 *device, u64 since_ns, u64 now)
{
    struct latency_sample *sample = &scratch->event.sample;
    u64 *device_side = sample->flow.direction == IN ? sample->from : sample->to;
    u64 *socket_side = sample->flow.direction == IN ? sample->to : sample->from;
    int slow;

    sample->mono_ns = now;
    sample->total_ns = path_elapsed(since_ns, now);
    device_side[0] = device[0];
    device_side[1] = device[1];
    socket_side[0] = socket;
    socket_side[1] = 0;
    slow = latency_slow(config, sample->total_ns);
    count(PACKETS, sample->packets);
    if (slow)
        count(SLOW, 1);
    if (nc_may_list(config))
        latency_add(sample, slow);
    nc_listed(config);
    if (latency_event_wanted(config, slow, now))
        nc_submit(ctx, &scratch->event, sizeof(scratch->event));
}

/* ---- in ---- */

/* Is it to be followed? */
static inline int wanted_in(struct nc_config *config, struct scratch *scratch, struct sk_buff *skb, struct net_device *dev)
{
    if (!nc_netns_wanted(config, dev))
        return 0;
    if (scratch->packet.broken)
        nc_ledger_add(NC_PARSE_FAILED);
    return wanted(config, scratch, skb);
}

static inline int is_udp(u16 protocol)
{
    return protocol == IPPROTO_UDP || protocol == UDP_LITE;
}

/* May raw sockets alone take packets of this protocol? Others have sockets of their own, extension headers of IPv6, or packets inside. */
static inline int is_raw(u16 protocol)
{
    if (protocol == IPPROTO_TCP || is_udp(protocol))
        return 0;
    return protocol != 0 && protocol != 43 && protocol != 44 && protocol != 51 && protocol != 60 &&
        protocol != 4 && protocol != 41 && protocol != 47 && protocol != 50;
}

/* Where a received packet is in the table. What raw sockets take is found by its data: each of them gets a copy of the sk_buff. The data of
 * others may be moved before their socket has them. */
static inline u64 place_in(struct path_packet *packet, struct sk_buff *skb)
{
    return packet->version && is_raw(packet->protocol) ? path_address(NC_GET(skb, head)) : path_address(skb);
}

/* The fingerprint that a packet will have at its socket: the kernel puts fragments together in the sk_buff of the last one. */
static inline void fingerprint_in(struct path_fingerprint *fingerprint, struct path_packet *packet, struct sk_buff *skb)
{
    path_fingerprint_of(fingerprint, packet, nc_data_end(skb));
    if (packet->version == 4 && path_u16(packet, 6) & 0x1fff) {
        fingerprint->network = path_hash((u64)path_u16(packet, 4) << 32 | packet->protocol);
        fingerprint->transport = 0;
    }
}

int on_receive(struct bpf_raw_tracepoint_args *ctx)
{
    struct sk_buff *skb = NC_ARG(0);
    struct net_device *dev = NC_GET(skb, dev);
    struct nc_config *config = nc_config_get();
    struct nc_member *member = nc_member_of(dev);
    struct scratch *scratch = scratch_of(SOFTIRQ_SCRATCH);
    struct path_transit *transit;
    struct path_fingerprint fingerprint;
    u64 place;

    if (!config || !scratch)
        return 0;
    scratch->received = 0;
    if (!member)
        return 0;
    path_read(&scratch->packet, skb, 0, 0);
    place = place_in(&scratch->packet, skb);
    if (!wanted_in(config, scratch, skb, dev)) {
        if (path_keep_out(place, member->name))
            count(REUSED, 1);
        return 0;
    }
    transit = path_claim(place);
    if (!transit)
        return 0;
    scratch->received = place;
    scratch->merged = is_udp(scratch->packet.protocol) && path_gso_size(skb);
    fingerprint_in(&fingerprint, &scratch->packet, skb);
    if (transit->address == place && transit->state == PATH_IN_TRANSIT && transit->set == TO_SOCKET &&
        path_same_packet(&fingerprint, &transit->fingerprint) &&
        (transit->device[0] != member->name[0] || transit->device[1] != member->name[1]))
        return 0;       /* it has come to an upper device: a bridge, a bond, a VLAN */
    start_transit(transit, place);
    transit->device[0] = member->name[0];
    transit->device[1] = member->name[1];
    transit->fingerprint = fingerprint;
    transit->set = TO_SOCKET;
    transit->tag = scratch->packet.vlan;
    transit->since_ns = bpf_ktime_get_ns();
    count(RECEIVED, 1);
    return 0;
}

static inline void deliver(void *ctx, struct scratch *scratch, struct path_transit *transit, u64 socket)
{
    struct nc_config *config = nc_config_get();
    u64 now = bpf_ktime_get_ns();

    transit->state = PATH_DONE;
    count(DELIVERED, 1);
    if (config)
        account(ctx, config, scratch, socket, transit->device, transit->since_ns, now);
}

/* Is the packet still the one of this transit? Its headers are in scratch then. */
static inline int is_same(struct scratch *scratch, struct path_transit *transit, struct sk_buff *skb)
{
    struct path_fingerprint fingerprint;

    path_read(&scratch->packet, skb, 1, 0);
    path_fingerprint_of(&fingerprint, &scratch->packet, nc_data_end(skb));
    return path_same_packet(&fingerprint, &transit->fingerprint);
}

static inline int is_inbound(struct path_transit *transit)
{
    return transit && transit->set == TO_SOCKET && transit->state == PATH_IN_TRANSIT;
}

int on_tcp(struct bpf_raw_tracepoint_args *ctx)
{
    struct sk_buff *skb = NC_ARG(1);
    struct scratch *scratch = scratch_of(TCP_SCRATCH);
    struct path_transit *transit = path_find(path_address(skb));

    if (!scratch || !is_inbound(transit))
        return 0;
    if (!is_same(scratch, transit, skb)) {
        count(EXCHANGED, 1);
        return 0;
    }
    describe(scratch, skb, IN);
    deliver(ctx, scratch, transit, TCP);
    return 0;
}

/* The packet that came last to a socket's queue, as an address: the one that it is told of, unless another CPU has queued one since or the
 * socket is read. A reader of UDP takes over the whole queue, and then one packet after the other. NULL: it has taken them all. */
static inline struct sk_buff *last_of(struct sock *sk, u16 protocol)
{
    void *skb = nc_number((u64)NC_READ(sk, sk_receive_queue.prev));

    if (skb == (void *)nc_number((u64)&sk->sk_receive_queue))
        skb = NULL;
    if (!skb && is_udp(protocol)) {
        skb = nc_number((u64)NC_READ((struct udp_sock *)sk, reader_queue.prev));
        if (skb == (void *)nc_number((u64)&((struct udp_sock *)sk)->reader_queue))
            skb = NULL;
    }
    return skb;
}

/* The headers of a packet have been pulled when its socket has it, and its tag is gone. */
static inline void describe_queued(struct scratch *scratch, struct path_transit *transit, struct sk_buff *skb)
{
    struct latency_sample *sample = &scratch->event.sample;

    describe(scratch, skb, IN);
    sample->length += (u64)NC_GET(skb, data) - (u64)NC_GET(skb, head) - scratch->packet.at;
    sample->flow.vlan = transit->tag;
}

/* A socket has got a packet. It is also called for sockets of other protocols, such as packet sockets. */
static inline void datagram(void *ctx, struct sock *sk)
{
    struct scratch *scratch = scratch_of(READY_SCRATCH), *softirq = scratch_of(SOFTIRQ_SCRATCH);
    u16 family = NC_READ(sk, __sk_common.skc_family), protocol = NC_READ(sk, sk_protocol);
    struct path_transit *transit;
    struct sk_buff *skb;
    int unsure;     /* was it another packet that came? */

    if ((family != AF_INET && family != AF_INET6) || protocol == IPPROTO_TCP || protocol > 255 || !scratch || !softirq)
        return;
    skb = last_of(sk, protocol);
    transit = skb ? path_find(is_raw(protocol) ? path_address(NC_READ(skb, head)) : path_address(skb)) : NULL;
    unsure = !skb;
    if (skb && transit && transit->set == TO_SOCKET && transit->state != PATH_FREE) {
#if NC_DIRECT       /* NC_GET reads a copy: this program is not given the packet */
        if (bpf_probe_read_kernel(&scratch->skb, sizeof(scratch->skb), skb))
            return;
        skb = &scratch->skb;
#endif
        if (!is_same(scratch, transit, skb)) {
            if (transit->state == PATH_IN_TRANSIT) {
                transit->state = PATH_FREE;
                count(NC_GET(skb, skb_iif) == LOOPBACK ? REUSED : EXCHANGED, 1);
            }
        } else if (transit->state == PATH_IN_TRANSIT) {
            describe_queued(scratch, transit, skb);
            if (scratch->flow.l4 == protocol)
                deliver(ctx, scratch, transit, DATAGRAM);
            return;
        } else {
            unsure = !is_raw(protocol);    /* another CPU has queued it, and it has its sample; raw sockets share one */
        }
    }
    if ((unsure || softirq->merged) && softirq->received && is_inbound(path_find(softirq->received))) {
        softirq->merged = 0;    /* all of its parts are one packet */
        nc_ledger_add(NC_JOIN_MISSED);
    }
}

int on_ready(struct bpf_raw_tracepoint_args *ctx)
{
    datagram(ctx, NC_ARG(0));
    return 0;
}

int on_ready_function(void *ctx)
{
    datagram(ctx, NC_PARAMETER(0));
    return 0;
}

/* ---- out ---- */

/* IP has got a packet from a socket: only the time is taken here. TCP's packets bring theirs along. What a tunnel carries comes by the
 * tunnel's socket, too. */
static inline void from_socket(struct sock *sk, struct sk_buff *skb)
{
    struct path_transit *transit;

    if (!sk || NC_READ(sk, sk_protocol) == IPPROTO_TCP || NC_READ(skb, sk) != sk)
        return;
    transit = path_claim((u64)skb);
    if (!transit)
        return;
    start_transit(transit, (u64)skb);
    transit->set = TO_DEVICE;
    transit->origin = path_address(sk);
    transit->since_ns = bpf_ktime_get_ns();
}

int on_made(void *ctx)
{
    struct sock *sk = NC_PARAMETER(1);
    struct sk_buff *skb = NC_PARAMETER(2);

    from_socket(sk, skb);
    return 0;
}

/* When TCP made the packet, which it keeps as its time of departure; 0: not known. A pacing socket may set it to a time to come. */
static inline u64 stamp_of(struct sk_buff *skb, struct path_packet *packet, u64 now)
{
    u64 stamp = NC_GET(skb, tstamp);

    if (packet->protocol != IPPROTO_TCP || !stamp || stamp + STAMP_MAX_NS < now || stamp > now + STAMP_MAX_NS)
        return 0;
    return stamp < now ? stamp : now;
}

static inline int is_outbound(struct path_transit *transit, u64 address)
{
    return transit->address == address && transit->state == PATH_IN_TRANSIT && transit->set == TO_DEVICE;
}

/* Is it the packet that was queued to a device before? */
static inline int was_queued(struct path_transit *transit, u64 address, struct path_fingerprint *fingerprint)
{
    u64 queued_ns = transit->point_ns[FIRST_QUEUE];

    return queued_ns && queued_ns >= nc_resumed_ns() && is_outbound(transit, address) &&
        path_same_packet(fingerprint, &transit->fingerprint);
}

/* Has IP got it from its socket? A datagram may be dropped before it is queued. Then its entry waits for the next packet at its address:
 * one of another socket, for each further one of the same socket comes by from_socket. */
static inline int was_made(struct path_transit *transit, struct sk_buff *skb)
{
    return !transit->point_ns[FIRST_QUEUE] && transit->since_ns >= nc_resumed_ns() && is_outbound(transit, path_address(skb)) &&
        transit->origin == path_address(NC_GET(skb, sk));
}

int on_queue(struct bpf_raw_tracepoint_args *ctx)
{
    struct sk_buff *skb = NC_ARG(0);
    struct nc_config *config = nc_config_get();
    struct scratch *scratch = scratch_of(SOFTIRQ_SCRATCH);
    struct path_transit *transit;
    struct path_fingerprint fingerprint;
    u64 address, now;
    int made;

    if (!config || !scratch || NC_GET(skb, skb_iif))       /* it was received: not this host's own */
        return 0;
    address = path_address(skb);
    transit = path_claim(address);
    if (!transit)
        return 0;
    path_read(&scratch->packet, skb, 1, 1);
    path_fingerprint_of(&fingerprint, &scratch->packet, nc_data_end(skb));
    now = bpf_ktime_get_ns();
    if (was_queued(transit, address, &fingerprint)) {
        transit->point_ns[LAST_QUEUE] = now;
        return 0;
    }
    made = was_made(transit, skb);
    if (!NC_GET(skb, sk) || !wanted(config, scratch, skb)) {   /* without a socket: ARP, errors, resets of the kernel's own */
        if (made)
            transit->state = PATH_FREE;
        return 0;
    }
    if (!made) {
        start_transit(transit, address);
        transit->set = TO_DEVICE;
        transit->since_ns = stamp_of(skb, &scratch->packet, now);
    }
    transit->fingerprint = fingerprint;
    transit->point_ns[FIRST_QUEUE] = transit->point_ns[LAST_QUEUE] = now;
    return 0;
}

/* The stages add up to the total. Of TCP's packets that were segmented in software, only the time when they were made is known. */
static inline u64 split(struct slow_event *event, struct path_transit *transit, u64 now)
{
    u64 first = transit->point_ns[FIRST_QUEUE], last = transit->point_ns[LAST_QUEUE];

    event->stack_ns = transit->since_ns ? path_elapsed(transit->since_ns, first) : 0;
    event->devices_ns = path_elapsed(first, last);
    event->qdisc_ns = path_elapsed(last, now);
    if (transit->since_ns)
        latency_stage(OUT, STACK, event->stack_ns);
    if (first != last)
        latency_stage(OUT, DEVICES, event->devices_ns);
    latency_stage(OUT, QDISC, event->qdisc_ns);
    return event->stack_ns + event->devices_ns + event->qdisc_ns;
}

int on_send(struct bpf_raw_tracepoint_args *ctx)
{
    struct sk_buff *skb = NC_ARG(0);
    struct net_device *dev = NC_ARG(1);
    struct nc_config *config = nc_config_get();
    struct nc_member *member = nc_member_of(dev);
    struct scratch *scratch = scratch_of(SOFTIRQ_SCRATCH);
    u64 now = bpf_ktime_get_ns(), address, total, socket = TCP;
    struct path_transit *transit;
    struct path_fingerprint fingerprint;

    if (!config || !member || !scratch || NC_GET(skb, skb_iif) || !nc_netns_wanted(config, dev))
        return 0;
    address = path_address(skb);
    transit = path_find(address);
    path_read(&scratch->packet, skb, 1, 1);
    path_fingerprint_of(&fingerprint, &scratch->packet, nc_data_end(skb));
    if (!wanted(config, scratch, skb))
        return 0;
    if (transit && was_queued(transit, address, &fingerprint)) {
        transit->state = PATH_DONE;
        total = split(&scratch->event, transit, now);
        if (scratch->packet.protocol != IPPROTO_TCP)
            socket = transit->since_ns ? DATAGRAM : QUEUE;
    } else {
        u64 stamp = stamp_of(skb, &scratch->packet, now);
        if (!stamp || (transit && transit->state == PATH_DONE && path_same_packet(&fingerprint, &transit->fingerprint)))
            return 0;   /* not a socket's, or sent again because the driver was busy */
        scratch->event.stack_ns = scratch->event.devices_ns = scratch->event.qdisc_ns = 0;
        total = now - stamp;
    }
    describe(scratch, skb, OUT);
    count(LEFT, 1);
    account(ctx, config, scratch, socket, member->name, now - total, now);
    return 0;
}
