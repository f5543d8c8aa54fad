/* ovs.h - Open vSwitch's kernel datapath: its ports, and packets as its own parser sees them (net/openvswitch/flow.h, struct sw_flow_key).
 *
 * The datapath parses every packet before an upcall, and parses the copy that user space sends back once more. The keys of both are the
 * same, whatever was on the wire. Private structures are read by the module's own BTF.
 */
#ifndef NETCONSOLE_OVS_H
#define NETCONSOLE_OVS_H

#include "netconsole.h"

#define OVS_BUCKETS 1024    /* of ports (datapath.h, DP_VPORT_HASH_BUCKETS): only ports whose numbers differ by 1024 share one */
#define OVS_CHAIN 4
#define OVS_LOCAL_PORT 0    /* OVSP_LOCAL */

/* A port of a datapath by its number, as ovs_lookup_vport finds it. NULL: not found. */
static inline struct vport *ovs_port_numbered(struct datapath *dp, u32 number)
{
    struct hlist_head *buckets = NC_READ(dp, ports);
    struct hlist_node *node = NC_READ(&buckets[number & (OVS_BUCKETS - 1)], first);

#pragma unroll
    for (int i = 0; i < OVS_CHAIN && node; i++) {
        struct vport *vport = (void *)node - offsetof(struct vport, dp_hash_node);
        if (NC_READ(vport, port_no) == number)
            return vport;
        node = NC_READ(node, next);
    }
    return NULL;
}

/* The datapath's own port. Its name is the datapath's name (ovs_dp_name). */
static inline struct vport *ovs_local_port(struct datapath *dp)
{
    return ovs_port_numbered(dp, OVS_LOCAL_PORT);
}

static inline void ovs_datapath_name(u64 *name, struct datapath *dp)
{
    struct vport *vport = ovs_local_port(dp);
    struct net_device *dev = vport ? NC_READ(vport, dev) : NULL;

    if (dev)
        NC_COPY(name, 16, &dev->name);
}

/* The port of a device: of a link, by its receive handler, or an internal port. NULL: the device is no port. What is read is believed
 * only when it points back to the device. */
static inline struct vport *ovs_port_of(struct net_device *dev)
{
    struct vport *vport = (void *)NC_READ(dev, rx_handler_data);
#ifdef HAVE_net_device_priv
    struct internal_dev *internal = (void *)dev + offsetof(struct net_device, priv);
#else
    struct internal_dev *internal = (void *)dev + ((sizeof(struct net_device) + 31) & ~31);     /* netdev_priv */
#endif

    if (vport && NC_READ(vport, dev) == dev)
        return vport;
    vport = NC_READ(internal, vport);
    return vport && NC_READ(vport, dev) == dev ? vport : NULL;
}

/* The port by which the packet came in, and its device, from the packet's control block. NULL when that port is not of this datapath. */
static inline struct vport *ovs_input_port(struct sk_buff *skb, struct datapath *dp, struct net_device **dev)
{
    struct ovs_skb_cb *cb = (void *)skb + offsetof(struct sk_buff, cb);
    struct vport *vport = NC_READ(cb, input_vport);
    NC_SPAN(struct vport, port, dev, dp, vport);

    *dev = NULL;
    if (!vport || NC_OF(port, dp) != dp)
        return NULL;
    *dev = NC_OF(port, dev);
    return vport;
}

/* ---- the flow of a packet ---- */

struct ovs_flow {
    u64 source[2];      /* IPv4 as ::ffff:a.b.c.d; of ARP its protocol addresses */
    u64 target[2];
    u16 source_port;    /* host byte order; type and code of ICMP */
    u16 target_port;
    u16 ethertype;
    u16 vlan;           /* outer tag, with the bit that says that there is one; network byte order */
    u16 cvlan;
    u16 in_port;
    u32 recirculation;
    u16 l4;             /* as in struct nc_flow */
    u8 mac[12];
    u8 fragment;        /* OVS_FRAG_TYPE_* */
    u8 pad;
};

/* A copy of a flow's key. The tunnel options, which come first, are left out: the parser does not fill them in. */
struct ovs_key {
    struct sw_flow_key key;
};
#define OVS_KEY_FROM offsetof(struct sw_flow_key, phy)

