/* netconsole.h - what every probe shares: kernel memory, configuration, accounting, histograms, packets, filters, budgeted events.
 *
 * The collector puts this text before the probe's source. It defines, from the manifest and the kernel's BTF:
 *   NC_ROWS_<table>  the bound of a table     NC_CPUS    possible CPUs
 *   NC_EVENTS        1 when the manifest has events
 *   NC_RING          1 when the kernel has ring buffers (5.8), else events leave by a perf buffer
 *   NC_DIRECT        1 when the programs are loaded as BTF-typed raw tracepoints, else they are plain ones
 *   HAVE_..., NARGS_...  what this kernel has (docs/probes.md)
 *
 * What costs is calling a helper (20 to 50 ns each where returns are mitigated), not arithmetic: array maps, whose look-up the kernel
 * inlines, and direct loads are preferred on the way that every packet takes.
 */
#ifndef NETCONSOLE_H
#define NETCONSOLE_H

/* ---- kernel memory: every read of it goes through NC_GET ---- */

#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 5, 0)
#define bpf_probe_read_kernel bpf_probe_read
#endif

/* A BTF-typed program may load from kernel structures directly: one instruction; a bad pointer reads as 0. Others call a helper. */
#if NC_DIRECT
#define NC_GET(pointer, member) ((pointer)->member)
#else
#define NC_GET(pointer, member) ({                                                      \
    typeof((pointer)->member) nc_value;                                                 \
    bpf_probe_read_kernel(&nc_value, sizeof(nc_value), &(pointer)->member);             \
    nc_value; })
#endif

/* By a helper in any case: for pointers that the verifier does not know, or may not trust. Off the common path. */
#define NC_READ(pointer, member) ({                                                     \
    typeof((pointer)->member) nc_value;                                                 \
    bpf_probe_read_kernel(&nc_value, sizeof(nc_value), &(pointer)->member);             \
    nc_value; })

/* Packets are bytes, not structures. From 6.2 a BTF-typed program may say what an address points to (bpf_rdonly_cast, undone by the
 * verifier: no call is made) and then load directly; the collector makes a call of that function from this number, for BCC cannot.
 * NC_HEADER(iphdr, BTF_ID_iphdr, ip, address) declares struct iphdr *ip, or a copy of it. */
#if NC_DIRECT && defined(HAVE_bpf_rdonly_cast) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
static void *(*nc_rdonly_cast)(u64 address, u32 type) = (void *)0x7ffffff0;
#define NC_HEADER(type, id, name, address) struct type *name = nc_rdonly_cast(address, id)
#else
#define NC_HEADER(type, id, name, address)                                              \
    struct type name##_copy, *name = &name##_copy;                                      \
    bpf_probe_read_kernel(name, sizeof(*name), (void *)(address))
#endif

/* The n-th argument of a tracepoint. The call hides from BCC that it points into the kernel: BCC would turn loads into helper calls. */
static inline void *nc_pointer(u64 value)
{
    return (void *)value;
}
#define NC_ARG(n) nc_pointer(ctx->args[n])

/* Text in a key without a string: the bytes of a label, eight at a time. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define NC_CHAR(c, n) ((u64)(c) << (8 * (n)))
#else
#define NC_CHAR(c, n) ((u64)(c) << (56 - 8 * (n)))
#endif
#define NC_WORD(a, b, c, d, e, f, g, h) (NC_CHAR(a, 0) | NC_CHAR(b, 1) | NC_CHAR(c, 2) | NC_CHAR(d, 3) | \
    NC_CHAR(e, 4) | NC_CHAR(f, 5) | NC_CHAR(g, 6) | NC_CHAR(h, 7))

/* ---- configuration: written by the collector on the running probe ---- */

#define NC_F_DEVICE 1u
#define NC_F_ADDRESS 2u
#define NC_F_PORT 4u
#define NC_F_PROTOCOL 8u
#define NC_F_NETNS 16u
#define NC_F_THRESHOLD 32u
#define NC_F_DETAILS 64u
#define NC_F_COUNTERS 128u  /* nothing but counters */
#define NC_F_BREAKER 256u   /* the runs of a window are bounded */
#define NC_F_PLACE (NC_F_DEVICE | NC_F_NETNS)
#define NC_F_FLOW (NC_F_ADDRESS | NC_F_PORT | NC_F_PROTOCOL)

