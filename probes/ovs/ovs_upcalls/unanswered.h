/* unanswered.h - upcalls that are not answered in time. Whichever CPU switches tasks finds them; each is counted once. */
#ifndef OVS_UPCALLS_UNANSWERED_H
#define OVS_UPCALLS_UNANSWERED_H

#include "shared.h"

/* Each CPU has a ring of the packets that it queued to user space, in their order. Any CPU may look at the first one: a CPU that does
 * nothing but receive packets never switches tasks. Whoever deletes a packet from the map accounts for it. */

#define RING (NC_CPUS > 32 ? 1024 : 4096)
struct ring_slot {
    u64 fingerprint;
    u32 twin;
    u32 since;          /* low half of the packet's since_ns: another packet may have the same fingerprint */
};
BPF_ARRAY(ring_slots, struct ring_slot, NC_CPUS * RING);

struct ring {
    u64 written, swept;
};
BPF_ARRAY(rings, struct ring, NC_CPUS);

static inline struct ring_slot *slot_of(u32 cpu, u64 number)
{
    u32 index = cpu * RING + (number & (RING - 1));
    return ring_slots.lookup(&index);
}

static inline u64 limit_ns(struct nc_config *config)
{
    return nc_knob(config, unanswered_after_ms) * 1000000;
}

static inline void give_up(struct nc_config *config, struct scratch *scratch, struct waiting_key *key)
{
    struct waiting *packet = &scratch->packet;
    struct port_row *row = row_of(&packet->port);
    u64 fingerprint = ovs_flow_fingerprint(&packet->packet.flow);
    u64 *put = drop_flows.lookup(&fingerprint);

    if (put && *put + limit_ns(config) >= packet->since_ns) {
        nc_count(DROPPED);
        if (row)
            nc_add(&row->dropped, 1);
        add_latency(&packet->port, elapsed(packet->since_ns, *put));
        return;
    }
    overdue.update(key, packet);
    if (packet->port.kind != MISS)      /* an action's packet is meant for user space, and need not come back */
        return;
    nc_count(UNANSWERED);
    if (row)
        nc_add(&row->unanswered, 1);
}

/* Looks at the first packet of a ring. Returns 0 when it still has time. `rotate`: it is moved to the end then, to free its slot. Two
 * CPUs may look at the same packet: each moves on to the number after the one that it read, so that none is skipped. */
static inline int sweep(struct nc_config *config, struct ring *ring, u32 cpu, u64 now, int rotate)
{
    u64 number = *(volatile u64 *)&ring->swept;
    struct ring_slot *slot = slot_of(cpu, number), *end = slot_of(cpu, ring->written);
    struct waiting_key key = {};
    struct waiting *packet;
    struct scratch *scratch;
    int is_unseen;

    if (!slot || !end)
        return 0;
    key.fingerprint = slot->fingerprint;
    key.twin = slot->twin;
    packet = waiting.lookup(&key);
    if (!packet || (u32)packet->since_ns != slot->since) {
        ring->swept = number + 1;       /* answered */
        return 1;
    }
    /* Queued before the answers were watched again, it may have been answered unseen. */
    is_unseen = packet->since_ns < nc_resumed_ns();
    if (!is_unseen && elapsed(packet->since_ns, now) < limit_ns(config)) {
        if (!rotate)
            return 0;
        *end = *slot;
        ring->written++;
        ring->swept = number + 1;
        return 1;
    }
    scratch = scratch_of(SWEEP_SCRATCH);
    if (!scratch)
        return 0;
    scratch->packet = *packet;
    ring->swept = number + 1;
    if (waiting.delete(&key))
        return 1;
    if (is_unseen)
        nc_ledger_add(NC_JOIN_MISSED);
    else
        give_up(config, scratch, &key);
    return 1;
}

static inline void remember(struct nc_config *config, struct waiting_key *key, u64 now)
{
    u32 cpu = bpf_get_smp_processor_id();
    struct ring *ring = rings.lookup(&cpu);
    struct ring_slot *slot;
    struct waiting_key given_up = {};

    if (!ring)
        return;
#pragma unroll
    for (int i = 0; i < 2; i++)         /* in a storm other CPUs do not sweep fast enough */
        if (ring->written - ring->swept >= RING / 2)
            sweep(config, ring, cpu, now, 1);
    slot = slot_of(cpu, ring->written);
    if (!slot)
        return;
    if (ring->written - ring->swept >= RING) {
        given_up.fingerprint = slot->fingerprint;
        given_up.twin = slot->twin;
        if (!waiting.delete(&given_up))
            nc_ledger_add(NC_JOIN_MISSED);
        ring->swept = ring->written - RING + 1;
    }
    slot->fingerprint = key->fingerprint;
    slot->twin = key->twin;
    slot->since = now;
    ring->written++;
}

#endif /* OVS_UPCALLS_UNANSWERED_H */
