"""What the sources may ask of the host that is measured: this machine, or another one at the end of a line.

All that the sources know of a host, they know from here. So they tell of a far host what they tell of this one.
Paths begin with "/". Every method that reads raises OSError, with the kernel's own error number and words.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from netconsole_collector.primitives.files import MAX_FILE_BYTES, MAX_NAMES, FileStatus
from netconsole_collector.primitives.here import Moment
from netconsole_collector.primitives.netlink import Unasked


class Question(NamedTuple):
    """What will be asked: the name of the target's method, and its arguments."""

    method: str
    arguments: tuple[str | int | bool | bytes, ...]


class NetlinkSocket(Protocol):
    """See :class:`netconsole_collector.primitives.netlink.Netlink`."""

    unasked: Unasked | None

    def dump(self, kind: int, request: bytes, /) -> Iterator[memoryview]:
        """The bodies of the answers; each is valid until the next one."""

    def ask(self, kind: int, request: bytes, /) -> memoryview:
        """The body of the one message that answers, good until the next request."""

    def questions(self, dumps: Iterable[tuple[int, bytes]], /) -> Iterable[Question]:
        """For :meth:`Target.ahead`: it will be asked for these dumps."""

    def listen(self) -> bool:
        """Take notifications. Returns whether there were any. ENOBUFS when some were lost."""

    def close(self) -> None:
        """Close the socket."""


class InsideNamespace(Protocol):
    """See :class:`netconsole_collector.primitives.inside.Inside`."""

    @property
    def netlink(self) -> NetlinkSocket:
        """It hears of links."""

    def devices(self) -> bytes:
        """/proc/net/dev."""

    def questions(self, dumps: Iterable[tuple[int, bytes]], /) -> Iterable[Question]:
        """For :meth:`Target.ahead`: it will be asked for its devices, what it has heard, and these dumps."""

    def close(self) -> None:
        """Release the namespace."""


class JsonSocket(Protocol):
    """See :class:`netconsole_collector.primitives.exchange.Exchange`."""

    @property
    def took_s(self) -> float:
        """How long the last answer took there."""

    def ask(self, request: bytes, timeout_s: float, /) -> bytes:
        """The whole JSON text that answers."""

    def close(self) -> None:
        """Close the connection."""


class NamespaceWatch(Protocol):
    """See :class:`netconsole_collector.primitives.netns_watch.Watch`."""

    def directory(self, path: str, /) -> None:
        """Watch the names in this directory, from when it is there on."""

    def processes(self, pids: Collection[int], /) -> None:
        """Watch these processes, and no others."""

    def close(self) -> None:
        """End it. It may be waiting for who calls this."""

    def join(self) -> None:
        """Wait until all is given back."""


Opened: TypeAlias = "InsideNamespace | OSError"


class Target(Protocol):
    """A host. One thread uses it; :meth:`apart` gives one to another thread."""

    @property
    def is_here(self) -> bool:
        """Whether it is this machine."""

    def begin(self) -> bool:
        """An interval begins. A far host is asked at once for what is asked in every interval.

        Returns whether all that was open there is gone, because the line had been lost. Raises OSError while it is.
        """

    def apart(self) -> Target:
        """The same host, for another thread, which closes it."""

    def close(self) -> None:
        """Close all that is open there. Idempotent."""

    def ahead(self, questions: Iterable[Question]) -> None:
        """These will be asked for now, one after another. A far host is asked for all of them at once."""

    def now(self) -> Moment:
        """When the readings of this interval were made."""

    def cpu_s(self) -> float:
        """CPU time for the readings so far, here and there. Its differences tell what readings cost."""

    def nodename(self) -> tuple[str, str, str]:
        """Name, kernel release and machine, as uname(2) has them."""

    def read(self, path: str, limit: int = MAX_FILE_BYTES, from_end: bool = False, /) -> bytes:
        """The first bytes of a file, or the last: ``limit`` at most."""

    def names(self, path: str, limit: int = MAX_NAMES, /) -> list[str]:
        """The entries of a directory, in no order. What is no UTF-8 is as os.fsdecode has it."""

    def below(self, path: str, without: Mapping[str, Sequence[str]], limit: int, /) -> list[str]:
        """The files below a directory, relative to it. ``without``: of such directories only these entries."""

    def link(self, path: str, /) -> str:
        """The target of a symbolic link."""

    def status(self, path: str, /) -> FileStatus:
        """Of what the path leads to."""

    def exists(self, path: str, /) -> bool:
        """Whether there is such a file or directory. Raises nothing."""

    def inodes(self, name: str, /) -> dict[int, int]:
        """By process id: the inode of a file of each process in /proc, such as ``ns/net``."""

    def netlink(self, protocol: int, /) -> NetlinkSocket:
        """A socket in the own network namespace."""

    def own_namespace(self) -> InsideNamespace:
        """What is open in the own network namespace."""

    def inside(self, namespaces: Sequence[tuple[str, int]], /) -> list[Opened]:
        """The same in these namespaces, given as path and inode, or the error of each."""

    def settings(self, path: str, inode: int, /) -> bytes:
        """How such a namespace is set up (netconsole_collector/primitives/settings.py), as JSON; "": the own one."""

    def watch(self, on_gone: Callable[[], None], /) -> NamespaceWatch | None:
        """Calls ``on_gone`` from another thread when the owner of a namespace is gone. None: the host sees to that."""

    def connect(self, path: str, timeout_s: float, /) -> JsonSocket:
        """A connection to a Unix socket."""

    def ethtool(self, device: str, request: bytes, /) -> bytes:
        """See :func:`netconsole_collector.primitives.ethtool.ask`."""
