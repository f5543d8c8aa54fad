"""This machine, for whoever reads it: every reading is a direct call. Paths begin with "/".

The console's sources know it as a target (netconsole/host/target.py), which may be another machine, too.
"""

import os
import time
from typing import (
    Any,
    Callable,
    Collection,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from netconsole_collector.kernel.clock import mono_ns, wall_ns
from netconsole_collector.primitives import ethtool, files
from netconsole_collector.primitives.exchange import Exchange
from netconsole_collector.primitives.files import MAX_FILE_BYTES, MAX_NAMES, FileStatus
from netconsole_collector.primitives.inside import Inside, make_inside, read_inside, settings_inside
from netconsole_collector.primitives.netlink import RECEIVE_BYTES, Netlink
from netconsole_collector.primitives.netns_watch import Watch

HOST_NETNS, NAMED_NETNS = "/proc/1/ns/net", "/run/netns"
"""As netconsole_collector.names.labels names them."""


class Moment(NamedTuple):
    """A moment by CLOCK_MONOTONIC and CLOCK_REALTIME of this machine, and by CLOCK_MONOTONIC of the host. All in ns.

    The first two are related to the far host's clocks by round trips: they are off by half of the shortest, at most.
    """

    mono_ns: int
    wall_ns: int
    there_ns: int


class Here:
    """``root``: files are looked for below it. Netlink and ethtool are always this machine's."""

    is_here = True

    def __init__(self, root: Any = None) -> None:
        self._root = b"" if root is None else os.fsencode(root)
        self._room: Optional[memoryview] = None
        self._inside_s = 0.0

    def begin(self) -> bool:
        """Nothing to do."""
        return False

    def close(self) -> None:
        """Nothing to do."""

    def apart(self) -> "Here":
        """It keeps nothing that two threads would share."""
        return Here(os.fsdecode(self._root) if self._root else None)

    def ahead(self, questions: Iterable[Any]) -> None:
        """Nothing to do: every reading is quick."""

    def now(self) -> Moment:
        """See Target."""
        now_ns = mono_ns()
        return Moment(now_ns, wall_ns(), now_ns)

    def cpu_s(self) -> float:
        """See Target."""
        return time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID) + self._inside_s

    def nodename(self) -> Tuple[str, str, str]:
        """See Target."""
        name = os.uname()
        return name.nodename, name.release, name.machine

    def read(self, path: str, limit: int = MAX_FILE_BYTES, from_end: bool = False) -> bytes:
        """See Target."""
        return files.read(self._path(path), limit, from_end)

    def names(self, path: str, limit: int = MAX_NAMES) -> List[str]:
        """See Target."""
        return [os.fsdecode(name) for name in files.names(self._path(path), limit)]

    def below(self, path: str, without: Mapping[str, Sequence[str]], limit: int) -> List[str]:
        """See Target."""
        skipped = {os.fsencode(name): tuple(map(os.fsencode, kept)) for name, kept in without.items()}
        return [os.fsdecode(name) for name in files.below(self._path(path), skipped, limit)]

    def link(self, path: str) -> str:
        """See Target."""
        return os.fsdecode(os.readlink(self._path(path)))

    def status(self, path: str) -> FileStatus:
        """See Target."""
        return files.status(self._path(path))

    def exists(self, path: str) -> bool:
        """See Target."""
        return os.path.exists(self._path(path))

    def inodes(self, name: str) -> Dict[int, int]:
        """See Target."""
        return files.inodes(self._path("/proc"), os.fsencode(name))

    def owners(self, sockets: Collection[int]) -> Dict[int, str]:
        """See Target."""
        return files.owners(self._path("/proc"), set(sockets))

    def netlink(self, protocol: int) -> Netlink:
        """See Target."""
        return Netlink(protocol)

    def own_namespace(self) -> Inside:
        """See Target."""
        return Inside(self._shared_room())

    def inside(self, namespaces: Sequence[Tuple[str, int]]) -> List[Any]:
        """See Target."""
        room = self._shared_room()
        paths = [(self._path(path), inode) for path, inode in namespaces]
        return list(make_inside(paths, lambda: Inside(room)))

    def read_each(self, directory: str, names: Iterable[str]) -> Dict[str, bytes]:
        """Files of a directory, without those that are not there. Raises OSError."""
        found = files.read_each(self._path(directory), map(os.fsencode, names), MAX_FILE_BYTES)
        return {os.fsdecode(name): content for name, content in found.items()}

    def read_inside(
        self, namespaces: Sequence[Tuple[str, int]], names: Sequence[str]
    ) -> List[Union[Dict[str, bytes], OSError]]:
        """The same of /proc/net in each of these namespaces, in which no process may be: path and inode."""
        paths = [(self._path(path), inode) for path, inode in namespaces]
        found, spent_s = read_inside(paths, [os.fsencode(name) for name in names], MAX_FILE_BYTES)
        self._inside_s += spent_s
        return [
            one if isinstance(one, OSError) else {os.fsdecode(name): content for name, content in one.items()}
            for one in found
        ]

    def settings(self, path: str, inode: int) -> bytes:
        """See Target."""
        return settings_inside(self._path(path) if path else b"", inode)

    def watch(self, on_gone: Callable[[], None]) -> Watch:
        """See Target."""
        return Watch(on_gone, self._root)

    def connect(self, path: str, timeout_s: float) -> Exchange:
        """See Target."""
        return Exchange(self._path(path), timeout_s)

    def ethtool(self, device: str, request: bytes) -> bytes:
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
