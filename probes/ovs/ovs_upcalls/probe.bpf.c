/* ovs_upcalls - what Open vSwitch's kernel datapath asks user space, how long the answer takes, and what is never answered.
 *
 *   ovs_dp_upcall                    the datapath has no flow for a packet (miss), or its flow says so (action)
 *   queue_userspace_packet           a copy goes to the socket of a handler; a large packet (GSO) goes in segments
 *   ovs_flow_key_extract_userspace   user space gives the packet back (OVS_PACKET_CMD_EXECUTE)
 *   ovs_nla_get_identifier           or puts a flow
 *   ovs_nla_copy_actions             with these actions; a flow without any drops, and the packet does not come back
 *
 * The first two run with softirqs off, the others in a thread of ovs-vswitchd. The packet is known again by its flow and headers (ovs.h).
 * Counters, tables and waiting packets are in ovs_upcalls.h, the handlers in ovs_handlers.h, what is never answered in ovs_unanswered.h.
 */

#include "../../common/netconsole.h"
#include "../../common/ovs.h"
#include "shared.h"
#include "handlers.h"
#include "unanswered.h"

/* ---- the upcall ---- */

#define KNOWN_PORTS_SHIFT 4     /* of 16 */
#define KNOWN_TICKS_SHIFT 6     /* 0.06 to 0.6 s: a port may be renamed, or another made at the same addresses */

struct known_port {
    u64 vport, datapath, dev, ticks;
    struct port_key port;
};
BPF_PERCPU_ARRAY(known_ports, struct known_port, 1 << KNOWN_PORTS_SHIFT);

/* The names of the port by which a packet came in and of its datapath, which are spread over half a dozen structures, from memory where
 * they were read a moment ago. */
static inline void name_port(struct port_key *port, struct sk_buff *skb, struct datapath *dp)
{
    struct net_device *dev;
    struct vport *vport = ovs_input_port(skb, dp, &dev);
    u32 slot = (u64)vport * NC_GOLDEN >> (64 - KNOWN_PORTS_SHIFT);
    struct known_port *known = known_ports.lookup(&slot);
    u64 ticks = ovs_tick() >> KNOWN_TICKS_SHIFT;

    if (!known)
        return;
    if (known->vport != (u64)vport || known->datapath != (u64)dp || known->dev != (u64)dev || known->ticks != ticks) {
        __builtin_memset(known, 0, sizeof(*known));
        known->vport = (u64)vport;
        known->datapath = (u64)dp;
        known->dev = (u64)dev;
        known->ticks = ticks;
        if (dev)
            nc_place_of(&known->port.port, dev);
        ovs_datapath_name(known->port.datapath, dp);
    }
    *port = known->port;
}

static inline void count_flow(struct desk *desk)
{
    struct nc_place *port = &desk->packet.port.port;
    struct flow_key key = { .port = { port->device[0], port->device[1] }, .netns = port->netns };
    u64 none = 0, *count;

    ovs_table_flow_of(&key.flow, &desk->flow);
    count = flows.lookup_or_try_init(&key, &none);
    if (count)
        __sync_fetch_and_add(count, 1);
    else
        nc_ledger_add(NC_MAP_FULL);
}

static inline void list(struct desk *desk)
{
    struct port_row *row = row_of(&desk->packet.port);
    struct cpu_row *cpu = cpu_row_of(&desk->packet.port);

    if (row)
        nc_add(&row->upcalls, 1);
    if (cpu)
        nc_add(&cpu->upcalls, 1);
    count_flow(desk);
}

