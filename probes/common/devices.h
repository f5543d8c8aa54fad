/* devices.h - sets of devices: knobs named ..._devices, as the collector writes them (netconsole_collector/probe/device_sets.py). */
#ifndef NETCONSOLE_DEVICES_H
#define NETCONSOLE_DEVICES_H

#include "netconsole.h"

#define NC_SETS 2
#define NC_PATTERNS 4     /* names, prefixes and kinds of one set */

enum nc_pattern_kind { NC_PATTERN_UNUSED, NC_PATTERN_NAME, NC_PATTERN_KIND, NC_PATTERN_PHYSICAL };

struct nc_pattern {
    u64 value[2];
    u64 mask[2];            /* 0 in the bytes that do not matter: those after a prefix */
    u32 kind;               /* NC_PATTERN_*; NC_PATTERN_KIND compares with the kind that `ip -d link` shows */
    u32 pad;
};

struct nc_sets {
    u64 generation;         /* raised by every change: what was remembered of devices is void then */
    struct nc_pattern pattern[NC_SETS * NC_PATTERNS];
};
BPF_ARRAY(nc_device_sets, struct nc_sets, 1);

/* The set of a device: 0 none, 1 the first (NC_SET_<knob>), 2 the second. A switch's own port (Open vSwitch, bridge) faces the host: what
 * the host sends through it enters the switch, and what is received on it leaves the switch. */
struct nc_member {
    u64 name[2];
    u64 generation;
    u32 set;
    u32 faces_host;
};
#define NC_KNOWN_DEVICES 4096
BPF_TABLE("lru_hash", u64, struct nc_member, nc_known_devices, NC_KNOWN_DEVICES);

/* Those that a CPU has seen last: looking into an array costs less than into a hash, and every packet asks twice or more. */
#define NC_RECENT_MEMBERS_BITS 6
struct nc_recent_member {
    u64 number;             /* of the device, nc_number_of */
    struct nc_member member;
};
BPF_PERCPU_ARRAY(nc_recent_members, struct nc_recent_member, 1 << NC_RECENT_MEMBERS_BITS);

/* The set by device index, which a received packet keeps (skb_iif): it tells a missed start from packets that are not of a set. */
struct nc_index {
    u64 net;
    u32 ifindex;
    u32 pad;
};
#define NC_KNOWN_INDICES 4096
BPF_TABLE("lru_hash", struct nc_index, u32, nc_known_indices, NC_KNOWN_INDICES);

static inline int nc_matches(struct nc_pattern *pattern, u64 *name)
{
    return !((name[0] ^ pattern->value[0]) & pattern->mask[0] || (name[1] ^ pattern->value[1]) & pattern->mask[1]);
}

static inline u32 nc_set_of(struct nc_sets *sets, u64 *name, u64 *kind, int physical)
{
#pragma unroll
    for (u32 i = 0; i < NC_SETS * NC_PATTERNS; i++) {
        struct nc_pattern *pattern = &sets->pattern[i];
        int found = pattern->kind == NC_PATTERN_PHYSICAL ? physical :
            pattern->kind == NC_PATTERN_NAME ? nc_matches(pattern, name) :
            pattern->kind == NC_PATTERN_KIND ? nc_matches(pattern, kind) : 0;
        if (found)
            return 1 + i / NC_PATTERNS;
    }
    return 0;
}

/* Finds the set of a device. Slow but rare: the first time, and when name or settings have changed. */
static inline struct nc_member *nc_learn(struct net_device *dev, u64 address, u64 *name, struct nc_sets *sets)
{
    struct nc_member member = { .name = { name[0], name[1] }, .generation = sets->generation };
    struct nc_index index = { .net = (u64)NC_GET(dev, nd_net.net), .ifindex = NC_GET(dev, ifindex) };
    void *ops = (void *)NC_GET(dev, rtnl_link_ops), *parent = (void *)NC_GET(dev, dev.parent);
    u64 kind[2] = {}, *text = NULL;

    if (ops) {
        text = NC_AT(u64 *, ops + offsetof(struct rtnl_link_ops, kind));
        bpf_probe_read_kernel_str(kind, sizeof(kind), text);
    }
    member.set = nc_set_of(sets, name, kind, !ops && parent);
    member.faces_host = (kind[0] == NC_WORD('o', 'p', 'e', 'n', 'v', 's', 'w', 'i') && kind[1] == NC_WORD('t', 'c', 'h', 0, 0, 0, 0, 0)) ||
        (kind[0] == NC_WORD('b', 'r', 'i', 'd', 'g', 'e', 0, 0) && !kind[1]);
    nc_known_indices.update(&index, &member.set);
    nc_known_devices.update(&address, &member);
    return nc_known_devices.lookup(&address);
}

static inline int nc_holds(struct nc_member *member, u64 *name, struct nc_sets *sets)
{
    return member->name[0] == name[0] && member->name[1] == name[1] && member->generation == sets->generation;
}

/* The set of a device, remembered by its address while name and settings stay the same. NULL: it is in no set. */
static inline struct nc_member *nc_member_of(struct net_device *dev)
{
    u32 zero = 0, index;
    u64 address = (u64)dev, number, name[2];
    struct nc_sets *sets = nc_device_sets.lookup(&zero);
    struct nc_recent_member *recent;
    struct nc_member *member;

    if (!sets)
        return NULL;
    NC_NAME(name, dev);
    number = nc_number_of((void *)sets, dev);
    index = number * 0x9e3779b97f4a7c15ull >> (64 - NC_RECENT_MEMBERS_BITS);    /* Fibonacci hashing */
    recent = nc_recent_members.lookup(&index);
    if (recent && recent->number == number && nc_holds(&recent->member, name, sets))
        return recent->member.set ? &recent->member : NULL;
    member = nc_known_devices.lookup(&address);
    if (!member || !nc_holds(member, name, sets))
        member = nc_learn(dev, address, name, sets);
    if (member && recent) {
        recent->number = 0;
        recent->member = *member;
        recent->number = number;
    }
    return member && member->set ? member : NULL;
}

/* The filter by network namespace, for probes that select devices by sets. */
static inline int nc_netns_wanted(struct nc_config *config, struct net_device *dev)
{
    struct net *net;

    if (!(config->flags & NC_F_NETNS))
        return 1;
    net = NC_GET(dev, nd_net.net);
    return NC_GET(net, ns.inum) == config->netns;
}

/* Was this packet received on a device of a set? For packets whose start is not known. */
static inline u32 nc_received_in(struct sk_buff *skb, struct net *net)
{
    struct nc_index index = {};
    u32 *set;

    index.net = (u64)net;
    index.ifindex = NC_GET(skb, skb_iif);
    set = index.ifindex ? nc_known_indices.lookup(&index) : NULL;
    return set ? *set : 0;
}

#endif /* NETCONSOLE_DEVICES_H */
