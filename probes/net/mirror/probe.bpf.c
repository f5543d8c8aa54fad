/* mirror - a mirror of others' traffic that comes in tunnels, from the device to the workers that read it. It passes every packet and sends
 * none up.
 *
 * arrived: netif_receive_skb (net/core/dev.c), behind driver, GRO and backlog. queued: sk_data_ready, once for each datagram in the queue of a
 * worker's socket. received: sock_recv_length (net/socket.c, from 6.3), once for each datagram that a worker took. What is lost on the way:
 * udp_fail_queue_rcv_skb, of which the socket is known, and every other packet of the mirror that the kernel frees as dropped (kfree_skb).
 */

#include "../../common/netconsole.h"
#include "../../common/sockets.h"
#include "tunnel.h"

enum { ARRIVED, ARRIVED_BYTES, LOST_BACKLOG, LOST_STACK, LOST_SOCKET, QUEUED, RECEIVED, MALFORMED };    /* counters */

#define RETRY_SHIFT 27  /* ns: for so long a CPU looks for no place in a full table, where each look costs a sum over all CPUs */
#define IS_PEEK 2       /* MSG_PEEK */
#define LATE 4096       /* a packet that comes so much too late was taken for lost; one of a lower number is of a sender that begins anew */
#define GAP 1048576     /* more were not lost at once: it begins anew, too */

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 1, 0)
#define BY_NEED BPF_F_NO_PREALLOC   /* memory for the rows that there are; before, programs on tracepoints must not allocate */
#else
#define BY_NEED 0
#endif

struct row {
    u64 packets;
    u64 bytes;
    u64 first_ns;
    u64 last_ns;
};

struct flow_key {
    u64 device[2];
    u64 source[2];
    u64 target[2];
    u64 tunnel;
    u32 netns;
    u32 vni;
    u16 source_port;
    u16 target_port;
    u16 ethertype;
    u16 vlan;
    u32 l4;
    u32 pad;
};
BPF_F_TABLE("hash", struct flow_key, struct row, flows, NC_ROWS_flows, BY_NEED);

struct tuple_key {
    u64 device[2];
    u64 source[2];
    u64 target[2];
    u64 tunnel;
    u32 netns;
    u16 source_port;
    u16 target_port;
};
BPF_F_TABLE("hash", struct tuple_key, struct row, tuples, NC_ROWS_tuples, BY_NEED);

struct sum {
    u64 packets;
    u64 bytes;
};

struct vni_key {
    u64 device[2];
    u64 tunnel;
    u32 netns;
    u32 vni;
};
BPF_TABLE("percpu_hash", struct vni_key, struct sum, vnis, NC_ROWS_vnis);

struct queue_key {
    struct nc_place place;
#define of_queue place.pad
    u32 cpu;
    u32 pad;
};
BPF_TABLE("percpu_hash", struct queue_key, struct sum, queues, NC_ROWS_queues);

struct malformed_key {
    u64 wrong[2];
    u64 tunnel;
    u64 source[2];
    u32 netns;
    u32 pad;
};
BPF_TABLE("percpu_hash", struct malformed_key, u64, malformed, NC_ROWS_malformed);

/* Tunnels whose packets have numbers (GRE, ERSPAN): what never came here was lost before this host. */
struct number_key {
    u64 source[2];
    u64 target[2];
    u64 tunnel;
    u32 netns;
    u32 vni;
};
struct numbers {
    u64 packets;
    u64 lost;
    u64 late;
    u64 restarts;
    u64 next;
};
BPF_TABLE("hash", struct number_key, struct numbers, numbered, NC_ROWS_numbered);

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

struct of_cpu {
    u64 retry_ns[2];    /* until then no place is looked for in `flows`, `tuples` */
    u64 is_failing;     /* the packet that is freed next was counted as lost at its socket */
};
BPF_PERCPU_ARRAY(own, struct of_cpu, 1);

/* What `arrived` works with. */
struct scratch {
    u64 filling;        /* an interrupt must not fill it too, before 6.1 */
    struct path_packet packet;
    struct nc_flow inner;
    struct flow_key flow;
};
BPF_PERCPU_ARRAY(scratches, struct scratch, 1);

