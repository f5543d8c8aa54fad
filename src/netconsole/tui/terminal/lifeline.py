"""The lifeline: a thread that ends the console within two seconds, even when the user interface hangs.

Python's signal handler in C writes to the wake-up descriptor, also while the event loop hangs. A terminal that goes
without a signal (the parent ignores SIGHUP, as under nohup) shows as POLLHUP. In both cases this thread closes the
session and asks the user interface to end. If that does not end in time, the thread ends the process.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import termios
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

DEADLINE_S = 1.7
"""Time from the reason to end until the process is ended. The limit that we promise is 2 s."""
CLOSING_S = 6.0
"""So much longer the session of a far host may take to close when the user has left and has the shell's screen back."""
EXIT_INTERRUPTED = 130
ENDING_SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT, signal.SIGINT)

RESTORE = "\x1b[?2026l\x1b[?2004l\x1b[?1004l\x1b[?7h\x1b[0m\x1b[?1049l\x1b[?25h"
"""Ends synchronised output, paste and focus reports. Wraps lines, leaves the alternate screen, shows the cursor."""


class Lifeline:
    """Watches one run of the console. ``close_session`` and ``ask_to_leave`` are called from other threads."""

    def __init__(
        self,
        tty_fd: int,
        close_session: Callable[[], None],
        ask_to_leave: Callable[[], None],
        end_process: Callable[[int], None] = os._exit,
        kill_session: Callable[[], None] | None = None,
    ) -> None:
        """``kill_session`` ends it without waiting, when it has not closed in time."""
        self._tty_fd = tty_fd
        self._close_session = close_session
        self._ask_to_leave = ask_to_leave
        self._end_process = end_process
        self._kill_session = kill_session
        self._finished = threading.Event()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._attributes: list[Any] | None = None
        self._handlers: dict[signal.Signals, Any] = {}
        self._old_wakeup_fd = -1
        self._thread = threading.Thread(target=self._watch, name="netconsole-lifeline", daemon=True)
        self._screen_is_closed = False
        self.reason: str | None = None
        """Why the console was ended from outside. None when the user ended it."""

    def start(self) -> None:
        """Begins to watch. Main thread only: Python allows signal handlers nowhere else."""
        with contextlib.suppress(termios.error):
            self._attributes = termios.tcgetattr(self._tty_fd)
        self._old_wakeup_fd = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in ENDING_SIGNALS:
            self._handlers[number] = signal.signal(number, _do_nothing)
        self._thread.start()

    def leaving(self) -> None:
        """The user wants to leave: the deadline runs from now on."""
        self._wake(0)

    def screen_closed(self) -> None:
        """The terminal is as it was before. What is left is to close the session."""
        self._screen_is_closed = True

    def finish(self) -> None:
        """Stops watching, when everything is closed. Main thread only."""
        self._finished.set()
        self._wake(0)
        self._thread.join()
        signal.set_wakeup_fd(self._old_wakeup_fd)
        for number, handler in self._handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _wake(self, number: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, bytes([number]))

    def _watch(self) -> None:
        poller = select.poll()
        poller.register(self._wake_read, select.POLLIN)
        poller.register(self._tty_fd, 0)  # poll reports POLLHUP and POLLERR even with an empty mask
        leaving = False
        while not leaving and not self._finished.is_set():
            for fd, _event in poller.poll():
                if fd == self._tty_fd:
                    self.reason = "the terminal is gone"
                    leaving = True
                    continue
                for number in os.read(self._wake_read, 64):
                    if number == 0:
                        leaving = True
                    elif number in ENDING_SIGNALS:
                        self.reason = signal.Signals(number).name
                        leaving = True
        if not self._finished.is_set():
            self._end()

    def _end(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        # In another thread: a session that closes slowly must delay neither the user interface nor the deadline.
        threading.Thread(target=self._close_session, name="netconsole-close", daemon=True).start()
        self._ask_to_leave()
        if not self._finished.wait(deadline - time.monotonic()) and not self._closes_late():
            if self._kill_session is not None:
                self._kill_session()
            self._restore_terminal()
            self._end_process(EXIT_INTERRUPTED)

    def _closes_late(self) -> bool:
        """Whether the session closes after all, where the user left: a far host may be slow to take its probes away."""
        if not self._screen_is_closed or self.reason is not None:
            return False
        print_quietly("netconsole: closing the connection…")
        return self._finished.wait(CLOSING_S)

    def _restore_terminal(self) -> None:
        """Restores the terminal when the user interface has not done it. It waits for nothing."""
        if self._attributes is not None:
            with contextlib.suppress(termios.error, OSError):
                termios.tcsetattr(self._tty_fd, termios.TCSANOW, self._attributes)
        with contextlib.suppress(OSError):
            fd = os.open(os.ttyname(self._tty_fd), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
            why = self.reason or "leaving took too long"
            what = "session" if self._screen_is_closed else "screen"
            os.write(fd, f"{RESTORE}netconsole: the {what} did not close in time, so it was stopped ({why})\n".encode())
            os.close(fd)


def print_quietly(line: str) -> None:
    """Writes one line to standard error. It is no error when the terminal is gone."""
    # Not through sys.stderr: it would keep a text that it cannot write, and fail with it again at the exit.
    with contextlib.suppress(OSError):
        os.write(2, f"{line}\n".encode("utf-8", "replace"))


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    """A handler must be set, or the signal kills the process. The wake-up descriptor tells the lifeline's thread."""
