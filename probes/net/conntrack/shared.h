/* shared.h - the tables of conntrack, and what the kernel leaves in a packet (skb->_nfct). */
#ifndef CONNTRACK_SHARED_H
#define CONNTRACK_SHARED_H

#include "../../common/netconsole.h"

/* Outcomes: those of enum ip_conntrack_info (the lowest bits of _nfct), and what has no number there (names/labels.py). */
enum { NEW = 2, UNTRACKED = 7, INVALID, DROPPED, ALREADY };
#define INFO_BITS 7ul

struct packet_key {
    u32 netns;
    u32 outcome;
    u16 zone;
    u16 l4;
    u32 pad;
};
BPF_TABLE("percpu_hash", struct packet_key, u64, packets, NC_ROWS_packets);

struct change_key {
    u32 netns;
    u16 zone;
    u8 before;
    u8 after;
};
BPF_TABLE("percpu_hash", struct change_key, u64, changes, NC_ROWS_changes);

#define SAID 48
struct refused_key {
    struct nc_place place;
#define refused_zone place.pad  /* in the four bytes that a place leaves free */
    u32 outcome;
    u32 l4;
    char reason[SAID];
};
BPF_TABLE("percpu_hash", struct refused_key, u64, refused, NC_ROWS_refused);

struct time_key {
    u32 netns;
    u16 zone;
    u16 l4;
    u32 pad;
    u32 slot;
};
BPF_TABLE("percpu_hash", struct time_key, struct nc_bucket, time, NC_ROWS_time);

struct packet_event {
    u64 mono_ns;
    u64 took_ns;
    struct refused_key what;
    struct nc_flow flow;
    u32 cpu;
    u8 before;
    u8 after;
    u8 pad[2];
};
BPF_PERCPU_ARRAY(records, struct packet_event, 1);

static inline struct nf_conn *connection_of(u64 nfct)
{
    return (void *)(nfct & ~INFO_BITS);
}

static inline u16 zone_of(struct nf_conn *ct)
{
#ifdef HAVE_nf_conn_zone
    return ct ? NC_READ(ct, zone.id) : 0;
#else
    return 0;
#endif
}

/* An invalid packet is for the rules to drop. */
static inline int is_refused(u64 nfct)
{
    return !connection_of(nfct) && (nfct & INFO_BITS) != UNTRACKED;
}

#endif /* CONNTRACK_SHARED_H */
