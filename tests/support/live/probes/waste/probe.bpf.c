/* waste - takes two microseconds of every packet that is sent: what a calibration must find. */

#include "../../common/netconsole.h"

#define WASTE_NS 2000
#define MOST_READINGS 256 /* a reading of the clock takes 10 ns at least */

int waste(struct bpf_raw_tracepoint_args *ctx)
{
    u64 begin = bpf_ktime_get_ns();

    for (int i = 0; i < MOST_READINGS; i++)
        if (bpf_ktime_get_ns() - begin >= WASTE_NS)
            break;
    nc_count(0);
    return 0;
}
