/* allowance.h - in a storm most packets are only counted: a CPU does the whole work for so many in each eight ticks, and what it does not
 * use of them it keeps for a burst.
 */
#ifndef NETCONSOLE_ALLOWANCE_H
#define NETCONSOLE_ALLOWANCE_H

#include "breaker.h"

/* Of one CPU. All zeros: as much as it may keep. */
struct nc_allowance {
    u64 ticks;          /* nc_grant_ticks, when it last earned some */
    u64 left;
};

/* Adds what the CPU has earned since. Returns 1 if new ticks have begun. */
static inline int nc_allowance_earn(struct nc_allowance *allowance, u64 per_ticks, u64 most)
{
    u64 ticks = nc_grant_ticks(), earned;

    if (ticks <= allowance->ticks)
        return 0;
    earned = (ticks - allowance->ticks) * per_ticks + allowance->left;
    allowance->left = earned < most ? earned : most;
    allowance->ticks = ticks;
    return 1;
}

/* Returns 0 if there is nothing left to use. */
static inline int nc_allowance_use(struct nc_allowance *allowance)
{
    u64 left = allowance->left;     /* another program may use one meanwhile: one is used too many, and never below 0 */

    if (!left)
        return 0;
    allowance->left = left - 1;
    return 1;
}

#endif /* NETCONSOLE_ALLOWANCE_H */
