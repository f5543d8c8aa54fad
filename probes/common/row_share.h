/* row_share.h - in a storm, rows are made of one count in so many. It stands for all of them, so a row keeps its reason and place, and the
 * counter beside the rows stays exact.
 *
 * A CPU's counter cuts what it counts into blocks of N, a power of two. One of each block is taken. Which one, a hash of the block's number
 * says, so that no traffic that comes in turn is always taken or never. So the sum of all rows is off the counter by less than N for
 * each CPU, and a row by what chance does to its share.
 */
#ifndef NETCONSOLE_ROW_SHARE_H
#define NETCONSOLE_ROW_SHARE_H

#include "config.h"
#include "accounting.h"

#define NC_STORM_SHIFT 4    /* one in 16, where the circuit breaker would end rows */
#define NC_ROW_HASH 0x9e3779b97f4a7c15ull

/* For how many the next count of this counter stands in the rows; 0: another one of its block does. Call it before the counter is added to,
 * in a program that alone writes it, with what nc_flags returned. */
static inline u64 nc_row_weight(struct nc_config *config, u32 flags, u32 slot)
{
    u32 shift = config->rows_shift;
    u64 *counter, hash;

    if (flags & NC_F_STORM && shift < NC_STORM_SHIFT)
        shift = NC_STORM_SHIFT;
    if (!shift || flags & NC_F_COUNTERS)
        return 1;
    counter = nc_counters.lookup(&slot);
    if (!counter)
        return 1;
    hash = (*counter >> (shift & 63)) * NC_ROW_HASH;
    hash = (hash ^ hash >> 32) * NC_ROW_HASH;
    return (hash >> ((64 - shift) & 63)) == (*counter & ((1ull << (shift & 63)) - 1)) ? 1ull << (shift & 63) : 0;
}

/* A row has got a count that stands for others. */
static inline void nc_row_weighed(u64 weight)
{
    if (weight < 2)
        return;
    nc_ledger_add_many(NC_ESTIMATED, weight - 1);
    nc_ledger_add_many(NC_SCATTER, weight * (weight - 1));
}

#endif /* NETCONSOLE_ROW_SHARE_H */
