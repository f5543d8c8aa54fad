"""The pane Cost: what runs, what is not known and why, and what was changed."""

from __future__ import annotations

from typing import Any

from netconsole.probes.catalogue import load_all
from netconsole.profile.profile import Budget, Profile
from netconsole.profile.spending import PACKETS_PROBE
from netconsole.telemetry.session import Connection
from netconsole.tui.panes.cost import budget, pane
from netconsole.tui.scene.scene import Scene
from tests.support.fake_collector import INTERVAL_NS, Scenario
from tests.support.tui.played import PlayedSession

MANIFESTS = load_all()
DROPS, WAITS = "kernel_drops", "tx_queue_latency"
PROFILE = Profile("summary", budget=Budget(kernel_cpu_pct=5.0, ns_per_packet=1000.0))


def scene(scenario: Scenario) -> Scene:
    return Scene(PlayedSession(scenario.end()).state, MANIFESTS, PROFILE, Connection("live"))


def cost(scenario: Scenario, probe: str, *programs: str, time_ns: int = 800_000) -> Scenario:
    its: list[dict[str, Any]] = [
        {"name": name, "attach": "raw_tracepoint:x", "run_count": 900, "run_time_ns": time_ns, "missed": 0}
        for name in programs
    ]
    statistics = {"window_ns": INTERVAL_NS, "interval_ns": INTERVAL_NS, "estimated": False}
    return scenario.frame("cost", probe, interval_ns=INTERVAL_NS, programs=its, statistics=statistics)


def shown(scenario: Scenario) -> list[str]:
    return [row.cells["program"].text for row in pane.program_rows(scene(scenario))]


def test_only_programs_that_run_are_listed() -> None:
    """The hook of each packet that a driver refuses is attached in details alone."""
    ended = f"{WAITS}.details"
    made = Scenario().hello().status(WAITS).status(ended, mode="details").status("unknown", mode="details")
    for probe in (WAITS, ended, "unknown"):
        cost(made, probe, "queued", "returned")
    listed = {f"{WAITS}/queued", f"{ended}/queued", f"{ended}/returned", "unknown/queued", "unknown/returned"}
    assert set(shown(made)) == listed
    assert set(shown(made.status(ended, "off", mode="details"))) == {f"{WAITS}/queued", *sorted(listed)[-2:]}


def per_packet(packets: int | None) -> list[str]:
    """Its line in the table."""
    made = cost(Scenario().hello().status(DROPS), DROPS, "drop", time_ns=8_400_000)
    if packets is not None:
        made.status(PACKETS_PROBE)
        made.table(PACKETS_PROBE, "cpus", [{"labels": {"cpu": 0}, "counts": {"processed": (packets, packets)}}])
    one = scene(made)
    (row,) = [row.cells for row in budget.rows(one) if row.cells["what"].text == "per packet"]
    return [row[name].text for name in ("now", "limit", "note")]


def test_a_time_per_packet_has_a_unit_that_people_know_or_the_reason_why_there_is_none() -> None:
    assert per_packet(100_000) == ["84 ns", "1 us", "kernel time per received packet"]
    assert per_packet(9_999) == ["–", "1 us", "not known below 10\u202f000 packets/s"]
    assert per_packet(None) == ["–", "1 us", f"not known without the probe {PACKETS_PROBE}"]


def test_the_strip_has_what_is_over_or_near_its_limit_and_nothing_else() -> None:
    def said(time_ns: int) -> list[str]:
        made = cost(Scenario().hello().status(DROPS), DROPS, "drop", time_ns=time_ns)
        for _ in range(budget.STARTING_INTERVALS):
            made.end()
        return ["".join(text for text, _ in group) for group in budget.strip(scene(made))]

    assert said(1_000_000) == []
    (near,), (over,) = said(45_000_000), said(84_000_000)
    assert near.startswith("in kernel ") and near.endswith(" of 5 % near") and over.endswith(" of 5 % over")


def test_the_title_of_actions_does_not_say_whose_they_are_where_they_are_of_both() -> None:
    assert pane.actions_block().title(scene(Scenario().hello())) == "Actions, ours and yours"
