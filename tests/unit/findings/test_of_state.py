"""What stands out of the measurement itself: probes that failed or changed, costs, losses, the lost collector."""

from __future__ import annotations

import pytest

from netconsole.findings.incidents import Incidents
from netconsole.findings.matches import OVER_BUDGET_AFTER, collector_lost, looked_at, of_governor, of_status
from netconsole.findings.open_incident import LEAVES_AFTER
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import Budget
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Count
from netconsole.telemetry.session import Connection
from netconsole.telemetry.state import State
from tests.unit.findings.test_incidents import matches, run, said
from tests.unit.telemetry.test_state import SECOND, Stream


def test_a_probe_that_failed_is_said_at_once(stream: Stream, manifests: dict[str, Manifest]) -> None:
    stream.status("failed", why="no such tracepoint", help="Linux 5.17 or later")
    stream.end()
    one = Incidents(manifests).update(stream.state)[0]
    assert (one.level, one.sentence, one.next) == (
        "?",
        "Sample: not measured: no such tracepoint",
        ("Linux 5.17 or later",),
    )


def test_probes_that_failed_for_one_reason_are_one_incident(stream: Stream, manifests: dict[str, Manifest]) -> None:
    findings = Incidents(manifests)
    for name, why in (("a", "ssh://hv: the line broke"), ("b", "ssh://hv: the line broke"), ("c", "no such file")):
        stream.state.apply(frames.Status(**stream.stamp(name), state="failed", mode="summary", why=why))
    stream.end()
    assert [one.sentence for one in findings.update(stream.state)] == [
        "2 probes: not measured: ssh://hv: the line broke",
        "c: not measured: no such file",
    ]


def test_a_probe_in_mode_counters_is_not_said_to_have_been_looked_at(
    stream: Stream, manifests: dict[str, Manifest]
) -> None:
    for name, mode in (("q", "summary"), ("r", "counters")):
        stream.state.apply(frames.Status(**stream.stamp(name), state="attached", mode=mode))  # type: ignore[arg-type]
    told = looked_at(stream.state, manifests)
    assert told == "nothing stands out in 2 probes; r: counters alone, at which no rule looks"
    for name in ("p", "q"):
        stream.state.apply(frames.Status(**stream.stamp(name), state="attached", mode="counters"))
    assert looked_at(stream.state, manifests).startswith("p, q, r: counters alone")


def test_what_a_source_leaves_out_is_said_where_nothing_stands_out(
    stream: Stream, manifests: dict[str, Manifest]
) -> None:
    why = "counters of 12 more network namespaces are left out: netconsole reads 128 at most"
    stream.state.apply(frames.Status(**stream.stamp("q"), state="degraded", mode="summary", why=why))
    assert looked_at(stream.state, manifests) == f"nothing stands out in 2 probes; q: {why}"
    other = frames.Status(**stream.stamp("q"), state="degraded", mode="summary", attach=["kprobe:f"], why="slower")
    stream.state.apply(other)
    assert looked_at(stream.state, manifests) == "nothing stands out in 2 probes", "it misses nothing"


def test_a_lost_collector_is_all_that_is_known(stream: Stream, manifests: dict[str, Manifest]) -> None:
    findings = Incidents(manifests)
    run(stream, findings, 2, 50)
    lost = findings.update(stream.state, Connection("lost", "exit status 7", 2.0))
    assert lost[0].level == "!!"
    assert lost[0].sentence == "the collector was lost: exit status 7; it starts again in 2 s"


def test_what_costs_more_than_its_budget_is_a_finding(stream: Stream, manifests: dict[str, Manifest]) -> None:
    program = frames.Program(name="drop", attach="x:y", run_count=1000, run_time_ns=10_000_000, missed=0)
    window = frames.Statistics(window_ns=200_000_000, interval_ns=SECOND, estimated=True)
    stream.cost(programs=[program], statistics=window)
    stream.end()
    assert matches(stream.state, manifests, Budget(kernel_cpu_pct=5.0)) == []
    (one,) = matches(stream.state, manifests, Budget(kernel_cpu_pct=2.0))
    assert said(one) == "netconsole uses 5 % of a core in the kernel, most of it p (5 %); its budget is 2 %"


def test_when_nothing_stands_out_it_says_what_was_looked_at(stream: Stream, manifests: dict[str, Manifest]) -> None:
    assert looked_at(State(), manifests) == "nothing is measured yet"
    stream.end()
    other = frames.Status(**stream.stamp("ovs"), state="unsupported", mode="summary", why="not on this host")
    stream.state.apply(other)
    away = "not looked at here: ovs (pane Cost says why)"
    assert looked_at(stream.state, manifests) == f"nothing stands out in 1 probe; {away}"


def test_what_starting_up_costs_is_no_finding(stream: Stream, manifests: dict[str, Manifest]) -> None:
    program = frames.Program(name="drop", attach="x:y", run_count=1000, run_time_ns=10_000_000, missed=0)
    window = frames.Statistics(window_ns=200_000_000, interval_ns=SECOND, estimated=True)
    findings = Incidents(manifests, Budget(kernel_cpu_pct=2.0))
    listed = []
    for _ in range(OVER_BUDGET_AFTER):
        stream.cost(programs=[program], statistics=window)
        stream.end()
        listed.append(len(findings.update(stream.state)))
    assert listed == [0] * (OVER_BUDGET_AFTER - 1) + [1]


