/* openvswitch.h - a packet in Open vSwitch's kernel datapath: actions and upcalls.
 *
 * The tracepoints belong to a module: these programs are not BTF-typed and read kernel memory by NC_READ alone.
 */
#ifndef HOST_PATH_OPENVSWITCH_H
#define HOST_PATH_OPENVSWITCH_H

#include "shared.h"

static inline u64 hash_with(u64 sum, u64 value)
{
    return (sum ^ value) * 0x9e3779b97f4a7c15ULL;
}

/* User space sends the packet back in another sk_buff, so it is found by a hash of its headers. Lengths and checksums are left out: the
 * upcall fills in a checksum that was left to the device, and segments a long packet. The hash is odd, which no sk_buff's address is. */
static inline u64 header_hash(struct path_packet *packet, u64 device)
{
    u64 sum = hash_with(device, packet->protocol);

    if (packet->version == 4) {
        sum = hash_with(sum, (u64)path_u16(packet, 4) << 16 | path_u16(packet, 6));      /* identification, fragment */
        sum = hash_with(sum, (u64)path_u32(packet, 12) << 32 | path_u32(packet, 16));
        sum = hash_with(sum, path_u32(packet, 20));
        sum = hash_with(sum, packet->protocol == IPPROTO_UDP ? 0 : path_u32(packet, 24));
    } else if (packet->version == 6) {
        sum = hash_with(sum, path_u32(packet, 0));
        sum = hash_with(hash_with(sum, packet->bytes[1]), packet->bytes[2]);
        sum = hash_with(hash_with(sum, packet->bytes[3]), packet->bytes[4]);
        sum = hash_with(sum, path_u32(packet, 40));
        sum = hash_with(sum, packet->protocol == IPPROTO_UDP ? 0 : path_u32(packet, 44));
    } else {
        sum = hash_with(hash_with(sum, packet->bytes[0]), packet->bytes[1]);
    }
    return sum | 1;
}

/* A packet goes to user space. Until it comes back, its transit is kept under the hash of its headers.
 * `goes_on`: the packet itself stays in the datapath as well. */
static inline void account_upcall(void *ctx, struct sk_buff *skb, u64 address, int goes_on)
{
    u32 zero = 0, end;
    struct scratch *scratch = scratches.lookup(&zero);
    struct way_stacks *way;
    struct path_transit *transit = path_find(address);

    if (!scratch || !transit || transit->state != PATH_IN_TRANSIT)
        return;
    path_read_switched(&scratch->packet, skb, &end);
    path_fingerprint_of(&scratch->transit.fingerprint, &scratch->packet, end);
    if (!path_same_packet(&scratch->transit.fingerprint, &transit->fingerprint))
        return;
    scratch->transit = *transit;
    if (!goes_on)
        transit->state = PATH_FREE;
    scratch->transit.address = header_hash(&scratch->packet, (u64)NC_READ(skb, dev));
    scratch->transit.point_ns[UPCALL] = bpf_ktime_get_ns();
    scratch->transit.point_ns[ACTION] = scratch->transit.point_ns[CONNTRACK] = scratch->transit.conntrack_ns = 0;
    scratch->transit.point_ns[FIRST_QUEUE] = scratch->transit.point_ns[LAST_QUEUE] = 0;
    transit = claim_for(scratch->transit.address);
    if (!transit)
        return;
    *transit = scratch->transit;
    nc_count(ASKED);
    way = way_goes_on(address, scratch->transit.address);
    if (way) {
        way->acted[0] = way->first[0] = way->queued[0] = 0;
        take_stack(ctx, way->asked);
    }
}

