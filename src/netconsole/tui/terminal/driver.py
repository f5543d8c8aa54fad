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
from textual.events import CursorPosition
from textual.message import Message

from netconsole.tui.terminal.capabilities import Terminal, to_ascii
from netconsole.tui.terminal.flow_control import FlowControl

if TYPE_CHECKING:
    from textual.app import App

LAST_WORDS_S = 1.0
"""How long the sequences that restore the terminal may take; half of the two seconds that leaving may take."""
LAST_ANSWER_S = 0.3
"""How long leaving waits for an answer of the terminal that would else be typed into the shell."""
_POLL_MS = 100


class TerminalOutput:
    """A terminal written without blocking: counts bytes, tells how they flow, can be cut short."""

    def __init__(self, fd: int, unicode: bool, flow: FlowControl) -> None:
        self.flow = flow
        self._fd, self._owned = _reopen(fd)
        self._unicode = unicode
        self._cut = threading.Event()
        self._give_up_at: float | None = None
        self.writing = False
        self.bytes_written = 0
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
        full_at_s: float | None = None
        taken_before = 0
        view = memoryview(data)
        try:
            while view and not self._hopeless():
                try:
                    view = view[os.write(self._fd, view) :]
                except BlockingIOError:
                    if full_at_s is None:
                        full_at_s, taken_before = time.monotonic(), len(data) - len(view)
                    self._wait_for_room()
                except OSError:
                    break  # the terminal is gone: the lifeline sees that too, and ends us
        finally:
            written = len(data) - len(view)
            self.bytes_written += written
            waited_s = 0.0 if full_at_s is None else time.monotonic() - full_at_s
            self.flow.wrote(written, waited_s, written - taken_before if full_at_s is not None else 0)
            self.writing = False
        return len(text)

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
        self.flow = FlowControl(asks=not self.terminal.plain)
        self.output = TerminalOutput(sys.__stdout__.fileno(), self.terminal.unicode, self.flow)
        self._file = cast(Any, self.output)

    def backlog(self) -> int:
        """Writes that the terminal has not taken yet; a frame that would join them is better skipped."""
        writer = self._writer_thread
        if writer is None:
            return 0
        return writer._queue.qsize() + (1 if self.output.writing or self.flow.busy() else 0)

    def flush(self) -> None:
        """The end of a frame: ask when the reader has seen it."""
        super().flush()
        question = self.flow.question()
        if question and self._writer_thread is not None:
            self._writer_thread.write(question)

    def process_message(self, message: Message) -> None:
        if isinstance(message, CursorPosition):
            self.flow.answer()
            if self.output.when_idle is not None:
                self.output.when_idle()
            return
        super().process_message(message)

    def disable_input(self) -> None:
        self.flow.stop_asking(LAST_ANSWER_S)
        super().disable_input()

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
