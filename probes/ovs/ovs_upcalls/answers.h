/* answers.h - the programs that see an answer: ovs-vswitchd sends a packet back, or puts a flow. The datapath reads first the key and then
 * the actions.
 */
#ifndef OVS_UPCALLS_ANSWERS_H
#define OVS_UPCALLS_ANSWERS_H

#include "shared.h"
#include "handlers.h"
#include "unanswered.h"

struct request {        /* by the thread that makes it */
    u64 key;            /* address; 0: its actions were read */
    u64 skb;            /* 0: the request puts a flow */
    u64 whole;          /* address of the flow's key before it was masked */
    u64 fingerprint;          /* of that key, where it is masked in place; 0: to be computed if the flow drops, as few do */
    u64 resumed_ns;     /* at its begin: in mode counters its end may be missed */
};
BPF_TABLE("lru_hash", u32, struct request, requests, 4096);

static inline void requested(u64 key, u64 skb, u64 whole, u64 fingerprint)
{
    u32 tid = bpf_get_current_pid_tgid();
    struct request none = {}, *request = requests.lookup_or_try_init(&tid, &none);

    if (!request)
        return;
    if (request->key && request->skb && request->resumed_ns == nc_resumed_ns())
        nc_count(REFUSED);      /* the request before failed before its actions were read */
    request->key = key;
    request->skb = skb;
    request->whole = whole;
    request->fingerprint = fingerprint;
    request->resumed_ns = nc_resumed_ns();
}

int given_back(void *ctx)
{
    struct sk_buff *skb = NC_PARAMETER(2);
    struct sw_flow_key *key = NC_PARAMETER(3);

    requested((u64)key, (u64)skb, 0, 0);
    return 0;
}

static inline u64 flow_fingerprint_at(u64 key, u32 which)
{
    struct scratch *scratch = scratch_of(which);

    if (!scratch)
        return 0;
    ovs_flow_of(&scratch->packet.packet.flow, &scratch->key, nc_pointer(key));
    return ovs_flow_fingerprint(&scratch->packet.packet.flow);
}

/* ovs_nla_get_identifier: of all functions that get the unmasked key, only this one is called by ovs_flow_cmd_new alone. The actions are
 * read with the flow's own key, which is masked by then. Older kernels mask the whole key in place. */
int put(void *ctx)
{
    struct sw_flow_id *id = NC_PARAMETER(0);
    struct sw_flow_key *whole = NC_PARAMETER(2);
    u64 own = (u64)id - offsetof(struct sw_flow, id) + offsetof(struct sw_flow, key);

    requested(own, 0, (u64)whole, own == (u64)whole ? flow_fingerprint_at(own, PUT_SCRATCH) : 0);
    return 0;
}

/* Copies what is known of the packet, besides the headers, which are in scratch already and the same. */
static inline void copy_waiting(struct scratch *scratch, struct waiting *found)
{
    scratch->packet.port = found->port;
    scratch->packet.since_ns = found->since_ns;
    scratch->packet.cpu = found->cpu;
}

/* Takes the packet with this fingerprint out of the map; of twins the oldest one. Returns 0 when it was there. */
static inline int take(struct scratch *scratch, struct waiting_key *key)
{
    struct waiting *found = waiting.lookup(key);
    u64 since_ns = ~0ull, resumed = nc_resumed_ns();
    u32 first = 0;

    if (!found || found->has_twins) {
#pragma unroll
        for (u32 i = 0; i < TWINS; i++) {
            key->twin = i;
            found = waiting.lookup(key);
            if (found && found->since_ns >= resumed && found->since_ns < since_ns) {
                since_ns = found->since_ns;
                first = i;
            }
        }
        key->twin = first;
        found = waiting.lookup(key);
    }
    if (!found || found->since_ns < resumed)
        return -1;
    copy_waiting(scratch, found);
    return waiting.delete(key);
}

static inline int take_overdue(struct scratch *scratch, struct waiting_key *key)
{
    struct waiting *found;

#pragma unroll
    for (u32 i = 0; i < TWINS; i++) {
        key->twin = i;
        found = overdue.lookup(key);
        if (found) {
            copy_waiting(scratch, found);
            return overdue.delete(key);
        }
    }
    return -1;
}

