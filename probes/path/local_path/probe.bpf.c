/* local_path - how long this host's own packets take between socket and device, in both directions.
 *
 * in: from netif_receive_skb (net/core/dev.c) to the socket: tcp_probe (net/ipv4/tcp_input.c, tcp_rcv_established), or sk_data_ready
 * (net/core/sock.c, sock_def_readable) for datagrams.
 * out: from the moment when TCP made the packet (its time stamp, net/ipv4/tcp_output.c), or when IP got it (__ip_local_out), to
 * net_dev_start_xmit, the last moment when it is not the driver's.
 */

#include "../../common/netconsole.h"
#include "../../common/devices.h"
#include "../../common/path.h"
#include "../../common/latency.h"

enum {      /* counters */
    RECEIVED, DELIVERED, LEFT, PACKETS, SLOW, REUSED, EVICTED, EXCHANGED,
};

enum { TO_SOCKET = 1, TO_DEVICE };                              /* which way; its mark: the protocol */
enum { FIRST_QUEUE, LAST_QUEUE };                               /* moments of a way */

#define TCP NC_WORD('t', 'c', 'p', 0, 0, 0, 0, 0)
#define DATAGRAM NC_WORD('d', 'a', 't', 'a', 'g', 'r', 'a', 'm')
#define QUEUE NC_WORD('q', 'u', 'e', 'u', 'e', 0, 0, 0)         /* when it left its socket is not known */
#define STACK NC_WORD('s', 't', 'a', 'c', 'k', 0, 0, 0)

#define STAMP_MAX_NS 10000000000ull     /* an older time stamp is not one of the monotonic clock */

struct slow_event {
    struct latency_sample sample;
    u64 stack_ns;
    u64 devices_ns;
    u64 qdisc_ns;
};

/* What a program works with, for the stack is too small. Softirqs are off wherever a packet is received, queued or sent; TCP may
 * have kept it for the process that had its socket (the backlog), and that can be interrupted. */
enum { SOFTIRQ_DESK, TCP_DESK, DESKS };
struct desk {
    u64 address;
    u64 received;           /* the packet that this CPU took in last; 0: one that is not timed */
    struct path_packet packet;
    struct nc_flow flow;
    struct slow_event event;
};
BPF_PERCPU_ARRAY(desks, struct desk, DESKS);

static inline struct desk *desk_of_cpu(u32 number)
{
    return desks.lookup(&number);
}

/* A counter of several programs, which may interrupt each other. */
static inline void count(u32 slot, u64 n)
{
    u64 *counter = nc_counters.lookup(&slot);

    if (counter)
        __sync_fetch_and_add(counter, n);
}

static inline void take_over(struct path_way *way, u64 address)
{
    if (way->state == PATH_UNDER_WAY)
        count(way->address == address ? REUSED : EVICTED, 1);
    way->address = address;
    way->moment_ns[FIRST_QUEUE] = way->moment_ns[LAST_QUEUE] = 0;
    way->state = PATH_UNDER_WAY;
}

static inline int wanted(struct nc_config *config, struct desk *desk, struct sk_buff *skb)
{
    if (!(config->flags & NC_F_FLOW))
        return 1;
    path_flow_of(&desk->flow, &desk->packet, skb);
    return nc_flow_wanted(config, &desk->flow);
}

static inline void describe(struct desk *desk, struct sk_buff *skb, u64 direction)
{
    struct latency_sample *sample = &desk->event.sample;

    path_flow_of(&desk->flow, &desk->packet, skb);
    latency_flow_of(&sample->flow, direction, &desk->flow);
    sample->length = NC_GET(skb, len);
    sample->packets = path_packets(skb, &desk->packet);
}

/* One sample: the packet that the desk describes went from socket to device, or back. */
static inline void account(void *ctx, struct nc_config *config, struct desk *desk, u64 socket, u64 *device, u64 since_ns, u64 now)
{
    struct latency_sample *sample = &desk->event.sample;
    u64 *device_side = sample->flow.direction == IN ? sample->from : sample->to;
    u64 *socket_side = sample->flow.direction == IN ? sample->to : sample->from;
    int slow;

    sample->mono_ns = now;
    sample->total_ns = path_between(since_ns, now);
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
        nc_submit(ctx, &desk->event, sizeof(desk->event));
}