struct nc_config {
    u32 flags;          /* NC_F_*: only filters that are set cost anything */
    u32 netns;          /* inode */
    u64 device[2];      /* name, zero padded */
    u64 address[2];     /* network byte order, IPv4 as ::ffff:a.b.c.d */
    u64 mask[2];
    u16 port;           /* host byte order */
    u8 protocol;
    u8 flow_shift;      /* details of one flow in 2^flow_shift */
    u8 pad[4];
    u64 threshold_ns;
    u64 event_every_ns; /* budget: one event per CPU and so many ns ... */
    u64 event_burst_ns; /* ... and this much saved up at most */
    u64 details_runs;   /* circuit breaker: runs of a window, all CPUs together, that may do the work of details ... */
    u64 rows_runs;      /* ... and that may do more than count; 0: all */
    u64 bound_ns;       /* ... and what all of them may take; 0: what they want */
    u64 extra[4];       /* knobs of one probe alone */
};
BPF_ARRAY(nc_config, struct nc_config, 1);

static inline struct nc_config *nc_config_get(void)
{
    int zero = 0;
    return nc_config.lookup(&zero);
}

/* A number that stands for a kernel object as long as the probe lives. The verifier lets a BTF-typed program compute nothing from a
 * pointer but its distance to another one: here to the configuration, which stays where it is. */
static inline u64 nc_number_of(struct nc_config *config, void *pointer)
{
    return (u64)pointer - (u64)config;
}

/* ---- accounting: per CPU ---- */

/* From 6.1 the kernel does not enter a raw tracepoint program that is running on this CPU already (it counts such runs as missed: the
 * ledger shows them), so what only one program writes needs a plain addition. Before, an interrupt could nest it: the addition must be
 * one instruction. The latter is also right for vendor kernels that took the guard over. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 1, 0)
#define nc_add(counter, n) (*(counter) += (n))
#else
#define nc_add(counter, n) __sync_fetch_and_add((counter), (n))
#endif

/* Counters of the manifest; a slot belongs to one program. */
BPF_PERCPU_ARRAY(nc_counters, u64, 32);

static inline void nc_count(u32 slot)
{
    u64 *counter = nc_counters.lookup(&slot);
    if (counter)
        nc_add(counter, 1);
}

enum nc_ledger_slot {
    NC_SEEN, NC_SUBMITTED, NC_SUPPRESSED, NC_LOST,      /* events */
    NC_MAP_FULL, NC_JOIN_MISSED, NC_PARSE_FAILED, NC_STACK_FAILED,
    NC_BREAKER,         /* events that were seen and suppressed by the circuit breaker: the collector adds them to both */
    NC_UNLISTED,        /* counted, but in no row, by the circuit breaker or in mode counters */
    NC_UNMEASURED,      /* counted, but not timed */
    NC_UNSAMPLED,       /* events that were seen and suppressed because of their flow: the collector adds them to both */
    NC_LEDGER_SLOTS = 16,
};
BPF_PERCPU_ARRAY(nc_ledger, u64, NC_LEDGER_SLOTS);

/* The programs of a probe share the ledger and may interrupt each other: always one instruction. */
static inline void nc_ledger_add_many(u32 slot, u64 n)
{
    u64 *entry = nc_ledger.lookup(&slot);
    if (entry)
        __sync_fetch_and_add(entry, n);
}

static inline void nc_ledger_add(u32 slot)
{
    nc_ledger_add_many(slot, 1);
}

/* ---- circuit breaker: what the collector cannot do in time, or not at all when it is starved, stopped or dead ----
 *
 * In each window only so many runs do the work of details, or more than count, and only for so long. Runs are handed out to the CPUs by
 * the grant: only then the clock is read, and the CPUs meet at one cache line. The bounds may be exceeded by a grant for each CPU. So that a
 * grant of a storm does not hold for the few packets after it, it ends with the eighth tick as well: reading those is a plain load (the
 * verifier inlines it).
 *
 * Timing every run would cost as much as many a run: one of each grant is timed, and stands for all of it. What was taken over the bound,
 * by counting too, is owed by the windows that follow.
 */

