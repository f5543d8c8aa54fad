/* mirror - a mirror of others' traffic that comes in tunnels, from the device to the workers that read it. It passes every packet. In mode
 * details it sends some up, how they begin.
 *
 * arrived: netif_receive_skb (net/core/dev.c), behind driver, GRO and backlog. queued: sk_data_ready, once for each datagram in the queue of a
 * worker's socket. received: sock_recv_length (net/socket.c, from 6.3), once for each datagram that a worker took. What is lost on the way:
 * udp_fail_queue_rcv_skb, of which the socket is known, and every other packet of the mirror that the kernel frees as dropped (kfree_skb).
 */

#include "../../common/netconsole.h"
#include "../../common/sockets.h"

enum { ARRIVED, ARRIVED_BYTES, LOST_BACKLOG, LOST_STACK, LOST_SOCKET, QUEUED, RECEIVED, MALFORMED, LEFT_PACKETS };     /* counters */

#include "../../common/tally.h"

#define IS_PEEK 2       /* MSG_PEEK */

struct loss_key {
    u64 location;
    struct nc_place place;
#define of_reason place.pad
};
BPF_TABLE("percpu_hash", struct loss_key, u64, losses, NC_ROWS_losses);

struct worker_key {
    u64 inode;
    u64 owner;          /* the inode again: the collector shows it as the process that holds the socket */
    u64 address[2];
    u32 netns;
    u32 l4;
    u32 port;
    u32 pad;
};
struct worker {
    u64 queued;
    u64 lost;
    u64 received;
    u64 buffer_bytes;
};
BPF_TABLE("percpu_hash", struct worker_key, struct worker, workers, NC_ROWS_workers);

struct packet_event {
    u64 mono_ns;
    u64 device[2];
    u64 tunnel;
    u64 source[2];
    u64 target[2];
    u32 netns;
    u32 vni;
    u16 source_port;
    u16 target_port;
    u16 ethertype;
    u16 vlan;
    u16 l4;
    u16 pad;
    u32 cpu;
    u64 length_bytes;
    struct nc_begin begin;
};
BPF_PERCPU_ARRAY(events, struct packet_event, 1);

/* A sample of whole inner flows, within the budget. */
static inline void sample(void *ctx, struct nc_config *config, struct sk_buff *skb, struct nc_flow *inner, struct tunnel *tunnel,
                          struct queue_key *queue, u32 data, u64 now)
{
    struct packet_event *event;
    int zero = 0;

    if (!(config->flags & NC_F_DETAILS) || !nc_flow_sampled(config, inner->source, inner->target, inner->source_port, inner->target_port))
        return;
    event = events.lookup(&zero);
    if (!event || !nc_event_allowed(config, now))
        return;
    event->mono_ns = now;
    event->device[0] = queue->place.device[0];
    event->device[1] = queue->place.device[1];
    event->tunnel = tunnel->kind;
    __builtin_memcpy(event->source, inner->source, sizeof(event->source));
    __builtin_memcpy(event->target, inner->target, sizeof(event->target));
    event->netns = queue->place.netns;
    event->vni = tunnel->vni;
    event->source_port = inner->source_port;
    event->target_port = inner->target_port;
    event->ethertype = inner->ethertype;
    event->vlan = inner->vlan;
    event->l4 = inner->l4;
    event->cpu = queue->cpu;
    event->length_bytes = NC_GET(skb, len);
    event->begin.captured = 0;
    if (nc_knob(config, packets))
        nc_begin_at(&event->begin, skb, data);
    nc_submit(ctx, event, sizeof(*event));
}

#define IN_TUNNEL (SKB_GSO_UDP_TUNNEL | SKB_GSO_UDP_TUNNEL_CSUM | SKB_GSO_GRE | SKB_GSO_GRE_CSUM)

/* How many packets on the wire this one is, which has so many bytes with its link header; `bytes` are as many as those have. Where a sender
 * (UDP_SEGMENT) or GRO has put several packets of the tunnel together, the headers of the first one were read. */
