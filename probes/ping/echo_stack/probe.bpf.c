/* echo_stack - ICMP echoes between this machine's own IP and the driver of its device, each with a record of its own: inside a VM that pings
 * or is pinged, and on a host that pings.
 *
 * A machine that pings: from __ip_local_out (net/ipv4/ip_output.c; net/ipv6/output_core.c) to net_dev_start_xmit (net/core/dev.c), the
 * last point before the driver owns the packet; its reply from netif_receive_skb (net/core/dev.c) to icmp_rcv (net/ipv4/icmp.c;
 * net/ipv6/icmp.c). A machine that is pinged: netif_receive_skb, icmp_rcv, __ip_local_out, net_dev_start_xmit (knob receiver).
 *
 * Kernels without kprobes have less: there a packet begins when it is queued to a device, a reply ends when its socket has it
 * (sk_data_ready), and when ICMP gets a request is not known.
 */

#include "../../common/netconsole.h"
#include "../../common/devices.h"
#include "../../common/path.h"
#include "../../common/echo.h"

/* ---- at the device: BTF-typed programs ---- */

int on_receive(struct bpf_raw_tracepoint_args *ctx)
{
    struct sk_buff *skb = NC_ARG(0);
    struct net_device *dev = NC_GET(skb, dev);
    struct nc_config *config = nc_config_get();
    struct nc_member *member = nc_member_of(dev);
    struct echo echo;
    u32 kind;

    if (!config || !member)
        return 0;
    kind = echo_at_device(&echo, config, skb, dev, 0);
    if (nc_knob(config, receiver) && kind == ECHO_REQUEST)
        echo_begin(config, &echo, member->name);
    else if (!nc_knob(config, receiver) && kind == ECHO_REPLY)
        echo_pass(&echo, REPLY_IN, member->name);
    return 0;
}

int on_send(struct bpf_raw_tracepoint_args *ctx)
{
    struct sk_buff *skb = NC_ARG(0);
    struct net_device *dev = NC_ARG(1);
    struct nc_config *config = nc_config_get();
    struct nc_member *member = nc_member_of(dev);
    struct echo echo;
    u32 kind;

    if (!config || !member)
        return 0;
    kind = echo_at_device(&echo, config, skb, dev, 1);
    if (nc_knob(config, receiver) && kind == ECHO_REPLY)
        echo_pass(&echo, REPLY_OUT, member->name);
    else if (!nc_knob(config, receiver) && kind == ECHO_REQUEST)
        echo_pass(&echo, REQUEST_OUT, member->name);
    return 0;
}

/* ---- in IP: these programs are not BTF-typed, and read kernel memory by NC_READ alone ---- */

/* The echo in a packet that IP has in hand: its network header is set, and no device matters. `version`: of IP. */
static inline u32 echo_in_ip(struct echo *echo, struct nc_config *config, struct sk_buff *skb, struct net *net, u32 version, int made)
{
    struct path_packet packet = {};
    unsigned char *head = NC_READ(skb, head);
    u32 end = NC_READ(skb, tail);

    if (config->flags & NC_F_NETNS && NC_READ(net, ns.inum) != config->netns)
        return ECHO_NONE;
    packet.at = NC_READ(skb, network_header);
    packet.ethertype = version == 4 ? 0x0800 : 0x86dd;      /* IP sets the packet's own when it has made it */
    if (path_read_layer(&packet, head, end))
        return ECHO_NONE;
    if (!echo_find(echo, &packet, head, end, made, NC_READ(skb, data_len) ? NC_READ(skb, end) : 0))
        return ECHO_NONE;
    return echo_wanted(config, echo) ? echo->kind : ECHO_NONE;
}

