"""A comparison finds what changed, says nothing when nothing did, and never guesses what it cannot know."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netconsole.compare import document as comparison
from netconsole.compare.compare import compare
from netconsole.compare.facts import changed_facts
from netconsole.compare.metrics import Metric, flatten, metric_key
from netconsole.probes.catalogue import load_all, shipped
from netconsole.probes.manifest import GovernedSpec
from netconsole.probes.polarity import FigureKind, polarity
from netconsole.snapshot.document import Snapshot, load
from tests.support import made_up

SCHEMA = Path(__file__).parents[3] / "docs/reference/schema/comparison-1.json"
DROPS = "kernel_drops/table/drops/reason=QDISC_DROP,class=suspicious,location=netem_enqueue,device=vnet3,protocol=UDP"
EMPTY = made_up.document(1, samples=1)
WAIT = "tx_queue_latency/histogram/wait/device=vnet3,queue="


@pytest.fixture(scope="module")
def five() -> list[Snapshot]:
    """A baseline of five runs, each 10 % off on its own."""
    return [made_up.snapshot(seed) for seed in range(5)]


quick = cache(partial(made_up.snapshot, samples=500))
lossy = cache(partial(made_up.with_losses, samples=50))


def changed(document: dict[str, Any], **change: Any) -> Snapshot:
    """A document with other values, loaded."""
    return msgspec.convert({**document, **change}, Snapshot)


def keys(snapshot: Snapshot) -> dict[str, Metric]:
    """The metrics of a snapshot by their keys."""
    return {metric.key: metric for metric in flatten(snapshot).by_identity.values()}


@pytest.mark.parametrize("snapshots", [1, 2, 5])
@pytest.mark.parametrize("day", [0.0, 0.1])
def test_nothing_is_found_where_nothing_changed(snapshots: int, day: float) -> None:
    """At most 1 of 20 trials may see something; single snapshots are trusted to vary by 10 % from run to run."""
    verdicts = []
    for trial in range(20):
        runs = [quick(1000 * trial + run, day=day) for run in range(snapshots + 1)]
        verdicts.append(compare(runs[-1], runs[:-1]).verdict)
    assert verdicts.count("same") >= 19


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


def test_a_device_that_came_is_one_change_and_unknown_facts_are_none(five: list[Snapshot]) -> None:
    facts = {f"nic/veth{n}/{name}": 1 for n in (1,) for name in ("mtu", "tx_queue_len", "kind")}
    current = made_up.snapshot(77, facts={**facts, "cpu/governor": None})
    baseline = made_up.snapshot(1, facts={"cpu/governor": "performance"})
    [change] = changed_facts(flatten(current), [flatten(baseline)])
    assert (change.fact, change.baseline, change.current) == ("nic/veth1", None, "there")


def test_taps_are_compared_by_vm_not_by_number(five: list[Snapshot]) -> None:
    def renumbered(first: int) -> Snapshot:
        text = json.dumps(made_up.document(7))
        for number in range(4):
            text = text.replace(f'"vnet{number}"', f'"vnet{first + number}"')
        document = json.loads(text)
        document["facts"] = {
            f"vm/web-{number}/net/0/tap": {"value": f"vnet{first + number}", "source": "", "volatile": True}
            for number in range(4)
        }
        return msgspec.convert(document, Snapshot)

    found = compare(renumbered(40), [renumbered(10)])
    assert found.verdict == "same"
    assert "tx_queue_latency/histogram/wait/device=web-3 net0,queue=1" in keys(renumbered(10))


def test_rows_that_become_one_are_added_up() -> None:
    document = made_up.document(1)
    rows = [{"process": f"nginx/{pid}", "netns": pid, "count": 5} for pid in (10, 11)]
    document["probes"]["kernel_drops"]["tables"] = {"by_process": rows}
    document["probes"]["kernel_drops"]["columns"] = {
        "by_process": {"labels": ["process", "netns"], "values": {"count": {"unit": "packets"}}}
    }
    metrics = keys(msgspec.convert(document, Snapshot))
    assert metrics["kernel_drops/table/by_process/process=nginx,netns=other"].count == 10


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


def test_a_probe_or_device_of_one_side_alone_is_not_a_change_from_nothing(five: list[Snapshot]) -> None:
    document = made_up.document(77)
    document["probes"]["new"] = document["probes"]["kernel_drops"]
    document["facts"] |= {f"nic/vnet{n}/mtu": {"value": 1500} for n in range(4)} | {"nic/eth9/mtu": {"value": 1500}}
    document["probes"]["link_rates"]["tables"]["links"].append({"device": "eth9", "rx_packets": 10**6, "rx_errors": 0})
    baseline = [made_up.snapshot(seed, facts={f"nic/vnet{n}/mtu": 1500 for n in range(4)}) for seed in range(3)]
    found = compare(msgspec.convert(document, Snapshot), baseline)
    reasons = {one.metric: one.why for one in found.not_comparable}
    assert reasons["new"] == "not in the baseline"
    assert reasons["link_rates/table/links.rx_packets/device=eth9"] == "no such device on the baseline side"


def test_a_network_namespace_that_came_is_no_change_from_nothing_and_has_its_name() -> None:
    def run(namespaces: dict[str, str], *rows: tuple[str, int]) -> Snapshot:
        cells = [{"device": "eth0", "netns": namespace, "count": count} for namespace, count in rows]
        columns = {"drops": {"labels": ["device", "netns"], "values": {"count": {"unit": "packets", "worse": "up"}}}}
        probe = {"status": "attached", "tables": {"drops": cells}, "columns": columns}
        facts: dict[str, object] = {"netns_count": len(namespaces)}
        facts |= {f"netns/{inode}/process": name for inode, name in namespaces.items()}
        described = {name: {"value": value, "volatile": True} for name, value in facts.items()}
        return changed(EMPTY, probes={"p": probe}, facts=described)

    before = run({"4026532001": "nginx"})
    found = compare(run({"4026532005": "nginx"}, ("4026532005", 5000)), [before])
    assert [one.metric for one in found.findings] == ["p/table/drops/device=eth0,netns=of nginx"]
    assert found.verdict == "regressed"
    found = compare(run({"4026532001": "nginx", "4026532009": "runner"}, ("4026532009", 5000)), [before])
    assert found.verdict == "same"
    [left_out] = found.not_comparable
    assert left_out.metric == "p/table/drops/device=eth0,netns=of runner"
    assert left_out.why == "no such network namespace on the baseline side"
    # The facts of an older snapshot say nothing of namespaces: what is not there is then a 0.
    older = msgspec.structs.replace(before, facts={})
    assert compare(run({}, ("blue", 5000)), [older]).verdict == "regressed"


def test_links_from_before_they_named_their_namespace_are_those_of_the_host() -> None:
    def run(probe: str, *rows: tuple[str | None, int], labels: Sequence[str] = ("device", "netns")) -> Snapshot:
        cells = [{"device": "eth0", "count": count} | ({"netns": netns} if netns else {}) for netns, count in rows]
        columns = {"links": {"labels": list(labels), "values": {"count": {"unit": "packets", "worse": "up"}}}}
        return changed(EMPTY, probes={probe: {"status": "attached", "tables": {"links": cells}, "columns": columns}})

    manifests = load_all()
    for before in (run("link_rates", (None, 5000), labels=["device"]), run("link_rates", (None, 5000))):
        found = compare(run("link_rates", ("host", 50_000), ("blue", 5000)), [before], (), manifests)
        assert {one.metric for one in found.findings} == {
            "link_rates/table/links/device=eth0",
            "link_rates/table/links/device=eth0,netns=blue",
        }
        assert compare(run("link_rates", ("host", 5000)), [before], (), manifests).findings == []
    found = compare(run("other", ("host", 50_000)), [run("other", ("host", 5000))], (), manifests)
    assert [one.metric for one in found.findings] == ["other/table/links/device=eth0,netns=host"]


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


def test_a_burst_is_one_event_and_what_lasts_is_many() -> None:
    def run(per_s: list[float]) -> Snapshot:
        total = round(sum(per_s))
        drops = {"status": "attached", "counters": {"drops": {"total": total, "unit": "packets"}}}
        return changed(EMPTY, duration_s=float(len(per_s)), probes={"p": {**drops, "history": {"drops": per_s}}})

    quiet = [run([0.0] * 10) for _ in range(5)]
    assert compare(run([0.0] * 4 + [12.0] + [0.0] * 5), quiet).verdict == "same"
    assert compare(run([1.0, 2.0, 1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0]), quiet).verdict == "regressed"


def test_a_steady_loss_is_found_with_a_single_snapshot_and_a_burst_is_not() -> None:
    """1 % of 1000 packets/s, over three seconds."""

    def run(*per_s: float) -> Snapshot:
        drops = {"status": "attached", "counters": {"drops": {"total": round(sum(per_s)), "unit": "packets"}}}
        return changed(EMPTY, duration_s=float(len(per_s)), probes={"p": {**drops, "history": {"drops": per_s}}})

    assert compare(run(10.0, 11.0, 9.0), [run(0.0, 0.0, 0.0)]).verdict == "regressed"
    assert compare(run(0.0, 30.0, 0.0), [run(0.0, 0.0, 0.0)]).verdict == "same"


@pytest.mark.parametrize("bursts", [False, True])
@pytest.mark.parametrize(
    ("by", "share", "regressed"),
    [
        ("", 0.0, range(2)),
        ("a firewall", 0.01, range(20, 21)),
        ("a full socket", 0.01, range(20, 21)),
        ("a policer", 0.01, range(20, 21)),
        ("a firewall", 0.002, range(15, 21)),
        ("a policer", 0.002, range(20, 21)),
    ],
)
def test_a_steady_loss_is_found_by_whatever_it_is_made_also_beside_bursts(
    by: str, share: float, bursts: bool, regressed: range
) -> None:
    """Of 20 trials; the same again is called a change in one at most. 0.2 % are 20 packets in a run."""
    verdicts = []
    for trial in range(20):
        *baseline, current = (100 * trial + number for number in range(4))
        before = [lossy(seed, bursts=bursts) for seed in baseline]
        verdicts.append(compare(made_up.with_losses(current, by=by, share=share, bursts=bursts, samples=50), before))
    assert [one.verdict for one in verdicts].count("regressed") in regressed
    assert by or [one.verdict for one in verdicts].count("same") >= 19
    if share == 0.01:
        assert all(made_up.LOSSES[by][0] in one.findings[0].metric for one in verdicts)


def test_a_burst_of_another_reason_in_the_baseline_hides_no_loss_in_an_older_snapshot() -> None:
    """It has no histories of rows: how all rows moved together counts, where it is known that this one was there."""

    def run(netfilter: list[float], closes: list[float]) -> Snapshot:
        rows = [
            {"reason": reason, "class": "benign", "count": round(sum(per_s))}
            for reason, per_s in (("NETFILTER_DROP", netfilter), ("SOCKET_CLOSE", closes))
            if sum(per_s)
        ]
        columns = {"drops": {"labels": ["reason", "class"], "values": {"count": {"unit": "packets", "worse": "up"}}}}
        history = {"drops.count": [one + other for one, other in zip(netfilter, closes, strict=True)]}
        probe = {"status": "attached", "tables": {"drops": rows}, "columns": columns, "history": history}
        return changed(EMPTY, probes={"p": probe}, facts={})

    none, loss, burst = [0.0] * 10, [10.0] * 10, [0.0] * 4 + [400.0] + [0.0] * 5
    found = compare(run(loss, none), [run(none, none), run(none, burst), run(none, none)])
    assert (found.verdict, found.findings[0].direction) == ("regressed", "worse")
    assert compare(run(burst, none), [run(none, none), run(none, burst), run(none, none)]).verdict == "same"


def test_what_one_run_of_the_baseline_had_another_may_have_a_little_more_of() -> None:
    def run(per_s: int) -> Snapshot:
        rows = [{"reason": "QDISC_DROP", "count": 10 * per_s}] if per_s else []
        columns = {"drops": {"labels": ["reason"], "values": {"count": {"unit": "packets", "worse": "up"}}}}
        history = {"drops.count": [[float(per_s)] * 10] if per_s else []}
        probe = {"status": "attached", "tables": {"drops": rows}, "columns": columns, "row_history": history}
        return changed(EMPTY, probes={"p": probe}, facts={})

    assert compare(run(11), [run(0), run(10), run(0)]).verdict == "same"
    assert compare(run(30), [run(0), run(10), run(0)]).verdict == "regressed"


def test_traffic_that_comes_in_bursts_is_held_against_its_own_unrest() -> None:
    """A table has no counter: how its rows moved together, interval by interval, says how far a rate can be trusted."""

    def run(*per_s: float) -> Snapshot:
        cells = [{"device": "eth0", "rx_packets": round(sum(per_s))}]
        columns = {"links": {"labels": ["device"], "values": {"rx_packets": {"unit": "packets"}}}}
        probe = {"status": "attached", "tables": {"links": cells}, "columns": columns}
        history = {"history": {"links.rx_packets": per_s}}
        return changed(EMPTY, duration_s=float(len(per_s)), probes={"p": probe | history}, facts={})

    assert compare(run(0, 90, 0, 0, 2700, 0, 0, 0, 40, 0), [run(0, 0, 600, 0, 0, 0, 0, 3, 0, 0)]).verdict == "same"
    assert compare(run(*[283] * 10), [run(*[60] * 10)]).verdict == "changed"


def test_a_little_traffic_beside_much_is_no_finding_and_a_little_loss_is() -> None:
    def run(**others: int) -> Snapshot:
        cells = [
            {"device": "eth0", "rx_packets": 1000, "tx_packets": 33_000, "errors": 0},
            {"device": "lo", "rx_packets": 0, "tx_packets": 0, "errors": 0, **others},
        ]
        values = {name: {"unit": "packets", "worse": "none"} for name in ("rx_packets", "tx_packets")}
        columns = {"links": {"labels": ["device"], "values": values | {"errors": {"unit": "packets", "worse": "up"}}}}
        probe = {"status": "attached", "tables": {"links": cells}, "columns": columns}
        return changed(EMPTY, probes={"p": probe}, facts={})

    assert compare(run(rx_packets=250), [run()]).verdict == "same"
    assert compare(run(rx_packets=2500), [run()]).verdict == "changed"
    assert compare(run(errors=250), [run()]).verdict == "regressed"


def test_the_tail_of_a_single_snapshot_is_trusted_less_than_its_middle() -> None:
    def run(slowest_us: float) -> Snapshot:
        buckets = [[1.0, 1.1, 3200], [slowest_us, slowest_us * 1.1, 100]]
        data = {"unit": "us", "count": 3300, "sum": 3300.0, "buckets": buckets}
        return changed(EMPTY, probes={"p": {"status": "attached", "histograms": {"wait": data}}})

    assert compare(run(35.0), [run(10.0)]).verdict == "same"
    assert compare(run(90.0), [run(10.0)]).verdict == "regressed"


def test_a_mean_that_one_sample_has_moved_is_no_change() -> None:
    def run(slowest_us: float) -> Snapshot:
        buckets = [[1.0, 1.1, 20_000], [slowest_us, slowest_us * 1.1, 1]]
        data = {"unit": "us", "count": 20_001, "sum": 21_000 + 1.05 * slowest_us, "buckets": buckets}
        return changed(EMPTY, probes={"p": {"status": "attached", "histograms": {"late": data}}})

    assert compare(run(57_000.0), [run(5.0)] * 5).verdict == "same"


@pytest.mark.parametrize(
    ("unit", "fast", "verdict"),
    [
        ("us", (50.0, 10.0), "changed"),  # four in ten wait a fifth as long, and no percentile says so
        ("us", (50.0, 40.0), "same"),
        ("ns", (800.0, 160.0), "same"),  # as much on a log scale, and less than a microsecond
    ],
)
def test_a_shape_is_a_finding_only_where_it_is_worth_one(unit: str, fast: tuple[float, float], verdict: str) -> None:
    slow = 20 * max(fast)

    def run(share: int, fastest: float) -> Snapshot:
        buckets = sorted([[fastest, fastest * 1.1, share], [slow, slow * 1.1, 2000 - share]])
        data = {"unit": unit, "count": 2000, "sum": 1000.0 * 2000, "buckets": buckets}
        return changed(EMPTY, probes={"p": {"status": "attached", "histograms": {"wait": data}}})

    baseline = [run(800 + 5 * seed, fast[0]) for seed in range(5)]
    found = compare(run(810, fast[1]), baseline)
    assert found.verdict == verdict
    if verdict == "changed":
        assert (found.findings[0].statistic, found.findings[0].direction) == ("shape", "different")


def test_a_shape_is_held_against_those_of_runs_that_know_nothing_of_it() -> None:
    """Each of the baseline's runs stands apart from the four others as far as one more run stands apart from all."""

    def run(fastest: float) -> Snapshot:
        buckets = sorted([[fastest, fastest * 1.1, 800], [4000.0, 4400.0, 1200]])
        data = {"unit": "us", "count": 2000, "sum": 1000.0 * 2000, "buckets": buckets}
        return changed(EMPTY, probes={"p": {"status": "attached", "histograms": {"wait": data}}})

    assert compare(run(10.0), [run(one) for one in (40.0, 120.0, 15.0, 300.0, 30.0)]).verdict == "same"


