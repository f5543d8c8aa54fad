/* ovs_upcalls - what Open vSwitch's kernel datapath asks user space, how long the answer takes, and what is never answered.
 *
 *   ovs_dp_upcall                    the datapath has no flow for a packet (miss), or its flow says so (action)
 *   queue_userspace_packet           a copy goes to the socket of a handler; a large packet (GSO) goes in segments
 *   ovs_flow_key_extract_userspace   user space gives the packet back, with the actions to execute (OVS_PACKET_CMD_EXECUTE)
 *   ovs_flow_mask_key, ovs_nla_copy_actions   user space puts a flow; one without actions drops, and the packet does not come back
 *
 * The first two run with softirqs off, the others in a thread of ovs-vswitchd. The packet is known again by its flow and headers (ovs.h).
 */

enum {      /* counters */
    UPCALLS, FAILED, PACKETS, ANSWERED, DROPPED, UNANSWERED, LATE, UNASKED, REFUSED,
};

#define MISS NC_WORD('m', 'i', 's', 's', 0, 0, 0, 0)
#define ACTION NC_WORD('a', 'c', 't', 'i', 'o', 'n', 0, 0)

/* ---- tables ---- */

struct port_key {
    u64 datapath[2];
    struct nc_place port;
    u64 kind;
};
struct port_row {
    u64 upcalls, failed, packets, answered, dropped, unanswered, late;
};
BPF_TABLE("percpu_hash", struct port_key, struct port_row, upcalls, NC_ROWS_upcalls);

struct latency_key {
    struct port_key port;
    u32 pad;
    u32 slot;
};
BPF_TABLE("percpu_hash", struct latency_key, struct nc_bucket, latency, NC_ROWS_latency);

struct failure_key {
    u64 datapath[2];
    u64 port[2];
    u32 netns;
    s32 error;
    u64 kind;
};
BPF_TABLE("percpu_hash", struct failure_key, u64, failures, NC_ROWS_failures);

struct cpu_key {
    u64 datapath[2];
    u64 kind;
    u32 cpu;
    u32 pad;
};
struct cpu_row {
    u64 upcalls, failed;
};
BPF_TABLE("hash", struct cpu_key, struct cpu_row, cpus, NC_ROWS_cpus);      /* each row is one CPU's own */

struct flow_key {
    u64 port[2];
    u32 netns;
    u16 ethertype;
    u16 l4;
    u64 source[2];
    u64 target[2];
    u16 target_port;
    u16 vlan;
    u32 pad;
};
BPF_TABLE("lru_hash", struct flow_key, u64, flows, NC_ROWS_flows);

struct upcall_event {
    u64 mono_ns;
    struct port_key port;
    u64 source[2];
    u64 target[2];
    u16 source_port;
    u16 target_port;
    u16 ethertype;
    u16 vlan;
    u16 l4;
    u16 pad;
    u32 length;
    u64 latency_ns;
    u32 cpu;
    u32 handler;
};

/* ---- packets that user space has, by fingerprint; those that are alike by a number ---- */

#define WAITING 16384
#define TWINS 8

struct waiting_key {
    u64 print;
    u32 twin;
    u32 pad;
};
struct waiting {
    struct port_key port;
    struct ovs_packet packet;
    u64 since_ns;
    u64 flow_print;
    u32 cpu;
    u32 has_twins;
};
BPF_TABLE("hash", struct waiting_key, struct waiting, waiting, WAITING);
BPF_TABLE("lru_hash", struct waiting_key, struct waiting, overdue, WAITING);    /* unanswered, but may still come */

/* When user space last put a flow without actions, by fingerprint of the flow. */
BPF_TABLE("lru_hash", u64, u64, drop_flows, 4096);

/* ---- desks: what a program works with, for the stack is too small; those of one desk never interrupt each other ---- */

enum { UPCALL_DESK, ANSWER_DESK, SWEEP_DESK, DESKS };
struct desk {
    struct waiting packet;
    struct ovs_key key;
    struct nc_flow flow;
    struct upcall_event event;
    u64 skb;                    /* the upcall that is under way; 0: none that is wanted */
    u64 queued;                 /* packets of it */
    struct waiting_key last;    /* of these */
};
BPF_PERCPU_ARRAY(desks, struct desk, DESKS);

static inline struct desk *desk_of(u32 which)
{
    return desks.lookup(&which);
}

static inline struct port_row *row_of(struct port_key *port)
{
    struct port_row none = {}, *row = upcalls.lookup_or_try_init(port, &none);

    if (!row)
        nc_ledger_add(NC_MAP_FULL);
    return row;
}

