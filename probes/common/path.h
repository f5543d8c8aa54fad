/* path.h - following a packet through the host: its innermost headers, its fingerprint, and the table of packets in transit. */
#ifndef NETCONSOLE_PATH_H
#define NETCONSOLE_PATH_H

#include "netconsole.h"
#include "resumed.h"

/* ---- the innermost packet: inside VLAN tags, VXLAN and Geneve ---- */

#define PATH_BYTES 64       /* an IPv6 header, and 24 bytes of what follows */
#define PATH_LAYERS 2       /* a packet, and one that it carries in a tunnel */
#define PATH_VXLAN 4789     /* RFC 7348 */
#define PATH_VXLAN_LINUX 8472
#define PATH_GENEVE 6081    /* RFC 8926 */

struct path_packet {
    u64 bytes[PATH_BYTES / 8];  /* from the network header on; bytes outside the linear data are 0 */
    u32 at;             /* offset of the network header from skb->head */
    u32 l4;             /* offset of the transport header from the network header; 0: none */
    u16 ethertype;      /* host byte order */
    u16 vlan;           /* outer tag of the outermost packet; 0: none */
    u8 version;         /* of IP; 0: another protocol, or no valid IP header */
    u8 protocol;
    u8 broken;          /* 1: the headers could not be read */
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

/* Reads one network header. Returns 0 for IPv4 and IPv6, -1 otherwise. */
static inline int path_read_layer(struct path_packet *packet, unsigned char *head, u32 end)
{
    u32 at = packet->at;
    u8 first;

    packet->version = 0;
    packet->protocol = 0;
    packet->l4 = 0;
    /* All bytes are read at once: skb_shared_info always follows the data. What lies behind the end is checked below. */
    if (at + 20 > end || NC_COPY(packet->bytes, sizeof(packet->bytes), head + at)) {
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

/* Moves to the network header of the packet that this one carries in a tunnel. Returns 0 when there is one, else -1. */
static inline int path_enter_tunnel(struct path_packet *packet, unsigned char *head, u32 end)
{
    u32 udp = packet->version == 4 ? 20 : 40, at;
    u16 port, type;
    u32 geneve;

    if (packet->protocol != 17 || packet->l4 != udp)
        return -1;
    port = udp == 20 ? path_u16(packet, 22) : path_u16(packet, 42);
    at = packet->at + udp + 8 + 8;
    if (port == PATH_GENEVE) {
        if (at > end)
            return -1;
        geneve = bpf_ntohl(NC_AT(u32, head + at - 8));
        if ((geneve & 0xffff) != 0x6558)        /* Ethernet inside */
            return -1;
        at += (geneve >> 24 & 0x3f) * 4;
    } else if (port != PATH_VXLAN && port != PATH_VXLAN_LINUX) {
        return -1;
    }
    if (at + 14 > end)
        return -1;
    type = NC_AT(u16, head + at + 12);
    packet->ethertype = bpf_ntohs(type);
    packet->at = at + 14;
    return 0;
}

static inline int path_skip_tags(struct path_packet *packet, unsigned char *head, u32 end, int outer)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        u32 tag;
        if (packet->ethertype != 0x8100 && packet->ethertype != 0x88a8)
            return 0;
        if (packet->at + sizeof(tag) > end)
            return -1;
        tag = bpf_ntohl(NC_AT(u32, head + packet->at));
        if (outer && !packet->vlan)
            packet->vlan = tag >> 16 & 0x0fff;
        packet->ethertype = tag;
        packet->at += sizeof(tag);
    }
    return 0;
}

/* The members of an sk_buff that say where its headers are. Offsets count from `head`. */
struct path_buffer {
    unsigned char *head;
    u32 data;
    u32 end;            /* of the linear data */
    u32 network;
    u32 inner;          /* network header of the packet inside a tunnel; 0: not set */
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
        packet->at = buffer->data + 14;     /* kernels differ in where the network header is then */
    else if (sent)
        packet->at = buffer->network;
    if (sent && innermost && buffer->inner > buffer->network && buffer->inner < end) {
        u8 first = NC_AT(u8, head + buffer->inner);
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
        if (path_read_layer(packet, head, end) || !innermost || path_enter_tunnel(packet, head, end))
            return;
    }
    if (path_skip_tags(packet, head, end, 0) == 0)
        path_read_layer(packet, head, end);
}

static inline void path_buffer_of(struct path_buffer *buffer, struct sk_buff *skb)
{
    buffer->head = NC_GET(skb, head);
    buffer->data = (u64)NC_GET(skb, data) - (u64)buffer->head;
    buffer->end = NC_GET(skb, tail);
    buffer->network = NC_GET(skb, network_header);
    buffer->inner = NC_GET(skb, inner_network_header);
    buffer->ethertype = bpf_ntohs(NC_GET(skb, protocol));
    buffer->vlan = nc_vlan(skb);
}

/* Reads the headers of a packet. `sent`: it is being sent, and its data begin with the link header; 0: it was just received.
 * `innermost`: those of the packet inside a tunnel, where there is one. */
static inline void path_read(struct path_packet *packet, struct sk_buff *skb, int sent, int innermost)
{
    struct path_buffer buffer;

    path_buffer_of(&buffer, skb);
    path_read_buffer(packet, &buffer, sent, innermost);
}

/* The same for a packet inside Open vSwitch. Tracepoints of a module cannot have BTF-typed programs: kernel memory is read by NC_READ. */
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

/* ---- the fingerprint of a packet ----
 *
 * It is made of header fields that no switch, router, NAT or tunnel changes. It does not find a packet: it checks that the sk_buff at
 * a known address still holds the same packet. 0: that part could not be read. */

struct path_fingerprint {
    u32 network;
    u32 transport;
};

static inline u32 path_hash(u64 value)
{
    value *= 0x9e3779b97f4a7c15ULL;
    return (value >> 32) | 1;
}

static inline void path_fingerprint_of(struct path_fingerprint *fingerprint, struct path_packet *packet, u32 end)
{
    fingerprint->network = fingerprint->transport = 0;
    if (packet->broken && !packet->version)
        return;
    if (packet->version == 4) {
        fingerprint->network = path_hash((u64)path_u16(packet, 4) << 32 | (path_u16(packet, 6) & 0x1fff) << 8 | packet->protocol);
        if (packet->l4 == 20 && packet->protocol == 6 && packet->at + 32 <= end)
            fingerprint->transport = path_hash(packet->bytes[3]);   /* sequence and acknowledgement numbers */
        else if (packet->l4 == 20 && packet->at + 36 <= end)
            fingerprint->transport = path_hash((u64)path_u32(packet, 28) << 32 | path_u32(packet, 32));    /* first bytes of the payload */
    } else if (packet->version == 6) {
        fingerprint->network = path_hash((u64)(path_u32(packet, 0) & bpf_htonl(0x000fffff)) << 8 | packet->protocol);
        if (packet->protocol == 6 && packet->at + 52 <= end)
            fingerprint->transport = path_hash((u64)path_u32(packet, 44) << 32 | path_u32(packet, 48));
        else if (packet->at + 56 <= end)
            fingerprint->transport = path_hash(packet->bytes[6]);
    } else {
        fingerprint->network = path_hash(packet->bytes[0] ^ packet->bytes[1] * 31);
    }
}

static inline int path_same_packet(struct path_fingerprint *a, struct path_fingerprint *b)
{
    return (!a->network || !b->network || a->network == b->network) && (!a->transport || !b->transport || a->transport == b->transport);
}

/* Addresses and protocol of the innermost packet. Returns 1 where extension headers of IPv6 follow, which were not read. */
static inline int path_flow_begin(struct nc_flow *flow, struct path_packet *packet)
{
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
            return 1;
        }
    }
    return 0;
}

