/* idle - does nothing: what a calibration must not find. */

#include "../../common/netconsole.h"

int idle(struct bpf_raw_tracepoint_args *ctx)
{
    return 0;
}