/* Does this packet come back from user space? Then its transit goes on with this sk_buff. */
static inline struct path_transit *back_from_user_space(struct sk_buff *skb, u64 address, struct scratch *scratch)
{
    struct path_transit *transit;
    struct path_fingerprint fingerprint;
    u32 end;

    path_read_switched(&scratch->packet, skb, &end);
    transit = path_find(header_hash(&scratch->packet, (u64)NC_READ(skb, dev)));
    path_fingerprint_of(&fingerprint, &scratch->packet, end);
    if (!transit || transit->state != PATH_IN_TRANSIT || !path_same_packet(&fingerprint, &transit->fingerprint))
        return NULL;
    scratch->transit = *transit;
    transit->state = PATH_FREE;
    transit = claim_for(address);
    if (!transit)
        return NULL;
    *transit = scratch->transit;
    way_goes_on(transit->address, address);
    transit->address = address;
    transit->tag = FROM_USER_SPACE;
    transit->point_ns[ACTION] = bpf_ktime_get_ns();
    scratch->recent.received = address;
    nc_count(RETURNED);
    return transit;
}

/* Is this still the packet of the transit? One out of a tunnel may have waited (gro_cells) while its CPU handled others. */
static inline int is_switched(struct path_transit *transit, struct sk_buff *skb, struct scratch *scratch)
{
    struct path_fingerprint fingerprint;
    u32 end;

    path_read_switched(&scratch->packet, skb, &end);
    path_fingerprint_of(&fingerprint, &scratch->packet, end);
    return path_same_packet(&fingerprint, &transit->fingerprint);
}

/* `action`: NULL where the kernel does not tell when each one begins. */
static inline int is_conntrack(struct nlattr *action)
{
#ifdef HAVE_OVS_ACTION_ATTR_CT
    return action && NC_READ(action, nla_type) == OVS_ACTION_ATTR_CT;
#else
    return 0;
#endif
}

/* A packet is in conntrack from that action until the next one. */
static inline void account_conntrack(struct path_transit *transit, struct nlattr *action)
{
    int is_ct;
    u64 now;

    if (transit->unlisted)
        return;
    is_ct = is_conntrack(action);
    if (!is_ct && !transit->point_ns[CONNTRACK])
        return;
    now = bpf_ktime_get_ns();
    if (transit->point_ns[CONNTRACK])
        transit->conntrack_ns += path_elapsed(transit->point_ns[CONNTRACK], now);
    transit->point_ns[CONNTRACK] = is_ct ? now : 0;
}

static inline void take_acted(void *ctx, struct path_transit *transit)
{
    struct way_stacks *way = way_of(transit);

    if (way)
        take_stack(ctx, way->acted);
}

/* The datapath begins an action. User space's sk_buffs use the same addresses again, and their end may be unseen: each time it may be
 * another packet. */
static inline void account_action(void *ctx, struct sk_buff *skb, u64 address, struct nlattr *action)
{
    u32 zero = 0;
    struct scratch *scratch = scratches.lookup(&zero);
    struct path_transit *transit = path_find(address), *back;
    int is_recent, has_acted, received;

    if (!scratch)
        return;
    if (transit && transit->state != PATH_IN_TRANSIT)
        transit = NULL;
    is_recent = transit && scratch->recent.received == address;
    has_acted = transit && transit->point_ns[ACTION];
    if (is_recent && has_acted && transit->tag != FROM_USER_SPACE) {
        account_conntrack(transit, action);
        return;
    }
    received = NC_READ(skb, skb_iif) != 0;
    if (!received && !(is_recent && transit->tag == FROM_HOST_STACK)) {
        back = back_from_user_space(skb, address, scratch);
        if (back) {
            take_acted(ctx, back);
            account_conntrack(back, action);
        } else if (is_recent && has_acted)
            account_conntrack(transit, action);
    } else if (transit && !has_acted && transit->tag != FROM_USER_SPACE && (is_recent || is_switched(transit, skb, scratch))) {
        transit->point_ns[ACTION] = time_of(transit);
        scratch->recent.received = address;
        take_acted(ctx, transit);
        account_conntrack(transit, action);
    }
}

#endif /* HOST_PATH_OPENVSWITCH_H */
