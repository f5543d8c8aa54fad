/* breakdown.h - the time of a transit by stages, which add up to the total. */
#ifndef HOST_PATH_BREAKDOWN_H
#define HOST_PATH_BREAKDOWN_H

#include "shared.h"

#define FORWARD NC_WORD('f', 'o', 'r', 'w', 'a', 'r', 'd', 0)
#define LOOKUP NC_WORD('l', 'o', 'o', 'k', 'u', 'p', 0, 0)
#define UPCALLED NC_WORD('u', 'p', 'c', 'a', 'l', 'l', 0, 0)
#define ACTIONS NC_WORD('a', 'c', 't', 'i', 'o', 'n', 's', 0)
#define CT NC_WORD('c', 't', 0, 0, 0, 0, 0, 0)

static inline u64 split(struct durations *took, struct path_transit *transit, u64 now)
{
    u64 last = transit->point_ns[LAST_QUEUE] ? transit->point_ns[LAST_QUEUE] : now;
    u64 first = transit->point_ns[FIRST_QUEUE] ? transit->point_ns[FIRST_QUEUE] : last;
    u64 action = transit->point_ns[ACTION] ? transit->point_ns[ACTION] : first;
    u64 upcall = transit->point_ns[UPCALL] ? transit->point_ns[UPCALL] : action;
    int switched = transit->point_ns[ACTION] || transit->point_ns[UPCALL];

    took->forward_ns = switched ? 0 : path_elapsed(transit->since_ns, first);
    took->lookup_ns = switched ? path_elapsed(transit->since_ns, upcall) : 0;
    took->upcall_ns = path_elapsed(upcall, action);
    took->ct_ns = transit->conntrack_ns;
    took->actions_ns = path_elapsed(action + took->ct_ns, first);
    took->devices_ns = path_elapsed(first, last);
    took->qdisc_ns = path_elapsed(last, now);
    return took->forward_ns + took->lookup_ns + took->upcall_ns + took->actions_ns + took->ct_ns + took->devices_ns + took->qdisc_ns;
}

static inline void add_stages(u64 direction, struct path_transit *transit, struct durations *took)
{
    if (transit->point_ns[ACTION] || transit->point_ns[UPCALL]) {
        latency_stage(direction, LOOKUP, took->lookup_ns);
        if (transit->point_ns[UPCALL])
            latency_stage(direction, UPCALLED, took->upcall_ns);
        latency_stage(direction, ACTIONS, took->actions_ns);
        if (took->ct_ns)
            latency_stage(direction, CT, took->ct_ns);
    } else {
        latency_stage(direction, FORWARD, took->forward_ns);
    }
    if (transit->point_ns[FIRST_QUEUE] != transit->point_ns[LAST_QUEUE])
        latency_stage(direction, DEVICES, took->devices_ns);
    latency_stage(direction, QDISC, took->qdisc_ns);
}

#endif /* HOST_PATH_BREAKDOWN_H */
