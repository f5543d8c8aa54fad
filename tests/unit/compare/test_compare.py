"""A comparison finds what changed, says nothing when nothing did, and never guesses what it cannot know."""

from __future__ import annotations

import json
from functools import cache, partial
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netconsole.base.fact_keys import FactData
from netconsole.compare import document as comparison
from netconsole.compare.compare import compare
from netconsole.probes.catalogue import load_all
from netconsole.probes.polarity import FigureKind, polarity
from netconsole.snapshot.document import EvidenceData, IncidentData, Snapshot, load
from tests.support import made_up
from tests.support.made_up import EMPTY, changed

SCHEMA = Path(__file__).parents[3] / "docs/reference/schema/comparison-1.json"
DROPS = "kernel_drops/table/drops/reason=QDISC_DROP,class=suspicious,location=netem_enqueue,device=vnet3,protocol=UDP"
WAIT = "tx_queue_latency/histogram/wait/device=vnet3,queue="


quick = cache(partial(made_up.snapshot, samples=500))


@pytest.mark.parametrize("snapshots", [1, 2, 5])
@pytest.mark.parametrize("day", [0.0, 0.1])
def test_nothing_is_found_where_nothing_changed(snapshots: int, day: float) -> None:
    """At most 1 of 20 trials may see something; single snapshots are trusted to vary by 10 % from run to run."""
    verdicts = []
    for trial in range(20):
        runs = [quick(1000 * trial + run, day=day) for run in range(snapshots + 1)]
        verdicts.append(compare(runs[-1], runs[:-1]).verdict)
    assert verdicts.count("same") >= 19


def test_what_is_worse_has_what_stands_out_there_and_what_to_do_next(five: list[Snapshot]) -> None:
    """The row of its evidence may have its labels in another order; no other finding gets it."""
    queues: list[dict[str, Any]] = [{"queue": queue, "device": "vnet3"} for queue in (0, 9)]
    told, other = (
        IncidentData(
            "!", "queue-late", what, evidence=[EvidenceData("tx_queue_latency", "histogram", "wait", labels)],
            next=["Look."], commands=["tc -s qdisc show"],
        )
        for what, labels in zip(("late", "elsewhere"), queues, strict=True)
    )  # fmt: skip
    late = msgspec.structs.replace(made_up.snapshot(77, wait_us=100), incidents=[other, told])
    found = {one.metric: (one.incident, one.next, one.commands) for one in compare(late, five).findings}
    assert found.pop(WAIT + "0") == ("late", ["Look."], ["tc -s qdisc show"])
    assert found and set(map(str, found.values())) == {"('', [], [])"}
    long = msgspec.structs.replace(told, what="x" * 10**6, next=["y"] * 10**5, commands=["z" * 10**6] * 10**3)
    huge = compare(msgspec.structs.replace(late, incidents=[long]), five)
    assert len(msgspec.json.encode(huge)) < 200_000, "as many findings repeat it"
    better = [msgspec.structs.replace(one, incidents=[told]) for one in five[:1]]
    assert not any(one.incident for one in compare(better[0], [made_up.snapshot(77, wait_us=100)]).findings)


def test_five_runs_teach_how_much_a_wilder_host_varies() -> None:
    verdicts = []
    for trial in range(20):
        runs = [quick(1000 * trial + run, day=0.4) for run in range(6)]
        verdicts.append(compare(runs[-1], runs[:-1]).verdict)
    assert verdicts.count("same") >= 19


@pytest.mark.parametrize("snapshots", [1, 5])
def test_a_delay_is_found_where_it_is(five: list[Snapshot], snapshots: int) -> None:
    found = compare(made_up.snapshot(77, wait_us=100), five[:snapshots])
    assert (found.verdict, found.exit_code) == ("regressed", 1)
    assert {finding.metric for finding in found.findings[:2]} == {WAIT + "0", WAIT + "1"}
    first = found.findings[0]
    assert (first.direction, first.significant, first.unit) == ("worse", True, "us")
    assert first.ratio == pytest.approx(5, rel=0.5)
    assert first.difference == pytest.approx((first.current or 0) - (first.baseline or 0))
    assert {figure.name for figure in first.figures} >= {"p50", "p90", "p99"}
    assert first.distance == pytest.approx(2.3, rel=0.2)  # log2(5)


