/* ovs_upcalls - upcalls of Open vSwitch's kernel datapath to user space: how long the answer takes, and which are never answered.
 *
 *   ovs_dp_upcall                    an upcall: no flow matches the packet (miss), or an action of its flow asks for it (action)
 *   queue_userspace_packet           a copy is queued to the socket of a handler; a large packet (GSO) goes in segments
 *   ovs_flow_key_extract_userspace   user space sends the packet back (OVS_PACKET_CMD_EXECUTE)
 *   ovs_nla_get_identifier           or it puts a flow
 *   ovs_nla_copy_actions             the actions of either; a flow without actions drops, and the packet does not come back
 *
 * The first two run with softirqs off, the others in a thread of ovs-vswitchd. A packet that comes back is recognised by its flow and
 * headers (ovs.h). Counters, tables and waiting packets are in shared.h, answers in answers.h, the threads that
 * give them in handlers.h, missing answers in unanswered.h.
 */

#include "../../common/netconsole.h"
#include "../../common/ovs.h"
#include "shared.h"
#include "handlers.h"
#include "unanswered.h"
#include "answers.h"

/* ---- the upcall ---- */

#define KNOWN_PORTS_SHIFT 4     /* of 16 */
#define KNOWN_TICKS_SHIFT 6     /* 0.06 to 0.6 s: a port may be renamed, or its memory used for another one */

struct known_port {
    u64 vport, datapath, dev, ticks;
    struct port_key port;
};
BPF_PERCPU_ARRAY(known_ports, struct known_port, 1 << KNOWN_PORTS_SHIFT);

/* The names of the port by which a packet came in and of its datapath. They are spread over half a dozen structures, so each CPU keeps
 * those that it read a moment ago. */
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

static inline void count_flow(struct scratch *scratch)
{
    struct nc_place *port = &scratch->packet.port.port;
    struct flow_key key = { .port = { port->device[0], port->device[1] }, .netns = port->netns };
    u64 none = 0, *count;

    ovs_table_flow_of(&key.flow, &scratch->flow);
    count = flows.lookup_or_try_init(&key, &none);
    if (count)
        __sync_fetch_and_add(count, 1);
    else
        nc_ledger_add(NC_MAP_FULL);
}

static inline void account_rows(struct scratch *scratch)
{
    struct port_row *row = row_of(&scratch->packet.port);
    struct cpu_row *cpu = cpu_row_of(&scratch->packet.port);

    if (row)
        nc_add(&row->upcalls, 1);
    if (cpu)
        nc_add(&cpu->upcalls, 1);
    count_flow(scratch);
}

static inline int asked(struct datapath *dp, struct sk_buff *skb, struct sw_flow_key *key, struct dp_upcall_info *info)
{
    struct nc_config *config = nc_config_get();
    struct scratch *scratch = scratch_of(UPCALL_SCRATCH);
    struct port_key *port;
    struct ovs_flow *flow;
    u32 flags;

    if (!config || !scratch)
        return 0;
    flags = config->flags;
    if (scratch->skb)              /* the end of the last upcall was missed */
        nc_ledger_add(NC_JOIN_MISSED);
    scratch->skb = scratch->queued = 0;
    port = &scratch->packet.port;
    flow = &scratch->packet.packet.flow;
    if (!(flags & NC_F_COUNTERS) || flags & NC_F_PLACE)
        name_port(port, skb, dp);
    if (!nc_place_wanted(config, &port->port))
        return 0;
    if (!(flags & NC_F_COUNTERS) || flags & NC_F_FLOW) {
        ovs_flow_of(flow, &scratch->key, key);
        ovs_plain_flow(&scratch->flow, flow);
    }
    if (!nc_flow_wanted(config, &scratch->flow) || (flags & NC_F_MAC && !nc_macs_wanted(config, flow->mac)))
        return 0;
    nc_count(UPCALLS);
    if (flags & NC_F_COUNTERS) {        /* the programs that see the rest are not attached */
        nc_ledger_add(NC_UNLISTED);
        return 0;
    }
    if (flow->l4 == NC_L4_UNPARSED)
        nc_ledger_add(NC_PARSE_FAILED);
    port->kind = NC_READ(info, cmd) == OVS_PACKET_CMD_MISS ? MISS : ACTION;
    scratch->skb = (u64)skb;
    scratch->packet.cpu = bpf_get_smp_processor_id();
    scratch->packet.since_ns = bpf_ktime_get_ns();
    if (nc_may_list(config))
        account_rows(scratch);
    nc_listed(config);
    return 0;
}

