/* conntrack - what connection tracking makes of each packet: nf_conntrack_in (net/netfilter/nf_conntrack_core.c), called by the stack's
 * hooks, by Open vSwitch and by tc.
 *
 * What it found is in the packet when it returns (skb->_nfct). Why it found a packet invalid is said to the kernel's log alone, which is
 * off: but the functions that would log it are called with the text all the same.
 *
 * In a storm most packets are only counted: each CPU lists LISTED_MOST at once, then LISTED_PER_TICKS in eight ticks. What was refused
 * always has its row.
 */

#include "../../common/netconsole.h"
#include "../../common/allowance.h"
#include "../../common/resumed.h"

enum { PACKETS, REFUSED };      /* counters */

/* Outcomes: those of enum ip_conntrack_info (the lowest bits of _nfct), and what has no number there (names/labels.py). */
enum { NEW = 2, UNTRACKED = 7, INVALID, DROPPED, ALREADY };
#define INFO_BITS 7ul

#define NC_F_FILTERS (NC_F_PLACE | NC_F_FLOW | NC_F_ENDS)

/* A packet in nf_conntrack_in. */
struct visit {
    u64 skb;            /* 0: it has left */
    u64 nfct;           /* what it had when it came */
    u64 began_ns;       /* 0: it is counted, and not listed */
    u64 ticks;          /* when it came, in those of the nest */
    u64 said;           /* address of the text that the kernel would log; 0: none */
    u16 zone;           /* that a rule gave it */
    u8 before;          /* state of its TCP connection */
    u8 is_tcp;          /* of a connection that there was, or was made */
    u8 pad[4];
};

/* The packets that came on one CPU: that of a task, and that of the softirq which interrupts it; others only if their end was not seen, or
 * if the kernel preempts its own code. An array for each CPU is found by the kernel's inlined code, a hash by a call. */
#define VISITS 4
#define LISTED_PER_TICKS 64
#define LISTED_MOST 256
struct nest {
    struct nc_allowance lists;      /* packets that may still be listed */
    u64 evicted;        /* so many visits have lost their place */
    u64 resumed_ns;     /* the programs were attached again then: no visit is from before */
    /* The last packet that came. Where only a kretprobe tells of its return, it has no arguments. A packet that came amid another one
     * takes its place here: that other one is in the ledger (join_missed). */
    u64 skb;
    u64 state;
    struct visit visits[VISITS];
};
BPF_ARRAY(nests, struct nest, NC_CPUS);

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

static inline struct nest *nest_here(void)
{
    u32 cpu = bpf_get_smp_processor_id();
    return nests.lookup(&cpu);
}

static inline struct visit *visit_in(struct nest *nest, u64 skb)
{
#pragma unroll
    for (u32 i = 0; i < VISITS; i++)
        if (nest->visits[i].skb == skb)
            return &nest->visits[i];
    return NULL;
}

/* A task that the kernel has preempted amid nf_conntrack_in may go on on another CPU. What came long ago, or before the programs were
 * attached again, is another packet at the same address, whose end was not seen. */
#define AWAY_TICKS 32           /* 1 s at 250 Hz */
static inline struct visit *visit_of(struct nest *nest, u64 skb)
{
    struct visit *visit = visit_in(nest, skb);

#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 3, 0)       /* before, there are no loops */
    for (u32 cpu = 0; cpu < NC_CPUS && !visit; cpu++) {
        u32 key = cpu;          /* in memory the verifier does not see that it grows */

        nest = nests.lookup(&key);
        visit = nest ? visit_in(nest, skb) : NULL;
    }
#endif
    if (!visit || !nest || nest->resumed_ns != nc_resumed_ns() || nc_grant_ticks() - visit->ticks > AWAY_TICKS)
        return NULL;
    return visit;
}

static inline struct visit *place_for(struct nest *nest, u64 skb)
{
    struct visit *visit = &nest->visits[0];

    if (!visit->skb)
        return visit;
    visit = visit_in(nest, skb);        /* of a packet whose end was not seen */
    if (!visit)
        visit = visit_in(nest, 0);
    return visit ? visit : &nest->visits[nest->evicted++ % VISITS];
}

