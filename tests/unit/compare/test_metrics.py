"""A snapshot flattened: which figures there are, under which keys, which way each is worse, and what is left out."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from netconsole.compare.metrics import Metric, Metrics, flatten, metric_key
from netconsole.snapshot.document import MAX_COUNT, Snapshot
from tests.support import made_up


def flat(*, facts: dict[str, Any] | None = None, **probe: Any) -> Metrics:
    """The metrics of a snapshot whose only probe has this."""
    document = made_up.document(1, samples=1, facts=facts)
    document["probes"] = {"p": {"status": "attached", **probe}}
    return flatten(msgspec.convert(document, Snapshot))


def of(metrics: Metrics) -> dict[str, Metric]:
    return {one.key: one for one in metrics.by_identity.values()}


def table(
    *rows: dict[str, Any], labels: str = "device", values: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """A table ``t`` with these labels, and the value count unless others are named."""
    columns = {"labels": labels.split(), "values": values or {"count": {"unit": "packets"}}}
    return {"tables": {"t": list(rows)}, "columns": {"t": columns}, **more}


def counts(metrics: Metrics) -> dict[str, int]:
    return {key: one.count for key, one in of(metrics).items()}


# ---- what is a metric ----


@pytest.mark.parametrize(("status", "is_there"), [("attached", True), ("degraded", True), ("failed", False)])
def test_only_probes_that_measured_have_metrics(status: str, is_there: bool) -> None:
    found = of(flat(status=status, counters={"drops": {"total": 5, "unit": "packets"}}))
    assert list(found) == (["p/counter/drops"] if is_there else [])


def test_the_cost_of_watching_and_an_unknown_total_are_no_metrics() -> None:
    document = made_up.document(1, samples=1)
    document["probes"] = {"self_cost": {"status": "attached", "counters": {"cpu": {"total": 5}}}}
    assert flatten(msgspec.convert(document, Snapshot)).by_identity == {}
    assert list(of(flat(counters={"a": {"total": None}, "b": {"total": 0}}))) == ["p/counter/b"]


def test_a_table_with_several_values_names_each_and_a_row_that_is_empty_counts() -> None:
    two = {"count": {"unit": "packets"}, "bytes": {"unit": "bytes"}}
    found = of(flat(**table({"device": "eth0", "count": 3, "bytes": 0}, values=two)))
    assert {key: one.count for key, one in found.items()} == {
        "p/table/t.count/device=eth0": 3,
        "p/table/t.bytes/device=eth0": 0,
    }
    one = found["p/table/t.count/device=eth0"]
    assert (one.probe, one.kind, one.name, one.labels, one.unit) == (
        "p", "table", "t.count", (("device", "eth0"),), "packets",
    )  # fmt: skip
    assert flat(tables={"t": []}).by_identity == {}


def test_gauges_of_rows_that_become_one_are_the_highest_and_counts_their_sum() -> None:
    values = {"deepest": {"unit": "packets", "kind": "max"}, "count": {"unit": "packets"}}
    rows = [{"process": f"nginx/{pid}", "deepest": -pid, "count": pid} for pid in (3, 2, 4)]
    found = of(flat(**table(*rows, labels="process", values=values)))
    deepest = found["p/gauge/t.deepest/process=nginx"]
    assert (deepest.value, deepest.kind, deepest.worse) == (-2, "gauge", None)
    assert found["p/table/t.count/process=nginx"].count == 9


@pytest.mark.parametrize(
    ("value", "count"),
    [(3, 3), (3.9, 3), (0, 0), (-3, 0), (True, 0), ("3", 0), (None, 0), (MAX_COUNT, MAX_COUNT), (MAX_COUNT * 4, 0)],
)
def test_what_is_no_count_counts_nothing(value: object, count: int) -> None:
    assert counts(flat(**table({"device": "eth0", "count": value})))["p/table/t/device=eth0"] == count


def test_labels_that_are_unknown_or_change_without_a_meaning_are_dropped() -> None:
    row = {"device": "eth0", "inode": 77, "cpu": 3, "port": 40000, "reason": None, "count": 4}
    found = counts(flat(**table(row, labels="device inode cpu port reason")))
    assert list(found) == ["p/table/t/device=eth0,port=ephemeral"]


def test_a_table_that_does_not_name_its_columns_has_numbers_as_values_but_for_usual_labels() -> None:
    rows = [
        {"device": "eth0", "queue": 1, "count": 3, "ok": True, "mixed": 1},
        {"device": "eth1", "queue": 1, "count": 4, "ok": False, "mixed": "x"},
    ]
    assert counts(flat(tables={"t": rows})) == {
        "p/table/t/device=eth0,queue=1,ok=true,mixed=1": 3,
        "p/table/t/device=eth1,queue=1,ok=false,mixed=x": 4,
    }
    assert counts(flat(tables={"t": [{"device": "eth0", "vcpu": 1, "count": 3}]})) == {
        "p/table/t/device=eth0,vcpu=1": 3
    }


# ---- which way is worse ----


@pytest.mark.parametrize(
    ("said", "name", "unit", "worse"),
    [
        ("none", "drops", "packets", None),
        ("down", "drops", "packets", "down"),
        (None, "drops", "packets", "up"),
        (None, "hits", "packets", "down"),
        (None, "sent", "packets", None),
        (None, "busy_time", "ns", "up"),
        (None, "poll_time", "ns", None),
    ],
)
def test_the_snapshot_says_which_way_is_worse_else_the_name(said: str, name: str, unit: str, worse: str) -> None:
    [counter] = of(flat(counters={name: {"total": 1, "unit": unit, "worse": said}})).values()
    assert counter.worse == worse
    [row] = of(flat(**table({"device": "e", name: 1}, values={name: {"unit": unit, "worse": said}}))).values()
    assert row.worse == worse


def test_a_maximum_of_times_and_a_histogram_of_times_are_worse_up_and_a_sum_of_times_is_neither() -> None:
    values = {"longest": {"unit": "ns", "kind": "max"}, "spent": {"unit": "ns"}}
    found = of(flat(**table({"device": "e", "longest": 1, "spent": 1}, values=values)))
    assert [one.worse for one in found.values()] == ["up", None]
    [wait] = of(flat(histograms={"wait": {"unit": "us", "count": 1, "buckets": [[1, 2, 1]]}})).values()
    assert (wait.key, wait.worse, wait.unit) == ("p/histogram/wait", "up", "us")


def test_rows_of_class_benign_are_worse_in_their_own_way_alone() -> None:
    rows = [{"class": kind, "drops": 1} for kind in ("benign", "suspicious")]
    benign, other = of(flat(**table(*rows, labels="class", values={"drops": {"unit": "packets"}}))).values()
    assert (benign.worse, benign.benign) == (None, "up")
    assert (other.worse, other.benign) == ("up", None)


# ---- the busiest CPU ----


def test_the_busiest_cpu_has_a_metric_of_its_own_where_more_is_worse() -> None:
    rows = [{"device": "e", "cpu": cpu, "drops": drops, "sent": drops} for cpu, drops in ((0, 5), (1, 3), (1, 4))]
    values = {"drops": {"unit": "packets"}, "sent": {"unit": "packets"}}
    found = of(flat(**table(*rows, labels="device cpu", values=values)))
    assert {key: one.count for key, one in found.items()} == {
        "p/table/t.drops/device=e": 12,
        "p/table/t.sent/device=e": 12,
        "p/table/t.drops/device=e,cpu=busiest": 7,
    }
    busiest = found["p/table/t.drops/device=e,cpu=busiest"]
    assert busiest.counter == found["p/table/t.drops/device=e"].identity and busiest.parts is None


# ---- parts of the time ----


def test_the_parts_of_a_counter_are_the_shares_of_its_total() -> None:
    metrics = flat(
        counters={"drops": {"total": 40, "unit": "packets"}, "still": {"total": 5, "unit": "packets"}},
        history={"drops": [1.0, None, -1.0, 3.0], "still": [0.0, 0.0]},
    )
    found = of(metrics)
    assert found["p/counter/drops"].parts == metrics.series["p", "counter", "drops"] == [10.0, 30.0]
    assert found["p/counter/still"].parts is None and metrics.series["p", "counter", "still"] == []


def test_the_parts_of_a_sum_of_times_are_in_milliseconds() -> None:
    [spent] = of(flat(counters={"spent": {"total": 4_000_000, "unit": "ns"}}, history={"spent": [1.0, 1.0]})).values()
    assert spent.parts == [2.0, 2.0]


def row_parts(*histories: list[float], drops: tuple[int, ...] = (10, 20)) -> list[float] | None:
    rows = [{"process": f"a/{number}", "count": count} for number, count in enumerate(drops)]
    [one] = of(flat(**table(*rows, labels="process", row_history={"t.count": list(histories)}))).values()
    assert one.count == sum(drops)
    return one.parts


def test_the_parts_of_rows_that_become_one_add_up_when_all_are_known() -> None:
    assert row_parts([1.0, 1.0], [1.0, 3.0]) == [5 + 5, 5 + 15]
    assert row_parts([1.0, 1.0]) is None and row_parts([], [1.0, 1.0]) is None
    assert row_parts([1.0, 1.0], [1.0, 1.0, 2.0]) is None
    assert row_parts([0.0, 0.0], [1.0, 3.0], drops=(0, 20)) == [5.0, 15.0], "a row of nothing has nothing to add"


def test_a_column_has_the_series_of_all_its_rows() -> None:
    rows = [{"device": name, "count": 10} for name in ("a", "b")]
    metrics = flat(**table(*rows, history={"t.count": [1.0, 3.0]}))
    assert metrics.series == {("p", "table", "t"): [5.0, 15.0]}


# ---- what is a part of what, and what is missing ----


def test_a_column_whose_sum_is_a_counter_is_a_part_of_it() -> None:
    rows = [{"device": name, "count": 10, "peak": 20} for name in ("a", "b")]
    values = {"count": {"unit": "packets"}, "peak": {"unit": "packets", "kind": "max"}}
    counters = {"seen": {"total": 21}, "drops": {"total": 20}}
    found = of(flat(**table(*rows, values=values, counters=counters)))
    assert found["p/table/t.count/device=a"].counter == ("p", "counter", "drops", ())
    assert found["p/gauge/t.peak/device=a"].counter is None
    none = of(flat(**table({"device": "a", "count": 0}, counters={"drops": {"total": 0}})))
    assert none["p/table/t/device=a"].counter is None, "nothing is no part of nothing"


@pytest.mark.parametrize("entry", ["map_full", "evicted", "omitted", "suppressed"])
def test_a_table_is_partial_when_rows_were_lost(entry: str) -> None:
    lost = flat(**table({"device": "a", "count": 1}, ledger={entry: 1})).partial
    assert lost == (set() if entry == "suppressed" else {"p/table/t"})
    assert flat(**table({"device": "a", "count": 1}, ledger={entry: 0})).partial == set()


# ---- histograms ----


def test_histograms_of_labels_that_become_one_are_added_up() -> None:
    parts = [
        {"unit": "us", "count": 2, "sum": 3.0, "buckets": [[1, 2, 2]], "labels": {"cpu": cpu, "device": "e"}}
        for cpu in (0, 1)
    ]
    [one] = of(flat(histograms={"wait": {"unit": "us", "count": 4, "by": parts}})).values()
    assert one.key == "p/histogram/wait/device=e" and one.histogram is not None
    assert (one.histogram.count, one.histogram.sum, one.histogram.buckets) == (4, 6.0, [(1.0, 2.0, 4)])


# ---- keys ----


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("eth0", "eth0"), (7, "7"), (True, "true"), ("a b", "a b"), ("a,b", '"a,b"'), ("a=b", '"a=b"'),
        ("a/b", '"a\\/b"'), ('a"b', json.dumps('a"b')), ("a\nb", '"a\\nb"'), ("ä", "ä"), ("\x7f", '"\x7f"'),
        ("a\\b", json.dumps("a\\b")),
    ],
)  # fmt: skip
def test_a_label_that_could_be_taken_for_two_is_quoted(value: Any, shown: str) -> None:
    assert metric_key("p", "table", "t", [("label", value)]) == f"p/table/t/label={shown}"
    assert metric_key("p", "counter", "c") == "p/counter/c"


@pytest.mark.parametrize(
    ("seen_s", "own_s", "count"), [(5.0, 10.0, 50), (2.5, 10.0, 25), (5.0, None, 100), (None, 10.0, 100)]
)
def test_a_counter_that_counted_longer_than_its_probe_counts_for_the_time_of_the_probe(
    seen_s: float | None, own_s: float | None, count: int
) -> None:
    """100 in 10 s, of which the probe was attached for 5: its rates are of that time."""
    found = of(flat(counters={"drops": {"total": 100, "duration_s": own_s}}, duration_s=seen_s))
    assert found["p/counter/drops"].count == count
