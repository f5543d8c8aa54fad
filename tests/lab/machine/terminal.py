"""Connects this terminal to a serial line of the lab's machine: raw bytes in both directions, and the window size."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Iterator

from tests.lab.machine.errors import LabError
from tests.lab.machine.machine import Machine, Process

ESCAPE = b"\x1d"  # Ctrl-], as in telnet
DEVICE = "/dev/hvc0"
CHUNK = 65536
PASSED_ON = ("TERM", "COLORTERM", "NO_COLOR", "LANG", "LC_ALL")
POLL_S = 0.5  # how soon the end of the session is noticed when it printed nothing last


def attach(machine: Machine, port: str, script: str) -> None:
    """Runs a shell script on the machine's serial line until it ends or Ctrl-] is typed.

    `port` was asked for when the machine was booted; the first one is hvc0 inside.
    """
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    line = machine.port(port)
    # The shell leads a session without a terminal: the line that it opens becomes its controlling terminal.
    command = ("sh", "-c", f'exec <{DEVICE} >{DEVICE} 2>&1; stty sane; exec bash -c "$1"', "sh", script)
    with (
        _resized() as resized,
        _raw_terminal(),
        machine.start(*command, env={"LINES": "", "COLUMNS": "", **environment}) as session,
    ):
        _set_size(machine)
        while not session.ends_within(0):
            ready, _, _ = select.select([sys.stdin, line, resized], [], [], POLL_S)
            if resized in ready:
                os.read(resized, CHUNK)
                _set_size(machine)
            if line in ready:
                _write(line.recv(CHUNK))
            if sys.stdin in ready:
                typed = os.read(sys.stdin.fileno(), CHUNK)
                if not typed or ESCAPE in typed:
                    return
                line.sendall(typed)
        _drain(session, line.fileno())


def _set_size(machine: Machine) -> None:
    size = shutil.get_terminal_size()
    with contextlib.suppress(LabError):
        machine.run("stty", "-F", DEVICE, "rows", str(size.lines), "columns", str(size.columns), check=False)


def _drain(session: Process, line: int) -> None:
    while select.select([line], [], [], 0.1)[0]:
        _write(os.read(line, CHUNK))
    _write(bytes(session.out) + bytes(session.err))


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]


@contextlib.contextmanager
def _resized() -> Iterator[int]:
    """A descriptor that becomes readable when the window's size has changed."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = signal.signal(signal.SIGWINCH, lambda *_: os.write(write, b"."))
    try:
        yield read
    finally:
        signal.signal(signal.SIGWINCH, before)
        os.close(read)
        os.close(write)


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    before = termios.tcgetattr(sys.stdin)
    tty.setraw(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
