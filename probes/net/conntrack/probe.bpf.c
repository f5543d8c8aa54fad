/* conntrack - what connection tracking makes of each packet: nf_conntrack_in (net/netfilter/nf_conntrack_core.c), called by the stack's
 * hooks, by Open vSwitch and by tc.
 *
 * What it found is in the packet when it returns (skb->_nfct). Why it found a packet invalid is said to the kernel's log alone, which is
 * off: but the functions that would log it are called with the text all the same.
 */

#include "../../common/netconsole.h"

enum { PACKETS, REFUSED };      /* counters */

/* Outcomes: those of enum ip_conntrack_info (the lowest bits of _nfct), and what has no number there (names/labels.py). */
enum { UNTRACKED = 7, INVALID, DROPPED, ALREADY };
#define INFO_BITS 7ul
#define IS_TEMPLATE (1ul << 11) /* IPS_TEMPLATE_BIT: made by a rule to say the zone, no connection */

/* A packet in nf_conntrack_in. Its entry stays when it has left, for the next packet at its address: to write into it costs much less than
 * to take a new one (docs/design/overhead.md). */
struct visit {
    u64 began_ns;       /* 0: the packet has left */
    u64 said;           /* address of the text that the kernel would log; 0: none */
    u16 zone;
    u8 before;          /* state of its TCP connection */
    u8 is_tcp;          /* of a connection that there was, or was made */
    u8 has_been;        /* through here, or past it by a rule */
    u8 pad[3];
};
BPF_TABLE("lru_hash", u64, struct visit, visits, 8192);

/* What this CPU has given to nf_conntrack_in last. Where only a kretprobe tells of its return, it has no arguments. An interrupt's packet
 * takes the place of the one that it interrupted: that one is in the ledger (join_missed). */
struct arguments {
    u64 skb;
    u64 state;
};
BPF_PERCPU_ARRAY(given, struct arguments, 1);

struct packet_key {
    u32 netns;
    u32 outcome;
    u16 zone;
    u16 l4;
    u32 pad;
};
BPF_TABLE("percpu_hash", struct packet_key, u64, packets, NC_ROWS_packets);

struct change_key {
    u32 netns;
    u16 zone;
    u8 before;
    u8 after;
};
BPF_TABLE("percpu_hash", struct change_key, u64, changes, NC_ROWS_changes);

#define SAID 48
struct refused_key {
    struct nc_place place;
#define refused_zone place.pad  /* in the four bytes that a place leaves free */
    u32 outcome;
    u32 l4;
    char reason[SAID];
};
BPF_TABLE("percpu_hash", struct refused_key, u64, refused, NC_ROWS_refused);

struct time_key {
    u32 netns;
    u16 zone;
    u16 l4;
    u32 pad;
    u32 slot;
};
BPF_TABLE("percpu_hash", struct time_key, struct nc_bucket, time, NC_ROWS_time);

struct packet_event {
    u64 mono_ns;
    u64 took_ns;
    struct refused_key what;
    struct nc_flow flow;
    u32 cpu;
    u8 before;
    u8 after;
    u8 pad[2];
};
BPF_PERCPU_ARRAY(records, struct packet_event, 1);

static inline struct nf_conn *connection_of(u64 nfct)
{
    return (void *)(nfct & ~INFO_BITS);
}

static inline u16 zone_of(struct nf_conn *ct)
{
#ifdef HAVE_nf_conn_zone
    return ct ? NC_READ(ct, zone.id) : 0;
#else
    return 0;
#endif
}

int began(void *ctx)
{
    struct sk_buff *skb = NC_PARAMETER(0);
    u64 key = (u64)skb, nfct = NC_READ(skb, _nfct);
    struct nf_conn *ct = connection_of(nfct);
    struct visit none = {}, *visit = visits.lookup_or_try_init(&key, &none);
    u32 zero = 0;
    struct arguments *arguments = given.lookup(&zero);

    if (arguments) {
        arguments->skb = key;
        arguments->state = (u64)NC_PARAMETER(1);
    }
    if (!visit)
        return 0;
    visit->said = 0;
    visit->zone = zone_of(ct);
    visit->before = visit->is_tcp = 0;
    visit->has_been = (nfct & INFO_BITS) == UNTRACKED || (ct && !(NC_READ(ct, status) & IS_TEMPLATE));
    visit->began_ns = bpf_ktime_get_ns();
    return 0;
}

