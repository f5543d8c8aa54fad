/* echo_host - ICMP echoes that cross this host between two sets of devices, each with a record of its own: from netif_receive_skb
 * (net/core/dev.c, __netif_receive_skb_core) to net_dev_start_xmit (net/core/dev.c, xmit_one), the last point before the driver owns
 * the packet, and back.
 *
 * The host of the VM that pings gets requests from the inside devices, the other host from the outside devices (knob receiver).
 * Where vhost carries them, the stages between tap and guest are in vhost.h.
 */

#include "../../common/netconsole.h"
#include "../../common/devices.h"
#include "../../common/path.h"
#define ECHO_STAGES
#include "../../common/echo.h"
#include "vhost.h"

/* Whether requests come in by the devices of this set. */
static inline int is_first(struct nc_config *config, struct nc_member *member)
{
    return member->set == (nc_knob(config, receiver) ? NC_SET_outside_devices : NC_SET_inside_devices);
}

int on_receive(struct bpf_raw_tracepoint_args *ctx)
{
    struct sk_buff *skb = NC_ARG(0);
    struct net_device *dev = NC_GET(skb, dev);
    struct nc_config *config = nc_config_get();
    struct nc_member *member = nc_member_of(dev);
    struct echo_record *record = NULL;
    struct echo echo;
    u32 kind;

    if (!config || !member)
        return 0;
    kind = echo_at_device(&echo, config, skb, dev, 0);
    if (kind == ECHO_REQUEST && is_first(config, member))
        record = echo_begin(config, &echo, member->name);
    else if (kind == ECHO_REPLY && !is_first(config, member))
        record = echo_pass(&echo, REPLY_IN, member->name);
    if (record && member->set == NC_SET_inside_devices)
        echo_from_guest(record, dev);
    return 0;
}

int on_send(struct bpf_raw_tracepoint_args *ctx)
{
    struct sk_buff *skb = NC_ARG(0);
    struct net_device *dev = NC_ARG(1);
    struct nc_config *config = nc_config_get();
    struct nc_member *member = nc_member_of(dev);
    struct echo_record *record = NULL;
    struct echo echo;
    u32 kind, point = REQUEST_OUT;

    if (!config || !member)
        return 0;
    kind = echo_at_device(&echo, config, skb, dev, 1);
    if (kind == ECHO_REQUEST && !is_first(config, member))
        record = echo_pass(&echo, point = REQUEST_OUT, member->name);
    else if (kind == ECHO_REPLY && is_first(config, member))
        record = echo_pass(&echo, point = REPLY_OUT, member->name);
    if (record && member->set == NC_SET_inside_devices)
        echo_to_guest(&echo, record, skb, point);
    return 0;
}
