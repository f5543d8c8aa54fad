/* resumed.h - when the programs of a probe were attached again (docs/reference/probes.md, "A share of the time").
 *
 * What began before may have ended unseen: it must not be joined with an end that is seen now.
 */
#ifndef NETCONSOLE_RESUMED_H
#define NETCONSOLE_RESUMED_H

#include "netconsole.h"

/* CLOCK_MONOTONIC; 0: they always were attached. */
BPF_ARRAY(nc_resumed, u64, 1);

static inline u64 nc_resumed_ns(void)
{
    int zero = 0;
    u64 *since = nc_resumed.lookup(&zero);

    return since ? *since : 0;
}

#endif /* NETCONSOLE_RESUMED_H */
