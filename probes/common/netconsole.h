/* netconsole.h - what every probe shares: kernel memory, configuration, accounting; behind it breaker.h, histograms.h, packets.h, events.h.
 *
 * The collector puts these texts before the probe's source. It defines, from the manifest and the kernel's BTF:
 *   NC_ROWS_<table>  the bound of a table     NC_CPUS    possible CPUs
 *   NC_EVENTS        1 when the manifest has events
 *   NC_RING          1 when the kernel has ring buffers (5.8), else events leave by a perf buffer
 *   NC_DIRECT        1 when the programs are loaded as BTF-typed raw tracepoints, else they are plain ones
 *   HAVE_..., NARGS_...  what this kernel has (docs/reference/probes.md)
 *
 * What costs is calling a helper (20 to 50 ns each where returns are mitigated), not arithmetic: array maps, whose look-up the kernel
 * inlines, and direct loads are preferred on the way that every packet takes.
 */
#ifndef NETCONSOLE_H
#define NETCONSOLE_H

/* ---- kernel memory: every read of it goes through NC_GET ---- */

#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 5, 0)
#define bpf_probe_read_kernel bpf_probe_read
#endif

/* A BTF-typed program may load from kernel structures directly: one instruction; a bad pointer reads as 0. Others call a helper. */
#if NC_DIRECT
#define NC_GET(pointer, member) ((pointer)->member)
#else
#define NC_GET(pointer, member) ({                                                      \
    typeof((pointer)->member) nc_value;                                                 \
    bpf_probe_read_kernel(&nc_value, sizeof(nc_value), &(pointer)->member);             \
    nc_value; })
#endif

/* By a helper in any case: for pointers that the verifier does not know, or may not trust. Off the common path. */
#define NC_READ(pointer, member) ({                                                     \
    typeof((pointer)->member) nc_value;                                                 \
    bpf_probe_read_kernel(&nc_value, sizeof(nc_value), &(pointer)->member);             \
    nc_value; })

/* Packets are bytes, not structures. From 6.2 a BTF-typed program may say what an address points to (bpf_rdonly_cast, undone by the
 * verifier: no call is made) and then load directly; the collector makes a call of that function from this number, for BCC cannot.
 * NC_HEADER(iphdr, BTF_ID_iphdr, ip, address) declares struct iphdr *ip, or a copy of it. */
#if NC_DIRECT && defined(HAVE_bpf_rdonly_cast) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
static void *(*nc_rdonly_cast)(u64 address, u32 type) = (void *)0x7ffffff0;
#define NC_HEADER(type, id, name, address) struct type *name = nc_rdonly_cast(address, id)
#else
#define NC_HEADER(type, id, name, address)                                              \
    struct type name##_copy, *name = &name##_copy;                                      \
    bpf_probe_read_kernel(name, sizeof(*name), (void *)(address))
#endif

/* The n-th argument of a tracepoint. The call hides from BCC that it points into the kernel: BCC would turn loads into helper calls. */
static inline void *nc_pointer(u64 value)
{
    return (void *)value;
}
#define NC_ARG(n) nc_pointer(ctx->args[n])

/* Text in a key without a string: the bytes of a label, eight at a time. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define NC_CHAR(c, n) ((u64)(c) << (8 * (n)))
#else
#define NC_CHAR(c, n) ((u64)(c) << (56 - 8 * (n)))
#endif
#define NC_WORD(a, b, c, d, e, f, g, h) (NC_CHAR(a, 0) | NC_CHAR(b, 1) | NC_CHAR(c, 2) | NC_CHAR(d, 3) | \
    NC_CHAR(e, 4) | NC_CHAR(f, 5) | NC_CHAR(g, 6) | NC_CHAR(h, 7))

/* ---- configuration: written by the collector on the running probe ---- */