static inline struct cpu_row *cpu_row_of(struct port_key *port)
{
    struct cpu_key key = { .datapath = { port->datapath[0], port->datapath[1] }, .kind = port->kind, .cpu = bpf_get_smp_processor_id() };
    struct cpu_row none = {}, *row = cpus.lookup_or_try_init(&key, &none);

    if (!row)
        nc_ledger_add(NC_MAP_FULL);
    return row;
}

static inline void add_latency(struct port_key *port, u64 ns)
{
    struct latency_key key = { .port = *port, .slot = nc_slot(ns) };
    struct nc_bucket none = {};

    nc_bucket_add(latency.lookup_or_try_init(&key, &none), ns);
}

static inline u64 between(u64 from, u64 to)     /* another CPU's clock may read a little less */
{
    return to > from ? to - from : 0;
}

/* ---- handlers ---- */

struct handler_key {
    u64 name[2];
    u32 tid;
    u32 pid;
};
struct handler_row {
    u64 cpu_ns, switches, wakeups, answered;
    u64 cpu;            /* gauge */
};
BPF_TABLE("hash", struct handler_key, struct handler_row, handlers, NC_ROWS_handlers);  /* each value has one writer at a time */

struct scheduled_key {
    u64 name[2];
    u32 tid;
    u32 slot;
};
BPF_TABLE("hash", struct scheduled_key, struct nc_bucket, scheduled, NC_ROWS_scheduled);

struct thread {
    u64 woken_ns, running_ns;
};
BPF_TABLE("lru_hash", u32, struct thread, threads, 4096);

/* A thread handler<N> of a process that began as ovs-vswitchd (udpif_start_threads, OVS ofproto/ofproto-dpif-upcall.c). */
static inline int is_handler(struct task_struct *task, struct handler_key *key)
{
    struct task_struct *leader;
    u64 process[2];

    bpf_probe_read_kernel(key->name, sizeof(key->name), &task->comm);
    if ((key->name[0] ^ NC_WORD('h', 'a', 'n', 'd', 'l', 'e', 'r', 0)) & NC_WORD(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0))
        return 0;
    leader = NC_READ(task, group_leader);
    bpf_probe_read_kernel(process, sizeof(process), &leader->comm);
    key->tid = NC_READ(task, pid);
    key->pid = NC_READ(task, tgid);
    return process[0] == NC_WORD('o', 'v', 's', '-', 'v', 's', 'w', 'i') && (u32)process[1] == (u32)NC_WORD('t', 'c', 'h', 'd', 0, 0, 0, 0);
}

static inline struct handler_row *handler_row_of(struct handler_key *key)
{
    struct handler_row none = {}, *row = handlers.lookup_or_try_init(key, &none);

    if (!row)
        nc_ledger_add(NC_MAP_FULL);
    return row;
}

static inline void count_answer(void)
{
    struct handler_key key = {};
    struct handler_row *row;

    if (!is_handler((void *)bpf_get_current_task(), &key))
        return;
    row = handler_row_of(&key);
    if (row)
        row->answered++;
}

/* ---- what is not answered in time. Each CPU has a ring of the packets that it has handed over, in their order. Any CPU may look at the
 * first of them, for one that does nothing but take packets never switches tasks; whoever takes a packet out of the map accounts for it. ---- */

#define RING (NC_CPUS > 32 ? 1024 : 4096)
struct ring_slot {
    u64 print;
    u32 twin;
    u32 since;          /* the low half of it: the same fingerprint may be there again */
};
BPF_ARRAY(ring_slots, struct ring_slot, NC_CPUS * RING);

struct ring {
    u64 written, swept;
};
BPF_ARRAY(rings, struct ring, NC_CPUS);

static inline struct ring_slot *slot_of(u32 cpu, u64 number)
{
    u32 index = cpu * RING + (number & (RING - 1));
    return ring_slots.lookup(&index);
}

static inline u64 limit_ns(struct nc_config *config)
{
    return config->extra[0] * 1000000;
}

static inline void give_up(struct nc_config *config, struct desk *desk, struct waiting_key *key)
{
    struct waiting *packet = &desk->packet;
    struct port_row *row = row_of(&packet->port);
    u64 *put = drop_flows.lookup(&packet->flow_print);

    if (put && *put + limit_ns(config) >= packet->since_ns) {
        nc_count(DROPPED);
        if (row)
            nc_add(&row->dropped, 1);
        add_latency(&packet->port, between(packet->since_ns, *put));
        return;
    }
    overdue.update(key, packet);
    if (packet->port.kind != MISS)      /* user space keeps what was meant for it */
        return;
    nc_count(UNANSWERED);
    if (row)
        nc_add(&row->unanswered, 1);
}

