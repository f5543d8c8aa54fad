/* echo.h - ICMP echoes: finds the request or the reply in a packet, and keeps a record of each echo: when it passed four points.
 *
 * An echo is known by its addresses and by ICMP's id and sequence number, as its request has them. A fingerprint of the first bytes that it
 * carries tells it from another echo that has the same. A record stays in the map until the collector has read it and it is old: nothing
 * here leaves an echo out.
 */
#ifndef NETCONSOLE_ECHO_H
#define NETCONSOLE_ECHO_H

#include "netconsole.h"
#include "fragment.h"
#include "path.h"

enum { ECHO_NONE, ECHO_REQUEST, ECHO_REPLY };
enum { REQUEST_IN, REQUEST_OUT, REPLY_IN, REPLY_OUT, ECHO_POINTS };     /* of a machine that echoes cross */

enum { ECHOES, REPEATED, DUPLICATES, UNKNOWN, ANOTHER };                /* counters */

#define ECHO_FRAGMENTED 1       /* flag: its request or its reply came in fragments, of which the first one is timed */
#define ECHO_EXTENSIONS 3       /* of IPv6, that a real echo may have: hop-by-hop, routing, destination, fragment */

struct echo_key {
    u64 source[2];      /* of the request; network byte order, IPv4 as ::ffff:a.b.c.d */
    u64 target[2];
    u16 id;             /* host byte order */
    u16 seq;
    u32 pad;
};

struct echo_record {
    u64 at_ns[ECHO_POINTS];         /* 0: not seen there */
    u64 device[ECHO_POINTS][2];
#ifdef ECHO_STAGES
    u64 irq_ns[5];                  /* S1 to S5 of vhost.h; 0: not seen there */
    u64 kick_ns[3];                 /* K1 to K3 */
#endif
    u32 fingerprint;    /* of what it carries; 0: it carries less than 8 bytes, or they could not be read */
    u32 flags;
    u32 repeated;       /* further requests that are the same */
    u32 duplicates;     /* further replies */
};
BPF_TABLE("hash", struct echo_key, struct echo_record, echoes, NC_ROWS_echoes);
BPF_ARRAY(echo_nothing, struct echo_record, 1);     /* zeros: a record is too large for the stack */

/* What was found in a packet. */
struct echo {
    struct echo_key key;
    u32 fingerprint;
    u32 flags;
    u32 kind;           /* ECHO_* */
    u32 pad;
};

/* The programs may interrupt each other: the addition is one instruction. */
static inline void echo_count(u32 slot)
{
    u64 *counter = nc_counters.lookup(&slot);

    if (counter)
        __sync_fetch_and_add(counter, 1);
}

/* Moves over the extension headers of IPv6. Returns the offset of ICMPv6 from the network header, 0 when there is none. */
static inline u32 echo_skip_extensions(struct echo *echo, struct path_packet *packet, unsigned char *head, u32 end)
{
    u8 next = packet->protocol, header[4] = {};
    u32 at = packet->l4;

#pragma unroll
    for (int i = 0; i < ECHO_EXTENSIONS; i++) {
        if (next == 58)
            return at;
        if (next != 0 && next != 43 && next != 44 && next != 60)
            return 0;
        if (packet->at + at + 8 > end || bpf_probe_read_kernel(header, sizeof(header), head + packet->at + at))
            return 0;
        if (next == 44) {
            if (header[2] || header[3] & 0xf8)      /* a later fragment */
                return 0;
            echo->flags |= ECHO_FRAGMENTED;
            at += 8;
        } else {
            at += (header[1] + 1) * 8;
        }
        next = header[0];
    }
    return next == 58 ? at : 0;
}

