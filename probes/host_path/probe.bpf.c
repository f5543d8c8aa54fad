/* host_path - how long packets take through the host between two sets of devices: from netif_receive_skb (net/core/dev.c,
 * __netif_receive_skb_core) to net_dev_start_xmit (net/core/dev.c, xmit_one), the last moment when a packet is not the driver's.
 *
 * All of these tracepoints fire with softirqs off, so no program of this probe ever interrupts another on its CPU. That holds for
 * packets that Open vSwitch's user space sends as well (net/openvswitch/datapath.c, ovs_packet_cmd_execute).
 */

enum {      /* counters */
    RECEIVED, REUSED, EVICTED, COPIES, CROSSED, PACKETS, SEGMENTS, SLOW, EXCHANGED, UNMATCHED, FROM_HOST, ASKED, RETURNED,
};

enum { INSIDE = 1, OUTSIDE };                                   /* sets of devices */
enum { UPCALL, ACTION, FIRST_QUEUE, LAST_QUEUE };               /* moments of a way */
enum { FROM_DEVICE, FROM_HOST_STACK, FROM_USER_SPACE };         /* marks of a way: where its sk_buff was made */

/* What this CPU had in hand last: whose copies come next, and whose segments. */
struct hand {
    u64 received;           /* address of the packet; 0: of one that is not timed */
    u64 queued;             /* that of one longer than its device takes */
    u64 device;
    u32 ports;
    u32 sequence;
    u32 length;
    u32 pad;
};
BPF_PERCPU_ARRAY(hands, struct hand, 1);

/* The stages of a way: they add up to the whole. */
struct durations {
    u64 forward_ns;         /* received → handed to the first device, where no Open vSwitch is seen */
    u64 lookup_ns;          /* received → first action of Open vSwitch, or → its upcall */
    u64 upcall_ns;          /* upcall → first action of the packet that came back */
    u64 actions_ns;         /* first action → handed to the first device */
    u64 devices_ns;         /* first → last device: tunnels, bonds, VLANs */
    u64 qdisc_ns;           /* handed to the last device → to its driver */
};

struct slow_event {
    struct latency_sample sample;
    struct durations took;
};

/* What a program works with; the stack is too small for it. */
struct desk {
    u64 address;
    struct path_packet packet;
    struct nc_flow flow;
    struct path_way way;
    struct slow_event event;
};
BPF_PERCPU_ARRAY(desks, struct desk, 1);

/* The address as a number: the verifier lets no program calculate with a pointer, but one may be stored, and read again. */
static inline u64 address_of(struct desk *desk, void *skb)
{
    volatile u64 *address = &desk->address;

    *address = (u64)skb;
    return *address;
}

#define OUT NC_WORD('o', 'u', 't', 0, 0, 0, 0, 0)
#define IN NC_WORD('i', 'n', 0, 0, 0, 0, 0, 0)
#define WITHIN NC_WORD('w', 'i', 't', 'h', 'i', 'n', 0, 0)
#define THROUGH NC_WORD('t', 'h', 'r', 'o', 'u', 'g', 'h', 0)

#define FORWARD NC_WORD('f', 'o', 'r', 'w', 'a', 'r', 'd', 0)
#define LOOKUP NC_WORD('l', 'o', 'o', 'k', 'u', 'p', 0, 0)
#define UPCALLED NC_WORD('u', 'p', 'c', 'a', 'l', 'l', 0, 0)
#define ACTIONS NC_WORD('a', 'c', 't', 'i', 'o', 'n', 's', 0)
#define DEVICES NC_WORD('d', 'e', 'v', 'i', 'c', 'e', 's', 0)
#define QDISC NC_WORD('q', 'd', 'i', 's', 'c', 0, 0, 0)

/* Does the innermost packet, which has been read, pass the filters? */
static inline int flow_wanted(struct nc_config *config, struct desk *desk, struct sk_buff *skb)
{
    if (!(config->flags & NC_F_FLOW))
        return 1;
    path_flow_of(&desk->flow, &desk->packet, skb);
    return nc_flow_wanted(config, &desk->flow);
}

/* A place for a way that begins; the one that has to go for it is counted. */
static inline struct path_way *place_for(u64 address)
{
    struct path_way *way = path_place(address);

    if (way && way->state == PATH_UNDER_WAY)
        nc_count(way->address == address ? REUSED : EVICTED);
    return way;
}

