/* tun_queues - each queue of a tap: what the host's stack puts into its ring, how full the ring is, what does not fit, what leaves it.
 *
 * tun_net_xmit sees every packet before it is put in; the tracepoint kfree_skb tells exactly which of them found the ring full. What vhost
 * takes out is read off the ring's own position once per batch, so that the worker, the bottleneck of most guests, pays nothing per packet.
 */

enum { PACKETS, DROPS, STRANGERS };     /* counters */

struct queue_key {
    struct nc_place place;
    u32 queue;
    u32 slot;
};
struct queue_row {
    u64 packets, bytes, ring_full, taken;
    u64 tcp_gso, udp_gso, other_gso;
    u64 size;           /* gauge */
};
BPF_TABLE("percpu_hash", struct queue_key, struct queue_row, queues, NC_ROWS_queues);
BPF_TABLE("percpu_hash", struct queue_key, struct nc_bucket, occupancy, NC_ROWS_occupancy);

/* ---- how far vhost has come in a ring ---- */
struct position {
    u32 consumed;       /* slots */
    u32 waiting;        /* packets in vhost's own buffer: taken, but not delivered */
};
BPF_TABLE("lru_hash", u64, struct position, positions, 8192);   /* by ring; its worker alone advances it */

static inline struct queue_row *row_of(struct queue_key *key)
{
    struct queue_row none = {}, *row = queues.lookup_or_try_init(key, &none);

    if (!row)
        nc_ledger_add(NC_MAP_FULL);
    return row;
}

/* Packets in the ring (include/linux/ptr_ring.h): its ends say how many, except that they meet when it is empty and when it is full. A slot
 * that the consumer has passed may keep its pointer until a batch of them is cleared, but never the slot where both ends meet. */
static inline u32 ring_occupancy(struct ptr_ring *ring, u32 *size)
{
    int producer = NC_READ(ring, producer), consumer = NC_READ(ring, consumer_head);
    void **slots, *packet = NULL;

    *size = NC_READ(ring, size);
    if (producer != consumer)
        return producer > consumer ? producer - consumer : producer + *size - consumer;
    slots = NC_READ(ring, queue);
    bpf_probe_read_kernel(&packet, sizeof(packet), slots + producer);
    return packet ? *size : 0;
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
    struct position start = {};
    struct tun_file *tfile;
    struct ptr_ring *ring;
    u32 size, used;

    if (!config)
        return 0;
    nc_place_of(&key.place, dev);
    if (!nc_place_wanted(config, &key.place))
        return 0;
    tfile = tap_queue_of_packet(skb, dev);
    key.queue = NC_READ(skb, queue_mapping);
    if (!tfile || NC_READ(tfile, socket.sk) != &tfile->sk) {
        nc_count(STRANGERS);
        return 0;
    }
    nc_count(PACKETS);
    row = row_of(&key);
    if (!row)
        return 0;
    ring = &tfile->tx_ring;
    used = ring_occupancy(ring, &size);
    if (!row->packets) {        /* the first on this CPU: from here on what vhost takes is counted */
        start.consumed = NC_READ(ring, consumer_head);
        positions.insert((u64 *)&ring, &start);
    }
    nc_add(&row->packets, 1);
    nc_add(&row->bytes, NC_READ(skb, len));
    row->size = size;
    count_gso(row, skb);
    key.slot = nc_slot(used);
    nc_bucket_add(occupancy.lookup_or_try_init(&key, &none), used);
    return 0;
}

#ifdef HAVE_SKB_DROP_REASON_FULL_RING
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
    if (row) {
        nc_count(DROPS);
        nc_add(&row->ring_full, 1);
    }
    return 0;
}
#endif

/* A batch goes to the guest: vhost_add_used_and_signal_n. At most 128 slots lie between two batches, and rings have more. */
int taken(struct pt_regs *ctx, struct vhost_dev *dev, struct vhost_virtqueue *vq)
{
    struct vhost_net_virtqueue *nvq = (void *)vq - offsetof(struct vhost_net_virtqueue, vq);
    struct ptr_ring *ring = NC_READ(nvq, rx_ring);
    struct position now = {}, *before;
    struct tap_queue tap = {};
    struct queue_key key = {};
    struct queue_row *row;
    u64 address = (u64)ring;
    u32 size;

    if (!ring || tap_of_socket(&tap, NC_READ(vq, private_data)))    /* the guest's transmit queue has no ring */
        return 0;
    key.place = tap.place;
    key.queue = tap.queue;
    row = queues.lookup(&key);
    if (!row)
        return 0;
    size = NC_READ(ring, size);
    now.consumed = NC_READ(ring, consumer_head);
    now.waiting = NC_READ(nvq, rxq.tail) - NC_READ(nvq, rxq.head);
    before = positions.lookup(&address);
    if (before && size > 128)
        nc_add(&row->taken, (now.consumed + size - before->consumed) % size + before->waiting - now.waiting);
    positions.update(&address, &now);
    return 0;
}