/* Where ICMP begins, counted from the network header, and the packet's length as IP says it. Returns 0 when it is no ICMP. */
static inline u32 echo_icmp_at(struct echo *echo, struct path_packet *packet, unsigned char *head, u32 end, u32 *length)
{
    if (packet->version == 4) {
        u16 fragment = path_u16(packet, 6);
        if (packet->protocol != 1 || fragment & 0x1fff)
            return 0;
        if (fragment & 0x2000)
            echo->flags |= ECHO_FRAGMENTED;
        *length = path_u16(packet, 2);
        nc_map_ipv4(echo->key.source, path_u32(packet, 12));
        nc_map_ipv4(echo->key.target, path_u32(packet, 16));
        return packet->l4;
    }
    if (packet->version == 6) {
        *length = 40 + path_u16(packet, 4);
        __builtin_memcpy(echo->key.source, &packet->bytes[1], 16);
        __builtin_memcpy(echo->key.target, &packet->bytes[3], 16);
        return echo_skip_extensions(echo, packet, head, end);
    }
    return 0;
}

/* Finds the echo in a packet whose headers were read. `made`: IP has not written its length yet. `size`: of the buffer, where the packet goes
 * on in fragments; 0: it does not. Returns its kind. */
static inline u32 echo_find(struct echo *echo, struct path_packet *packet, unsigned char *head, u32 end, int made, u32 size)
{
    u32 at, length = 0;
    u16 icmp[4] = {};
    u64 carried = 0;
    u8 type;

    __builtin_memset(echo, 0, sizeof(*echo));
    at = echo_icmp_at(echo, packet, head, end, &length);
    if (!at)
        return ECHO_NONE;
    if (made)
        length = end - packet->at;
    if (length < at + sizeof(icmp))             /* cut by its sender */
        return ECHO_NONE;
    if (size && packet->at + at >= end && fragment_enter(&head, &end, size)) {    /* IP has pulled its own header alone */
        nc_ledger_add(NC_PARSE_FAILED);
        return ECHO_NONE;
    }
    if (packet->at + at + sizeof(icmp) > end || bpf_probe_read_kernel(icmp, sizeof(icmp), head + packet->at + at)) {
        nc_ledger_add(NC_PARSE_FAILED);
        return ECHO_NONE;
    }
    type = ((u8 *)icmp)[0];
    if (((u8 *)icmp)[1])                        /* code: 0 in each echo (RFC 792, RFC 4443) */
        return ECHO_NONE;
    if (type == (packet->version == 4 ? 8 : 128))
        echo->kind = ECHO_REQUEST;
    else if (type == (packet->version == 4 ? 0 : 129))
        echo->kind = ECHO_REPLY;
    else
        return ECHO_NONE;
    echo->key.id = bpf_ntohs(icmp[2]);
    echo->key.seq = bpf_ntohs(icmp[3]);
    if (length >= at + 16 && packet->at + at + 16 <= end && !bpf_probe_read_kernel(&carried, 8, head + packet->at + at + 8))
        echo->fingerprint = path_hash(carried);
    if (echo->kind == ECHO_REPLY) {
        u64 first = echo->key.source[0], second = echo->key.source[1];
        echo->key.source[0] = echo->key.target[0];
        echo->key.source[1] = echo->key.target[1];
        echo->key.target[0] = first;
        echo->key.target[1] = second;
    }
    return echo->kind;
}

static inline int echo_wanted(struct nc_config *config, struct echo *echo)
{
    if (!nc_ends_wanted(config, echo->key.source, echo->key.target, 0, 0))
        return 0;
    return !(config->flags & NC_F_ADDRESS) || nc_address_wanted(config, echo->key.source) || nc_address_wanted(config, echo->key.target);
}

/* Whether these are really the headers of IP: of IPv4 the sum of its header must be right, of IPv6 the length. */
static inline int echo_is_sound(struct path_packet *packet, struct sk_buff *skb)
{
    u32 sum = 0;

    if (packet->version == 6)
        return path_u16(packet, 4) + 40u <= NC_GET(skb, len);
    if (packet->version != 4 || packet->l4 != 20)
        return 0;
#pragma unroll
    for (int i = 0; i < 10; i++)
        sum += ((u16 *)packet->bytes)[i];
    return (u16)(sum + (sum >> 16)) == 0xffff;
}

