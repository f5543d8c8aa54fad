"""The commands of a session to its collector, and their answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import Future

from netconsole.host.collector_process import CollectorGone, CollectorProcess
from netconsole.session.far_line import FarLine
from netconsole.telemetry import frames
from netconsole.telemetry.request import ProbeRequest
from netconsole.telemetry.session import CommandError
from netconsole_collector.compile.refused import TRY_PLAIN

SELDOM_WINDOW_MS, SELDOM_EVERY_MS = 200, 5000
"""When the kernel's run-time statistics are on by default: 200 ms every 5 s."""
OFTEN_WINDOW_MS, OFTEN_EVERY_MS = 20, 200
"""Several windows in every interval, to see a jump soon, and so that a burst in one window does not count as the whole.
For a tenth of the time, each run of a program then reads the clock twice. The kernel switches its statistics on or off
ten times per second."""


class Commands:
    """Commands that were sent and are not answered yet.

    ``refused_load`` is told the probe and the reason when a load was refused, before whoever waits for the answer.
    """

    def __init__(self, refused_load: Callable[[str, str], None]) -> None:
        self._refused_load = refused_load
        self._numbers = itertools.count(1)
        self._open: dict[int, tuple[str | None, Future[None]]] = {}

    def send(
        self, process: CollectorProcess, command: dict[str, object], loads: str | None, timed: FarLine | None
    ) -> Future[None]:
        """Send a command. ``loads`` is the probe that it loads; ``timed``, the line that learns the time by it."""
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()  # a caller may stop waiting, but cannot cancel the command
        number = next(self._numbers)
        self._open[number] = loads, future
        if timed is not None:
            timed.asked(number)
        try:
            process.send({"id": number, **command})
        except CollectorGone as error:
            self._open.pop(number, None)
            return refused(str(error))
        return future

    def answer(self, frame: frames.Reply) -> None:
        """Take the collector's answer to one of them."""
        loads, future = self._open.pop(frame.id, (None, None))
        if future is None:
            return
        if frame.ok:
            future.set_result(None)
            return
        error = frame.error or "refused without a reason"
        if loads is not None and error != TRY_PLAIN:
            self._refused_load(loads, error)
        future.set_exception(CommandError(error))

    def drop(self, why: str) -> None:
        """None of them will be answered."""
        while self._open:
            _, (_, future) = self._open.popitem()
            if not future.done():
                future.set_exception(CommandError(why))


def load(request: ProbeRequest) -> dict[str, object]:
    """The command that loads a probe."""
    return {
        "command": "load",
        "probe": request.name,
        "spec": request.spec,
        "source": request.code,
        "mode": request.mode,
        "knobs": dict(request.knobs),
        "kernel_cpu_pct": request.kernel_cpu_pct,
    }


def statistics(is_often: bool, seldom_every_s: float) -> dict[str, object]:
    """The command that says when the kernel's run-time statistics are on."""
    window_ms, every_ms = OFTEN_WINDOW_MS, OFTEN_EVERY_MS
    if not is_often:
        window_ms, every_ms = SELDOM_WINDOW_MS, round(seldom_every_s * 1000)
    return {"command": "statistics", "window_ms": window_ms, "every_ms": every_ms}


def bound(kernel_cpu_pct: float) -> dict[str, object]:
    """The command that says what each probe may take in mode details, in percent of one core; 0: no limit."""
    return {"command": "bound", "kernel_cpu_pct": kernel_cpu_pct}


def refused(why: str) -> Future[None]:
    """The answer to a command that cannot be sent."""
    future: Future[None] = Future()
    future.set_exception(CommandError(why))
    return future
