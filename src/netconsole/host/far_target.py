"""A far host as a target: what is asked there in every interval is asked in one line, before anybody asks for it.

A question that was asked in two intervals in a row has a place there. From then on it is asked by its number, and only
what has changed in its answer comes back. See :class:`netconsole.host.target.Target`.
"""

from __future__ import annotations

import errno
import itertools
import json
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from netconsole.host.question_line import QuestionLine
from netconsole.host.target import MAX_FILE_BYTES, MAX_NAMES, Moment, Opened, Question
from netconsole_collector.primitives.answers import MAX_ANSWER_BYTES, MESSAGE, STATUS, TOOK
from netconsole_collector.primitives.changes import DamagedAnswer, KeptAnswers, restored
from netconsole_collector.primitives.files import FileStatus
from netconsole_collector.primitives.netlink import Unasked
from netconsole_collector.primitives.server import FAILED, ITEM

_LASTING = frozenset(("read", "names", "below", "link", "status", "exists", "inodes", "ethtool"))
"""Answers that are good for the whole interval. The others are good once."""
_HEARD = frozenset(("listen", "dump", "ask"))
_MAX_AT_ONCE = 4096
_MAX_WHOLE_BYTES = 64 << 20
"""Of all answers to one line, unpacked."""
_GIVEN_UP = -1
_ABSENT = (errno.ENOENT, errno.ENOTDIR)

FarAnswer: TypeAlias = "bytes | OSError"


