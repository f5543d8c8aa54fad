/* ovs_upcalls - what Open vSwitch's kernel datapath asks user space, how long the answer takes, and what is never answered.
 *
 *   ovs_dp_upcall                    the datapath has no flow for a packet (miss), or its flow says so (action)
 *   queue_userspace_packet           a copy goes to the socket of a handler; a large packet (GSO) goes in segments
 *   ovs_flow_key_extract_userspace   user space gives the packet back, with the actions to execute (OVS_PACKET_CMD_EXECUTE)
 *   ovs_flow_mask_key, ovs_nla_copy_actions   user space puts a flow; one without actions drops, and the packet does not come back
 *
 * The first two run with softirqs off, the others in a thread of ovs-vswitchd. The packet is known again by its flow and headers (ovs.h).
 * Counters, tables and waiting packets are in ovs_upcalls.h, the handlers in ovs_handlers.h, what is never answered in ovs_unanswered.h.
 */

/* ---- the upcall ---- */

static inline void count_flow(struct desk *desk)
{
    struct ovs_flow *flow = &desk->packet.packet.flow;
    struct nc_place *port = &desk->packet.port.port;
    struct flow_key key = {
        .port = { port->device[0], port->device[1] },
        .netns = port->netns,
        .ethertype = flow->ethertype,
        .l4 = flow->l4,
        .source = { flow->source[0], flow->source[1] },
        .target = { flow->target[0], flow->target[1] },
        .target_port = ovs_has_ports(flow) ? flow->target_port : 0,
        .vlan = bpf_ntohs(flow->vlan) & 0x0fff,
    };
    u64 none = 0, *count = flows.lookup_or_try_init(&key, &none);

    if (count)
        __sync_fetch_and_add(count, 1);
    else
        nc_ledger_add(NC_MAP_FULL);
}

static inline int asked(struct datapath *dp, struct sk_buff *skb, struct sw_flow_key *key, struct dp_upcall_info *info)
{
    struct nc_config *config = nc_config_get();
    struct desk *desk = desk_of(UPCALL_DESK);
    struct port_key *port;
    struct ovs_flow *flow;
    struct net_device *dev;
    struct port_row *row;
    struct cpu_row *cpu;

    if (!config || !desk)
        return 0;
    if (desk->skb)              /* the end of the last one was missed */
        nc_ledger_add(NC_JOIN_MISSED);
    desk->skb = desk->queued = 0;
    port = &desk->packet.port;
    flow = &desk->packet.packet.flow;
    __builtin_memset(port, 0, sizeof(*port));
    dev = ovs_input_device(skb, dp);
    if (dev)
        nc_place_of(&port->port, dev);
    if (!nc_place_wanted(config, &port->port))
        return 0;
    ovs_flow_of(flow, &desk->key, key);
    ovs_plain_flow(&desk->flow, flow);
    if (!nc_flow_wanted(config, &desk->flow))
        return 0;
    if (flow->l4 == NC_L4_UNPARSED)
        nc_ledger_add(NC_PARSE_FAILED);
    ovs_datapath_name(port->datapath, dp);
    port->kind = NC_READ(info, cmd) == OVS_PACKET_CMD_MISS ? MISS : ACTION;
    desk->skb = (u64)skb;
    desk->packet.cpu = bpf_get_smp_processor_id();
    desk->packet.flow_print = ovs_flow_print(flow);
    desk->packet.since_ns = bpf_ktime_get_ns();
    nc_count(UPCALLS);
    row = row_of(port);
    if (row)
        nc_add(&row->upcalls, 1);
    cpu = cpu_row_of(port);
    if (cpu)
        nc_add(&cpu->upcalls, 1);
    count_flow(desk);
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

int queued_end(struct pt_regs *ctx)
{
    struct desk *desk = desk_of(UPCALL_DESK);
    struct port_row *row;

    if (!desk || !desk->skb || !desk->queued)
        return 0;
    if ((int)PT_REGS_RC(ctx)) {
        waiting.delete(&desk->last);
        return 0;
    }
    nc_count(PACKETS);
    row = row_of(&desk->packet.port);
    if (row)
        nc_add(&row->packets, 1);
    return 0;
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
    if (!error) {
        if (!desk->queued)      /* its hand-over was missed */
            nc_ledger_add(NC_JOIN_MISSED);
        return 0;
    }
    nc_count(FAILED);
    row = row_of(&desk->packet.port);
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

/* ---- the answer: the packet comes back ---- */

struct given {          /* by the thread that gives it */
    u64 skb;
    u64 key;
};
BPF_TABLE("lru_hash", u32, struct given, given, 4096);

int given_back(struct pt_regs *ctx, struct net *net, struct nlattr *attributes, struct sk_buff *skb, struct sw_flow_key *key)
{
    u32 tid = bpf_get_current_pid_tgid();
    struct given one = { .skb = (u64)skb, .key = (u64)key };

    given.update(&tid, &one);
    return 0;
}

/* Takes the packet of this fingerprint out of the map of waiting ones, of several the first; 0 when this has been done. */
static inline int take(struct desk *desk, struct waiting_key *key)
{
    struct waiting *found = waiting.lookup(key);
    u32 first = 0;
    u64 since_ns = ~0ull;

    if (!found || found->has_twins) {
#pragma unroll
        for (u32 i = 0; i < TWINS; i++) {
            key->twin = i;
            found = waiting.lookup(key);
            if (found && found->since_ns < since_ns) {
                since_ns = found->since_ns;
                first = i;
            }
        }
        key->twin = first;
        found = waiting.lookup(key);
    }
    if (!found)
        return -1;
    desk->packet = *found;
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
            desk->packet = *found;
            return overdue.delete(key);
        }
    }
    return -1;
}

