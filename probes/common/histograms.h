/* histograms.h - log-linear histograms: eight slots per power of two (src/netconsole/telemetry/histogram.py). */
#ifndef NETCONSOLE_HISTOGRAMS_H
#define NETCONSOLE_HISTOGRAMS_H

#include "accounting.h"

struct nc_bucket {
    u64 count;
    u64 sum;
    u64 max;
    u64 min_inverted;   /* ~min: so a bucket of zeros is an empty one */
};

static inline u32 nc_slot(u64 value)
{
    u64 rest = value;
    u32 power = 0;      /* of the highest bit */

    if (value < 8)
        return value;
    if (rest >> 32) { power += 32; rest >>= 32; }
    if (rest >> 16) { power += 16; rest >>= 16; }
    if (rest >> 8) { power += 8; rest >>= 8; }
    if (rest >> 4) { power += 4; rest >>= 4; }
    if (rest >> 2) { power += 2; rest >>= 2; }
    if (rest >> 1) power += 1;
    return (power - 2) * 8 + ((value >> (power - 3)) & 7);
}

/* bucket: what lookup_or_try_init returned; NULL when the map is full. */
static inline void nc_bucket_add(struct nc_bucket *bucket, u64 value)
{
    if (!bucket) {
        nc_ledger_add(NC_MAP_FULL);
        return;
    }
    nc_add(&bucket->count, 1);
    nc_add(&bucket->sum, value);
    if (value > bucket->max)
        bucket->max = value;
    if (~value > bucket->min_inverted)
        bucket->min_inverted = ~value;
}

/* ns: when each point was passed. Between CPUs the clock may go back a little (ktime_get_mono_fast_ns). */
static inline void put_in_order(u64 *ns, int points)
{
#pragma unroll
    for (int i = 1; i < points; i++) {
        if (ns[i] < ns[i - 1])
            ns[i] = ns[i - 1];
    }
}

/* A whole histogram for each CPU in an array: BPF_PERCPU_ARRAY(late, struct nc_cpu_histogram, n). For hooks so hot that the call that a
 * hash needs would be half of their time. */
#define NC_SLOTS 496    /* for all values of a u64 */

struct nc_cpu_histogram {
    u64 sum;
    u64 max;
    u64 min_inverted;
    u64 counts[NC_SLOTS];
};

static inline void nc_cpu_histogram_add(struct nc_cpu_histogram *histogram, u64 value)
{
    u32 slot = nc_slot(value);

    if (!histogram || slot >= NC_SLOTS)
        return;
    nc_add(&histogram->counts[slot], 1);
    nc_add(&histogram->sum, value);
    if (value > histogram->max)
        histogram->max = value;
    if (~value > histogram->min_inverted)
        histogram->min_inverted = ~value;
}

#endif /* NETCONSOLE_HISTOGRAMS_H */