/* ---- a packet enters ---- */

static inline void begin(struct nc_config *config, struct sk_buff *skb, struct net_device *dev, struct nc_member *member, int sent)
{
    u32 zero = 0;
    struct desk *desk = desks.lookup(&zero);
    struct hand *hand = hands.lookup(&zero);
    struct path_way *way;
    u64 address;

    if (!desk || !hand)
        return;
    hand->received = 0;
    path_read(&desk->packet, skb, sent, 1);
    if (!flow_wanted(config, desk, skb) || !nc_netns_wanted(config, dev))
        return;
    if (desk->packet.broken)
        nc_ledger_add(NC_PARSE_FAILED);
    address = address_of(desk, skb);
    way = place_for(address);
    if (!way)
        return;
    way->address = address;
    way->moment_ns[UPCALL] = way->moment_ns[ACTION] = way->moment_ns[FIRST_QUEUE] = way->moment_ns[LAST_QUEUE] = 0;
    way->device[0] = member->name[0];
    way->device[1] = member->name[1];
    path_print_of(&way->print, &desk->packet, nc_data_end(skb));
    way->set = member->set;
    way->mark = sent ? FROM_HOST_STACK : FROM_DEVICE;
    way->state = PATH_UNDER_WAY;
    hand->received = address;
    nc_count(RECEIVED);
    way->since_ns = bpf_ktime_get_ns();
}

/* ---- on its way ---- */

/* Is the packet that is queued the one of this way? What this CPU has in hand is; else an unseen end may have freed the address. What was not
 * received by this host is another one, unless it was known before a tunnel made it look so. */
static inline int still_is(struct path_way *way, struct sk_buff *skb, struct hand *hand, struct desk *desk)
{
    struct path_print print;

    if (way->state != PATH_UNDER_WAY || (!NC_GET(skb, skb_iif) && !way->mark && !way->moment_ns[FIRST_QUEUE]))
        return 0;
    if (way->address == hand->received)
        return 1;
    path_read(&desk->packet, skb, 1, 1);
    path_print_of(&print, &desk->packet, nc_data_end(skb));
    return path_same(&print, &way->print);
}

/* A copy (for another port of a switch) has an address of its own: it is made while its CPU still has the packet in hand. */
static inline struct path_way *adopt(struct sk_buff *skb, struct hand *hand, struct desk *desk)
{
    u64 address = address_of(desk, skb);
    struct path_way *way = hand->received ? path_find(hand->received) : NULL;

    if (!way || way->address == address || (!NC_GET(skb, skb_iif) && !way->mark))
        return NULL;
    desk->way = *way;
    path_read(&desk->packet, skb, 1, 1);
    path_print_of(&desk->way.print, &desk->packet, nc_data_end(skb));
    if (!desk->way.print.network || !path_same(&desk->way.print, &way->print))
        return NULL;
    way = place_for(address);
    if (!way)
        return NULL;
    desk->way.address = address;
    desk->way.state = PATH_UNDER_WAY;
    desk->way.moment_ns[FIRST_QUEUE] = desk->way.moment_ns[LAST_QUEUE] = 0;
    *way = desk->way;
    nc_count(COPIES);
    return way;
}

/* A device may want a packet cut that is longer than its MTU: its segments are other packets. */
static inline void expect_segments(struct sk_buff *skb, struct net_device *dev, struct hand *hand, struct desk *desk, u32 length)
{
    path_read(&desk->packet, skb, 1, 1);
    hand->queued = address_of(desk, skb);
    hand->device = (u64)dev;
    hand->length = length;
    hand->ports = path_u32(&desk->packet, desk->packet.version == 4 ? 20 : 40);
    hand->sequence = bpf_ntohl(path_u32(&desk->packet, desk->packet.version == 4 ? 24 : 44));
}

int on_queue(struct bpf_raw_tracepoint_args *ctx)
{
    struct sk_buff *skb = NC_ARG(0);
    struct net_device *dev = NC_GET(skb, dev);
    u32 zero = 0, length = NC_GET(skb, len);
    struct desk *desk = desks.lookup(&zero);
    struct hand *hand = hands.lookup(&zero);
    struct path_way *way;
    u64 now;

    if (!desk || !hand)
        return 0;
    way = path_find(address_of(desk, skb));
    if (!way || !still_is(way, skb, hand, desk))
        way = adopt(skb, hand, desk);
    if (!way)
        return 0;
    now = bpf_ktime_get_ns();
    if (!way->moment_ns[FIRST_QUEUE])
        way->moment_ns[FIRST_QUEUE] = now;
    way->moment_ns[LAST_QUEUE] = now;
    if (length > NC_GET(dev, mtu) + ETH_HLEN + VLAN_HLEN)
        expect_segments(skb, dev, hand, desk, length);
    return 0;
}