/* Looks at the first packet of a ring; 0 when that has still time. `rotate`: then it goes to the end, to free its place. Two CPUs may look at
 * the same one: each moves on to the next of the number that it has read, so that none is passed over. */
static inline int sweep(struct nc_config *config, struct ring *ring, u32 cpu, u64 now, int rotate)
{
    u64 number = *(volatile u64 *)&ring->swept;
    struct ring_slot *slot = slot_of(cpu, number), *end = slot_of(cpu, ring->written);
    struct waiting_key key = {};
    struct waiting *packet;
    struct desk *desk;

    if (!slot || !end)
        return 0;
    key.print = slot->print;
    key.twin = slot->twin;
    packet = waiting.lookup(&key);
    if (!packet || (u32)packet->since_ns != slot->since) {
        ring->swept = number + 1;       /* answered */
        return 1;
    }
    if (between(packet->since_ns, now) < limit_ns(config)) {
        if (!rotate)
            return 0;
        *end = *slot;
        ring->written++;
        ring->swept = number + 1;
        return 1;
    }
    desk = desk_of(SWEEP_DESK);
    if (!desk)
        return 0;
    desk->packet = *packet;
    ring->swept = number + 1;
    if (!waiting.delete(&key))
        give_up(config, desk, &key);
    return 1;
}

static inline void remember(struct nc_config *config, struct waiting_key *key, u64 now)
{
    u32 cpu = bpf_get_smp_processor_id();
    struct ring *ring = rings.lookup(&cpu);
    struct ring_slot *slot;
    struct waiting_key given_up = {};

    if (!ring)
        return;
#pragma unroll
    for (int i = 0; i < 2; i++)         /* in a storm nobody else sweeps fast enough */
        if (ring->written - ring->swept >= RING / 2)
            sweep(config, ring, cpu, now, 1);
    slot = slot_of(cpu, ring->written);
    if (!slot)
        return;
    if (ring->written - ring->swept >= RING) {
        given_up.print = slot->print;
        given_up.twin = slot->twin;
        if (!waiting.delete(&given_up))
            nc_ledger_add(NC_JOIN_MISSED);
        ring->swept = ring->written - RING + 1;
    }
    slot->print = key->print;
    slot->twin = key->twin;
    slot->since = now;
    ring->written++;
}

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

/* ---- the handlers, as the scheduler sees them ---- */

int woken(struct bpf_raw_tracepoint_args *ctx)
{
    struct handler_key key = {};
    struct handler_row *row;
    struct thread *thread, none = {};
    struct task_struct *task = NC_ARG(0);

    if (!is_handler(task, &key))
        return 0;
    thread = threads.lookup_or_try_init(&key.tid, &none);
    row = handler_row_of(&key);
    if (!thread || !row)
        return 0;
    row->wakeups++;
    thread->woken_ns = bpf_ktime_get_ns();
    return 0;
}

static inline void leaves(struct task_struct *task, u64 now)
{
    struct handler_key key = {};
    struct handler_row *row;
    struct thread *thread;

    if (!is_handler(task, &key))
        return;
    thread = threads.lookup(&key.tid);
    row = handler_row_of(&key);
    if (!thread || !row || !thread->running_ns)
        return;
    row->cpu_ns += now - thread->running_ns;
    row->switches++;
    row->cpu = bpf_get_smp_processor_id();
    thread->running_ns = 0;
}

static inline void comes(struct task_struct *task, u64 now)
{
    struct scheduled_key slot = {};
    struct handler_key key = {};
    struct thread *thread, none = {};
    struct nc_bucket empty = {};

    if (!is_handler(task, &key))
        return;
    thread = threads.lookup_or_try_init(&key.tid, &none);
    if (!thread)
        return;
    thread->running_ns = now;
    if (!thread->woken_ns)
        return;
    __builtin_memcpy(slot.name, key.name, sizeof(slot.name));
    slot.tid = key.tid;
    slot.slot = nc_slot(between(thread->woken_ns, now));
    nc_bucket_add(scheduled.lookup_or_try_init(&slot, &empty), between(thread->woken_ns, now));
    thread->woken_ns = 0;
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
