/* empty - what the kernel's run-time statistics themselves cost on each hook: subtracted from what a probe's programs take. */

#include "../../common/netconsole.h"

int nothing(struct bpf_raw_tracepoint_args *ctx)
{
    return 0;
}
