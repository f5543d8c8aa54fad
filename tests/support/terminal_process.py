"""Runs a process on its own pseudo terminal, and knows what its screen shows: for tests of the real program."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyte

LIMIT_S = 120.0
"""A condition that is not met by then will not be."""


QUESTION = b"\x1b[6n"


class TerminalProcess:
    """Runs ``command`` on a terminal of ``columns`` x ``lines``. Everything it writes goes through :meth:`pump`."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        columns: int = 120,
        lines: int = 40,
        ignore: Sequence[signal.Signals] = (),
        answers: bool = True,
    ) -> None:
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self.output = bytearray()
        """Everything it ever wrote."""
        self._answered = 0
        self.answers = answers
        """Whether it says where the cursor is when it is asked, as every real terminal does."""
        self.status: int | None = None
        self.first_s = 0.0
        """How long its first figures took: how slow the machine is now."""
        self._started_s = time.monotonic()
        self.pid, self.master = os.forkpty()
        if self.pid == 0:
            for number in ignore:
                signal.signal(number, signal.SIG_IGN)
            os.execve(command[0], list(command), dict(environment))
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.before = termios.tcgetattr(self.master)

    def __enter__(self) -> TerminalProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self.hang_up()

    def pump(self, wait_s: float = 0.05, most: int = 65536) -> bytes:
        """Read what there is, at most ``most`` bytes, and show it on the screen."""
        if self.master < 0 or not select.select([self.master], [], [], wait_s)[0]:
            return b""
        try:
            data = os.read(self.master, most)
        except OSError:  # EIO: nobody has the other side open any more
            return b""
        self.output += data
        self._stream.feed(data)
        while self.answers and (at := self.output.find(QUESTION, self._answered)) >= 0:
            self._answered = at + len(QUESTION)
            os.write(self.master, b"\x1b[1;1R")
        return data

    def until(self, what: str, condition: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
        """Read until a condition holds; fails, with the screen, when it never does."""
        end = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < end, f"never saw {what}; the screen was:\n{self.text()}"
            self.pump()

    def until_text(self, text: str) -> None:
        """Read until the screen shows a text."""
        self.until(repr(text), lambda: text in self.text())

    def text(self) -> str:
        """The screen as text."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    def until_first(self, text: str) -> None:
        """Read until the screen shows a text for the first time, and note how long that took since the start."""
        self.until_text(text)
        self.first_s = time.monotonic() - self._started_s

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self.master, keys.encode())

    def kill(self, number: signal.Signals) -> None:
        """Send a signal to the process alone."""
        os.kill(self.pid, number)

    def hang_up(self) -> None:
        """Close the terminal, as a lost SSH connection does."""
        if self.master >= 0:
            os.close(self.master)
            self.master = -1

    def until_full(self) -> None:
        """Read nothing, until the terminal holds all that it can: whoever writes then has to wait."""
        held = -1
        end = time.monotonic() + LIMIT_S
        while (now := self._held()) > held or now < 1024:
            assert time.monotonic() < end, f"the terminal does not fill: {now} bytes"
            held = now
            self.press("47")
            time.sleep(1.2)  # more than an interval: whoever has something to say has said it

    def _held(self) -> int:
        buffer = fcntl.ioctl(self.master, termios.FIONREAD, b"\0\0\0\0")
        return int(struct.unpack("i", buffer)[0])

    def wait(self, limit_s: float = LIMIT_S, reading: bool = True) -> float:
        """Wait for the end of the process, reading on unless told not to; how many seconds that took."""
        started = time.monotonic()
        while self.status is None:
            assert time.monotonic() - started < limit_s, f"still running; the screen was:\n{self.text()}"
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            elif self.master >= 0 and reading:
                self.pump(0.02)
            else:
                time.sleep(0.02)
        took = time.monotonic() - started
        while self.pump(0):
            pass
        return took

    def waited_s(self) -> float:
        """How long it and what it started were ready to run, but the machine ran others (proc(5), schedstat)."""
        tasks = [task for pid in (self.pid, *self.children()) for task in Path(f"/proc/{pid}/task").iterdir()]
        return sum(int((task / "schedstat").read_text().split()[1]) for task in tasks) / 1e9

    def children(self) -> list[int]:
        """Processes that it started and that live."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