/* May one more packet of this CPU be listed? The programs rest for longer than eight ticks last. */
static inline int may_list(struct nest *nest)
{
    if (nc_allowance_earn(&nest->lists, LISTED_PER_TICKS, LISTED_MOST) && nest->resumed_ns != nc_resumed_ns()) {
        nest->resumed_ns = nc_resumed_ns();
#pragma unroll
        for (u32 i = 0; i < VISITS; i++)
            nest->visits[i].skb = 0;
    }
    return nest->lists.left != 0;
}

/* Does only the end of a packet tell whether it is wanted? Then it is timed in any case. */
static inline int end_decides(struct nc_config *config)
{
    return config->flags & (NC_F_FILTERS | NC_F_THRESHOLD);
}

static inline void begin(u64 skb, u64 state, u64 nfct)
{
    struct nc_config *config = nc_config_get();
    struct nest *nest = nest_here();
    struct visit *visit;
    int is_timed;

    if (!config || !nest)
        return;
    is_timed = may_list(nest) || end_decides(config);
    visit = place_for(nest, skb);
    visit->skb = skb;
    visit->nfct = nfct;
    visit->began_ns = is_timed ? bpf_ktime_get_ns() : 0;
    visit->ticks = nest->lists.ticks;
    visit->said = 0;
    visit->zone = (nfct & INFO_BITS) == NEW ? zone_of(connection_of(nfct)) : 0;
    visit->before = visit->is_tcp = 0;
    nest->skb = skb;
    nest->state = state;
}

int began(void *ctx)
{
    begin((u64)NC_PARAMETER(0), (u64)NC_PARAMETER(1), NC_MEMBER_OF(0, sk_buff, _nfct));
    return 0;
}

int began_by_kprobe(void *ctx)
{
    struct sk_buff *skb = NC_PARAMETER(0);

    begin((u64)skb, (u64)NC_PARAMETER(1), NC_READ(skb, _nfct));
    return 0;
}

/* nf_conntrack_tcp_packet: before the packet changes the state of its connection. */
int judged(void *ctx)
{
    struct nf_conn *ct = NC_PARAMETER(0);
    struct nest *nest = nest_here();
    struct visit *visit = nest && nc_config_get() ? visit_of(nest, (u64)NC_PARAMETER(1)) : NULL;

    if (visit && visit->began_ns) {
        visit->before = NC_READ(ct, proto.tcp.state);
        visit->is_tcp = 1;
    }
    return 0;
}