/* ---- in ---- */

int on_receive(struct bpf_raw_tracepoint_args *ctx)
{
    struct sk_buff *skb = NC_ARG(0);
    struct net_device *dev = NC_GET(skb, dev);
    struct nc_config *config = nc_config_get();
    struct nc_member *member = nc_member_of(dev);
    struct desk *desk = desk_of_cpu(SOFTIRQ_DESK);
    struct path_way *way;
    struct path_print print;
    u64 address;

    if (!config || !member || !desk)
        return 0;
    desk->received = 0;
    path_read(&desk->packet, skb, 0, 0);
    if (desk->packet.broken)
        nc_ledger_add(NC_PARSE_FAILED);
    describe(desk, skb, IN);
    if ((config->flags & NC_F_FLOW && !nc_flow_wanted(config, &desk->flow)) || !nc_netns_wanted(config, dev))
        return 0;
    address = path_address(&desk->address, skb);
    way = path_place(address);
    if (!way)
        return 0;
    desk->received = address;
    path_print_of(&print, &desk->packet, nc_data_end(skb));
    if (way->address == address && way->state == PATH_UNDER_WAY && way->set == TO_SOCKET && path_same(&print, &way->print) &&
        (way->device[0] != member->name[0] || way->device[1] != member->name[1]))
        return 0;       /* it has come to an upper device: a bridge, a bond, a VLAN */
    take_over(way, address);
    way->device[0] = member->name[0];
    way->device[1] = member->name[1];
    way->print = print;
    way->set = TO_SOCKET;
    way->mark = desk->packet.protocol;
    way->since_ns = bpf_ktime_get_ns();
    count(RECEIVED, 1);
    return 0;
}

static inline void deliver(void *ctx, struct desk *desk, struct path_way *way, u64 socket)
{
    struct nc_config *config = nc_config_get();
    u64 now = bpf_ktime_get_ns();

    way->state = PATH_OVER;
    count(DELIVERED, 1);
    if (config)
        account(ctx, config, desk, socket, way->device, way->since_ns, now);
}

/* The way of a packet that came in and is still the same; its headers are on the desk then. */
static inline struct path_way *way_in(struct desk *desk, struct sk_buff *skb)
{
    struct path_way *way = path_find(path_address(&desk->address, skb));
    struct path_print print;

    if (!way || way->set != TO_SOCKET || way->state != PATH_UNDER_WAY)
        return NULL;
    path_read(&desk->packet, skb, 1, 0);
    path_print_of(&print, &desk->packet, nc_data_end(skb));
    if (path_same(&print, &way->print))
        return way;
    count(EXCHANGED, 1);
    return NULL;
}

int on_tcp(struct bpf_raw_tracepoint_args *ctx)
{
    struct sk_buff *skb = NC_ARG(1);
    struct desk *desk = desk_of_cpu(TCP_DESK);
    struct path_way *way = desk ? way_in(desk, skb) : NULL;

    if (!way)
        return 0;
    describe(desk, skb, IN);
    deliver(ctx, desk, way, TCP);
    return 0;
}

/* A datagram is queued by the softirq that has taken it in: it is the one in hand, and described already. Sockets of other protocols,
 * packet sockets among them, are told of it too. */
static inline void datagram(void *ctx, u16 family, u16 protocol)
{
    struct desk *desk = desk_of_cpu(SOFTIRQ_DESK);
    struct path_way *way = desk && desk->received ? path_find(desk->received) : NULL;

    if (!way || way->set != TO_SOCKET || way->state != PATH_UNDER_WAY)
        return;
    if ((family != AF_INET && family != AF_INET6) || protocol == IPPROTO_TCP || protocol != way->mark)
        return;
    desk->received = 0;
    deliver(ctx, desk, way, DATAGRAM);
}

int on_ready(struct bpf_raw_tracepoint_args *ctx)
{
    struct sock *sk = NC_ARG(0);
    datagram(ctx, NC_READ(sk, __sk_common.skc_family), NC_READ(sk, sk_protocol));
    return 0;
}

int on_ready_function(struct pt_regs *ctx, struct sock *sk)
{
    datagram(ctx, NC_READ(sk, __sk_common.skc_family), NC_READ(sk, sk_protocol));
    return 0;
}