#define NC_F_DEVICE 1u
#define NC_F_ADDRESS 2u
#define NC_F_PORT 4u
#define NC_F_PROTOCOL 8u
#define NC_F_NETNS 16u
#define NC_F_THRESHOLD 32u
#define NC_F_DETAILS 64u
#define NC_F_COUNTERS 128u  /* nothing but counters */
#define NC_F_BREAKER 256u   /* the runs of a window are bounded */
#define NC_F_PLACE (NC_F_DEVICE | NC_F_NETNS)
#define NC_F_FLOW (NC_F_ADDRESS | NC_F_PORT | NC_F_PROTOCOL)

struct nc_config {
    u32 flags;          /* NC_F_*: only filters that are set cost anything */
    u32 netns;          /* inode */
    u64 device[2];      /* name, zero padded */
    u64 address[2];     /* network byte order, IPv4 as ::ffff:a.b.c.d */
    u64 mask[2];
    u16 port;           /* host byte order */
    u8 protocol;
    u8 flow_shift;      /* details of one flow in 2^flow_shift */
    u8 pad[4];
    u64 threshold_ns;
    u64 event_every_ns; /* budget: one event per CPU and so many ns ... */
    u64 event_burst_ns; /* ... and this much saved up at most */
    u64 details_runs;   /* circuit breaker: runs of a window, all CPUs together, that may do the work of details ... */
    u64 rows_runs;      /* ... and that may do more than count; 0: all */
    u64 bound_ns;       /* ... and what all of them may take; 0: what they want */
    u64 extra[4];       /* knobs of one probe alone */
};
BPF_ARRAY(nc_config, struct nc_config, 1);

static inline struct nc_config *nc_config_get(void)
{
    int zero = 0;
    return nc_config.lookup(&zero);
}

/* A number that stands for a kernel object as long as the probe lives. The verifier lets a BTF-typed program compute nothing from a
 * pointer but its distance to another one: here to the configuration, which stays where it is. */
static inline u64 nc_number_of(struct nc_config *config, void *pointer)
{
    return (u64)pointer - (u64)config;
}

/* ---- accounting: per CPU ---- */

/* From 6.1 the kernel does not enter a raw tracepoint program that is running on this CPU already (it counts such runs as missed: the
 * ledger shows them), so what only one program writes needs a plain addition. Before, an interrupt could nest it: the addition must be
 * one instruction. The latter is also right for vendor kernels that took the guard over. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 1, 0)
#define nc_add(counter, n) (*(counter) += (n))
#else
#define nc_add(counter, n) __sync_fetch_and_add((counter), (n))
#endif

/* Counters of the manifest; a slot belongs to one program. */
BPF_PERCPU_ARRAY(nc_counters, u64, 32);

static inline void nc_count(u32 slot)
{
    u64 *counter = nc_counters.lookup(&slot);
    if (counter)
        nc_add(counter, 1);
}

enum nc_ledger_slot {
    NC_SEEN, NC_SUBMITTED, NC_SUPPRESSED, NC_LOST,      /* events */
    NC_MAP_FULL, NC_JOIN_MISSED, NC_PARSE_FAILED, NC_STACK_FAILED,
    NC_BREAKER,         /* events that were seen and suppressed by the circuit breaker: the collector adds them to both */
    NC_UNLISTED,        /* counted, but in no row, by the circuit breaker or in mode counters */
    NC_UNMEASURED,      /* counted, but not timed */
    NC_UNSAMPLED,       /* events that were seen and suppressed because of their flow: the collector adds them to both */
    NC_LEDGER_SLOTS = 16,
};
BPF_PERCPU_ARRAY(nc_ledger, u64, NC_LEDGER_SLOTS);

/* The programs of a probe share the ledger and may interrupt each other: always one instruction. */
static inline void nc_ledger_add_many(u32 slot, u64 n)
{
    u64 *entry = nc_ledger.lookup(&slot);
    if (entry)
        __sync_fetch_and_add(entry, n);
}

static inline void nc_ledger_add(u32 slot)
{
    nc_ledger_add_many(slot, 1);
}

#endif /* NETCONSOLE_H */
