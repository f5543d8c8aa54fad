/* tun_queues - each queue of a tap: what the host's stack puts into its ring, how full the ring is, what does not fit, what leaves it.
 *
 * tun_net_xmit sees every packet before it is put in; the tracepoint kfree_skb tells exactly which of them found the ring full. What vhost
 * takes out is read off the ring's own position once per batch, so that the worker, the bottleneck of most guests, pays nothing per packet.
 */

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

/* ---- how far vhost has come in a ring ---- */
struct position {
    u32 consumed;       /* slots */
    u32 waiting;        /* packets in vhost's own buffer: taken, but not delivered */
    u64 taken_ns;       /* when vhost last took a batch; 0: not yet seen */
};
BPF_TABLE("lru_hash", u64, struct position, positions, 8192);   /* by the ring's slots; its worker alone advances it */

/* Rings that have a position: a look-up that is inlined, on the way of every packet. Memory of a queue that is closed is that of the next
 * one soon: after each end of one all are looked at anew. */
#define KNOWN_BITS 10
BPF_PERCPU_ARRAY(known, u64, 1 << KNOWN_BITS);
BPF_ARRAY(ends, u64, 1);

static inline struct queue_row *row_of(struct queue_key *key)
{
    struct queue_row none = {}, *row = queues.lookup_or_try_init(key, &none);

    if (!row)
        nc_ledger_add(NC_MAP_FULL);
    return row;
}

/* include/linux/ptr_ring.h */
struct ring {
    u32 producer, consumer, size;
    u64 slots;
};
#define SHARED_AT offsetof(struct ptr_ring, consumer_head)
#define SHARED_BYTES (offsetof(struct ptr_ring, queue) + sizeof(void *) - SHARED_AT)

static inline void read_ring(struct ring *copy, struct ptr_ring *ring)
{
    u64 shared[(SHARED_BYTES + 7) / 8] = {};        /* from the consumer's position to the slots: one call, not three */

    bpf_probe_read_kernel(shared, SHARED_BYTES, (void *)ring + SHARED_AT);
    copy->producer = NC_READ(ring, producer);
    copy->consumer = *(u32 *)shared;
    copy->size = *(u32 *)((void *)shared + offsetof(struct ptr_ring, size) - SHARED_AT);
    copy->slots = *(u64 *)((void *)shared + offsetof(struct ptr_ring, queue) - SHARED_AT);
}

/* Packets in the ring: its ends say how many, except that they meet when it is empty and when it is full. A slot that the consumer has
 * passed may keep its pointer until a batch of them is cleared, but never the slot where both ends meet. */
static inline u32 ring_occupancy(struct ring *ring)
{
    void *packet = NULL;

    if (ring->producer != ring->consumer)
        return ring->producer > ring->consumer ? ring->producer - ring->consumer : ring->producer + ring->size - ring->consumer;
    bpf_probe_read_kernel(&packet, sizeof(packet), (void **)ring->slots + ring->producer);
    return packet ? ring->size : 0;
}

/* From here on what vhost takes is counted. */
static inline void start_from(struct ring *ring)
{
    u32 index = (ring->slots * 0x9e3779b97f4a7c15ull) >> (64 - KNOWN_BITS);
    struct position start = { .consumed = ring->consumer };
    int zero = 0;
    u64 *one = known.lookup(&index), *ended = ends.lookup(&zero);

    if (!one || !ended || *one == ring->slots + *ended)
        return;
    positions.insert(&ring->slots, &start);
    *one = ring->slots + *ended;
}

int closed(struct pt_regs *ctx, struct inode *inode, struct file *file)
{
    struct tun_file *tfile = NC_READ(file, private_data);
    u64 slots = (u64)NC_READ(tfile, tx_ring.queue), *ended;
    int zero = 0;

    positions.delete(&slots);
    ended = ends.lookup(&zero);
    if (ended)
        __sync_fetch_and_add(ended, 1);
    return 0;
}