@pytest.mark.parametrize("snapshots", [1, 5])
def test_drops_are_found_by_reason_and_place_and_their_sum_is_not_said_twice(
    five: list[Snapshot], snapshots: int
) -> None:
    found = compare(made_up.snapshot(77, drops_per_s=30), five[:snapshots])
    assert found.verdict == "regressed"
    assert found.findings[0].metric == DROPS
    assert found.findings[0].baseline == 0
    assert found.findings[0].ratio is None
    assert "of the change of kernel_drops/counter/drops" in found.findings[0].why
    assert not [one for one in found.findings if one.metric == "kernel_drops/counter/drops" and one.significant]


def test_an_improvement_is_not_a_regression(five: list[Snapshot]) -> None:
    found = compare(made_up.snapshot(77, wait_us=4), five)
    assert (found.verdict, found.exit_code) == ("changed", 0)
    assert found.findings[0].direction == "better"


def benign(more: int, reason: str, packets: int) -> Snapshot:
    """A run with so many times the benign drops, which are 3/s at each device."""
    document = made_up.document(77)
    for row in document["probes"]["link_rates"]["tables"]["links"]:
        row["rx_packets"] = packets * 10
    rows = document["probes"]["kernel_drops"]["tables"]["drops"]
    for row in rows:
        row |= {"count": row["count"] * more, "reason": reason}
    document["probes"]["kernel_drops"]["counters"]["drops"]["total"] = sum(row["count"] for row in rows)
    return msgspec.convert(document, Snapshot)


@pytest.mark.parametrize(
    ("more", "reason", "packets", "verdict", "direction"),
    [
        (10, "NO_SOCKET", 10_000, "changed", "different"),  # 0.3 % of the device's packets
        (10, "NO_SOCKET", 1000, "regressed", "worse"),  # 3 %
        (4, "NETFILTER_DROP", 1000, "regressed", "worse"),  # 1.2 %, and there were none
        (4, "NETFILTER_DROP", 100_000, "changed", "different"),  # 0.01 %
    ],
)
def test_benign_drops_are_worse_when_they_are_new_or_take_much_of_the_traffic(
    five: list[Snapshot], more: int, reason: str, packets: int, verdict: str, direction: str
) -> None:
    found = compare(benign(more, reason, packets), five)
    certain = [finding for finding in found.findings if finding.significant]
    assert (found.verdict, certain[0].direction) == (verdict, direction)
    if verdict == "regressed":
        assert "% of the packets of its device" in certain[0].why


def test_a_changed_fact_is_named_beside_the_findings_that_it_may_explain(five: list[Snapshot]) -> None:
    fact = "nic/vnet3/offload/tx-tcp-segmentation"
    found = compare(made_up.snapshot(77, wait_us=100, facts={fact: "off"}), five)
    assert found.findings[0].facts == [fact]
    [change] = found.facts_changed
    assert (change.fact, change.baseline, change.current) == (fact, "on", "off")
    assert change.may_explain[:2] == [1, 2]


def test_an_offload_that_was_switched_off_may_explain_what_softirqs_do(five: list[Snapshot]) -> None:
    """Segments that the device no longer makes are made, and taken in, by the CPU."""
    fact = "nic/vnet3/offload/tx-tcp-segmentation"

    def late(ns: float) -> dict[str, Any]:
        histogram = {"unit": "ns", "count": 2000, "sum": ns * 2000, "buckets": [[ns, ns * 1.1, 2000]]}
        return {"softirq_health": {"status": "attached", "histograms": {"late": histogram}}}

    before = changed(EMPTY, probes=late(3000.0), facts={fact: {"value": "on"}})
    found = compare(changed(EMPTY, probes=late(20_000.0), facts={fact: {"value": "off"}}), [before], (), load_all())
    assert (found.verdict, found.findings[0].facts) == ("regressed", [fact])