static inline void count_many(u32 slot, u64 n)
{
    u64 *counter = nc_counters.lookup(&slot);

    if (counter)
        __sync_fetch_and_add(counter, n);
}

static inline void add(struct row *row, u32 packets, u32 bytes, u64 now)
{
    __sync_fetch_and_add(&row->packets, packets);
    __sync_fetch_and_add(&row->bytes, bytes);
    row->last_ns = now;
}

/* Whether a place in a full table is looked for. */
static inline void note_full(u64 *retry_ns, int code, u64 now)
{
    if (code == -7)     /* E2BIG */
        *retry_ns = now + (1ull << RETRY_SHIFT);
}

static inline void add_flow(struct of_cpu *mine, struct flow_key *key, u32 packets, u32 bytes, u64 now)
{
    struct row *row = flows.lookup(key), fresh = { .first_ns = now };

    if (!row && now >= mine->retry_ns[0]) {
        note_full(&mine->retry_ns[0], flows.insert(key, &fresh), now);
        row = flows.lookup(key);
    }
    if (row)
        add(row, packets, bytes, now);
    else
        nc_ledger_add_many(NC_MAP_FULL, packets);
}

static inline void add_tuple(struct of_cpu *mine, struct tuple_key *key, u32 packets, u32 bytes, u64 now)
{
    struct row *row = tuples.lookup(key), fresh = { .first_ns = now };

    if (!row && now >= mine->retry_ns[1]) {
        note_full(&mine->retry_ns[1], tuples.insert(key, &fresh), now);
        row = tuples.lookup(key);
    }
    if (row)
        add(row, packets, bytes, now);
    else
        nc_ledger_add_many(NC_MAP_FULL, packets);
}

static inline void add_sum(struct sum *sum, u32 packets, u32 bytes)
{
    if (sum) {
        nc_add(&sum->packets, packets);
        nc_add(&sum->bytes, bytes);
    } else {
        nc_ledger_add_many(NC_MAP_FULL, packets);
    }
}

static inline void outer_source(u64 *source, struct path_packet *packet)
{
    if (packet->version == 4)
        nc_map_ipv4(source, path_u32(packet, 12));
    else
        __builtin_memcpy(source, &packet->bytes[1], 16);
}

static inline void outer_target(u64 *target, struct path_packet *packet)
{
    if (packet->version == 4)
        nc_map_ipv4(target, path_u32(packet, 16));
    else
        __builtin_memcpy(target, &packet->bytes[3], 16);
}

static inline void count_malformed(struct tunnel *tunnel, struct tuple_key *tuple, u32 packets)
{
    struct malformed_key key = { .tunnel = tunnel->kind, .netns = tuple->netns };
    u64 none = 0, *count;

    count_many(MALFORMED, packets);
    key.wrong[0] = tunnel->wrong[0];
    key.wrong[1] = tunnel->wrong[1];
    key.source[0] = tuple->source[0];
    key.source[1] = tuple->source[1];
    count = malformed.lookup_or_try_init(&key, &none);
    if (count)
        nc_add(count, packets);
    else
        nc_ledger_add_many(NC_MAP_FULL, packets);
}

static inline void count_missing(struct tunnel *tunnel, struct tuple_key *tuple)
{
    struct number_key key = { .tunnel = tunnel->kind, .netns = tuple->netns, .vni = tunnel->vni };
    struct numbers first = { .next = tunnel->number }, *known;
    s32 ahead;

    __builtin_memcpy(key.source, tuple->source, sizeof(key.source));
    __builtin_memcpy(key.target, tuple->target, sizeof(key.target));
    known = numbered.lookup_or_try_init(&key, &first);
    if (!known) {
        nc_ledger_add(NC_MAP_FULL);
        return;
    }
    __sync_fetch_and_add(&known->packets, 1);
    ahead = tunnel->number - (u32)known->next;
    if (ahead < 0 && ahead >= -LATE) {
        __sync_fetch_and_add(&known->late, 1);
        if (known->lost)
            __sync_fetch_and_add(&known->lost, -1);
        return;
    }
    if (ahead < 0 || ahead > GAP)
        __sync_fetch_and_add(&known->restarts, 1);
    else if (ahead)
        __sync_fetch_and_add(&known->lost, ahead);
    known->next = (u32)(tunnel->number + 1);
}

