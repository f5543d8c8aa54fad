/* irq_path - from the tap to the guest's interrupt, in five points. The address of an object joins each point to the next:
 *
 *   S1 tun_net_xmit: the stack gives a packet to the tap              (packet)
 *   S2 vhost_add_used_and_signal_n: vhost gives a batch to the guest  (packet -> socket -> virtqueue)
 *   S3 eventfd_signal: vhost signals the guest's eventfd              (virtqueue -> eventfd)
 *   S4 irqfd_wakeup: KVM is woken by it                               (eventfd -> irqfd)
 *   S5 kvm_apic_accept_irq: the virtual CPU's APIC takes it           (irqfd -> interrupt, in the same thread)
 *
 * An interrupt is timed from the first packet that it serves. The others of its batch are counted as coalesced, and so are batches that
 * come before KVM has delivered it. A batch is counted as polled when its guest polls and wants no interrupt. All stages of an interrupt
 * are accounted at once when it has arrived, so that their sums add up to the sum of the total.
 *
 * Where the kernel has no S5, an interrupt ends at S4: there are three stages then, and no total.
 */

#include "../../common/netconsole.h"
#include "../../common/checks.h"
#include "../../common/resumed.h"
#define KVM_DELIVERIES
#include "../../common/kvm.h"
#include "../../common/tap.h"
#include "../../common/stages.h"

enum { INTERRUPTS };    /* counters */
enum { BACKEND, LINE }; /* checks */

/* ---- S1, by address of the packet: a set-associative table in an array, whose look-up is inlined; the oldest packet is evicted ---- */
#define SETS 8192
#define WAYS 4

struct stamp {
    u64 packet;         /* 0: free */
    u64 ns;
};
struct stamp_set {
    struct stamp way[WAYS];
};
BPF_ARRAY(stamps, struct stamp_set, SETS);

static inline struct stamp_set *stamps_of(u64 packet)
{
    u32 index = (packet * 0x9e3779b97f4a7c15ull) >> 51;     /* Fibonacci hashing, 13 bits */
    return stamps.lookup(&index);
}

/* ---- batches and interrupts in transit ---- */

struct batch {          /* packets taken from the ring, not yet given to the guest */
    u64 first_ns;       /* S1 of its first packet; 0: not known */
    u64 packets;
};
BPF_TABLE("lru_hash", u64, struct batch, batches, 8192);            /* by socket */

struct interrupt {
    struct nc_place place;
    u32 queue;
    s32 gsi;
    u64 ns[5];          /* S1 to S5 */
    u64 packets;
    u64 awaited;        /* KVM leaves it to its kernel worker, which has NOT_YET or has BEGUN to deliver it; 0: it does not */
};
enum { NOT_YET = 1, BEGUN };
BPF_TABLE("lru_hash", u64, struct interrupt, interrupts, 8192);     /* by eventfd */

/* The interrupt of this eventfd that is on its way. NULL: none, or it may have arrived while the programs were not attached. */
static inline struct interrupt *interrupt_of(u64 *eventfd)
{
    struct interrupt *interrupt = interrupts.lookup(eventfd);

    if (interrupt && interrupt->ns[1] < nc_resumed_ns())
        interrupt = NULL;
    asm volatile("" : "+r"(interrupt));     /* why: see nc_config_get */
    return interrupt;
}

/* ---- tables ---- */

struct queue_key {
    struct nc_place place;
    u32 queue;
    u32 pad;
};
struct queue_row {
    u64 interrupts, packets, coalesced, deferred;
    u64 polled_batches, polled_packets;
};
BPF_TABLE("hash", struct queue_key, struct queue_row, queues, NC_ROWS_queues);

struct interrupt_event {
    u64 mono_ns;
    struct nc_place place;
    u32 queue;
    s32 gsi;
    u32 apic;
    u32 vector;
    u64 s1_s2_ns, s2_s3_ns, s3_s4_ns, s4_s5_ns, total_ns;
    u64 packets;
};
BPF_PERCPU_ARRAY(records, struct interrupt_event, 1);

static inline struct queue_row *row_of(struct nc_place *place, u32 queue)
{
    struct queue_key key = { .place = *place, .queue = queue };
    struct queue_row none = {}, *row = queues.lookup_or_try_init(&key, &none);

    if (!row)
        nc_ledger_add(NC_MAP_FULL);
    return row;
}