def test_how_busy_the_machine_was_is_a_condition_and_no_finding(five: list[Snapshot]) -> None:
    machine = {"status": "attached", "tables": {"machine": [{"machine_cpu_pct": 90.0}]}}
    document = made_up.document(77)
    document["probes"]["self_cost"], document["cost"] = machine, {"machine_cpu_pct": 61.0, "kernel_cpu_pct": None}
    found = compare(msgspec.convert(document, Snapshot), five)
    assert found.verdict == "same"
    [condition] = found.conditions
    assert (condition.unit, condition.low, condition.high, condition.current) == ("%", None, None, 61.0)


def test_two_hosts_are_compared_by_what_is_alike_and_their_settings_are_told(five: list[Snapshot]) -> None:
    """Taps, threads, MACs and namespaces of the one are none of the other's: VMs and roles are what is held."""

    def of(name: str, first_tap: int, first_pid: int, seed: int, governor: str) -> Snapshot:
        text = json.dumps(made_up.document(seed))
        for number in range(4):
            text = text.replace(f'"vnet{number}"', f'"vnet{first_tap + number}"')
        document = json.loads(text)
        facts: dict[str, Any] = {"cpu/governor": {"value": governor}}
        for number in range(4):
            tap = f"vnet{first_tap + number}"
            facts |= {
                f"vm/web-{number}/net/0/tap": {"value": tap, "volatile": True},
                f"vm/web-{number}/vhost/0/tid": {"value": first_pid + number, "volatile": True},
                f"nic/{tap}/mac": {"value": f"fe:54:00:00:{seed:02x}:{number:02x}"},
                f"nic/{tap}/mtu": {"value": 1500},
            }
        workers = [{"worker": f"vhost-77/{first_pid + number}", "runs": 5000} for number in range(4)]
        columns = {"workers": {"labels": ["worker"], "values": {"runs": {"unit": "runs"}}}}
        document["probes"]["w"] = {"status": "attached", "tables": {"workers": workers}, "columns": columns}
        host = {"name": name, "kernel": "6.1.0", "boot_id": name}
        return changed(document, host=host, facts=facts)

    found = compare(of("hv-2", 40, 9000, 8, "powersave"), [of("hv-1", 10, 700, 7, "performance")])
    assert found.verdict == "changed" and not [one for one in found.findings if one.significant]
    assert {one.why for one in found.not_comparable} == {"fewer than three runs of the baseline have this figure"}
    assert [change.fact for change in found.facts_changed] == ["cpu/governor"]
    assert (found.current and found.current.host, found.baseline[0].host) == ("hv-2", "hv-1")


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
    assert (found.verdict, found.compared) == ("same", 0)


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


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_keys_of_hostile_labels_stay_apart(labels: dict[str, str]) -> None:
    key = metric_key("p", "table", "t", labels.items())
    assert key.count("/") == 2 + bool(labels) + key.count("\\/")
    assert not any(ord(character) < 32 for character in key)


