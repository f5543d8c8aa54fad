/* stages.h - how long each stage of a tap queue's path took, and the total: "S1-S2", "S2-S3", ..., "total". */
#ifndef NETCONSOLE_STAGES_H
#define NETCONSOLE_STAGES_H

#include "netconsole.h"

struct stage_key {
    struct nc_place place;
    u16 queue;
    char stage[6];
    u32 pad;
    u32 slot;
};
BPF_TABLE("hash", struct stage_key, struct nc_bucket, stages, NC_ROWS_stages);

static inline void account_stage(struct stage_key *key, u64 ns)
{
    struct nc_bucket none = {};

    key->slot = nc_slot(ns);
    nc_bucket_add(stages.lookup_or_try_init(key, &none), ns);
}

/* The stages between these points. path: the letter of its points. */
static inline void account_stages_alone(struct nc_place *place, u32 queue, char path, u64 *ns, int points)
{
    struct stage_key key = { .place = *place, .queue = queue, .stage = { path, 0, '-', path } };

#pragma unroll
    for (int i = 1; i < points; i++) {
        key.stage[1] = '0' + i;
        key.stage[4] = '1' + i;
        account_stage(&key, ns[i] - ns[i - 1]);
    }
}

/* All stages at once, so that their sums add up to the sum of the total. */
static inline void account_stages(struct nc_place *place, u32 queue, char path, u64 *ns, int points)
{
    struct stage_key key = { .place = *place, .queue = queue, .stage = "total" };

    account_stages_alone(place, queue, path, ns, points);
    account_stage(&key, ns[points - 1] - ns[0]);
}

#endif /* NETCONSOLE_STAGES_H */