#define NC_WINDOW_SHIFT 27  /* of nanoseconds: 134 ms; no division */
#define NC_GRANT_RUNS 64
#define NC_GRANT_TIMED 62   /* left: the second run, for the first one reads the clock for all of them */
#define NC_GRANT_TICKS_SHIFT 3
#define NC_LONGEST_NS (1 << 14)     /* what took longer was interrupted: it does not stand for the others */
#define NC_CALL_NS 50       /* being called at all, which no run sees of itself */
#define NC_OWED_WINDOWS 8   /* at most: a second, so that details are back soon after a storm */
#define NC_ATTENDED 2       /* times the bound */

struct nc_window {
    u64 number;
    u64 runs;           /* that are over */
    u64 took_ns;        /* by them, and what the windows before took too much */
};
BPF_ARRAY(nc_window, struct nc_window, 1);

struct nc_grant {
    u64 ticks;
    u64 number;         /* of the window */
    u32 left;           /* runs */
    u32 flags;          /* what they may do: NC_F_DETAILS, NC_F_COUNTERS (no more than that) */
    u64 began_ns;       /* of the run that is being timed; 0: none is */
    u64 took_ns;        /* by the last one that was */
};

/* Runs that ask for their flags; and those that want to put what was counted into rows, in probes of several programs. */
enum { NC_FLAGS, NC_ROWS, NC_GRANTS };
BPF_PERCPU_ARRAY(nc_grant, struct nc_grant, NC_GRANTS);

/* Until which window somebody keeps the budget, by giving up in order and saying so: then the breaker leaves him room. */
BPF_ARRAY(nc_attended, u64, 1);

static inline u64 nc_bound_ns(struct nc_config *config, u64 number)
{
    int zero = 0;
    u64 *until = nc_attended.lookup(&zero);

    return until && number < *until ? config->bound_ns * NC_ATTENDED : config->bound_ns;
}

/* Advances every eighth tick of the kernel's clock. */
static inline u64 nc_grant_ticks(void)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 6, 0)
    return bpf_jiffies64() >> NC_GRANT_TICKS_SHIFT;
#else
    return bpf_ktime_get_ns() >> (20 + NC_GRANT_TICKS_SHIFT);
#endif
}

static inline void nc_window_begin(struct nc_window *window, u64 bound_ns, u64 number)
{
    u64 paid = bound_ns * (number - window->number), most = bound_ns * NC_OWED_WINDOWS;

    window->took_ns = window->took_ns > paid ? window->took_ns - paid : 0;
    if (window->took_ns > most)
        window->took_ns = most;
    window->number = number;
    window->runs = 0;
}

static inline void nc_grant_more(struct nc_config *config, struct nc_grant *grant, u64 ticks, u32 kind, u32 times)
{
    int zero = 0;
    struct nc_window *window = nc_window.lookup(&zero);
    u64 number = bpf_ktime_get_ns() >> NC_WINDOW_SHIFT, used = NC_GRANT_RUNS - grant->left;
    u64 bound_ns = nc_bound_ns(config, number);

    if (!window)
        return;
    if (window->number != number)       /* of several CPUs that come here at once, some grants may not be counted */
        nc_window_begin(window, bound_ns, number);
    if (grant->number == number) {      /* what is over counts, not what was handed out: many CPUs with a packet each are no storm */
        if (kind == NC_FLAGS)
            __sync_fetch_and_add(&window->runs, used);
        if (bound_ns)
            __sync_fetch_and_add(&window->took_ns, used * grant->took_ns * times);
    }
    grant->flags = window->runs < config->details_runs ? NC_F_DETAILS : 0;
    if (config->rows_runs && window->runs >= config->rows_runs)
        grant->flags |= NC_F_COUNTERS;
    if (bound_ns && window->took_ns >= bound_ns)
        grant->flags = NC_F_COUNTERS;
    grant->number = number;
    grant->ticks = ticks;
    grant->left = NC_GRANT_RUNS;
}

/* One run of the CPU's grant; it stands for so many that take as long. */
static inline struct nc_grant *nc_granted(struct nc_config *config, u32 kind, u32 times)
{
    struct nc_grant *grant = nc_grant.lookup(&kind);
    u64 ticks;

    if (!grant)
        return NULL;
    ticks = nc_grant_ticks();
    if (grant->ticks != ticks || !grant->left)
        nc_grant_more(config, grant, ticks, kind, times);
    if (--grant->left == NC_GRANT_TIMED && config->bound_ns)
        grant->began_ns = bpf_ktime_get_ns();
    return grant;
}