def test_a_manifest_says_what_a_label_stands_for_and_which_facts_govern() -> None:
    manifest = shipped("softnet")
    spec = manifest.tables["cpus"]
    [cpu] = spec.key
    owner = replace(cpu, name="owner", stands_for="process")
    mine = replace(
        manifest,
        name="mine",
        tables={"cpus": replace(spec, key=(owner,))},
        governed_by=(GovernedSpec(("ovs/*",), ("cpus",)),),
    )

    def run(owner: str, count: int, limit: int) -> Snapshot:
        rows = [{"owner": owner, "processed": count}]
        columns = {"cpus": {"labels": ["owner"], "values": {"processed": {"unit": "packets", "kind": "sum"}}}}
        probe = {"status": "attached", "tables": {"cpus": rows}, "columns": columns}
        return changed(EMPTY, probes={"mine": probe}, facts={"ovs/limit": {"value": limit}})

    now, before = run("nginx (4711)", 90_000, 2), run("nginx (23)", 10, 1)
    for manifests, metric, facts in (
        ({"mine": mine}, "mine/table/cpus/owner=nginx", ["ovs/limit"]),
        ({}, "mine/table/cpus/owner=nginx (4711)", []),
    ):
        finding = compare(now, [before], (), manifests).findings[0]
        assert (finding.metric, finding.facts) == (metric, facts)