@pytest.mark.parametrize(
    ("change", "metric", "why"),
    [
        ({"status": "failed", "why": "no BTF"}, "kernel_drops", "failed in the current snapshot: no BTF"),
        ({"version": 2}, "kernel_drops", "the probe has version 2 now and had version 1"),
        ({"mode": "details"}, "kernel_drops", "the probe runs in mode details and ran in mode summary"),
        (
            {"status": "degraded", "attach": ["raw_tracepoint:x"]},
            "kernel_drops",
            "one of the snapshots lacks an attach point",
        ),
    ],
)
def test_what_cannot_be_compared_is_listed_with_the_reason(
    five: list[Snapshot], change: dict[str, Any], metric: str, why: str
) -> None:
    document = made_up.document(77, drops_per_s=50)
    document["probes"]["kernel_drops"].update(change)
    found = compare(msgspec.convert(document, Snapshot), five)
    assert next(one.why for one in found.not_comparable if one.metric == metric).startswith(why)
    assert not [one for one in found.findings if one.metric.startswith("kernel_drops/") and one.significant]


def test_figures_of_another_unit_are_no_change(five: list[Snapshot]) -> None:
    """A thousandfold: the older probe counted in microseconds."""
    document = made_up.document(9)
    for one in document["probes"]["tx_queue_latency"]["histograms"]["wait"]["by"]:
        one["unit"] = "ns"
    found = compare(msgspec.convert(document, Snapshot), five)
    assert not [one for one in found.findings if one.metric.startswith("tx_queue_latency")]
    whys = {one.why for one in found.not_comparable if one.metric.startswith("tx_queue_latency/histogram/wait")}
    assert whys == {"in ns and us: figures of different units cannot be compared"}


def test_a_probe_that_ran_on_neither_side_is_said_so_once(five: list[Snapshot]) -> None:
    document = made_up.document(77)
    document["probes"]["kernel_drops"] |= {"status": "unsupported", "why": "not here"}
    current = msgspec.convert(document, Snapshot)
    reasons = {one.metric: one.why for one in compare(current, [current]).not_comparable}
    assert reasons["kernel_drops"] == "unsupported on both sides: not here"
    reasons = {one.metric: one.why for one in compare(current, five).not_comparable}
    assert reasons["kernel_drops"] == "unsupported in the current snapshot: not here"


def test_a_counter_is_not_blamed_for_rows_that_are_benign_or_cannot_be_compared() -> None:
    """A flood to a closed port, and the drops of a container that has come: the counter of all drops is no finding."""

    def run(*rows: tuple[str, str, int]) -> Snapshot:
        cells = [{"netns": netns, "class": kind, "count": count} for netns, kind, count in rows]
        columns = {"drops": {"labels": ["netns", "class"], "values": {"count": {"unit": "packets", "worse": "up"}}}}
        total = {"drops": {"total": sum(count for _, _, count in rows), "unit": "packets", "worse": "up"}}
        probe = {"status": "attached", "tables": {"drops": cells}, "columns": columns, "counters": total}
        facts: dict[str, Any] = {"netns_count": {"value": len({netns for netns, _, _ in rows}) - 1, "volatile": True}}
        facts |= {f"netns/4026532{netns}/name": {"value": netns} for netns, _, _ in rows if netns != "host"}
        return changed(EMPTY, probes={"p": probe}, facts=facts)

    quiet = run(("host", "suspicious", 5), ("host", "benign", 5))
    found = compare(run(("host", "suspicious", 6), ("host", "benign", 9000), ("blue", "suspicious", 9000)), [quiet])
    assert [(one.metric, one.direction) for one in found.findings] == [
        ("p/table/drops/netns=host,class=benign", "different")
    ]
    assert "of the change of" not in found.findings[0].why
    many = [("host", f"kind {number}", 9) for number in range(100)]  # each too few for a line, all together not
    [counter] = compare(run(("host", "benign", 9000), *many), [quiet]).findings[:1]
    assert (counter.metric, counter.direction, counter.current) == ("p/counter/drops", "worse", 90.0)
    assert counter.why.endswith("; rows that are benign or not comparable are left out")


def test_two_tables_of_one_counter_take_no_more_from_it_than_it_has() -> None:
    def run(count: int) -> Snapshot:
        tables = {name: [{"class": "benign", "count": count}] for name in ("drops", "flows")}
        column = {"labels": ["class"], "values": {"count": {"unit": "packets", "worse": "up"}}}
        total = {"drops": {"total": count, "unit": "packets", "worse": "up"}}
        probe = {"status": "attached", "tables": tables, "columns": dict.fromkeys(tables, column), "counters": total}
        return changed(EMPTY, probes={"p": probe}, facts={})

    assert {one.direction for one in compare(run(9000), [run(5)]).findings} == {"different"}