def test_a_lost_collector_outweighs_everything() -> None:
    lost = collector_lost(Connection("lost", "", None))
    assert (said(lost), lost.value, lost.weight) == ("the collector was lost: no reason known", 0.0, float("inf"))


def test_a_probe_that_failed_has_no_weight(stream: Stream, manifests: dict[str, Manifest]) -> None:
    stream.status("failed", why="no such tracepoint")
    stream.end()
    (one,) = matches(stream.state, manifests)
    assert (one.value, one.weight, one.place, one.next) == (0.0, 0.0, {"probe": "p"}, "`netconsole doctor` says more.")


@pytest.mark.parametrize("status", ["attached", "off"])
def test_what_was_changed_to_keep_the_budget_says_how_to_get_it_back(
    stream: Stream, manifests: dict[str, Manifest], status: frames.ProbeStatus
) -> None:
    for help_, next_ in ((None, "It comes back by itself when the budget has room."), ("Stop it.", "Stop it.")):
        stream.status(status, why="counters alone", help=help_)
        stream.end()
        (one,) = of_governor(stream.state, manifests)
        assert (one.cause, one.level) == ("budget-kept", "!")
        assert said(one) == "netconsole slowed itself: Sample: counters alone"
        assert (one.value, one.weight, one.place) == (0.0, 0.0, {})
        assert one.next.startswith(next_)


def test_several_probes_that_measure_less_are_one_incident(stream: Stream, manifests: dict[str, Manifest]) -> None:
    both = {**manifests, "other": manifests["p"]}
    stream.status(why="summary, 50 % of the time: too dear")
    stream.state.apply(frames.Status(**stream.stamp("other"), state="attached", mode="counters", why="counters alone"))
    findings = Incidents(both)
    stream.end()
    (one,) = findings.update(stream.state)
    assert one.sentence == (
        "netconsole slowed itself: 2 probes measure less, Sample and Sample: summary, 50 % of the time: too dear"
    )
    assert {proof.probe for proof in one.evidence} == {"p", "other"} and one.is_ours
    stream.status()
    stream.state.apply(frames.Status(**stream.stamp("other"), state="attached", mode="summary"))
    for _ in range(LEAVES_AFTER + 1):
        stream.end()
        listed = findings.update(stream.state)
    assert listed == [] and [one.ended_ns is None for one in findings.log] == [False]


def test_details_of_an_escalation_say_so_while_they_last(stream: Stream) -> None:
    stream.status(why="looks at eth0 for 30 s")
    stream.end()
    (one,) = of_status(stream.state.probes["p"], None)
    assert (one.cause, one.level, said(one)) == ("escalated", "!", "p looks at eth0 for 30 s")
    assert (one.value, one.weight, one.place) == (0.0, 0.0, {"probe": "p"})
    stream.status("off", why="looked at eth0 for 30 s")
    assert not list(of_status(stream.state.probes["p"], None))


def test_a_probe_that_does_not_measure_misses_nothing(stream: Stream, manifests: dict[str, Manifest]) -> None:
    stream.cost(ledger={"missed": Count(delta=2, total=2), "map_full": Count(delta=3, total=3)})
    stream.end()
    probe = stream.state.probes["p"]
    (one,) = of_status(probe, manifests["p"])
    assert said(one) == "Sample: 2 runs missed, 3 found no room in a table, so its totals may be too low"
    assert (one.cause, one.level, one.value, one.weight) == ("lower-bound", "?", 0.0, 5.0)
    stream.status("unsupported", why="no such function")
    assert not list(of_status(probe, manifests["p"]))


def test_what_was_missed_is_said_as_it_stands_when_the_interval_is_over(
    stream: Stream, manifests: dict[str, Manifest]
) -> None:
    findings = Incidents(manifests)
    for delta, total in ((1, 1), (0, 1), (2, 3), (0, 3)):
        stream.cost(ledger={"missed": Count(delta, total), "unaccounted": Count(delta, total)})
        stream.end()
        findings.update(stream.state)
        (one,) = findings.log
        runs = "1 run missed" if total == 1 else "3 runs missed"
        assert one.sentence == f"Sample: {runs}, {total} in no row, so its totals may be too low"


def test_the_dearest_probe_is_named(stream: Stream, manifests: dict[str, Manifest]) -> None:
    for name, run_time_ns in (("p", 2_000_000), ("q", 8_000_000), ("r", 0)):
        stream.state.apply(frames.Status(**stream.stamp(name), state="attached", mode="summary"))
        program = frames.Program(name="drop", attach="x:y", run_count=9, run_time_ns=run_time_ns, missed=0)
        window = frames.Statistics(window_ns=200_000_000, interval_ns=SECOND, estimated=True)
        stamp, programs = stream.stamp(name), [program] if run_time_ns else []
        stream.state.apply(frames.Cost(**stamp, interval_ns=SECOND, programs=programs, statistics=window))
    stream.end()
    (one,) = matches(stream.state, manifests, Budget(kernel_cpu_pct=2.0))
    assert said(one) == "netconsole uses 5 % of a core in the kernel, most of it q (4 %); its budget is 2 %"
    assert (one.value, one.weight, one.needed) == (0.0, 0.0, OVER_BUDGET_AFTER)


def test_what_still_starts_is_still_to_come(stream: Stream, manifests: dict[str, Manifest]) -> None:
    for name in ("q", "r"):
        stream.state.apply(frames.Status(**stream.stamp(name), state="compiling", mode="summary"))
    assert looked_at(stream.state, manifests) == "nothing stands out in 1 probe; still to come: q, r"
