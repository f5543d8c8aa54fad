"""Measures one ping, whoever looks at it: its vantage points at the same time, its echoes, and always cleans up."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from netconsole.base.errors import Unable
from netconsole.base.fact_keys import FactData
from netconsole.base.figure import safe
from netconsole.far.host import AnyHost
from netconsole.far.program import Gone, ProgramProcess
from netconsole.ping.capture import PingCapture
from netconsole.run.ping_capture import SETTLE_LIMIT_S, VantageRun, attached, document, next_reading
from netconsole.run.ping_plan import PingTraffic
from netconsole.run.stop import Interrupted, Stop
from netconsole.sources.facts import collect

SENDER = "netconsole_collector.echo_sender"
MAX_LINE_BYTES = 4096
_AFTER_S = 0.5
"""After the last echo's time limit: until it has been read everywhere."""
_FOR_EVER_S = 10 * 365 * 86400.0


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


@dataclass(frozen=True, slots=True)
class Ending:
    """When a ping of somebody else has been watched: after a time, after so many echoes, or when it is stopped.

    Echoes of our own have at most the time.
    """

    duration_s: float | None = None
    count: int | None = None


class PingRun:
    """One ping, at one vantage point or several: they settle, watch while echoes pass, and become documents.

    ``stop`` ends it early. ``send`` starts what sends the echoes; without it, or if it returns None, somebody else
    pings. ``name``: what the captures share.
    """

    def __init__(
        self,
        runs: Sequence[VantageRun],
        ending: Ending,
        stop: Stop,
        say: Callable[[str], None],
        send: Callable[[Callable[[], None]], EchoSender | None] | None = None,
        name: str | None = None,
    ) -> None:
        self.runs = runs
        self.told = ""
        """How far the sending is, in words."""
        self._ending = ending
        self._stop = stop
        self._say = say
        self._send = send
        self._name = name

    def measure(self) -> list[PingCapture]:
        """Capture until the end, then close the sessions. A vantage point that fails is said, and the others go on.

        Raises Unable when none can watch, and Interrupted when it was stopped before.
        """
        with contextlib.ExitStack() as stack:
            for run in self.runs:
                stack.enter_context(contextlib.closing(run.session))
                run.begin(self._stop.heard)
            self._stop.wait(lambda: all(run.session.settled() for run in self.runs), SETTLE_LIMIT_S)
            if self._stop.requested:
                raise Interrupted("ended while the probes were starting")
            watching = self._watching()
            began = time.time()
            known = {run.role: collect(run.host) for run in watching}  # not while echoes pass: it takes CPU time
            for run in watching:
                run.relate_clock()
                self._say(f"watching as {run.role}: {', '.join(run.attach)}")
            echoes = self._send(self._stop.heard) if self._send is not None else None
            if echoes is None:
                self._stop.wait(lambda: self._is_over(watching), self._ending.duration_s or _FOR_EVER_S)
            else:
                stack.callback(echoes.close)
                self._follow(echoes, watching)
            return [self._taken(run, began, known[run.role]) for run in watching]

    def _watching(self) -> list[VantageRun]:
        for run in self.runs:
            try:
                run.attach = attached(run)
            except Unable as error:
                run.why = str(error)
                self._say(f"{error}; the other vantage points go on" if len(self.runs) > 1 else str(error))
        watching = [run for run in self.runs if not run.why]
        if not watching:
            raise Unable("; ".join(run.why for run in self.runs))
        return watching

    def _is_over(self, watching: Sequence[VantageRun]) -> bool:
        """Somebody else pings: so many echoes have ended at the vantage point that has seen most, or none goes on."""
        if all(run.session.connection().phase in ("lost", "ended") for run in watching):
            return True
        return self._ending.count is not None and max(run.finished() for run in watching) >= self._ending.count

    def _follow(self, echoes: EchoSender, watching: Sequence[VantageRun]) -> None:
        """Wait until the echoes were sent, and have ended everywhere."""

        def is_over() -> bool:
            self.told = ", ".join(f"{count} {name}" for name, count in echoes.counts.items()) or "sending"
            return echoes.is_over

        if not self._stop.wait(is_over, self._ending.duration_s or _FOR_EVER_S):
            echoes.close()  # its last line says how many there were
            self._stop.wait(is_over, _AFTER_S, stoppable=False)
        for run in watching:
            run.id = echoes.id
        if echoes.why:
            self.told = f"the echoes ended early: {safe(echoes.why)}"
            self._say(self.told)
        elif not self._stop.requested:
            limit_s, sent = max(run.between.limit_s for run in watching), echoes.counts.get("sent", 0)
            self._stop.wait(lambda: all(run.finished() >= sent for run in watching), limit_s + _AFTER_S)
        for run in watching:
            run.sent = dict(echoes.counts)
        self._say(", ".join(f"{count} {name}" for name, count in echoes.counts.items()) or "no echo was sent")

    def _taken(self, run: VantageRun, began: float, facts: Mapping[str, FactData]) -> PingCapture:
        next_reading(run, self._stop)
        run.relate_clock()
        with run.session.view() as state:
            return msgspec.structs.replace(document(run, state, began, facts), run=self._name)
