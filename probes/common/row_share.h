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

/* Blocks have 2 to the power of this; 0: each count is in the rows. */
static inline u32 nc_row_shift(struct nc_config *config, u32 flags)
{
    if (flags & NC_F_COUNTERS)
        return 0;
    return flags & NC_F_STORM && config->rows_shift < NC_STORM_SHIFT ? NC_STORM_SHIFT : config->rows_shift;
}

/* Which one of its block is taken, for a count that follows ``count`` others. */
static inline u64 nc_row_taken(u64 count, u32 shift)
{
    u64 hash = (count >> (shift & 63)) * NC_ROW_HASH;

    hash = (hash ^ hash >> 32) * NC_ROW_HASH;
    return hash >> ((64 - shift) & 63);
}

/* For how many the next count of this counter stands in the rows; 0: another one of its block does. Call it before the counter is added to,
 * in a program that alone writes it, with what nc_flags returned. */
static inline u64 nc_row_weight(struct nc_config *config, u32 flags, u32 slot)
{
    u32 shift = nc_row_shift(config, flags);
    u64 *counter = shift ? nc_counters.lookup(&slot) : NULL;

    if (!counter)
        return 1;
    return nc_row_taken(*counter, shift) == (*counter & ((1ull << (shift & 63)) - 1)) ? 1ull << (shift & 63) : 0;
}

/* Of so many of the first counts of a counter: how many were taken. */
static inline u64 nc_rows_taken(u64 count, u32 shift)
{
    return (count >> (shift & 63)) + (nc_row_taken(count, shift) < (count & ((1ull << (shift & 63)) - 1)));
}

/* The same as nc_row_weight of the next ``n`` counts, which go into one row together. */
static inline u64 nc_row_weight_of(struct nc_config *config, u32 flags, u32 slot, u64 n)
{
    u32 shift = nc_row_shift(config, flags);
    u64 *counter = shift ? nc_counters.lookup(&slot) : NULL;

    return counter ? (nc_rows_taken(*counter + n, shift) - nc_rows_taken(*counter, shift)) << (shift & 63) : n;
}

/* A row has got a count that stands for others. */
static inline void nc_row_weighed(u64 weight)
{
    if (weight < 2)
        return;
    nc_ledger_add_many(NC_ESTIMATED, weight - 1);
    nc_ledger_add_many(NC_SCATTER, weight * (weight - 1));
}

/* A row has got ``weight`` in place of ``n`` counts that came together, or (0) none of them: others stand for them. */
static inline void nc_row_weighed_of(struct nc_config *config, u32 flags, u64 n, u64 weight)
{
    u32 shift = nc_row_shift(config, flags);

    if (!shift)
        return;
    if (!weight)
        nc_ledger_add_many(NC_ESTIMATED, n);
    else
        nc_ledger_add_many(NC_SCATTER, weight * ((1ull << (shift & 63)) - 1));
}

#endif /* NETCONSOLE_ROW_SHARE_H */
