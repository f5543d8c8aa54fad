/* tally.h - the tables of a mirror: what is inside, from whom it comes, by which queue, and what is wrong with it. A probe that includes it
 * has the counters ARRIVED, ARRIVED_BYTES, MALFORMED and LEFT_PACKETS. */
#ifndef NETCONSOLE_TALLY_H
#define NETCONSOLE_TALLY_H

#include "stream.h"
#include "tunnel.h"

#define LATE 4096       /* a packet that comes so much too late was taken for lost; one of a lower number is of a sender that begins anew */
#define GAP 1048576     /* more were not lost at once: it begins anew, too */

#define BEYOND_ZEROS 1  /* `missing` */

struct flow_key {
    u64 device[2];
    u64 source[2];
    u64 target[2];
    u8 tunnel[6];
    u16 l4;
    u32 netns;
    u32 vni;
    u16 source_port;
    u16 target_port;
    u16 ethertype;
    u16 vlan;
};
struct flow_row {
    u64 packets;
    u64 bytes;
    u64 missed;
    u64 missing;        /* bytes of TCP */
    struct stream stream;
    u64 first_ns;
    u64 last_ns;
};

#include "flow_table.h"

struct tuple_key {
    u64 device[2];
    u64 source[2];
    u64 target[2];
    u64 tunnel;
    u32 netns;
    u16 source_port;
    u16 target_port;
};
struct tuple_row {
    u64 packets;
    u64 bytes;
    u64 first_ns;
    u64 last_ns;
};
BPF_F_TABLE("hash", struct tuple_key, struct tuple_row, tuples, NC_ROWS_tuples, BY_NEED);

struct sum {
    u64 packets;
    u64 bytes;
};

struct vni_key {
    u64 device[2];
    u64 tunnel;
    u32 netns;
    u32 vni;
};
struct network {
    struct sum sum;
    u64 tcp_bytes;      /* by the sequence numbers: what came, and what did not */
    u64 tcp_missing;
};
BPF_TABLE("percpu_hash", struct vni_key, struct network, vnis, NC_ROWS_vnis);

struct queue_key {
    struct nc_place place;
#define of_queue place.pad
    u32 cpu;
    u32 pad;
};
BPF_TABLE("percpu_hash", struct queue_key, struct sum, queues, NC_ROWS_queues);

struct malformed_key {
    u64 wrong[2];
    u64 tunnel;
    u64 source[2];
    u32 netns;
    u32 pad;
};
BPF_TABLE("percpu_hash", struct malformed_key, u64, malformed, NC_ROWS_malformed);

/* Tunnels whose packets have numbers (GRE, ERSPAN): what never came here was lost before this host. */
struct number_key {
    u64 source[2];
    u64 target[2];
    u64 tunnel;
    u32 netns;
    u32 vni;
};
struct numbers {
    u64 packets;
    u64 lost;
    u64 late;
    u64 restarts;
    u64 next;
};
BPF_TABLE("hash", struct number_key, struct numbers, numbered, NC_ROWS_numbered);

struct of_cpu {
    u64 retry_ns;       /* until then no place is looked for in `tuples` */
    u64 is_failing;     /* the packet that is freed next was counted as lost at its socket */
};
BPF_PERCPU_ARRAY(own, struct of_cpu, 1);

/* What a program works with. */
struct scratch {
    u64 filling;        /* an interrupt must not fill it too, before 6.1 */
    struct path_packet packet;
    struct nc_flow inner;
    struct flow_key flow;
    u64 data;           /* of XDP: where the packet begins and ends */
    u64 end;
};
BPF_PERCPU_ARRAY(scratches, struct scratch, 1);

static inline void add_tuple(struct of_cpu *mine, struct tuple_key *key, u32 packets, u32 bytes, u64 now)
{
    struct tuple_row *row = tuples.lookup(key), fresh = { .first_ns = now };

    if (!row && now >= mine->retry_ns) {
        if (tuples.insert(key, &fresh) == -7)   /* E2BIG */
            mine->retry_ns = now + (1ull << RETRY_SHIFT);
        row = tuples.lookup(key);
    }
    if (!row) {
        nc_ledger_add_many(NC_MAP_FULL, packets);
        return;
    }
    __sync_fetch_and_add(&row->packets, packets);
    __sync_fetch_and_add(&row->bytes, bytes);
    row->last_ns = now;
}

static inline void add_sum(struct sum *sum, u32 packets, u32 bytes)
{
    if (sum) {
        nc_add(&sum->packets, packets);
        nc_add(&sum->bytes, bytes);
    } else {
        nc_ledger_add_many(NC_MAP_FULL, packets);
    }
}

static inline void outer_source(u64 *source, struct path_packet *packet)
{
    if (packet->version == 4)
        nc_map_ipv4(source, path_u32(packet, 12));
    else
        __builtin_memcpy(source, &packet->bytes[1], 16);
}

static inline void outer_target(u64 *target, struct path_packet *packet)
{
    if (packet->version == 4)
        nc_map_ipv4(target, path_u32(packet, 16));
    else
        __builtin_memcpy(target, &packet->bytes[3], 16);
}

static inline void count_malformed(struct tunnel *tunnel, struct tuple_key *tuple, u32 packets)
{
    struct malformed_key key = { .tunnel = tunnel->kind, .netns = tuple->netns };
    u64 none = 0, *count;

    count_many(MALFORMED, packets);
    key.wrong[0] = tunnel->wrong[0];
    key.wrong[1] = tunnel->wrong[1];
    key.source[0] = tuple->source[0];
    key.source[1] = tuple->source[1];
    count = malformed.lookup_or_try_init(&key, &none);
    if (count)
        nc_add(count, packets);
    else
        nc_ledger_add_many(NC_MAP_FULL, packets);
}

