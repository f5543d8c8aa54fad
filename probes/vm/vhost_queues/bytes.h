/* bytes.h - how many bytes are in a batch: of buffers that vhost gives back to the guest, and of packets that it sends to the tap. */
#ifndef VHOST_QUEUES_BYTES_H
#define VHOST_QUEUES_BYTES_H

#include "../../common/netconsole.h"

/* ---- to the guest: buffers that are given back ---- */

#define HEADS 64
#define CHUNKS 17       /* a batch is less than VHOST_NET_BATCH + UIO_MAXIOV buffers */
struct heads {
    struct vring_used_elem head[HEADS];
    struct vring_used_elem behind[HEADS];
    struct vring_used_elem zero[HEADS];
};
BPF_PERCPU_ARRAY(scratch, struct heads, 1);

/* Bytes written to the guest: the lengths of the buffers given back, summed in chunks. What follows the last buffer is set to zero first,
 * so that the sum needs no branches, each of which the verifier would follow. */
static inline u64 bytes_of(struct vring_used_elem *heads, u32 count)
{
    struct heads *chunk;
    u64 bytes = 0;
    int zero = 0;

    if (count == 1)
        return NC_READ(heads, len);
    chunk = scratch.lookup(&zero);
    if (!chunk)
        return 0;
    for (u32 at = 0; at < CHUNKS * HEADS && at < count; at += HEADS) {
        u32 used = count - at;
        bpf_probe_read_kernel(chunk->head, sizeof(chunk->head), heads + at);
        if (used < HEADS)
            bpf_probe_read_kernel(&chunk->head[used], sizeof(chunk->zero), chunk->zero);
        for (u32 i = 0; i < HEADS; i++)
            bytes += chunk->head[i].len;
    }
    return bytes;
}

/* ---- from the guest: up to 64 packets in one call (struct tun_msg_ctl, from 4.20) ---- */

#define XDP_BATCH 64
struct sent_batch {
    struct xdp_buff buffers[XDP_BATCH];
};
BPF_PERCPU_ARRAY(sent_batch, struct sent_batch, 1);

/* The batch is copied at once: a helper call for each packet would cost more than all the rest. */
static inline u64 bytes_sent(struct tun_msg_ctl *control)
{
    u32 count = control->num;
    struct sent_batch *copy;
    u64 bytes = 0;
    int zero = 0;

    copy = sent_batch.lookup(&zero);
    if (!copy || count > XDP_BATCH || bpf_probe_read_kernel(copy, count * sizeof(struct xdp_buff), control->ptr)) {
        nc_ledger_add(NC_PARSE_FAILED);
        return 0;
    }
    for (u32 i = 0; i < XDP_BATCH && i < count; i++) {
        bytes += (u64)copy->buffers[i].data_end - (u64)copy->buffers[i].data;
        asm volatile("" : "+r"(i));     /* the verifier needs a loop that counts up */
    }
    return bytes;
}

#endif /* VHOST_QUEUES_BYTES_H */