class FarTarget:
    """See the module."""

    is_here = False

    def __init__(self, line: QuestionLine) -> None:
        self._line = line
        self._lane = line.new_lane()
        self._generation = 0
        self._numbers = itertools.count(1)
        self._closing: list[int] = []
        self._moment: Moment | None = None
        self._far_s = 0.0
        self._fresh: dict[Question, tuple[FarAnswer, float]] = {}
        """Answers that nobody has asked for yet, and those that may be asked for again, with their CPU time."""
        self._fresh_paths: dict[str, bool] = {}
        """Whether these files exist, from the attempts to read them in this interval."""
        self._asked: dict[Question, None] = {}
        """What was asked for in this interval; and in the last one."""
        self._asked_before: dict[Question, None] = {}
        self._places: dict[Question, int] = {}
        self._forget: list[int] = []
        self._kept = KeptAnswers()
        self._lost: set[int] = set()
        """Sockets of which something was heard that nobody has taken."""

    # ---- the line ----

    def begin(self) -> bool:
        """See Target."""
        generation = self._generation
        self._line.open()
        is_new = self._line.generation != self._generation
        if is_new:
            self._reset()
        self._note_lost()
        for question in [one for one in self._places if one not in self._asked]:
            place = self._places.pop(question)
            self._forget.append(place)
            self._kept.forget(place)
        self._asked_before, self._asked = self._asked, {}
        self._fresh.clear()
        self._fresh_paths.clear()
        self._ask([])
        return is_new and generation != 0

    def apart(self) -> FarTarget:
        """See Target."""
        return FarTarget(self._line)

    def close(self) -> None:
        """See Target."""
        self._line.tell({"lane": self._lane, "end": True})

    def ahead(self, questions: Iterable[Question]) -> None:
        """See Target."""
        wanted = [one for one in dict.fromkeys(map(_complete, questions)) if one not in self._fresh]
        for start in range(0, len(wanted), _MAX_AT_ONCE):
            try:
                self._ask(wanted[start : start + _MAX_AT_ONCE])
            except OSError:
                return  # who asks for one of them will hear why

    def now(self) -> Moment:
        """See Target."""
        if self._moment is None:
            self._ask([])
        assert self._moment is not None
        return self._moment

    def cpu_s(self) -> float:
        """See Target."""
        return time.thread_time() + self._far_s

    # ---- what Target says ----

    def nodename(self) -> tuple[str, str, str]:
        """See Target."""
        hello = self._line.open()
        return hello.nodename, hello.release, hello.machine

    def read(self, path: str, limit: int = MAX_FILE_BYTES, from_end: bool = False, /) -> bytes:
        """See Target."""
        return self._get("read", path, limit, from_end)

    def names(self, path: str, limit: int = MAX_NAMES, /) -> list[str]:
        """See Target."""
        return _texts(self._get("names", path, limit))

    def below(self, path: str, without: Mapping[str, Sequence[str]], limit: int, /) -> list[str]:
        """See Target."""
        skipped = json.dumps({name: list(kept) for name, kept in without.items()})
        return _texts(self._get("below", path, skipped, limit))

    def link(self, path: str, /) -> str:
        """See Target."""
        return _text(self._get("link", path))

    def status(self, path: str, /) -> FileStatus:
        """See Target."""
        answer = self._get("status", path)
        if len(answer) != STATUS.size:
            raise _nonsense("status")
        return FileStatus(*STATUS.unpack(answer))

    def exists(self, path: str, /) -> bool:
        """See Target."""
        known = self._fresh_paths.get(path)
        if known is not None:
            return known
        try:
            return self._get("exists", path) == b"1"
        except OSError:
            return False

    def inodes(self, name: str, /) -> dict[int, int]:
        """See Target."""
        pairs = (line.split() for line in self._get("inodes", name).splitlines())
        try:
            return {int(pid): int(inode) for pid, inode in pairs}
        except ValueError:
            raise _nonsense("inodes") from None

    def owners(self, sockets: Collection[int], /) -> dict[int, str]:
        """See Target."""
        answer = self._get("owners", json.dumps(sorted(sockets)))
        try:
            found = json.loads(answer)
            return {int(inode): str(owner) for inode, owner in found.items()}
        except (ValueError, AttributeError, RecursionError):
            raise _nonsense("owners") from None

    def netlink(self, protocol: int, /) -> FarNetlink:
        """See Target."""
        return FarNetlink(self, self._opened("netlink", protocol))

    def own_namespace(self) -> FarInside:
        """See Target."""
        return FarInside(self, self._opened("inside", "", 0))

    def inside(self, namespaces: Sequence[tuple[str, int]], /) -> list[Opened]:
        """See Target."""
        self._check_byte_order()
        questions = [Question("inside", (next(self._numbers), path, inode)) for path, inode in namespaces]
        self.ahead(questions)
        opened: list[Opened] = []
        for question in questions:
            try:
                self._result(question)
                opened.append(FarInside(self, int(question.arguments[0])))
            except OSError as error:
                opened.append(error)
        return opened

    def watch(self, on_gone: Callable[[], None], /) -> None:
        """The program there closes by itself what is open in a namespace that has no owner any more."""

    def connect(self, path: str, timeout_s: float, /) -> FarJson:
        """See Target."""
        number = next(self._numbers)
        self._get("connect", number, path, round(timeout_s * 1000))
        return FarJson(self, number)

    def ethtool(self, device: str, request: bytes, /) -> bytes:
        """See Target."""
        answer = self._get("ethtool", device, request)
        if len(answer) != len(request):
            raise _nonsense("ethtool")
        return answer

    # ---- for what is open ----

    def ask_open(self, number: int, generation: int, method: str, *arguments: str | int | bytes) -> bytes:
        """Ask something that is open there. Raises OSError: ESTALE when the line was lost since."""
        if generation != self._generation:
            raise OSError(errno.ESTALE, "the line was lost")
        return self._get(method, number, *arguments)

    def take_lost(self, number: int) -> bool:
        """Whether something was heard by this socket that nobody has taken; once."""
        try:
            self._lost.remove(number)
        except KeyError:
            return False
        return True

    def close_open(self, number: int, generation: int) -> None:
        """Close something with the next line."""
        if generation == self._generation:
            self._closing.append(number)

    @property
    def generation(self) -> int:
        """See :class:`QuestionLine`."""
        return self._generation

    def _opened(self, method: str, *arguments: str | int) -> int:
        self._check_byte_order()
        number = next(self._numbers)
        self._get(method, number, *arguments)
        return number

    def _check_byte_order(self) -> None:
        if self._line.open().byteorder != sys.byteorder:
            raise OSError(errno.EOPNOTSUPP, "the far host's processors order bytes in another way than ours")

    # ---- asking ----

    def _get(self, method: str, *arguments: str | int | bool | bytes) -> bytes:
        return self._result(Question(method, arguments))

    def _result(self, question: Question) -> bytes:
        self._asked[question] = None
        if question not in self._fresh:
            self._ask([question])
        lasts = question.method in _LASTING
        found = self._fresh.get(question) if lasts else self._fresh.pop(question, None)
        if found is None:
            raise _nonsense(question.method)
        result, far_s = found
        self._far_s += far_s
        if lasts:
            self._fresh[question] = result, 0.0
        if isinstance(result, OSError):
            raise OSError(result.errno, result.strerror)
        return result

    def _ask(self, questions: Sequence[Question]) -> None:
        """Ask these, and with an empty list all that have a place."""
        self._line.open()
        if self._line.generation != self._generation:
            self._reset()
        line: dict[str, object] = {"lane": self._lane}
        expected: list[tuple[Question, int]] = []
        if not questions:
            expected = list(self._places.items())
            line["again"] = True
        asked: list[list[object]] = []
        for question in questions:
            place = 0
            if question in self._asked_before and question not in self._places:
                place = self._places[question] = next(self._numbers)
            asked.append([place, question.method, *map(_argument, question.arguments)])
            expected.append((question, place))
        asked += ([0, "close", number] for number in self._closing)
        if asked:
            line["ask"] = asked
        if self._forget:
            line["forget"] = self._forget
        generation = self._line.generation
        self._closing, self._forget = [], []
        try:
            heard = self._line.exchange(line)
            if self._line.generation != generation:
                raise OSError(errno.ENOTCONN, "the line was lost")
            self._moment = heard.moment
            self._take(heard.body, expected, not questions)
        except OSError:
            # The two ends may not have kept the same answers: what is open there is given up.
            self.close()
            self._generation = _GIVEN_UP
            raise

    def _take(self, body: memoryview, expected: Sequence[tuple[Question, int]], is_again: bool) -> None:
        offset, whole_bytes = 0, 0
        for question, own_place in expected:
            form, place, length, size, took_us = _item(body, offset)
            if is_again and place != own_place:
                self._put(question, self._kept.last(own_place), 0)  # what is not told has not changed
                continue
            offset += ITEM.size
            told = bytes(body[offset : offset + length])
            offset += length
            if place < 0 or offset > len(body):
                raise _nonsense("too few answers")
            whole_bytes += size
            result: FarAnswer
            if form == FAILED:
                result = _error(told)
            elif size > MAX_ANSWER_BYTES or whole_bytes > _MAX_WHOLE_BYTES or place != own_place:
                raise _nonsense(question.method)
            else:
                try:
                    result = restored(form, told, size, self._kept.last(place))
                except DamagedAnswer as error:
                    raise _nonsense(str(error)) from None
                self._kept.keep(place, result)
            self._put(question, result, took_us)
        while offset < len(body):  # of what was closed
            _, place, length, _, _ = _item(body, offset)
            offset += ITEM.size + length
            if place != 0:
                raise _nonsense("more answers than questions")

    def _put(self, question: Question, result: FarAnswer, took_us: int) -> None:
        self._fresh[question] = result, took_us / 1e6
        if question.method == "read":
            is_absent = isinstance(result, OSError) and result.errno in _ABSENT
            self._fresh_paths[str(question.arguments[0])] = not is_absent

    def _note_lost(self) -> None:
        for question, (result, _) in self._fresh.items():
            if question.method not in _HEARD or isinstance(result, OSError):
                continue
            if any(not is_asked for _, is_asked, _ in _messages(result)):
                self._lost.add(int(question.arguments[0]))

    def _reset(self) -> None:
        self._generation = self._line.generation
        self._lane = self._line.new_lane()
        for one in (self._fresh, self._fresh_paths, self._asked, self._asked_before, self._places, self._lost):
            one.clear()
        self._closing, self._forget, self._kept = [], [], KeptAnswers()
        self._moment = None