def test_a_row_missing_from_a_full_table_is_not_a_zero(five: list[Snapshot]) -> None:
    documents = [made_up.document(seed) for seed in range(3)]
    for document in documents:
        document["probes"]["kernel_drops"]["ledger"] = {"map_full": 3}
    found = compare(made_up.snapshot(9, drops_per_s=50), [msgspec.convert(one, Snapshot) for one in documents])
    assert {one.metric: one.why for one in found.not_comparable}[DROPS].startswith("the table was full")


def test_how_busy_the_machine_was_is_a_condition_and_no_finding(five: list[Snapshot]) -> None:
    machine = {"status": "attached", "tables": {"machine": [{"machine_cpu_pct": 90.0}]}}
    document = made_up.document(77)
    document["probes"]["self_cost"], document["cost"] = machine, {"machine_cpu_pct": 61.0, "kernel_cpu_pct": None}
    found = compare(msgspec.convert(document, Snapshot), five)
    assert found.verdict == "same"
    [condition] = found.conditions
    assert (condition.unit, condition.low, condition.high, condition.current) == ("%", None, None, 61.0)


def test_other_profiles_are_named(five: list[Snapshot]) -> None:
    found = compare(changed(made_up.document(7), profile={"name": "drops"}), five)
    why = next(one.why for one in found.not_comparable if one.metric == "profile")
    assert why.startswith("the profiles differ (now drops, before summary)")


def test_the_order_of_the_baseline_does_not_matter(five: list[Snapshot]) -> None:
    current = made_up.snapshot(77, wait_us=60, drops_per_s=20)
    forward, backward = compare(current, five), compare(current, five[::-1])
    assert forward.findings == backward.findings


def test_a_comparison_satisfies_its_schema(five: list[Snapshot]) -> None:
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    for current in (made_up.snapshot(77, wait_us=100, drops_per_s=20), five[0]):
        validator.validate(json.loads(comparison.encode(compare(current, five))))


def test_the_committed_snapshot_of_version_1_compares_with_itself() -> None:
    snapshot = load(Path(__file__).parents[2] / "support/data/snapshot-version-1.json")
    found = compare(snapshot, [snapshot], ["friday.json"])
    assert found.verdict == "same"
    assert found.baseline[0].name == "friday.json"
    assert "vhost" in {one.metric for one in found.not_comparable}


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.floats(0, 1e6), st.floats(0, 1e6))
def test_any_two_counts_can_be_compared(first: int, second: int, first_s: float, second_s: float) -> None:
    def of(total: int, seconds: float) -> Snapshot:
        counters = {"drops": {"total": total, "unit": "packets"}}
        return changed(EMPTY, duration_s=seconds, probes={"p": {"status": "attached", "counters": counters}}, facts={})

    compare(of(first, first_s), [of(second, second_s)])
    compare(of(first, first_s), [of(second, second_s)] * 3)


def test_a_run_that_took_no_time_is_left_out(five: list[Snapshot]) -> None:
    found = compare(changed(made_up.document(7), duration_s=0.0), five)
    assert (found.verdict, found.compared, found.exit_code) == ("unknown", 0, 3)


def of_probe(name: str, total: int | None = 0, **more: Any) -> Snapshot:
    """A snapshot of one probe with a counter; without one, if its total is None."""
    counters = {} if total is None else {"errors": {"total": total, "unit": "packets"}}
    return changed(EMPTY, probes={name: {"status": "attached", "counters": counters, **more}}, facts={})


def test_a_place_in_a_ring_is_no_figure() -> None:
    """It is another one in each snapshot, and says nothing."""

    def of(number: int) -> Snapshot:
        rows, columns = [{"at": number, "depth": 3}], {"at": {"kind": "max", "unit": "index"}, "depth": {"kind": "max"}}
        return of_probe("a", None, tables={"t": rows}, columns={"t": {"values": columns}})

    found = compare(of(60_000), [of(number) for number in (1, 2, 3, 4)])
    assert found.findings == [] and "t.at" not in str(found.not_comparable)