/* ---- inside Open vSwitch: these tracepoints are a module's, so that kernel memory is read by NC_READ alone ---- */

static inline u64 mix(u64 sum, u64 value)
{
    return (sum ^ value) * 0x9e3779b97f4a7c15ULL;
}

/* What user space sends back is another sk_buff: it is known by its headers, without lengths and checksums, for a checksum that was
 * left to the device is made on the way up, and a long packet is cut. Odd: no address of an sk_buff. */
static inline u64 headers_of(struct path_packet *packet, u64 device)
{
    u64 sum = mix(device, packet->protocol);

    if (packet->version == 4) {
        sum = mix(sum, (u64)path_u16(packet, 4) << 16 | path_u16(packet, 6));      /* identification, fragment */
        sum = mix(sum, (u64)path_u32(packet, 12) << 32 | path_u32(packet, 16));
        sum = mix(sum, path_u32(packet, 20));
        sum = mix(sum, packet->protocol == IPPROTO_UDP ? 0 : path_u32(packet, 24));
    } else if (packet->version == 6) {
        sum = mix(sum, path_u32(packet, 0));
        sum = mix(mix(sum, packet->bytes[1]), packet->bytes[2]);
        sum = mix(mix(sum, packet->bytes[3]), packet->bytes[4]);
        sum = mix(sum, path_u32(packet, 40));
        sum = mix(sum, packet->protocol == IPPROTO_UDP ? 0 : path_u32(packet, 44));
    } else {
        sum = mix(mix(sum, packet->bytes[0]), packet->bytes[1]);
    }
    return sum | 1;
}

/* A packet that goes to user space waits there under its headers. */
static inline void ask(struct sk_buff *skb, u64 address, int goes_on)
{
    u32 zero = 0, end;
    struct desk *desk = desks.lookup(&zero);
    struct path_way *way = path_find(address);

    if (!desk || !way || way->state != PATH_UNDER_WAY)
        return;
    path_read_switched(&desk->packet, skb, &end);
    path_print_of(&desk->way.print, &desk->packet, end);
    if (!path_same(&desk->way.print, &way->print))
        return;
    desk->way = *way;
    if (!goes_on)
        way->state = PATH_FREE;
    desk->way.address = headers_of(&desk->packet, (u64)NC_READ(skb, dev));
    desk->way.moment_ns[UPCALL] = bpf_ktime_get_ns();
    desk->way.moment_ns[ACTION] = desk->way.moment_ns[FIRST_QUEUE] = desk->way.moment_ns[LAST_QUEUE] = 0;
    way = place_for(desk->way.address);
    if (!way)
        return;
    *way = desk->way;
    nc_count(ASKED);
}

/* Is this one that waited? Then its way goes on with this sk_buff. */
static inline void come_back(struct sk_buff *skb, u64 address, struct hand *hand)
{
    u32 zero = 0, end;
    struct desk *desk = desks.lookup(&zero);
    struct path_way *way;
    struct path_print print;

    if (!desk)
        return;
    path_read_switched(&desk->packet, skb, &end);
    way = path_find(headers_of(&desk->packet, (u64)NC_READ(skb, dev)));
    path_print_of(&print, &desk->packet, end);
    if (!way || way->state != PATH_UNDER_WAY || !path_same(&print, &way->print))
        return;
    desk->way = *way;
    way->state = PATH_FREE;
    way = place_for(address);
    if (!way)
        return;
    *way = desk->way;
    way->address = address;
    way->mark = FROM_USER_SPACE;
    way->moment_ns[ACTION] = bpf_ktime_get_ns();
    hand->received = address;
    nc_count(RETURNED);
}

/* A packet out of a tunnel may have waited (gro_cells) until its CPU had others in hand. */
static inline int is_switched(struct path_way *way, struct sk_buff *skb)
{
    u32 zero = 0, end;
    struct desk *desk = desks.lookup(&zero);
    struct path_print print;

    if (!desk)
        return 0;
    path_read_switched(&desk->packet, skb, &end);
    path_print_of(&print, &desk->packet, end);
    return path_same(&print, &way->print);
}

