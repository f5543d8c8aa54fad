/* ovs_drops - packets that Open vSwitch's kernel datapath drops: by reason, place in the datapath, port and flow.
 *
 * From 6.7 the datapath gives a reason (enum ovs_drop_reason), and the tracepoint kfree_skb is enough. Before, a packet that a flow drops
 * ends like one that was sent (consume_skb): only the flow's actions tell. So the actions of each packet are read (ovs_execute_actions),
 * and what meters return (ovs_meter_execute). Errors end in kfree_skb on every kernel, called from the module: the reason is the function
 * that called it. For a packet that could not be sent, its length and the ports of its actions tell more.
 */

#include "../../common/netconsole.h"
#include "../../common/ovs.h"
#include "../../common/resumed.h"

enum { DROPS };     /* counters */

/* Reasons that the kernel has no name for before 6.7 (netconsole_collector/names/drop_reasons.py). */
enum { FLOW_WITHOUT_OUTPUT = 0x7fff0001, METER, TOO_LARGE };

struct drop_key {
    u64 location;
    struct nc_place port;
    u32 reason;
    u32 pad;
};
BPF_TABLE("percpu_hash", struct drop_key, u64, drops, NC_ROWS_drops);

struct flow_key {
    u64 location;
    u64 port[2];
    u32 netns;
    u32 reason;
    struct ovs_table_flow flow;
};
BPF_TABLE("lru_hash", struct flow_key, u64, flows, NC_ROWS_flows);

struct drop_event {
    u64 mono_ns;
    struct drop_key key;
    struct nc_flow flow;
    u32 length;
    u32 cpu;
};
BPF_PERCPU_ARRAY(records, struct drop_event, 1);

static inline void count_flow(struct drop_key *drop, struct nc_flow *flow)
{
    struct flow_key key = {
        .location = drop->location,
        .port = { drop->port.device[0], drop->port.device[1] },
        .netns = drop->port.netns,
        .reason = drop->reason,
    };
    u64 none = 0, *count;

    ovs_table_flow_of(&key.flow, flow);
    count = flows.lookup_or_try_init(&key, &none);
    if (count)
        __sync_fetch_and_add(count, 1);
    else
        nc_ledger_add(NC_MAP_FULL);
}

static inline void sample(void *ctx, struct nc_config *config, struct sk_buff *skb, struct drop_key *key, struct nc_flow *flow)
{
    u64 now = bpf_ktime_get_ns();
    struct drop_event *record;
    int zero = 0;

    if (!nc_event_allowed(config, now))
        return;
    record = records.lookup(&zero);
    if (!record)
        return;
    record->mono_ns = now;
    record->key = *key;
    record->flow = *flow;
    record->length = NC_READ(skb, len);
    record->cpu = bpf_get_smp_processor_id();
    nc_submit(ctx, record, sizeof(*record));
}

static inline void count_drop(void)     /* several programs write this counter */
{
    u32 slot = DROPS;
    u64 *counter = nc_counters.lookup(&slot);

    if (counter)
        __sync_fetch_and_add(counter, 1);
}

static inline void account_rows(struct drop_key *key, struct nc_flow *flow)
{
    u64 none = 0, *count = drops.lookup_or_try_init(key, &none);

    if (count)
        __sync_fetch_and_add(count, 1);
    else
        nc_ledger_add(NC_MAP_FULL);
    count_flow(key, flow);
}

/* In the datapath skb->dev is the port by which the packet came in, until the packet is sent. */
static inline void account(void *ctx, struct sk_buff *skb, u64 location, u32 reason)
{
    struct drop_key key = { .location = location, .reason = reason };
    struct nc_config *config = nc_config_get();
    struct net_device *dev = NC_READ(skb, dev);
    struct nc_flow flow = {};

    if (!config)
        return;
    if (dev)
        nc_place_of(&key.port, dev);
    if (!nc_place_wanted(config, &key.port))
        return;
    nc_parse(&flow, skb);
    nc_parse_ports(&flow, skb);
    if (!nc_packet_wanted(config, &flow, skb))
        return;
    count_drop();
    if (nc_may_list(config))
        account_rows(&key, &flow);
    nc_listed(config);
    if (config->flags & NC_F_DETAILS && nc_flow_sampled(config, flow.source, flow.target, flow.source_port, flow.target_port))
        sample(ctx, config, skb, &key, &flow);
}

