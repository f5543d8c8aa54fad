/* socket_drops - what goes wrong at each local socket: full receive buffers, retransmissions, resets.
 *
 * The key has the socket's inode, which tells the members of a SO_REUSEPORT group apart. A reset ends its connection: a row of
 * each would have one count, so the resets of a service share one.
 */

#include "../../common/netconsole.h"
#include "../../common/example.h"
#include "../../common/sockets.h"

enum { UDP_FAILED, QUEUE_FULL, RETRANSMITTED, RESET_RECEIVED, RESET_SENT };     /* counters */

struct socket_key {
    u64 inode;          /* 0: none any more (closing), or none yet (a connection being accepted), or resets */
    u64 owner;          /* the inode again: the collector shows it as the process that holds the socket */
    u64 address[2];
    u64 peer[2];
    u32 netns;
    u16 port;
    u16 peer_port;
    u32 l4;
    char merged[4];     /* whether one of its packets may be several datagrams */
};
struct socket_row {
    u64 buffer_full;
    u64 no_memory;
    u64 retransmits;
    u64 resets_received;
    u64 resets_sent;
    u64 buffer_bytes;
    u64 segments_sent;
    u64 example;        /* see nc_example_due */
};
BPF_TABLE("percpu_hash", struct socket_key, struct socket_row, sockets, NC_ROWS_sockets);
BPF_TABLE("hash", struct socket_key, struct nc_example, examples, NC_ROWS_sockets);

struct socket_event {
    u64 mono_ns;
    struct socket_key key;
    char what[16];
    u32 queued_bytes;
    u32 pad;
};
BPF_PERCPU_ARRAY(records, struct socket_event, 1);

static inline void socket_of(struct socket_key *key, struct sock *sk)
{
    u8 state = NC_GET(sk, __sk_common.skc_state);
    struct net *net = NC_GET(sk, __sk_common.skc_net.net);

    key->netns = NC_GET(net, ns.inum);
    key->port = NC_GET(sk, __sk_common.skc_num);
    key->peer_port = NC_GET(sk, __sk_common.skc_dport);
    key->peer_port = bpf_ntohs(key->peer_port);
    if (NC_GET(sk, __sk_common.skc_family) == AF_INET6) {
#ifdef HAVE_sock_common_skc_v6_daddr
        bpf_probe_read_kernel(key->address, sizeof(key->address), &sk->__sk_common.skc_v6_rcv_saddr);
        bpf_probe_read_kernel(key->peer, sizeof(key->peer), &sk->__sk_common.skc_v6_daddr);
#endif
    } else {
        u32 peer = NC_GET(sk, __sk_common.skc_daddr);
        nc_map_ipv4(key->address, NC_GET(sk, __sk_common.skc_rcv_saddr));
        if (peer)       /* else it is not connected: zeros mean none */
            nc_map_ipv4(key->peer, peer);
    }
    key->l4 = IPPROTO_TCP;
    if (state != TCP_TIME_WAIT && state != TCP_NEW_SYN_RECV) {  /* in these states there is only the common part of a socket */
        key->l4 = NC_READ(sk, sk_protocol);
        key->inode = key->owner = nc_socket_inode(sk);
        if (NC_READ(sk, sk_type) == SOCK_RAW) {
            key->port = 0;      /* skc_num is the protocol of a raw socket (inet_create) */
        } else if (!key->port) {        /* the port was released already (tcp_disconnect): the header of the reset is made from this one */
            key->port = NC_READ((struct inet_sock *)sk, inet_sport);
            key->port = bpf_ntohs(key->port);
        }
    }
}

/* Leaves out what a connection has for itself. A client's port is chosen from the high ones, so the lower one is the service's. */
static inline void service_of(struct socket_key *key)
{
    key->inode = key->owner = 0;
    if (key->port > key->peer_port) {
        key->port = 0;
    } else {
        key->peer[0] = key->peer[1] = 0;
        key->peer_port = 0;
    }
}

static inline int wanted(struct nc_config *config, struct socket_key *key)
{
    if (config->flags & NC_F_NETNS && key->netns != config->netns)
        return 0;
    if (config->flags & NC_F_PROTOCOL && key->l4 != config->protocol)
        return 0;
    if (config->flags & NC_F_PORT && !nc_port_wanted(config, key->port, key->peer_port))
        return 0;
    /* A socket sends and receives: of one direction its peer is the source or the target. */
    if (!nc_ends_wanted(config, key->address, key->peer, key->port, key->peer_port) &&
        !nc_ends_wanted(config, key->peer, key->address, key->peer_port, key->port))
        return 0;
    return !(config->flags & NC_F_ADDRESS) || nc_address_wanted(config, key->address) || nc_address_wanted(config, key->peer);
}

