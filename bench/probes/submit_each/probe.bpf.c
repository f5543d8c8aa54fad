/* submit_each - what a probe must not do: every packet to user space, and a wake-up with it. */

#include "../../common/netconsole.h"

struct record {
    u64 mono_ns;
    u64 location;
    u64 rest[3];
};

int submit(struct bpf_raw_tracepoint_args *ctx)
{
    struct record record = { .mono_ns = bpf_ktime_get_ns(), .location = ctx->args[1] };

    nc_count(0);
#if NC_RING
    nc_events.ringbuf_output(&record, sizeof(record), BPF_RB_FORCE_WAKEUP);
#else
    nc_events.perf_submit(ctx, &record, sizeof(record));
#endif
    return 0;
}
