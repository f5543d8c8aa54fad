"""Assembles a live run: session, budget, escalations, and probes that start later."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from netconsole.budget.enforcer import Enforcer, needs_windows
from netconsole.calibrate import store
from netconsole.escalation.escalator import Escalator
from netconsole.far.host import THIS_HOST, AnyHost
from netconsole.host import machine
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import Profile
from netconsole.profile.scope import scope_of
from netconsole.run.deferred_start import DeferredStart
from netconsole.session.commands import SELDOM_EVERY_MS
from netconsole.session.live import LiveSession
from netconsole.telemetry.request import ProbeRequest


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A session, the enforcer of its budget, and who carries out escalations. The first two are not started."""

    session: LiveSession
    enforcer: Enforcer
    escalator: Escalator


@contextlib.contextmanager
def live_run(
    requests: Sequence[ProbeRequest],
    profile: Profile,
    manifests: Mapping[str, Manifest],
    *,
    left_out: Mapping[str, str] | None = None,
    later: Sequence[ProbeRequest] = (),
    every_s: float = SELDOM_EVERY_MS / 1000,
    host: AnyHost = THIS_HOST,
    interval_s: float = 1.0,
) -> Iterator[LiveRun]:
    """A run of ``requests``. It is closed at the end of the ``with``, whatever happened.

    ``left_out``: probes that do not start, and why. ``later``: probes that start when there is room for them.
    ``every_s``: see :func:`session_of`. ``host``: the one that is measured. ``interval_s``: from reading to reading.
    """
    session = session_of(requests, profile, manifests, every_s, host, interval_s)
    enforcer = Enforcer(session, profile, manifests, host)
    enforcer.leave_out(left_out or {})
    DeferredStart(session, enforcer, manifests, later, host).start()
    escalator = Escalator(session, enforcer, manifests, host=host)
    escalator.start()
    try:
        yield LiveRun(session, enforcer, escalator)
    finally:
        session.close()
        escalator.close()


def session_of(
    requests: Sequence[ProbeRequest],
    profile: Profile,
    manifests: Mapping[str, Manifest],
    every_s: float = SELDOM_EVERY_MS / 1000,
    host: AnyHost = THIS_HOST,
    interval_s: float = 1.0,
) -> LiveSession:
    """A session on a host. Run times are sampled as often as the profile's budget needs, else every ``every_s``."""
    machine.before_pct()  # from here on we cause load ourselves
    return LiveSession(
        host,
        requests,
        interval_s,
        statistics_every_s=every_s,
        is_often=needs_windows(profile),
        per_count=store.per_count(manifests) if host.about is None else None,  # calibrated on this machine
        scope=scope_of(profile, manifests),
    )
