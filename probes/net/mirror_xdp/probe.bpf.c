/* mirror_xdp - the same mirror at the driver: every packet of one device, before the stack has it. It passes all of them and changes none.
 *
 * XDP: native, where the driver runs it (before GRO, and before an sk_buff is made), else generic, in netif_receive_skb (net/core/dev.c).
 * What came here and did not arrive in the stack was lost between them: in a backlog, or by another program.
 */

#include "../../common/netconsole.h"

enum { SEEN, ARRIVED, ARRIVED_BYTES, MALFORMED, LEFT_PACKETS };     /* counters */

#include "../../common/tally.h"

#define ETHERNET 14

static inline void account(struct nc_config *config, struct xdp_md *ctx, struct scratch *scratch)
{
    struct path_packet *packet = &scratch->packet;
    struct nc_flow *inner = &scratch->inner;
    struct tunnel_bytes of_packet;
    struct tunnel tunnel = {};
    struct tuple_key tuple = {};
    struct queue_key queue = {};
    struct of_cpu *mine;
    unsigned char *head;
    u32 size, word;
    int zero = 0;

    /* As numbers, not as pointers into the packet: those would be checked, and all below reads the kernel's memory. */
    *(volatile u64 *)&scratch->data = (u64)(long)ctx->data;
    *(volatile u64 *)&scratch->end = (u64)(long)ctx->data_end;
    head = (unsigned char *)*(volatile u64 *)&scratch->data;
    size = *(volatile u64 *)&scratch->end - (u64)head;
    count_many(SEEN, 1);
    if (size < ETHERNET)
        return;
    packet->vlan = 0;
    packet->broken = 0;
    packet->ethertype = bpf_ntohs(NC_AT(u16, head + 12));
    packet->at = ETHERNET;
    of_packet.head = head;
    of_packet.end = of_packet.all = size;
    of_packet.size = 0;
    if (tally_open(&tunnel, &tuple, packet, &of_packet, nc_knob(config, vxlan_port)))
        return;
    if (tunnel.inner) {
        if (path_flow_begin(inner, packet) || packet->broken) {
            path_flow_broken(inner);
        } else if (path_flow_ports(inner, packet) && inner->l4_at + 4 <= size) {
            word = bpf_ntohl(NC_AT(u32, head + inner->l4_at));
            inner->source_port = word >> 16;
            inner->target_port = word;
        }
        if (!nc_flow_wanted(config, inner))
            return;
        if (inner->l4 == NC_L4_UNPARSED)
            nc_ledger_add(NC_PARSE_FAILED);
    }
    mine = own.lookup(&zero);
    if (!mine)
        return;
    queue.place.device[0] = config->device[0];
    queue.place.device[1] = config->device[1];
    queue.cpu = bpf_get_smp_processor_id();
    queue.of_queue = ctx->rx_queue_index;
    tally(mine, scratch, &tunnel, &tuple, &queue, size, 1, size, bpf_ktime_get_ns());
}

int at_driver(struct xdp_md *ctx)
{
    struct nc_config *config = nc_config_get();
    struct scratch *scratch;
    int zero = 0;

    scratch = scratches.lookup(&zero);
    if (!config || !scratch)
        return XDP_PASS;
    if (scratch->filling) {
        nc_ledger_add(NC_PARSE_FAILED);
        return XDP_PASS;
    }
    scratch->filling = 1;
    account(config, ctx, scratch);
    scratch->filling = 0;
    return XDP_PASS;
}