static inline void path_flow_broken(struct nc_flow *flow)
{
    flow->l4 = NC_L4_UNPARSED;
    flow->l4_at = 0;
}

/* The ports, where the bytes that were read have them. Returns 1 where they are behind those, at l4_at. */
static inline int path_flow_ports(struct nc_flow *flow, struct path_packet *packet)
{
    if (flow->l4 != 6 && flow->l4 != 17 && flow->l4 != 132 && flow->l4 != 136 && flow->l4 != 33)
        return 0;
    if (packet->l4 == 20 && flow->l4_at == packet->at + 20) {
        flow->source_port = path_u16(packet, 20);
        flow->target_port = path_u16(packet, 22);
    } else if (packet->version == 6 && flow->l4_at == packet->at + 40) {
        flow->source_port = path_u16(packet, 40);
        flow->target_port = path_u16(packet, 42);
    } else {
        return flow->l4_at != 0;
    }
    return 0;
}

/* Addresses, protocol and ports of the innermost packet. */
static inline void path_flow_of(struct nc_flow *flow, struct path_packet *packet, struct sk_buff *skb)
{
    int broken = packet->broken;

    if (path_flow_begin(flow, packet))
        broken = nc_parse_ipv6(flow, skb, packet->at);
    if (broken)
        path_flow_broken(flow);
    else if (path_flow_ports(flow, packet))
        nc_parse_ports(flow, skb);
}

#define PATH_NEVER_CUT 576      /* two segments of the smallest usual size (RFC 9293, 536 bytes) are longer */

/* How many bytes each of the packets has that this sk_buff stands for; 0: it is one. Tun leaves their number 0. */
static inline u16 path_gso_size(struct sk_buff *skb)
{
    u32 end = NC_GET(skb, end);
    unsigned char *head = NC_GET(skb, head);

    return NC_GET(skb, len) <= PATH_NEVER_CUT ? 0 : NC_AT(u16, head + end + offsetof(struct skb_shared_info, gso_size));
}

