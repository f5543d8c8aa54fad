"""The terminal driver: writes without blocking, counts bytes, and knows how much is still to be written.

Textual queues up to 30 screen updates. Then it blocks its event loop until a slow terminal has read them. Here the
length of the queue is known, so that an update can be skipped instead. The terminal is written through a file
description of our own, which does not block.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable
from queue import Empty
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.drivers.linux_driver import LinuxDriver
from textual.events import CursorPosition
from textual.message import Message

from netconsole.tui.terminal.capabilities import Terminal
from netconsole.tui.terminal.flow_control import FlowControl
from netconsole.tui.widgets.ascii_text import to_ascii

if TYPE_CHECKING:
    from textual.app import App

RESTORE_S = 1.0
"""Time to write the sequences that restore the terminal: half of the 2 s in which the console must end."""
LAST_ANSWER_S = 0.3
"""How long we wait at the end for an answer of the terminal. The shell would take a later answer as typed text."""
_POLL_MS = 100


class TerminalOutput:
    """Writes to a terminal without blocking. It counts the bytes, and a write can be stopped."""

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
        """Calls ``when_idle``. The writer's thread calls this when its queue is empty; nothing is buffered here."""
        if self.when_idle is not None:
            self.when_idle()

    def write(self, text: str) -> int:
        """Writes the whole text, unless it is stopped or takes too long. Runs in the writer's thread."""
        data = (text if self._unicode else to_ascii(text)).encode("utf-8", "replace")
        self.writing = True
        full_at_s: float | None = None
        taken_before = 0
        view = memoryview(data)
        try:
            while view and not self._must_stop():
                try:
                    view = view[os.write(self._fd, view) :]
                except BlockingIOError:
                    if full_at_s is None:
                        full_at_s, taken_before = time.monotonic(), len(data) - len(view)
                    self._wait_for_room()
                except OSError:
                    break  # the terminal is gone: the lifeline sees that too, and ends the console
        finally:
            written = len(data) - len(view)
            self.bytes_written += written
            waited_s = 0.0 if full_at_s is None else time.monotonic() - full_at_s
            self.flow.wrote(written, waited_s, written - taken_before if full_at_s is not None else 0)
            self.writing = False
        return len(text)

    def cut_short(self) -> None:
        """Stops the current write. All that follows must be written within RESTORE_S."""
        if self._give_up_at is None:
            self._give_up_at = time.monotonic() + RESTORE_S
            self._cut.set()

    def resume(self) -> None:
        """Allows writes again after :meth:`cut_short`: the sequences that restore the terminal."""
        self._cut.clear()

    def begin(self) -> None:
        """Allows all writes, also after :meth:`cut_short`: the terminal is ours, for the first time or again."""
        self._give_up_at = None
        self._cut.clear()

    def close(self) -> None:
        if self._owned:
            with contextlib.suppress(OSError):
                os.close(self._fd)

    def _must_stop(self) -> bool:
        if self._cut.is_set():
            return True
        return self._give_up_at is not None and time.monotonic() > self._give_up_at

    def _wait_for_room(self) -> None:
        poller = select.poll()
        poller.register(self._fd, select.POLLOUT)
        poller.poll(_POLL_MS)


class ConsoleDriver(LinuxDriver):
    """Textual's Linux driver with flow control. Set :attr:`terminal` before it is used."""

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
        """The number of writes that the terminal has not taken yet. While there are any, an update is skipped."""
        writer = self._writer_thread
        if writer is None:
            return 0
        return writer._queue.qsize() + (1 if self.output.writing or self.flow.busy() else 0)

    def flush(self) -> None:
        """Ends a screen update: asks the terminal to answer when it has read the update."""
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

    def start_application_mode(self) -> None:
        self.output.begin()
        self.flow.start_asking()
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def disable_input(self) -> None:
        self.flow.stop_asking(LAST_ANSWER_S)
        super().disable_input()

    def hurry(self) -> None:
        """Drops all queued updates, so that the sequences that restore the terminal are next. Thread-safe."""
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

    def suspend_application_mode(self) -> None:
        self.stop_application_mode()
        super().close()  # the writer's thread alone: the output is needed again

    def close(self) -> None:
        super().close()
        self.output.close()

    # ---- Ctrl-Z and fg

    def _sigtstp_application(self, *_: object) -> None:
        """Gives the terminal back to the shell and stops. Takes it again when the shell lets us go on.

        Where no shell could do that, the kernel ignores the signal (an orphaned process group, signal(7)), and the
        screen comes back at once.
        """
        if not self._draws():
            return
        self.suspend_application_mode()
        signal.signal(signal.SIGCONT, signal.SIG_IGN)
        # The others of our group (make, sudo) are stopped first. This thread then stops inside its own call.
        signal.signal(signal.SIGTSTP, signal.SIG_IGN)
        os.killpg(0, signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        self._wait_for_terminal()
        signal.signal(signal.SIGTSTP, self._sigtstp_application)
        signal.signal(signal.SIGCONT, self._sigcont_application)
        self._take_terminal()

    def _sigcont_application(self, *_: object) -> None:
        """Takes the terminal anew: somebody stopped us by SIGSTOP, and the shell may have changed it."""
        if not self._draws():
            return
        self._wait_for_terminal()
        self.suspend_application_mode()
        self._take_terminal()

    def _draws(self) -> bool:
        """Whether the terminal is ours, so that it has to be given back."""
        return self._writer_thread is not None and self._writer_thread.is_alive()

    def _wait_for_terminal(self) -> None:
        """Returns when we are in the foreground. Before, the kernel stops whoever sets a mode (SIGTTOU, termios(3))."""
        with contextlib.suppress(termios.error):  # the terminal is gone: the lifeline ends the console
            termios.tcsetattr(self.fileno, termios.TCSANOW, termios.tcgetattr(self.fileno))

    def _take_terminal(self) -> None:
        self._must_signal_resume = True
        self.resume_application_mode()

    def _run_input_thread(self) -> None:
        # Reading fails when the terminal is gone. Then the lifeline ends the console: there is no crash to report.
        with contextlib.suppress(OSError):
            self.run_input_thread()

    def _request_terminal_sync_mode_support(self) -> None:
        if not self.terminal.plain:
            super()._request_terminal_sync_mode_support()

    def _query_in_band_window_resize(self) -> None:
        """Sends no query: SIGWINCH tells the same everywhere, and some terminals print the query."""


def _reopen(fd: int) -> tuple[int, bool]:
    """Opens the same terminal again, non-blocking. The shell shares the first description, so that one must not change.

    Returns ``fd`` itself, which blocks, when the terminal has no name here (another mount namespace).
    """
    try:
        return os.open(os.ttyname(fd), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC), True
    except OSError:
        return fd, False