/* ---- out ---- */

/* IP has got a packet from a socket: only the time is taken here. TCP's packets bring theirs along. */
static inline void made(struct sock *sk, u64 skb)
{
    struct path_way *way;

    if (!sk || NC_READ(sk, sk_protocol) == IPPROTO_TCP)
        return;
    way = path_place(skb);
    if (!way)
        return;
    take_over(way, skb);
    way->print.network = way->print.transport = 0;
    way->set = TO_DEVICE;
    way->since_ns = bpf_ktime_get_ns();
}

int on_made(struct pt_regs *ctx, struct net *net, struct sock *sk, struct sk_buff *skb)
{
    made(sk, (u64)skb);
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

static inline int is_way_out(struct path_way *way, u64 address, struct path_print *print)
{
    return way->address == address && way->state == PATH_UNDER_WAY && way->set == TO_DEVICE && path_same(print, &way->print);
}

int on_queue(struct bpf_raw_tracepoint_args *ctx)
{
    struct sk_buff *skb = NC_ARG(0);
    struct nc_config *config = nc_config_get();
    struct desk *desk = desk_of_cpu(SOFTIRQ_DESK);
    struct path_way *way;
    struct path_print print;
    u64 address, now;
    int known;

    if (!config || !desk || NC_GET(skb, skb_iif))       /* it was received: not this host's own */
        return 0;
    address = path_address(&desk->address, skb);
    way = path_place(address);
    if (!way)
        return 0;
    path_read(&desk->packet, skb, 1, 1);
    path_print_of(&print, &desk->packet, nc_data_end(skb));
    known = is_way_out(way, address, &print);
    now = bpf_ktime_get_ns();
    if (known && way->moment_ns[FIRST_QUEUE]) {
        way->moment_ns[LAST_QUEUE] = now;
        return 0;
    }
    if (!NC_GET(skb, sk) || !wanted(config, desk, skb))     /* without a socket: ARP, errors, resets of the kernel's own */
        return 0;
    if (!known) {
        take_over(way, address);
        way->set = TO_DEVICE;
        way->since_ns = stamp_of(skb, &desk->packet, now);
    }
    way->print = print;
    way->moment_ns[FIRST_QUEUE] = way->moment_ns[LAST_QUEUE] = now;
    return 0;
}

/* The stages add up to the whole; what TCP's packets were before they were cut in software is not known, but when they were made is. */
static inline u64 split(struct slow_event *event, struct path_way *way, u64 now)
{
    u64 first = way->moment_ns[FIRST_QUEUE], last = way->moment_ns[LAST_QUEUE];

    event->stack_ns = way->since_ns ? path_between(way->since_ns, first) : 0;
    event->devices_ns = path_between(first, last);
    event->qdisc_ns = path_between(last, now);
    if (way->since_ns)
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
    struct desk *desk = desk_of_cpu(SOFTIRQ_DESK);
    u64 now = bpf_ktime_get_ns(), address, total, socket = TCP;
    struct path_way *way;
    struct path_print print;

    if (!config || !member || !desk || NC_GET(skb, skb_iif) || !nc_netns_wanted(config, dev))
        return 0;
    address = path_address(&desk->address, skb);
    way = path_find(address);
    path_read(&desk->packet, skb, 1, 1);
    path_print_of(&print, &desk->packet, nc_data_end(skb));
    if (!wanted(config, desk, skb))
        return 0;
    if (way && is_way_out(way, address, &print)) {
        way->state = PATH_OVER;
        total = split(&desk->event, way, now);
        if (desk->packet.protocol != IPPROTO_TCP)
            socket = way->since_ns ? DATAGRAM : QUEUE;
    } else {
        u64 stamp = stamp_of(skb, &desk->packet, now);
        if (!stamp || (way && way->state == PATH_OVER && path_same(&print, &way->print)))
            return 0;   /* not a socket's, or sent again because the driver was busy */
        desk->event.stack_ns = desk->event.devices_ns = desk->event.qdisc_ns = 0;
        total = now - stamp;
    }
    describe(desk, skb, OUT);
    count(LEFT, 1);
    account(ctx, config, desk, socket, member->name, now - total, now);
    return 0;
}
