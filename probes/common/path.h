/* path.h - what the probes of a packet's way share: the packet behind its tunnel, its fingerprint, and the packets on their way. */
#ifndef NETCONSOLE_PATH_H
#define NETCONSOLE_PATH_H

#include "netconsole.h"

/* ---- the innermost packet: behind VLAN tags, VXLAN and Geneve ---- */

#define PATH_BYTES 64       /* an IPv6 header, and 24 bytes of what follows */
#define PATH_LAYERS 2       /* a packet in a tunnel */
#define PATH_VXLAN 4789     /* RFC 7348 */
#define PATH_VXLAN_LINUX 8472
#define PATH_GENEVE 6081    /* RFC 8926 */

struct path_packet {
    u64 bytes[PATH_BYTES / 8];  /* from its network header on; what is not in the linear data is 0 */
    u32 at;             /* offset of its network header from skb->head */
    u32 l4;             /* offset of its transport header from there; 0: none */
    u16 ethertype;      /* host byte order */
    u16 vlan;           /* outer tag of the outermost packet; 0: none */
    u8 version;         /* of IP; 0: another protocol, or a header that is not one */
    u8 protocol;
    u8 broken;          /* headers that could not be read */
    u8 pad;
};

static inline u8 path_byte(struct path_packet *packet, u32 n)
{
    return ((u8 *)packet->bytes)[n];
}

static inline u16 path_u16(struct path_packet *packet, u32 n)
{
    return bpf_ntohs(((u16 *)packet->bytes)[n / 2]);
}

static inline u32 path_u32(struct path_packet *packet, u32 n)
{
    return ((u32 *)packet->bytes)[n / 4];
}

/* Reads one network header; 0 when it is one of IP. */
static inline int path_read_layer(struct path_packet *packet, unsigned char *head, u32 end)
{
    u32 at = packet->at;
    u8 first;

    packet->version = 0;
    packet->protocol = 0;
    packet->l4 = 0;
    /* Read whole, for there is always skb_shared_info behind the data; what is behind the end is judged below. */
    if (at + 20 > end || bpf_probe_read_kernel(packet->bytes, sizeof(packet->bytes), head + at)) {
        packet->broken = 1;
        return -1;
    }
    first = path_byte(packet, 0);
    if (packet->ethertype == 0x0800 && first >> 4 == 4 && (first & 15) >= 5) {
        packet->version = 4;
        packet->protocol = path_byte(packet, 9);
        packet->l4 = (first & 15) * 4;
        return 0;
    }
    if (packet->ethertype == 0x86dd && first >> 4 == 6 && at + 40 <= end) {
        packet->version = 6;
        packet->protocol = path_byte(packet, 6);
        packet->l4 = 40;
        return 0;
    }
    packet->broken = packet->ethertype == 0x0800 || packet->ethertype == 0x86dd;
    return -1;
}

/* Goes to the network header of the packet that this one carries; 0 when it carries one. */
static inline int path_enter(struct path_packet *packet, unsigned char *head, u32 end)
{
    u32 udp = packet->version == 4 ? 20 : 40, at;
    u16 port, type = 0;
    u8 geneve[4] = {};

    if (packet->protocol != 17 || packet->l4 != udp)
        return -1;
    port = udp == 20 ? path_u16(packet, 22) : path_u16(packet, 42);
    at = packet->at + udp + 8 + 8;
    if (port == PATH_GENEVE) {
        if (at > end || bpf_probe_read_kernel(geneve, sizeof(geneve), head + at - 8))
            return -1;
        if (geneve[2] != 0x65 || geneve[3] != 0x58)     /* Ethernet inside */
            return -1;
        at += (geneve[0] & 0x3f) * 4;
    } else if (port != PATH_VXLAN && port != PATH_VXLAN_LINUX) {
        return -1;
    }
    if (at + 14 > end || bpf_probe_read_kernel(&type, sizeof(type), head + at + 12))
        return -1;
    packet->ethertype = bpf_ntohs(type);
    packet->at = at + 14;
    return 0;
}

