"""Runs a measurement of a host with the collector. A lost collector is restarted."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import msgspec

from netconsole.base.errors import Unable
from netconsole.far.host import AnyHost
from netconsole.host import door
from netconsole.host.collector_process import CollectorGone, CollectorProcess
from netconsole.host.door import collector_for_session, namespace_names
from netconsole.profile.scope import RunScope
from netconsole.session import commands, compiled_here
from netconsole.session.asker import CauseAsker
from netconsole.session.far_line import FarLine
from netconsole.session.own_cost import OwnInterval, with_before
from netconsole.telemetry import frames
from netconsole.telemetry.frames import AnyFrame, Mode, Scalar
from netconsole.telemetry.request import CommandOutput, HostQuestion, ProbeRequest
from netconsole.telemetry.session import Connection, News, Phase, Sink
from netconsole.telemetry.state import CostPerCount, State

BACK_OFF_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Waiting times before the first, second, … restart of a lost collector."""
OWN_COST = "self_cost"
STEADY_AFTER_INTERVALS = 30
"""When a collector has run this many intervals, its earlier crashes are forgotten."""
_MAX_PENDING, _MAX_PENDING_BYTES = 20_000, 16 * 1024 * 1024
"""Frames of one interval that are kept until it ends, and their bytes. With more they are applied before that."""


class _CommandSaid(msgspec.Struct):
    """What the collector answers about a command (netconsole_collector/questions/command.py)."""

    output: str
    status: int
    seconds: float
    cut: bool


