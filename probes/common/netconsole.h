/* netconsole.h - what every probe shares: configuration, filters, accounting, histograms, budgeted events.
 *
 * The collector puts this text before the probe's source. It defines, from the manifest and the kernel's BTF:
 *   NC_ROWS_<table>  the bound of a table     NC_CPUS  possible CPUs
 *   NC_RING          1 when the kernel has ring buffers (5.8), else events leave by a perf buffer
 *   HAVE_..., NARGS_...  what this kernel has (docs/probes.md)
 */
#ifndef NETCONSOLE_H
#define NETCONSOLE_H

/* ---- configuration: written by the collector on the running probe ---- */
#define NC_F_DEVICE 1u
#define NC_F_ADDRESS 2u
#define NC_F_PORT 4u
#define NC_F_PROTOCOL 8u
#define NC_F_NETNS 16u
#define NC_F_THRESHOLD 32u
#define NC_F_DETAILS 64u

struct nc_config {
    u32 flags;          /* NC_F_*: only filters that are set cost anything */
    u32 netns;          /* inode */
    u64 device[2];      /* name, zero padded */
    u64 address[2];     /* network byte order, IPv4 as ::ffff:a.b.c.d */
    u64 mask[2];
    u16 port;           /* host byte order */
    u8 protocol;
    u8 pad[5];
    u64 threshold_ns;
    u64 event_every_ns; /* budget: one event per CPU and so many ns ... */
    u64 event_burst_ns; /* ... and this much saved up at most */
    u64 extra[4];       /* knobs of one probe alone */
};
BPF_ARRAY(nc_config, struct nc_config, 1);

static inline struct nc_config *nc_config_get(void)
{
    int zero = 0;
    return nc_config.lookup(&zero);
}

/* ---- accounting: per CPU, so that an addition needs no lock ---- */
BPF_PERCPU_ARRAY(nc_counters, u64, 32);

enum nc_ledger_slot {
    NC_SEEN, NC_SUBMITTED, NC_SUPPRESSED, NC_LOST,      /* events */
    NC_MAP_FULL, NC_JOIN_MISSED, NC_PARSE_FAILED, NC_STACK_FAILED,
    NC_LEDGER_SLOTS = 16,
};
BPF_PERCPU_ARRAY(nc_ledger, u64, NC_LEDGER_SLOTS);
