/* calls.h - the system calls that read, write and synchronise files, and what they were given. */
#ifndef NETCONSOLE_CALLS_H
#define NETCONSOLE_CALLS_H

#include "../../common/netconsole.h"

#define O_DSYNC 010000
#define RWF_SYNCED 6    /* RWF_DSYNC, RWF_SYNC: of this call alone, which is pwritev2 (include/uapi/linux/fs.h) */

enum call { OTHER_CALL, READ, WRITE, SYNC_ALL, SYNC_DATA, SYNC_RANGE };

/* The numbers of a call on a 64-bit machine: arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h. */
#ifdef HAVE_pt_regs_orig_ax
#define O_DIRECT 040000
#define CALL_NUMBER(regs) NC_GET(regs, orig_ax)
#define FILE_NUMBER(regs) ((u32)NC_GET(regs, di))
#define PWRITEV2 328
#define CALL_FLAGS(regs) NC_GET(regs, r9)
static inline enum call call_of(u64 number)
{
    switch (number) {
    case 0: case 17: case 19: case 295: case 327:       /* read, pread64, readv, preadv, preadv2 */
        return READ;
    case 1: case 18: case 20: case 296: case 328:       /* write, pwrite64, writev, pwritev, pwritev2 */
        return WRITE;
    case 74:
        return SYNC_ALL;
    case 75:
        return SYNC_DATA;
    case 277:
        return SYNC_RANGE;
    }
    return OTHER_CALL;
}
#else
#define O_DIRECT 0200000
#define CALL_NUMBER(regs) ((u64)NC_GET(regs, syscallno))
#define FILE_NUMBER(regs) ((u32)NC_GET(regs, regs[0]))
#define PWRITEV2 287
#define CALL_FLAGS(regs) NC_GET(regs, regs[5])
static inline enum call call_of(u64 number)
{
    switch (number) {
    case 63: case 65: case 67: case 69: case 286:
        return READ;
    case 64: case 66: case 68: case 70: case 287:
        return WRITE;
    case 82:
        return SYNC_ALL;
    case 83:
        return SYNC_DATA;
    case 84:
        return SYNC_RANGE;
    }
    return OTHER_CALL;
}
#endif

/* A program of 32 bits has other numbers for its calls. */
#ifdef HAVE_thread_info_status
#define TS_COMPAT 0x0002
#define HAS_OTHER_NUMBERS(task) (NC_READ(task, thread_info.status) & TS_COMPAT)
#else
#define TIF_32BIT 22    /* of arm64 */
#define HAS_OTHER_NUMBERS(task) (NC_READ(task, thread_info.flags) >> TIF_32BIT & 1)
#endif

#endif /* NETCONSOLE_CALLS_H */
