/* worker.h - a worker thread of vhost: its present run, how soon it ran after it was woken, and how long it waited for a CPU.
 *
 * A worker is the only writer of its rows. So they are in plain hashes, without a copy for each CPU.
 */
#ifndef VHOST_QUEUES_WORKER_H
#define VHOST_QUEUES_WORKER_H

#include "../../common/netconsole.h"
#include "../../common/resumed.h"
#include "../../common/tap.h"

struct worker {
    struct tap_queue tap;
    u64 vq;             /* 0: no run */
    u64 call;           /* the eventfd that interrupts the guest; 0: none */
    u64 since_ns;
    u64 packets, buffers, bytes, batches, signals;
    u64 unsignalled;    /* buffers given back since the last interrupt of this run */
    u64 kicks, arrivals;
    u64 ring;           /* the tap's ring */
    u32 consumed;       /* vhost's position in it at the start of the run */
    u32 waiting;        /* packets taken from it but not delivered, at the start of the run, and then at its end */
    /* the scheduler's totals of the thread when its last run began: how often it got a CPU, and how long it waited for one */
    u64 pcount, run_delay;
    /* when its row was last updated, and the totals then: CPU time, and how often it got a CPU */
    u64 booked, ran_ns, booked_pcount;
    u64 waited_ns;      /* for a CPU, and not in its row yet */
    u64 is_first;       /* its first run, or the first since some were not seen or left out */
};
BPF_TABLE("lru_hash", u32, struct worker, threads, 8192);

/* The worker that is the current thread. NULL: it is none, or not in a run whose begin was seen. */
static inline struct worker *worker_of_thread(void)
{
    u32 tid = bpf_get_current_pid_tgid();
    struct worker *worker = threads.lookup(&tid);
    return worker && worker->vq && worker->since_ns >= nc_resumed_ns() ? worker : NULL;
}

/* A run that the filters leave out: the next one must not be compared with what was before it. */
static inline void leave_out(struct worker *worker)
{
    worker->since_ns = 0;
}

/* At the first run since the programs were attached again, or since some were left out: the totals of earlier runs are too old to compare
 * with. */
static inline void note_gap(struct worker *worker)
{
    worker->is_first = !worker->since_ns || worker->since_ns < nc_resumed_ns();
    if (!worker->is_first)
        return;
    worker->pcount = worker->run_delay = worker->booked = worker->ran_ns = worker->booked_pcount = worker->waited_ns = 0;
}

/* ---- wake-ups, by the work item that they queue ---- */

BPF_TABLE("hash", struct tap_queue, struct nc_bucket, wake, NC_ROWS_wake);

struct wakeups {
    u64 since_ns;       /* time of the first wake-up that no run has answered */
    u64 count;
    u64 answered;
};
BPF_TABLE("lru_hash", u64, struct wakeups, wakeups, 16384);

/* A kick of the guest, or a packet at the tap that vhost waits for (vhost_poll_wakeup). */
int woken(void *ctx)
{
    struct wait_queue_entry *wait = NC_PARAMETER(0);
    void *key = NC_PARAMETER(3);
    struct vhost_poll *poll = (void *)wait - offsetof(struct vhost_poll, wait);
    u64 work = (u64)&poll->work;
    struct wakeups *wakeup, none = {};

    if (!nc_config_get() || !((u64)key & NC_READ(poll, mask)))
        return 0;
    wakeup = wakeups.lookup_or_try_init(&work, &none);
    if (!wakeup)
        return 0;
    __sync_fetch_and_add(&wakeup->count, 1);
    if (wakeup->since_ns <= nc_resumed_ns())
        wakeup->since_ns = bpf_ktime_get_ns();
    return 0;
}

struct answered {
    u64 since_ns;       /* 0: no wake-up */
    u64 count;
};