/* The echo in a packet on a device of a set, if it passes the filters. Only in BTF-typed programs: it reads the packet directly. */
static inline u32 echo_at_device(struct echo *echo, struct nc_config *config, struct sk_buff *skb, struct net_device *dev, int sent)
{
    struct path_packet packet;
    struct path_buffer buffer;
    u32 begin, size;
    int is_beyond;

    path_buffer_of(&buffer, skb);
    begin = sent ? buffer.network : buffer.data;
    size = NC_GET(skb, data_len) ? NC_GET(skb, end) : 0;
    is_beyond = size && begin >= buffer.end;
    if (is_beyond && fragment_enter(&buffer.head, &buffer.end, size)) {
        nc_ledger_add(NC_PARSE_FAILED);
        return ECHO_NONE;
    }
    path_read_buffer(&packet, &buffer, sent, 1);
    if (packet.broken)
        nc_ledger_add(NC_PARSE_FAILED);
    if (is_beyond && !echo_is_sound(&packet, skb))
        return ECHO_NONE;
    if (!echo_find(echo, &packet, buffer.head, buffer.end, 0, is_beyond ? 0 : size))
        return ECHO_NONE;
    return echo_wanted(config, echo) && nc_netns_wanted(config, dev) ? echo->kind : ECHO_NONE;
}

static inline int echo_is_another(struct echo_record *record, struct echo *echo)
{
    return record->fingerprint && echo->fingerprint && record->fingerprint != echo->fingerprint;
}

static inline int echo_same_device(struct echo_record *record, u32 point, u64 *device)
{
    return record->device[point][0] == device[0] && record->device[point][1] == device[1];
}

static inline void echo_stamp(struct echo_record *record, struct echo *echo, u32 point, u64 *device, u64 now)
{
    record->device[point][0] = device[0];
    record->device[point][1] = device[1];
    record->flags |= echo->flags;
    record->at_ns[point] = now;
}

/* Its request comes to the first point: a record of its own begins. One with the same key that is old has been read by now. NULL: none
 * begins. */
static inline struct echo_record *echo_begin(struct nc_config *config, struct echo *echo, u64 *device)
{
    u64 now = bpf_ktime_get_ns();
    struct echo_record *record = echoes.lookup(&echo->key), *nothing;
    u32 zero = 0;

    if (record && now - record->at_ns[REQUEST_IN] < nc_knob(config, keep_ms) * 1000000) {
        if (echo_is_another(record, echo)) {
            echo_count(ANOTHER);
        } else if (echo_same_device(record, REQUEST_IN, device)) {
            __sync_fetch_and_add(&record->repeated, 1);
            echo_count(REPEATED);
        }
        return NULL;
    }
    nothing = echo_nothing.lookup(&zero);
    if (!nothing)
        return NULL;
    echo_count(ECHOES);
    if (echoes.update(&echo->key, nothing) || !(record = echoes.lookup(&echo->key))) {
        nc_ledger_add(NC_MAP_FULL);
        return NULL;
    }
    record->fingerprint = echo->fingerprint;
    echo_stamp(record, echo, REQUEST_IN, device, now);
    return record;
}

/* The echo comes to one of the other points. What it passes there first counts. NULL: it was there before, or has no record. */
static inline struct echo_record *echo_pass(struct echo *echo, u32 point, u64 *device)
{
    u64 now = bpf_ktime_get_ns();
    struct echo_record *record = echoes.lookup(&echo->key);

    if (!record) {                  /* from before the probe, or it came another way */
        echo_count(UNKNOWN);
        return NULL;
    }
    if (echo_is_another(record, echo)) {
        echo_count(ANOTHER);
        return NULL;
    }
    if (!record->at_ns[point]) {
        echo_stamp(record, echo, point, device, now);
        return record;
    }
    if (point == REPLY_IN && echo_same_device(record, point, device)) {
        __sync_fetch_and_add(&record->duplicates, 1);
        echo_count(DUPLICATES);
    }
    return NULL;
}

#endif /* NETCONSOLE_ECHO_H */
