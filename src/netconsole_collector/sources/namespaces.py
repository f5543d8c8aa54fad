"""Follows the network namespaces of this host, and keeps something open in each, such as a socket.

These are the namespaces that `ip netns` names, and those of running processes. What is open in a namespace keeps it
alive, so it is closed as soon as the namespace's owner is gone.
"""

import errno
import os
import threading
import time
from contextlib import contextmanager
from typing import Any, Callable, Dict, Generic, Iterator, List, Optional, Set, TypeVar, Union

from netconsole_collector.kernel.clock import wall_ns
from netconsole_collector.primitives.here import HERE, NAMED_NETNS

MAX_NAMESPACES = 256
"""The most namespaces that are opened. Each takes two or three descriptors, and a process often has only 1024."""
SEARCH_EVERY_S = 10.0
MAX_SHARE = 0.001
"""Share of one core for searching the namespaces of processes. With very many processes, searches are less often."""
YOUNG_S = 2.0
"""A directory that changed this recently is read again: the name of a namespace appears before it is mounted."""
HOST = "host"


Thing = TypeVar("Thing")
"""Something that is kept open in a namespace. It has a method to close it."""


class OpenNamespace(Generic[Thing]):
    """A namespace. ``name`` is "host", what `ip netns` calls it, or its inode; ``pid`` has it if nobody names it."""

    def __init__(self, name: str, thing: Thing, pid: Optional[int] = None) -> None:
        self.name = name
        self.thing = thing
        self.pid = pid


class OpenNamespaces(Generic[Thing]):
    """The namespaces that are open, the own one first. ``left_out`` says how many more there are."""

    def __init__(
        self,
        make: Callable[[Any], Thing],
        host: Any = HERE,
    ) -> None:
        """``make`` makes a thing of what is open in a namespace; the thing closes that."""
        self.left_out = 0
        self._make = make
        self._host = host
        self._held: Dict[int, OpenNamespace[Thing]] = {}
        self._lock = threading.Lock()
        self._watch: Optional[Any] = None
        self._own = 0
        self._names: Dict[int, str] = {}
        self._paths: Dict[int, str] = {}
        self._changed_ns: Optional[int] = None
        self._of_processes: Dict[int, int] = {}
        self._search_at = 0.0
        self._refused: Set[int] = set()
        self._may_enter = True

    def open(self) -> None:
        """Open the own namespace. Raises OSError."""
        own = self._inode("self")
        self._own = own or 0
        self._held[self._own] = OpenNamespace(HOST, self._make(self._host.own_namespace()))
        self._list_names()
        self._held[self._own].name = self._name(self._own)

    @contextmanager
    def held(self) -> Iterator[List[OpenNamespace[Thing]]]:
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

    def _open(self, inodes: List[int]) -> None:
        opened = self._host.inside([(self._path(inode), inode) for inode in inodes])
        for inode, one in zip(inodes, opened):
            if not isinstance(one, OSError):
                pid = None if inode in self._paths else self._of_processes[inode]
                self._held[inode] = OpenNamespace(self._name(inode), self._make(one), pid)
            elif one.errno == errno.EPERM:
                self._may_enter, self.left_out = False, 0  # not root: it never may
                return
            elif one.errno in (errno.EMFILE, errno.ENFILE):
                self.left_out += 1
            else:
                self._refused.add(inode)  # until names change, or until the next search
        try:
            self._watch_them()
        except OSError:
            return  # no descriptors left: what is gone is seen at the next reading

    def _watch_them(self) -> None:
        if self._watch is None:
            self._watch = self._host.watch(self._on_gone)
        if self._watch is None:
            return
        self._watch.directory(NAMED_NETNS)
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

    def _pids(self) -> Set[int]:
        return {held.pid for held in self._held.values() if held.pid is not None}

    def _close(self, inode: int) -> None:
        thing: Any = self._held.pop(inode).thing
        thing.close()

    # ---- what there is ----

    def _refresh_names(self) -> None:
        """Costs one stat, unless names have come or gone."""
        try:
            changed_ns = self._host.status(NAMED_NETNS).changed_ns
        except OSError:
            changed_ns = None
        is_young = changed_ns is not None and wall_ns() - changed_ns < YOUNG_S * 1e9
        if changed_ns != self._changed_ns or is_young:
            self._changed_ns = changed_ns
            self._list_names()

    def _list_names(self) -> None:
        """Names as :mod:`netconsole_collector.names.namespaces` has them."""
        names: Dict[int, str] = {}
        paths: Dict[int, str] = {}
        try:
            device = self._host.status("/proc/self/ns/net").device
            entries = self._host.names(NAMED_NETNS)
            for entry in entries:
                try:
                    status = self._host.status(f"{NAMED_NETNS}/{entry}")
                except OSError:
                    continue  # it has just gone, or leads nowhere
                if status.device == device:  # else nothing is mounted on it, yet
                    names[status.inode] = os.fsencode(entry).decode("utf-8", "backslashreplace")
                    paths[status.inode] = f"{NAMED_NETNS}/{entry}"
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
        began = self._host.cpu_s()
        found: Dict[int, int] = {}
        try:
            for pid, inode in self._host.inodes("ns/net").items():
                found.setdefault(inode, pid)
        except OSError:
            pass  # no descriptors left, for now
        self._of_processes = found
        self._refused.clear()
        self._search_at = now + max(SEARCH_EVERY_S, (self._host.cpu_s() - began) / MAX_SHARE)

    def _name(self, inode: int) -> str:
        return self._names.get(inode, str(inode))

    def _path(self, inode: int) -> str:
        return self._paths.get(inode) or f"/proc/{self._of_processes[inode]}/ns/net"

    def _inode(self, process: Union[int, str]) -> Optional[int]:
        try:
            inode: int = self._host.status(f"/proc/{process}/ns/net").inode
            return inode
        except OSError:
            return None
