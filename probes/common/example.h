/* example.h - the latest packet of a row: who sent what to whom, and where it came in. It is no sample, and takes nothing from the budget of
 * events. Each CPU keeps one for a row after each reading of the collector, so of a storm all but the first packet pay one comparison.
 *
 * The manifest names the map of the examples: `[tables.NAME.example]`. It is a hash with the key of the table's rows, and not per CPU: it
 * takes one place for a row on a machine of any size. Write it by update() alone, which never changes an element in place: a reader that has
 * the lock of its bucket gets the whole of one packet. The value of the table's rows ends with the number that nc_example_due compares.
 */
#ifndef NETCONSOLE_EXAMPLE_H
#define NETCONSOLE_EXAMPLE_H

#include "packets.h"

/* How often the collector has read the probe (netconsole_collector/probe/reading/examples.py). */
BPF_ARRAY(nc_reading, u64, 1);

/* 0 in a member: it is not known, or there is none. */
struct nc_example {
    u64 mono_ns;
    u64 source[2];      /* as in struct nc_flow */
    u64 target[2];
    u64 device[2];      /* by which it came in, in its network namespace */
    u16 source_port;
    u16 target_port;
    u16 vlan;
    u16 ethertype;
    u16 l4;
    u8 target_mac[6];
    u8 source_mac[6];
    u16 syn;            /* of TCP: 1: opens a connection (SYN without ACK); 2: goes on with one; 3: resets one */
    u32 length;         /* from its network header on */
    u32 pad_2;
};

/* Is it the row's first packet on this CPU since the last reading? `kept`: how many readings there were when this CPU kept one, and one
 * more. */
static inline int nc_example_due(u64 *kept)
{
    int zero = 0;
    u64 *reading = nc_reading.lookup(&zero);

    if (!reading || *kept > *reading)
        return 0;
    *kept = *reading + 1;
    return 1;
}

/* The device of this index, as dev_get_by_index_rcu finds it: 16 bytes of its name. */
#define NC_INDEX_HASH 256   /* NETDEV_HASHENTRIES */
#define NC_INDEX_CHAIN 8
static inline void nc_name_by_index(u64 *name, struct net *net, u32 index)
{
    struct hlist_head *heads = NC_READ(net, dev_index_head);
    struct hlist_node *node = NC_READ(&heads[index & (NC_INDEX_HASH - 1)], first);

#pragma unroll
    for (int i = 0; i < NC_INDEX_CHAIN && node && index; i++) {
        struct net_device *dev = (void *)node - offsetof(struct net_device, index_hlist);
        if (NC_READ(dev, ifindex) == index) {
            bpf_probe_read_kernel(name, 16, &dev->name);
            break;
        }
        node = NC_READ(node, next);
    }
}

/* The MACs of a packet with an Ethernet header before its network header. Other headers may stand there, as that of a tunnel: an Ethernet
 * header ends with the protocol, with a tag or with a length. */
static inline void nc_example_macs(struct nc_example *example, struct sk_buff *skb)
{
    u32 mac = NC_GET(skb, mac_header), network = NC_GET(skb, network_header), data = (u64)NC_GET(skb, data) - (u64)NC_GET(skb, head);
    u16 protocol = NC_GET(skb, protocol);
    struct {
        u8 target[6];
        u8 source[6];
        u16 type;
    } header;

    if (mac == 0xffff || (mac + sizeof(header) > network && mac + sizeof(header) > data) || nc_load(&header, sizeof(header), skb, mac))
        return;
    if (header.type != protocol && !nc_is_tag(header.type) && bpf_ntohs(header.type) >= 0x600)
        return;
    __builtin_memcpy(example->target_mac, header.target, 6);
    __builtin_memcpy(example->source_mac, header.source, 6);
}

/* The flags of a segment of TCP (RFC 9293, 3.1); negative: it is none, or they cannot be read. */
enum { NC_TCP_SYN = 0x02, NC_TCP_RST = 0x04, NC_TCP_ACK = 0x10 };
static inline int nc_tcp_flags(struct nc_flow *flow, struct sk_buff *skb)
{
    u8 bytes[4] __attribute__((aligned(4)));    /* data offset, flags, window */

    if (flow->l4 != IPPROTO_TCP || !flow->l4_at || nc_load_4(bytes, skb, flow->l4_at + 12))
        return -1;
    return bytes[1];
}

/* What it does to a connection; 0: it is none of TCP. */
enum { NC_TCP_OPENS = 1, NC_TCP_GOES_ON, NC_TCP_RESETS };
static inline u16 nc_tcp_step(struct nc_flow *flow, struct sk_buff *skb)
{
    int flags = nc_tcp_flags(flow, skb);

    if (flags < 0)
        return 0;
    if (flags & NC_TCP_RST)
        return NC_TCP_RESETS;
    return (flags & (NC_TCP_SYN | NC_TCP_ACK)) == NC_TCP_SYN ? NC_TCP_OPENS : NC_TCP_GOES_ON;
}

/* What a packet itself tells. Its device is up to the caller. */
static inline void nc_example_of(struct nc_example *example, struct sk_buff *skb, struct nc_flow *flow)
{
    u32 network = NC_GET(skb, network_header), data = (u64)NC_GET(skb, data) - (u64)NC_GET(skb, head);

    nc_read_ports(flow, skb);
    example->syn = nc_tcp_step(flow, skb);
    example->mono_ns = bpf_ktime_get_ns();
    example->source[0] = flow->source[0];
    example->source[1] = flow->source[1];
    example->target[0] = flow->target[0];
    example->target[1] = flow->target[1];
    example->source_port = flow->source_port;
    example->target_port = flow->target_port;
    example->vlan = flow->vlan;
    example->ethertype = flow->ethertype;
    example->l4 = flow->l4;
    example->length = NC_GET(skb, len);
    if (network && network != 0xffff)
        example->length += data - network;
    nc_example_macs(example, skb);
}

#endif /* NETCONSOLE_EXAMPLE_H */
