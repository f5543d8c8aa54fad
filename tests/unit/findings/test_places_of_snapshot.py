"""The list of places is in snapshots, in their reports, and then and now in comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netconsole.base.fact_keys import FactData
from netconsole.compare.compare import compare
from netconsole.findings.places_of_snapshot import MAX_PLACES, with_drop_places
from netconsole.probes import catalogue
from netconsole.probes.manifest import Manifest
from netconsole.report import of_comparison, of_snapshot, to_markdown
from netconsole.snapshot.document import DropPlaceData, Snapshot, encode, parse
from netconsole.snapshot.redact import Redactor
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Count, Row
from netconsole.telemetry.span import Span
from netconsole.telemetry.state import State
from tests.unit.telemetry.test_state import SECOND, Stream

ROOT = Path(__file__).parents[3]
MANIFESTS = catalogue.load_all([ROOT / "probes"])
HEAD: dict[str, Any] = {
    "schema": "netconsole.snapshot/1",
    "created": "2026-11-20T21:00:00Z",
    "netconsole": "0.1.0",
    "host": {"name": "hv-17", "kernel": "6.1"},
    "profile": {"name": "summary"},
    "duration_s": 10.0,
}


@pytest.fixture(scope="module")
def manifests() -> Mapping[str, Manifest]:
    return MANIFESTS


def drop(reason: str, count: int | tuple[int, int], device: str = "eth0", **more: Any) -> dict[str, Any]:
    return {
        "reason": reason, "class": "suspicious", "location": "f", "device": device, "netns": "host",
        "protocol": "UDP", "count": count, **more,
    }  # fmt: skip


def table(
    stream: Stream, probe: str, name: str, labels: Iterable[str], rows: Iterable[dict[str, Any]], one_in: int = 1
) -> None:
    """Rows as they are written in a document: what is no label is a count, or what it moved by, and in all."""
    sent = [
        Row(
            {key: value for key, value in row.items() if key in labels},
            {
                key: Count(*(value if isinstance(value, tuple) else (value, value)))
                for key, value in row.items()
                if key not in labels
            },
        )
        for row in rows
    ]
    stamp = {**stream.stamp(), "probe": probe}
    stream.state.apply(frames.Table(**stamp, name=name, interval_ns=SECOND, full=True, rows=sent, one_in=one_in))


def taken(
    *rows: dict[str, Any],
    flows: Sequence[dict[str, Any]] = (),
    events: Sequence[dict[str, Any]] = (),
    probes: Mapping[str, Any] | None = None,
    missed: int = 0,
    one_in: int = 1,
    sockets: Sequence[dict[str, Any]] = (),
    **more: Any,
) -> Snapshot:
    """The snapshot of a measurement in which these packets died, with its list. ``probes``: the document's own."""
    manifests, stream = MANIFESTS, Stream(State())
    stream.hello()
    link = {"device": "eth0", "netns": "host", "qdisc": "tbf", "shaper": "tbf of 10 Mbit/s", "qdisc_drops": 500}
    told = (
        ("kernel_drops", "drops", rows), ("kernel_drops", "flows", flows), ("link_rates", "links", [link]),
        ("softnet", "cpus", [{"cpu": 0, "dropped": 9}]), ("socket_drops", "sockets", sockets),
    )  # fmt: skip
    for probe, name, of_table in told:
        table(stream, probe, name, manifests[probe].tables[name].labels, of_table, one_in)
    for event in events:
        stamp = {**stream.stamp(), "probe": "kernel_drops"}
        stream.state.apply(frames.Event(**stamp, name="drop", fields=event))
    stamp = {**stream.stamp(), "probe": "kernel_drops"}
    stream.state.apply(frames.Cost(**stamp, interval_ns=SECOND, ledger={"map_full": Count(missed, missed)}))
    stream.end()
    of_probes = {
        "kernel_drops": {"status": "attached", "duration_s": 5.0},
        "link_rates": {"status": "attached"},
        "softnet": {"status": "failed"},
        "socket_drops": {"status": "attached"},
    }
    document = {**HEAD, "probes": of_probes if probes is None else probes, **more}
    return with_drop_places(msgspec.convert(document, Snapshot), Span(stream.state), manifests)