/* A run answers all wake-ups until now. Also one that is not counted: they must not wait for the next one. */
static inline struct answered answer(u64 work)
{
    struct wakeups *wakeup = wakeups.lookup(&work);
    struct answered answered = {};
    u64 count;

    if (!wakeup)
        return answered;
    count = wakeup->count;
    answered.since_ns = wakeup->since_ns;
    answered.count = count - wakeup->answered;
    wakeup->answered = count;
    wakeup->since_ns = 0;
    return answered;
}

static inline void account_wakeups(struct worker *worker, struct answered *answered, u64 now, int kicked)
{
    struct nc_bucket none = {};

    if (kicked)
        worker->kicks += answered->count;
    else
        worker->arrivals += answered->count;
    if (answered->since_ns > nc_resumed_ns() && now > answered->since_ns) {
        worker->tap.slot = nc_slot(now - answered->since_ns);
        nc_bucket_add(wake.lookup_or_try_init(&worker->tap, &none), now - answered->since_ns);
    }
}

/* ---- CPU time and waits, from the scheduler's own totals: hooks in the scheduler would run on every context switch of the host ---- */

BPF_TABLE("hash", struct tap_queue, struct nc_bucket, scheduled, NC_ROWS_scheduled);

struct worker_key {
    struct nc_place place;
    u32 queue;
    u32 tid;
};
struct worker_row {
    u64 cpu_ns, switches, waited_ms;
    u64 cpu, node;      /* gauges */
};
BPF_TABLE("hash", struct worker_key, struct worker_row, workers, NC_ROWS_workers);

/* How long the worker has waited for a CPU since its last run began. Lower totals than then are of another thread with
 * its number. */
static inline void account_delay(struct worker *worker)
{
#ifdef HAVE_sched_info_run_delay
    struct task_struct *self = (void *)bpf_get_current_task();
    struct sched_info booked = NC_READ(self, sched_info);
    struct tap_queue key = worker->tap;
    struct nc_bucket none = {};
    u64 delay_ns = booked.run_delay - worker->run_delay;

    /* Not at the first reading, and not when it kept its CPU all the time. */
    if (worker->pcount && booked.pcount > worker->pcount && booked.run_delay >= worker->run_delay) {
        key.direction[0] = key.direction[1] = 0;
        key.slot = nc_slot(delay_ns);
        nc_bucket_add(scheduled.lookup_or_try_init(&key, &none), delay_ns);
        worker->waited_ns += delay_ns;
    }
    worker->pcount = booked.pcount;
    worker->run_delay = booked.run_delay;
#endif
}

#define NS_PER_MS 1000000
#define BOOKED_SHIFT 22     /* 2^22 ns, 4 ms, about a tick: the scheduler's totals may be that late; no division */

/* Updates the row at most once in that time. Totals lose nothing in between. */
static inline void account_cpu(struct worker *worker, u64 now)
{
    struct worker_key key = { .place = worker->tap.place, .queue = worker->tap.queue };
    struct worker_row *row, none = {};
    struct task_struct *self;
    u64 ran_ns;

    if (worker->booked == now >> BOOKED_SHIFT)
        return;
    worker->booked = now >> BOOKED_SHIFT;
    key.tid = bpf_get_current_pid_tgid();
    row = workers.lookup_or_try_init(&key, &none);
    if (!row) {
        nc_ledger_add(NC_MAP_FULL);
        return;
    }
    self = (void *)bpf_get_current_task();
    ran_ns = NC_READ(self, se.sum_exec_runtime);
    if (worker->ran_ns && ran_ns > worker->ran_ns)
        row->cpu_ns += ran_ns - worker->ran_ns;
    if (worker->booked_pcount && worker->pcount > worker->booked_pcount)
        row->switches += worker->pcount - worker->booked_pcount;
    row->waited_ms += worker->waited_ns / NS_PER_MS;
    worker->waited_ns %= NS_PER_MS;
    worker->ran_ns = ran_ns;
    worker->booked_pcount = worker->pcount;
    row->cpu = bpf_get_smp_processor_id();
    row->node = bpf_get_numa_node_id();
}

#endif /* VHOST_QUEUES_WORKER_H */
