"""Drops of one device arm details for it alone; the frames around it and a snapshot are kept, the summary goes on."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from netconsole.budget.enforcer import Enforcer
from netconsole.escalation.escalator import Escalator
from netconsole.probes.catalogue import load_all
from netconsole.profile.escalation_rules import SUFFIX
from netconsole.profile.loader import load_file
from netconsole.profile.plan import plan
from netconsole.recording.reader import Recording
from netconsole.run.assembly import session_of
from netconsole.run.preflight import RunPlan
from netconsole.telemetry import frames
from netconsole.telemetry.action import BudgetAction
from tests.support.live.measurement import Measurement, manifest_of
from tests.support.live.network import Namespace, Wire, send_udp
from tests.support.live.storm import CLOSED_PORT, Storm

pytestmark = pytest.mark.starting

PROBE = "kernel_drops"
LIMIT_S = 60.0
PER_S = 3000
MANY = 20_000
PROFILE = f"""
[probes.{PROBE}]
mode = "summary"

[[escalate]]
probe = "{PROBE}"
table = "drops"
value = "count"
where = {{ device = "lo" }}
over = 500.0
for = "1s"
keep = "2s"
events_per_s = 40
"""


def test_details_are_held_to_a_bound_of_their_own(collector: Measurement, wire: Wire) -> None:
    """Hardly anything, and the probe whose summary goes on as much as it wants."""
    manifest = manifest_of(PROBE)
    knobs = {**manifest.knobs, "netns": wire.b.inode, "protocol": "udp"}
    of_source = {"spec": manifest.raw, "source": manifest.code()}
    command = {"command": "load", "probe": PROBE + SUFFIX, "mode": "details", "knobs": knobs, **of_source}
    assert collector.command(**command, kernel_cpu_pct=0.01).ok
    collector.load(PROBE, "details", netns=wire.b.inode, protocol="udp")
    assert collector.command(command="bound", kernel_cpu_pct=0).ok
    collector.begin()
    send_udp(wire.a, wire.ADDRESSES[1], CLOSED_PORT, MANY)
    collector.settle()
    assert [collector.counter(name, "drops") for name in (PROBE, PROBE + SUFFIX)] == [MANY, MANY]
    assert collector.ledger(PROBE, "estimated") == 0 and collector.ledger(PROBE + SUFFIX, "estimated") > MANY / 2


def test_details_come_for_what_crossed_and_go_again(tmp_path: Path, namespace: Namespace) -> None:
    path = tmp_path / "night.toml"
    path.write_text(f"[filters]\nnetns = {namespace.inode}\n{PROFILE}")
    manifests = load_all()
    profile = load_file(path, manifests)
    session = session_of(RunPlan(profile, manifests, plan(profile, manifests)))
    enforcer = Enforcer(session, profile, manifests)
    kept = tmp_path / "kept"
    escalator = Escalator(session, enforcer, manifests, kept)
    changed = threading.Condition()
    actions: list[BudgetAction] = []

    def notify(news: object) -> None:
        with changed:
            if isinstance(news, BudgetAction):
                actions.append(news)
            changed.notify_all()

    def until(true: Callable[[], bool]) -> None:
        with changed:
            assert changed.wait_for(true, LIMIT_S), "did not come to pass"

    escalator.start()
    enforcer.start()
    session.on_news(notify)
    enforcer.on_action(notify)
    session.start()
    try:
        until(lambda: session.settled() and session.age_s() is not None)
        with Storm(namespace, PER_S) as storm:
            until(lambda: any("details ended" in action.action for action in actions))
            sent = storm.stop()
        until(lambda: any("snapshot" in action.action for action in actions))
        with session.view() as state:
            probe = state.probes[PROBE]
            total, status = probe.counters["drops"].count.total, state.probes[PROBE + SUFFIX].status
    finally:
        session.close()
        escalator.close()
    print(*actions, sep="\n")
    assert total == sent, "the summary counted everything meanwhile"
    assert status == "off"
    said = [action.action for action in actions]
    assert "device=lo" in said[0] and f"netns={namespace.name}" in said[0] and "details ended" in said[1]

    (snapshot,) = kept.glob("*.json")
    taken = json.loads(snapshot.read_text())
    details = taken["probes"][PROBE + SUFFIX]
    assert details["mode"] == "details"
    assert {event["device"] for event in details["events"]} == {"lo"}
    assert 0 < len(details["events"]) <= details["counters"]["drops"]["total"] <= sent
    assert "lo" in taken["note"] and taken["governor"]
    assert oct(snapshot.stat().st_mode & 0o777) == "0o600"

    recording = Recording(snapshot.with_suffix(".ncrec"))
    seconds = (recording.end.mono_ns - recording.begin.mono_ns) / 1e9
    told = [frame for block in range(len(recording.blocks)) for frame in recording.frames(block)]
    recording.close()
    assert [frame.action for frame in told if isinstance(frame, frames.Action)] == said[:2]
    assert seconds >= 4.0, "the two of the details, and two after them"