def places(made: Snapshot) -> list[DropPlaceData]:
    return made.drop_places or []


def test_each_place_is_in_the_document_with_its_sources() -> None:
    flow = {**drop("QDISC_DROP", 1), "source": "10.0.0.1", "source_port": 53}
    least = {**flow, "source": "10.0.0.2", "count": 0}
    made = taken(drop("QDISC_DROP", 400), drop("NO_ONE", 7, "tap0"), flows=(least, flow))
    first, second = places(made)
    assert (first.stage, first.where, first.why) == ("qdisc", "eth0", "shed by tbf of 10 Mbit/s")
    assert (first.total, first.per_s, first.at_least, first.sender) == (500, 80.0, False, "10.0.0.1:53")
    assert first.probes == ["kernel_drops", "link_rates"], "softnet did not measure"
    assert (second.where, second.total, second.per_s) == ("tap0", 7, 1.4)
    assert parse(encode(made), "it").drop_places == made.drop_places


def test_a_lower_bound_is_told_as_one() -> None:
    found = places(taken(drop("SKB_BAD", 3), missed=2))
    assert [(one.total, one.at_least) for one in found if one.stage != "qdisc"] == [(3, True)]


def test_what_was_made_of_a_share_of_the_packets_is_told_as_such() -> None:
    for one_in, scaled in ((1, False), (8, True)):
        rows = drop("SKB_BAD", 30, "tap0"), drop("SKB_BAD", 50, "tap1")
        found = [one for one in places(taken(*rows, one_in=one_in)) if one.stage != "qdisc"]
        assert [one.scaled for one in found] == [scaled, scaled] and not any(one.at_least for one in found)


def rates(*rows: dict[str, Any], **probe: Any) -> list[tuple[int, float | None]]:
    """Of kernel_drops alone."""
    of_kernel = {"kernel_drops": {"status": "attached", **probe}}
    return [(one.total, one.per_s) for one in places(taken(*rows, probes=of_kernel))]


def test_a_rate_is_of_the_time_in_which_the_probe_measured() -> None:
    """A packet in 3 s; in the 10 s of the snapshot where the probe names no time; unknown where that is none."""
    one = drop("SKB_BAD", 1)
    assert rates(one, duration_s=3.0) == [(1, 0.333)]
    assert rates(one) == [(1, 0.1)]
    assert rates(one, duration_s=0.0) == [(1, None)]
    assert rates(drop("SKB_BAD", 0)) == []
    assert rates(one, status="failed") == rates() == []
    assert rates({**one, "device": None}, status="degraded") == [(1, 0.1)]


def test_the_sender_is_that_of_the_largest_flow_else_of_the_newest_sample() -> None:
    def first(*flows: dict[str, Any], events: tuple[dict[str, Any], ...] = ()) -> str:
        made = taken(drop("NO_ONE", 7, "tap0"), flows=flows, events=events)
        [place] = [one for one in places(made) if one.where == "tap0"]
        return place.sender

    def flow(source: str, count: int | tuple[int, int]) -> dict[str, Any]:
        return {**drop("NO_ONE", count, "tap0"), "source": source}

    assert first(flow("192.0.2.1", 2), flow("192.0.2.2", 3), flow("192.0.2.3", 1)) == "192.0.2.2"
    assert first(flow("192.0.2.1", (0, 9)), flow("192.0.2.2", (3, 3))) == "192.0.2.1", "in all, not now"
    old, new = ({"reason": "NO_ONE", "source": source} for source in ("192.0.2.8", "192.0.2.9"))
    assert first(events=(old, new)) == "192.0.2.9"
    assert first(flow("192.0.2.1", 1), events=(new,)) == "192.0.2.1"
    assert first(drop("NO_ONE", 9, "tap0"), events=(new,)) == "192.0.2.9"  # a row of flows that names no sender
    assert first() == ""