static inline void nc_grant_timed(struct nc_config *config, u32 kind)
{
    struct nc_grant *grant;
    u64 took_ns;

    if (!config->bound_ns)
        return;
    grant = nc_grant.lookup(&kind);
    if (!grant || !grant->began_ns)
        return;
    took_ns = bpf_ktime_get_ns() - grant->began_ns;
    grant->took_ns = NC_CALL_NS + (took_ns < NC_LONGEST_NS ? took_ns : NC_LONGEST_NS);
    grant->began_ns = 0;
}

/* The flags as they hold for this run: without details, or with nothing but counters, when the window's runs are used up. */
static inline u32 nc_flags(struct nc_config *config)
{
    struct nc_grant *grant;

    if (!(config->flags & NC_F_BREAKER))
        return config->flags;
    grant = nc_granted(config, NC_FLAGS, 1);
    if (!grant)
        return config->flags & ~NC_F_DETAILS;
    return (config->flags & ~NC_F_DETAILS) | (config->flags & grant->flags & NC_F_DETAILS) | (grant->flags & NC_F_COUNTERS);
}

/* The end of a run that asked for nc_flags. */
static inline void nc_leave(struct nc_config *config)
{
    nc_grant_timed(config, NC_FLAGS);
}

/* May what was counted go into rows and histograms? For probes that join what several programs see of a packet: those go on, for an end that
 * is not seen would leave a start behind, to be taken for that of another packet at the same address. So that what they take is in the
 * bound, too, a run counts twice. After either answer comes nc_listed. */
#define NC_TIMES_OF_A_ROW 2
static inline int nc_may_list(struct nc_config *config)
{
    struct nc_grant *grant = config->bound_ns ? nc_granted(config, NC_ROWS, NC_TIMES_OF_A_ROW) : NULL;

    if (!grant || !(grant->flags & NC_F_COUNTERS))
        return 1;
    nc_ledger_add(NC_UNLISTED);
    return 0;
}

static inline void nc_listed(struct nc_config *config)
{
    nc_grant_timed(config, NC_ROWS);
}

/* ---- histograms: eight slots per power of two, as netconsole.histogram counts them ---- */

struct nc_bucket {
    u64 count;
    u64 sum;
    u64 max;
    u64 min_inverted;   /* ~min, so that a bucket of zeros is an empty one */
};

static inline u32 nc_slot(u64 value)
{
    u64 rest = value;
    u32 power = 0;      /* of the highest bit */

    if (value < 8)
        return value;
    if (rest >> 32) { power += 32; rest >>= 32; }
    if (rest >> 16) { power += 16; rest >>= 16; }
    if (rest >> 8) { power += 8; rest >>= 8; }
    if (rest >> 4) { power += 4; rest >>= 4; }
    if (rest >> 2) { power += 2; rest >>= 2; }
    if (rest >> 1) power += 1;
    return (power - 2) * 8 + ((value >> (power - 3)) & 7);
}

/* bucket: what lookup_or_try_init gave, NULL when the map is full. */
static inline void nc_bucket_add(struct nc_bucket *bucket, u64 value)
{
    if (!bucket) {
        nc_ledger_add(NC_MAP_FULL);
        return;
    }
    nc_add(&bucket->count, 1);
    nc_add(&bucket->sum, value);
    if (value > bucket->max)
        bucket->max = value;
    if (~value > bucket->min_inverted)
        bucket->min_inverted = ~value;
}

/* The same, whole, for each CPU in an array: BPF_PERCPU_ARRAY(late, struct nc_cpu_histogram, n). For hooks so hot that the call which a
 * hash costs would be half of their time. */
#define NC_SLOTS 496    /* that a u64 can have */

struct nc_cpu_histogram {
    u64 sum;
    u64 max;
    u64 min_inverted;
    u64 counts[NC_SLOTS];
};

static inline void nc_cpu_histogram_add(struct nc_cpu_histogram *histogram, u64 value)
{
    u32 slot = nc_slot(value);

    if (!histogram || slot >= NC_SLOTS)
        return;
    nc_add(&histogram->counts[slot], 1);
    nc_add(&histogram->sum, value);
    if (value > histogram->max)
        histogram->max = value;
    if (~value > histogram->min_inverted)
        histogram->min_inverted = ~value;
}

