"""Runs several vantage points of one ping at the same time, sends its echoes, and always cleans up."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from netconsole.base.errors import Unable
from netconsole.base.fact_keys import FactData
from netconsole.base.figure import safe
from netconsole.far.host import AnyHost
from netconsole.far.program import Gone, ProgramProcess
from netconsole.ping.capture import PingCapture
from netconsole.run.ping_capture import SETTLE_LIMIT_S, VantageRun, attached, document, next_reading
from netconsole.run.ping_plan import PingTraffic
from netconsole.run.stop import Interrupted, Stop, signals

SENDER = "netconsole_collector.echo_sender"
MAX_LINE_BYTES = 4096
_AFTER_S = 0.5
"""After the last echo's time limit: until it has been read everywhere."""


class EchoSender:
    """Sends the echoes of a run on a host. ``id`` is known once it has begun. The far end may be hostile."""

    def __init__(self, host: AnyHost, target: str, traffic: PingTraffic, changed: Callable[[], None]) -> None:
        """Raises Unable when it cannot start."""
        arguments = (target, str(traffic.count), str(traffic.interval_us), str(traffic.size), "1", "")
        try:
            self._program = ProgramProcess(host.launch_of(SENDER, *arguments), "the sender of echoes")
        except Gone as error:
            raise Unable(str(error)) from None
        self._changed = changed
        self.id: int | None = None
        self.counts: dict[str, int] = {}
        self.is_over = False
        self.why: str | None = None
        """Why it ended early; None when it did not."""
        self._thread = threading.Thread(target=self._read, name="echo-sender", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it. Idempotent."""
        self._program.close()

    def _read(self) -> None:
        rest = b""
        for chunk in self._program.chunks():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._take(line)
            if len(rest) > MAX_LINE_BYTES:
                break
        if not self.is_over:
            self.why = self._program.why()
        self.is_over = True
        self._changed()

    def _take(self, line: bytes) -> None:
        try:
            told = json.loads(line[:MAX_LINE_BYTES])
        except (ValueError, RecursionError):
            return
        if not isinstance(told, dict):
            return
        if self.id is None and isinstance(told.get("id"), int) and 0 <= told["id"] <= 0xFFFF:
            self.id = told["id"]
        counts = {name: told[name] for name in ("sent", "answered", "refused") if isinstance(told.get(name), int)}
        self.counts.update(counts)
        self.is_over = self.is_over or told.get("is_over") is True
        self._changed()


def run(
    runs: Sequence[VantageRun],
    sender: Callable[[Callable[[], None]], EchoSender] | None,
    count: int,
    duration_s: float,
    say: Callable[[str], None],
    facts: Callable[[VantageRun], Mapping[str, FactData]],
) -> list[PingCapture]:
    """Capture at all vantage points until the echoes are over. One that fails is said, and the others go on.

    ``sender`` starts it; None: somebody else pings, until ``count`` echoes have ended or ``duration_s`` is over.
    Raises Unable when no vantage point can run, and Interrupted when a signal came before.
    """
    stop = Stop()
    with contextlib.ExitStack() as stack:
        stack.enter_context(signals(stop))
        for one in runs:
            stack.enter_context(contextlib.closing(one.session))
            one.session.on_news(stop.heard)
            one.session.attach(one.log)
            one.session.start()
        stop.wait(lambda: all(one.session.settled() for one in runs), SETTLE_LIMIT_S)
        if stop.requested:
            raise Interrupted("ended while the probes were starting")
        running = _running(runs, say)
        began = time.time()
        known = {one.role: facts(one) for one in running}
        for one in running:
            one.relate_clock()
        say(f"watching at {', '.join(one.role for one in running)}")
        if sender is None:
            stop.wait(lambda: _seen(running, count), duration_s)
        else:
            _send(running, sender, stop, stack, duration_s, say)
        captures = []
        for one in running:
            next_reading(one, stop)
            one.relate_clock()
            with one.session.view() as state:
                captures.append(document(one, state, began, known[one.role]))
        return captures


def _running(runs: Sequence[VantageRun], say: Callable[[str], None]) -> list[VantageRun]:
    running, why = [], []
    for one in runs:
        try:
            one.attach = attached(one)
            running.append(one)
        except Unable as error:
            why.append(str(error))
            say(f"{error}; the other vantage points go on" if len(runs) > 1 else str(error))
    if not running:
        raise Unable("; ".join(why))
    return running


def _send(
    running: Sequence[VantageRun],
    sender: Callable[[Callable[[], None]], EchoSender],
    stop: Stop,
    stack: contextlib.ExitStack,
    duration_s: float,
    say: Callable[[str], None],
) -> None:
    echoes = sender(stop.heard)
    stack.callback(echoes.close)
    if not stop.wait(lambda: echoes.is_over, duration_s):
        echoes.close()  # its last line says how many there were
        stop.wait(lambda: echoes.is_over, _AFTER_S, stoppable=False)
    for one in running:
        one.id = echoes.id
    if echoes.why:
        say(f"the echoes ended early: {safe(echoes.why)}")
    elif not stop.requested:
        limit_s = max(one.between.limit_s for one in running)
        stop.wait(lambda: all(_is_whole(one, echoes.counts.get("sent", 0)) for one in running), limit_s + _AFTER_S)
    for one in running:
        one.sent = dict(echoes.counts)
    say(", ".join(f"{count} {name}" for name, count in echoes.counts.items()) or "no echo was sent")


def _is_whole(run: VantageRun, sent: int) -> bool:
    return run.finished() >= sent


def _seen(running: Sequence[VantageRun], count: int) -> bool:
    """Somebody else pings: so many echoes have ended at the vantage point that has seen most."""
    return max(one.finished() for one in running) >= count