def test_only_the_largest_are_kept() -> None:
    found = places(taken(*(drop("NO_ONE", number + 1, f"tap{number}") for number in range(MAX_PLACES + 5))))
    assert len(found) == MAX_PLACES == 200 and found[-1].total == 7, (
        "the smallest are left out: 6 and less, and the qdisc is first"
    )


def test_reports_show_the_list_and_the_balance(manifests: dict[str, Manifest]) -> None:
    row = {
        "stage": "qdisc",
        "device": "eth0",
        "netns": "host",
        "out": 9,
        "dropped": 500,
        "unexplained": 100,
        "coverage_pct": 80.0,
    }
    text = to_markdown(of_snapshot(taken(drop("QDISC_DROP", 400), balance=[row]), manifests))
    assert "Where packets died" in text and "shed by tbf of 10 Mbit/s" in text
    assert "Probes saw 80 % of the 500 packets that the kernel itself counts as lost." in text
    assert "eth0 netns host" in text
    assert "Where packets died" not in to_markdown(of_snapshot(msgspec.convert(HEAD, Snapshot), manifests))


def test_a_comparison_has_each_place_then_and_now(manifests: dict[str, Manifest]) -> None:
    def of(*, tap: str, pid: int, count: int) -> Snapshot:
        row = {"process": f"dns ({pid})", "protocol": "UDP", "port": 53, "netns": "host", "buffer_full": count}
        made = taken(drop("FULL_RING", count, tap), sockets=[row])
        return msgspec.structs.replace(made, facts={"vm/web/net/0/tap": FactData(tap)})

    before = [of(tap="vnet1", pid=7, count=100), of(tap="vnet2", pid=8, count=300)]
    compared = compare(of(tap="vnet9", pid=9, count=1000), before, manifests=manifests)
    found = {(one.stage, one.where): (one.baseline_per_s, one.current_per_s) for one in compared.drop_places or []}
    assert found == {
        ("tap", "web net0"): (40.0, 200.0),
        ("socket", "dns UDP port 53"): (20.0, 100.0),
        ("qdisc", "eth0"): (50.0, 50.0),
    }
    assert [one.stage for one in compared.drop_places or []] == ["tap", "socket", "qdisc"], "the largest increase first"
    assert "Where packets died" in to_markdown(of_comparison(compared))


def test_names_in_the_list_are_redacted(manifests: dict[str, Manifest]) -> None:
    row = drop("NO_ONE", 7, "tap-acme", netns="blue")
    made = taken(row, probes={"kernel_drops": {"status": "attached", "tables": {"drops": [row]}}})
    hidden = Redactor(b"k" * 32).snapshot(made, manifests)
    assert hidden.drop_places and made.drop_places
    told = "".join(one.where + one.why for one in hidden.drop_places)
    assert "acme" not in told and "blue" not in told and "device-" in told
    assert [one.probes for one in hidden.drop_places] == [one.probes for one in made.drop_places]


def test_a_place_that_proves_an_incident_has_its_level() -> None:
    benign, other = drop("NETFILTER_DROP", 9, **{"class": "benign"}), drop("NO_ONE", 7, "tap0", **{"class": "benign"})
    proof = {"probe": "kernel_drops", "kind": "table", "name": "drops"}
    labels = {name: value for name, value in other.items() if name != "count"}
    incident = {
        "level": "!", "cause": "c", "what": "w", "where": {}, "began": "2026-11-20T21:00:01Z",
        "evidence": [{**proof, "labels": labels}],
    }  # fmt: skip
    assert [one.level for one in places(taken(benign, other))][-2:] == ["ok", "ok"]
    found = places(taken(benign, other, incidents=[incident]))
    assert {(one.where, one.level) for one in found} >= {("tap0", "!"), ("eth0", "ok")}

    def level(*incidents: dict[str, Any]) -> str:
        found = places(taken(other, incidents=list(incidents)))
        return next(one.level for one in found if one.where == "tap0")

    assert level({**incident, "level": "!!"}, incident) == "!!"
    for elsewhere in ({"probe": "softnet"}, {"name": "flows"}, {"labels": {**labels, "device": "tap1"}}):
        assert level({**incident, "evidence": [{**proof, "labels": labels, **elsewhere}]}) == "ok"