/* Who sent a packet to a socket that is connected to nobody. Nothing changes where the packet does not say it. */
static inline void sender_of(struct socket_key *key, struct sk_buff *skb)
{
    struct nc_flow flow = {};

    if (nc_read_flow(&flow, skb) || nc_read_ports(&flow, skb))
        return;
    key->peer[0] = flow.source[0];
    key->peer[1] = flow.source[1];
    key->peer_port = flow.source_port;
}

static inline void sample(struct bpf_raw_tracepoint_args *ctx, struct nc_config *config, struct sock *sk, struct sk_buff *skb,
                          struct socket_key *key, char *what)
{
    u64 now = bpf_ktime_get_ns();
    struct socket_event *record;
    int zero = 0;

    if (!nc_event_in_budget(config, now))
        return;
    record = records.lookup(&zero);
    if (!record)
        return;
    record->mono_ns = now;
    record->key = *key;
    if (skb && !key->peer_port)
        sender_of(&record->key, skb);
    __builtin_memcpy(record->what, what, sizeof(record->what));
    record->queued_bytes = key->inode ? NC_READ(sk, sk_backlog.rmem_alloc.counter) : 0;
    nc_submit(ctx, record, sizeof(*record));
}

/* Where the tracepoint does not pass the packet (before 6.9): whether the socket takes merged ones of UDP_GRO. */
static inline void note_merged(struct socket_key *key, struct sock *sk)
{
    u32 takes_merged = 0;

#if NARGS_udp_fail_queue_rcv_skb < 3
#if defined(HAVE_udp_sock_udp_flags)            /* from 6.7 */
    takes_merged = NC_READ((struct udp_sock *)sk, udp_flags) >> 3 & 1;  /* UDP_FLAGS_GRO_ENABLED */
#elif defined(HAVE_udp_sock_gro_enabled)        /* a bit-field of the byte that follows this member, and has no name */
    takes_merged = NC_AT(u8, (u8 *)sk + offsetof(struct udp_sock, encap_type) + 1) >> 3 & 1;
#endif
#endif
    if (takes_merged)
        __builtin_memcpy(key->merged, "yes", sizeof(key->merged));
}

/* The packet that found no room. Its socket has cleared its device by now. */
static inline void keep_example(struct sock *sk, struct sk_buff *skb, struct socket_key *key)
{
    struct net *net = NC_READ(sk, __sk_common.skc_net.net);
    struct nc_example example = {};
    struct nc_flow flow = {};

    nc_read_flow(&flow, skb);
    nc_example_of(&example, skb, &flow);
    nc_name_by_index(example.device, net, NC_GET(skb, skb_iif));
    examples.update(key, &example);
}

/* Counts, and returns the row of the socket to add to. NULL: there is nothing to add. ``n`` becomes what is to be added. ``skb``: the packet
 * that is lost, where the tracepoint passes one. */
static inline struct socket_row *row_of(struct bpf_raw_tracepoint_args *ctx, struct nc_config *config, struct sock *sk, struct sk_buff *skb,
                                        u32 counter, u64 *n, char *what)
{
    struct socket_row *row, none = {};
    struct socket_key key = { .merged = "no" };
    u64 buffer_bytes, *counted, weight;
    u32 flags = nc_flags(config), asked = flags;

    weight = nc_row_weight_of(config, flags, counter, *n);
    if (!weight)        /* it is only counted */
        flags = (flags & ~NC_F_DETAILS) | NC_F_COUNTERS;
    if (!(flags & NC_F_COUNTERS) || flags & (NC_F_NETNS | NC_F_FLOW))
        socket_of(&key, sk);
    if (!wanted(config, &key)) {
        nc_unwanted();
        return NULL;
    }
    counted = nc_counters.lookup(&counter);
    if (counted)
        nc_add(counted, *n);
    if (flags & NC_F_DETAILS) {
        if (nc_flow_sampled(config, key.address, key.peer, key.port, key.peer_port))
            sample(ctx, config, sk, skb, &key, what);
    } else if (config->flags & NC_F_DETAILS) {
        nc_ledger_add(NC_BREAKER);
    }
    if (asked & NC_F_COUNTERS)
        nc_ledger_add_many(NC_UNLISTED, *n);
    if (!weight)
        nc_row_weighed_of(config, asked, *n, 0);
    if (flags & NC_F_COUNTERS)
        return NULL;
    if (counter == UDP_FAILED)
        note_merged(&key, sk);
    else if (counter == RESET_RECEIVED || counter == RESET_SENT)
        service_of(&key);
    row = sockets.lookup_or_try_init(&key, &none);
    if (!row) {
        nc_ledger_add_many(NC_MAP_FULL, weight);
        return NULL;
    }
    nc_row_weighed_of(config, asked, *n, weight);
    *n = weight;
    if (skb && nc_example_due(&row->example))
        keep_example(sk, skb, &key);
    buffer_bytes = key.inode ? NC_READ(sk, sk_rcvbuf) : 0;
    if (buffer_bytes > row->buffer_bytes)
        row->buffer_bytes = buffer_bytes;
    return row;
}

