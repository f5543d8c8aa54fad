/* kvm_irqs - what interrupts KVM delivers to each VM, by the line that was signalled, and what its virtual CPUs do: halts and kicks.
 *
 * An irqfd is signalled with interrupts off, and kvm_apic_accept_irq follows in the same thread: so its vector and target are those of the
 * irqfd. When the interrupt cannot be delivered so, a kernel worker does it later (irqfd_inject), once for all signals until then.
 */

#include "../../common/netconsole.h"
#include "../../common/checks.h"
#include "../../common/kvm.h"
#ifdef HAVE_vhost_net_virtqueue_rx_ring
#include "../../common/tap.h"
#endif

enum { WAKEUPS, HALTS };    /* counters */
enum { LINE };              /* checks */

struct line_key {
    u32 vm;                 /* process of the VM */
    s32 gsi;
};
struct line_row {
    u64 wakeups, msi, at_once, deferred, accepted;
    u64 vector, apic;       /* gauges: of the last interrupt */
};
BPF_TABLE("percpu_hash", struct line_key, struct line_row, lines, NC_ROWS_lines);

struct vcpu_key {
    u32 vm;
    u32 vcpu;
};
struct vcpu_row {
    u64 halts, halted_ns, polled, kicks;
};
BPF_TABLE("percpu_hash", struct vcpu_key, struct vcpu_row, vcpus, NC_ROWS_vcpus);

/* The line whose interrupt this thread is delivering. */
struct delivery {
    struct line_key line;
    u32 thread;
    u32 active;
};
enum { DEFERRED, AT_ONCE, WAYS };   /* the second may come while the first one is noted, on the same CPU */
BPF_PERCPU_ARRAY(deliveries, struct delivery, WAYS);

/* ---- lines ---- */

static inline struct line_row *row_of(struct line_key *key)
{
    struct line_row none = {}, *row = lines.lookup_or_try_init(key, &none);

    if (!row)
        nc_ledger_add(NC_MAP_FULL);
    return row;
}

/* ---- which queue of a tap a line is of: vhost's worker signals it, in the call that gives a batch to the guest ---- */

struct wire_key {
    struct line_key line;
    struct nc_place place;
    u16 queue;
    char direction[2];
    u32 pad;
};
struct wire_row {
    u64 signals;
};
BPF_TABLE("percpu_hash", struct wire_key, struct wire_row, wires, NC_ROWS_wires);

#ifdef HAVE_vhost_net_virtqueue_rx_ring     /* vhost_net is loaded */
struct batch {
    u64 eventfd;
    struct tap_queue tap;
};
BPF_TABLE("lru_hash", u32, struct batch, batches, 8192);    /* the last one of each worker; it alone writes it */

int given(void *ctx)
{
    struct vhost_virtqueue *vq = NC_PARAMETER(1);
    struct vhost_net_virtqueue *nvq = (void *)vq - offsetof(struct vhost_net_virtqueue, vq);
    u32 thread = bpf_get_current_pid_tgid();
    struct batch none = {}, *batch;

    if (!nc_config_get())
        return 0;
    batch = batches.lookup_or_try_init(&thread, &none);
    if (!batch)
        return 0;
    batch->eventfd = 0;
    if (tap_of_socket(&batch->tap, NC_READ(vq, private_data)))
        return 0;
    batch->tap.direction[0] = NC_READ(nvq, rx_ring) ? 'r' : 't';    /* only what the guest receives has a ring in vhost */
    batch->tap.direction[1] = 'x';
    batch->eventfd = (u64)NC_READ(vq, call_ctx.ctx);
    return 0;
}

static inline void note_wire(struct kvm_kernel_irqfd *irqfd)
{
    u32 thread = bpf_get_current_pid_tgid();
    struct batch *batch = batches.lookup(&thread);
    struct kvm *kvm = NC_READ(irqfd, kvm);
    struct wire_key key = {};
    struct wire_row none = {}, *row;

    if (!batch || !batch->eventfd || batch->eventfd != (u64)NC_READ(irqfd, eventfd))
        return;
    key.line.vm = NC_READ(kvm, userspace_pid);
    key.line.gsi = NC_READ(irqfd, gsi);
    key.place = batch->tap.place;
    key.queue = batch->tap.queue;
    key.direction[0] = batch->tap.direction[0];
    key.direction[1] = batch->tap.direction[1];
    row = wires.lookup_or_try_init(&key, &none);
    if (row)
        nc_add(&row->signals, 1);
    else
        nc_ledger_add(NC_MAP_FULL);
}
#endif