/* The text is the format, or what "%s" or "%pV" stand for: a text, or a struct va_format, which begins with a format. */
static inline void say(u64 skb, u64 text, u64 other)
{
    struct nest *nest = nest_here();
    struct visit *visit = nest ? visit_of(nest, skb) : NULL;
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

/* An invalid packet is for the rules to drop. */
static inline int is_refused(u64 nfct)
{
    return !connection_of(nfct) && (nfct & INFO_BITS) != UNTRACKED;
}

static inline u32 outcome_of(struct visit *visit, u64 nfct, u32 verdict)
{
    if (is_refused(nfct))
        return verdict ? INVALID : DROPPED;     /* NF_ACCEPT, NF_DROP */
    if ((nfct & INFO_BITS) == UNTRACKED)        /* by a rule, or by conntrack itself: neighbour discovery */
        return UNTRACKED;
    /* It has been through here, or past it by a rule. A connection that a rule made to say the zone is taken from the packet. */
    return nfct == visit->nfct ? ALREADY : nfct & INFO_BITS;
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
}

/* A packet that passes the filters. What was refused has its row in any case, unless the time for details is used up. */
static inline void account(struct nc_config *config, struct nest *nest, struct visit *visit, struct packet_event *event, u64 took_ns,
                           int was_refused)
{
    u64 none = 0;

    nc_count_shared(PACKETS);
    if (was_refused)
        nc_count_shared(REFUSED);
    if (!visit->began_ns || !may_list(nest)) {
        nc_ledger_add(NC_UNLISTED);
        if (was_refused)
            add(refused.lookup_or_try_init(&event->what, &none));
        return;
    }
    nc_allowance_use(&nest->lists);
    if (nc_may_list(config)) {
        list(event, visit, took_ns);
        if (was_refused)
            add(refused.lookup_or_try_init(&event->what, &none));
    }
    nc_listed(config);
}

static inline int event_wanted(struct nc_config *config, u64 took_ns, int was_refused)
{
    if (!(config->flags & NC_F_DETAILS))
        return 0;
    return !(config->flags & NC_F_THRESHOLD) || took_ns > config->threshold_ns || was_refused;
}

static inline void look_at(void *ctx, struct nc_config *config, struct nest *nest, struct visit *visit, struct packet_event *event,
                           u64 now, struct sk_buff *skb, struct nf_hook_state *state, u64 nfct)
{
    u64 took_ns = now - visit->began_ns;
    struct nf_conn *ct = connection_of(nfct);
    struct refused_key *what = &event->what;
    struct net *net = NC_READ(state, net);
    int was_refused = is_refused(nfct);
    int has_device = was_refused || config->flags & NC_F_DEVICE;    /* of the many that pass, only what their rows need is read */

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
    what->outcome = outcome_of(visit, nfct, NC_RESULT);
    what->l4 = event->flow.l4;
    if (ct)
        visit->zone = zone_of(ct);
    what->refused_zone = visit->zone;
    if (was_refused)
        reason_of(what, visit);
    event->before = event->after = visit->before;
    if (visit->is_tcp && ct)
        event->after = NC_READ(ct, proto.tcp.state);

    account(config, nest, visit, event, took_ns, was_refused);
    if (!event_wanted(config, took_ns, was_refused))
        return;
    if (!visit->began_ns) {
        nc_ledger_add(NC_BREAKER);
        return;
    }
    if (!nc_event_allowed(config, now))
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

/* In a storm: all that has to be done for most packets. */
static inline void only_count(struct nc_config *config)
{
    nc_count_shared(PACKETS);
    nc_ledger_add(NC_UNLISTED);
    if (config->flags & NC_F_DETAILS)
        nc_ledger_add(NC_BREAKER);
}

static inline void finish(void *ctx, struct nest *nest, struct sk_buff *skb, struct nf_hook_state *state, u64 nfct)
{
    struct nc_config *config = nc_config_get();
    struct visit *found, visit;
    struct packet_event *event;
    u64 now = 0;
    int zero = 0;

    if (!config)
        return;
    found = visit_in(nest, (u64)skb);
    if (found && !found->began_ns && !(config->flags & NC_F_FILTERS) && !is_refused(nfct)) {
        found->skb = 0;
        only_count(config);
        return;
    }
    found = skb ? visit_of(nest, (u64)skb) : NULL;
    event = records.lookup(&zero);
    if (!found || !event) {
        /* It was there before the programs. If nothing has come here since they were attached again, it was not to be seen. */
        if (nest->resumed_ns == nc_resumed_ns())
            nc_ledger_add(NC_JOIN_MISSED);
        return;
    }
    if (found->began_ns)
        now = bpf_ktime_get_ns();
    visit = *found;
    found->skb = 0;
    look_at(ctx, config, nest, &visit, event, now, skb, state, nfct);
}

int ended(void *ctx)
{
    struct nest *nest = nest_here();

    if (nest)
        finish(ctx, nest, NC_PARAMETER(0), NC_PARAMETER(1), NC_MEMBER_OF(0, sk_buff, _nfct));
    return 0;
}

/* Of no packet nothing is read: it is not one that is only counted. */
int ended_without_arguments(void *ctx)
{
    struct nest *nest = nest_here();
    struct sk_buff *skb;

    if (!nest)
        return 0;
    skb = nc_pointer(nest->skb);
    nest->skb = 0;
    finish(ctx, nest, skb, nc_pointer(nest->state), skb ? NC_READ(skb, _nfct) : 0);
    return 0;
}
