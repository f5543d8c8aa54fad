"""Names of network namespaces, by inode.

A name that is gone is kept for a few seconds: what was counted last belongs to it, and is no news of somebody else. It
is not kept for good, because the kernel gives the inode of a namespace that is gone to a new one.
"""

import os
import time
from typing import Dict, Optional, Set

_HOST = ("/proc/1/ns/net", "/proc/self/ns/net")
_READ_EVERY_S = 1.0
KEPT_S = 10.0
_YOUNG_S = 2.0
"""A directory that has changed so recently is read again: `ip netns add` makes the name first, and mounts the namespace
on it later."""


class Namespaces:
    """``directory`` is where `ip netns` keeps its names. ``changes`` counts how often a name came, changed or went."""

    def __init__(self, directory: str = "/run/netns") -> None:
        self.changes = 0
        self._directory = os.fsencode(directory)
        self._names: Dict[int, str] = {}
        self._all: Dict[int, Set[str]] = {}
        """All names that each has now."""
        self._lives: Dict[int, int] = {}
        self._gone: Dict[int, float] = {}
        """By inode of a name that is kept: until when."""
        self._changed_ns: Optional[int] = None
        self._next_read = 0.0

    def name(self, inode: int) -> Optional[str]:
        """ "host", the name, or the inode as text when there is no name. None for 0."""
        if not inode:
            return None
        if inode not in self._names and time.monotonic() >= self._next_read:
            self._read()
        return self._names.get(inode, str(inode))

    def life(self, inode: int) -> int:
        """How many named namespaces with this inode have lost all their names: another number is another namespace."""
        return self._lives.get(inode, 0)

    def refresh(self) -> None:
        """Call this once in each reading. It costs one stat, unless names have come or gone."""
        changed_ns = self._mtime_ns()
        is_young = changed_ns is not None and time.time() - changed_ns / 1e9 < _YOUNG_S
        is_over = any(until <= time.monotonic() for until in self._gone.values())
        if changed_ns != self._changed_ns or is_young or is_over:
            self._read()

    def _mtime_ns(self) -> Optional[int]:
        try:
            return os.stat(self._directory).st_mtime_ns
        except OSError:
            return None

    def _read(self) -> None:
        self._next_read = time.monotonic() + _READ_EVERY_S
        self._changed_ns = self._mtime_ns()
        before = self._all
        names, now = self._list(), time.monotonic()
        for inode in [one for one, had in before.items() if not had & self._all.get(one, set())]:
            self._lives[inode] = self._lives.get(inode, 0) + 1
        until = {inode: self._gone.get(inode, now + KEPT_S) for inode in self._names if inode not in names}
        self._gone = {inode: at for inode, at in until.items() if at > now}
        names.update((inode, self._names[inode]) for inode in self._gone)
        if names != self._names:
            self._names = names
            self.changes += 1

    def _list(self) -> Dict[int, str]:
        found: Dict[int, str] = {}
        self._all = {}
        try:
            entries = os.listdir(self._directory)
        except OSError:
            entries = []  # no named namespaces
        for entry in entries:
            try:
                inode = os.stat(os.path.join(self._directory, entry)).st_ino
            except OSError:
                continue
            found[inode] = entry.decode("utf-8", "backslashreplace")
            self._all.setdefault(inode, set()).add(found[inode])
        for path in _HOST:
            try:
                found[os.stat(path).st_ino] = "host"
                break
            except OSError:
                continue
        return found
