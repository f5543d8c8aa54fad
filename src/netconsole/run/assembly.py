"""One way to run: a plan, opened on a host, is a session with its budget, its escalations and probes that start later.

The console, a snapshot, a recording and each host of a rack are opened here.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from netconsole.base.errors import Unable
from netconsole.base.fact_keys import FactData
from netconsole.budget import forecast
from netconsole.budget.enforcer import Enforcer, needs_windows
from netconsole.budget.forecast import Forecast
from netconsole.calibrate import store
from netconsole.escalation.escalator import Escalator
from netconsole.far.door import Approach
from netconsole.far.host import THIS_HOST, AnyHost
from netconsole.host import door, machine
from netconsole.probes.catalogue import typed_modules
from netconsole.probes.manifest import Manifest
from netconsole.profile.scope import scope_of
from netconsole.profile.spending import packets_per_s
from netconsole.recording.recorder import Recorder, describe
from netconsole.recording.writer import MAX_BYTES, MAX_S
from netconsole.run import preflight
from netconsole.run.named_there import located
from netconsole.run.preflight import RunPlan
from netconsole.session.commands import SELDOM_EVERY_MS
from netconsole.session.live import LiveSession
from netconsole.telemetry.action import BudgetAction
from netconsole.telemetry.request import ProbeRequest
from netconsole.telemetry.session import News
from netconsole_collector.kernel import heap

if TYPE_CHECKING:
    from netconsole.recording.packet_file import PacketFile

SELDOM_S = SELDOM_EVERY_MS / 1000


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A session, the enforcer of its budget, and who carries out escalations. The first two begin with :meth:`start`.

    ``plan``: what was planned, as the host has it, with the probes that start, now or later.
    """

    plan: RunPlan
    host: AnyHost
    session: LiveSession
    enforcer: Enforcer
    escalator: Escalator

    def start(self) -> None:
        """Begin to measure."""
        self.enforcer.start()
        self.session.start()

    def facts(self) -> Mapping[str, FactData]:
        """The configuration of the host, as far as the run is about it."""
        return _facts(self.session, self.host)

    def recorder(
        self, path: Path, note: str | None = None, max_bytes: int = MAX_BYTES, max_s: float = MAX_S
    ) -> Recorder:
        """A recorder of it that is not attached yet. Raises BadInput."""
        plan = self.plan
        modes = {request.name: request.mode for request in plan.requests}
        header = describe(plan.profile, modes, plan.manifests, door.describe(self.host), note, self.facts())
        return Recorder(path, header, plan.profile.budget, max_bytes, max_s)


def _facts(session: LiveSession, host: AnyHost) -> Mapping[str, FactData]:
    from netconsole.sources.facts import collect  # late: its readers take more memory than everything else

    scope = session.scope
    return {key: fact for key, fact in collect(host).items() if scope is None or scope.has_fact(key)}


@contextlib.contextmanager
def open_run(
    plan: RunPlan,
    way: Approach,
    defers: bool = False,
    may_ask: bool = False,
    say: Callable[[str], None] | None = None,
) -> Iterator[LiveRun]:
    """A run on the host that ``way`` leads to. Raises BadInput, and Unable when it must not start.

    ``defers``: expensive probes that nobody named start when there is room for them. ``may_ask``, ``say``: as
    :func:`netconsole.run.preflight.before_start`.
    """
    host = way.enter(typed_modules(plan.manifests) if way.is_far else ())
    plan = located(plan, host)
    later = preflight.defer_expensive(plan, host) if defers and not plan.force else []
    now = replace(plan, requests=[request for request in plan.requests if request not in later])
    start = preflight.before_start(now, host, may_ask, say)
    with live_run(replace(plan, requests=start.requests), host, start.left_out, later) as live:
        yield live


@contextlib.contextmanager
def live_run(
    plan: RunPlan,
    host: AnyHost = THIS_HOST,
    left_out: Mapping[str, str] | None = None,
    later: Sequence[ProbeRequest] = (),
) -> Iterator[LiveRun]:
    """A run of a plan without a look before. It is closed at the end of the ``with``, whatever happened.

    ``left_out``: probes that do not start, and why. ``later``: probes that start when there is room for them.
    """
    heap.one_for_all_threads()
    packets = _packet_file(plan)
    session = session_of(plan, host)
    enforcer = Enforcer(session, plan.profile, plan.manifests, host)
    enforcer.leave_out(left_out or {})
    DeferredStart(session, enforcer, plan.manifests, later, host).start()
    escalator = Escalator(session, enforcer, plan.manifests, host=host, read_facts=partial(_facts, session, host))
    escalator.start()
    if packets is not None:
        session.attach(packets)
    try:
        yield LiveRun(replace(plan, requests=[*plan.requests, *later]), host, session, enforcer, escalator)
    finally:
        session.close()
        escalator.close()
        if packets is not None:
            packets.close()
            print(f"netconsole: {packets.outcome}", file=sys.stderr)