static inline void account(struct nc_config *config, struct sk_buff *skb, struct scratch *scratch)
{
    struct path_packet *packet = &scratch->packet;
    struct flow_key *key = &scratch->flow;
    struct path_buffer buffer;
    struct tunnel tunnel = {};
    struct tuple_key tuple = {};
    struct nc_place place = {};
    struct sum none = {};
    struct of_cpu *mine;
    u32 all, packets = 1, bytes, mac;
    int zero = 0;
    u64 now;

    path_buffer_of(&buffer, skb);
    packet->vlan = 0;
    packet->broken = 0;
    packet->ethertype = buffer.ethertype;
    packet->at = buffer.data;
    if (path_skip_tags(packet, buffer.head, buffer.end, 1) || path_read_layer(packet, buffer.head, buffer.end))
        return;
    if (packet->protocol != 17 && packet->protocol != 47)
        return;
    all = buffer.data + NC_GET(skb, len);
    outer_source(tuple.source, packet);
    outer_target(tuple.target, packet);
    tunnel_open(&tunnel, packet, buffer.head, buffer.end, all, nc_knob(config, vxlan_port));
    if (!tunnel.kind)
        return;
    nc_place_of(&place, NC_GET(skb, dev));
    if (!nc_place_wanted(config, &place))
        return;
    if (tunnel.inner) {
        path_flow_of(&scratch->inner, packet, skb);
        if (!nc_flow_wanted(config, &scratch->inner))
            return;
        packets = path_packets(skb, packet);
    }
    mine = own.lookup(&zero);
    if (!mine)
        return;
    tuple.device[0] = place.device[0];
    tuple.device[1] = place.device[1];
    tuple.netns = place.netns;
    tuple.tunnel = tunnel.kind;
    tuple.source_port = tunnel.source_port;
    tuple.target_port = tunnel.target_port;
    bytes = NC_GET(skb, len);
    mac = NC_GET(skb, mac_header);
    if (mac < buffer.data)
        bytes += buffer.data - mac;
    now = bpf_ktime_get_ns();
    count_many(ARRIVED, packets);
    count_many(ARRIVED_BYTES, bytes);
    add_tuple(mine, &tuple, packets, bytes, now);
    if (tunnel.numbered)
        count_missing(&tunnel, &tuple);
    if (tunnel.unread)
        nc_ledger_add_many(NC_PARSE_FAILED, packets);
    if (tunnel.wrong[0])
        count_malformed(&tunnel, &tuple, packets);
    if (tunnel.inner) {
        struct vni_key network = { .tunnel = tunnel.kind, .netns = place.netns, .vni = tunnel.vni };

        network.device[0] = place.device[0];
        network.device[1] = place.device[1];
        add_sum(vnis.lookup_or_try_init(&network, &none), packets, bytes);
        key->device[0] = place.device[0];
        key->device[1] = place.device[1];
        __builtin_memcpy(key->source, scratch->inner.source, sizeof(key->source));
        __builtin_memcpy(key->target, scratch->inner.target, sizeof(key->target));
        key->tunnel = tunnel.kind;
        key->netns = place.netns;
        key->vni = tunnel.vni;
        key->source_port = scratch->inner.source_port;
        key->target_port = scratch->inner.target_port;
        key->ethertype = scratch->inner.ethertype;
        key->vlan = scratch->inner.vlan;
        key->l4 = scratch->inner.l4;
        add_flow(mine, key, packets, bytes, now);
    }
    {
        struct queue_key key = { .cpu = bpf_get_smp_processor_id(), .place = place };
        u16 queue = NC_GET(skb, queue_mapping);

        key.of_queue = queue ? queue - 1 : 0;
        add_sum(queues.lookup_or_try_init(&key, &none), packets, bytes);
    }
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
    account(config, NC_ARG(0), scratch);
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