static inline void count_gso(struct queue_row *row, struct sk_buff *skb)
{
    struct skb_shared_info *shared = (void *)NC_READ(skb, head) + NC_READ(skb, end);
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

int offered(struct pt_regs *ctx, struct sk_buff *skb, struct net_device *dev)
{
    struct nc_config *config = nc_config_get();
    struct queue_key key = {};
    struct nc_bucket none = {};
    struct queue_row *row;
    struct tun_file *tfile;
    struct ring ring;
    u32 used;

    if (!config)
        return 0;
    nc_place_of(&key.place, dev);
    if (!nc_place_wanted(config, &key.place))
        return 0;
    tfile = tap_queue_of_packet(skb, dev);
    key.queue = NC_READ(skb, queue_mapping);
    if (!tfile || !nc_check(QUEUE, NC_READ(tfile, socket.sk) == &tfile->sk)) {
        nc_count(STRANGERS);
        return 0;
    }
    nc_count(PACKETS);
    row = row_of(&key);
    if (!row)
        return 0;
    read_ring(&ring, &tfile->tx_ring);
    used = ring_occupancy(&ring);
    start_from(&ring);
    nc_add(&row->packets, 1);
    nc_add(&row->bytes, NC_READ(skb, len));
    row->size = ring.size;
    count_gso(row, skb);
    key.slot = nc_slot(used);
    nc_bucket_add(occupancy.lookup_or_try_init(&key, &none), used);
    return 0;
}

#ifdef HAVE_SKB_DROP_REASON_FULL_RING
#define STUCK_NS 1000000000ull      /* a vhost worker comes in microseconds, on a machine without a free CPU in milliseconds */

static inline int is_stuck(struct tun_file *tfile)
{
    u64 slots = (u64)NC_READ(tfile, tx_ring.queue);
    struct position *position = positions.lookup(&slots);

    return position && position->taken_ns && bpf_ktime_get_ns() > position->taken_ns + STUCK_NS;
}

/* Only tun and macvtap have rings; a macvtap packet's device is not in a row, for tun_net_xmit has not seen it. */
int dropped(struct bpf_raw_tracepoint_args *ctx)
{
    struct sk_buff *skb = NC_ARG(0);
    struct queue_key key = {};
    struct queue_row *row;

    if (ctx->args[2] != SKB_DROP_REASON_FULL_RING)
        return 0;
    nc_place_of(&key.place, NC_READ(skb, dev));
    key.queue = NC_READ(skb, queue_mapping);
    row = queues.lookup(&key);
    if (!row)
        return 0;
    nc_count(DROPS);
    nc_add(&row->ring_full, 1);
    if (is_stuck(tap_queue_of_packet(skb, NC_READ(skb, dev))))
        nc_add(&row->stuck, 1);
    return 0;
}
#endif

/* A batch goes to the guest: vhost_add_used_and_signal_n. At most 128 slots lie between two batches, and rings have more. */
int taken(struct pt_regs *ctx, struct vhost_dev *dev, struct vhost_virtqueue *vq)
{
    struct vhost_net_virtqueue *nvq = (void *)vq - offsetof(struct vhost_net_virtqueue, vq);
    struct ptr_ring *source = NC_READ(nvq, rx_ring);
    struct socket *sock = NC_READ(vq, private_data);
    struct tun_file *tfile = (void *)sock - offsetof(struct tun_file, socket);
    struct position now = {}, *before;
    struct tap_queue tap = {};
    struct queue_key key = {};
    struct queue_row *row;
    struct ring ring;

    if (!source || tap_of_socket(&tap, sock))   /* the guest's transmit queue has no ring */
        return 0;
    if (!nc_check(RING, source == &tfile->tx_ring))
        return 0;
    key.place = tap.place;
    key.queue = tap.queue;
    row = queues.lookup(&key);
    if (!row)
        return 0;
    read_ring(&ring, source);
    now.consumed = ring.consumer;
    now.waiting = NC_READ(nvq, rxq.tail) - NC_READ(nvq, rxq.head);
    now.taken_ns = bpf_ktime_get_ns();
    before = positions.lookup(&ring.slots);
    if (before && ring.size > 128)
        nc_add(&row->taken, (now.consumed + ring.size - before->consumed) % ring.size + before->waiting - now.waiting);
    positions.update(&ring.slots, &now);
    return 0;
}
