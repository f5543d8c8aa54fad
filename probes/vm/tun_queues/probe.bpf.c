/* tun_queues - each queue of a tap: what the host's stack puts into its ring, how full the ring is, what does not fit, what leaves it.
 *
 * tun_net_xmit sees every packet before it is put in. The tracepoint kfree_skb tells exactly which of them found the ring full. What vhost
 * takes out is read from the ring's own position once per batch. So vhost's worker, the bottleneck of most guests, pays nothing per packet.
 */

#include "../../common/netconsole.h"
#include "../../common/checks.h"
#include "../../common/resumed.h"
#include "../../common/tap.h"

enum { PACKETS, DROPS, STRANGERS };     /* counters */
enum { QUEUE, RING };                   /* checks */

struct queue_key {
    struct nc_place place;
    u32 queue;
    u32 slot;
};
struct queue_row {
    u64 packets, bytes, ring_full, stuck, taken;
    u64 tcp_gso, udp_gso, other_gso;
    u64 size;           /* gauge */
};
BPF_TABLE("percpu_hash", struct queue_key, struct queue_row, queues, NC_ROWS_queues);
BPF_TABLE("percpu_hash", struct queue_key, struct nc_bucket, occupancy, NC_ROWS_occupancy);

/* ---- how many flows share a queue, by the hash that a NIC, Open vSwitch or a socket gave each packet ---- */
struct spread {
    u64 flows;          /* gauge: parts seen in this period, or in the one before if there were more */
    u64 parts;          /* seen in this period: bit n is the n-th 64th of all hashes */
    u64 earlier;        /* how many parts in the period before */
    u64 period;
};
BPF_TABLE("hash", struct queue_key, struct spread, spread, NC_ROWS_spread);
#define PERIOD_SHIFT 33     /* a period is 2^33 ns, 8.6 s: no division */
#define PART_SHIFT 26       /* of a hash: its highest 6 bits */

/* ---- vhost's position in a ring ---- */
struct position {
    u32 consumed;       /* slots */
    u32 waiting;        /* packets in vhost's own buffer: taken but not delivered */
    u64 taken_ns;       /* when vhost last took a batch; 0: not seen yet */
    u64 noted_ns;       /* when this was noted */
    u64 full_ns;        /* when the ring was first found full since then; before taken_ns: not since */
    u64 slots;          /* of which this is said: a ring that gets another size gets others, and begins anew */
};
BPF_TABLE("lru_hash", u64, struct position, positions, 8192);   /* by the ring; once begun, only its worker writes it, full_ns apart */

/* The queues to which a CPU has sent packets last. What is the same for all packets of a queue costs six helper calls to read, and none
 * to look up here. It is read again after eight ticks, and whenever a queue ends, whose memory may soon be used for another one. */
struct recent_queue {
    u64 device;
    u64 ticks;
    u64 ends;
    u64 tfile;
    struct nc_place place;
    u32 queue;
    u32 hash;           /* of the last flow that was counted */
};
BPF_PERCPU_ARRAY(recent_queues, struct recent_queue, 1 << RECENT_BITS);
BPF_ARRAY(ends, u64, 1);

static inline struct queue_row *row_of(struct queue_key *key)
{
    struct queue_row none = {}, *row = queues.lookup_or_try_init(key, &none);

    if (!row)
        nc_ledger_add(NC_MAP_FULL);
    return row;
}

/* The ends of a ring, its size and its slots (include/linux/ptr_ring.h). They are spread over three cache lines. */
struct ring {
    u32 producer, consumer, size;
    void **slots;
};

static inline void read_ring(struct ring *ring, struct ptr_ring *from)
{
    NC_SPAN(struct ptr_ring, whole, producer, queue, from);

    ring->producer = NC_OF(whole, producer);
    ring->consumer = NC_OF(whole, consumer_head);
    ring->size = NC_OF(whole, size);
    ring->slots = NC_OF(whole, queue);
}

/* How many packets are in the ring. Its two ends say so, but they meet when it is empty and when it is full. The slot where they meet
 * tells: it has a pointer only when the ring is full. Other slots may keep a pointer for a while after they were read. */
static inline u32 ring_occupancy(struct ring *ring)
{
    u32 producer = ring->producer, consumer = ring->consumer;

    if (producer != consumer)
        return producer > consumer ? producer - consumer : producer + ring->size - consumer;
    return NC_AT(u64, ring->slots + producer) ? ring->size : 0;
}

