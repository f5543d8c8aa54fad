/* tunnel.h - what a mirror wraps its packets in: VXLAN (RFC 7348), Geneve (RFC 8926), GRE (RFC 2784, 2890), ERSPAN I to III. */
#ifndef NETCONSOLE_TUNNEL_H
#define NETCONSOLE_TUNNEL_H

#include "fragment.h"
#include "path.h"

#define TUNNEL_GENEVE 6081
#define TUNNEL_ETHERNET 0x6558
#define TUNNEL_ERSPAN 0x88be
#define TUNNEL_ERSPAN_III 0x22eb
#define TUNNEL_SESSION 0x3ff    /* of ERSPAN: 10 bits */

/* What a packet's bytes are read by. Offsets count from `head`. */
struct tunnel_bytes {
    unsigned char *head;
    u32 end;            /* of what can be read */
    u32 all;            /* of the packet */
    u32 size;           /* of the buffer, where the packet goes on in fragments; 0: it does not, or these are read already */
};

struct tunnel {
    u64 kind;           /* "VXLAN" ...; 0: none */
    u64 wrong[2];       /* what is wrong with its headers; 0: nothing */
    u32 vni;            /* or the key of GRE, the session of ERSPAN */
    u16 source_port;
    u16 target_port;
    u32 inner;          /* 1: there is an inner packet, whose headers `path_packet` has now */
    u32 unread;         /* 1: headers that are not in the linear data */
    u32 numbered;       /* 1: the packet has a number */
    u32 number;
    u32 payload;        /* offset of what UDP carries; 0: it is no UDP */
    u32 merged;         /* so many more packets of the same sender are in this one, with headers of their own that are not read */
    u32 first_bytes;    /* where there are some: of the first one alone */
};

#define TUNNEL_CUT NC_WORD('c', 'u', 't', ' ', 's', 'h', 'o', 'r'), NC_WORD('t', 0, 0, 0, 0, 0, 0, 0)
#define TUNNEL_LENGTH NC_WORD('w', 'r', 'o', 'n', 'g', ' ', 'l', 'e'), NC_WORD('n', 'g', 't', 'h', 0, 0, 0, 0)
#define TUNNEL_HEADER NC_WORD('w', 'r', 'o', 'n', 'g', ' ', 'h', 'e'), NC_WORD('a', 'd', 'e', 'r', 0, 0, 0, 0)
#define TUNNEL_INNER NC_WORD('w', 'r', 'o', 'n', 'g', ' ', 'i', 'n'), NC_WORD('s', 'i', 'd', 'e', 0, 0, 0, 0)

static inline void tunnel_wrong(struct tunnel *tunnel, u64 one, u64 other)
{
    tunnel->wrong[0] = one;
    tunnel->wrong[1] = other;
}

/* Whether the bytes between these offsets can be read: they may lie in the first fragment, where all that is left lies then. */
static inline int tunnel_reaches(struct tunnel_bytes *bytes, u32 from, u32 to)
{
    if (to <= bytes->end)
        return 1;
    if (!bytes->size || from < bytes->end || to > bytes->all || fragment_enter(&bytes->head, &bytes->end, bytes->size))
        return 0;
    bytes->size = 0;
    return to <= bytes->end;
}

/* The same of a header. If not, it is said why. */
static inline int tunnel_fits(struct tunnel *tunnel, struct tunnel_bytes *bytes, u32 from, u32 to)
{
    if (tunnel_reaches(bytes, from, to))
        return 1;
    if (to > bytes->all)
        tunnel_wrong(tunnel, TUNNEL_CUT);
    else
        tunnel->unread = 1;
    return 0;
}

/* Moves `packet`, which has the outer headers, to what the tunnel carries. Returns its ethertype, TUNNEL_ETHERNET for a frame; 0: it is no
 * tunnel, or cannot be read any further. */
static inline u16 tunnel_enter_udp(struct tunnel *tunnel, struct path_packet *packet, struct tunnel_bytes *bytes, u32 vxlan)
{
    u32 at = packet->at + packet->l4, word, length;

    if (!tunnel_reaches(bytes, at, at + 8))
        return 0;
    word = bpf_ntohl(NC_AT(u32, bytes->head + at));
    tunnel->source_port = word >> 16;
    tunnel->target_port = word;
    if (tunnel->target_port == vxlan)
        tunnel->kind = NC_WORD('V', 'X', 'L', 'A', 'N', 0, 0, 0);
    else if (tunnel->target_port == TUNNEL_GENEVE)
        tunnel->kind = NC_WORD('G', 'e', 'n', 'e', 'v', 'e', 0, 0);
    else
        return 0;
    tunnel->payload = at + 8;
    length = bpf_ntohl(NC_AT(u32, bytes->head + at + 4)) >> 16;
    if (length < 16 || at + length > bytes->all) {
        tunnel_wrong(tunnel, TUNNEL_LENGTH);
        return 0;
    }
    if (!tunnel_fits(tunnel, bytes, at + 8, at + 16))
        return 0;
    word = bpf_ntohl(NC_AT(u32, bytes->head + at + 8));
    tunnel->vni = bpf_ntohl(NC_AT(u32, bytes->head + at + 12)) >> 8;
    packet->at = at + 16;
    if (tunnel->target_port == vxlan) {
        if (word & 0x08000000)
            return TUNNEL_ETHERNET;
        tunnel_wrong(tunnel, TUNNEL_HEADER);
        return 0;
    }
    if (word >> 30) {
        tunnel_wrong(tunnel, TUNNEL_HEADER);
        return 0;
    }
    at = (word >> 24 & 0x3f) * 4;
    if (at + 16 > length) {
        tunnel_wrong(tunnel, TUNNEL_LENGTH);
        return 0;
    }
    packet->at += at;
    return word;
}

