"""How far the reader of the screen is behind, so that nothing is drawn that waits and no figure looks too fresh.

A terminal that answers a cursor position report (they all do) has seen what was sent before the question: that is
exact, over SSH too. Until it has answered, and for one that never does, a model takes its place: what the terminal's
buffer holds, and how fast it was emptied when it was full.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

QUESTION = "\x1b[6n"
GIVE_UP_S = 3.0
"""An answer that has not come by then will not (a detached session, a lost line)."""
REMEMBERED = 8
"""Pictures are of different size, and so is the time that they take."""
GIVE_UP_TIMES = 3
"""So many answers in a row that did not come, and none is asked for any more."""
TERMINAL_BUFFER_BYTES = 8192 + 4096
"""What a pseudo terminal holds between us and its reader: drivers/tty/pty.c and n_tty.c, N_TTY_BUF_SIZE."""
_SMALL_BYTES = 256


class FlowControl:
    """What is under way to the reader. Used by the event loop, the writer's thread and the input's thread."""

    def __init__(self, asks: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._asks = asks
        self._clock = clock
        self._lock = threading.Lock()
        self._answered = threading.Event()
        self._answered.set()
        self._asked_s: float | None = None
        self._round_trips: deque[float] = deque(maxlen=REMEMBERED)
        self._unanswered = 0
        self._bytes_per_s: float | None = None
        self._under_way = 0.0
        self._under_way_at_s = clock()

    def question(self) -> str:
        """To be sent behind a frame; empty while an answer is due, or none is to be expected."""
        with self._lock:
            if not self._asks or self._asked_s is not None:
                return ""
            self._asked_s = self._clock()
            self._answered.clear()
            return QUESTION

    def answer(self) -> None:
        """The terminal answered: it has seen everything that was sent before the question."""
        with self._lock:
            if self._asked_s is not None:
                self._round_trips.append(self._clock() - self._asked_s)
            self._asked_s = None
            self._unanswered = 0
            self._under_way = 0.0
            self._answered.set()

    def stop_asking(self, wait_s: float) -> None:
        """The last answer must not be left for the shell to read: wait for it, if one is due."""
        self._asks = False
        self._answered.wait(wait_s)

    def wrote(self, taken: int, waited_s: float, taken_waiting: int) -> None:
        """``taken`` bytes were written; for the last ``taken_waiting`` of them there was no room for ``waited_s``."""
        with self._lock:
            before = self._model()
            if waited_s > 0 and taken_waiting > 0:
                self._bytes_per_s = taken_waiting / waited_s
                self._under_way = float(TERMINAL_BUFFER_BYTES)
                return
            self._under_way = before + taken
            if self._bytes_per_s is not None and self._under_way > TERMINAL_BUFFER_BYTES:
                # By the model there was no room, and yet there was: the reader has become faster.
                self._bytes_per_s *= 2
                self._under_way /= 2

    def busy(self) -> bool:
        """Whether the reader has not seen yet what was sent last."""
        with self._lock:
            if self._asked_s is not None and self._clock() - self._asked_s > GIVE_UP_S:
                self._asked_s = None
                self._answered.set()
                self._unanswered += 1
                self._asks = self._asks and self._unanswered < GIVE_UP_TIMES
            if self._round_trips and self._asks:
                return self._asked_s is not None
            return self._model() > _SMALL_BYTES

    def delay_s(self) -> float:
        """How long it takes until what is sent now is seen, at most: as long as the longest of the last pictures."""
        with self._lock:
            due_s = 0.0 if self._asked_s is None else self._clock() - self._asked_s
            if self._round_trips and self._asks:
                return max(*self._round_trips, due_s)
            return 0.0 if not self._bytes_per_s else (self._model() + TERMINAL_BUFFER_BYTES) / self._bytes_per_s

    def _model(self) -> float:
        """Bytes that the buffer still holds, if it was emptied as fast as it was when it was full."""
        now_s = self._clock()
        if self._bytes_per_s is None:
            self._under_way = 0.0
        else:
            self._under_way = max(0.0, self._under_way - (now_s - self._under_way_at_s) * self._bytes_per_s)
        self._under_way_at_s = now_s
        return self._under_way