static inline u32 packets_of(struct sk_buff *skb, struct path_packet *packet, struct tunnel *tunnel, struct tunnel_bytes *from, u32 data,
                             u32 *bytes)
{
    u32 length = NC_GET(skb, len), kind, at, header, packets;
    unsigned char *shared;
    u16 size;

    if (length <= PATH_NEVER_CUT && !NC_GET(skb, data_len))
        return 1;
    shared = NC_GET(skb, head) + NC_GET(skb, end);
    size = NC_AT(u16, shared + offsetof(struct skb_shared_info, gso_size));
    if (!size)
        return 1;
    kind = NC_AT(u32, shared + offsetof(struct skb_shared_info, gso_type));
    if (tunnel->payload && kind & SKB_GSO_UDP_L4 && !(kind & IN_TUNNEL)) {
        at = tunnel->payload;
    } else if (tunnel->inner && packet->version) {
        at = packet->at + packet->l4;
        at += packet->protocol == 6 ? (NC_AT(u8, from->head + at + 12) >> 4) * 4 : 8;
    } else {
        return 1;
    }
    header = *bytes - length + at - data;
    if (at >= data + length)
        return 1;
    packets = (data + length - at + size - 1) / size;
    *bytes += (packets - 1) * header;
    if (at == tunnel->payload) {
        tunnel->merged = packets - 1;
        tunnel->first_bytes = header + size;
    }
    return packets;
}

static inline void account(void *ctx, struct nc_config *config, struct sk_buff *skb, struct scratch *scratch)
{
    struct path_packet *packet = &scratch->packet;
    struct path_buffer buffer;
    struct tunnel_bytes of_packet;
    struct tunnel tunnel = {};
    struct tuple_key tuple = {};
    struct queue_key queue = {};
    struct of_cpu *mine;
    u32 packets = 1, bytes, mac;
    int zero = 0;
    u64 now;
    u16 number;

    path_buffer_of(&buffer, skb);
    packet->vlan = 0;
    packet->broken = 0;
    packet->ethertype = buffer.ethertype;
    packet->at = buffer.data;
    of_packet.head = buffer.head;
    of_packet.end = buffer.end;
    of_packet.all = buffer.data + NC_GET(skb, len);
    of_packet.size = NC_GET(skb, data_len) ? NC_GET(skb, end) : 0;
    if (tally_open(&tunnel, &tuple, packet, &of_packet, nc_knob(config, vxlan_port)))
        return;
    nc_place_of(&queue.place, NC_GET(skb, dev));
    if (!nc_place_wanted(config, &queue.place))
        return;
    if (tunnel.inner) {
        path_flow_of(&scratch->inner, packet, skb);
        if (!nc_flow_wanted(config, &scratch->inner))
            return;
    }
    mine = own.lookup(&zero);
    if (!mine)
        return;
    bytes = NC_GET(skb, len);
    mac = NC_GET(skb, mac_header);
    if (mac < buffer.data)
        bytes += buffer.data - mac;
    packets = packets_of(skb, packet, &tunnel, &of_packet, buffer.data, &bytes);
    queue.cpu = bpf_get_smp_processor_id();
    number = NC_GET(skb, queue_mapping);
    queue.of_queue = number ? number - 1 : 0;
    now = bpf_ktime_get_ns();
    tally(mine, scratch, &tunnel, &tuple, &queue, of_packet.end, packets, bytes, now);
    if (tunnel.inner)
        sample(ctx, config, skb, &scratch->inner, &tunnel, &queue, buffer.data, now);
}

int arrived(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct scratch *scratch;
    int zero = 0;

    scratch = scratches.lookup(&zero);
    if (!config || !scratch)
        return 0;
    if (scratch->filling) {
        nc_ledger_add(NC_PARSE_FAILED);
        return 0;
    }
    scratch->filling = 1;
    account(ctx, config, NC_ARG(0), scratch);
    scratch->filling = 0;
    return 0;
}

/* ---- on the way to the workers ---- */