static inline void count_missing(struct tunnel *tunnel, struct tuple_key *tuple)
{
    struct number_key key = { .tunnel = tunnel->kind, .netns = tuple->netns, .vni = tunnel->vni };
    struct numbers first = { .next = tunnel->number }, *known;
    s32 ahead;

    __builtin_memcpy(key.source, tuple->source, sizeof(key.source));
    __builtin_memcpy(key.target, tuple->target, sizeof(key.target));
    known = numbered.lookup_or_try_init(&key, &first);
    if (!known) {
        nc_ledger_add(NC_MAP_FULL);
        return;
    }
    __sync_fetch_and_add(&known->packets, 1);
    ahead = tunnel->number - (u32)known->next;
    if (ahead < 0 && ahead >= -LATE) {
        __sync_fetch_and_add(&known->late, 1);
        if (known->lost)
            __sync_fetch_and_add(&known->lost, -1);
        return;
    }
    if (ahead < 0 || ahead > GAP)
        __sync_fetch_and_add(&known->restarts, 1);
    else if (ahead)
        __sync_fetch_and_add(&known->lost, ahead);
    known->next = (u32)(tunnel->number + 1);
}

/* After packets that were not read, which may be of any flow, what is followed of each begins anew. */
BPF_ARRAY(tally_begins, u32, 1);

static inline void begin_anew(void)
{
    u32 zero = 0, *begins = tally_begins.lookup(&zero);

    if (begins)
        *begins += 2;
}

/* What of a flow of TCP never came: in its row, and in that of its network. */
static inline void count_stream(struct flow_row *row, struct network *network, struct path_packet *packet, u32 end)
{
    struct stream_part part;
    u32 on, lost = 0, zero = 0, *begins = tally_begins.lookup(&zero);

    if (!begins || stream_part_of(&part, packet, end))
        return;
    on = stream_follow(&row->stream, &part, &lost, *begins | 1);
    if (lost)
        __sync_fetch_and_add(&row->missing, lost);
    if (network) {
        nc_add(&network->tcp_bytes, on);
        nc_add(&network->tcp_missing, lost);
    }
}

/* Opens the tunnel of a packet whose ethertype and offset are set. -1: it is none of the mirror. */
static inline int tally_open(struct tunnel *tunnel, struct tuple_key *tuple, struct path_packet *packet, struct tunnel_bytes *bytes, u32 vxlan)
{
    tunnel_reaches(bytes, packet->at, packet->at + 20);
    if (path_skip_tags(packet, bytes->head, bytes->end, 1) || path_read_layer(packet, bytes->head, bytes->end))
        return -1;
    if (packet->protocol != 17 && packet->protocol != 47)
        return -1;
    outer_source(tuple->source, packet);
    outer_target(tuple->target, packet);
    tunnel_open(tunnel, packet, bytes, vxlan);
    return tunnel->kind ? 0 : -1;
}

/* One packet on the wire, or several that were merged, of which all headers were read: counts it in each table. `end`: of the linear data. */
static inline void tally(struct of_cpu *mine, struct scratch *scratch, struct tunnel *tunnel, struct tuple_key *tuple,
                         struct queue_key *queue, u32 end, u32 packets, u32 bytes, u64 now)
{
    struct flow_key *key = &scratch->flow;
    struct nc_place *place = &queue->place;
    struct network *network, unknown = {};
    struct sum none = {};
    struct flow_row *row;

    count_many(ARRIVED, packets);
    count_many(ARRIVED_BYTES, bytes);
    tuple->device[0] = place->device[0];
    tuple->device[1] = place->device[1];
    tuple->netns = place->netns;
    tuple->tunnel = tunnel->kind;
    tuple->source_port = tunnel->source_port;
    tuple->target_port = tunnel->target_port;
    add_tuple(mine, tuple, packets, bytes, now);
    add_sum(queues.lookup_or_try_init(queue, &none), packets, bytes);
    if (tunnel->numbered)
        count_missing(tunnel, tuple);
    if (tunnel->unread)
        nc_ledger_add_many(NC_PARSE_FAILED, packets);
    else if (tunnel->merged)
        nc_ledger_add_many(NC_PARSE_FAILED, tunnel->merged);
    if (tunnel->wrong[0])
        count_malformed(tunnel, tuple, packets - tunnel->merged);
    if (tunnel->inner) {
        struct vni_key number = { .tunnel = tunnel->kind, .netns = place->netns, .vni = tunnel->vni };

        if (tunnel->merged) {
            packets -= tunnel->merged;
            bytes = tunnel->first_bytes;
        }
        number.device[0] = place->device[0];
        number.device[1] = place->device[1];
        network = vnis.lookup_or_try_init(&number, &unknown);
        add_sum(network ? &network->sum : NULL, packets, bytes);
        key->device[0] = place->device[0];
        key->device[1] = place->device[1];
        __builtin_memcpy(key->source, scratch->inner.source, sizeof(key->source));
        __builtin_memcpy(key->target, scratch->inner.target, sizeof(key->target));
        __builtin_memcpy(key->tunnel, &tunnel->kind, sizeof(key->tunnel));
        key->netns = place->netns;
        key->vni = tunnel->vni;
        key->source_port = scratch->inner.source_port;
        key->target_port = scratch->inner.target_port;
        key->ethertype = scratch->inner.ethertype;
        key->vlan = scratch->inner.vlan;
        key->l4 = scratch->inner.l4;
        row = flow_count(key, packets, bytes, now);
        if (row)
            count_stream(row, network, &scratch->packet, end);
    }
    if (tunnel->unread || tunnel->merged)
        begin_anew();
}

#endif /* NETCONSOLE_TALLY_H */
