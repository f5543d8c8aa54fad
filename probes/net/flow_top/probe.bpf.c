/* flow_top - each flow, by device and direction: netif_receive_skb and net_dev_start_xmit (net/core/dev.c). How it counts them:
 * ../../common/flow_table.h. received + sent = packets of all rows + left_packets + what was not listed.
 */

#include "../../common/netconsole.h"
#include "../../common/path.h"

enum { RECEIVED, SENT, RECEIVED_BYTES, SENT_BYTES, LEFT_PACKETS };     /* counters */

#define TUNNEL_BYTES 50         /* IPv4, UDP, VXLAN or Geneve, and Ethernet: what lies at least before an inner packet */
#define BEYOND_ZEROS 0

struct flow_key {
    u64 direction;      /* "in", "out" */
    u64 device[2];
    u64 source[2];
    u64 target[2];
    u32 netns;
    u16 source_port;
    u16 target_port;
    u16 ethertype;
    u16 vlan;
    u16 l4;
    u16 inner;          /* 1: a packet inside a tunnel */
};
struct flow_row {
    u64 packets;
    u64 bytes;
    u64 missed;         /* of a flow that may have been beyond before: as below */
    u64 first_ns;
    u64 last_ns;
};

#include "../../common/flow_table.h"

static inline int account(struct sk_buff *skb, struct net_device *dev, int is_sent)
{
    struct nc_config *config = nc_config_get();
    struct path_packet packet;
    struct nc_place place = {};
    struct flow_key key = {};
    struct nc_flow flow;
    u32 packets, bytes, before;

    if (!config)
        return 0;
    nc_place_of(&place, dev);
    if (!nc_place_wanted(config, &place))
        return 0;
    path_read(&packet, skb, is_sent, 1);
    path_flow_of(&flow, &packet, skb);
    if (flow.l4 == NC_L4_UNPARSED)
        nc_ledger_add(NC_PARSE_FAILED);
    if (!nc_packet_wanted(config, &flow, skb))
        return 0;
    packets = path_packets(skb, &packet);
    before = (u64)NC_GET(skb, data) - (u64)NC_GET(skb, head);
    bytes = NC_GET(skb, len);
    if (is_sent) {
        before = NC_GET(skb, network_header);
    } else if (NC_GET(skb, mac_header) < before) {
        bytes += before - NC_GET(skb, mac_header);
    }
    count_many(is_sent ? SENT : RECEIVED, packets);
    count_many(is_sent ? SENT_BYTES : RECEIVED_BYTES, bytes);
    if (nc_may_list(config)) {
        key.direction = is_sent ? NC_WORD('o', 'u', 't', 0, 0, 0, 0, 0) : NC_WORD('i', 'n', 0, 0, 0, 0, 0, 0);
        key.device[0] = place.device[0];
        key.device[1] = place.device[1];
        key.netns = place.netns;
        __builtin_memcpy(key.source, flow.source, sizeof(key.source));
        __builtin_memcpy(key.target, flow.target, sizeof(key.target));
        key.source_port = flow.source_port;
        key.target_port = flow.target_port;
        key.ethertype = flow.ethertype;
        key.vlan = flow.vlan;
        key.l4 = flow.l4;
        key.inner = packet.at >= before + TUNNEL_BYTES;
        flow_count(&key, packets, bytes, bpf_ktime_get_ns());
    } else if (packets > 1) {
        nc_ledger_add_many(NC_UNLISTED, packets - 1);   /* nc_may_list has counted one */
    }
    nc_listed(config);
    return 0;
}

int received(struct bpf_raw_tracepoint_args *ctx)
{
    struct sk_buff *skb = NC_ARG(0);

    return account(skb, NC_GET(skb, dev), 0);
}

int sent(struct bpf_raw_tracepoint_args *ctx)
{
    struct sk_buff *skb = NC_ARG(0);
    struct net_device *dev = NC_ARG(1);

    return account(skb, dev, 1);
}
