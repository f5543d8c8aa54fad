"""One way to run: a plan, opened on a host, is a session with its budget, its escalations and probes that start later.

The console, a snapshot, a recording and each host of a rack are opened here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from netconsole.base.fact_keys import FactData
from netconsole.budget.enforcer import Enforcer, needs_windows
from netconsole.calibrate import store
from netconsole.escalation.escalator import Escalator
from netconsole.far.door import Approach
from netconsole.far.host import THIS_HOST, AnyHost
from netconsole.host import door, machine
from netconsole.probes.catalogue import typed_modules
from netconsole.profile.scope import scope_of
from netconsole.recording.recorder import Recorder, describe
from netconsole.recording.writer import MAX_BYTES, MAX_S
from netconsole.run import preflight
from netconsole.run.deferred_start import DeferredStart
from netconsole.run.namespace_there import located
from netconsole.run.preflight import RunPlan
from netconsole.session.commands import SELDOM_EVERY_MS
from netconsole.session.live import LiveSession
from netconsole.telemetry.request import ProbeRequest

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
        from netconsole.sources.facts import collect  # late: its readers take more memory than everything else

        scope = self.session.scope
        return {key: fact for key, fact in collect(self.host).items() if scope is None or scope.has_fact(key)}

    def recorder(
        self, path: Path, note: str | None = None, max_bytes: int = MAX_BYTES, max_s: float = MAX_S
    ) -> Recorder:
        """A recorder of it that is not attached yet. Raises BadInput."""
        plan = self.plan
        modes = {request.name: request.mode for request in plan.requests}
        header = describe(plan.profile, modes, plan.manifests, door.describe(self.host), note)
        return Recorder(path, header, plan.profile.budget, max_bytes, max_s)


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
    host = way.enter(typed_modules(plan.manifests))
    plan = located(plan, host)
    later = preflight.put_off(plan, host) if defers and not plan.force else []
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
    session = session_of(plan, host)
    enforcer = Enforcer(session, plan.profile, plan.manifests, host)
    enforcer.leave_out(left_out or {})
    DeferredStart(session, enforcer, plan.manifests, later, host).start()
    escalator = Escalator(session, enforcer, plan.manifests, host=host)
    escalator.start()
    try:
        yield LiveRun(replace(plan, requests=[*plan.requests, *later]), host, session, enforcer, escalator)
    finally:
        session.close()
        escalator.close()


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
