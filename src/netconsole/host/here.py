"""This machine as a target: every reading is a direct call. See :class:`netconsole.host.target.Target`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from netconsole.host.target import MAX_FILE_BYTES, MAX_NAMES, Moment, Opened, Question
from netconsole_collector.primitives import ethtool, files
from netconsole_collector.primitives.exchange import Exchange
from netconsole_collector.primitives.files import FileStatus
from netconsole_collector.primitives.inside import Inside, make_inside, read_inside, settings_inside
from netconsole_collector.primitives.netlink import RECEIVE_BYTES, Netlink
from netconsole_collector.primitives.netns_watch import Watch


class Here:
    """``root``: files are looked for below it. Netlink and ethtool are always this machine's."""

    def __init__(self, root: Path | None = None) -> None:
        self._root = b"" if root is None else os.fsencode(root)
        self._room: memoryview | None = None

    is_here = True

    def begin(self) -> bool:
        """Nothing to do."""
        return False

    def close(self) -> None:
        """Nothing to do."""

    def apart(self) -> Here:
        """It keeps nothing that two threads would share."""
        return Here(Path(os.fsdecode(self._root)) if self._root else None)

    def ahead(self, questions: Iterable[Question]) -> None:
        """Nothing to do: every reading is quick."""

    def now(self) -> Moment:
        """See Target."""
        now_ns = time.monotonic_ns()
        return Moment(now_ns, time.time_ns(), now_ns)

    def cpu_s(self) -> float:
        """See Target."""
        return time.thread_time()

    def nodename(self) -> tuple[str, str, str]:
        """See Target."""
        name = os.uname()
        return name.nodename, name.release, name.machine

    def read(self, path: str, limit: int = MAX_FILE_BYTES, from_end: bool = False, /) -> bytes:
        """See Target."""
        return files.read(self._path(path), limit, from_end)

    def names(self, path: str, limit: int = MAX_NAMES, /) -> list[str]:
        """See Target."""
        return [os.fsdecode(name) for name in files.names(self._path(path), limit)]

    def below(self, path: str, without: Mapping[str, Sequence[str]], limit: int, /) -> list[str]:
        """See Target."""
        skipped = {os.fsencode(name): tuple(map(os.fsencode, kept)) for name, kept in without.items()}
        return [os.fsdecode(name) for name in files.below(self._path(path), skipped, limit)]

    def link(self, path: str, /) -> str:
        """See Target."""
        return os.fsdecode(os.readlink(self._path(path)))

    def status(self, path: str, /) -> FileStatus:
        """See Target."""
        return files.status(self._path(path))

    def exists(self, path: str, /) -> bool:
        """See Target."""
        return os.path.exists(self._path(path))

    def inodes(self, name: str, /) -> dict[int, int]:
        """See Target."""
        return files.inodes(self._path("/proc"), os.fsencode(name))

    def owners(self, sockets: Collection[int], /) -> dict[int, str]:
        """See Target."""
        return files.owners(self._path("/proc"), set(sockets))

    def netlink(self, protocol: int, /) -> Netlink:
        """See Target."""
        return Netlink(protocol)

    def own_namespace(self) -> Inside:
        """See Target."""
        return Inside(self._shared_room())

    def inside(self, namespaces: Sequence[tuple[str, int]], /) -> list[Opened]:
        """See Target."""
        room = self._shared_room()
        paths = [(self._path(path), inode) for path, inode in namespaces]
        return list(make_inside(paths, lambda: Inside(room)))

    def read_inside(self, path: str, inode: int, file: str, /) -> bytes:
        """See Target."""
        return read_inside(self._path(path), inode, os.fsencode(file), MAX_FILE_BYTES)

    def settings(self, path: str, inode: int, /) -> bytes:
        """See Target."""
        return settings_inside(self._path(path) if path else b"", inode)

    def watch(self, on_gone: Callable[[], None], /) -> Watch:
        """See Target."""
        return Watch(on_gone, self._root)

    def connect(self, path: str, timeout_s: float, /) -> Exchange:
        """See Target."""
        return Exchange(self._path(path), timeout_s)

    def ethtool(self, device: str, request: bytes, /) -> bytes:
        """See Target."""
        return ethtool.ask(os.fsencode(device), request)

    def _path(self, path: str) -> bytes:
        return self._root + os.fsencode(path)

    def _shared_room(self) -> memoryview:
        """Sockets of one thread receive into the same memory."""
        if self._room is None:
            self._room = memoryview(bytearray(RECEIVE_BYTES))
        return self._room


HERE = Here()