/* How many packets on the wire this sk_buff stands for: several when GRO has merged them, or when GSO will segment it. */
static inline u32 path_packets(struct sk_buff *skb, struct path_packet *packet)
{
    u32 length = NC_GET(skb, len);
    unsigned char *head = NC_GET(skb, head);
    s32 payload;            /* its headers may have been pulled already */
    u16 size = path_gso_size(skb);

    if (!size)
        return 1;
    payload = length - (s32)(packet->at + packet->l4 - ((u64)NC_GET(skb, data) - (u64)head));
    payload -= packet->protocol == 6 ? (NC_AT(u8, head + packet->at + packet->l4 + 12) >> 4) * 4 : 8;
    return payload > 0 ? ((u32)payload + size - 1) / size : 1;
}

/* ---- packets in transit, by the address of their sk_buff ----
 *
 * A set-associative table in an array map, whose look-up the verifier inlines. An entry is taken over by the next packet with the same
 * address. When a set is full, the packet that is longest in transit is evicted. The probes count both cases. Two CPUs that claim an
 * entry of one set in the same nanoseconds may get the same one: the packet that was overwritten is missing when it leaves. So each prefers
 * an entry of its own; CPUs whose numbers differ by a multiple of PATH_WAYS have the same. */

#define PATH_SETS 4096
#define PATH_WAYS 4
#define PATH_POINTS 5

enum path_state { PATH_FREE, PATH_IN_TRANSIT, PATH_DONE };

struct path_transit {
    u64 address;
    u64 since_ns;
    u64 point_ns[PATH_POINTS];  /* when it passed each of the probe's own points; 0: not yet */
    u64 conntrack_ns;   /* time in conntrack so far, where the probe measures it */
    u64 device[2];
    struct path_fingerprint fingerprint;
    u64 origin;         /* path_origin of where it came in, or another of the probe's own; 0: not known */
    u16 set;            /* of devices, or another kind of the probe's own */
    u16 tag;            /* of the probe's own */
    u16 state;
    u16 unlisted;       /* 1: it is only counted */
};
struct path_set {
    struct path_transit entry[PATH_WAYS];
};
BPF_ARRAY(path_sets, struct path_set, PATH_SETS);

static inline struct path_set *path_set_of(u64 address)
{
    u32 index = address * 0x9e3779b97f4a7c15ull >> 52;      /* Fibonacci hashing, 12 bits */
    return path_sets.lookup(&index);
}

/* The entry of the packet at this address, in transit or done. NULL: there is none, or it is from before the programs were attached again:
 * another packet may have had this address since. */
static inline struct path_transit *path_find(u64 address)
{
    struct path_set *set = path_set_of(address);
    struct path_transit *found = NULL;

    if (!set)
        return NULL;
#pragma unroll
    for (int i = 0; i < PATH_WAYS; i++)
        if (set->entry[i].address == address) {
            found = &set->entry[i];
            break;
        }
    return found && (!found->since_ns || found->since_ns >= nc_resumed_ns()) ? found : NULL;
}

/* An entry for a packet that enters: that of its address, else one that is not in transit (the CPU's own first), else the oldest one. */
static inline struct path_transit *path_claim(u64 address)
{
    struct path_set *set = path_set_of(address);
    struct path_transit *chosen;

    if (!set)
        return NULL;
    chosen = &set->entry[bpf_get_smp_processor_id() & (PATH_WAYS - 1)];
#pragma unroll
    for (u32 i = 0; i < PATH_WAYS; i++) {
        if (set->entry[i].address == address)
            return &set->entry[i];
        if (chosen->state == PATH_IN_TRANSIT &&
            (set->entry[i].state != PATH_IN_TRANSIT || set->entry[i].since_ns < chosen->since_ns))
            chosen = &set->entry[i];
    }
    return chosen;
}

/* Filters keep out the packet that has come to this device at this address. A followed packet that came there before is gone, and must not
 * end with this one, which may look like it: it is sent again, and the filters were others then. Was there one? */
static inline int path_keep_out(u64 address, u64 *device)
{
    struct path_transit *transit = path_find(address);

    if (!transit || transit->state != PATH_IN_TRANSIT || transit->device[0] != device[0] || transit->device[1] != device[1])
        return 0;
    transit->state = PATH_FREE;
    return 1;
}

/* The address of a packet as a number, with which the verifier allows arithmetic. */
static inline u64 path_address(void *skb)
{
    return (u64)nc_number((u64)skb);
}

/* The device on which a packet is received, as the kernel keeps it in the packet (skb_iif). */
static inline u64 path_origin(struct nc_config *config, struct net *net, u32 ifindex)
{
    return nc_number_of(config, net) ^ (u64)ifindex << 32;
}

/* Does this packet say that it came in where that of the transit did? 0: it is not known, for upper devices, tunnels and other namespaces
 * change what it says. */
static inline int path_came_there(struct path_transit *transit, struct nc_config *config, struct sk_buff *skb, struct net_device *dev)
{
    u32 ifindex = NC_GET(skb, skb_iif);

    return ifindex && transit->origin == path_origin(config, NC_GET(dev, nd_net.net), ifindex);
}

/* Clocks of two CPUs may differ a little: a duration that would be negative is 0. */
static inline u64 path_elapsed(u64 from, u64 to)
{
    return to > from ? to - from : 0;
}

#endif /* NETCONSOLE_PATH_H */