/* ---- S1 ---- */

int offered(void *ctx)
{
    struct sk_buff *skb = NC_PARAMETER(0);
    struct stamp_set *set = stamps_of((u64)skb);
    int chosen = 0;

    if (!set || !nc_config_get())
        return 0;
#pragma unroll
    for (int i = WAYS - 1; i >= 0; i--) {       /* the entry of this packet, else a free one, else the oldest */
        if (set->way[i].packet == (u64)skb) {
            chosen = i;
            break;
        }
        if (set->way[chosen & (WAYS - 1)].packet && (!set->way[i].packet || set->way[i].ns < set->way[chosen & (WAYS - 1)].ns))
            chosen = i;
    }
    set->way[chosen & (WAYS - 1)].packet = 0;   /* no reader may see the new time with the old packet */
    set->way[chosen & (WAYS - 1)].ns = bpf_ktime_get_ns();
    set->way[chosen & (WAYS - 1)].packet = (u64)skb;
    return 0;
}

static inline u64 offered_at(u64 packet)
{
    struct stamp_set *set = stamps_of(packet);

    if (!set)
        return 0;
#pragma unroll
    for (int i = 0; i < WAYS; i++) {
        if (set->way[i].packet == packet) {
            set->way[i].packet = 0;
            return set->way[i].ns < nc_resumed_ns() ? 0 : set->way[i].ns;   /* another packet may have had this address since */
        }
    }
    return 0;
}

/* ---- between S1 and S2: vhost reads the packet and passes its address in msg_control ---- */

int received(void *ctx)
{
    struct socket *sock = NC_PARAMETER(0);
    struct msghdr *message = NC_PARAMETER(1);
    u64 socket = (u64)sock, packet = (u64)NC_READ(message, msg_control), since;
    struct batch *batch, none = {};

    if (!packet || !nc_config_get())    /* without a packet QEMU itself reads, not vhost */
        return 0;
    since = offered_at(packet);
    batch = batches.lookup_or_try_init(&socket, &none);
    if (!batch)
        return 0;
    if (batch->first_ns && batch->first_ns < nc_resumed_ns())
        batch->packets = 0;     /* it was given to the guest meanwhile */
    if (!batch->packets)
        batch->first_ns = since;
    batch->packets++;
    return 0;
}

/* ---- S2 ---- */

static inline int is_of(struct interrupt *interrupt, struct tap_queue *tap)
{
    return interrupt->queue == tap->queue && interrupt->place.device[0] == tap->place.device[0] &&
           interrupt->place.device[1] == tap->place.device[1] && interrupt->place.netns == tap->place.netns;
}

/* The interrupt is over: the next batch begins a new one. */
static inline void forget(struct interrupt *interrupt)
{
    interrupt->ns[1] = 0;
    interrupt->ns[2] = 0;
    interrupt->awaited = 0;
    *(volatile u64 *)&interrupt->ns[3] = 0;
}

/* Another batch comes, whose signal must not complete this one, also where that batch is not followed. */
static inline void end_without_interrupt(struct interrupt *interrupt)
{
    struct queue_row *row = row_of(&interrupt->place, interrupt->queue);

    if (interrupt->ns[2]) {         /* signalled, but it has not arrived */
        nc_ledger_add(NC_JOIN_MISSED);
    } else if (row) {
        row->polled_batches++;
        row->polled_packets += interrupt->packets;
    }
    forget(interrupt);
}