static inline struct worker *worker_of(struct nc_config *config, struct sock *sk)
{
    struct net *net = NC_READ(sk, __sk_common.skc_net.net);
    struct worker_key key = { .l4 = IPPROTO_UDP };
    struct nc_place place = {};
    struct worker none = {}, *worker;

    key.port = NC_READ(sk, __sk_common.skc_num);
    if (key.port != nc_knob(config, vxlan_port) && key.port != TUNNEL_GENEVE)
        return NULL;
    if (NC_READ(sk, sk_protocol) != IPPROTO_UDP)
        return NULL;
    place.netns = key.netns = NC_READ(net, ns.inum);
    if (config->flags & NC_F_NETNS && key.netns != config->netns)
        return NULL;
    key.inode = key.owner = nc_socket_inode(sk);
    if (NC_READ(sk, __sk_common.skc_family) == AF_INET6) {
#ifdef HAVE_sock_common_skc_v6_daddr
        bpf_probe_read_kernel(key.address, sizeof(key.address), &sk->__sk_common.skc_v6_rcv_saddr);
#endif
    } else {
        nc_map_ipv4(key.address, NC_READ(sk, __sk_common.skc_rcv_saddr));
    }
    worker = workers.lookup_or_try_init(&key, &none);
    if (!worker)
        nc_ledger_add(NC_MAP_FULL);
    return worker;
}

static inline void count_queued(struct sock *sk)
{
    struct nc_config *config = nc_config_get();
    struct worker *worker = config ? worker_of(config, sk) : NULL;

    if (!worker)
        return;
    count_many(QUEUED, 1);
    nc_add(&worker->queued, 1);
}

int queued(struct bpf_raw_tracepoint_args *ctx)
{
    count_queued(NC_ARG(0));
    return 0;
}

int queued_function(void *ctx)
{
    count_queued(NC_PARAMETER(0));
    return 0;
}

int received(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct sock *sk = NC_ARG(0);
    struct worker *worker;

    if (!config || (s32)ctx->args[1] < 0 || ctx->args[2] & IS_PEEK)
        return 0;
    worker = worker_of(config, sk);
    if (worker) {
        count_many(RECEIVED, 1);
        nc_add(&worker->received, 1);
    }
    return 0;
}

int failed(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct sock *sk = NC_ARG(1);
    struct worker *worker;
    struct of_cpu *mine;
    int zero = 0;

    worker = config ? worker_of(config, sk) : NULL;
    mine = own.lookup(&zero);
    if (!worker || !mine)
        return 0;
    mine->is_failing = 1;
    count_many(LOST_SOCKET, 1);
    nc_add(&worker->lost, 1);
    worker->buffer_bytes = NC_READ(sk, sk_rcvbuf);
    return 0;
}

static inline u32 drop_reason(struct bpf_raw_tracepoint_args *ctx)
{
#if NARGS_kfree_skb >= 3
    return ctx->args[2];
#else
    return 0;
#endif
}

int dropped(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct sk_buff *skb = NC_ARG(0);
    struct net_device *dev = NC_GET(skb, dev);
    struct nc_flow outer = {};
    struct loss_key key = {};
    u32 reason = drop_reason(ctx), slot = LOST_STACK;
    struct of_cpu *mine;
    u64 none = 0, *count;
    int zero = 0;

    mine = own.lookup(&zero);
    if (!config || !mine)
        return 0;
    if (mine->is_failing) {
        mine->is_failing = 0;
        return 0;
    }
#ifdef HAVE_SKB_CONSUMED
    if (reason == SKB_CONSUMED)
        return 0;
#endif
#ifdef HAVE_SKB_DROP_REASON_CPU_BACKLOG
    if (reason == SKB_DROP_REASON_CPU_BACKLOG)
        slot = LOST_BACKLOG;
#endif
    if (!NC_GET(skb, skb_iif) && slot != LOST_BACKLOG)
        return 0;       /* it never came in */
    nc_read_flow(&outer, skb);
    if (outer.l4 != 17 && outer.l4 != 47)
        return 0;
    nc_read_ports(&outer, skb);
    if (outer.l4 == 17 && outer.target_port != nc_knob(config, vxlan_port) && outer.target_port != TUNNEL_GENEVE)
        return 0;
    if (dev && NC_GET(NC_GET(dev, _tx), dev) == dev)    /* a socket has put something else there */
        nc_place_of(&key.place, dev);
    if (!nc_place_wanted(config, &key.place))
        return 0;
    count_many(slot, 1);
    key.location = ctx->args[1];
    key.of_reason = reason;
    count = losses.lookup_or_try_init(&key, &none);
    if (count)
        nc_add(count, 1);
    else
        nc_ledger_add(NC_MAP_FULL);
    return 0;
}