static inline u16 tunnel_enter_gre(struct tunnel *tunnel, struct path_packet *packet, struct tunnel_bytes *bytes)
{
    u32 at = packet->at + packet->l4, word, flags, key = 0;
    u16 type;

    if (!tunnel_reaches(bytes, at, at + 4))
        return 0;
    word = bpf_ntohl(NC_AT(u32, bytes->head + at));
    flags = word >> 16;
    type = word;
    if (type != TUNNEL_ETHERNET && type != TUNNEL_ERSPAN && type != TUNNEL_ERSPAN_III && type != 0x0800 && type != 0x86dd)
        return 0;
    tunnel->kind = NC_WORD('G', 'R', 'E', 0, 0, 0, 0, 0);
    if (flags & 0x4007) {       /* a route, or another version */
        tunnel_wrong(tunnel, TUNNEL_HEADER);
        return 0;
    }
    at += 4 + (flags & 0x8000 ? 4 : 0);
    if (flags & 0x2000) {
        if (!tunnel_fits(tunnel, bytes, at, at + 4))
            return 0;
        tunnel->vni = bpf_ntohl(NC_AT(u32, bytes->head + at));
        at += 4;
    }
    if (flags & 0x1000) {
        if (!tunnel_fits(tunnel, bytes, at, at + 4))
            return 0;
        tunnel->number = bpf_ntohl(NC_AT(u32, bytes->head + at));
        tunnel->numbered = 1;
        at += 4;
    }
    if (type == TUNNEL_ERSPAN || type == TUNNEL_ERSPAN_III) {
        tunnel->kind = NC_WORD('E', 'R', 'S', 'P', 'A', 'N', 0, 0);
        if (type == TUNNEL_ERSPAN_III || flags & 0x1000) {      /* type I has no header of its own */
            u32 size = type == TUNNEL_ERSPAN ? 8 : 12;
            if (!tunnel_fits(tunnel, bytes, at, at + size))
                return 0;
            tunnel->vni = bpf_ntohl(NC_AT(u32, bytes->head + at)) & TUNNEL_SESSION;
            if (type == TUNNEL_ERSPAN_III && bpf_ntohl(NC_AT(u32, bytes->head + at + 8)) & 1)
                size += 8;
            at += size;
        }
        type = TUNNEL_ETHERNET;
    }
    packet->at = at;
    return type;
}

/* Opens the tunnel of a packet whose outer headers were read: then `packet` has the inner ones. */
static inline void tunnel_open(struct tunnel *tunnel, struct path_packet *packet, struct tunnel_bytes *bytes, u32 vxlan)
{
    u16 type = 0;

    if (packet->version == 4 && path_u16(packet, 6) & 0x1fff)
        return;         /* a later fragment has no ports */
    if (packet->protocol == 17)
        type = tunnel_enter_udp(tunnel, packet, bytes, vxlan);
    else if (packet->protocol == 47)
        type = tunnel_enter_gre(tunnel, packet, bytes);
    if (!type)
        return;
    if (type == TUNNEL_ETHERNET) {
        if (!tunnel_fits(tunnel, bytes, packet->at, packet->at + 14))
            return;
        type = NC_AT(u16, bytes->head + packet->at + 12);
        type = bpf_ntohs(type);
        packet->at += 14;
    }
    packet->ethertype = type;
    packet->vlan = 0;
    packet->broken = 0;
    tunnel_reaches(bytes, packet->at, packet->at + 20);
    if (path_skip_tags(packet, bytes->head, bytes->end, 1)) {
        tunnel_fits(tunnel, bytes, packet->at, packet->at + 4);
        packet->version = 0;
        return;
    }
    tunnel->inner = 1;
    if (path_read_layer(packet, bytes->head, bytes->end) && packet->broken) {
        if (tunnel_fits(tunnel, bytes, packet->at, packet->at + (packet->ethertype == 0x0800 ? 20 : 40)))
            tunnel_wrong(tunnel, TUNNEL_INNER);
    }
}

#endif /* NETCONSOLE_TUNNEL_H */
