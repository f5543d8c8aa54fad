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
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from netconsole.base.errors import HostLost
from netconsole.host.far_answers import BrokenReply, argument, complete, error_of, item_at, messages, text, texts
from netconsole.host.far_open import FarInside, FarJson, FarNetlink
from netconsole.host.question_line import QuestionLine
from netconsole.host.target import Opened, Question
from netconsole_collector.primitives.answers import MAX_ANSWER_BYTES, STATUS
from netconsole_collector.primitives.changes import DamagedAnswer, KeptAnswers, restored
from netconsole_collector.primitives.files import MAX_FILE_BYTES, MAX_NAMES, FileStatus
from netconsole_collector.primitives.here import Moment
from netconsole_collector.primitives.server import FAILED, ITEM

_LASTING = frozenset(("read", "names", "below", "link", "status", "exists", "inodes", "ethtool", "settings"))
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
        wanted = [one for one in dict.fromkeys(map(complete, questions)) if one not in self._fresh]
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
        return texts(self._get("names", path, limit))

    def below(self, path: str, without: Mapping[str, Sequence[str]], limit: int, /) -> list[str]:
        """See Target."""
        skipped = json.dumps({name: list(kept) for name, kept in without.items()})
        return texts(self._get("below", path, skipped, limit))

    def link(self, path: str, /) -> str:
        """See Target."""
        return text(self._get("link", path))

    def status(self, path: str, /) -> FileStatus:
        """See Target."""
        answer = self._get("status", path)
        if len(answer) != STATUS.size:
            raise self.nonsense("status")
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
            raise self.nonsense("inodes") from None

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

    def settings(self, path: str, inode: int, /) -> bytes:
        """See Target."""
        return self._get("settings", path, inode)

    def ethtool(self, device: str, request: bytes, /) -> bytes:
        """See Target."""
        answer = self._get("ethtool", device, request)
        if len(answer) != len(request):
            raise self.nonsense("ethtool")
        return answer

    # ---- for what is open ----

    def ask_open(self, number: int, generation: int, method: str, *arguments: str | int | bytes) -> bytes:
        """Ask something that is open there. Raises OSError: ESTALE when the line was lost since."""
        if generation != self._generation:
            raise OSError(errno.ESTALE, "the connection to the host was lost")
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

    def nonsense(self, what: str) -> HostLost:
        """The error for an answer that makes none."""
        return self._line.lost(f"the host's answer cannot be read ({what})", errno.EBADMSG)

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
            raise OSError(errno.EOPNOTSUPP, "the host's CPUs order bytes in another way than this machine's")

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
            raise self.nonsense(question.method)
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
            asked.append([place, question.method, *map(argument, question.arguments)])
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
                raise OSError(errno.ENOTCONN, "the connection to the host was lost")
            self._moment = heard.moment
            try:
                self._take(heard.body, expected, not questions)
            except BrokenReply as error:
                raise self.nonsense(str(error)) from None
        except OSError:
            # The two ends may not have kept the same answers: what is open there is given up.
            self.close()
            self._generation = _GIVEN_UP
            raise

    def _take(self, body: memoryview, expected: Sequence[tuple[Question, int]], is_again: bool) -> None:
        offset, whole_bytes = 0, 0
        for question, own_place in expected:
            form, place, length, size, took_us = item_at(body, offset)
            if is_again and place != own_place:
                self._put(question, self._kept.last(own_place), 0)  # what is not told has not changed
                continue
            offset += ITEM.size
            told = bytes(body[offset : offset + length])
            offset += length
            if place < 0 or offset > len(body):
                raise BrokenReply("too few answers")
            whole_bytes += size
            result: FarAnswer
            if form == FAILED:
                result = error_of(told)
            elif size > MAX_ANSWER_BYTES or whole_bytes > _MAX_WHOLE_BYTES or place != own_place:
                raise BrokenReply(question.method)
            else:
                try:
                    result = restored(form, told, size, self._kept.last(place))
                except DamagedAnswer as error:
                    raise BrokenReply(str(error)) from None
                self._kept.keep(place, result)
            self._put(question, result, took_us)
        while offset < len(body):  # of what was closed
            _, place, length, _, _ = item_at(body, offset)
            offset += ITEM.size + length
            if place != 0:
                raise BrokenReply("more answers than questions")

    def _put(self, question: Question, result: FarAnswer, took_us: int) -> None:
        self._fresh[question] = result, took_us / 1e6
        if question.method == "read":
            is_absent = isinstance(result, OSError) and result.errno in _ABSENT
            self._fresh_paths[str(question.arguments[0])] = not is_absent

    def _note_lost(self) -> None:
        for question, (result, _) in self._fresh.items():
            if question.method not in _HEARD or isinstance(result, OSError):
                continue
            try:
                is_lost = any(not is_asked for _, is_asked, _ in messages(result))
            except BrokenReply as error:
                raise self.nonsense(str(error)) from None
            if is_lost:
                self._lost.add(int(question.arguments[0]))

    def _reset(self) -> None:
        self._generation = self._line.generation
        self._lane = self._line.new_lane()
        for one in (self._fresh, self._fresh_paths, self._asked, self._asked_before, self._places, self._lost):
            one.clear()
        self._closing, self._forget, self._kept = [], [], KeptAnswers()
        self._moment = None
