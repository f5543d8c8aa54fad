"""This machine, for whoever reads it: every reading is a direct call. Paths begin with "/".

Every method that reads raises OSError, with the kernel's own error number and words.
"""

import array
import errno
import fcntl
import os
import socket
import struct
import time
from typing import (
    Any,
    Callable,
    Collection,
    Dict,
    Iterable,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from netconsole_collector.primitives import files
from netconsole_collector.primitives.exchange import Exchange
from netconsole_collector.primitives.files import MAX_FILE_BYTES, MAX_NAMES, FileStatus
from netconsole_collector.primitives.inside import Inside, make_inside, read_inside, settings_inside
from netconsole_collector.primitives.netlink import RECEIVE_BYTES, Netlink
from netconsole_collector.primitives.netns_watch import Watch

HOST_NETNS, NAMED_NETNS = "/proc/1/ns/net", "/run/netns"
"""As netconsole_collector.names.labels names them."""


class Here:
    """``root``: files are looked for below it. Netlink and ethtool are always this machine's."""

    def __init__(self, root: Any = None) -> None:
        self._root = b"" if root is None else os.fsencode(root)
        self._room: Optional[memoryview] = None
        self._inside_s = 0.0

    def cpu_s(self) -> float:
        """CPU time of this thread for the readings so far. Its differences tell what readings cost."""
        return time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID) + self._inside_s

    def read(self, path: str, limit: int = MAX_FILE_BYTES, from_end: bool = False) -> bytes:
        """The first bytes of a file, or the last: ``limit`` at most."""
        return files.read(self._path(path), limit, from_end)

    def names(self, path: str, limit: int = MAX_NAMES) -> List[str]:
        """The entries of a directory, in no order. What is no UTF-8 is as os.fsdecode has it."""
        return [os.fsdecode(name) for name in files.names(self._path(path), limit)]

    def below(self, path: str, without: Mapping[str, Sequence[str]], limit: int) -> List[str]:
        """The files below a directory, relative to it. ``without``: of such directories only these entries."""
        skipped = {os.fsencode(name): tuple(map(os.fsencode, kept)) for name, kept in without.items()}
        return [os.fsdecode(name) for name in files.below(self._path(path), skipped, limit)]

    def link(self, path: str) -> str:
        """The target of a symbolic link."""
        return os.fsdecode(os.readlink(self._path(path)))

    def status(self, path: str) -> FileStatus:
        """Of what the path leads to."""
        return files.status(self._path(path))

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory. Raises nothing."""
        return os.path.exists(self._path(path))

    def inodes(self, name: str) -> Dict[int, int]:
        """By process id: the inode of a file of each process in /proc, such as ``ns/net``."""
        return files.inodes(self._path("/proc"), os.fsencode(name))

    def owners(self, sockets: Collection[int]) -> Dict[int, str]:
        """Command and process id of the owners of these sockets, by inode."""
        return files.owners(self._path("/proc"), set(sockets))

    def netlink(self, protocol: int) -> Netlink:
        """A socket in the own network namespace."""
        return Netlink(protocol)

    def own_namespace(self) -> Inside:
        """What is open in the own network namespace."""
        return Inside(self._shared_room())

    def inside(self, namespaces: Sequence[Tuple[str, int]]) -> List[Any]:
        """The same in these namespaces, given as path and inode, or the error of each."""
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

    def each_inside(self, namespaces: Sequence[Tuple[str, int]], make: Callable[[], Any]) -> List[Any]:
        """What ``make`` returns in each of these namespaces, given as path and inode, or the error of each."""

        spent_s = 0.0

        def made() -> Any:
            nonlocal spent_s
            try:
                return make()
            finally:
                spent_s = time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)  # the thread did nothing before

        found = list(make_inside([(self._path(path) if path else b"", inode) for path, inode in namespaces], made))
        self._inside_s += spent_s
        return found

    def settings(self, path: str, inode: int) -> Dict[str, Any]:
        """How such a namespace is set up (settings.py); "": the own one."""
        return settings_inside(self._path(path) if path else b"", inode)

    def watch(self, on_gone: Callable[[], None]) -> Watch:
        """Calls ``on_gone`` from another thread when the owner of a namespace is gone."""
        return Watch(on_gone, self._root)

    def connect(self, path: str, timeout_s: float) -> Exchange:
        """A connection to a Unix socket."""
        return Exchange(self._path(path), timeout_s)

    def ethtool(self, device: str, request: bytes) -> bytes:
        """What the driver answers: see :func:`ask`."""
        return ask(os.fsencode(device), request)

    def _path(self, path: str) -> bytes:
        return self._root + os.fsencode(path)

    def _shared_room(self) -> memoryview:
        """Sockets of one thread receive into the same memory."""
        if self._room is None:
            self._room = memoryview(bytearray(RECEIVE_BYTES))
        return self._room


HERE = Here()


SIOCETHTOOL = 0x8946
GETTERS = frozenset((0x03, 0x0E, 0x10, 0x1B, 0x1D, 0x37, 0x38, 0x3A, 0x3C, 0x4C))
"""GDRVINFO, GCOALESCE, GRINGPARAM, GSTRINGS, GSTATS, GSSET_INFO, GRXFHINDIR, GFEATURES, GCHANNELS, GLINKSETTINGS."""
MAX_BYTES = 256 * 1024
"""The names of 8000 counters."""
_MIN_BUFFER = 64 * 1024
_IFREQ = struct.Struct("16sP16x")
_COMMAND = struct.Struct("=I")


def ask(device: bytes, request: bytes) -> bytes:
    """The structure that begins with one of GETTERS, as the kernel has filled it in. Raises OSError."""
    if len(request) < _COMMAND.size or len(request) > MAX_BYTES or _COMMAND.unpack_from(request)[0] not in GETTERS:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))
    # The kernel decides how much it writes: some structures end with a list, which may have grown since it was counted.
    buffer = array.array("B", request.ljust(max(_MIN_BUFFER, 2 * len(request)), b"\0"))
    address, _ = buffer.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as asked:
        fcntl.ioctl(asked, SIOCETHTOOL, _IFREQ.pack(device[:15], address))
    return buffer.tobytes()[: len(request)]


def text_of(host: Here, path: str) -> str:
    """A file; empty where it is not there (any more), or may not be read."""
    try:
        return host.read(path).decode("utf-8", "backslashreplace")
    except OSError:
        return ""
