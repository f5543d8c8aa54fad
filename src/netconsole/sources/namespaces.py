"""Follows the network namespaces of this host, and keeps something open in each, such as a socket.

These are the namespaces that `ip netns` names, and those of running processes. Only a short-lived thread ever changes
its namespace. What is open in a namespace keeps it alive, so it is closed as soon as the namespace's owner is gone.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeAlias, TypeVar

from netconsole.host.identity import NAMED_NETNS
from netconsole.sources.netns_watch import Watch

PROC = Path("/proc")
MAX_NAMESPACES = 256
"""The most namespaces that are opened. Each takes two or three descriptors, and a process often has only 1024."""
SEARCH_EVERY_S = 10.0
MAX_SHARE = 0.001
"""Share of one core for searching the namespaces of processes. With very many processes, searches are less often."""
YOUNG_S = 2.0
"""A directory that changed this recently is read again: the name of a namespace appears before it is mounted."""
HOST = "host"
_CLONE_NEWNET = 0x40000000


class Closable(Protocol):
    """Something that is kept open in a namespace."""

    def close(self) -> None:
        """Release it."""


Thing = TypeVar("Thing", bound=Closable)
Made: TypeAlias = "Thing | OSError"
Enter: TypeAlias = "Callable[[Iterable[tuple[bytes, int]], Callable[[], Thing]], list[Made[Thing]]]"
"""Makes a thing in each of these namespaces, given as path and inode: see :func:`make_inside`."""


@dataclass(slots=True)
class OpenNamespace(Generic[Thing]):
    """A namespace. ``name`` is "host", what `ip netns` calls it, or its inode; ``pid`` has it if nobody names it."""

    name: str
    thing: Thing
    pid: int | None = None


def make_inside(namespaces: Iterable[tuple[bytes, int]], make: Callable[[], Thing]) -> list[Made[Thing]]:
    """What ``make`` returns in each of these namespaces, or the error; a path may lead to another inode meanwhile."""
    made: list[Made[Thing]] = []

    def in_turn() -> None:
        for path, inode in namespaces:
            try:
                _set_namespace(path, inode)
                made.append(make())
            except OSError as error:
                made.append(error)

    thread = threading.Thread(target=in_turn, name="netns open", daemon=True)
    thread.start()
    thread.join()
    return made


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


class OpenNamespaces(Generic[Thing]):
    """The namespaces that are open, the own one first. ``left_out`` says how many more there are."""

    def __init__(
        self,
        make: Callable[[], Thing],
        directory: Path = NAMED_NETNS,
        proc: Path = PROC,
        enter: Enter[Thing] = make_inside,
    ) -> None:
        self.left_out = 0
        self._make = make
        self._enter = enter
        self._directory, self._proc = directory, proc
        self._held: dict[int, OpenNamespace[Thing]] = {}
        self._lock = threading.Lock()
        self._watch: Watch | None = None
        self._own = 0
        self._names: dict[int, str] = {}
        self._paths: dict[int, bytes] = {}
        self._changed_ns: int | None = None
        self._of_processes: dict[int, int] = {}
        self._search_at = 0.0
        self._refused: set[int] = set()
        self._may_enter = True

    def open(self) -> None:
        """Open the own namespace. Raises OSError."""
        own = self._inode("self")
        self._own = own or 0
        self._held[self._own] = OpenNamespace(HOST, self._make())
        self._list_names()
        self._held[self._own].name = self._name(self._own)

    @contextmanager
    def held(self) -> Iterator[list[OpenNamespace[Thing]]]:
        """All that there are now. None of them is closed until the end of this."""
        with self._lock:
            self._follow()
            yield list(self._held.values())

    def drop(self, thing: Thing) -> None:
        """Close a thing that has failed, within :meth:`held`. The next time a new one is made."""
        for inode, held in list(self._held.items()):
            if held.thing is thing and inode != self._own:
                self._close(inode)

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            for inode in list(self._held):
                self._close(inode)
            watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
            watch.join()

    def _follow(self) -> None:
        self._refresh_names()
        self._drop_gone()
        if not self._may_enter:
            return
        self._search_processes()
        wanted = {**self._of_processes, **self._paths}.keys() - self._held.keys() - self._refused
        room = MAX_NAMESPACES - len(self._held)
        self.left_out = max(0, len(wanted) - room)
        if wanted and room > 0:
            self._open(sorted(wanted, key=lambda inode: (inode not in self._paths, inode))[:room])

    def _open(self, inodes: list[int]) -> None:
        made = self._enter([(self._path(inode), inode) for inode in inodes], self._make)
        for inode, thing in zip(inodes, made, strict=True):
            if not isinstance(thing, OSError):
                pid = None if inode in self._paths else self._of_processes[inode]
                self._held[inode] = OpenNamespace(self._name(inode), thing, pid)
            elif thing.errno == errno.EPERM:
                self._may_enter, self.left_out = False, 0  # not root: it never may
                return
            elif thing.errno in (errno.EMFILE, errno.ENFILE):
                self.left_out += 1
            else:
                self._refused.add(inode)  # until names change, or until the next search
        try:
            self._watch_them()
        except OSError:
            return  # no descriptors left: what is gone is seen at the next reading

    def _watch_them(self) -> None:
        if self._watch is None:
            self._watch = Watch(self._on_gone)
        self._watch.directory(self._directory)
        self._watch.processes(self._pids())

    def _on_gone(self) -> None:
        """In the thread of the watch."""
        with self._lock:
            if self._watch is not None:
                self._list_names()
                self._drop_gone()

    def _drop_gone(self) -> None:
        before = len(self._held)
        for inode, held in list(self._held.items()):
            if inode == self._own:
                continue
            if inode in self._paths:
                held.pid = None
            elif held.pid is None or self._inode(held.pid) != inode:
                self._close(inode)
                self._of_processes.pop(inode, None)
                self._search_at = 0.0  # another process may have it
                continue
            held.name = self._name(inode)
        if self._watch is not None and len(self._held) != before:
            self._watch.processes(self._pids())

    def _pids(self) -> set[int]:
        return {held.pid for held in self._held.values() if held.pid is not None}

    def _close(self, inode: int) -> None:
        self._held.pop(inode).thing.close()

    # ---- what there is ----

    def _refresh_names(self) -> None:
        """Costs one stat, unless names have come or gone."""
        try:
            changed_ns = self._directory.stat().st_mtime_ns
        except OSError:
            changed_ns = None
        is_young = changed_ns is not None and time.time() - changed_ns / 1e9 < YOUNG_S
        if changed_ns != self._changed_ns or is_young:
            self._changed_ns = changed_ns
            self._list_names()

    def _list_names(self) -> None:
        """Names as :mod:`netconsole_collector.names.namespaces` has them."""
        names: dict[int, str] = {}
        paths: dict[int, bytes] = {}
        try:
            device = (self._proc / "self/ns/net").stat().st_dev
            with os.scandir(os.fsencode(self._directory)) as entries:
                for entry in entries:
                    try:
                        status = entry.stat()
                    except OSError:
                        continue  # it has just gone, or leads nowhere
                    if status.st_dev == device:  # else nothing is mounted on it, yet
                        names[status.st_ino] = entry.name.decode("utf-8", "backslashreplace")
                        paths[status.st_ino] = entry.path
        except FileNotFoundError:
            pass  # there is no such directory before the first name
        except OSError:
            return  # no descriptors left, for now
        names[self._inode(1) or self._own] = HOST
        if paths != self._paths:
            self._refused.clear()
        self._names, self._paths = names, paths

    def _search_processes(self) -> None:
        now = time.monotonic()
        if now < self._search_at:
            return
        began = time.thread_time()
        found: dict[int, int] = {}
        try:
            with os.scandir(self._proc) as entries:
                pids = sorted(int(entry.name) for entry in entries if entry.name.isdecimal())
        except OSError:
            pids = []  # no descriptors left, for now
        for pid in pids:
            inode = self._inode(pid)
            if inode is not None:
                found.setdefault(inode, pid)
        self._of_processes = found
        self._refused.clear()
        self._search_at = now + max(SEARCH_EVERY_S, (time.thread_time() - began) / MAX_SHARE)

    def _name(self, inode: int) -> str:
        return self._names.get(inode, str(inode))

    def _path(self, inode: int) -> bytes:
        return self._paths.get(inode) or os.fsencode(f"{self._proc}/{self._of_processes[inode]}/ns/net")

    def _inode(self, process: int | str) -> int | None:
        try:
            return Path(f"{self._proc}/{process}/ns/net").stat().st_ino
        except OSError:
            return None
