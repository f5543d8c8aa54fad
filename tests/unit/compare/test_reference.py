"""Figures of a running session against those of a baseline: which one, in which unit, and in which word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from netconsole.base.fact_keys import FactData
from netconsole.compare.reference import FigureChange, Reference, Word
from netconsole.probes import catalogue
from netconsole.probes.manifest import ColumnSpec
from netconsole.snapshot.document import Snapshot
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Buckets, Count, Row
from netconsole.telemetry.histogram import bounds, index
from netconsole.telemetry.state import ProbeState, State
from tests.support import made_up
from tests.unit.telemetry.test_state import SECOND, Stream

LINKS, DROPS, QUEUES = (catalogue.shipped(name) for name in ("link_rates", "kernel_drops", "tx_queue_latency"))
MANIFESTS = {one.name: one for one in (LINKS, DROPS, QUEUES)}
PACKETS = next(one for one in LINKS.tables["links"].value if one.name == "rx_packets")
ERRORS = ColumnSpec(name="rx_errors", type="u64", unit="packets", kind="sum", worse="up")
BACKLOG = ColumnSpec(name="backlog", type="u64", unit="packets", kind="max", worse="up")


def healthy(
    *packets_per_s: float, wait_us: float = 20.0, errors_per_s: float = 0.0, backlog: int = 0, unit: str = "ns"
) -> Reference:
    """A baseline of runs of ten seconds with one device, vnet0."""
    snapshots = []
    for rate in packets_per_s:
        document = made_up.document(1, devices=1)
        link = {"device": "vnet0", "rx_packets": int(10 * rate), "rx_errors": int(10 * errors_per_s)}
        document["probes"]["link_rates"]["tables"]["links"] = [{**link, "backlog": backlog}]
        document["probes"]["kernel_drops"]["counters"]["drops"]["total"] = int(10 * rate)
        slot = bounds(index(int(wait_us * 1000)))
        wait = {"unit": unit, "count": 10, "sum": 0.0, "buckets": [[*slot, 10]]}
        document["probes"]["tx_queue_latency"]["histograms"]["wait"] = {
            "unit": unit, "by": [{**wait, "labels": {"device": "vnet0"}}],
        }  # fmt: skip
        for probe in document["probes"].values():
            probe["mode"] = "summary"
        snapshots.append(msgspec.convert(document, Snapshot))
    return Reference("good", snapshots, {"vm/web/net/0/tap": FactData("vnet9")}, MANIFESTS)


def test_a_run_that_took_no_time_is_no_baseline() -> None:
    brief = msgspec.convert({**made_up.document(1, devices=1), "duration_s": 0.0}, Snapshot)
    reference = Reference("brief", [brief], {}, MANIFESTS)
    probe = Now()["kernel_drops"]
    assert reference.why_not(probe, DROPS) == "one of the snapshots is shorter than 1 s"


class Now:
    """The same probes in a running session, after one interval."""

    def __init__(self, mode: frames.Mode = "summary") -> None:
        self.stream = Stream(State())
        self.stream.hello()
        for name in MANIFESTS:
            self.stream.state.apply(frames.Status(**self.stream.stamp(name), state="attached", mode=mode))

    def __getitem__(self, name: str) -> ProbeState:
        return self.stream.state.probes[name]

    def links(self, *devices: str, rx_packets: int = 0, rx_errors: int = 0, backlog: int | None = None) -> Now:
        counts = {"rx_packets": Count(rx_packets, rx_packets), "rx_errors": Count(rx_errors, rx_errors)}
        rows = [Row(labels={"device": device}, counts=counts, gauges={"backlog": backlog}) for device in devices]
        self._apply("link_rates", frames.Table, name="links", full=True, rows=rows)
        return self

    def drops(self, per_s: int) -> Now:
        self._apply("kernel_drops", frames.Counters, values={"drops": Count(per_s, per_s)})
        return self

    def waits(self, value_ns: int, device: str = "vnet0") -> Now:
        slots = Buckets(count=50, sum=50 * value_ns, min=None, max=None, buckets=[(index(value_ns), 50)])
        figures = {"unit": "ns", "labels": {"device": device}, "delta": slots, "total": slots}
        self._apply("tx_queue_latency", frames.Histogram, name="wait", **figures)
        return self

    def _apply(self, probe: str, kind: Any, **values: Any) -> None:
        self.stream.state.apply(kind(**self.stream.stamp(probe), interval_ns=SECOND, **values))

    def value(self, reference: Reference, column: ColumnSpec, device: str = "vnet0") -> FigureChange | None:
        table = self["link_rates"].tables["links"]
        row = next(row for row in table.rows.values() if row.labels["device"] == device)
        return reference.value(self["link_rates"], LINKS, "links", row, column)

    def p99(self, reference: Reference) -> FigureChange | None:
        (row, *_) = self["tx_queue_latency"].histograms["wait"].rows.values()
        return reference.percentile(self["tx_queue_latency"], QUEUES, "wait", row, 99)


@pytest.mark.parametrize(
    ("now", "word"),
    [(1100, "same"), (1101, "same"), (1249, "same"), (1250, "more"), (800, "less"), (801, "same"), (900, "same")],
)
def test_within_the_range_of_the_runs_or_a_quarter_it_is_the_same(now: int, word: Word) -> None:
    change = Now().links("vnet0", rx_packets=now).value(healthy(900, 1000, 1100), PACKETS)
    assert change == FigureChange(float(now), 1000.0, "packets/s", word)
    assert (change.ratio, change.difference) == (now / 1000, now - 1000)


@pytest.mark.parametrize(("now", "word"), [(0, "same"), (1, "worse"), (20, "worse")])
def test_what_was_never_there_is_worse_from_one_a_second_on(now: int, word: Word) -> None:
    change = Now().links("vnet0", rx_errors=now).value(healthy(1000), ERRORS)
    assert change is not None and (change.word, change.baseline, change.ratio) == (word, 0.0, None)


def test_fewer_errors_are_better() -> None:
    change = Now().links("vnet0", rx_errors=2).value(healthy(1000, errors_per_s=50), ERRORS)
    assert change is not None and change.word == "better"


def test_a_gauge_is_compared_as_it_is_and_unknown_where_nobody_read_it() -> None:
    assert Now().links("vnet0", backlog=90).value(healthy(1000, backlog=30), BACKLOG) == FigureChange(
        90.0, 30.0, "packets", "worse"
    )
    assert Now().links("vnet0").value(healthy(1000, backlog=30), BACKLOG) is None


def test_rows_that_share_their_stable_labels_are_compared_together() -> None:
    """Processes change their numbers: what they have in common is compared, as a sum or as the largest."""
    reference, now = healthy(1000, backlog=10), Now().links("vnet0", "vnet1", rx_packets=700, backlog=40)
    reference.learn({f"vm/web/net/0/tap{number}": FactData("x") for number in range(2)})
    reference._names.taps.update(vnet0="vnet0", vnet1="vnet0")
    assert now.value(reference, PACKETS) == FigureChange(1400.0, 1000.0, "packets/s", "more", together=True)
    assert now.value(reference, BACKLOG) == FigureChange(40.0, 10.0, "packets", "worse", together=True)


def test_a_counter_is_compared_by_its_rate() -> None:
    change = healthy(10).counter(Now().drops(40)["kernel_drops"], DROPS, "drops")
    assert change is not None and (change.now, change.baseline, change.unit) == (40.0, 10.0, "packets/s")
    assert healthy(10).counter(Now()["kernel_drops"], DROPS, "drops") is None
    assert healthy(10).counter(Now().drops(40)["kernel_drops"], DROPS, "unknown") is None


@pytest.mark.parametrize(("now_ns", "word"), [(20_000, "same"), (60_000, "worse"), (2_000, "better")])
def test_a_percentile_of_the_last_interval_is_compared(now_ns: int, word: Word) -> None:
    change = Now().waits(now_ns).p99(healthy(10, 10, 10))
    assert change is not None and (change.word, change.unit) == (word, "ns")
    assert change.now == pytest.approx(now_ns, rel=0.0625) and change.baseline == pytest.approx(20_000, rel=0.0625)
    assert Now().waits(now_ns, "vnet5").p99(healthy(10)) is None


def test_figures_of_another_unit_are_not_compared() -> None:
    assert Now().waits(20_000).p99(healthy(10, unit="us")) is None
    now = Now().links("vnet0", rx_packets=1000)
    assert now.value(healthy(1000), replace(PACKETS, unit="bytes")) is None


def test_another_mode_or_a_probe_that_was_not_there_is_not_compared() -> None:
    reference, now = healthy(1000), Now("details").links("vnet0", rx_packets=5000)
    assert reference.why_not(now["link_rates"], LINKS) == "the probe runs in mode details and ran in mode summary"
    assert now.value(reference, PACKETS) is None
    changed = Now().links("vnet0", rx_packets=5000)
    assert reference.why_not(changed["link_rates"], LINKS) is None and changed.value(reference, PACKETS) is not None
    other = catalogue.shipped("softnet")
    assert reference.why_not(ProbeState("softnet", "console"), other) == "not in the baseline"


def test_a_row_is_found_by_the_key_of_its_metric() -> None:
    now = Now().links("vnet1", "vnet0", rx_packets=10).waits(5)
    probes, reference = now.stream.state.probes, healthy(10)
    key = next(key for key, row in now["link_rates"].tables["links"].rows.items() if row.labels["device"] == "vnet0")
    for kind in ("table", "gauge"):
        found = reference.locate(probes, MANIFESTS, f"link_rates/{kind}/links.rx_packets/device=vnet0")
        assert found == ("link_rates", "table", "links", key)
    (wait,) = now["tx_queue_latency"].histograms["wait"].rows
    found = reference.locate(probes, MANIFESTS, "tx_queue_latency/histogram/wait/device=vnet0")
    assert found == ("tx_queue_latency", "histogram", "wait", wait)
    for lost in ("link_rates/table/links.rx_packets/device=vnet7", "nobody/table/x", "tx_queue_latency/histogram/wait"):
        assert reference.locate(probes, MANIFESTS, lost) is None


def test_a_tap_is_known_by_its_vm() -> None:
    reference = healthy(10)
    assert reference.knows_device("vnet9") and not reference.knows_device("vnet0")