/* Counts what vhost takes from now on. */
static inline void start_from(struct ptr_ring *from)
{
    u64 ring = (u64)from;
    struct position start = {}, *position = positions.lookup(&ring);

    start.consumed = NC_READ(from, consumer_head);
    start.noted_ns = bpf_ktime_get_ns();
    start.slots = (u64)NC_READ(from, queue);
    if (!position)
        positions.insert(&ring, &start);
    else if (position->slots != start.slots)
        *position = start;
}

/* tun_chr_close waits for rtnl, and until then packets still come. Nothing may be kept of such a queue, for nothing tells when its memory
 * becomes another one's. Its file has no users any more. */
static inline int is_ending(struct tun_file *tfile)
{
    struct file *file = NC_READ(tfile, socket.file);

#ifdef HAVE_file_f_ref
    return (s64)NC_READ(file, f_ref.refcnt.counter) < 0;    /* 6.13 */
#else
    return !NC_READ(file, f_count.counter);
#endif
}

static inline void forget_position(struct tun_file *tfile)
{
    u64 ring = (u64)&tfile->tx_ring;

    positions.delete(&ring);
}

/* NULL: there is no such queue, or the device is no tun device. */
static inline struct recent_queue *queue_of(struct net_device *dev, u32 queue)
{
    u32 index = recent_index((u64)dev + queue);
    struct recent_queue *recent = recent_queues.lookup(&index);
    u64 ticks = nc_grant_ticks(), *ended;
    struct tun_file *tfile;
    int zero = 0;

    ended = ends.lookup(&zero);
    if (!recent || !ended)
        return NULL;
    if (recent->device == (u64)dev && recent->queue == queue && recent->ticks == ticks && recent->ends == *ended)
        return recent;
    recent->device = 0;
    recent->ends = *ended;
    tfile = tap_queue_of_device(dev, queue);
    if (!tfile || !nc_check(QUEUE, NC_READ(tfile, socket.sk) == &tfile->sk))
        return NULL;
    start_from(&tfile->tx_ring);
    nc_place_of(&recent->place, dev);
    recent->tfile = (u64)tfile;
    recent->queue = queue;
    recent->ticks = ticks;
    recent->hash = 0;
    if (is_ending(tfile))       /* asked after the start: what ends meanwhile is forgotten here or in closed */
        forget_position(tfile);
    else
        recent->device = (u64)dev;
    return recent;
}

int closed(void *ctx)
{
    struct file *file = NC_PARAMETER(1);
    struct tun_file *tfile = NC_READ(file, private_data);
    u64 *ended;
    int zero = 0;

    forget_position(tfile);
    ended = ends.lookup(&zero);
    if (ended)
        __sync_fetch_and_add(ended, 1);
    return 0;
}

static inline u32 bits_of(u64 word)
{
    word -= word >> 1 & 0x5555555555555555ull;
    word = (word & 0x3333333333333333ull) + (word >> 2 & 0x3333333333333333ull);
    return ((word + (word >> 4)) & 0x0f0f0f0f0f0f0f0full) * 0x0101010101010101ull >> 56;
}

/* Of two CPUs that come here at once, one may be lost until its flow's next packet. */
static inline void count_flow(struct queue_key *key, u32 hash)
{
    u64 part = 1ull << (hash >> PART_SHIFT), period;
    struct spread none = {}, *its;

    if (!hash)
        return;
    period = bpf_ktime_get_ns() >> PERIOD_SHIFT;
    its = spread.lookup_or_try_init(key, &none);
    if (!its) {
        nc_ledger_add(NC_MAP_FULL);
        return;
    }
    if (its->period != period) {
        its->earlier = its->period + 1 == period ? bits_of(its->parts) : 0;
        its->parts = 0;
        its->period = period;
    } else if (its->parts & part) {
        return;
    }
    its->parts |= part;
    its->flows = bits_of(its->parts);
    if (its->flows < its->earlier)
        its->flows = its->earlier;
}

static inline void count_gso(struct queue_row *row, struct skb_shared_info *shared)
{
    u32 kind;

    if (!NC_READ(shared, gso_size))
        return;
    kind = NC_READ(shared, gso_type);
    if (kind & (SKB_GSO_TCPV4 | SKB_GSO_TCPV6))
        nc_add(&row->tcp_gso, 1);
    else if (kind & SKB_GSO_UDP_L4)
        nc_add(&row->udp_gso, 1);
    else
        nc_add(&row->other_gso, 1);
}

/* ---- samples of packets: whose they are, and how full the ring was ---- */