def test_nothing_that_could_be_compared_is_not_the_same() -> None:
    """Also if a setting changed: nobody knows whether the path is worse."""
    found = compare(of_probe("a", 5), [of_probe("b", 9)])
    assert (found.verdict, found.exit_code, found.compared) == ("unknown", 3, 0)
    assert found.why_unknown == "a: not in the baseline; b: not in the current snapshot"
    facts = {name: {"value": value} for name, value in (("cpu/governor", "powersave"),)}
    now, before = of_probe("a"), changed(made_up.document(1) | {"probes": {}}, facts={"cpu/governor": {"value": "x"}})
    found = compare(msgspec.structs.replace(now, facts=msgspec.convert(facts, dict[str, FactData])), [before])
    assert (found.verdict, [one.fact for one in found.facts_changed]) == ("unknown", ["cpu/governor"])
    none = changed(EMPTY, probes={})
    assert (compare(none, [none]).verdict, compare(none, [none]).why_unknown) == (
        "unknown",
        "no probe measured on both sides",
    )
    gauge = {"tables": {"t": [{"depth": 3}]}, "columns": {"t": {"values": {"depth": {"kind": "max"}}}}}
    found = compare(of_probe("a", None, **gauge), [of_probe("a", None, **gauge)])
    assert (found.verdict, found.why_unknown) == (
        "unknown",
        "a/gauge/t: fewer than three runs of the baseline have this figure",
    )


def test_nothing_on_both_sides_is_the_same() -> None:
    assert compare(of_probe("a"), [of_probe("a")]).verdict == "same"
    assert compare(of_probe("a", None), [of_probe("a", None)]).verdict == "same"


@pytest.mark.parametrize(("probes", "said"), [(3, "p0: w; p1: w; p2: w"), (5, "p0: w; p1: w; p2: w; and 2 more")])
def test_three_reasons_say_why_nothing_could_be_compared(probes: int, said: str) -> None:
    left_out = [comparison.NotComparable(f"p{n}", "w") for n in range(probes)]
    found = comparison.Comparison(verdict="unknown", findings=[], facts_changed=[], not_comparable=left_out)
    assert found.why_unknown == said


@pytest.mark.parametrize(("time_s", "compared"), [(0.4955, False), (0.5, True), (0.887, True), (0.99996, True)])
def test_a_run_of_a_second_that_ended_half_an_interval_early_is_compared(time_s: float, compared: bool) -> None:
    def of(total: int) -> Snapshot:
        probe = {
            "status": "attached",
            "duration_s": time_s,
            "counters": {"errors": {"total": total, "unit": "packets"}},
        }
        return changed(EMPTY, duration_s=1.0, probes={"p": probe}, facts={})

    found = compare(of(1000), [of(1000)])
    assert found.compared == compared
    reasons = [one.why for one in found.not_comparable]
    assert reasons == ([] if compared else ["one of the snapshots is shorter than 1 s"])


def test_what_the_manifest_says_of_worse_is_what_counts() -> None:
    def worse(said: str | None) -> str:
        def of(total: int) -> Snapshot:
            counters = {"errors": {"total": total, "unit": "packets", "worse": said}}
            return changed(EMPTY, probes={"p": {"status": "attached", "counters": counters}})

        return compare(of(10_000), [of(10)]).findings[0].direction

    assert [worse(said) for said in ("up", "down", "none", None)] == ["worse", "better", "different", "worse"]


@pytest.mark.parametrize(
    ("kind", "name", "unit", "worse"),
    [
        ("count", "rx_dropped", "packets", "up"),
        ("count", "megaflow_hits", "packets", "down"),
        ("count", "rx_packets", "packets", "none"),
        ("count", "related", "packets", "none"),
        ("histogram", "wait", "ns", "up"),
        ("gauge", "rx_longest_ns", "ns", "up"),
        ("count", "rx_ns", "ns", "none"),
    ],
)
def test_the_usual_sense_follows_kind_unit_and_name(kind: FigureKind, name: str, unit: str, worse: str) -> None:
    assert polarity(kind, name, unit) == worse