class FarNetlink:
    """A netlink socket on the far host. See :class:`netconsole_collector.primitives.netlink.Netlink`."""

    def __init__(self, target: FarTarget, number: int) -> None:
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
        raise _nonsense("no answer")

    def questions(self, dumps: Iterable[tuple[int, bytes]], /) -> Iterable[Question]:
        """See NetlinkSocket."""
        for kind, request in dumps:
            yield Question("dump", (self._number, kind, request))

    def listen(self) -> bool:
        """See NetlinkSocket."""
        if self._target.take_lost(self._number):
            raise OSError(errno.ENOBUFS, "something was heard that nobody has taken")
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
        for kind, is_asked, body in _messages(answer):
            if is_asked:
                asked.append(body)
            elif self.unasked is not None:
                self.unasked(kind, body)
        return asked


class FarInside:
    """What is open in a network namespace of the far host."""

    def __init__(self, target: FarTarget, number: int) -> None:
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

    def __init__(self, target: FarTarget, number: int) -> None:
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
            raise _nonsense("exchange")
        self.took_s = TOOK.unpack_from(answer)[0] / 1e5
        return answer[TOOK.size :]

    def close(self) -> None:
        """See JsonSocket."""
        self._target.close_open(self._number, self._generation)


def _messages(answer: bytes) -> Iterator[tuple[int, int, memoryview]]:
    """Kind, whether it was asked for, and body of the netlink messages of an answer."""
    view, offset = memoryview(answer), 0
    while offset + MESSAGE.size <= len(view):
        kind, is_asked, length = MESSAGE.unpack_from(view, offset)
        offset += MESSAGE.size
        if offset + length > len(view):
            raise _nonsense("netlink")
        yield kind, is_asked, view[offset : offset + length]
        offset += length


def _item(body: memoryview, offset: int) -> tuple[int, int, int, int, int]:
    """Form, place, length, size and µs of the next answer; place -1 at the end."""
    if offset + ITEM.size > len(body):
        return FAILED, -1, 0, 0, 0
    form, place, length, size, took_us = ITEM.unpack_from(body, offset)
    return form, place, length, size, took_us


def _complete(question: Question) -> Question:
    """With the arguments that its method adds: the same question, however it was written."""
    if question.method == "read" and len(question.arguments) < 3:
        path, limit = (*question.arguments, MAX_FILE_BYTES)[:2]
        return Question("read", (path, limit, False))
    return question


def _argument(value: object) -> Any:
    """Bytes as hexadecimal, without the zeros at their end, and their length."""
    if not isinstance(value, bytes):
        return value
    begin = value.rstrip(b"\0").hex()
    return f"{begin}+{len(value)}"


def _error(told: bytes) -> OSError:
    number, _, words = told.decode("utf-8", "replace").partition(" ")
    if not (number.isascii() and number.isdecimal()):
        return _nonsense("an error")
    return OSError(int(number[:4]), words)


def _texts(answer: bytes) -> list[str]:
    return [_text(one) for one in answer.split(b"\0")] if answer else []


def _text(answer: bytes) -> str:
    return answer.decode("utf-8", "surrogateescape")


def _nonsense(what: str) -> OSError:
    return OSError(errno.EBADMSG, f"what the far host answers makes no sense ({what})")