int given(void *ctx)
{
    struct vhost_virtqueue *vq = NC_PARAMETER(1);
    struct vhost_net_virtqueue *nvq = (void *)vq - offsetof(struct vhost_net_virtqueue, vq);
    u64 socket = (u64)NC_READ(vq, private_data), eventfd;
    struct batch *batch = batches.lookup(&socket);
    struct interrupt interrupt = {}, *earlier;
    struct nc_config *config = nc_config_get();
    struct tap_queue tap = {};
    int is_wanted;

    /* The guest's transmit queue has the same socket but no ring. */
    if (!config || !NC_READ(nvq, rx_ring))
        return 0;
    if (!batch) {               /* nothing was read from this socket: right at most once, when the probe was attached in between */
        nc_check(BACKEND, 0);
        return 0;
    }
    if (!batch->packets)
        return 0;
    interrupt.ns[0] = batch->first_ns;
    interrupt.packets = batch->packets;
    batch->packets = 0;
    is_wanted = !checked_tap_of_socket(&tap, (void *)socket, BACKEND) && nc_place_wanted(config, &tap.place);
    eventfd = (u64)NC_READ(vq, call_ctx.ctx);
    earlier = interrupt_of(&eventfd);
    if (earlier && is_wanted && earlier->awaited && is_of(earlier, &tap)) {      /* it will serve this batch as well */
        earlier->packets += interrupt.packets;
        if (!*(volatile u64 *)&earlier->ns[3])      /* it has arrived meanwhile, perhaps without these packets */
            nc_ledger_add(NC_JOIN_MISSED);
        return 0;
    }
    if (earlier && earlier->ns[1])
        end_without_interrupt(earlier);
    if (!is_wanted)
        return 0;
    if (interrupt.ns[0] <= nc_resumed_ns()) {   /* the first packet came before this probe, or by XDP */
        nc_ledger_add(NC_JOIN_MISSED);
        return 0;
    }
    interrupt.ns[1] = bpf_ktime_get_ns();
    interrupt.place = tap.place;
    interrupt.queue = tap.queue;
    if (earlier)        /* in place: an update takes a new node */
        *earlier = interrupt;
    else
        interrupts.update(&eventfd, &interrupt);
    return 0;
}

/* ---- S3 ---- */

int told(void *ctx)
{
    struct eventfd_ctx *context = NC_PARAMETER(0);
    u64 eventfd = (u64)context;
    struct interrupt *interrupt = interrupt_of(&eventfd);

    if (interrupt && interrupt->ns[1] && !interrupt->ns[2])
        interrupt->ns[2] = bpf_ktime_get_ns();
    return 0;
}

/* ---- S4 ---- */

/* points: how many it has passed. Without the last one its total time is not known. */
static inline void account(struct nc_config *config, struct interrupt *interrupt, int points)
{
    struct queue_row *row = row_of(&interrupt->place, interrupt->queue);

    nc_count(INTERRUPTS);
    if (row) {
        row->interrupts++;
        row->packets += interrupt->packets;
        row->coalesced += interrupt->packets - 1;
    }
    if (nc_may_measure(config)) {
        if (points == 5)
            account_stages(&interrupt->place, interrupt->queue, 'S', interrupt->ns, 5);
        else
            account_stages_alone(&interrupt->place, interrupt->queue, 'S', interrupt->ns, points);
    }
    nc_measured(config);
}

int heard(void *ctx)
{
    struct wait_queue_entry *wait = NC_PARAMETER(0);
    void *key = NC_PARAMETER(3);
    struct kvm_kernel_irqfd *irqfd = (void *)wait - offsetof(struct kvm_kernel_irqfd, wait);
    u64 eventfd = (u64)NC_READ(irqfd, eventfd);
    struct interrupt *interrupt;
    u32 route;

    if (!((u64)key & EPOLLIN))
        return 0;
    interrupt = interrupt_of(&eventfd);
    if (!interrupt || !interrupt->ns[2]) {
        kvm_deliver(0, KVM_AT_ONCE);
        return 0;
    }
    route = NC_READ(irqfd, irq_entry.type);
    if (!interrupt->ns[3]) {
        interrupt->ns[3] = bpf_ktime_get_ns();
        interrupt->gsi = NC_READ(irqfd, gsi);
        if (route)
            nc_check(LINE, NC_READ(irqfd, irq_entry.gsi) == interrupt->gsi);
        else                    /* several routes, or none: the kernel worker delivers it */
            interrupt->awaited = NOT_YET;
    }
    kvm_deliver(route >= KVM_IRQ_ROUTING_MSI ? eventfd : 0, KVM_AT_ONCE);
    return 0;
}