static inline void sample(void *ctx, struct nc_config *config, struct scratch *scratch, u64 now, u64 latency_ns)
{
    struct upcall_event *event = &scratch->event;

    if (config->flags & NC_F_THRESHOLD && latency_ns <= config->threshold_ns)
        return;
    if (!nc_event_allowed(config, now))
        return;
    event->mono_ns = now;
    event->port = scratch->packet.port;
    ovs_plain_flow(&event->flow, &scratch->packet.packet.flow);
    event->length = scratch->packet.packet.length;
    event->latency_ns = latency_ns;
    event->cpu = scratch->packet.cpu;
    event->handler = bpf_get_current_pid_tgid() >> 32;
    nc_submit(ctx, event, sizeof(*event));
}

/* User space sends a packet for which no upcall is known. With a filter set, its upcall may not have passed it. */
static inline void unexpected(struct nc_config *config, u64 now)
{
    u64 resumed = nc_resumed_ns();

    if (config->flags & (NC_F_PLACE | NC_F_FLOW))
        return;
    if (resumed && elapsed(resumed, now) < limit_ns(config))    /* its upcall was in mode counters */
        nc_ledger_add(NC_JOIN_MISSED);
    else
        nc_count(UNASKED);
}

static inline void answered(void *ctx, u64 flow_key, u64 skb)
{
    struct nc_config *config = nc_config_get();
    struct scratch *scratch = scratch_of(ANSWER_SCRATCH);
    struct waiting_key key = {};
    u64 now = bpf_ktime_get_ns(), latency_ns;
    struct port_row *row;
    int late = 0;

    if (!config || !scratch || config->flags & NC_F_COUNTERS)      /* the mode changes at this moment */
        return;
    ovs_flow_of(&scratch->packet.packet.flow, &scratch->key, nc_pointer(flow_key));
    ovs_packet_of(&scratch->packet.packet, nc_pointer(skb));
    key.fingerprint = ovs_packet_fingerprint(&scratch->packet.packet);
    if (take(scratch, &key)) {
        if (take_overdue(scratch, &key)) {
            unexpected(config, now);
            return;
        }
        late = 1;
    }
    latency_ns = elapsed(scratch->packet.since_ns, now);
    row = row_of(&scratch->packet.port);
    nc_count(late ? LATE : ANSWERED);
    if (row && late)
        nc_add(&row->late, 1);
    else if (row)
        nc_add(&row->answered, 1);
    add_latency(&scratch->packet.port, latency_ns);
    if (config->flags & NC_F_DETAILS)
        sample(ctx, config, scratch, now, latency_ns);
    count_answer();
}

/* The same where the program runs at the function's return and has its arguments (fexit): the key was read, or refused. */
int given_back_at_once(void *ctx)
{
    struct sk_buff *skb = NC_PARAMETER(2);
    struct sw_flow_key *key = NC_PARAMETER(3);

    if ((int)NC_RESULT)
        nc_count(REFUSED);
    else
        answered(ctx, (u64)key, (u64)skb);
    return 0;
}

int acted(void *ctx)
{
    struct nlattr *actions = NC_PARAMETER(1);
    struct sw_flow_key *key = NC_PARAMETER(2);
    u32 tid = bpf_get_current_pid_tgid();
    struct request *request = requests.lookup(&tid);
    u64 fingerprint, now;

    if (!request || request->key != (u64)key)
        return 0;
    request->key = 0;
    if (request->skb) {
        answered(ctx, (u64)key, request->skb);
    } else if (NC_READ(actions, nla_len) <= sizeof(struct nlattr)) {
        fingerprint = request->fingerprint ? request->fingerprint : flow_fingerprint_at(request->whole, DROP_SCRATCH);
        now = bpf_ktime_get_ns();
        drop_flows.update(&fingerprint, &now);
    }
    return 0;
}

#endif /* OVS_UPCALLS_ANSWERS_H */
