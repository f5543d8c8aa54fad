/* ip_fragments - what became of datagrams that came in fragments, and what was missing of those that were never put together:
 * inet_frag_destroy (net/ipv4/inet_fragment.c), the end of each queue of fragments, IPv4 and IPv6, of the stack, conntrack and others.
 */

#include "../../common/netconsole.h"

enum { WHOLE, FAILED };         /* counters */

#define FIRST_IN 1              /* INET_FRAG_FIRST_IN, INET_FRAG_LAST_IN (include/net/inet_frag.h) */
#define LAST_IN 2
#define L4_FRAGMENT 44          /* of IPv6 the queue does not know what the fragments carry (RFC 8200) */

#define NO_FIRST NC_WORD('f', 'i', 'r', 's', 't', 0, 0, 0)
#define NO_LAST NC_WORD('l', 'a', 's', 't', 0, 0, 0, 0)
#define NO_MIDDLE NC_WORD('m', 'i', 'd', 'd', 'l', 'e', 0, 0)
#define NO_ENDS NC_WORD('e', 'n', 'd', 's', 0, 0, 0, 0)
#define TIMEOUT NC_WORD('t', 'i', 'm', 'e', 'o', 'u', 't', 0)
#define WRONG NC_WORD('w', 'r', 'o', 'n', 'g', 0, 0, 0)
#define GONE NC_WORD('n', 'e', 't', 'n', 's', 0, 0, 0)
#define BY_HOST NC_WORD('h', 'o', 's', 't', 0, 0, 0, 0)
#define BY_CONNTRACK NC_WORD('c', 'o', 'n', 'n', 't', 'r', 'a', 'c')
#define BY_OTHERS NC_WORD('o', 't', 'h', 'e', 'r', 0, 0, 0)

struct failed_key {
    u64 source[2];
    u64 target[2];
    u64 missing;
    u64 how;
    u64 by;
    u32 netns;
    u32 l4;
};
struct failed_row {
    u64 count;
    u64 received_bytes;
    u64 missing_bytes;
};
BPF_TABLE("percpu_hash", struct failed_key, struct failed_row, failed, NC_ROWS_failed);

struct failed_event {
    u64 mono_ns;
    struct failed_key key;
    u32 id;
    u32 received_bytes;
    u32 length_bytes;
    u32 cpu;
};
BPF_PERCPU_ARRAY(records, struct failed_event, 1);

static inline void flow_of(struct failed_event *event, struct inet_frag_queue *queue, struct net *net, struct fqdir *fqdir)
{
    struct failed_key *key = &event->key;
    u32 user;

    if (fqdir == NC_READ(net, ipv4.fqdir)) {
        nc_map_ipv4(key->source, NC_READ(queue, key.v4.saddr));
        nc_map_ipv4(key->target, NC_READ(queue, key.v4.daddr));
        key->l4 = NC_READ(queue, key.v4.protocol);
        event->id = bpf_ntohs(NC_READ(queue, key.v4.id));
        user = NC_READ(queue, key.v4.user);
        key->by = user == IP_DEFRAG_LOCAL_DELIVER ? BY_HOST :
            user >= IP_DEFRAG_CONNTRACK_IN && user <= __IP_DEFRAG_CONNTRACK_BRIDGE_IN ? BY_CONNTRACK : BY_OTHERS;
    } else {
        bpf_probe_read_kernel(key->source, sizeof(key->source), &queue->key.v6.saddr);
        bpf_probe_read_kernel(key->target, sizeof(key->target), &queue->key.v6.daddr);
        key->l4 = L4_FRAGMENT;
        event->id = bpf_ntohl(NC_READ(queue, key.v6.id));
        key->by = NC_READ(queue, key.v6.user) ? BY_CONNTRACK : BY_HOST;
    }
}

/* Every other end is that of a queue that the kernel gave up because of a fragment that overlaps others, or whose length is wrong. */
static inline u64 how_of(struct inet_frag_queue *queue, struct fqdir *fqdir)
{
    if (NC_READ(fqdir, dead))
        return GONE;
    return (s64)(bpf_jiffies64() - NC_READ(queue, timer.expires)) >= 0 ? TIMEOUT : WRONG;
}

static inline u64 missing_of(u8 flags)
{
    if (!(flags & (FIRST_IN | LAST_IN)))
        return NO_ENDS;
    return !(flags & FIRST_IN) ? NO_FIRST : !(flags & LAST_IN) ? NO_LAST : NO_MIDDLE;
}

static inline int wanted(struct nc_config *config, struct failed_key *key)
{
    struct nc_place place = { .netns = key->netns };
    struct nc_flow flow = { .l4 = key->l4 };

    __builtin_memcpy(flow.source, key->source, sizeof(flow.source));
    __builtin_memcpy(flow.target, key->target, sizeof(flow.target));
    return nc_place_wanted(config, &place) && nc_flow_wanted(config, &flow);
}

static inline void list(struct failed_event *event)
{
    struct failed_row none = {}, *row = failed.lookup_or_try_init(&event->key, &none);

    if (!row) {
        nc_ledger_add(NC_MAP_FULL);
        return;
    }
    __sync_fetch_and_add(&row->count, 1);
    __sync_fetch_and_add(&row->received_bytes, event->received_bytes);
    if (event->length_bytes > event->received_bytes)
        __sync_fetch_and_add(&row->missing_bytes, event->length_bytes - event->received_bytes);
}

static inline void sample(void *ctx, struct nc_config *config, struct failed_event *event)
{
    u64 now = bpf_ktime_get_ns();

    if (!(config->flags & NC_F_DETAILS) || !nc_flow_sampled(config, event->key.source, event->key.target, 0, 0))
        return;
    if (!nc_event_allowed(config, now))
        return;
    event->mono_ns = now;
    event->cpu = bpf_get_smp_processor_id();
    nc_submit(ctx, event, sizeof(*event));
}

int ended(void *ctx)
{
    struct inet_frag_queue *queue = NC_PARAMETER(0);
    struct nc_config *config = nc_config_get();
    struct fqdir *fqdir = NC_READ(queue, fqdir);
    struct net *net = NC_READ(fqdir, net);
    u8 flags = NC_READ(queue, flags);
    int zero = 0;
    struct failed_event *event = records.lookup(&zero);

    if (!config || !event)
        return 0;
    __builtin_memset(event, 0, sizeof(*event));
    event->received_bytes = NC_READ(queue, meat);
    event->length_bytes = NC_READ(queue, len);
    event->key.netns = NC_READ(net, ns.inum);
    event->key.how = how_of(queue, fqdir);
    if (!event->received_bytes && event->key.how != TIMEOUT)
        return 0;       /* another CPU had made one for the same datagram: nothing was in this one */
    flow_of(event, queue, net, fqdir);
    if (!wanted(config, &event->key))
        return 0;
    if (flags & FIRST_IN && flags & LAST_IN && event->received_bytes == event->length_bytes) {
        nc_count_shared(WHOLE);
        return 0;
    }
    event->key.missing = missing_of(flags);
    nc_count_shared(FAILED);
    if (nc_may_list(config))
        list(event);
    nc_listed(config);
    sample(ctx, config, event);
    return 0;
}