/* is_expected: whether the interrupt accepted next in this thread is of this line. */
static inline struct line_row *deliver(struct kvm_kernel_irqfd *irqfd, u32 way, int is_expected)
{
    struct kvm *kvm = NC_READ(irqfd, kvm);
    struct line_key key = { .vm = NC_READ(kvm, userspace_pid), .gsi = NC_READ(irqfd, gsi) };
    struct delivery *delivery = deliveries.lookup(&way), *earlier;
    u32 at_once = AT_ONCE;

    if (!delivery)
        return row_of(&key);
    delivery->line = key;
    delivery->thread = bpf_get_current_pid_tgid();
    delivery->active = is_expected;
    earlier = way == DEFERRED ? deliveries.lookup(&at_once) : NULL;
    if (earlier && earlier->thread == delivery->thread)         /* what was to come at once has not come */
        earlier->active = 0;
    return row_of(&key);
}

int signalled(void *ctx)
{
    struct wait_queue_entry *wait = NC_PARAMETER(0);
    void *key = NC_PARAMETER(3);
    struct kvm_kernel_irqfd *irqfd = (void *)wait - offsetof(struct kvm_kernel_irqfd, wait);
    u32 route = NC_READ(irqfd, irq_entry.type);     /* 0: none or several, which need a kernel worker */
    struct line_row *row;

    if (!nc_config_get() || !((u64)key & EPOLLIN))
        return 0;
    if (route)
        nc_check(LINE, NC_READ(irqfd, irq_entry.gsi) == NC_READ(irqfd, gsi));
    row = deliver(irqfd, AT_ONCE, route >= KVM_IRQ_ROUTING_MSI);
    nc_count(WAKEUPS);
    if (row) {
        row->wakeups++;
        row->msi += route == KVM_IRQ_ROUTING_MSI;
    }
#ifdef HAVE_vhost_net_virtqueue_rx_ring
    note_wire(irqfd);
#endif
    return 0;
}

int deferred(void *ctx)
{
    struct work_struct *work = NC_PARAMETER(0);
    struct line_row *row;

    if (!nc_config_get())
        return 0;
    row = deliver((void *)work - offsetof(struct kvm_kernel_irqfd, inject), DEFERRED, 1);
    if (row)
        row->deferred++;
    return 0;
}

/* The delivery that this thread has begun so. NULL: none. */
static inline struct delivery *begun(u32 way)
{
    struct delivery *delivery = deliveries.lookup(&way);

    return delivery && delivery->active && delivery->thread == (u32)bpf_get_current_pid_tgid() ? delivery : NULL;
}

int accepted(struct bpf_raw_tracepoint_args *ctx)
{
    struct delivery *delivery = begun(AT_ONCE);
    struct line_row *row;
    u32 at_once = delivery != NULL;

    if (!delivery)
        delivery = begun(DEFERRED);
    if (!delivery)
        return 0;
    delivery->active = 0;
    row = row_of(&delivery->line);
    if (row) {
        row->accepted++;
        row->at_once += at_once;
        row->apic = ctx->args[0];
        row->vector = (u8)ctx->args[3];
    }
    return 0;
}

/* ---- virtual CPUs ---- */

static inline struct vcpu_row *row_of_vcpu(struct kvm_vcpu *vcpu)
{
    struct kvm *kvm = NC_READ(vcpu, kvm);
    struct vcpu_key key = { .vm = NC_READ(kvm, userspace_pid), .vcpu = NC_READ(vcpu, vcpu_id) };
    struct vcpu_row none = {}, *row = vcpus.lookup_or_try_init(&key, &none);

    if (!row)
        nc_ledger_add(NC_MAP_FULL);
    return row;
}

BPF_TABLE("lru_hash", u32, u64, halts, 16384);      /* the virtual CPU by its thread; 0: it does not halt */

int halted(void *ctx)
{
    struct kvm_vcpu *vcpu = NC_PARAMETER(0);
    u32 thread = bpf_get_current_pid_tgid();
    u64 none = 0, *halting = halts.lookup_or_try_init(&thread, &none);

    if (halting && nc_config_get())
        *halting = (u64)vcpu;
    return 0;
}

/* kvm_vcpu_wakeup: how long it slept or polled. It runs in the virtual CPU's own thread, at the end of the halt that halted() saw. */
int awake(struct bpf_raw_tracepoint_args *ctx)
{
    u32 thread = bpf_get_current_pid_tgid();
    u64 *halting = halts.lookup(&thread);
    struct vcpu_row *row;

    if (!nc_config_get() || !halting || !*halting)
        return 0;
    row = row_of_vcpu((void *)*halting);
    *halting = 0;
    nc_count(HALTS);
    if (row) {
        row->halts++;
        row->halted_ns += ctx->args[0];
        row->polled += !(u8)ctx->args[1];
    }
    return 0;
}

int kicked(void *ctx)
{
    struct kvm_vcpu *vcpu = NC_PARAMETER(0);
    struct vcpu_row *row = nc_config_get() ? row_of_vcpu(vcpu) : NULL;

    if (row)
        row->kicks++;
    return 0;
}