static inline int asked(struct datapath *dp, struct sk_buff *skb, struct sw_flow_key *key, struct dp_upcall_info *info)
{
    struct nc_config *config = nc_config_get();
    struct desk *desk = desk_of(UPCALL_DESK);
    struct port_key *port;
    struct ovs_flow *flow;
    u32 flags;

    if (!config || !desk)
        return 0;
    flags = config->flags;
    if (desk->skb)              /* the end of the last one was missed */
        nc_ledger_add(NC_JOIN_MISSED);
    desk->skb = desk->queued = 0;
    port = &desk->packet.port;
    flow = &desk->packet.packet.flow;
    if (!(flags & NC_F_COUNTERS) || flags & NC_F_PLACE)
        name_port(port, skb, dp);
    if (!nc_place_wanted(config, &port->port))
        return 0;
    if (!(flags & NC_F_COUNTERS) || flags & NC_F_FLOW) {
        ovs_flow_of(flow, &desk->key, key);
        ovs_plain_flow(&desk->flow, flow);
    }
    if (!nc_flow_wanted(config, &desk->flow))
        return 0;
    nc_count(UPCALLS);
    if (flags & NC_F_COUNTERS) {        /* the programs that follow it are not attached */
        nc_ledger_add(NC_UNLISTED);
        return 0;
    }
    if (flow->l4 == NC_L4_UNPARSED)
        nc_ledger_add(NC_PARSE_FAILED);
    port->kind = NC_READ(info, cmd) == OVS_PACKET_CMD_MISS ? MISS : ACTION;
    desk->skb = (u64)skb;
    desk->packet.cpu = bpf_get_smp_processor_id();
    desk->packet.since_ns = bpf_ktime_get_ns();
    if (nc_may_list(config))
        list(desk);
    nc_listed(config);
    return 0;
}

int asked_raw(struct bpf_raw_tracepoint_args *ctx)
{
    return asked(NC_ARG(0), NC_ARG(1), NC_ARG(2), NC_ARG(3));
}

int asked_probe(struct pt_regs *ctx, struct datapath *dp, struct sk_buff *skb, struct sw_flow_key *key, struct dp_upcall_info *info)
{
    return asked(dp, skb, key, info);
}

/* ---- its packets: in the map before they go, for the answer may come before this ends ---- */

int queued(struct pt_regs *ctx, struct datapath *dp, struct sk_buff *skb, struct sw_flow_key *key, struct dp_upcall_info *info)
{
    struct nc_config *config = nc_config_get();
    struct desk *desk = desk_of(UPCALL_DESK);
    struct waiting_key *place;
    struct waiting *twin;

    if (!config || !desk || !desk->skb)
        return 0;
    desk->queued++;
    ovs_packet_of(&desk->packet.packet, skb);
    place = &desk->last;
    place->print = ovs_packet_print(&desk->packet.packet);
#pragma unroll
    for (u32 i = 0; i < TWINS; i++) {
        place->twin = i;
        if (!waiting.insert(place, &desk->packet)) {
            remember(config, place, desk->packet.since_ns);
            return 0;
        }
        twin = waiting.lookup(place);
        if (twin)
            twin->has_twins = 1;
    }
    place->print = 0;
    nc_ledger_add(NC_JOIN_MISSED);
    return 0;
}

/* Of a large packet's segments the last one may be refused: no more are handed over then. */
static inline void count_packets(struct desk *desk, struct port_row *row, int error)
{
    u32 slot = PACKETS;
    u64 *counter = nc_counters.lookup(&slot), packets = desk->queued;

    if (error && packets) {
        packets--;
        waiting.delete(&desk->last);
    }
    if (counter)
        nc_add(counter, packets);
    if (row)
        nc_add(&row->packets, packets);
}

int ended(struct pt_regs *ctx)
{
    struct desk *desk = desk_of(UPCALL_DESK);
    struct failure_key key = {};
    struct port_row *row;
    struct cpu_row *cpu;
    u64 *count, none = 0;
    int error = PT_REGS_RC(ctx);

    if (!desk || !desk->skb)
        return 0;
    desk->skb = 0;
    row = row_of(&desk->packet.port);
    count_packets(desk, row, error);
    if (!error) {
        if (!desk->queued)      /* its hand-over was missed */
            nc_ledger_add(NC_JOIN_MISSED);
        return 0;
    }
    nc_count(FAILED);
    if (row)
        nc_add(&row->failed, 1);
    cpu = cpu_row_of(&desk->packet.port);
    if (cpu)
        nc_add(&cpu->failed, 1);
    __builtin_memcpy(key.datapath, desk->packet.port.datapath, sizeof(key.datapath));
    __builtin_memcpy(key.port, desk->packet.port.port.device, sizeof(key.port));
    key.netns = desk->packet.port.port.netns;
    key.error = error;
    key.kind = desk->packet.port.kind;
    count = failures.lookup_or_try_init(&key, &none);
    if (count)
        nc_add(count, 1);
    else
        nc_ledger_add(NC_MAP_FULL);
    return 0;
}