/* ---- where: a device is its name and its network namespace, for an index is only unique inside one, and may be used again ---- */

struct nc_place {
    u64 device[2];      /* name */
    u32 netns;          /* inode */
    u32 pad;
};

static inline void nc_place_of(struct nc_place *place, struct net_device *dev)
{
    struct net *net = NC_GET(dev, nd_net.net);
#if NC_DIRECT
    place->device[0] = *(u64 *)&dev->name[0];
    place->device[1] = *(u64 *)&dev->name[8];
#else
    bpf_probe_read_kernel(place->device, sizeof(place->device), &dev->name);
#endif
    place->netns = NC_GET(net, ns.inum);
}

/* Does the packet's place pass the filters? */
static inline int nc_place_wanted(struct nc_config *config, struct nc_place *place)
{
    if (config->flags & NC_F_DEVICE && (place->device[0] != config->device[0] || place->device[1] != config->device[1]))
        return 0;
    return !(config->flags & NC_F_NETNS) || place->netns == config->netns;
}

/* ---- packets ---- */

#define NC_L4_NONE 0x100        /* not IP */
#define NC_L4_UNPARSED 0x101    /* IP whose headers could not be read */
#define NC_IPV6_EXTENSIONS 6    /* more than that is hostile */

struct nc_flow {
    u64 source[2];      /* network byte order, IPv4 as ::ffff:a.b.c.d */
    u64 target[2];
    u16 source_port;    /* host byte order; 0 when there is none, as in later fragments */
    u16 target_port;
    u16 ethertype;      /* behind VLAN tags */
    u16 vlan;           /* id of the outer tag; 0: none */
    u16 l4;             /* IP protocol, or NC_L4_* */
    u16 l4_at;          /* offset of the transport header from skb->head; 0: no ports to be read */
};

/* Where the linear data ends: a header that goes beyond is not read. */
static inline u32 nc_data_end(struct sk_buff *skb)
{
    return NC_GET(skb, tail);
}

static inline int nc_fits(struct sk_buff *skb, u32 at, u32 size)
{
    return at + size <= nc_data_end(skb);
}

static inline u64 nc_address_of(struct sk_buff *skb, u32 at)
{
    return (u64)NC_GET(skb, head) + at;
}

static inline int nc_load(void *to, u32 size, struct sk_buff *skb, u32 at)
{
    if (!nc_fits(skb, at, size))
        return -1;
    return bpf_probe_read_kernel(to, size, (void *)nc_address_of(skb, at));
}

static inline u16 nc_vlan(struct sk_buff *skb)
{
#if defined(HAVE_sk_buff___pkt_vlan_present_offset)
    /* up to 6.1 a bit says whether the tag is there; the lowest one, or the highest on big-endian machines */
    u8 flags = 0;
    bpf_probe_read_kernel(&flags, 1, &skb->__pkt_vlan_present_offset);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (!(flags & 1))
#else
    if (!(flags & 0x80))
#endif
        return 0;
#endif
    return NC_GET(skb, vlan_tci) & 0x0fff;
}

static inline int nc_is_tag(u16 ethertype)
{
    return ethertype == bpf_htons(0x8100) || ethertype == bpf_htons(0x88a8);
}

static inline void nc_map_ipv4(u64 *address, u32 ipv4)
{
    address[0] = 0;
    ((u32 *)address)[2] = bpf_htonl(0xffff);
    ((u32 *)address)[3] = ipv4;
}

static inline int nc_parse_ipv4(struct nc_flow *flow, struct sk_buff *skb, u32 at)
{
    if (!nc_fits(skb, at, sizeof(struct iphdr)))
        return -1;
    NC_HEADER(iphdr, BTF_ID_iphdr, ip, nc_address_of(skb, at));
    if (ip->version != 4 || ip->ihl < 5)
        return -1;
    flow->l4 = ip->protocol;
    nc_map_ipv4(flow->source, ip->saddr);
    nc_map_ipv4(flow->target, ip->daddr);
    if (!(ip->frag_off & bpf_htons(0x1fff)))
        flow->l4_at = at + ip->ihl * 4;
    return 0;
}

