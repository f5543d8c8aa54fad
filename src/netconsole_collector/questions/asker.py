"""Answers questions in threads of their own: one that hangs delays no interval, and does not keep the process alive."""

import json
import threading
from collections import deque
from typing import Deque, Dict, List, Optional, Tuple

from netconsole_collector.kernel import heap
from netconsole_collector.kernel.clock import mono_ns
from netconsole_collector.kernel.process import WakePipe
from netconsole_collector.questions.known import BadQuestion, Json, answer, limit_s, sentence

MAX_ANSWER_BYTES = 3 << 20
"""A longer document is refused: until a line has left the collector, it sends nothing else."""
MAX_OPEN = 8
"""Questions at a time. One that hangs stays among them until it ends."""
MAX_WHY = 1000


class Asker:
    """Of one collector, in whose thread all methods are called. ``fd`` is readable when there is something to take."""

    def __init__(self) -> None:
        self._pipe = WakePipe()
        self.fd = self._pipe.fd
        self._told: Deque[Tuple[int, bytes]] = deque()
        self._due: Dict[int, Tuple[int, str]] = {}
        """By number of a question that waits: when its time is over, and what is said then."""
        self._refused: List[bytes] = []
        self._threads = 0
        self._lock = threading.Lock()

    def ask(self, number: int, name: object, arguments: object) -> None:
        """Answers it later, whatever it is."""
        try:
            seconds = limit_s(str(name))
            if not isinstance(arguments, dict):
                raise BadQuestion("arguments: expected an object")
            if number in self._due:
                raise BadQuestion("a question with this id waits already")
            if self._threads >= MAX_OPEN:
                raise BadQuestion("{} questions have no answer yet".format(MAX_OPEN))
        except BadQuestion as error:
            self._refused.append(line(number, None, str(error)))
            self._pipe.wake()
            return
        self._due[number] = mono_ns() + int(seconds * 1e9), "{}: no answer within {:g} s".format(name, seconds)
        with self._lock:
            self._threads += 1
        threading.Thread(target=self._answer, args=(number, name, arguments), name="question", daemon=True).start()

    def deadline_ns(self) -> Optional[int]:
        """When the time of the next question is over."""
        return min((at for at, _ in self._due.values()), default=None)

    def answers(self, now_ns: int) -> List[bytes]:
        """The lines to send now: each question has one, and what comes after that is dropped."""
        self._pipe.drain()
        lines, self._refused = self._refused, []
        while self._told:
            number, told = self._told.popleft()
            if self._due.pop(number, None) is not None:
                lines.append(told)
        for number in [number for number, (at, _) in self._due.items() if at <= now_ns]:
            lines.append(line(number, None, self._due.pop(number)[1]))
        return lines

    def _answer(self, number: int, name: str, arguments: Json) -> None:
        try:
            told = line(number, answer(name, arguments), None)
            if len(told) > MAX_ANSWER_BYTES:
                told = line(number, None, "{}: an answer of more than {} MB".format(name, MAX_ANSWER_BYTES >> 20))
        except Exception as error:  # also what nobody has thought of: the collector goes on
            told = line(number, None, sentence(error))
        with self._lock:
            self._threads -= 1
        self._told.append((number, told))
        self._pipe.wake()
        heap.trim()  # facts take some MB for a moment


def line(number: int, document: object, error: Optional[str]) -> bytes:
    """The line that answers. It is no frame: nothing of it belongs to a recording."""
    told = {"answer": number, "document": document, "error": None if error is None else error[:MAX_WHY]}
    return json.dumps(told, separators=(",", ":")).encode("ascii") + b"\n"