/* ---- the answer: ovs-vswitchd gives a packet back, or puts a flow. In both cases the datapath reads first the key and then the actions. ---- */

struct request {        /* by the thread that makes it */
    u64 key;            /* address; 0: its actions have been read */
    u64 skb;            /* 0: it is a flow */
    u64 whole;          /* address of the flow's key as it was before it was masked */
    u64 print;          /* of that, where it is masked in place; else 0: few flows drop */
    u64 resumed_ns;     /* as it was: its end may not be seen in mode counters */
};
BPF_TABLE("lru_hash", u32, struct request, requests, 4096);

static inline void requested(u64 key, u64 skb, u64 whole, u64 print)
{
    u32 tid = bpf_get_current_pid_tgid();
    struct request none = {}, *request = requests.lookup_or_try_init(&tid, &none);

    if (!request)
        return;
    if (request->key && request->skb && request->resumed_ns == resumed_ns())
        nc_count(REFUSED);      /* the one before never came to its actions */
    request->key = key;
    request->skb = skb;
    request->whole = whole;
    request->print = print;
    request->resumed_ns = resumed_ns();
}

int given_back(struct pt_regs *ctx, struct net *net, struct nlattr *attributes, struct sk_buff *skb, struct sw_flow_key *key)
{
    requested((u64)key, (u64)skb, 0, 0);
    return 0;
}

static inline u64 print_of(u64 key)
{
    struct desk *desk = desk_of(ANSWER_DESK);

    if (!desk)
        return 0;
    ovs_flow_of(&desk->packet.packet.flow, &desk->key, nc_pointer(key));
    return ovs_flow_print(&desk->packet.packet.flow);
}

/* In ovs_flow_cmd_new, of all functions with the whole key the one that nothing else calls. The actions are read with the flow's own key,
 * which is masked by then; older kernels mask the whole key itself. */
int put(struct pt_regs *ctx, struct sw_flow_id *id, struct nlattr *ufid, struct sw_flow_key *whole)
{
    u64 own = (u64)id - offsetof(struct sw_flow, id) + offsetof(struct sw_flow, key);

    requested(own, 0, (u64)whole, own == (u64)whole ? print_of(own) : 0);
    return 0;
}

/* What is known of it beside the headers that are on the desk already, and the same. */
static inline void recall(struct desk *desk, struct waiting *found)
{
    desk->packet.port = found->port;
    desk->packet.since_ns = found->since_ns;
    desk->packet.cpu = found->cpu;
}

/* Takes the packet of this fingerprint out of the map of waiting ones, of several the first that was followed; 0 when this has been done. */
static inline int take(struct desk *desk, struct waiting_key *key)
{
    struct waiting *found = waiting.lookup(key);
    u64 since_ns = ~0ull, resumed = resumed_ns();
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
    recall(desk, found);
    return waiting.delete(key);
}

static inline int take_overdue(struct desk *desk, struct waiting_key *key)
{
    struct waiting *found;

#pragma unroll
    for (u32 i = 0; i < TWINS; i++) {
        key->twin = i;
        found = overdue.lookup(key);
        if (found) {
            recall(desk, found);
            return overdue.delete(key);
        }
    }
    return -1;
}

