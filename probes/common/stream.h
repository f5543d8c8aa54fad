/* stream.h - what of a TCP flow never came: its sequence numbers go on (RFC 9293), so that a gap which nobody fills was lost on the way here.
 * Its sender repeats a byte until that is acknowledged, so what was lost between the two ends comes once more.
 *
 * An estimate: of each flow the latest gap may still be filled, by what comes late or again; with the next one, or at the end of the flow, it is
 * taken for lost. CPUs that have the same flow at once may disturb each other. */
#ifndef NETCONSOLE_STREAM_H
#define NETCONSOLE_STREAM_H

#include "path.h"

#define STREAM_GAP (1 << 24)    /* bytes: what is missing after a longer one is another connection, or one that did not come meanwhile */

#define STREAM_FIN 1
#define STREAM_SYN 2
#define STREAM_RST 4

struct stream {
    u32 next;           /* the number behind all that came */
    u32 gap_at;         /* the latest gap below that; without length there is none */
    u32 gap_length;
    u32 known;          /* since when its numbers are followed (`begins`); 0: they are not */
};

/* What a packet has of it. SYN and FIN count as a byte. */
struct stream_part {
    u32 at;
    u32 length;
    u32 flags;
};

/* Returns 0 where the packet has the whole TCP header in reach. Fragments and packets with IP options are left out. */
static inline int stream_part_of(struct stream_part *part, struct path_packet *packet, u32 end)
{
    u32 size, header;

    if (packet->broken || packet->protocol != IPPROTO_TCP)
        return -1;
    if (packet->version == 4 && packet->l4 == 20 && packet->at + 34 <= end && !(path_u16(packet, 6) & 0x3fff)) {
        size = path_u16(packet, 2) - 20u;
        part->at = bpf_ntohl(path_u32(packet, 24));
        part->flags = path_u16(packet, 32);
    } else if (packet->version == 6 && packet->l4 == 40 && packet->at + 54 <= end) {
        size = path_u16(packet, 4);
        part->at = bpf_ntohl(path_u32(packet, 44));
        part->flags = path_u16(packet, 52);
    } else {
        return -1;
    }
    header = (part->flags >> 12) * 4;
    if (header < 20 || size < header || size > 65535)
        return -1;
    part->length = size - header + (part->flags & (STREAM_FIN | STREAM_SYN) ? 1 : 0);
    return 0;
}

/* What fills the gap from its beginning, or from within: then its end counts as filled, of which the place may be another one. */
static inline void stream_fill(struct stream *known, u32 from, u32 to)
{
    s32 skipped = from - known->gap_at, reached = to - known->gap_at;

    if (reached <= 0 || skipped >= (s32)known->gap_length)
        return;
    if (reached > (s32)known->gap_length)
        reached = known->gap_length;
    if (skipped <= 0) {
        known->gap_at += reached;
        known->gap_length -= reached;
    } else {
        known->gap_length -= reached - skipped;
    }
}

/* The packet goes into what is known of its flow. Returns by how many bytes that went on, with gaps; `lost`: how many of a gap are given up.
 * `begins`: not 0; where it is another number than before, what came meanwhile was not read. */
static inline u32 stream_follow(struct stream *known, struct stream_part *part, u32 *lost, u32 begins)
{
    u32 end = part->at + part->length;
    s32 ahead = part->at - known->next, on = end - known->next;

    *lost = 0;
    if (part->flags & STREAM_RST) {     /* its number may be any */
        *lost = known->gap_length;
        known->gap_length = 0;
        return 0;
    }
    if (known->known && known->known != begins) {
        known->gap_length = 0;
        known->known = begins;
        known->next = end;
        return 0;
    }
    if (!known->known || part->flags & STREAM_SYN || ahead > STREAM_GAP || on < -STREAM_GAP) {
        *lost = known->gap_length;
        known->gap_length = 0;
        known->known = begins;
        known->next = end;
        return part->length;
    }
    if (on <= 0) {
        stream_fill(known, part->at, end);
        on = 0;
    } else {
        if (ahead > 0) {
            *lost = known->gap_length;
            known->gap_at = known->next;
            known->gap_length = ahead;
        }
        known->next = end;
    }
    if (part->flags & STREAM_FIN) {
        *lost += known->gap_length;
        known->gap_length = 0;
    }
    return on;
}

#endif /* NETCONSOLE_STREAM_H */
