/* block.h - what probes of block I/O share: the names of operations, and lengths of time. */
#ifndef NETCONSOLE_BLOCK_H
#define NETCONSOLE_BLOCK_H

#include "netconsole.h"

static inline u64 between(u64 from, u64 to)     /* between CPUs this clock may go back a little */
{
    return to > from ? to - from : 0;
}

#define OPERATION_MASK 0xff     /* REQ_OP_MASK */
static inline u64 operation_of(u32 flags, u64 bytes)
{
    switch (flags & OPERATION_MASK) {
    case REQ_OP_READ:
        return NC_WORD('r', 'e', 'a', 'd', 0, 0, 0, 0);
    case REQ_OP_WRITE:
        if (bytes || !(flags & 1u << __REQ_PREFLUSH))
            return NC_WORD('w', 'r', 'i', 't', 'e', 0, 0, 0);
        return NC_WORD('f', 'l', 'u', 's', 'h', 0, 0, 0);
    case REQ_OP_FLUSH:
        return NC_WORD('f', 'l', 'u', 's', 'h', 0, 0, 0);
    case REQ_OP_DISCARD:
    case REQ_OP_SECURE_ERASE:
        return NC_WORD('d', 'i', 's', 'c', 'a', 'r', 'd', 0);
    }
    return NC_WORD('o', 't', 'h', 'e', 'r', 0, 0, 0);
}

#endif /* NETCONSOLE_BLOCK_H */