static inline int nc_parse_ipv6(struct nc_flow *flow, struct sk_buff *skb, u32 at)
{
    u8 next, later = 0;

    if (!nc_fits(skb, at, sizeof(struct ipv6hdr)))
        return -1;
    NC_HEADER(ipv6hdr, BTF_ID_ipv6hdr, ip, nc_address_of(skb, at));
    if (ip->version != 6)
        return -1;
    __builtin_memcpy(flow->source, &ip->saddr, 16);
    __builtin_memcpy(flow->target, &ip->daddr, 16);
    next = ip->nexthdr;
    at += sizeof(*ip);
#pragma unroll
    for (int i = 0; i < NC_IPV6_EXTENSIONS; i++) {
        u8 header[4];
        if (later || (next != 0 && next != 43 && next != 44 && next != 51 && next != 60))
            break;      /* hop-by-hop, routing, fragment, authentication, destination: RFC 8200, RFC 4302 */
        if (nc_load(header, sizeof(header), skb, at))
            return -1;
        if (next == 44)
            later = header[2] || header[3] & 0xf8;
        at += next == 44 ? 8 : next == 51 ? (header[1] + 2) * 4 : (header[1] + 1) * 8;
        next = header[0];
    }
    if (!later && (next == 0 || next == 43 || next == 44 || next == 51 || next == 60))
        return -1;
    flow->l4 = next;
    if (!later)
        flow->l4_at = at;
    return 0;
}

/* Network layer of a packet. Headers that cannot be read are counted, and the flow is NC_L4_UNPARSED. */
static inline void nc_parse(struct nc_flow *flow, struct sk_buff *skb)
{
    u32 at = NC_GET(skb, network_header);
    u16 mac, tag[2], ethertype = NC_GET(skb, protocol);
    int failed = 0;

    flow->vlan = nc_vlan(skb);
    flow->l4 = NC_L4_NONE;
    /* Not set yet on the way from the driver to the protocols: there the data begins with it (eth_type_trans). */
    if (at == 0 || at == 0xffff)
        at = NC_GET(skb, data) - NC_GET(skb, head);
    /* Tags that are still in the packet, 802.1ad outside 802.1Q. Newer kernels set the network header behind the tags of what came from
     * a packet socket (packet_parse_headers), others before: they are counted from the Ethernet header. */
    mac = NC_GET(skb, mac_header);
    if (nc_is_tag(ethertype) && mac != 0xffff)
        at = mac + 14;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (!nc_is_tag(ethertype))
            break;
        if (nc_load(tag, sizeof(tag), skb, at)) {
            failed = 1;
            break;
        }
        if (!flow->vlan)
            flow->vlan = bpf_ntohs(tag[0]) & 0x0fff;
        ethertype = tag[1];
        at += sizeof(tag);
    }
    flow->ethertype = bpf_ntohs(ethertype);
    if (flow->ethertype == 0x0800)
        failed = nc_parse_ipv4(flow, skb, at);
    else if (flow->ethertype == 0x86dd)
        failed = nc_parse_ipv6(flow, skb, at);
    if (failed) {
        nc_ledger_add(NC_PARSE_FAILED);
        flow->l4 = NC_L4_UNPARSED;
        flow->l4_at = 0;
    }
}

/* Ports, of what has them: TCP, UDP, SCTP, UDP-Lite, DCCP. Apart from nc_parse because it costs a second read. */
static inline void nc_parse_ports(struct nc_flow *flow, struct sk_buff *skb)
{
    u16 port[2];

    if (!flow->l4_at || (flow->l4 != 6 && flow->l4 != 17 && flow->l4 != 132 && flow->l4 != 136 && flow->l4 != 33))
        return;
    if (nc_load(port, sizeof(port), skb, flow->l4_at)) {
        nc_ledger_add(NC_PARSE_FAILED);
        return;
    }
    flow->source_port = bpf_ntohs(port[0]);
    flow->target_port = bpf_ntohs(port[1]);
}

static inline int nc_address_wanted(struct nc_config *config, u64 *address)
{
    return !((address[0] ^ config->address[0]) & config->mask[0] || (address[1] ^ config->address[1]) & config->mask[1]);
}

/* Does the flow pass the filters? Address and port may be those of either end. */
static inline int nc_flow_wanted(struct nc_config *config, struct nc_flow *flow)
{
    if (config->flags & NC_F_PROTOCOL && flow->l4 != config->protocol)
        return 0;
    if (config->flags & NC_F_PORT && flow->source_port != config->port && flow->target_port != config->port)
        return 0;
    return !(config->flags & NC_F_ADDRESS) || nc_address_wanted(config, flow->source) || nc_address_wanted(config, flow->target);
}