static inline void act(struct sk_buff *skb, u64 address)
{
    u32 zero = 0;
    struct hand *hand = hands.lookup(&zero);
    struct path_way *way = path_find(address);
    int known, received;

    if (!hand)
        return;
    known = way && way->state == PATH_UNDER_WAY && way->mark != FROM_USER_SPACE;
    if (known && way->moment_ns[ACTION] && hand->received == address)
        return;
    received = NC_READ(skb, skb_iif) != 0;
    if (!received && !(known && way->mark == FROM_HOST_STACK && hand->received == address)) {
        come_back(skb, address, hand);
    } else if (known && !way->moment_ns[ACTION] && (hand->received == address || is_switched(way, skb))) {
        way->moment_ns[ACTION] = bpf_ktime_get_ns();
        hand->received = address;
    }
}

int on_action(struct bpf_raw_tracepoint_args *ctx)
{
    act(NC_ARG(1), ctx->args[1]);
    return 0;
}

int on_actions(struct pt_regs *ctx, void *datapath, struct sk_buff *skb)
{
    act(skb, (u64)skb);
    return 0;
}

#ifdef HAVE_dp_upcall_info_cmd
int on_upcall(struct bpf_raw_tracepoint_args *ctx)
{
    struct dp_upcall_info *upcall = NC_ARG(3);

    ask(NC_ARG(1), ctx->args[1], NC_READ(upcall, cmd) != OVS_PACKET_CMD_MISS);
    return 0;
}

int on_upcall_function(struct pt_regs *ctx, void *datapath, struct sk_buff *skb, void *key, struct dp_upcall_info *upcall)
{
    ask(skb, (u64)skb, NC_READ(upcall, cmd) != OVS_PACKET_CMD_MISS);
    return 0;
}
#endif

/* ---- a packet leaves ---- */

static inline u64 direction_of(u32 from, u32 to)
{
    if (from == INSIDE)
        return to == INSIDE ? WITHIN : OUT;
    return to == INSIDE ? IN : THROUGH;
}

static inline u64 split(struct durations *took, struct path_way *way, u64 now)
{
    u64 last = way->moment_ns[LAST_QUEUE] ? way->moment_ns[LAST_QUEUE] : now;
    u64 first = way->moment_ns[FIRST_QUEUE] ? way->moment_ns[FIRST_QUEUE] : last;
    u64 action = way->moment_ns[ACTION] ? way->moment_ns[ACTION] : first;
    u64 upcall = way->moment_ns[UPCALL] ? way->moment_ns[UPCALL] : action;
    int switched = way->moment_ns[ACTION] || way->moment_ns[UPCALL];

    took->forward_ns = switched ? 0 : path_between(way->since_ns, first);
    took->lookup_ns = switched ? path_between(way->since_ns, upcall) : 0;
    took->upcall_ns = path_between(upcall, action);
    took->actions_ns = path_between(action, first);
    took->devices_ns = path_between(first, last);
    took->qdisc_ns = path_between(last, now);
    return took->forward_ns + took->lookup_ns + took->upcall_ns + took->actions_ns + took->devices_ns + took->qdisc_ns;
}

static inline void add_stages(u64 direction, struct path_way *way, struct durations *took)
{
    if (way->moment_ns[ACTION] || way->moment_ns[UPCALL]) {
        latency_stage(direction, LOOKUP, took->lookup_ns);
        if (way->moment_ns[UPCALL])
            latency_stage(direction, UPCALLED, took->upcall_ns);
        latency_stage(direction, ACTIONS, took->actions_ns);
    } else {
        latency_stage(direction, FORWARD, took->forward_ns);
    }
    if (way->moment_ns[FIRST_QUEUE] != way->moment_ns[LAST_QUEUE])
        latency_stage(direction, DEVICES, took->devices_ns);
    latency_stage(direction, QDISC, took->qdisc_ns);
}

static inline void account(void *ctx, struct nc_config *config, struct desk *desk, struct path_way *way, struct nc_member *member,
                           struct sk_buff *skb, u64 now)
{
    struct latency_sample *sample = &desk->event.sample;
    u64 direction = direction_of(way->set, member->set);
    int slow;