static inline void sample(void *ctx, struct nc_config *config, struct desk *desk, u64 now, u64 latency_ns)
{
    struct upcall_event *event = &desk->event;

    if (config->flags & NC_F_THRESHOLD && latency_ns <= config->threshold_ns)
        return;
    if (!nc_event_allowed(config, now))
        return;
    event->mono_ns = now;
    event->port = desk->packet.port;
    ovs_plain_flow(&event->flow, &desk->packet.packet.flow);
    event->length = desk->packet.packet.length;
    event->latency_ns = latency_ns;
    event->cpu = desk->packet.cpu;
    event->handler = bpf_get_current_pid_tgid() >> 32;
    nc_submit(ctx, event, sizeof(*event));
}

/* A packet that nobody is known to have asked about: with a filter it may be one that was not wanted. */
static inline void unexpected(struct nc_config *config, u64 now)
{
    u64 resumed = resumed_ns();

    if (config->flags & (NC_F_PLACE | NC_F_FLOW))
        return;
    if (resumed && between(resumed, now) < limit_ns(config))    /* asked in mode counters */
        nc_ledger_add(NC_JOIN_MISSED);
    else
        nc_count(UNASKED);
}

static inline void answered(void *ctx, u64 flow_key, u64 skb)
{
    struct nc_config *config = nc_config_get();
    struct desk *desk = desk_of(ANSWER_DESK);
    struct waiting_key key = {};
    u64 now = bpf_ktime_get_ns(), latency_ns;
    struct port_row *row;
    int late = 0;

    if (!config || !desk || config->flags & NC_F_COUNTERS)      /* that mode ends or begins just now */
        return;
    ovs_flow_of(&desk->packet.packet.flow, &desk->key, nc_pointer(flow_key));
    ovs_packet_of(&desk->packet.packet, nc_pointer(skb));
    key.print = ovs_packet_print(&desk->packet.packet);
    if (take(desk, &key)) {
        if (take_overdue(desk, &key)) {
            unexpected(config, now);
            return;
        }
        late = 1;
    }
    latency_ns = between(desk->packet.since_ns, now);
    row = row_of(&desk->packet.port);
    nc_count(late ? LATE : ANSWERED);
    if (row && late)
        nc_add(&row->late, 1);
    else if (row)
        nc_add(&row->answered, 1);
    add_latency(&desk->packet.port, latency_ns);
    if (config->flags & NC_F_DETAILS)
        sample(ctx, config, desk, now, latency_ns);
    count_answer();
}

int acted(struct pt_regs *ctx, struct net *net, struct nlattr *actions, struct sw_flow_key *key)
{
    u32 tid = bpf_get_current_pid_tgid();
    struct request *request = requests.lookup(&tid);
    u64 print, now;

    if (!request || request->key != (u64)key)
        return 0;
    request->key = 0;
    if (request->skb) {
        answered(ctx, (u64)key, request->skb);
    } else if (NC_READ(actions, nla_len) <= sizeof(struct nlattr)) {
        print = request->print ? request->print : print_of(request->whole);
        now = bpf_ktime_get_ns();
        drop_flows.update(&print, &now);
    }
    return 0;
}

/* ---- what is not answered in time ---- */

#define SWEEPS 8        /* of one ring, and each time another */

struct turn {
    u64 tick;
    u32 ring;
    u32 pad;
};
BPF_PERCPU_ARRAY(turns, struct turn, 1);

/* On every switch of tasks, for those come even when nothing else does. Only the first one of a tick looks for what is overdue. */
int switched(struct bpf_raw_tracepoint_args *ctx)
{
    u32 zero = 0;
    struct turn *turn = turns.lookup(&zero);
    u64 tick = ovs_tick(), now;
    struct nc_config *config;
    struct ring *ring;

    if (!turn || turn->tick == tick)
        return 0;
    turn->tick = tick;
    config = nc_config_get();
    if (!config)
        return 0;
    turn->ring = turn->ring + 1 < NC_CPUS ? turn->ring + 1 : 0;
    ring = rings.lookup(&turn->ring);
    if (!ring)
        return 0;
    now = bpf_ktime_get_ns();
#pragma unroll
    for (int i = 0; i < SWEEPS; i++)
        if (ring->swept == ring->written || !sweep(config, ring, turn->ring, now, 0))
            return 0;
    return 0;
}
