/* breakdown.h - where the time of a way went: stages that add up to the whole. */
#ifndef HOST_PATH_BREAKDOWN_H
#define HOST_PATH_BREAKDOWN_H

#include "shared.h"

#define FORWARD NC_WORD('f', 'o', 'r', 'w', 'a', 'r', 'd', 0)
#define LOOKUP NC_WORD('l', 'o', 'o', 'k', 'u', 'p', 0, 0)
#define UPCALLED NC_WORD('u', 'p', 'c', 'a', 'l', 'l', 0, 0)
#define ACTIONS NC_WORD('a', 'c', 't', 'i', 'o', 'n', 's', 0)
#define CT NC_WORD('c', 't', 0, 0, 0, 0, 0, 0)

static inline u64 split(struct durations *took, struct path_way *way, u64 now)
{
    u64 last = way->moment_ns[LAST_QUEUE] ? way->moment_ns[LAST_QUEUE] : now;
    u64 first = way->moment_ns[FIRST_QUEUE] ? way->moment_ns[FIRST_QUEUE] : last;
    u64 action = way->moment_ns[ACTION] ? way->moment_ns[ACTION] : first;
    u64 upcall = way->moment_ns[UPCALL] ? way->moment_ns[UPCALL] : action;
    int switched = way->moment_ns[ACTION] || way->moment_ns[UPCALL];

    took->forward_ns = switched ? 0 : path_between(way->since_ns, first);
    took->lookup_ns = switched ? path_between(way->since_ns, upcall) : 0;
    took->upcall_ns = path_between(upcall, action);
    took->ct_ns = way->spent_ns;
    took->actions_ns = path_between(action + took->ct_ns, first);
    took->devices_ns = path_between(first, last);
    took->qdisc_ns = path_between(last, now);
    return took->forward_ns + took->lookup_ns + took->upcall_ns + took->actions_ns + took->ct_ns + took->devices_ns + took->qdisc_ns;
}

static inline void add_stages(u64 direction, struct path_way *way, struct durations *took)
{
    if (way->moment_ns[ACTION] || way->moment_ns[UPCALL]) {
        latency_stage(direction, LOOKUP, took->lookup_ns);
        if (way->moment_ns[UPCALL])
            latency_stage(direction, UPCALLED, took->upcall_ns);
        latency_stage(direction, ACTIONS, took->actions_ns);
        if (took->ct_ns)
            latency_stage(direction, CT, took->ct_ns);
    } else {
        latency_stage(direction, FORWARD, took->forward_ns);
    }
    if (way->moment_ns[FIRST_QUEUE] != way->moment_ns[LAST_QUEUE])
        latency_stage(direction, DEVICES, took->devices_ns);
    latency_stage(direction, QDISC, took->qdisc_ns);
}

#endif /* HOST_PATH_BREAKDOWN_H */
