"""Notifies at once when a name of a network namespace, or a process in one, is gone.

An open socket in a namespace keeps it alive, with all of its links. So a reader must close it as soon as the owner of
the namespace is gone, and not only at the next interval.
"""

import ctypes
import os
import select
import threading
from typing import Callable, Collection, Dict, Optional

_IN_DELETE, _IN_MOVED_FROM = 0x200, 0x40
_IN_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_PIDFD_OPEN = 434
"""The same on every architecture that KVM has (Python has it from 3.9 on)."""
_EVENT_BYTES = 64 * 1024


class Watch:
    """Calls ``on_gone`` from a thread of its own. Without inotify or pidfds (before 5.3) it stays silent."""

    def __init__(self, on_gone: Callable[[], None], root: bytes = b"") -> None:
        """Raises OSError when there are no descriptors left. Directories are looked for below ``root``."""
        self._on_gone = on_gone
        self._root = root
        self._processes: Dict[int, int] = {}
        self._directory: Optional[int] = None
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._epoll = select.epoll()
        self._end, self._ends = os.pipe()
        self._epoll.register(self._end, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name="netns watch", daemon=True)
        self._thread.start()

    def directory(self, path: str) -> None:
        """Watch the names in this directory, from when it is there on."""
        folder = self._root + path.encode("utf-8", "surrogateescape")
        if self._directory is not None or not os.path.isdir(folder):
            return
        descriptor = self._libc.inotify_init1(_IN_FLAGS)
        if descriptor < 0:
            return
        if self._libc.inotify_add_watch(descriptor, folder, _IN_DELETE | _IN_MOVED_FROM) < 0:
            os.close(descriptor)
            return
        self._directory = descriptor
        self._epoll.register(descriptor, select.EPOLLIN)

    def processes(self, pids: Collection[int]) -> None:
        """Watch these processes, and no others."""
        for pid in self._processes.keys() - set(pids):
            os.close(self._processes.pop(pid))  # this also removes it from the epoll
        for pid in pids:
            if pid not in self._processes:
                descriptor = self._libc.syscall(_PIDFD_OPEN, pid, 0)
                if descriptor >= 0:  # else it has ended, or there are none
                    self._processes[pid] = descriptor
                    self._epoll.register(descriptor, select.EPOLLIN | select.EPOLLONESHOT)

    def close(self) -> None:
        """End the thread. It may be waiting for who calls this: it is not waited for."""
        os.write(self._ends, b"\n")

    def join(self) -> None:
        """Wait until all is given back, after :meth:`close`."""
        self._thread.join()

    def _run(self) -> None:
        while True:
            ready = [descriptor for descriptor, _ in self._epoll.poll()]
            if self._end in ready:
                break
            if self._directory in ready:
                try:
                    os.read(self._directory or 0, _EVENT_BYTES)  # which name it is does not matter
                except OSError:
                    pass
            self._on_gone()
        self._epoll.close()
        for descriptor in (self._end, self._ends, self._directory, *self._processes.values()):
            if descriptor is not None:
                os.close(descriptor)
