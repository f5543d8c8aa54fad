"""What the enforcer makes of what it sees: news, probes that come and go, events a second, a profile that ends."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from netconsole.budget import enforcer as enforcer_module
from netconsole.profile.profile import Budget, Profile
from netconsole.telemetry.frames import Count
from tests.unit.budget.test_enforcer import NAME, PROFILE, SECOND_NS, governed


def test_only_the_end_of_an_interval_is_a_reason_to_look() -> None:
    session, _ = governed()
    (tell,), session._news = session._news, []
    session.second(3.0)
    tell("status")
    assert not session.done
    tell("interval")
    assert len(session.done) == 1


@pytest.mark.parametrize(("status", "is_governed"), [("compiling", True), ("failed", False), ("off", False)])
def test_a_probe_that_is_compiled_again_stays_governed_and_one_that_has_gone_does_not(
    status: str, is_governed: bool
) -> None:
    session, enforcer = governed()
    session.second(3.0)
    assert enforcer.lowered == (NAME,)
    knobs = session.state.probes[NAME].knobs
    session.status(status, "counters", knobs)
    session.second(0.0)
    assert (enforcer.governs(NAME), enforcer.lowered) == (is_governed, (NAME,) if is_governed else ())
    session.status("attached", "counters", knobs)
    session.second(0.0)
    assert enforcer.governs(NAME) and bool(enforcer.lowered) == is_governed
    assert not any("user" in action.because for action in enforcer.actions)


def test_what_the_base_of_a_profile_lacks_is_detached_when_its_time_has_ended() -> None:
    base = Profile("base", budget=Budget(action="warn"))
    session, enforcer = governed(replace(PROFILE, ttl_s=5.0, base=base))
    for _ in range(4):
        session.second(0.1)
    assert enforcer.profile is not base
    session.second(0.1)
    assert [(what, why) for what, _, why in session.done] == [("unload", "profile test was for 5 s")]
    assert [(one.probe, one.action) for one in enforcer.actions[-2:]] == [(NAME, "detached"), ("", "now profile base")]


@pytest.mark.parametrize(
    ("delta", "interval_ns", "mode", "per_s"),
    [
        (300, 2 * SECOND_NS, "details", 150.0),
        (13, SECOND_NS, "summary", 0.0),  # still on their way when it left mode details
        (None, SECOND_NS, "details", None),
        (3, 0, "details", None),
    ],
)
def test_events_are_told_by_the_second(delta: int | None, interval_ns: int, mode: str, per_s: float | None) -> None:
    events = {} if delta is None else {"submitted": Count(delta, 900)}
    state: Any = SimpleNamespace(collector=SimpleNamespace(interval_ns=interval_ns))
    probe: Any = SimpleNamespace(mode=mode, cost=SimpleNamespace(events=events))
    assert enforcer_module._reading(state, probe, 1.0, None).events_per_s == per_s


@pytest.mark.parametrize(
    ("share", "packets_per_s", "ns"),
    [(2.0, 20_000.0, 1000.0), (None, 20_000.0, None), (2.0, None, None), (2.0, 9.0, None)],
)
def test_time_per_packet_is_told_where_there_are_enough(
    share: float | None, packets_per_s: float | None, ns: float | None
) -> None:
    state: Any = SimpleNamespace(collector=SimpleNamespace(interval_ns=SECOND_NS))
    probe: Any = SimpleNamespace(cost=SimpleNamespace(events={}))
    assert enforcer_module._reading(state, probe, share, packets_per_s).ns_per_packet == ns