/* Each program of this probe writes a counter and members of a row of its own, except buffer_bytes, a maximum that hardly changes. */
static inline struct socket_row *account(struct bpf_raw_tracepoint_args *ctx, struct sock *sk, struct sk_buff *skb, u32 counter, u64 *n,
                                         char *what)
{
    struct nc_config *config = nc_config_get();
    struct socket_row *row;

    if (!config || !sk)
        return NULL;
    row = row_of(ctx, config, sk, skb, counter, n, what);
    nc_leave(config);
    return row;
}

/* How many datagrams the packet is that a socket refuses: GRO, or a sender with UDP_SEGMENT on this host, merged them. Its headers are off. */
static inline u64 datagrams_of(struct bpf_raw_tracepoint_args *ctx)
{
#if NARGS_udp_fail_queue_rcv_skb >= 3
    struct sk_buff *skb = NC_ARG(2);
    u32 end = NC_READ(skb, end), size;
    struct skb_shared_info *shared = (void *)NC_READ(skb, head) + end;
    u64 segments;

    size = NC_READ(shared, gso_size);
    if (!size)
        return 1;
    segments = NC_READ(shared, gso_segs);
    if (!segments)      /* of a guest, which does not count them */
        segments = (NC_READ(skb, len) + size - 1) / size;
    return segments ? segments : 1;
#else
    return 1;
#endif
}

#if NARGS_udp_fail_queue_rcv_skb >= 3   /* from 6.9 */
#define REFUSED_BY_UDP NC_ARG(2)
#else
#define REFUSED_BY_UDP NULL
#endif
int udp_failed(struct bpf_raw_tracepoint_args *ctx)
{
    char what[16] = "udp receive";
    u64 n = datagrams_of(ctx);
    struct socket_row *row = account(ctx, NC_ARG(1), REFUSED_BY_UDP, UDP_FAILED, &n, what);
    if (row && (s32)ctx->args[0] == -ENOMEM)    /* __udp_enqueue_schedule_skb: the buffer is full; otherwise all of UDP is out of memory */
        nc_add(&row->buffer_full, n);
    else if (row)
        nc_add(&row->no_memory, n);
    return 0;
}

int queue_full(struct bpf_raw_tracepoint_args *ctx)
{
    char what[16] = "queue full";
    u64 n = 1;
    struct socket_row *row = account(ctx, NC_ARG(0), NC_ARG(1), QUEUE_FULL, &n, what);
    if (row)
        nc_add(&row->buffer_full, n);
    return 0;
}

/* All that the socket has sent so far. The kernel counts it in 32 bits: what went past them is kept here. */
static inline void note_sent(struct socket_row *row, struct tcp_sock *tp)
{
    u64 sent = (row->segments_sent >> 32 << 32) | NC_READ(tp, segs_out);

    if (sent < row->segments_sent)
        sent += 1ULL << 32;
    row->segments_sent = sent;
}

/* One packet, or many segments at once. It counts what RetransSegs of nstat counts (__tcp_retransmit_skb). */
int retransmitted(struct bpf_raw_tracepoint_args *ctx)
{
    char what[16] = "retransmit";
    struct tcp_skb_cb *packet = NC_ARG(1) + offsetof(struct sk_buff, cb);
    u64 segments = NC_READ(packet, tcp_gso_segs);
    struct socket_row *row;

#if NARGS_tcp_retransmit_skb >= 3       /* from 6.17 it also reports attempts that sent nothing, with an error */
    if ((s32)ctx->args[2])
        return 0;
#endif
    row = account(ctx, NC_ARG(0), NULL, RETRANSMITTED, &segments, what);
    if (row) {
        nc_add(&row->retransmits, segments);
        note_sent(row, NC_ARG(0));
    }
    return 0;
}

int reset_received(struct bpf_raw_tracepoint_args *ctx)
{
    char what[16] = "reset received";
    u64 n = 1;
    struct socket_row *row = account(ctx, NC_ARG(0), NULL, RESET_RECEIVED, &n, what);
    if (row)
        nc_add(&row->resets_received, n);
    return 0;
}

/* A reset without a socket (nobody listens) is not seen here: kernel_drops shows the packet. */
int reset_sent(struct bpf_raw_tracepoint_args *ctx)
{
    char what[16] = "reset sent";
    u64 n = 1;
    struct socket_row *row = account(ctx, NC_ARG(0), NULL, RESET_SENT, &n, what);
    if (row)
        nc_add(&row->resets_sent, n);
    return 0;
}