static inline void ovs_flow_of(struct ovs_flow *flow, struct ovs_key *copy, struct sw_flow_key *key)
{
    u16 ethertype;

#if !NC_CAST
    bpf_probe_read_kernel((void *)&copy->key + OVS_KEY_FROM, sizeof(*key) - OVS_KEY_FROM, (void *)key + OVS_KEY_FROM);
    key = &copy->key;
#endif
    ethertype = bpf_ntohs(NC_OF(key, eth.type));
    __builtin_memset(flow, 0, sizeof(*flow));
    flow->ethertype = ethertype;
    flow->vlan = NC_OF(key, eth.vlan.tci);
    flow->cvlan = NC_OF(key, eth.cvlan.tci);
    flow->in_port = NC_OF(key, phy.in_port);
    flow->recirculation = NC_OF(key, recirc_id);
    flow->l4 = NC_L4_NONE;
    *(u32 *)&flow->mac[0] = NC_OF_AS(u32, key, eth.src[0]);
    *(u16 *)&flow->mac[4] = NC_OF_AS(u16, key, eth.src[4]);
    *(u16 *)&flow->mac[6] = NC_OF_AS(u16, key, eth.dst[0]);
    *(u32 *)&flow->mac[8] = NC_OF_AS(u32, key, eth.dst[2]);
    if (ethertype == 0x0800 || ethertype == 0x0806 || ethertype == 0x8035) {
        nc_map_ipv4(flow->source, NC_OF(key, ipv4.addr.src));
        nc_map_ipv4(flow->target, NC_OF(key, ipv4.addr.dst));
    } else if (ethertype == 0x86dd) {
        flow->source[0] = NC_OF_AS(u64, key, ipv6.addr.src);
        flow->source[1] = NC_OF_AS(u64, key, ipv6.addr.src.in6_u.u6_addr32[2]);
        flow->target[0] = NC_OF_AS(u64, key, ipv6.addr.dst);
        flow->target[1] = NC_OF_AS(u64, key, ipv6.addr.dst.in6_u.u6_addr32[2]);
    }
    if (ethertype != 0x0800 && ethertype != 0x86dd)
        return;
    flow->l4 = NC_OF(key, ip.proto);
    flow->fragment = NC_OF(key, ip.frag);
    /* The parser clears what it cannot read. No valid packet is without protocol and addresses. */
    if (!flow->l4 && !NC_OF(key, ipv4.addr.src) && !NC_OF(key, ipv4.addr.dst))
        flow->l4 = NC_L4_UNPARSED;
    if (flow->l4 == 6 || flow->l4 == 17 || flow->l4 == 132 || flow->l4 == 1 || flow->l4 == 58) {
        flow->source_port = bpf_ntohs(NC_OF(key, tp.src));
        flow->target_port = bpf_ntohs(NC_OF(key, tp.dst));
    }
}

static inline int ovs_has_ports(struct ovs_flow *flow)
{
    return flow->l4 == 6 || flow->l4 == 17 || flow->l4 == 132;
}

/* The flow as other probes have it, for filters and events. */
static inline void ovs_plain_flow(struct nc_flow *plain, struct ovs_flow *flow)
{
    __builtin_memset(plain, 0, sizeof(*plain));
    __builtin_memcpy(plain->source, flow->source, sizeof(plain->source));
    __builtin_memcpy(plain->target, flow->target, sizeof(plain->target));
    plain->source_port = ovs_has_ports(flow) ? flow->source_port : 0;
    plain->target_port = ovs_has_ports(flow) ? flow->target_port : 0;
    plain->ethertype = flow->ethertype;
    plain->vlan = bpf_ntohs(flow->vlan) & 0x0fff;
    plain->l4 = flow->l4;
}

/* A flow in the key of a table. The source port is left out: one service sees thousands of them. */
struct ovs_table_flow {
    u64 source[2];
    u64 target[2];
    u16 target_port;
    u16 ethertype;
    u16 l4;
    u16 vlan;
};

static inline void ovs_table_flow_of(struct ovs_table_flow *row, struct nc_flow *flow)
{
    __builtin_memcpy(row->source, flow->source, sizeof(row->source));
    __builtin_memcpy(row->target, flow->target, sizeof(row->target));
    row->target_port = flow->target_port;
    row->ethertype = flow->ethertype;
    row->l4 = flow->l4;
    row->vlan = flow->vlan;
}

/* ---- the packet itself ----
 *
 * User space sends back a copy whose checksums are filled in and whose data are linear. It is recognised by its flow, its length and
 * the headers that the parser had pulled before the upcall. Packets that are the same in all of these are matched in their order. */

struct ovs_packet {
    struct ovs_flow flow;
    u32 length;         /* from the network header on */
    u32 ip_id;          /* identification and fragment; flow label */
    u32 transport[2];   /* TCP: sequence and acknowledgement; ICMP: identifier and sequence */
};

/* A copy that was truncated (sFlow) does not come back: its length does not matter. */
static inline void ovs_packet_of(struct ovs_packet *packet, struct sk_buff *skb)
{
    NC_SPAN(struct sk_buff, buffer, transport_header, data, skb);
    struct ovs_flow *flow = &packet->flow;
    unsigned char *head;
    u32 network, transport, data;

    head = NC_OF(buffer, head);
    network = NC_OF(buffer, network_header);
    transport = NC_OF(buffer, transport_header);
    data = (u64)NC_OF(buffer, data) - (u64)head;
    packet->length = NC_READ(skb, len) - (network - data);
    packet->ip_id = packet->transport[0] = packet->transport[1] = 0;
    if (flow->l4 == NC_L4_NONE || flow->l4 == NC_L4_UNPARSED)
        return;
    packet->ip_id = NC_AT(u32, head + network + (flow->ethertype == 0x0800 ? 4 : 0));
    if (flow->fragment == OVS_FRAG_TYPE_LATER)
        return;
    if (flow->l4 == 6 && (flow->source_port || flow->target_port))
        NC_COPY(packet->transport, 8, head + transport + 4);
    else if ((flow->l4 == 1 || flow->l4 == 58) && transport + 8 - network <= packet->length)
        packet->transport[0] = NC_AT(u32, head + transport + 4);
}

static inline u64 ovs_hash(u64 fingerprint, u64 *words, u32 count)
{
#pragma unroll
    for (u32 i = 0; i < count; i++) {
        fingerprint = (fingerprint ^ words[i]) * 0x9e3779b97f4a7c15ull;
        fingerprint ^= fingerprint >> 29;
    }
    return fingerprint;
}

static inline u64 ovs_flow_fingerprint(struct ovs_flow *flow)
{
    return ovs_hash(1, (void *)flow, sizeof(*flow) / 8);
}

static inline u64 ovs_packet_fingerprint(struct ovs_packet *packet)
{
    return ovs_hash(2, (void *)packet, sizeof(*packet) / 8);
}

#endif /* NETCONSOLE_OVS_H */