static inline int path_skip_tags(struct path_packet *packet, unsigned char *head, u32 end, int outer)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        u16 tag[2];
        if (packet->ethertype != 0x8100 && packet->ethertype != 0x88a8)
            return 0;
        if (packet->at + sizeof(tag) > end || bpf_probe_read_kernel(tag, sizeof(tag), head + packet->at))
            return -1;
        if (outer && !packet->vlan)
            packet->vlan = bpf_ntohs(tag[0]) & 0x0fff;
        packet->ethertype = bpf_ntohs(tag[1]);
        packet->at += sizeof(tag);
    }
    return 0;
}

/* What is read of an sk_buff before its headers: offsets are from `head`. */
struct path_buffer {
    unsigned char *head;
    u32 data;
    u32 end;            /* of the linear data */
    u32 network;
    u32 inner;          /* network header of the packet inside; 0: not set */
    u16 ethertype;
    u16 vlan;
};

static inline void path_read_buffer(struct path_packet *packet, struct path_buffer *buffer, int sent, int innermost)
{
    unsigned char *head = buffer->head;
    u32 end = buffer->end;

    packet->broken = 0;
    packet->vlan = buffer->vlan;
    packet->ethertype = buffer->ethertype;
    packet->at = buffer->data;
    if (sent && (packet->ethertype == 0x8100 || packet->ethertype == 0x88a8))
        packet->at = buffer->data + 14;     /* where the network header is then has changed between kernels */
    else if (sent)
        packet->at = buffer->network;
    if (sent && innermost && buffer->inner > buffer->network && buffer->inner < end) {
        u8 first = 0;
        bpf_probe_read_kernel(&first, 1, head + buffer->inner);
        packet->at = buffer->inner;
        packet->ethertype = first >> 4 == 4 ? 0x0800 : first >> 4 == 6 ? 0x86dd : 0;
        path_read_layer(packet, head, end);
        return;
    }
#pragma unroll
    for (int i = 0; i < PATH_LAYERS; i++) {
        if (path_skip_tags(packet, head, end, i == 0)) {
            packet->broken = 1;
            return;
        }
        if (path_read_layer(packet, head, end) || !innermost || path_enter(packet, head, end))
            return;
    }
    if (path_skip_tags(packet, head, end, 0) == 0)
        path_read_layer(packet, head, end);
}

/* The innermost packet; `sent`: it is being sent (its data begin with the link header), else it has just been received. */
static inline void path_read(struct path_packet *packet, struct sk_buff *skb, int sent, int innermost)
{
    unsigned char *head = NC_GET(skb, head);
    struct path_buffer buffer = {
        .head = head,
        .data = (u64)NC_GET(skb, data) - (u64)head,
        .end = NC_GET(skb, tail),
        .network = NC_GET(skb, network_header),
        .inner = NC_GET(skb, inner_network_header),
        .ethertype = bpf_ntohs(NC_GET(skb, protocol)),
        .vlan = nc_vlan(skb),
    };

    path_read_buffer(packet, &buffer, sent, innermost);
}

/* The same of a packet inside a switch, in a program that cannot be BTF-typed because its tracepoint is a module's. */
static inline void path_read_switched(struct path_packet *packet, struct sk_buff *skb, u32 *end)
{
    unsigned char *head = NC_READ(skb, head);
    struct path_buffer buffer = {
        .head = head,
        .data = (u64)NC_READ(skb, data) - (u64)head,
        .end = NC_READ(skb, tail),
        .network = NC_READ(skb, network_header),
        .inner = NC_READ(skb, inner_network_header),
        .ethertype = bpf_ntohs(NC_READ(skb, protocol)),
    };

    *end = buffer.end;
    path_read_buffer(packet, &buffer, 1, 1);
}

/* ---- the fingerprint: what neither a switch, a router, NAT nor a tunnel changes. It does not find a packet, it checks that the one
 * at a known address is still the same. 0: that part could not be read. ---- */