/* nf_conntrack_tcp_packet: before the packet changes the state of its connection. */
int judged(void *ctx)
{
    struct nf_conn *ct = NC_PARAMETER(0);
    u64 key = (u64)NC_PARAMETER(1);
    struct visit *visit = visits.lookup(&key);

    if (visit) {
        visit->before = NC_READ(ct, proto.tcp.state);
        visit->is_tcp = 1;
    }
    return 0;
}

/* The text is the format, or what "%s" or "%pV" stand for: a text, or a struct va_format, which begins with a format. */
static inline void say(u64 skb, u64 text, u64 other)
{
    struct visit *visit = visits.lookup(&skb);
    char form[2] = {};

    if (!visit || visit->said)
        return;
    bpf_probe_read_kernel(form, sizeof(form), (void *)text);
    if (form[0] == '%' && form[1] == 's')
        text = other;
    else if (form[0] == '%' && form[1] == 'p')
        bpf_probe_read_kernel(&text, sizeof(text), (void *)other);
    visit->said = text;
}

/* nf_l4proto_log_invalid and nf_ct_l4proto_log_invalid (packet, …, …, format, …) */
int said(void *ctx)
{
    say((u64)NC_PARAMETER(0), (u64)NC_PARAMETER(3), (u64)NC_PARAMETER(4));
    return 0;
}

/* nf_l4proto_log_invalid (packet, …, …, …, format, …) before 5.14 */
int said_earlier(void *ctx)
{
    say((u64)NC_PARAMETER(0), (u64)NC_PARAMETER(4), (u64)NC_PARAMETER(5));
    return 0;
}

/* nf_ct_l4proto_log_invalid (packet, connection, format, …) before 5.14 */
int said_earlier_of_connection(void *ctx)
{
    say((u64)NC_PARAMETER(0), (u64)NC_PARAMETER(2), (u64)NC_PARAMETER(3));
    return 0;
}

static inline u32 outcome_of(struct visit *visit, u64 nfct, u32 verdict)
{
    if ((nfct & INFO_BITS) == UNTRACKED)        /* by a rule, or by conntrack itself: neighbour discovery */
        return UNTRACKED;
    if (visit->has_been)
        return ALREADY;
    if (!connection_of(nfct))
        return verdict ? INVALID : DROPPED;     /* NF_ACCEPT, NF_DROP: an invalid packet is for the rules to drop */
    return nfct & INFO_BITS;
}

/* By which device it came in, or will leave. Open vSwitch and tc do not say that; there it is the packet's. */
static inline void device_of(struct nc_place *place, struct sk_buff *skb, struct nf_hook_state *state)
{
    struct net_device *dev = NC_READ(state, in);

    if (!dev)
        dev = NC_READ(state, out);
    if (!dev)
        dev = NC_READ(skb, dev);
    if (dev)
        bpf_probe_read_kernel(place->device, sizeof(place->device), &dev->name);
}

static inline void reason_of(struct refused_key *key, struct visit *visit)
{
    char full[SAID] = "the table is full, or there is no memory";
    char none[SAID] = "no connection, and not how one begins";
    char unread[SAID] = "the headers cannot be read";

    if (visit->said)
        bpf_probe_read_kernel_str(key->reason, sizeof(key->reason), (void *)visit->said);
    else if (key->outcome == DROPPED)
        __builtin_memcpy(key->reason, full, sizeof(full));
    else if (key->l4 == NC_L4_UNPARSED)
        __builtin_memcpy(key->reason, unread, sizeof(unread));
    else
        __builtin_memcpy(key->reason, none, sizeof(none));
}

static inline void add(u64 *count)
{
    if (count)
        __sync_fetch_and_add(count, 1);
    else
        nc_ledger_add(NC_MAP_FULL);
}