class LiveSession:
    """Runs the collector of ``host``, loads the probes into it, and keeps it running until :meth:`close`.

    What its methods do for others is said in :mod:`netconsole.telemetry.session`.
    """

    kind: Literal["live"] = "live"

    def __init__(
        self,
        host: AnyHost,
        requests: Sequence[ProbeRequest],
        interval_s: float = 1.0,
        environment: Mapping[str, str] | None = None,
        back_off_s: Sequence[float] = BACK_OFF_S,
        statistics_every_s: float = commands.SELDOM_EVERY_MS / 1000,
        is_often: bool = False,
        per_count: CostPerCount | None = None,
        scope: RunScope | None = None,
    ) -> None:
        """``statistics_every_s``: how often the kernel's run-time statistics are on when nothing asks for more.
        ``is_often``: whether they are on often from the start.

        ``per_count``: what a count of a probe costs, for kernels without such statistics.

        ``scope``: what is outside of it, no reader gets.
        """
        self._host = host
        self._line = None if self._host.address is None else FarLine(self._host.address)
        self._environment = environment
        self._interval_s = interval_s
        self._back_off_s = tuple(back_off_s)
        self._statistics_every_s = statistics_every_s
        self._is_often = is_often
        self._bound_pct = 0.0
        self._requests = {request.name: request for request in requests}
        self._detached: dict[str, str | None] = {}
        """Probes that were unloaded, and why. A restarted collector does not load them."""
        self._state = State()
        self._state.per_count = per_count or {}
        self._state.is_far = self._line is not None
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[News], None]] = []
        self._sinks: list[Sink] = []
        self._actions: deque[frames.Action | frames.Answer] = deque()
        """Actions and answers that wait for the next frames."""
        self._closing = threading.Event()
        self._close_lock = threading.Lock()
        self._process: CollectorProcess | None = None
        self._phase: Phase = "starting"
        self._why: str | None = None
        self._retry_at: float | None = None
        self._broken_before = 0
        self._commands = commands.Commands(self._refuse_load)
        self._console_seq = itertools.count(1)
        self.scope = scope
        self._own = OwnInterval(interval_s, self._add_own_cost, scope, partial(namespace_names, self._host))
        self._asker = CauseAsker(self, self._host)
        self._supervisor = threading.Thread(target=self._supervise, name="session", daemon=True)
        for name, request in self._requests.items():
            self.say(name, _begins(request), request.mode)

    def start(self) -> None:
        """Start the collector."""
        self._supervisor.start()
        self._own.start()

    @contextlib.contextmanager
    def view(self) -> Iterator[State]:
        with self._lock:
            yield self._state

    def on_news(self, callback: Callable[[News], None]) -> None:
        self._callbacks.append(callback)

    def attach(self, sink: Sink) -> None:
        with self._lock:
            self._sinks.append(sink)

    def detach(self, sink: Sink) -> None:
        with self._lock:
            self._sinks.remove(sink)

    def connection(self) -> Connection:
        process = self._process
        retry = self._retry_at
        broken = self._broken_before + (process.broken_frames if process else 0)
        retry_in_s = None if retry is None else max(0.0, retry - time.monotonic())
        line = None if self._line is None else self._line.state()
        return Connection(self._phase, self._why, retry_in_s, broken, line)

    def age_s(self) -> float | None:
        with self._lock:
            return self._state.age_s(time.monotonic_ns())

    def settled(self) -> bool:
        with self._lock:
            return all(probe.settled for probe in self._state.probes.values())

    def set(
        self,
        probe: str,
        mode: Mode | None = None,
        knobs: Mapping[str, Scalar] | None = None,
        why: str | None = None,
    ) -> Future[None]:
        request = self._requests.get(probe)
        if request is None:
            return commands.refused(f"{probe}: this probe has no knobs")
        wanted = _changed(request, mode, knobs)
        future = self._ask(
            {"command": "set", "probe": probe, "mode": wanted.mode, "knobs": dict(wanted.knobs), "why": why}, None
        )
        future.add_done_callback(lambda done: self._keep(wanted, done))
        return future

    def reload(
        self,
        probe: str,
        mode: Mode | None = None,
        knobs: Mapping[str, Scalar] | None = None,
        why: str | None = None,
    ) -> Future[None]:
        request = self._requests.get(probe)
        if request is None:
            return commands.refused(f"{probe}: is not a probe of this session")
        if probe not in self._detached:
            # Commands run in order. If the unload is refused (the probe never ran), load it all the same.
            self.unload(probe).add_done_callback(lambda done: done.exception())
        self._detached.pop(probe, None)
        wanted = self._requests[probe] = _changed(request, mode, knobs)
        return self._ask_to_load(wanted, why)

    def load(self, request: ProbeRequest, why: str | None = None) -> Future[None]:
        # Replace the dictionary, because other threads may be iterating over it.
        self._requests = {**self._requests, request.name: request}
        self._detached.pop(request.name, None)
        if self._process is None and self._phase in ("starting", "live"):  # it is loaded with the others
            self.say(request.name, _begins(request), request.mode)
            done: Future[None] = Future()
            done.set_result(None)
            return done
        return self._ask_to_load(request, why)

    def read_whole(self, at_once: bool = False) -> threading.Event:
        done = threading.Event()
        self._ask({"command": "read_whole", "at_once": at_once}, None).add_done_callback(lambda _: done.set())
        return done

    def sample_often(self, is_often: bool) -> None:
        """See :class:`netconsole.telemetry.session.Governable`. A collector that is started again keeps to it."""
        self._is_often = is_often
        self._ask(self._statistics(), None).add_done_callback(lambda done: done.exception())

    def bound(self, kernel_cpu_pct: float | None) -> None:
        """See :class:`netconsole.telemetry.session.Governable`. May be called before the start."""
        self._bound_pct = kernel_cpu_pct or 0.0
        self._ask(commands.bound(self._bound_pct), None).add_done_callback(lambda done: done.exception())

    def unload(self, probe: str, why: str | None = None) -> Future[None]:
        if probe not in self._requests:
            return commands.refused(f"{probe}: is not a probe of this session")
        self._detached[probe] = why
        return self._ask({"command": "unload", "probe": probe, "why": why}, None)

    def say(
        self, probe: str, state: frames.ProbeStatus, mode: Mode, why: str | None = None, help: str | None = None
    ) -> None:
        """Apply a status frame of the console itself, about a probe that the collector does not report."""
        self._apply([frames.Status(**self._stamp(), probe=probe, state=state, mode=mode, why=why, help=help)])

    def say_action(
        self, probe: str, action: str, because: str, measured: float | None = None, limit: float | None = None
    ) -> None:
        self._actions.append(
            frames.Action(
                **self._stamp(),
                probe=probe or None,
                action=action[: frames.MAX_SENTENCE],
                because=because[: frames.MAX_SENTENCE],
                measured=measured,
                limit=limit,
            )
        )

    def ask_why(self, questions: Iterable[HostQuestion]) -> None:
        self._asker.ask(questions)

    def run_command(self, netns: str, command: str) -> CommandOutput:
        said = door.ask(self._host, "command", {"netns": netns, "command": command}, _CommandSaid)
        return CommandOutput(said.output, said.status, said.seconds, said.cut)

    def say_answer(
        self, question: HostQuestion, document: Mapping[str, Scalar | None], error: str | None = None
    ) -> None:
        """Add a frame with what the host answered, or why it did not. It is applied with the next frames."""
        self._actions.append(
            frames.Answer(
                **self._stamp(),
                probe=question.probe,
                table=question.table,
                labels=dict(question.key),
                question=question.name,
                document=dict(document),
                error=error and error[: frames.MAX_SENTENCE],
            )
        )

    def close(self) -> None:
        self._closing.set()
        self._asker.close()
        with self._close_lock:
            process = self._process
            if process is not None:
                process.close()
        self._own.close()
        if self._supervisor.is_alive() and self._supervisor is not threading.current_thread():
            self._supervisor.join(1.0)
        self._phase = "ended"
        self._commands.drop("the session has ended")

    def pids(self) -> list[int]:
        """The collector on this machine, while one runs."""
        process = self._process
        return [] if process is None or self._host.address is not None else [process.pid]

    def kill(self) -> None:
        """Ends the collector at once, with all that it has loaded: for when there is no time left to close."""
        self._closing.set()
        process = self._process
        if process is not None:
            process.kill()

    # ---- running the collector ----

    def _supervise(self) -> None:
        crashes = 0
        while not self._closing.is_set():
            began = self._intervals()
            why = self._run_once()
            if self._closing.is_set():
                return
            if self._intervals() - began >= STEADY_AFTER_INTERVALS:
                crashes = 0
            wait_s = self._back_off_s[min(crashes, len(self._back_off_s) - 1)]
            crashes += 1
            self._lost(why, wait_s)
            self._closing.wait(wait_s)

    def _run_once(self) -> str:
        """Run the collector once, from start to end. Returns why it ended."""
        with self._close_lock:
            if self._closing.is_set():
                return "closing"
            try:
                process = self._process = collector_for_session(self._host, self._environment)
            except (CollectorGone, Unable) as error:
                return str(error)
        try:
            self._retry_at = None
            self._ask({"command": "interval", "ms": round(self._interval_s * 1000)}, None)
            self._ask(self._statistics(), None)
            self._ask(commands.bound(self._bound_pct), None)
            for name, request in self._requests.items():
                if name in self._detached:
                    self.say(name, "off", request.mode, self._detached[name])
                else:
                    self._ask_to_load(request)
            pending: list[AnyFrame] = []
            begun = 0
            for frame in process.frames():
                self._take(frame if self._line is None else self._line.arrived(frame, process), pending)
                if process.received_bytes - begun > _MAX_PENDING_BYTES:
                    self._apply(pending)
                    pending.clear()
                if not pending:
                    begun = process.received_bytes
            return process.why()
        finally:
            process.close()
            self._broken_before += process.broken_frames
            self._process = None
            self._commands.drop("the collector has ended")

    def _take(self, frame: AnyFrame, pending: list[AnyFrame]) -> None:
        if isinstance(frame, (frames.Hello, frames.Status, frames.Reply, frames.Bye)):
            if isinstance(frame, frames.Hello):
                self._phase, self._why = "live", None
                self._relate_clocks()
            self._apply([frame])
            if isinstance(frame, frames.Reply):
                self._commands.answer(frame)
            self._tell("status")
            return
        if isinstance(frame, frames.Table) and frame.probe == OWN_COST and self._line is None:
            frame = with_before(frame)
        ended = False
        if isinstance(frame, frames.Cost) and frame.probe is None:
            ended = True
        pending.append(frame)
        if ended or len(pending) >= _MAX_PENDING:
            self._apply(pending)
            pending.clear()
            if ended:
                self._tell("interval")
                self._relate_clocks()

    def _lost(self, why: str, wait_s: float) -> None:
        self._phase, self._why = "lost", why
        self._retry_at = time.monotonic() + wait_s
        for name, request in self._requests.items():
            if name not in self._detached:
                again = f"it is started again in {wait_s:g} s"
                # Of a far host the reason begins with its address, as that of the sources does.
                told = f"collector lost: {why}" if self._line is None else why
                self.say(name, "failed", request.mode, told, again)
        self._tell("status")

    def _intervals(self) -> int:
        with self._lock:
            return self._state.collector.intervals

    # ---- frames and news ----

    def _apply(self, batch: Sequence[AnyFrame]) -> None:
        with self._lock:
            while self._actions:
                self._take_over([self._actions.popleft()])
            self._take_over(batch)

    def _take_over(self, batch: Sequence[AnyFrame]) -> None:
        if self.scope is not None:
            batch = [kept for frame in batch if (kept := self.scope.narrowed(frame, self._knobs(frame))) is not None]
        for sink in self._sinks:
            sink.take(self._state, tuple(batch))
        for frame in batch:
            self._state.apply(frame)

    def _knobs(self, frame: AnyFrame) -> Mapping[str, Scalar]:
        request = self._requests.get(frame.probe or "")
        return {} if request is None else request.knobs

    def _add_own_cost(self, usage: frames.Usage, interval_ns: int) -> None:
        self._apply([frames.Cost(**self._stamp(), probe=None, interval_ns=interval_ns, usage=usage)])
        if self._phase != "live":  # else panes are drawn when the collector's interval ends
            self._tell("interval")

    def _tell(self, news: News) -> None:
        for callback in self._callbacks:
            callback(news)

    def _stamp(self) -> dict[str, Any]:
        """What all frames of the console itself carry."""
        return {
            "source": "console",
            "seq": next(self._console_seq),
            "mono_ns": time.monotonic_ns(),
            "wall_ns": time.time_ns(),
        }

    # ---- commands ----

    def _statistics(self) -> dict[str, object]:
        return commands.statistics(self._is_often, self._statistics_every_s)

    def _ask(self, command: dict[str, object], loads: str | None, timed: FarLine | None = None) -> Future[None]:
        process = self._process
        if process is None:
            return commands.refused(f"the collector is not running: {self._why or 'not started yet'}")
        return self._commands.send(process, command, loads, timed)

    def _ask_to_load(self, request: ProbeRequest, why: str | None = None) -> Future[None]:
        """Load a probe. For a far host its programs are compiled here first."""
        if self._host.compiler is None or request.source != "bpf":
            return self._ask({**commands.load(request), "why": why}, request.name)
        process = self._process

        def send(prepared: Mapping[str, object]) -> Future[None]:
            if process is not self._process:  # it has ended meanwhile, and the next one is asked for the probe too
                return commands.refused("the collector has ended")
            return self._ask({**commands.load(request), **prepared, "why": why}, request.name)

        def failed(why_not: str) -> None:
            self.say(request.name, "failed", request.mode, why_not)
            self._tell("status")

        return compiled_here.load(self._host.compiler, request, send, failed)

    def _relate_clocks(self) -> None:
        """Ask for the time on a far host, now and then."""
        if self._line is not None and self._line.is_due():
            self._ask({"command": "clock"}, None, self._line).add_done_callback(lambda done: done.exception())

    def _refuse_load(self, probe: str, error: str) -> None:
        """Set the probe to failed if its load was refused before any status. Else it would seem to be compiling."""
        with self._lock:
            state = self._state.probes.get(probe)
            waiting = state is not None and not state.settled
        if waiting:
            self.say(probe, "failed", self._requests[probe].mode, error, "netconsole doctor says more")

    def _keep(self, wanted: ProbeRequest, done: Future[None]) -> None:
        """Keep an accepted change also for a restarted collector."""
        if done.exception() is None:
            self._requests[wanted.name] = wanted


def _begins(request: ProbeRequest) -> frames.ProbeStatus:
    return "compiling" if request.source == "bpf" else "attaching"


def _changed(request: ProbeRequest, mode: Mode | None, knobs: Mapping[str, Scalar] | None) -> ProbeRequest:
    return replace(request, mode=mode or request.mode, knobs={**request.knobs, **(knobs or {})})