static inline void sample(void *ctx, struct nc_config *config, struct desk *desk, u64 now, u64 latency_ns)
{
    struct ovs_flow *flow = &desk->packet.packet.flow;
    struct upcall_event *event = &desk->event;

    if (config->flags & NC_F_THRESHOLD && latency_ns <= config->threshold_ns)
        return;
    if (!nc_event_allowed(config, now))
        return;
    event->mono_ns = now;
    event->port = desk->packet.port;
    __builtin_memcpy(event->source, flow->source, sizeof(event->source));
    __builtin_memcpy(event->target, flow->target, sizeof(event->target));
    event->source_port = ovs_has_ports(flow) ? flow->source_port : 0;
    event->target_port = ovs_has_ports(flow) ? flow->target_port : 0;
    event->ethertype = flow->ethertype;
    event->vlan = bpf_ntohs(flow->vlan) & 0x0fff;
    event->l4 = flow->l4;
    event->length = desk->packet.packet.length;
    event->latency_ns = latency_ns;
    event->cpu = desk->packet.cpu;
    event->handler = bpf_get_current_pid_tgid() >> 32;
    nc_submit(ctx, event, sizeof(*event));
}

int answered(struct pt_regs *ctx)
{
    u32 tid = bpf_get_current_pid_tgid();
    struct nc_config *config = nc_config_get();
    struct desk *desk = desk_of(ANSWER_DESK);
    struct given *one = given.lookup(&tid);
    struct waiting_key key = {};
    u64 now = bpf_ktime_get_ns(), latency_ns;
    struct port_row *row;
    struct sk_buff *skb;
    int late = 0;

    if (!config || !desk || !one || !one->skb)
        return 0;
    skb = nc_pointer(one->skb);
    one->skb = 0;
    if ((int)PT_REGS_RC(ctx)) {
        nc_count(REFUSED);
        return 0;
    }
    ovs_flow_of(&desk->packet.packet.flow, &desk->key, nc_pointer(one->key));
    ovs_packet_of(&desk->packet.packet, skb);
    key.print = ovs_packet_print(&desk->packet.packet);
    if (take(desk, &key)) {
        if (take_overdue(desk, &key)) {
            if (!(config->flags & (NC_F_PLACE | NC_F_FLOW)))    /* else it may be one that was not wanted */
                nc_count(UNASKED);
            return 0;
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
    return 0;
}

/* ---- the answer: a flow ---- */

struct put {            /* by the thread that puts it */
    u64 masked;
    u64 print;
};
BPF_TABLE("lru_hash", u32, struct put, puts, 4096);

/* ovs_flow_cmd_new masks the key in place, all of it (`full`). */
int put(struct pt_regs *ctx, struct sw_flow_key *to, struct sw_flow_key *from, bool full)
{
    u32 tid = bpf_get_current_pid_tgid();
    struct desk *desk = desk_of(ANSWER_DESK);
    struct put one = { .masked = (u64)to };

    if (!desk || !full)
        return 0;
    ovs_flow_of(&desk->packet.packet.flow, &desk->key, from);
    one.print = ovs_flow_print(&desk->packet.packet.flow);
    puts.update(&tid, &one);
    return 0;
}

int put_actions(struct pt_regs *ctx, struct net *net, struct nlattr *actions, struct sw_flow_key *key)
{
    u32 tid = bpf_get_current_pid_tgid();
    struct put *one = puts.lookup(&tid);
    u64 now;

    if (!one || one->masked != (u64)key || NC_READ(actions, nla_len) > sizeof(struct nlattr))
        return 0;
    now = bpf_ktime_get_ns();
    drop_flows.update(&one->print, &now);
    return 0;
}

/* ---- the handlers, and what is not answered in time ---- */

int woken(struct bpf_raw_tracepoint_args *ctx)
{
    is_woken(NC_ARG(0));
    return 0;
}

#define SWEEPS 8        /* of one ring at each switch of tasks, each time another */
BPF_PERCPU_ARRAY(turns, u32, 1);

int switched(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct task_struct *from = NC_ARG(1), *to = NC_ARG(2);
    u32 *turn;
    struct ring *ring;
    u64 now;
    u32 zero = 0;

    turn = turns.lookup(&zero);
    if (!config || !turn)
        return 0;
    now = bpf_ktime_get_ns();
    leaves(from, now);
    comes(to, now);
    *turn = *turn + 1 < NC_CPUS ? *turn + 1 : 0;
    ring = rings.lookup(turn);
    if (!ring)
        return 0;
#pragma unroll
    for (int i = 0; i < SWEEPS; i++)
        if (ring->swept == ring->written || !sweep(config, ring, *turn, now, 0))
            return 0;
    return 0;
}
