"""Keeps something open in a network namespace: its /proc/net/dev, and a socket that hears of its links.

Only a short-lived thread ever changes its namespace.
"""

import ctypes
import errno
import os
import socket
import threading
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, TypeVar, Union

from netconsole_collector.primitives import files
from netconsole_collector.primitives.files import CHUNK_BYTES
from netconsole_collector.primitives.netlink import Netlink

GROUP_LINK = 1
"""RTMGRP_LINK (include/uapi/linux/rtnetlink.h)."""
_CLONE_NEWNET = 0x40000000

Made = TypeVar("Made")


class Inside:
    """It belongs to the namespace of the thread that makes it, and any thread may use it then."""

    def __init__(self, room: Optional[memoryview] = None) -> None:
        """``room`` as of :class:`Netlink`. Raises OSError."""
        # /proc/net would be that of the process's first thread.
        self._file = os.open("/proc/thread-self/net/dev", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.netlink = Netlink(socket.NETLINK_ROUTE, GROUP_LINK, None, room)
        except OSError:
            os.close(self._file)
            raise

    def devices(self) -> bytes:
        """/proc/net/dev: the counters of every interface. Raises OSError."""
        chunks: List[bytes] = []
        offset = 0
        while True:
            chunk = os.pread(self._file, CHUNK_BYTES, offset)
            if not chunk:
                return b"".join(chunks)
            chunks.append(chunk)
            offset += len(chunk)

    def close(self) -> None:
        """Release the namespace."""
        self.netlink.close()
        os.close(self._file)


def make_inside(namespaces: Iterable[Tuple[bytes, int]], make: Callable[[], Made]) -> List[Union[Made, OSError]]:
    """What ``make`` returns in each of these namespaces, or the error; a path may lead to another inode meanwhile."""
    made: List[Union[Made, OSError]] = []

    def in_turn() -> None:
        for path, inode in namespaces:
            try:
                if path:
                    _set_namespace(path, inode)
                made.append(make())
            except OSError as error:
                made.append(error)

    thread = threading.Thread(target=in_turn, name="netns open", daemon=True)
    thread.start()
    thread.join()
    return made


def read_inside(
    namespaces: Iterable[Tuple[bytes, int]], names: Sequence[bytes], limit: int
) -> Tuple[List[Union[Dict[bytes, bytes], OSError]], float]:
    """Files of /proc/net in each of these namespaces, as :func:`files.read_each`, and the CPU time of that in s."""
    spent_s = 0.0

    def contents() -> Dict[bytes, bytes]:
        nonlocal spent_s
        # /proc/net would be that of the process's first thread.
        found = files.read_each(b"/proc/thread-self/net", names, limit)
        spent_s = time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)  # the thread did nothing before
        return found

    return make_inside(namespaces, contents), spent_s


def settings_inside(path: bytes, inode: int) -> Dict[str, Any]:
    """How a namespace is set up; without a path the own one. Raises OSError."""
    from netconsole_collector.primitives.settings import settings  # late: few ask for it

    (found,) = make_inside([(path, inode)], settings)
    if isinstance(found, OSError):
        raise found
    return found


def _set_namespace(path: bytes, inode: int) -> None:
    """Of this thread, for good. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_ino != inode:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(descriptor)
