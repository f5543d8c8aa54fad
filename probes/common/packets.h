/* packets.h - the device and the flow of a packet, and whether they pass the filters. */
#ifndef NETCONSOLE_PACKETS_H
#define NETCONSOLE_PACKETS_H

#include "kernel_memory.h"
#include "config.h"
#include "accounting.h"

/* ---- place: a device by its name and network namespace; an index is unique inside one namespace only, and is used again ---- */

struct nc_place {
    u64 device[2];      /* name */
    u32 netns;          /* inode */
    u32 pad;
};

static inline void nc_place_of(struct nc_place *place, struct net_device *dev)
{
    struct net *net = NC_GET(dev, nd_net.net);

    NC_NAME(place->device, dev);
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
#define NC_L4_UNIX 0x102        /* no packet: a message between processes of this host (AF_UNIX) */
#define NC_L4_UNPARSED 0x101    /* IP whose headers could not be read */
#define NC_IPV6_EXTENSIONS 6    /* a packet with more is hostile */

struct nc_flow {
    u64 source[2];      /* network byte order, IPv4 as ::ffff:a.b.c.d */
    u64 target[2];
    u16 source_port;    /* host byte order; 0: none, as in later fragments */
    u16 target_port;
    u16 ethertype;      /* after VLAN tags */
    u16 vlan;           /* id of the outer tag; 0: none */
    u16 l4;             /* IP protocol, or NC_L4_* */
    u16 l4_at;          /* offset of the transport header from skb->head; 0: there are no ports to read */
};

/* The end of the linear data. A header that goes beyond it is not read. */
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

/* Four bytes, which is the size of a tag, of two ports, and of the begin of an extension header. */
static inline int nc_load_4(void *to, struct sk_buff *skb, u32 at)
{
    if (!nc_fits(skb, at, 4))
        return -1;
    *(u32 *)to = NC_AT(u32, nc_address_of(skb, at));
    return 0;
}

static inline u16 nc_vlan(struct sk_buff *skb)
{
#if defined(HAVE_sk_buff___pkt_vlan_present_offset)
    u8 flags;

#if NC_DIRECT       /* To read the bit takes a call of a helper, to read this does not. 0: there never was a tag. */
    if (!NC_GET(skb, vlan_proto))
        return 0;
#endif
    /* Up to 6.1 a bit says whether there is a tag: the lowest one, or the highest on big-endian machines. */
    flags = NC_AT(u8, &skb->__pkt_vlan_present_offset);
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
        u8 header[4] __attribute__((aligned(4)));
        if (later || (next != 0 && next != 43 && next != 44 && next != 51 && next != 60))
            break;      /* hop-by-hop, routing, fragment, authentication, destination: RFC 8200, RFC 4302 */
        if (nc_load_4(header, skb, at))
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

/* Fills the flow, without ports. -1: headers cannot be read, and the flow's l4 is NC_L4_UNPARSED. */
static inline int nc_read_flow(struct nc_flow *flow, struct sk_buff *skb)
{
    u32 at = NC_GET(skb, network_header);
    u16 mac, tag[2] __attribute__((aligned(4))), ethertype = NC_GET(skb, protocol);
    int failed = 0;

    flow->vlan = nc_vlan(skb);
    flow->l4 = NC_L4_NONE;
    /* Between the driver and the protocols the network header is not set yet. There the data begin with it (eth_type_trans). */
    if (at == 0 || at == 0xffff)
        at = NC_GET(skb, data) - NC_GET(skb, head);
    /* Tags in the packet itself, 802.1ad outside 802.1Q. In packets from a packet socket, newer kernels set the network header after the
     * tags (packet_parse_headers), others before them: so tags are read from the Ethernet header on. */
    mac = NC_GET(skb, mac_header);
    if (nc_is_tag(ethertype) && mac != 0xffff)
        at = mac + 14;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (!nc_is_tag(ethertype))
            break;
        if (nc_load_4(tag, skb, at)) {
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
        flow->l4 = NC_L4_UNPARSED;
        flow->l4_at = 0;
    }
    return failed;
}

/* The same, and counts what cannot be read. */
static inline void nc_parse(struct nc_flow *flow, struct sk_buff *skb)
{
    if (nc_read_flow(flow, skb))
        nc_ledger_add(NC_PARSE_FAILED);
}

/* Adds the ports of TCP, UDP, SCTP, UDP-Lite and DCCP. -1: they cannot be read. */
static inline int nc_read_ports(struct nc_flow *flow, struct sk_buff *skb)
{
    u16 port[2] __attribute__((aligned(4)));

    if (!flow->l4_at || (flow->l4 != 6 && flow->l4 != 17 && flow->l4 != 132 && flow->l4 != 136 && flow->l4 != 33))
        return 0;
    if (nc_load_4(port, skb, flow->l4_at))
        return -1;
    flow->source_port = bpf_ntohs(port[0]);
    flow->target_port = bpf_ntohs(port[1]);
    return 0;
}

/* The same, and counts what cannot be read. Not part of nc_parse because it costs a second read. */
static inline void nc_parse_ports(struct nc_flow *flow, struct sk_buff *skb)
{
    if (nc_read_ports(flow, skb))
        nc_ledger_add(NC_PARSE_FAILED);
}

static inline int nc_address_wanted(struct nc_config *config, u64 *address)
{
    return !((address[0] ^ config->address[0]) & config->mask[0] || (address[1] ^ config->address[1]) & config->mask[1]);
}

static inline int nc_end_wanted(struct nc_end *end, u64 *address, u16 port)
{
    return !((address[0] ^ end->address[0]) & end->mask[0] || (address[1] ^ end->address[1]) & end->mask[1]) &&
        (!end->port || end->port == port);
}

/* Are both ends of a flow as the filter wants them? */
static inline int nc_ends_wanted(struct nc_config *config, u64 *source, u64 *target, u16 source_port, u16 target_port)
{
    if (!(config->flags & NC_F_ENDS))
        return 1;
    if (nc_end_wanted(&config->ends[0], source, source_port) && nc_end_wanted(&config->ends[1], target, target_port))
        return 1;
    return !(config->flags & NC_F_ONE_WAY) && nc_end_wanted(&config->ends[0], target, target_port) &&
        nc_end_wanted(&config->ends[1], source, source_port);
}

/* Does a port filter that names no end let these pass? */
static inline int nc_port_wanted(struct nc_config *config, u16 source_port, u16 target_port)
{
    return !config->port || source_port == config->port || target_port == config->port;
}

/* Does the flow pass the filters? A single address or port may be that of either end. */
static inline int nc_flow_wanted(struct nc_config *config, struct nc_flow *flow)
{
    if (config->flags & NC_F_PROTOCOL && flow->l4 != config->protocol)
        return 0;
    if (config->flags & NC_F_PORT && !nc_port_wanted(config, flow->source_port, flow->target_port))
        return 0;
    if (config->flags & (NC_F_VLAN | NC_F_ETHERTYPE) &&
        ((config->vlan && flow->vlan != config->vlan) || (config->ethertype && flow->ethertype != config->ethertype)))
        return 0;
    if (!nc_ends_wanted(config, flow->source, flow->target, flow->source_port, flow->target_port))
        return 0;
    return !(config->flags & NC_F_ADDRESS) || nc_address_wanted(config, flow->source) || nc_address_wanted(config, flow->target);
}

/* Is one of these the wanted one? `macs`: that of the one end, then that of the other. */
static inline int nc_macs_wanted(struct nc_config *config, u8 *macs)
{
    u64 one = 0, other = 0;

    __builtin_memcpy(&one, macs, 6);
    __builtin_memcpy(&other, macs + 6, 6);
    return one == config->mac || other == config->mac;
}

/* The same of the Ethernet header before the packet. Where the network header is not set yet, the data begin with it. */
static inline int nc_frame_wanted(struct nc_config *config, struct sk_buff *skb)
{
    u32 mac = NC_GET(skb, mac_header), data = (u64)NC_GET(skb, data) - (u64)NC_GET(skb, head);
    u8 macs[12];

    if (mac == 0xffff || (mac + 14 > NC_GET(skb, network_header) && mac + 14 > data) || nc_load(macs, sizeof(macs), skb, mac))
        return 0;
    return nc_macs_wanted(config, macs);
}

/* Do flow and Ethernet header of a packet pass the filters? */
static inline int nc_packet_wanted(struct nc_config *config, struct nc_flow *flow, struct sk_buff *skb)
{
    return nc_flow_wanted(config, flow) && (!(config->flags & NC_F_MAC) || nc_frame_wanted(config, skb));
}

#define NC_BEGIN 128

/* How a packet begins, for a file of packets. */
struct nc_begin {
    u16 captured;       /* bytes; 0: none */
    u16 link;           /* LINKTYPE_* of pcap: 1 Ethernet, 101 IP without a header of the link */
    u32 length;         /* of the whole packet, from there */
    u8 bytes[NC_BEGIN];
};

/* From the Ethernet header where it has one, else from the network header, which is at `at`. What is not linear is left out. */
static inline void nc_begin_at(struct nc_begin *begin, struct sk_buff *skb, u32 at)
{
    u32 mac = NC_GET(skb, mac_header), end = nc_data_end(skb);
    u32 data = (u64)NC_GET(skb, data) - (u64)NC_GET(skb, head), size;

    begin->link = 101;
    if (mac != 0xffff && mac + 14 <= at) {
        begin->link = 1;
        at = mac;
    }
    begin->captured = 0;
    if (at >= end)
        return;
    size = end - at;
    if (size > NC_BEGIN)
        size = NC_BEGIN;
    asm volatile("" : "+r"(size));      /* compilers drop what tells verifiers of old kernels the bound */
    size &= 2 * NC_BEGIN - 1;
    if (size > NC_BEGIN || bpf_probe_read_kernel(begin->bytes, size, (void *)nc_address_of(skb, at)))
        return;
    begin->captured = size;
    begin->length = NC_GET(skb, len) + data - at;
}

static inline void nc_begin_of(struct nc_begin *begin, struct sk_buff *skb)
{
    nc_begin_at(begin, skb, NC_GET(skb, network_header));
}

#endif /* NETCONSOLE_PACKETS_H */