struct path_print {
    u32 network;
    u32 transport;
};

static inline u32 path_mix(u64 value)
{
    value *= 0x9e3779b97f4a7c15ULL;
    return (value >> 32) | 1;
}

static inline void path_print_of(struct path_print *print, struct path_packet *packet, u32 end)
{
    print->network = print->transport = 0;
    if (packet->broken && !packet->version)
        return;
    if (packet->version == 4) {
        print->network = path_mix((u64)path_u16(packet, 4) << 32 | (path_u16(packet, 6) & 0x1fff) << 8 | packet->protocol);
        if (packet->l4 == 20 && packet->protocol == 6 && packet->at + 32 <= end)
            print->transport = path_mix(packet->bytes[3]);                                  /* sequence, acknowledgement */
        else if (packet->l4 == 20 && packet->at + 36 <= end)
            print->transport = path_mix((u64)path_u32(packet, 28) << 32 | path_u32(packet, 32));    /* begin of the payload */
    } else if (packet->version == 6) {
        print->network = path_mix((u64)(path_u32(packet, 0) & bpf_htonl(0x000fffff)) << 8 | packet->protocol);
        if (packet->protocol == 6 && packet->at + 52 <= end)
            print->transport = path_mix((u64)path_u32(packet, 44) << 32 | path_u32(packet, 48));
        else if (packet->at + 56 <= end)
            print->transport = path_mix(packet->bytes[6]);
    } else {
        print->network = path_mix(packet->bytes[0] ^ packet->bytes[1] * 31);
    }
}

static inline int path_same(struct path_print *a, struct path_print *b)
{
    return (!a->network || !b->network || a->network == b->network) && (!a->transport || !b->transport || a->transport == b->transport);
}

/* Addresses, protocol and ports of the innermost packet. */
static inline void path_flow_of(struct nc_flow *flow, struct path_packet *packet, struct sk_buff *skb)
{
    int ports, broken = packet->broken;

    __builtin_memset(flow, 0, sizeof(*flow));
    flow->ethertype = packet->ethertype;
    flow->vlan = packet->vlan;
    flow->l4 = packet->version ? packet->protocol : NC_L4_NONE;
    if (packet->version == 4) {
        nc_map_ipv4(flow->source, path_u32(packet, 12));
        nc_map_ipv4(flow->target, path_u32(packet, 16));
        if (!(path_u16(packet, 6) & 0x1fff))
            flow->l4_at = packet->at + packet->l4;
    } else if (packet->version == 6) {
        __builtin_memcpy(flow->source, &packet->bytes[1], 16);
        __builtin_memcpy(flow->target, &packet->bytes[3], 16);
        flow->l4_at = packet->at + packet->l4;
        if (packet->protocol == 0 || packet->protocol == 43 || packet->protocol == 44 || packet->protocol == 51 || packet->protocol == 60) {
            flow->l4_at = 0;
            broken = nc_parse_ipv6(flow, skb, packet->at);
        }
    }
    if (broken) {
        flow->l4 = NC_L4_UNPARSED;
        flow->l4_at = 0;
        return;
    }
    ports = flow->l4 == 6 || flow->l4 == 17 || flow->l4 == 132 || flow->l4 == 136 || flow->l4 == 33;
    if (ports && packet->l4 == 20 && flow->l4_at == packet->at + 20) {
        flow->source_port = path_u16(packet, 20);
        flow->target_port = path_u16(packet, 22);
    } else if (ports && packet->version == 6 && flow->l4_at == packet->at + 40) {
        flow->source_port = path_u16(packet, 40);
        flow->target_port = path_u16(packet, 42);
    } else if (ports) {
        nc_parse_ports(flow, skb);
    }
}

#define PATH_NEVER_CUT 576      /* two segments of the smallest usual size (RFC 9293, 536 bytes) are longer */