struct packet_event {
    u64 mono_ns;
    struct nc_place place;
    u32 queue;
    u32 length_bytes;
    u32 segment_bytes;      /* 0: it is one segment */
    u32 in_ring, size, producer, consumer;
    u32 pad;
    struct nc_flow flow;
};
BPF_PERCPU_ARRAY(records, struct packet_event, 1);

static inline void sample(void *ctx, struct nc_config *config, struct sk_buff *skb, struct queue_key *key, struct ring *ring, u32 used)
{
    struct packet_event *record;
    struct skb_shared_info *shared;
    u64 now = bpf_ktime_get_ns();
    struct nc_flow *flow;
    int zero = 0;

    record = records.lookup(&zero);
    if (!record)
        return;
    flow = &record->flow;
    __builtin_memset(flow, 0, sizeof(*flow));
    nc_parse(flow, skb);
    nc_parse_ports(flow, skb);
    if (!nc_flow_sampled(config, flow->source, flow->target, flow->source_port, flow->target_port) || !nc_event_in_budget(config, now))
        return;
    shared = (void *)NC_READ(skb, head) + NC_READ(skb, end);
    record->mono_ns = now;
    record->place = key->place;
    record->queue = key->queue;
    record->length_bytes = NC_READ(skb, len);
    record->segment_bytes = NC_READ(shared, gso_size);
    record->in_ring = used;
    record->size = ring->size;
    record->producer = ring->producer;
    record->consumer = ring->consumer;
    nc_submit(ctx, record, sizeof(*record));
}

#ifndef HAVE_SKB_DROP_REASON_FULL_RING
/* What tun_net_xmit is doing on this CPU (see refused). */
struct offer {
    struct queue_key key;
    u64 tfile;          /* 0: nothing that is counted */
    u64 found_full;
};
BPF_PERCPU_ARRAY(offers, struct offer, 1);

/* As its producer sees it: slots that the consumer has read keep their pointers until it has read a batch of them (__ptr_ring_full). */
static inline int ring_is_full(struct ring *ring)
{
    return NC_AT(u64, ring->slots + ring->producer) != 0;
}

static inline void note_offer(struct queue_key *key, u64 tfile, struct ring *ring)
{
    int zero = 0;
    struct offer *offer = offers.lookup(&zero);

    if (!offer)
        return;
    offer->key = *key;
    offer->tfile = tfile;
    offer->found_full = ring_is_full(ring);
}
#endif

int offered(void *ctx)
{
    struct sk_buff *skb = NC_PARAMETER(0);
    struct net_device *dev = NC_PARAMETER(1);
    struct nc_config *config = nc_config_get();
    struct queue_key key = {};
    struct nc_bucket none = {};
    struct recent_queue *queue;
    struct queue_row *row;
    struct ring ring;
    u32 used, hash;

    if (!config)
        return 0;
    NC_SPAN(struct sk_buff, packet, len, head, skb);
    queue = queue_of(dev, NC_OF(packet, queue_mapping));
    if (!queue) {
        nc_count(STRANGERS);
        return 0;
    }
    if (!nc_place_wanted(config, &queue->place))
        return 0;
    nc_count(PACKETS);
    key.place = queue->place;
    key.queue = queue->queue;
    row = row_of(&key);
    if (!row)
        return 0;
    read_ring(&ring, &((struct tun_file *)queue->tfile)->tx_ring);
    used = ring_occupancy(&ring);
    nc_add(&row->packets, 1);
    nc_add(&row->bytes, NC_OF(packet, len));
    row->size = ring.size;
    count_gso(row, (void *)NC_OF(packet, head) + NC_OF(packet, end));
    hash = NC_OF(packet, hash);
    if (hash != queue->hash)
        count_flow(&key, hash);
    queue->hash = hash;
#ifndef HAVE_SKB_DROP_REASON_FULL_RING
    note_offer(&key, queue->tfile, &ring);
#endif
    key.slot = nc_slot(used);
    nc_bucket_add(occupancy.lookup_or_try_init(&key, &none), used);
    if (config->flags & NC_F_DETAILS) {
        if (nc_flags(config) & NC_F_DETAILS)
            sample(ctx, config, skb, &key, &ring, used);
        else
            nc_ledger_add(NC_BREAKER);
        nc_leave(config);
    }
    return 0;
}

#define STUCK_NS 1000000000ull      /* a vhost worker comes in microseconds, on a machine without a free CPU in milliseconds */

