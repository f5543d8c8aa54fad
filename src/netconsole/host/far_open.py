"""What is open on a far host: netlink sockets, network namespaces, Unix sockets. It is closed with the next line."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from typing import Protocol

from netconsole.base.errors import HostLost
from netconsole.host.far_answers import BrokenReply, messages
from netconsole.host.target import Question
from netconsole_collector.primitives.answers import TOOK
from netconsole_collector.primitives.netlink import Unasked


class FarAsker(Protocol):
    """What asks there: :class:`netconsole.host.far_target.FarTarget`."""

    @property
    def generation(self) -> int:
        """What is open there belongs to one."""

    def ask_open(self, number: int, generation: int, method: str, *arguments: str | int | bytes) -> bytes:
        """Ask something that is open there. Raises OSError: ESTALE when the line was lost since."""

    def take_lost(self, number: int) -> bool:
        """Whether something was heard by this socket that nobody has taken; once."""

    def close_open(self, number: int, generation: int) -> None:
        """Close something with the next line."""

    def nonsense(self, what: str) -> HostLost:
        """The error for an answer that makes none."""


class FarNetlink:
    """A netlink socket on the far host. See :class:`netconsole_collector.primitives.netlink.Netlink`."""

    def __init__(self, target: FarAsker, number: int) -> None:
        self.unasked: Unasked | None = None
        self._target = target
        self._number = number
        self._generation = target.generation

    def dump(self, kind: int, request: bytes, /) -> Iterator[memoryview]:
        """See NetlinkSocket."""
        return iter(self._answers("dump", kind, request))

    def ask(self, kind: int, request: bytes, /) -> memoryview:
        """See NetlinkSocket."""
        for body in self._answers("ask", kind, request):
            return body
        raise self._target.nonsense("no answer")

    def questions(self, dumps: Iterable[tuple[int, bytes]], /) -> Iterable[Question]:
        """See NetlinkSocket."""
        for kind, request in dumps:
            yield Question("dump", (self._number, kind, request))

    def listen(self) -> bool:
        """See NetlinkSocket."""
        if self._target.take_lost(self._number):
            raise OSError(errno.ENOBUFS, "a message came that nobody read")
        answer = self._target.ask_open(self._number, self._generation, "listen")
        self._tell(answer)
        return bool(answer)

    def close(self) -> None:
        """See NetlinkSocket."""
        self._target.close_open(self._number, self._generation)

    def _answers(self, method: str, kind: int, request: bytes) -> list[memoryview]:
        return self._tell(self._target.ask_open(self._number, self._generation, method, kind, request))

    def _tell(self, answer: bytes) -> list[memoryview]:
        """Tell what nobody has asked for, in the order in which it came; return the rest."""
        asked = []
        try:
            for kind, is_asked, body in messages(answer):
                if is_asked:
                    asked.append(body)
                elif self.unasked is not None:
                    self.unasked(kind, body)
        except BrokenReply as error:
            raise self._target.nonsense(str(error)) from None
        return asked


class FarInside:
    """What is open in a network namespace of the far host."""

    def __init__(self, target: FarAsker, number: int) -> None:
        self.netlink = FarNetlink(target, number)
        self._target = target
        self._number = number
        self._generation = target.generation

    def devices(self) -> bytes:
        """See InsideNamespace."""
        return self._target.ask_open(self._number, self._generation, "devices")

    def questions(self, dumps: Iterable[tuple[int, bytes]], /) -> Iterable[Question]:
        """See InsideNamespace."""
        yield Question("listen", (self._number,))
        yield Question("devices", (self._number,))
        yield from self.netlink.questions(dumps)

    def close(self) -> None:
        """See InsideNamespace."""
        self._target.close_open(self._number, self._generation)


class FarJson:
    """A Unix socket of the far host."""

    def __init__(self, target: FarAsker, number: int) -> None:
        self.took_s = 0.0
        self._target = target
        self._number = number
        self._generation = target.generation

    def ask(self, request: bytes, timeout_s: float, /) -> bytes:
        """See JsonSocket."""
        try:
            text, limit_ms = request.decode("utf-8"), round(timeout_s * 1000)
            answer = self._target.ask_open(self._number, self._generation, "exchange", text, limit_ms)
        except OSError as error:
            if error.errno == errno.ETIMEDOUT:
                raise TimeoutError(error.errno, error.strerror) from None
            raise
        if len(answer) < TOOK.size:
            raise self._target.nonsense("exchange")
        self.took_s = TOOK.unpack_from(answer)[0] / 1e5
        return answer[TOOK.size :]

    def close(self) -> None:
        """See JsonSocket."""
        self._target.close_open(self._number, self._generation)