/* ---- the actions that this CPU executes: they explain errors before 6.7 ---- */

struct execution {
    u64 datapath;
    u64 actions;
};
BPF_PERCPU_ARRAY(executions, struct execution, 1);

struct action {
    struct nlattr header;
    u32 value;
};

#define OUTPUTS 8       /* so many actions are read; outputs after them are not seen */
#define GSO_SIZE offsetof(struct skb_shared_info, gso_size)

/* Is the packet too long for a port to which these actions send it? (ovs_vport_send) */
static inline int is_too_large(struct sk_buff *skb)
{
    u32 zero = 0, at = 0, length;
    struct execution *execution = executions.lookup(&zero);
    struct sw_flow_actions *actions;
    struct action action;
    struct net_device *dev;
    struct vport *port;

    if (!execution)
        return 0;
    if (NC_AT(u16, NC_READ(skb, head) + NC_READ(skb, end) + GSO_SIZE))
        return 0;       /* it will be segmented */
    actions = nc_pointer(execution->actions);
    length = NC_READ(actions, actions_len);
#pragma unroll
    for (u32 i = 0; i < OUTPUTS && at < length; i++) {
        action = NC_AT(struct action, (void *)actions->actions + at);
        at += (action.header.nla_len + 3) & ~3;
        if (action.header.nla_type != OVS_ACTION_ATTR_OUTPUT)
            continue;
        port = ovs_port_numbered(nc_pointer(execution->datapath), action.value);
        if (!port)
            continue;
        dev = NC_READ(port, dev);
        if (NC_READ(skb, len) > NC_READ(dev, mtu) + NC_READ(dev, hard_header_len))
            return 1;
    }
    return 0;
}

/* ---- freed as dropped, by a function of the module ---- */

struct text_range {
    u64 start, end;
};
BPF_ARRAY(nc_module_text, struct text_range, 1);    /* of the module that the manifest names; the collector fills it in */

static inline int in_module(u64 address)
{
    u32 zero = 0;
    struct text_range *text = nc_module_text.lookup(&zero);

    return text && address >= text->start && address < text->end;
}

/* Was a packet freed by the module? Its functions also free netlink messages, which have no port. */
static inline int in_datapath(struct sk_buff *skb, u64 location)
{
    struct net_device *dev;

    if (!in_module(location))
        return 0;
    dev = NC_READ(skb, dev);
    return dev && ovs_port_of(dev);
}

static inline u32 reason_of(struct bpf_raw_tracepoint_args *ctx)
{
#if NARGS_kfree_skb >= 3
    return ctx->args[2];
#else
    return 0;
#endif
}

/* The function whose call returns to this address. 0: not a relative call. */
static inline u64 called_before(u64 location)
{
    u8 code[5] = {};        /* E8 and the distance from the next instruction */

#ifdef bpf_target_x86
    bpf_probe_read_kernel(code, sizeof(code), (void *)location - sizeof(code));
#endif
    if (code[0] != 0xe8)
        return 0;
    return location + (s32)(code[1] | code[2] << 8 | code[3] << 16 | (u32)code[4] << 24);
}

#define SUBSYSTEM(reason) ((reason) >> 16)

/* A function that ends with a jump to kfree_skb (a tail call) leaves the address of its own caller. Compilers make such jumps from
 * do_output to ovs_vport_send, and from both to kfree_skb. Then the ports tell whether the packet was too large. */
static inline void account_error(void *ctx, struct sk_buff *skb, u64 location, u32 reason)
{
    u64 called = called_before(location);

    if (in_module(called)) {
        location = called;
        if (is_too_large(skb))
            reason = TOO_LARGE;
    }
    account(ctx, skb, location, reason);
}