/* ---- events: a budgeted sample of details ---- */
#if NC_EVENTS

#if NC_RING
BPF_RINGBUF_OUTPUT(nc_events, 64);      /* pages */
#else
BPF_PERF_OUTPUT(nc_events);
#endif

/* Token bucket per CPU in its GCRA form (no division). */
struct nc_budget {
    u64 arrival_ns;     /* theoretical arrival time of the next event */
    u64 filling;        /* the record of this CPU is being filled: an interrupt must not fill it too */
    u64 began_ns;       /* when this was begun, in programs that are not timed as a whole; 0: in others */
};
BPF_PERCPU_ARRAY(nc_budget, struct nc_budget, 1);

static inline struct nc_budget *nc_budget_get(void)
{
    int zero = 0;
    return nc_budget.lookup(&zero);
}

/* Is there budget for an event now? Counts what is seen, and what is suppressed. After a yes comes nc_submit. */
static inline int nc_event_in_budget(struct nc_config *config, u64 now)
{
    struct nc_budget *budget = nc_budget_get();

    nc_ledger_add(NC_SEEN);
    if (!budget || budget->filling || budget->arrival_ns > now + config->event_burst_ns) {
        nc_ledger_add(NC_SUPPRESSED);
        return 0;
    }
    budget->filling = 1;
    budget->arrival_ns = (budget->arrival_ns > now ? budget->arrival_ns : now) + config->event_every_ns;
    return 1;
}

/* Details of one flow in so many: always the same ones, on every CPU and in both directions, so that what is seen of a flow is whole. */
#define NC_GOLDEN 0x9e3779b97f4a7c15ull
static inline int nc_flow_sampled(struct nc_config *config, u64 *source, u64 *target, u32 source_port, u32 target_port)
{
    u64 hash;

    if (!config->flow_shift)
        return 1;
    hash = (source[0] ^ source[1] ^ target[0] ^ target[1] ^ ((u64)source_port + target_port) << 32) * NC_GOLDEN;
    hash = (hash ^ hash >> 32) * NC_GOLDEN;
    if (!(hash >> (64 - config->flow_shift)))
        return 1;
    nc_ledger_add(NC_UNSAMPLED);
    return 0;
}

/* The same, within the circuit breaker's bounds: for programs that did not ask for nc_flags. Of those each event is timed: they are few. */
static inline int nc_event_allowed(struct nc_config *config, u64 now)
{
    struct nc_budget *budget;

    if (!(nc_flags(config) & NC_F_DETAILS)) {
        nc_ledger_add(NC_BREAKER);
        return 0;
    }
    if (!nc_event_in_budget(config, now))
        return 0;
    budget = nc_budget_get();
    if (budget)
        budget->began_ns = now;
    return 1;
}

static inline void nc_event_timed(u64 began_ns)
{
    int zero = 0;
    struct nc_window *window = nc_window.lookup(&zero);

    if (window)
        __sync_fetch_and_add(&window->took_ns, bpf_ktime_get_ns() - began_ns);
}

/* The one place where events leave: no wake-up, the collector comes to fetch them. */
static inline void nc_submit(void *ctx, void *record, u64 size)
{
    struct nc_budget *budget = nc_budget_get();
#if NC_RING
    long refused = nc_events.ringbuf_output(record, size, BPF_RB_NO_WAKEUP);
#else
    long refused = nc_events.perf_submit(ctx, record, size);
#endif
    nc_ledger_add(refused ? NC_LOST : NC_SUBMITTED);
    if (!budget)
        return;
    if (budget->began_ns)
        nc_event_timed(budget->began_ns);
    budget->began_ns = budget->filling = 0;
}

/* The kernel stack goes into the record itself: a stack map's slots are used again and then show the wrong stack. The helper fills what
 * the stack does not need with zeros (kernel/bpf/stackmap.c). */
static inline void nc_stack(void *ctx, u64 *stack, u32 size)
{
    if (bpf_get_stack(ctx, stack, size, 0) < 0)
        nc_ledger_add(NC_STACK_FAILED);
}
#endif /* NC_EVENTS */

#endif /* NETCONSOLE_H */
