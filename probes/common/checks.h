/* checks.h - checks of what a program assumes about the kernel's structures, on real objects while it runs.
 *
 * nc_check(slot, holds) counts the result and returns it. The collector reads both counts. A check that has failed several times and never
 * held means that the layout is not what the type information says: the collector detaches the programs that the manifest names for it.
 */
#ifndef NETCONSOLE_CHECKS_H
#define NETCONSOLE_CHECKS_H

#define NC_CHECKS 8
struct nc_checked {
    u64 held, failed;
};
BPF_PERCPU_ARRAY(nc_checks, struct nc_checked, NC_CHECKS);

static inline int nc_check(u32 slot, int holds)
{
    struct nc_checked *checked = nc_checks.lookup(&slot);

    if (checked)
        __sync_fetch_and_add(holds ? &checked->held : &checked->failed, 1);
    return holds;
}

#endif /* NETCONSOLE_CHECKS_H */
