"""The terminal driver: knows what waits to be written, counts bytes, and never hangs on a slow reader.

Textual queues up to thirty frames and then blocks its event loop. Here the queue's depth can be asked, so that a frame
is skipped instead, and the terminal is written through a file description of our own that does not block.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from queue import Empty
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.drivers.linux_driver import LinuxDriver

from netconsole.tui.terminal import Terminal, to_ascii

if TYPE_CHECKING:
    from textual.app import App

LAST_WORDS_S = 1.0
"""How long the sequences that restore the terminal may take; half of the two seconds that leaving may take."""
TERMINAL_BUFFER_BYTES = 8192
"""What a pseudo terminal holds between us and its reader (tty_buffer_set_limit in drivers/tty/pty.c)."""
_POLL_MS = 100


class Output:
    """A terminal written without blocking: counts bytes, measures the reader's speed, can be cut short."""

    def __init__(self, fd: int, unicode: bool) -> None:
        self._fd, self._owned = _reopen(fd)
        self._unicode = unicode
        self._cut = threading.Event()
        self._give_up_at: float | None = None
        self.writing = False
        self.bytes_written = 0
        self.bytes_per_s: float | None = None
        """Speed of the reader when the last write had to wait for it; None while it keeps up."""
        self.when_idle: Callable[[], None] | None = None

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        """Nothing is kept back. Called when the queue is empty: whoever waits for that is told."""
        if self.when_idle is not None:
            self.when_idle()

    def write(self, text: str) -> int:
        """Write all of it, unless cut short or given up. Runs in the writer's thread."""
        data = (text if self._unicode else to_ascii(text)).encode("utf-8", "replace")
        self.writing = True
        started = time.monotonic()
        waited = False
        view = memoryview(data)
        try:
            while view and not self._hopeless():
                try:
                    view = view[os.write(self._fd, view) :]
                except BlockingIOError:
                    waited = True
                    self._wait_for_room()
                except OSError:
                    break  # the terminal is gone: the lifeline sees that too, and ends us
        finally:
            written = len(data) - len(view)
            self.bytes_written += written
            taken = time.monotonic() - started
            self.bytes_per_s = written / taken if waited and taken > 0 else None
            self.writing = False
        return len(text)

    def delay_s(self) -> float:
        """How far behind the reader of the screen may be, judged by the last write: 0 while it keeps up."""
        speed = self.bytes_per_s
        return 0.0 if not speed else TERMINAL_BUFFER_BYTES / speed

    def cut_short(self) -> None:
        """Drop the write under way, and allow LAST_WORDS_S for what follows."""
        if self._give_up_at is None:
            self._give_up_at = time.monotonic() + LAST_WORDS_S
            self._cut.set()

    def resume(self) -> None:
        """After :meth:`cut_short`: what is written from now on are the last words."""
        self._cut.clear()

    def close(self) -> None:
        if self._owned:
            with contextlib.suppress(OSError):
                os.close(self._fd)

    def _hopeless(self) -> bool:
        if self._cut.is_set():
            return True
        return self._give_up_at is not None and time.monotonic() > self._give_up_at

    def _wait_for_room(self) -> None:
        poller = select.poll()
        poller.register(self._fd, select.POLLOUT)
        poller.poll(_POLL_MS)


class ConsoleDriver(LinuxDriver):
    """Textual's Linux driver, with back-pressure. Not for use without :attr:`terminal` set."""

    terminal: ClassVar[Terminal] = Terminal(colour=True, unicode=True, plain=False)

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=False, size=size)
        assert sys.__stdout__ is not None
        self.output = Output(sys.__stdout__.fileno(), self.terminal.unicode)
        self._file = cast(Any, self.output)

    def backlog(self) -> int:
        """Writes that the terminal has not taken yet; a frame that would join them is better skipped."""
        writer = self._writer_thread
        if writer is None:
            return 0
        return writer._queue.qsize() + (1 if self.output.writing else 0)

    def hurry(self) -> None:
        """Drop every frame that waits, so that the sequences restoring the terminal go out at once. Thread-safe."""
        self.output.cut_short()
        writer = self._writer_thread
        if writer is not None:
            with contextlib.suppress(Empty):
                while True:
                    writer._queue.get_nowait()

    def stop_application_mode(self) -> None:
        self.hurry()
        self.output.resume()
        super().stop_application_mode()

    def close(self) -> None:
        super().close()
        self.output.close()

    def _run_input_thread(self) -> None:
        # A terminal that is gone makes read fail; the lifeline ends us, so this is no crash to report.
        with contextlib.suppress(OSError):
            self.run_input_thread()

    def _request_terminal_sync_mode_support(self) -> None:
        if not self.terminal.plain:
            super()._request_terminal_sync_mode_support()

    def _query_in_band_window_resize(self) -> None:
        """Not asked: SIGWINCH says the same everywhere, and some terminals print the question."""


def _reopen(fd: int) -> tuple[int, bool]:
    """A non-blocking description of the same terminal; the shared one must stay as the shell wants it.

    Falls back to the shared one, blocking, where the terminal has no name here (another mount namespace).
    """
    try:
        return os.open(os.ttyname(fd), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC), True
    except OSError:
        return fd, False
