"""Estimates how far the terminal is behind. So no update has to wait, and the age of the figures on the screen is true.

After an update we ask the terminal for its cursor position. When it answers, it has read all that was sent before the
question. That is exact, also over SSH. Until the first answer, and for a terminal that never answers, there is a model:
how much the terminal's buffer holds, and how fast the terminal read before it was last full.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

QUESTION = "\x1b[6n"
GIVE_UP_S = 3.0
"""After this time no answer is expected any more (a detached session, a lost line)."""
REMEMBERED = 8
"""Round trips that are kept: updates differ in size, and so in the time that they take."""
GIVE_UP_TIMES = 3
"""After so many missing answers in a row, we stop asking."""
TERMINAL_BUFFER_BYTES = 8192 + 4096
"""What a pseudo terminal can hold: drivers/tty/pty.c (8192) and N_TTY_BUF_SIZE of n_tty.c (4096)."""
BELIEVED_S = 30.0
"""A terminal that is still busy so long after a write is taken for one that was stopped (Ctrl-S, a line that hung) when
its speed was measured: by that speed nothing would be drawn for hours. A full buffer measures its speed anew. One that
answers nothing and takes less than 410 bytes/s for long is taken for stopped, too."""
DOUBTED_S = 3.0
"""The same for a speed that may have been a stop: the first one, and one that is `FAR_LOWER_TIMES` lower than the one
before. If the next one is as low, it is believed."""
FAR_LOWER_TIMES = 4
_SMALL_BYTES = 256


class FlowControl:
    """Knows what the terminal has not read yet. The event loop and the threads of writer and input use it."""

    def __init__(self, asks: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._may_ask = self._asks = asks
        self._clock = clock
        self._lock = threading.Lock()
        self._answered = threading.Event()
        self._answered.set()
        self._asked_s: float | None = None
        self._round_trips: deque[float] = deque(maxlen=REMEMBERED)
        self._unanswered = 0
        self._bytes_per_s: float | None = None
        self._measured_bytes_per_s: float | None = None
        self._believed_s = DOUBTED_S
        self._since_full = -TERMINAL_BUFFER_BYTES  # it is empty at first: what fills it has not been read
        self._under_way = 0.0
        self._full_at_s = self._under_way_at_s = self._wrote_at_s = clock()

    def question(self) -> str:
        """The question to send after an update. Empty while an answer is due, or when no answers come."""
        with self._lock:
            if not self._asks or self._asked_s is not None:
                return ""
            self._asked_s = self._clock()
            self._answered.clear()
            return QUESTION

    def answer(self) -> None:
        """The terminal has answered: it has read everything that was sent before the question."""
        with self._lock:
            if self._asked_s is not None:
                self._round_trips.append(self._clock() - self._asked_s)
            self._asked_s = None
            self._unanswered = 0
            self._under_way = 0.0
            self._answered.set()

    def start_asking(self) -> None:
        """Asks again after :meth:`stop_asking`. What was under way then has been read, or never will be."""
        with self._lock:
            self._asks = self._may_ask
            self._asked_s = None
            self._unanswered = 0
            self._round_trips.clear()
            self._answered.set()

    def stop_asking(self, wait_s: float) -> None:
        """Asks no more, and waits for an answer that is still due: the shell must not read it."""
        self._asks = False
        self._answered.wait(wait_s)

    def wrote(self, taken: int, waited_s: float, taken_waiting: int) -> None:
        """``taken`` bytes were written. The last ``taken_waiting`` of them had to wait ``waited_s`` for room."""
        with self._lock:
            under_way = self._model()
            self._wrote_at_s = now_s = self._clock()
            self._since_full += taken
            if waited_s > 0 and taken_waiting > 0:
                speed, former = self._speed(now_s, taken_waiting / waited_s), self._measured_bytes_per_s
                confirmed = former is not None and speed * FAR_LOWER_TIMES >= former
                self._believed_s = BELIEVED_S if confirmed else DOUBTED_S
                self._bytes_per_s = self._measured_bytes_per_s = speed
                self._full_at_s, self._since_full = now_s, 0
                self._under_way = float(TERMINAL_BUFFER_BYTES)
                return
            self._under_way = under_way + taken
            if self._bytes_per_s is not None and self._under_way > TERMINAL_BUFFER_BYTES:
                # There was room although the model had none left: the terminal reads faster than before.
                self._bytes_per_s *= 2
                self._under_way /= 2

    def _speed(self, now_s: float, while_waiting: float) -> float:
        """In bytes/s: the higher one of two, for the terminal also stands still, or has read all there was.

        One is what it read while a write waited: a few bytes in a long stop. The other counts from when the buffer was
        last full until it is full again: in that time it read as much as was written.
        """
        if now_s <= self._full_at_s:
            return while_waiting
        return max(while_waiting, self._since_full / (now_s - self._full_at_s))

    def busy(self) -> bool:
        """Whether the terminal has not yet read all that was sent."""
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
        """How long it takes at most until what is sent now is on the screen: the longest of the last round trips."""
        with self._lock:
            due_s = 0.0 if self._asked_s is None else self._clock() - self._asked_s
            if self._round_trips and self._asks:
                return max(*self._round_trips, due_s)
            return 0.0 if not self._bytes_per_s else (self._model() + TERMINAL_BUFFER_BYTES) / self._bytes_per_s

    def _model(self) -> float:
        """Bytes that the buffer still holds, if the terminal reads as fast as before the buffer was last full."""
        now_s = self._clock()
        if now_s - self._wrote_at_s > self._believed_s:
            self._bytes_per_s = None
        if self._bytes_per_s is None:
            self._under_way = 0.0
        else:
            self._under_way = max(0.0, self._under_way - (now_s - self._under_way_at_s) * self._bytes_per_s)
        self._under_way_at_s = now_s
        return self._under_way