static inline void list(struct packet_event *event, struct visit *visit, u64 took_ns)
{
    struct refused_key *what = &event->what;
    u32 netns = what->place.netns;
    struct packet_key packet = { .netns = netns, .outcome = what->outcome, .zone = visit->zone, .l4 = event->flow.l4 };
    struct change_key change = { .netns = netns, .zone = visit->zone, .before = event->before, .after = event->after };
    struct time_key time_key = { .netns = netns, .zone = visit->zone, .l4 = event->flow.l4, .slot = nc_slot(took_ns) };
    struct nc_bucket empty = {};
    u64 none = 0;

    add(packets.lookup_or_try_init(&packet, &none));
    nc_bucket_add(time.lookup_or_try_init(&time_key, &empty), took_ns);
    if (visit->is_tcp && change.before != change.after)
        add(changes.lookup_or_try_init(&change, &none));
    if (what->outcome == INVALID || what->outcome == DROPPED)
        add(refused.lookup_or_try_init(what, &none));
}

static inline int event_wanted(struct nc_config *config, u32 outcome, u64 took_ns)
{
    if (!(config->flags & NC_F_DETAILS))
        return 0;
    return !(config->flags & NC_F_THRESHOLD) || took_ns > config->threshold_ns || outcome == INVALID || outcome == DROPPED;
}

static inline void account(void *ctx, struct nc_config *config, struct visit *visit, struct packet_event *event, u64 now,
                           struct sk_buff *skb, struct nf_hook_state *state)
{
    u64 nfct = NC_READ(skb, _nfct), took_ns = now - visit->began_ns;
    struct nf_conn *ct = connection_of(nfct);
    struct refused_key *what = &event->what;
    struct net *net = NC_READ(state, net);
    u32 outcome = outcome_of(visit, nfct, NC_RESULT);
    int is_refused = outcome == INVALID || outcome == DROPPED;
    int has_device = is_refused || config->flags & NC_F_DEVICE;     /* of the many that pass, only what their rows need is read */

    __builtin_memset(event, 0, sizeof(*event));
    what->place.netns = NC_READ(net, ns.inum);
    if (has_device)
        device_of(&what->place, skb, state);
    if (!nc_place_wanted(config, &what->place))
        return;
    nc_parse(&event->flow, skb);
    if (config->flags & NC_F_FLOW)
        nc_parse_ports(&event->flow, skb);
    if (!nc_packet_wanted(config, &event->flow, skb))
        return;
    what->outcome = outcome;
    what->l4 = event->flow.l4;
    if (ct)
        visit->zone = zone_of(ct);
    what->refused_zone = visit->zone;
    if (is_refused)
        reason_of(what, visit);
    event->before = event->after = visit->before;
    if (visit->is_tcp && ct)
        event->after = NC_READ(ct, proto.tcp.state);

    nc_count_shared(PACKETS);
    if (is_refused)
        nc_count_shared(REFUSED);
    if (nc_may_list(config))
        list(event, visit, took_ns);
    nc_listed(config);
    if (!event_wanted(config, what->outcome, took_ns) || !nc_event_allowed(config, now))
        return;
    if (!has_device)
        device_of(&what->place, skb, state);
    if (!(config->flags & NC_F_FLOW))
        nc_parse_ports(&event->flow, skb);
    event->mono_ns = now;
    event->took_ns = took_ns;
    event->cpu = bpf_get_smp_processor_id();
    nc_submit(ctx, event, sizeof(*event));
}

static inline void finish(void *ctx, struct sk_buff *skb, struct nf_hook_state *state)
{
    u64 key = (u64)skb, now = bpf_ktime_get_ns();
    struct nc_config *config = nc_config_get();
    struct visit *found = visits.lookup(&key), visit;
    int zero = 0;
    struct packet_event *event = records.lookup(&zero);

    if (!config || !event)
        return;
    if (!found || !found->began_ns) {   /* it was there before the programs */
        nc_ledger_add(NC_JOIN_MISSED);
        return;
    }
    visit = *found;
    found->began_ns = 0;
    account(ctx, config, &visit, event, now, skb, state);
}

int ended(void *ctx)
{
    finish(ctx, NC_PARAMETER(0), NC_PARAMETER(1));
    return 0;
}

int ended_without_arguments(void *ctx)
{
    u32 zero = 0;
    struct arguments *arguments = given.lookup(&zero);
    u64 skb;

    if (!arguments)
        return 0;
    skb = arguments->skb;
    arguments->skb = 0;
    finish(ctx, nc_pointer(skb), nc_pointer(arguments->state));
    return 0;
}