/* IP gets a packet of this machine: a request from its socket, or a reply from ICMP. */
static inline void made(struct sk_buff *skb, struct net *net, u32 version, u64 *device, int is_new)
{
    struct nc_config *config = nc_config_get();
    struct echo echo;
    u32 kind;

    if (!config)
        return;
    kind = echo_in_ip(&echo, config, skb, net, version, is_new);
    if (nc_knob(config, receiver) && kind == ECHO_REPLY)
        echo_pass(&echo, REPLY_IN, device);
    else if (!nc_knob(config, receiver) && kind == ECHO_REQUEST)
        echo_begin(config, &echo, device);
}

int on_made4(void *ctx)
{
    struct net *net = NC_PARAMETER(0);
    struct sk_buff *skb = NC_PARAMETER(2);
    u64 nowhere[2] = {};

    made(skb, net, 4, nowhere, 1);
    return 0;
}

int on_made6(void *ctx)
{
    struct net *net = NC_PARAMETER(0);
    struct sk_buff *skb = NC_PARAMETER(2);
    u64 nowhere[2] = {};

    made(skb, net, 6, nowhere, 1);
    return 0;
}

/* A packet may be queued to several devices, one upon the other. The first one counts. */
static inline void queued(struct sk_buff *skb, u32 version)
{
    struct net_device *dev = NC_READ(skb, dev);
    u64 device[2] = {};

    if (NC_READ(skb, protocol) != bpf_htons(version == 4 ? 0x0800 : 0x86dd) || NC_READ(skb, skb_iif))
        return;
    bpf_probe_read_kernel(device, sizeof(device), &dev->name);
    made(skb, NC_READ(dev, nd_net.net), version, device, 0);
}

int on_queue4(struct bpf_raw_tracepoint_args *ctx)
{
    queued(NC_ARG(0), 4);
    return 0;
}

int on_queue6(struct bpf_raw_tracepoint_args *ctx)
{
    queued(NC_ARG(0), 6);
    return 0;
}

/* ICMP gets a packet that came in: a request to answer, or a reply. */
static inline void came(struct sk_buff *skb, struct net *net, u32 version)
{
    struct nc_config *config = nc_config_get();
    u64 nowhere[2] = {};
    struct echo echo;
    u32 kind;

    if (!config)
        return;
    kind = echo_in_ip(&echo, config, skb, net, version, 0);
    if (nc_knob(config, receiver) && kind == ECHO_REQUEST)
        echo_pass(&echo, REQUEST_OUT, nowhere);
    else if (!nc_knob(config, receiver) && kind == ECHO_REPLY)
        echo_pass(&echo, REPLY_OUT, nowhere);
}

int on_icmp4(void *ctx)
{
    struct sk_buff *skb = NC_PARAMETER(0);
    struct net_device *dev = NC_READ(skb, dev);

    came(skb, NC_READ(dev, nd_net.net), 4);
    return 0;
}

int on_icmp6(void *ctx)
{
    struct sk_buff *skb = NC_PARAMETER(0);
    struct net_device *dev = NC_READ(skb, dev);

    came(skb, NC_READ(dev, nd_net.net), 6);
    return 0;
}

/* A socket has got a packet, the last one in its queue. Only a reply matters here: no socket gets a request to answer. */
static inline void ready(struct sock *sk, u32 version)
{
    struct nc_config *config = nc_config_get();
    u16 protocol = NC_READ(sk, sk_protocol);
    struct sk_buff *skb;

    if (!config || nc_knob(config, receiver) || protocol != (version == 4 ? 1 : 58))
        return;
    skb = (struct sk_buff *)NC_READ(sk, sk_receive_queue.prev);
    if ((void *)skb != (void *)&sk->sk_receive_queue)
        came(skb, NC_READ(sk, __sk_common.skc_net.net), version);
}

int on_ready4(struct bpf_raw_tracepoint_args *ctx)
{
    ready(NC_ARG(0), 4);
    return 0;
}

int on_ready6(struct bpf_raw_tracepoint_args *ctx)
{
    ready(NC_ARG(0), 6);
    return 0;
}