int freed(struct bpf_raw_tracepoint_args *ctx)
{
    u32 reason = reason_of(ctx);
    struct sk_buff *skb = NC_ARG(0);
    u64 location = ctx->args[1];

#ifdef HAVE_SKB_DROP_REASON_SUBSYS_OPENVSWITCH
    if (SUBSYSTEM(reason) == SKB_DROP_REASON_SUBSYS_OPENVSWITCH) {
        account(ctx, skb, location, reason);
        return 0;
    }
#endif
    if (in_datapath(skb, location))
        account_error(ctx, skb, location, reason);
    return 0;
}

/* ---- dropped by a flow, before 6.7 ---- */

#define ACTIONS 24      /* so many are read; a flow with more is taken for one with an output */

/* The length of a flow's actions, and the first of them: it is right behind. Most flows have no other. */
struct actions_begin {
    u32 length;
    struct action first;
};
_Static_assert(offsetof(struct sw_flow_actions, actions) == offsetof(struct sw_flow_actions, actions_len) + sizeof(u32), "a gap");

static inline int sends(struct action *action)
{
    return action->header.nla_len == sizeof(*action) &&
        (action->header.nla_type == OVS_ACTION_ATTR_OUTPUT || action->header.nla_type == OVS_ACTION_ATTR_RECIRC);
}

/* Does the packet leave the datapath? It does when the last action sends it or takes it over. Conntrack and meters account for what
 * they drop. */
static inline int has_output(struct sw_flow_actions *actions)
{
    struct actions_begin begin = NC_AT(struct actions_begin, &actions->actions_len);
    u32 length = begin.length, at = 0;
    struct action last = begin.first;
    struct nlattr action = {};

    if (!length)
        return 0;
    if (length != sizeof(last))
        last = NC_AT(struct action, (void *)actions->actions + length - sizeof(last));
    if (sends(&last))
        return 1;
#pragma unroll
    for (u32 i = 0; i < ACTIONS && at < length; i++) {
        action = NC_AT(struct nlattr, (void *)actions->actions + at);
        if (action.nla_type == OVS_ACTION_ATTR_CT || action.nla_type == OVS_ACTION_ATTR_METER)
            return 1;
        at += (action.nla_len + 3) & ~3;
    }
    return at < length || action.nla_type == OVS_ACTION_ATTR_OUTPUT || action.nla_type == OVS_ACTION_ATTR_USERSPACE ||
        action.nla_type == OVS_ACTION_ATTR_RECIRC || action.nla_type == OVS_ACTION_ATTR_SAMPLE ||
        action.nla_type == OVS_ACTION_ATTR_CLONE || action.nla_type == OVS_ACTION_ATTR_CHECK_PKT_LEN;
}

int executed(void *ctx)
{
    struct datapath *dp = NC_PARAMETER(0);
    struct sk_buff *skb = NC_PARAMETER(1);
    struct sw_flow_actions *actions = NC_PARAMETER(2);
    u32 zero = 0;
    struct execution *execution = executions.lookup(&zero);

    if (execution) {
        execution->datapath = (u64)dp;
        execution->actions = (u64)actions;
    }
    if (!has_output(actions))
        account(ctx, skb, NC_FUNCTION, FLOW_WITHOUT_OUTPUT);
    return 0;
}

/* ---- dropped by a meter, before 6.7 ---- */

struct metered_packet {
    u64 skb;
    u64 location;
    u64 resumed_ns;     /* at its begin: if the programs were attached again since, its end was not seen */
};
BPF_PERCPU_ARRAY(metered_packets, struct metered_packet, 1);

int metering(void *ctx)
{
    struct sk_buff *skb = NC_PARAMETER(1);
    struct metered_packet *packet;
    u32 zero = 0;

    packet = metered_packets.lookup(&zero);
    if (packet) {
        packet->skb = (u64)skb;
        packet->location = NC_FUNCTION;
        packet->resumed_ns = nc_resumed_ns();
    }
    return 0;
}

int metered(void *ctx)
{
    struct metered_packet *packet;
    u32 zero = 0;

    packet = metered_packets.lookup(&zero);
    if (!packet || !packet->skb)
        return 0;
    if ((u8)NC_RESULT && packet->resumed_ns == nc_resumed_ns())
        account(ctx, nc_pointer(packet->skb), packet->location, METER);
    packet->skb = 0;
    return 0;
}