/* In place of heard() where the kernel has no S5 (it is a tracepoint of x86): the interrupt is followed to here. */
int heard_last(void *ctx)
{
    struct wait_queue_entry *wait = NC_PARAMETER(0);
    void *key = NC_PARAMETER(3);
    struct kvm_kernel_irqfd *irqfd = (void *)wait - offsetof(struct kvm_kernel_irqfd, wait);
    u64 eventfd = (u64)NC_READ(irqfd, eventfd);
    struct nc_config *config = nc_config_get();
    struct interrupt *interrupt, done;

    if (!config || !((u64)key & EPOLLIN))
        return 0;
    interrupt = interrupt_of(&eventfd);
    if (!interrupt || !interrupt->ns[2])
        return 0;
    if (NC_READ(irqfd, irq_entry.type))     /* 0: several routes, or none */
        nc_check(LINE, NC_READ(irqfd, irq_entry.gsi) == NC_READ(irqfd, gsi));
    interrupt->ns[3] = bpf_ktime_get_ns();
    done = *interrupt;
    forget(interrupt);
    put_in_order(done.ns, 4);
    account(config, &done, 4);
    return 0;
}

/* It could not be delivered at once: a kernel worker delivers it. */
int deferred(void *ctx)
{
    struct work_struct *work = NC_PARAMETER(0);
    struct kvm_kernel_irqfd *irqfd = (void *)work - offsetof(struct kvm_kernel_irqfd, inject);
    u64 eventfd = (u64)NC_READ(irqfd, eventfd);
    struct interrupt *interrupt = interrupt_of(&eventfd);
    struct queue_row *row;

    if (!interrupt || !interrupt->ns[3]) {
        kvm_deliver(0, KVM_DEFERRED);
        return 0;
    }
    if (interrupt->awaited == BEGUN) {      /* the worker's last run delivered nothing */
        nc_ledger_add(NC_JOIN_MISSED);
        forget(interrupt);
        kvm_deliver(0, KVM_DEFERRED);
        return 0;
    }
    interrupt->awaited = BEGUN;
    row = row_of(&interrupt->place, interrupt->queue);
    if (row)
        row->deferred++;
    kvm_deliver(eventfd, KVM_DEFERRED);
    return 0;
}

/* ---- S5 ---- */

static inline void sample(struct bpf_raw_tracepoint_args *ctx, struct nc_config *config, struct interrupt *interrupt)
{
    u64 *ns = interrupt->ns;
    struct interrupt_event *record;
    int zero = 0;

    if (config->flags & NC_F_THRESHOLD && ns[4] - ns[0] <= config->threshold_ns)
        return;
    if (!nc_event_allowed(config, ns[4]))
        return;
    record = records.lookup(&zero);
    if (!record)
        return;
    record->mono_ns = ns[4];
    record->place = interrupt->place;
    record->queue = interrupt->queue;
    record->gsi = interrupt->gsi;
    record->apic = ctx->args[0];
    record->vector = (u8)ctx->args[3];
    record->s1_s2_ns = ns[1] - ns[0];
    record->s2_s3_ns = ns[2] - ns[1];
    record->s3_s4_ns = ns[3] - ns[2];
    record->s4_s5_ns = ns[4] - ns[3];
    record->total_ns = ns[4] - ns[0];
    record->packets = interrupt->packets;
    nc_submit(ctx, record, sizeof(*record));
}

int accepted(struct bpf_raw_tracepoint_args *ctx)
{
    struct nc_config *config = nc_config_get();
    struct interrupt *interrupt, done;
    u32 way;
    u64 eventfd = kvm_delivered(&way);

    if (!eventfd || !config)
        return 0;
    interrupt = interrupt_of(&eventfd);
    if (!interrupt || !interrupt->ns[3])
        return 0;
    if (way == KVM_AT_ONCE && interrupt->awaited == BEGUN) {    /* of a later signal: the worker's run has delivered nothing */
        nc_ledger_add(NC_JOIN_MISSED);
        forget(interrupt);
        return 0;
    }
    interrupt->ns[4] = bpf_ktime_get_ns();
    done = *interrupt;
    forget(interrupt);
    done.packets = *(volatile u64 *)&interrupt->packets;    /* no more can be added now */
    put_in_order(done.ns, 5);
    account(config, &done, 5);
    if (config->flags & NC_F_DETAILS)
        sample(ctx, config, &done);
    return 0;
}
