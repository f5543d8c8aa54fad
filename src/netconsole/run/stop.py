"""Ends a run without a screen early: SIGINT, SIGTERM or SIGHUP once keeps what was measured, twice ends at once."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """The run was ended before anything was measured: exit code 130."""


class Stop:
    """Remembers a signal to end. Waiting ends at once then. ``news`` protects what is waited for."""

    def __init__(self) -> None:
        self.news = threading.Condition()
        self.requested = False

    def heard(self, _: object = None) -> None:
        with self.news:
            self.news.notify_all()

    def on_signal(self, number: int, _: FrameType | None) -> None:
        if self.requested:
            raise Interrupted(signal.Signals(number).name)
        self.requested = True
        # Do not notify: the main thread runs this handler and may hold the lock. It checks every 0.1 s anyway.

    def wait(self, true: Callable[[], bool], limit_s: float, stoppable: bool = True) -> bool:
        """Wait until ``true``. False when the limit passed or a signal came first."""
        deadline = time.monotonic() + limit_s
        with self.news:
            while not true():
                left = deadline - time.monotonic()
                if left <= 0 or (stoppable and self.requested):
                    return False
                self.news.wait(min(left, 0.1))
        return True


@contextlib.contextmanager
def signals(stop: Stop) -> Iterator[None]:
    """Give SIGINT, SIGTERM and SIGHUP to ``stop``, inside the ``with``."""
    previous = {number: signal.signal(number, stop.on_signal) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
