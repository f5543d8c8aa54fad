/* conntrack - what connection tracking makes of each packet: nf_conntrack_in (net/netfilter/nf_conntrack_core.c), called by the stack's
 * hooks, by Open vSwitch and by tc.
 *
 * What it found is in the packet when it returns (skb->_nfct). Why it found a packet invalid is said to the kernel's log alone, which is
 * off: but the functions that would log it are called with the text all the same.
 *
 * In a storm most packets are only counted: each CPU lists LISTED_MOST at once, then LISTED_PER_TICKS in eight ticks (visits.h). What was
 * refused always has its row. Why it was refused is in reasons.h, what all parts share in shared.h.
 */

#include "../../common/netconsole.h"
#include "shared.h"
#include "visits.h"
#include "reasons.h"

enum { PACKETS, REFUSED };      /* counters */

#define NC_F_FILTERS (NC_F_PLACE | NC_F_FLOW | NC_F_ENDS)

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
