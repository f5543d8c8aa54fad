/* submit_tracked - what a probe must not do: every packet in conntrack to user space, with its stack and a wake-up. */

#include "../../common/netconsole.h"

struct record {
    u64 mono_ns;
    u64 stack[16];
};

int submit(void *ctx)
{
    struct record record = { .mono_ns = bpf_ktime_get_ns() };

    nc_count_shared(0);
    nc_stack(ctx, record.stack, sizeof(record.stack));
#if NC_RING
    nc_events.ringbuf_output(&record, sizeof(record), BPF_RB_FORCE_WAKEUP);
#else
    nc_events.perf_submit(ctx, &record, sizeof(record));
#endif
    return 0;
}
