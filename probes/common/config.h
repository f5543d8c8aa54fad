/* config.h - mode and knobs, which the collector writes while the probe runs (netconsole_collector/probe/config.py). */
#ifndef NETCONSOLE_CONFIG_H
#define NETCONSOLE_CONFIG_H

#define NC_F_DEVICE 1u
#define NC_F_ADDRESS 2u
#define NC_F_PORT 4u
#define NC_F_PROTOCOL 8u
#define NC_F_NETNS 16u
#define NC_F_THRESHOLD 32u
#define NC_F_DETAILS 64u
#define NC_F_COUNTERS 128u  /* nothing but counters */
#define NC_F_BREAKER 256u   /* the runs of a window are bounded */
#define NC_F_ENDS 512u      /* what the ends of a flow have to be, together */
#define NC_F_ONE_WAY 1024u  /* ... in one direction */
#define NC_F_VLAN 2048u
#define NC_F_ETHERTYPE 4096u
#define NC_F_MAC 8192u
#define NC_F_RESTS 16384u   /* the probe is not to see anything now: its programs are being attached or detached */
#define NC_F_REASON 32768u      /* of drops: only these reasons */
#define NC_F_NOT_REASON 65536u  /* ... or all but these */
#define NC_F_ROWS_SHARE 131072u     /* the probe can make its rows of one count in so many (row_share.h) */
#define NC_F_STORM 262144u  /* ... and is to do so now: its time is used up. In flags of a run alone */
#define NC_F_PLACE (NC_F_DEVICE | NC_F_NETNS)
#define NC_F_FLOW (NC_F_ADDRESS | NC_F_PORT | NC_F_PROTOCOL | NC_F_VLAN | NC_F_ETHERTYPE | NC_F_MAC)

#define NC_REASONS 8

struct nc_end {
    u64 address[2];
    u64 mask[2];        /* zeros: any address */
    u16 port;           /* 0: any */
    u16 pad[3];
};

struct nc_config {
    u32 flags;          /* NC_F_*: a filter that is not set costs nothing */
    u32 netns;          /* inode */
    u64 device[2];      /* name, padded with zeros */
    u64 address[2];     /* network byte order, IPv4 as ::ffff:a.b.c.d */
    u64 mask[2];
    u16 port;           /* host byte order */
    u8 protocol;
    u8 flow_shift;      /* details of one flow in 2 to the power of this */
    u16 vlan;
    u16 ethertype;
    u64 mac;            /* its six bytes, then zeros */
    u64 threshold_ns;
    u64 event_every_ns; /* budget of events: all CPUs together may send one in so many ns */
    u64 event_burst_ns; /* and may save up so much */
    /* circuit breaker (breaker.h), in a window, all CPUs together: */
    u64 details_runs;   /* so many runs may do the work of details */
    u64 rows_runs;      /* so many runs may do more than count; 0: all */
    u64 bound_ns;       /* so much time all runs may take; 0: no bound */
    u64 own[4];         /* knobs of this probe alone: read them by nc_knob */
    struct nc_end ends[2];      /* NC_F_ENDS: the source and the target; without NC_F_ONE_WAY also the other way round */
    u32 reasons[NC_REASONS];    /* NC_F_REASON; with fewer, the first one is in all the other places, too */
    u32 rows_shift;     /* NC_F_ROWS_SHARE: rows are made of one count in 2 to the power of this */
    u32 pad;
};
BPF_ARRAY(nc_config, struct nc_config, 1);

/* A knob of this probe alone, by its name in the manifest: nc_knob(config, unanswered_after_ms). true is 1. The collector defines
 * NC_KNOB_<name> for each; a name that the manifest does not have does not compile. */
#define nc_knob(config, name) ((config)->own[NC_KNOB_##name])

/* NULL: there is nothing to do. The compiler must not know that this is so where a flag is set: callers would look at the flag again and
 * not at the pointer, and verifiers of old kernels (5.10) do not see that the one goes with the other. */
static inline struct nc_config *nc_config_get(void)
{
    int zero = 0;
    struct nc_config *config = nc_config.lookup(&zero);

    if (config && config->flags & NC_F_RESTS)
        config = NULL;
    asm volatile("" : "+r"(config));
    return config;
}

/* A number that stands for a kernel object as long as the probe runs. All that the verifier lets a BTF-typed program compute from a
 * pointer is its distance to another one: here to the configuration, which does not move. To others a kernel's pointer is a number
 * already, and a distance between a number and the configuration is refused. */
static inline u64 nc_number_of(struct nc_config *config, void *pointer)
{
#if NC_DIRECT
    return (u64)pointer - (u64)config;
#else
    return (u64)pointer;
#endif
}

#endif /* NETCONSOLE_CONFIG_H */