def _packet_file(plan: RunPlan) -> PacketFile | None:
    """Of the probes that can have packets in their samples. Raises BadInput."""
    if plan.packets is None:
        return None
    from netconsole.recording.packet_file import KNOB, PacketFile

    with_packets = [request.name for request in plan.requests if KNOB in request.knobs]
    return PacketFile(plan.packets, {name: next(iter(plan.manifests[name].counters)) for name in with_packets}).open()


def session_of(plan: RunPlan, host: AnyHost = THIS_HOST) -> LiveSession:
    """A session on a host. Run times are sampled as often as the budget needs, and at least once in a short run."""
    machine.before_pct()  # from here on we cause load ourselves
    return LiveSession(
        host,
        plan.requests,
        plan.interval_s,
        statistics_every_s=SELDOM_S if plan.duration_s is None else min(SELDOM_S, max(1.0, plan.duration_s / 10)),
        is_often=needs_windows(plan.profile),
        per_count=store.per_count(plan.manifests) if host.about is None else None,  # calibrated on this machine
        scope=scope_of(plan.profile, plan.manifests),
    )


WAY_IN = "e starts it anyway"


class DeferredStart:
    """Forecasts these probes when all others run. Then each one starts, or is off with the reason."""

    def __init__(
        self,
        session: LiveSession,
        enforcer: Enforcer,
        manifests: Mapping[str, Manifest],
        requests: Sequence[ProbeRequest],
        host: AnyHost = THIS_HOST,
    ) -> None:
        self._host = host
        self._session = session
        self._enforcer = enforcer
        self._manifests = manifests
        self._requests = {request.name: request for request in requests}
        self._lock = threading.Lock()
        self._has_begun = False

    def start(self) -> None:
        """Wait for the other probes. Call this before the session starts."""
        if not self._requests:
            return
        for request in self._requests.values():
            self._session.say(request.name, "compiling", request.mode)
        self._session.on_news(self._news)

    def _news(self, _news: News) -> None:
        if self._has_begun:
            return
        with self._session.view() as state:
            others = [probe for probe in state.probes.values() if probe.name not in self._requests]
            is_time = all(probe.settled for probe in others)
        with self._lock:
            if self._has_begun or not is_time:
                return
            self._has_begun = True
        threading.Thread(target=self._begin, name="deferred start", daemon=True).start()

    def _begin(self) -> None:
        left_out = self._left_out()
        for name, one in left_out.items():
            self._session.say(name, "off", one.mode, f"not started: {forecast.describe(one)}", WAY_IN)
        self._enforcer.leave_out({name: forecast.describe(one) for name, one in left_out.items()})
        for name, request in self._requests.items():
            if name not in left_out:
                # The probe's status shows the result.
                self._session.load(request).add_done_callback(lambda done: done.exception())

    def _left_out(self) -> Mapping[str, Forecast]:
        """The probes that do not fit into the budget together with those that run; none without a forecast."""
        from netconsole.budget.forecaster import forecast_now, running_pct

        wanted = [(self._manifests[name], request.mode) for name, request in self._requests.items()]
        try:
            found = forecast_now(wanted, host=self._host).forecasts
        except Unable as error:
            self._enforcer.note(BudgetAction(time.monotonic(), "", "no forecast", str(error)))
            return {}
        forecasts = [forecast.of_share(one, self._requests[one.probe].knobs) for one in found]
        for one in forecasts:
            self._enforcer.note(BudgetAction(time.monotonic(), one.probe, "forecast", forecast.describe(one)))
        with self._session.view() as state:
            others_pct = running_pct(state)
            packets = packets_per_s(state)
        budget = self._enforcer.profile.budget
        if forecast.excess([], budget, others_pct, packets) is not None:
            return {one.probe: one for one in forecasts}
        out = forecast.too_costly(forecasts, budget, list(self._requests), packets, others_pct)
        return {one.probe: one for one in out}