    sample->mono_ns = now;
    __builtin_memcpy(sample->from, way->device, sizeof(sample->from));
    __builtin_memcpy(sample->to, member->name, sizeof(sample->to));
    path_flow_of(&desk->flow, &desk->packet, skb);
    latency_flow_of(&sample->flow, direction, &desk->flow);
    sample->total_ns = split(&desk->event.took, way, now);
    sample->length = NC_GET(skb, len);
    sample->packets = path_packets(skb, &desk->packet);
    slow = latency_slow(config, sample->total_ns);

    nc_count(CROSSED);
    latency_count(PACKETS, sample->packets);
    if (slow)
        nc_count(SLOW);
    latency_add(sample, slow);
    add_stages(direction, way, &desk->event.took);
    if (latency_event_wanted(config, slow, now))
        nc_submit(ctx, &desk->event, sizeof(desk->event));
}

/* Segments of a packet that was cut after it was queued: sent one after the other by the CPU that cut it. */
static inline struct path_way *way_of_segment(struct desk *desk, struct net_device *dev)
{
    u32 zero = 0;
    struct hand *hand = hands.lookup(&zero);
    struct path_packet *packet = &desk->packet;
    u32 sequence = bpf_ntohl(path_u32(packet, packet->version == 4 ? 24 : 44));
    struct path_way *way;

    if (!hand || hand->device != (u64)dev || hand->ports != path_u32(packet, packet->version == 4 ? 20 : 40))
        return NULL;
    if (packet->protocol == 6 && sequence - hand->sequence >= hand->length)
        return NULL;
    way = path_find(hand->queued);
    if (!way || way->state == PATH_FREE)
        return NULL;
    way->state = PATH_OVER;
    nc_count(SEGMENTS);
    return way;
}

/* An end without a start: a loss only when the packet did begin on a device of a set. */
static inline void unmatched(u32 slot, struct nc_config *config, struct desk *desk, struct sk_buff *skb, struct net_device *dev)
{
    if (!flow_wanted(config, desk, skb))
        return;
    if (!NC_GET(skb, skb_iif)) {
        nc_count(FROM_HOST);
        return;
    }
    nc_count(slot);
    if (nc_received_in(skb, NC_GET(dev, nd_net.net)))
        nc_ledger_add(NC_JOIN_MISSED);
}

static inline void end(void *ctx, struct nc_config *config, struct sk_buff *skb, struct net_device *dev, struct nc_member *member, int sent)
{
    u32 zero = 0;
    u64 now = bpf_ktime_get_ns();
    struct desk *desk = desks.lookup(&zero);
    struct path_way *way;
    struct path_print print;

    if (!desk)
        return;
    way = path_find(address_of(desk, skb));
    path_read(&desk->packet, skb, sent, 1);
    path_print_of(&print, &desk->packet, nc_data_end(skb));
    if (way && way->state == PATH_OVER && path_same(&print, &way->print))
        return;         /* its driver was busy and it is sent again, or it crosses another device of a set */
    if (way && way->state == PATH_UNDER_WAY) {
        int known = way->moment_ns[FIRST_QUEUE] || way->mark || NC_GET(skb, skb_iif);
        way->state = PATH_OVER;
        if (known && path_same(&print, &way->print))
            account(ctx, config, desk, way, member, skb, now);
        else
            unmatched(EXCHANGED, config, desk, skb, dev);
        return;
    }
    way = way_of_segment(desk, dev);
    if (way)
        account(ctx, config, desk, way, member, skb, now);
    else
        unmatched(UNMATCHED, config, desk, skb, dev);
}

int on_receive(struct bpf_raw_tracepoint_args *ctx)
{
    struct sk_buff *skb = NC_ARG(0);
    struct net_device *dev = NC_GET(skb, dev);
    struct nc_config *config = nc_config_get();
    struct nc_member *member = nc_member_of(dev);

    if (!config || !member)
        return 0;
    if (member->faces_host)
        end(ctx, config, skb, dev, member, 0);
    else
        begin(config, skb, dev, member, 0);
    return 0;
}

int on_send(struct bpf_raw_tracepoint_args *ctx)
{
    struct sk_buff *skb = NC_ARG(0);
    struct net_device *dev = NC_ARG(1);
    struct nc_config *config = nc_config_get();
    struct nc_member *member = nc_member_of(dev);

    if (!config || !member)
        return 0;
    if (member->faces_host)
        begin(config, skb, dev, member, 1);
    else
        end(ctx, config, skb, dev, member, 1);
    return 0;
}