/* Packets on the wire that this one stands for: a packet that was merged (GRO) or is yet to be cut (GSO) stands for several. */
static inline u32 path_packets(struct sk_buff *skb, struct path_packet *packet)
{
    u16 gso[2] = {};        /* size, segments (which tun leaves 0) */
    u32 end = NC_GET(skb, end), length = NC_GET(skb, len);
    unsigned char *head = NC_GET(skb, head);
    s32 payload;            /* the headers before it may have been taken off already */
    u8 offset = 0;

    if (length <= PATH_NEVER_CUT)
        return 1;
    bpf_probe_read_kernel(gso, sizeof(gso), head + end + offsetof(struct skb_shared_info, gso_size));
    if (!gso[0])
        return 1;
    payload = length - (s32)(packet->at + packet->l4 - ((u64)NC_GET(skb, data) - (u64)head));
    if (packet->protocol == 6) {
        bpf_probe_read_kernel(&offset, 1, head + packet->at + packet->l4 + 12);
        payload -= (offset >> 4) * 4;
    } else {
        payload -= 8;
    }
    return payload > 0 ? ((u32)payload + gso[0] - 1) / gso[0] : 1;
}

/* ---- packets on their way, by address: an array of sets, because its look-up is inlined. A place is taken over by the next packet with
 * that address, or by another when the set is full: the one that is longest under way gives way, and both cases are told apart.
 * Two CPUs that begin in one set in the same nanoseconds may take the same place; the one overwritten is found missing at its end. ---- */

#define PATH_WAY_SETS 4096
#define PATH_WAYS 4
#define PATH_MOMENTS 5

enum path_state { PATH_FREE, PATH_UNDER_WAY, PATH_OVER };

struct path_way {
    u64 address;
    u64 since_ns;
    u64 moment_ns[PATH_MOMENTS];    /* of the probe's own; 0: has not come */
    u64 spent_ns;           /* of the probe's own */
    u64 device[2];
    struct path_print print;
    u16 set;
    u16 mark;               /* of the probe's own */
    u32 state;
};
struct path_way_set {
    struct path_way way[PATH_WAYS];
};
BPF_ARRAY(path_ways, struct path_way_set, PATH_WAY_SETS);

static inline struct path_way_set *path_ways_of(u64 address)
{
    u32 index = address * 0x9e3779b97f4a7c15ull >> 52;      /* Fibonacci hashing, 12 bits */
    return path_ways.lookup(&index);
}

/* The packet's way, under way or over; NULL when it is not known. */
static inline struct path_way *path_find(u64 address)
{
    struct path_way_set *set = path_ways_of(address);

    if (!set)
        return NULL;
#pragma unroll
    for (int i = 0; i < PATH_WAYS; i++)
        if (set->way[i].address == address)
            return &set->way[i];
    return NULL;
}

/* A place for a packet that begins: its own, or a free one, or that of a way that is over, or the oldest. */
static inline struct path_way *path_place(u64 address)
{
    struct path_way_set *set = path_ways_of(address);
    u32 chosen = 0;

    if (!set)
        return NULL;
#pragma unroll
    for (u32 i = 0; i < PATH_WAYS; i++) {
        if (set->way[i].address == address)
            return &set->way[i];
        if (set->way[i].state != PATH_UNDER_WAY) {
            if (set->way[chosen].state == PATH_UNDER_WAY)
                chosen = i;
        } else if (set->way[chosen].state == PATH_UNDER_WAY && set->way[i].since_ns < set->way[chosen].since_ns) {
            chosen = i;
        }
    }
    return &set->way[chosen & (PATH_WAYS - 1)];
}

/* The address of a packet as a number: the verifier lets no program calculate with a pointer, but one may be stored, and read again. */
static inline u64 path_address(u64 *room, void *skb)
{
    *(volatile u64 *)room = (u64)skb;
    return *(volatile u64 *)room;
}

/* Another CPU's clock may read a little less: a duration never wraps. */
static inline u64 path_between(u64 from, u64 to)
{
    return to > from ? to - from : 0;
}

#endif /* NETCONSOLE_PATH_H */
