/* reuseport_skew - how evenly the sockets that share a port get what is sent to it: sk_data_ready (net/core/sock.c), at each datagram
 * that is in a socket's queue, and at each connection that a listener may accept.
 *
 * The kernel chooses the socket by a hash of the flow (net/core/sock_reuseport.c). So of few flows, most sockets get none.
 */

#include "../../common/netconsole.h"
#include "../../common/sockets.h"

enum { RECEIVED };              /* counters */

#define ENOUGH 1024             /* so many at one socket by one CPU: then the others have had their chance */
#define MOST_SOCKETS 256        /* of a group: so many are looked at */

struct member_key {
    u64 inode;
    u64 owner;          /* the inode again: the collector shows it as the process that holds the socket */
    u64 address[2];
    u32 netns;
    u32 l4;
    u32 port;
    u32 pad;
};
struct member_row {
    u64 received;
    u64 flows;
};
BPF_TABLE("percpu_hash", struct member_key, struct member_row, members, NC_ROWS_members);

struct group_key {
    u64 address[2];
    u32 netns;
    u32 l4;
    u32 port;
    u32 pad;
};
struct group_row {
    u64 flows;
    u64 workers;        /* gauges: sockets of the group now, those that got something, and those that got nothing although others got much */
    u64 busy;
    u64 idle;
    u64 moved;          /* how often a socket of it has taken the place of one that was closed */
};
BPF_TABLE("hash", struct group_key, struct group_row, groups, NC_ROWS_groups);

/* Which flows there were: those that came last. */
struct seen_key {
    u64 source[2];
    u64 inode;
    u32 netns;
    u16 source_port;
    u16 pad;
};
BPF_TABLE("lru_hash", struct seen_key, u32, seen, 16384);

static inline void member_of(struct member_key *member, struct sock *sk)
{
    struct net *net = NC_READ(sk, __sk_common.skc_net.net);

    member->inode = member->owner = nc_socket_inode(sk);
    member->netns = NC_READ(net, ns.inum);
    member->l4 = NC_READ(sk, sk_protocol);
    member->port = NC_READ(sk, __sk_common.skc_num);
    if (NC_READ(sk, __sk_common.skc_family) == AF_INET6) {
#ifdef HAVE_sock_common_skc_v6_daddr
        bpf_probe_read_kernel(member->address, sizeof(member->address), &sk->__sk_common.skc_v6_rcv_saddr);
#endif
    } else {
        nc_map_ipv4(member->address, NC_READ(sk, __sk_common.skc_rcv_saddr));
    }
}

static inline int wanted(struct nc_config *config, struct member_key *member)
{
    struct nc_place place = { .netns = member->netns };
    struct nc_flow flow = { .l4 = member->l4, .target_port = member->port };

    __builtin_memcpy(flow.target, member->address, sizeof(flow.target));
    return nc_place_wanted(config, &place) && nc_flow_wanted(config, &flow);
}

static inline struct group_row *group_of(struct member_key *member, struct sock_reuseport *shared)
{
    struct group_key key = { .netns = member->netns, .l4 = member->l4, .port = member->port };
    struct group_row none = {}, *group;

    __builtin_memcpy(key.address, member->address, sizeof(key.address));
    group = groups.lookup_or_try_init(&key, &none);
    if (!group)
        nc_ledger_add(NC_MAP_FULL);
    return group;
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
/* Where each socket was in its group, by inode. When one is closed the last of the group takes its place (__reuseport_detach_sock), and a new one
 * becomes the last: what came to the one comes to the other. */
BPF_TABLE("lru_hash", u64, u32, places, NC_ROWS_members);

/* Counts the sockets that the group has now: one that was closed is not among them, and one that took its place begins anew. */
static inline void look_at_sockets(struct group_row *group, struct member_key *member, struct sock_reuseport *shared, struct sock *mine, int is_enough)
{
    struct member_key key = *member;
    u64 inode = member->inode;
    struct sock *sk = NULL;
    u32 i, busy = 0, at = 0, workers = NC_READ(shared, num_socks), *place;

    for (i = 0; i < MOST_SOCKETS; i++) {
        if (i >= workers)
            break;
        bpf_probe_read_kernel(&sk, sizeof(sk), &shared->socks[i]);
        key.inode = key.owner = nc_socket_inode(sk);
        if (key.inode && members.lookup(&key))
            busy++;
        if (sk == mine)
            at = i;
    }
    group->workers = workers;
    group->busy = busy;
    if (is_enough && workers <= MOST_SOCKETS)
        group->idle = workers - busy;
    place = places.lookup(&inode);
    if (!place)
        places.update(&inode, &at);
    else if (*(volatile u32 *)place != at) {
        *place = at;
        __sync_fetch_and_add(&group->moved, 1);
    }
}
#endif

/* The flow of the datagram that came last to this socket. Of two CPUs that put one there at once, both may see the same: then the other
 * flow is seen at its next datagram. */
static inline int is_new_flow(struct sock *sk, struct member_key *member)
{
    struct seen_key key = { .inode = member->inode, .netns = member->netns };
    struct sk_buff *skb = NC_GET(sk, sk_receive_queue.prev);
    struct nc_flow flow = {};
    u32 one = 1;

    if (member->l4 == IPPROTO_TCP || !NC_READ(sk, sk_receive_queue.qlen))
        return 0;
    nc_parse(&flow, skb);
    nc_parse_ports(&flow, skb);
    __builtin_memcpy(key.source, flow.source, sizeof(key.source));
    key.source_port = flow.source_port;
    return seen.insert(&key, &one) == 0;
}

static inline void account(struct nc_config *config, struct sock *sk)
{
    struct sock_reuseport *shared = NC_READ(sk, sk_reuseport_cb);
    struct member_key member = {};
    struct member_row none = {}, *row;
    struct group_row *group = NULL;
    int is_first, is_new;

    if (!shared)
        return;
    member_of(&member, sk);
    if (!wanted(config, &member))
        return;
    nc_count_shared(RECEIVED);
    is_first = members.insert(&member, &none) == 0;
    row = members.lookup(&member);
    if (!row) {
        nc_ledger_add(NC_MAP_FULL);
        return;
    }
    nc_add(&row->received, 1);
    is_new = is_new_flow(sk, &member);
    if (is_new)
        nc_add(&row->flows, 1);
    if (!is_first && !is_new && row->received % ENOUGH)
        return;
    group = group_of(&member, shared);
    if (!group)
        return;
    if (is_new)
        __sync_fetch_and_add(&group->flows, 1);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
    if (is_first || row->received % ENOUGH == 0)
        look_at_sockets(group, &member, shared, sk, row->received >= ENOUGH);
#else   /* their verifiers (5.10, 6.1) do not come to the end of that loop */
    group->workers = NC_READ(shared, num_socks);
    if (is_first)
        __sync_fetch_and_add(&group->busy, 1);
    if (row->received >= ENOUGH)
        group->idle = group->workers > group->busy ? group->workers - group->busy : 0;
#endif
}

int ready(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();

    if (config)
        account(config, NC_ARG(0));
    return 0;
}

int ready_function(void *ctx)
{
    struct nc_config *config = nc_config_get();

    if (config)
        account(config, NC_PARAMETER(0));
    return 0;
}
