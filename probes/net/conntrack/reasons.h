/* reasons.h - why conntrack refuses a packet: in the words that the kernel would log, or by what it left in the packet. */
#ifndef CONNTRACK_REASONS_H
#define CONNTRACK_REASONS_H

#include "visits.h"

/* The text is the format, or what "%s" or "%pV" stand for: a text, or a struct va_format, which begins with a format. */
static inline void say(u64 skb, u64 text, u64 other)
{
    struct nest *nest = nest_here();
    struct visit *visit = nest ? visit_of(nest, skb) : NULL;
    char form[2] = {};

    if (!visit || visit->said)
        return;
    bpf_probe_read_kernel(form, sizeof(form), (void *)text);
    if (form[0] == '%' && form[1] == 's')
        text = other;
    else if (form[0] == '%' && form[1] == 'p')
        bpf_probe_read_kernel(&text, sizeof(text), (void *)other);
    visit->said = text;
}

/* nf_l4proto_log_invalid and nf_ct_l4proto_log_invalid (packet, ..., ..., format, ...) */
int said(void *ctx)
{
    say((u64)NC_PARAMETER(0), (u64)NC_PARAMETER(3), (u64)NC_PARAMETER(4));
    return 0;
}

/* nf_l4proto_log_invalid (packet, ..., ..., ..., format, ...) before 5.14 */
int said_earlier(void *ctx)
{
    say((u64)NC_PARAMETER(0), (u64)NC_PARAMETER(4), (u64)NC_PARAMETER(5));
    return 0;
}

/* nf_ct_l4proto_log_invalid (packet, connection, format, ...) before 5.14 */
int said_earlier_of_connection(void *ctx)
{
    say((u64)NC_PARAMETER(0), (u64)NC_PARAMETER(2), (u64)NC_PARAMETER(3));
    return 0;
}

static inline void reason_of(struct refused_key *key, struct visit *visit)
{
    char full[SAID] = "the table is full, or there is no memory";
    char none[SAID] = "no connection, and not how one begins";
    char unread[SAID] = "the headers cannot be read";

    if (visit->said)
        bpf_probe_read_kernel_str(key->reason, sizeof(key->reason), (void *)visit->said);
    else if (key->outcome == DROPPED)
        __builtin_memcpy(key->reason, full, sizeof(full));
    else if (key->l4 == NC_L4_UNPARSED)
        __builtin_memcpy(key->reason, unread, sizeof(unread));
    else
        __builtin_memcpy(key->reason, none, sizeof(none));
}

#endif /* CONNTRACK_REASONS_H */