int asked_raw(struct bpf_raw_tracepoint_args *ctx)
{
    return asked(NC_ARG(0), NC_ARG(1), NC_ARG(2), NC_ARG(3));
}

int asked_probe(void *ctx)
{
    struct datapath *dp = NC_PARAMETER(0);
    struct sk_buff *skb = NC_PARAMETER(1);
    struct sw_flow_key *key = NC_PARAMETER(2);
    struct dp_upcall_info *info = NC_PARAMETER(3);

    return asked(dp, skb, key, info);
}

/* ---- the packets of an upcall: put into the map before they are queued, as the answer may come at once ---- */

int queued(void *ctx)
{
    struct sk_buff *skb = NC_PARAMETER(1);
    struct nc_config *config = nc_config_get();
    struct scratch *scratch = scratch_of(UPCALL_SCRATCH);
    struct waiting_key *place;
    struct waiting *twin;

    if (!config || !scratch || !scratch->skb)
        return 0;
    scratch->queued++;
    ovs_packet_of(&scratch->packet.packet, skb);
    place = &scratch->last;
    place->fingerprint = ovs_packet_fingerprint(&scratch->packet.packet);
#pragma unroll
    for (u32 i = 0; i < TWINS; i++) {
        place->twin = i;
        if (!waiting.insert(place, &scratch->packet)) {
            remember(config, place, scratch->packet.since_ns);
            return 0;
        }
        twin = waiting.lookup(place);
        if (twin)
            twin->has_twins = 1;
    }
    place->fingerprint = 0;
    nc_ledger_add(NC_JOIN_MISSED);
    return 0;
}

/* When a segment of a large packet is refused, it is the last one: no more are queued then. */
static inline void count_packets(struct scratch *scratch, struct port_row *row, int error)
{
    u32 slot = PACKETS;
    u64 *counter = nc_counters.lookup(&slot), packets = scratch->queued;

    if (error && packets) {
        packets--;
        waiting.delete(&scratch->last);
    }
    if (counter)
        nc_add(counter, packets);
    if (row)
        nc_add(&row->packets, packets);
}

int ended(void *ctx)
{
    struct scratch *scratch = scratch_of(UPCALL_SCRATCH);
    struct failure_key key = {};
    struct port_row *row;
    struct cpu_row *cpu;
    u64 *count, none = 0;
    int error = NC_RESULT;

    if (!scratch || !scratch->skb)
        return 0;
    scratch->skb = 0;
    row = row_of(&scratch->packet.port);
    count_packets(scratch, row, error);
    if (!error) {
        if (!scratch->queued)      /* its packets were missed */
            nc_ledger_add(NC_JOIN_MISSED);
        return 0;
    }
    nc_count(FAILED);
    if (row)
        nc_add(&row->failed, 1);
    cpu = cpu_row_of(&scratch->packet.port);
    if (cpu)
        nc_add(&cpu->failed, 1);
    __builtin_memcpy(key.datapath, scratch->packet.port.datapath, sizeof(key.datapath));
    __builtin_memcpy(key.port, scratch->packet.port.port.device, sizeof(key.port));
    key.netns = scratch->packet.port.port.netns;
    key.error = error;
    key.kind = scratch->packet.port.kind;
    count = failures.lookup_or_try_init(&key, &none);
    if (count)
        nc_add(count, 1);
    else
        nc_ledger_add(NC_MAP_FULL);
    return 0;
}

/* ---- what is not answered in time ---- */

#define SWEEPS 8        /* packets of one ring; each time of the next ring */

struct turn {
    u64 tick;
    u32 ring;
    u32 pad;
};
BPF_PERCPU_ARRAY(turns, struct turn, 1);

/* Runs on every task switch, which happens even when no packet comes. Only the first one in a tick looks for overdue packets. */
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
