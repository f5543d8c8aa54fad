"""Draws the screen when the session has news: only the newest state, and not while output waits to be written."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable


class Pump:
    """Takes news from any thread and draws on the event loop, one drawing at a time."""

    def __init__(
        self, draw: Callable[[], None], backlog: Callable[[], int], observe: Callable[[], bool] = lambda: True
    ) -> None:
        """``observe`` sees all news, and returns whether to draw. ``draw`` is called when ``backlog`` is 0."""
        self._draw = draw
        self._observe = observe
        self._backlog = backlog
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._scheduled = False
        self._waiting = False
        self.skipped = 0
        """Drawings that were delayed because the terminal had not taken the one before."""

    @property
    def running(self) -> bool:
        """Whether it draws."""
        return self._loop is not None

    def start(self) -> None:
        """Begin to draw on the running event loop."""
        self._loop = asyncio.get_running_loop()

    def stop(self) -> None:
        """Draw no more."""
        self._loop = None

    def news(self, _news: object = None) -> None:
        """Something has changed. Thread-safe; returns at once."""
        loop = self._loop
        with self._lock:
            if loop is None or self._scheduled:
                return
            self._scheduled = True
        try:
            loop.call_soon_threadsafe(self._turn)
        except RuntimeError:  # the loop has just been closed: there is no screen to draw
            self._loop = None

    def idle(self) -> None:
        """The terminal has taken everything: makes a delayed drawing now. The writer's thread calls it."""
        if self._waiting:
            self.news()

    def _turn(self) -> None:
        with self._lock:
            self._scheduled = False
        if self._loop is None:
            return
        if not self._observe() and not self._waiting:
            return
        if self._backlog() > 0:
            if not self._waiting:
                self.skipped += 1
            self._waiting = True
            return
        self._waiting = False
        self._draw()
