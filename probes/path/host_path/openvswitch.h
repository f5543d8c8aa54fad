/* openvswitch.h - a way through Open vSwitch's kernel datapath: its actions, and its questions to user space.
 *
 * These tracepoints are a module's, so that kernel memory is read by NC_READ alone.
 */
#ifndef HOST_PATH_OPENVSWITCH_H
#define HOST_PATH_OPENVSWITCH_H

#include "shared.h"

static inline u64 mix(u64 sum, u64 value)
{
    return (sum ^ value) * 0x9e3779b97f4a7c15ULL;
}

/* What user space sends back is another sk_buff: it is known by its headers, without lengths and checksums, for a checksum that was
 * left to the device is made on the way up, and a long packet is cut. Odd: no address of an sk_buff. */
static inline u64 headers_of(struct path_packet *packet, u64 device)
{
    u64 sum = mix(device, packet->protocol);

    if (packet->version == 4) {
        sum = mix(sum, (u64)path_u16(packet, 4) << 16 | path_u16(packet, 6));      /* identification, fragment */
        sum = mix(sum, (u64)path_u32(packet, 12) << 32 | path_u32(packet, 16));
        sum = mix(sum, path_u32(packet, 20));
        sum = mix(sum, packet->protocol == IPPROTO_UDP ? 0 : path_u32(packet, 24));
    } else if (packet->version == 6) {
        sum = mix(sum, path_u32(packet, 0));
        sum = mix(mix(sum, packet->bytes[1]), packet->bytes[2]);
        sum = mix(mix(sum, packet->bytes[3]), packet->bytes[4]);
        sum = mix(sum, path_u32(packet, 40));
        sum = mix(sum, packet->protocol == IPPROTO_UDP ? 0 : path_u32(packet, 44));
    } else {
        sum = mix(mix(sum, packet->bytes[0]), packet->bytes[1]);
    }
    return sum | 1;
}

/* A packet that goes to user space waits there under its headers. */
static inline void ask(struct sk_buff *skb, u64 address, int goes_on)
{
    u32 zero = 0, end;
    struct desk *desk = desks.lookup(&zero);
    struct path_way *way = path_find(address);

    if (!desk || !way || way->state != PATH_UNDER_WAY)
        return;
    path_read_switched(&desk->packet, skb, &end);
    path_print_of(&desk->way.print, &desk->packet, end);
    if (!path_same(&desk->way.print, &way->print))
        return;
    desk->way = *way;
    if (!goes_on)
        way->state = PATH_FREE;
    desk->way.address = headers_of(&desk->packet, (u64)NC_READ(skb, dev));
    desk->way.moment_ns[UPCALL] = bpf_ktime_get_ns();
    desk->way.moment_ns[ACTION] = desk->way.moment_ns[TRACKING] = desk->way.spent_ns = 0;
    desk->way.moment_ns[FIRST_QUEUE] = desk->way.moment_ns[LAST_QUEUE] = 0;
    way = place_for(desk->way.address);
    if (!way)
        return;
    *way = desk->way;
    nc_count(ASKED);
}

/* Is this one that waited? Then its way goes on with this sk_buff. */
static inline struct path_way *come_back(struct sk_buff *skb, u64 address, struct hand *hand)
{
    u32 zero = 0, end;
    struct desk *desk = desks.lookup(&zero);
    struct path_way *way;
    struct path_print print;

    if (!desk)
        return NULL;
    path_read_switched(&desk->packet, skb, &end);
    way = path_find(headers_of(&desk->packet, (u64)NC_READ(skb, dev)));
    path_print_of(&print, &desk->packet, end);
    if (!way || way->state != PATH_UNDER_WAY || !path_same(&print, &way->print))
        return NULL;
    desk->way = *way;
    way->state = PATH_FREE;
    way = place_for(address);
    if (!way)
        return NULL;
    *way = desk->way;
    way->address = address;
    way->mark = FROM_USER_SPACE;
    way->moment_ns[ACTION] = bpf_ktime_get_ns();
    hand->received = address;
    nc_count(RETURNED);
    return way;
}

/* A packet out of a tunnel may have waited (gro_cells) until its CPU had others in hand. */
static inline int is_switched(struct path_way *way, struct sk_buff *skb)
{
    u32 zero = 0, end;
    struct desk *desk = desks.lookup(&zero);
    struct path_print print;

    if (!desk)
        return 0;
    path_read_switched(&desk->packet, skb, &end);
    path_print_of(&print, &desk->packet, end);
    return path_same(&print, &way->print);
}

/* Conntrack has a packet from its action to the next one. */
static inline void track(struct path_way *way, int is_ct)
{
    u64 now;

    if (!is_ct && !way->moment_ns[TRACKING])
        return;
    now = bpf_ktime_get_ns();
    if (way->moment_ns[TRACKING])
        way->spent_ns += path_between(way->moment_ns[TRACKING], now);
    way->moment_ns[TRACKING] = is_ct ? now : 0;
}

/* An action begins. Addresses of what user space sends are used again, and no end may have been seen: each time it may be another packet. */
static inline void act(struct sk_buff *skb, u64 address, int is_ct)
{
    u32 zero = 0;
    struct hand *hand = hands.lookup(&zero);
    struct path_way *way = path_find(address), *back;
    int in_hand, acted, received;

    if (!hand)
        return;
    if (way && way->state != PATH_UNDER_WAY)
        way = NULL;
    in_hand = way && hand->received == address;
    acted = way && way->moment_ns[ACTION];
    if (in_hand && acted && way->mark != FROM_USER_SPACE) {
        track(way, is_ct);
        return;
    }
    received = NC_READ(skb, skb_iif) != 0;
    if (!received && !(in_hand && way->mark == FROM_HOST_STACK)) {
        back = come_back(skb, address, hand);
        if (back)
            track(back, is_ct);
        else if (in_hand && acted)
            track(way, is_ct);
    } else if (way && !acted && way->mark != FROM_USER_SPACE && (in_hand || is_switched(way, skb))) {
        way->moment_ns[ACTION] = bpf_ktime_get_ns();
        hand->received = address;
        track(way, is_ct);
    }
}

#endif /* HOST_PATH_OPENVSWITCH_H */
