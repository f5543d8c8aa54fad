"""Asks a host why something happens, once for each incident, in threads of their own."""

from __future__ import annotations

import errno
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from netconsole.far.host import AnyHost
from netconsole.host import door
from netconsole.host.collector_process import Unanswered
from netconsole.telemetry.frames import Scalar
from netconsole.telemetry.request import WENT_ON, HostQuestion
from netconsole.telemetry.session import News
from netconsole.telemetry.state import State

MAX_A_MINUTE = 120
"""Questions. Some incidents of a worse minute have their general words for longer."""
MAX_THREADS = 4
_INTERVAL_S = 3.0
"""How long the next interval may take to come."""
_AGAIN_AFTER_S = 3.0
"""A host that does not answer in time has much to do. It is asked once more."""
REMAINS, COUNTED_PER_S = "remains", "counted_per_s"
"""In an answer: what it names is what is left over. That holds if more was lost meanwhile, which is added; and of what
has counted itself, if it was not much more than that."""
_MUCH_MORE = 2.0
"""So many times as much, seen in intervals that are not the same."""


class Told(Protocol):
    """The session that asks."""

    def view(self) -> AbstractContextManager[State]: ...

    def on_news(self, callback: Callable[[News], None]) -> None: ...

    def say_answer(
        self, question: HostQuestion, document: Mapping[str, Scalar | None], error: str | None = None
    ) -> None:
        """Takes what the host answered, or why it did not."""


class CauseAsker:
    """Of one session. Its methods return at once, and may be called in any thread."""

    def __init__(self, session: Told, host: AnyHost) -> None:
        self._session, self._host = session, host
        self._waiting: queue.SimpleQueue[HostQuestion | None] = queue.SimpleQueue()
        self._known: set[tuple[object, ...]] = set()
        self._times: deque[float] = deque(maxlen=MAX_A_MINUTE)
        self._interval = threading.Event()
        self._threads: list[threading.Thread] = []
        session.on_news(self._note)

    def ask(self, questions: Iterable[HostQuestion]) -> None:
        """Those that were not asked before."""
        for one in questions:
            name = (one.incident, one.probe, one.table, one.key, one.name)
            if name in self._known or not self._may_ask():
                continue
            self._known.add(name)
            self._times.append(time.monotonic())
            if len(self._threads) < MAX_THREADS:
                self._threads.append(threading.Thread(target=self._run, name="causes", daemon=True))
                self._threads[-1].start()
            self._waiting.put(one)

    def close(self) -> None:
        """Ask nothing more."""
        for _ in self._threads:
            self._waiting.put(None)

    def _may_ask(self) -> bool:
        return len(self._times) < MAX_A_MINUTE or time.monotonic() - self._times[0] > 60

    def _note(self, news: News) -> None:
        if news == "interval":
            self._interval.set()

    def _run(self) -> None:
        while (one := self._waiting.get()) is not None:
            before = self._counted(one)
            try:
                document = self._answer(one)
            except Unanswered as error:
                self._session.say_answer(one, {}, error.strerror or str(error))
                continue
            if document.get(REMAINS):
                self._interval.clear()
                self._interval.wait(_INTERVAL_S)
                document = {**document, WENT_ON: self._counted(one) > before and self._is_enough(one, document)}
            self._session.say_answer(one, document)

    def _answer(self, one: HostQuestion) -> Mapping[str, Scalar | None]:
        """Raises Unanswered."""
        kind = dict[str, str | int | float | bool | None]
        try:
            return door.ask(self._host, one.name, one.arguments, kind)
        except Unanswered as error:
            if error.errno != errno.ETIMEDOUT:
                raise
        time.sleep(_AGAIN_AFTER_S)
        return door.ask(self._host, one.name, one.arguments, kind)

    def _is_enough(self, one: HostQuestion, document: Mapping[str, Scalar | None]) -> bool:
        """Whether what the answer names has itself counted about as much as is lost, if it counts at all."""
        counted_per_s = document.get(COUNTED_PER_S)
        if not isinstance(counted_per_s, (int, float)) or not counted_per_s:
            return True
        with self._session.view() as state:
            row = state.row(one.probe, one.table, one.key)
            lost_per_s = sum(count.per_s or 0.0 for count in row.counts.values()) if row is not None else 0.0
        return lost_per_s <= _MUCH_MORE * counted_per_s

    def _counted(self, one: HostQuestion) -> int:
        with self._session.view() as state:
            row = state.row(one.probe, one.table, one.key)
            return sum(count.total for count in row.counts.values()) if row is not None else 0
