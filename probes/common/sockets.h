/* sockets.h - which socket it is: its inode, which ss and /proc show, too. */
#ifndef NETCONSOLE_SOCKETS_H
#define NETCONSOLE_SOCKETS_H

#include "kernel_memory.h"

/* 0: none any more (closing), or none yet (a connection being accepted). struct inode follows struct socket in struct socket_alloc
 * (include/net/sock.h, SOCK_INODE). */
static inline u64 nc_socket_inode(struct sock *sk)
{
    struct socket_alloc *alloc;
    struct socket *socket = NC_READ(sk, sk_socket);

    if (!socket)
        return 0;
    alloc = (void *)socket - offsetof(struct socket_alloc, socket);
    return NC_READ(&alloc->vfs_inode, i_ino);
}

#endif /* NETCONSOLE_SOCKETS_H */