/* The time of the last batch alone does not tell: that of an idle queue is old as well. */
static inline int is_stuck(struct tun_file *tfile)
{
    u64 ring = (u64)&tfile->tx_ring, now;
    struct position *position = positions.lookup(&ring);

    if (!position || !position->taken_ns || position->taken_ns < nc_resumed_ns())
        return 0;
    now = bpf_ktime_get_ns();
    if (position->full_ns < position->taken_ns)
        position->full_ns = now;
    return now > position->full_ns + STUCK_NS;
}

static inline void count_full(struct queue_row *row, struct tun_file *tfile)
{
    nc_count(DROPS);
    nc_add(&row->ring_full, 1);
    if (is_stuck(tfile))
        nc_add(&row->stuck, 1);
}

#ifdef HAVE_SKB_DROP_REASON_FULL_RING
/* Only tun and macvtap have rings; a macvtap packet's device is not in a row, for tun_net_xmit has not seen it. */
int dropped(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct sk_buff *skb = NC_ARG(0);
    struct queue_key key = {};
    struct queue_row *row;

    if (ctx->args[2] != SKB_DROP_REASON_FULL_RING || !config)
        return 0;
    nc_place_of(&key.place, NC_READ(skb, dev));
    if (!nc_place_wanted(config, &key.place))   /* it may have a row from before the filter */
        return 0;
    key.queue = NC_READ(skb, queue_mapping);
    row = queues.lookup(&key);
    if (row)
        count_full(row, tap_queue_of_device(NC_READ(skb, dev), key.queue));
    return 0;
}
#else
/* Before 5.18 there is no such reason. tun_net_xmit says that it has dropped the packet, and the ring is full then, or was when the packet
 * came: other drops, those of a filter, are rarely seen with a full ring. It runs with softirqs disabled, so its end follows on its CPU. */
int refused(void *ctx)
{
    struct offer *offer;
    struct queue_row *row;
    struct ring ring;
    int zero = 0;

    offer = offers.lookup(&zero);
    if (!offer || !offer->tfile)
        return 0;
    row = (int)(u64)NC_RESULT == NET_XMIT_DROP ? queues.lookup(&offer->key) : NULL;
    if (row) {
        read_ring(&ring, &((struct tun_file *)offer->tfile)->tx_ring);
        if (offer->found_full || ring_is_full(&ring))
            count_full(row, (void *)offer->tfile);
    }
    offer->tfile = 0;
    return 0;
}
#endif

/* A batch goes to the guest: vhost_add_used_and_signal_n. At most 128 slots lie between two batches, and rings have more. */
int taken(void *ctx)
{
    struct vhost_virtqueue *vq = NC_PARAMETER(1);
    struct vhost_net_virtqueue *nvq = (void *)vq - offsetof(struct vhost_net_virtqueue, vq);
    struct ptr_ring *source = NC_READ(nvq, rx_ring);
    struct socket *sock = NC_READ(vq, private_data);
    struct tun_file *tfile = (void *)sock - offsetof(struct tun_file, socket);
    struct nc_config *config = nc_config_get();
    struct position now = {}, *position;
    struct vhost_net_buf inside;
    struct tap_queue tap = {};
    struct queue_key key = {};
    struct queue_row *row;
    struct ring ring;
    u64 address = (u64)source;
    s32 delivered;

    if (!config || !source || tap_of_socket(&tap, sock))   /* the guest's transmit queue has no ring */
        return 0;
    if (!nc_check(RING, source == &tfile->tx_ring))
        return 0;
    key.place = tap.place;
    key.queue = tap.queue;
    row = queues.lookup(&key);
    if (!row)
        return 0;
    read_ring(&ring, source);
    inside = NC_READ(nvq, rxq);
    now.consumed = ring.consumer;
    now.waiting = inside.tail - inside.head;
    now.slots = (u64)ring.slots;
    now.taken_ns = now.noted_ns = bpf_ktime_get_ns();
    position = positions.lookup(&address);
    if (!position) {
        positions.insert(&address, &now);
        return 0;
    }
    if (position->slots != now.slots || position->noted_ns < nc_resumed_ns()) {     /* how much was taken since is not known */
        *position = now;
        return 0;
    }
    /* Below 0 where more were in vhost's buffer when the probe began than it has given since. */
    delivered = (now.consumed + ring.size - position->consumed) % ring.size + position->waiting - now.waiting;
    if (ring.size > 128 && delivered > 0 && nc_place_wanted(config, &key.place))
        nc_add(&row->taken, delivered);
    *position = now;    /* in place: nobody else writes it, and an update takes a new node and locks */
    return 0;
}
