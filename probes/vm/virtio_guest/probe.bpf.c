/* virtio_guest - inside a guest: how its virtio network queues are polled and interrupted, and whether the receive ring could be refilled.
 *
 * The tracepoint napi_poll sees every poll, irq_handler_entry every interrupt. The objects tell which of them are virtio_net's: a virtqueue
 * belongs to a virtio device whose driver data is a virtnet_info that points back to both.
 */

#include "../../common/netconsole.h"
#include "../../common/checks.h"

enum { POLLS, INTERRUPTS, REFILLS };    /* counters */
enum { QUEUE };                         /* checks */

struct queue_key {
    struct nc_place place;
    u16 queue;
    char direction[2];
    u32 slot;
};
struct queue_row {
    u64 polls, interrupts, packets, exhausted;
};
BPF_TABLE("percpu_hash", struct queue_key, struct queue_row, queues, NC_ROWS_queues);
BPF_TABLE("percpu_hash", struct queue_key, struct nc_bucket, work, NC_ROWS_work);

struct device_row {
    u64 refills;
};
BPF_TABLE("percpu_hash", struct nc_place, struct device_row, devices, NC_ROWS_devices);

#define VIRTIO_ID_NET 1     /* include/uapi/linux/virtio_ids.h */

/* The network device of a virtqueue. NULL when it is no virtqueue of virtio_net, whatever the pointer points to. */
static inline struct net_device *device_of(struct virtqueue *vq)
{
    struct virtio_device *vdev = NC_READ(vq, vdev);
    struct virtnet_info *info = NC_READ(vdev, priv);

    if (!info || NC_READ(vdev, id.device) != VIRTIO_ID_NET || NC_READ(info, vdev) != vdev)
        return NULL;
    return NC_READ(info, dev);
}

/* A network device on the virtio bus is virtio_net's (or CAIF's, which nobody has). */
static inline int is_on_virtio_bus(struct net_device *dev)
{
    struct device *parent = NC_READ(dev, dev.parent);
    const struct bus_type *bus = NC_READ(parent, bus);
    u64 text = 0, name = 0;

    bpf_probe_read_kernel(&text, sizeof(text), (void *)&bus->name);
    bpf_probe_read_kernel(&name, sizeof("virtio"), (void *)text);
    return name == NC_WORD('v', 'i', 'r', 't', 'i', 'o', 0, 0);
}

static inline void key_of(struct queue_key *key, struct virtqueue *vq, struct net_device *dev)
{
    u32 index = NC_READ(vq, index);     /* receive queues are even, transmit queues odd (vq2rxq, vq2txq) */

    key->queue = index / 2;
    key->direction[0] = index & 1 ? 't' : 'r';
    key->direction[1] = 'x';
    nc_place_of(&key->place, dev);
}

static inline struct queue_row *row_of(struct queue_key *key)
{
    struct queue_row none = {}, *row = queues.lookup_or_try_init(key, &none);

    if (!row)
        nc_ledger_add(NC_MAP_FULL);
    return row;
}

int polled(struct bpf_raw_tracepoint_args *ctx)
{
    struct napi_struct *napi = NC_ARG(0);
    struct receive_queue *rq = (void *)napi - offsetof(struct receive_queue, napi);
    struct send_queue *sq = (void *)napi - offsetof(struct send_queue, napi);
    int done = ctx->args[1], budget = ctx->args[2];
    struct nc_config *config = nc_config_get();
    struct net_device *dev = NC_READ(napi, dev);
    struct queue_key key = {};
    struct nc_bucket none = {};
    struct queue_row *row;
    struct virtqueue *vq;

    if (!config || !dev)
        return 0;
    vq = NC_READ(rq, vq);
    if (device_of(vq) != dev) {
        vq = NC_READ(sq, vq);
        if (device_of(vq) != dev) {
            if (is_on_virtio_bus(dev))
                nc_check(QUEUE, 0);
            return 0;
        }
    }
    nc_check(QUEUE, 1);
    key_of(&key, vq, dev);
    if (!nc_place_wanted(config, &key.place))
        return 0;
    nc_count(POLLS);
    row = row_of(&key);
    if (row) {
        nc_add(&row->polls, 1);
        nc_add(&row->packets, done);
        if (done >= budget)
            nc_add(&row->exhausted, 1);
    }
    key.slot = nc_slot(done);
    nc_bucket_add(work.lookup_or_try_init(&key, &none), done);
    return 0;
}

/* A virtqueue with an interrupt of its own is the argument of the interrupt's handler (vring_interrupt). */
int interrupted(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct irqaction *action = NC_ARG(1);
    struct virtqueue *vq = (void *)NC_READ(action, dev_id);
    struct net_device *dev = vq ? device_of(vq) : NULL;
    struct queue_key key = {};
    struct queue_row *row;

    if (!config || !dev)
        return 0;
    key_of(&key, vq, dev);
    if (!nc_place_wanted(config, &key.place))
        return 0;
    nc_count(INTERRUPTS);
    row = row_of(&key);
    if (row)
        nc_add(&row->interrupts, 1);
    return 0;
}

/* There was no memory to fill the receive ring. */
static inline void count_refill(struct virtnet_info *info)
{
    struct nc_config *config = nc_config_get();
    struct device_row none = {}, *row;
    struct nc_place place = {};

    nc_place_of(&place, NC_READ(info, dev));
    if (!config || !nc_place_wanted(config, &place))
        return;
    nc_count_shared(REFILLS);
    row = devices.lookup_or_try_init(&place, &none);
    if (row)
        nc_add(&row->refills, 1);
    else
        nc_ledger_add(NC_MAP_FULL);
}

#ifdef HAVE_virtnet_info_refill
/* refill_work tries again later. It also runs once when a device is opened. */
int refilled(void *ctx)
{
    struct work_struct *item = NC_PARAMETER(0);

    count_refill((void *)item - offsetof(struct virtnet_info, refill.work));
    return 0;
}
#endif

/* Kernels without refill_work (7.x) try again in the next poll: try_fill_recv says that it was in vain. */
int not_filled(void *ctx)
{
    if (!(u8)NC_RESULT)
        count_refill(NC_PARAMETER(0));
    return 0;
}
