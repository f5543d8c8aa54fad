"""What stands out in a snapshot: its incidents as sentences; of an old one what the rules say of the whole run."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netconsole.findings.windows import MIN_SAMPLES
from netconsole.probes import catalogue
from netconsole.probes.manifest import Manifest
from netconsole.report.blocks import Curve
from netconsole.report.short_form import MAX_SHOWN, Highlight, standing_out
from netconsole.snapshot.document import HistogramData, Snapshot
from tests.unit.probes.test_manifest_reader import GOOD, make

DAY = "2026-11-20"
INCIDENT = {"level": "!", "cause": "c", "what": "vnet3 loses"}
RULES = """
[[findings]]
table = "drops"
value = "count"
level = "!!"
over = 100.0
say = "many: {rate}/s, {total} in all, {reason}"
next = "Hurry."

[[findings]]
table = "queues"
value = "length"
level = "!"
over = 10.0
say = "{device}: {value} wait of {room}"
next = "Look at the queue."

[[findings]]
histogram = "wait"
percentile = 99
level = "!"
over = 1000.0
where = { device = "eth0" }
say = "{device}: p99 {value} at {rate}/s"
next = "Look at the wait."

[tables.queues]
map = "queues"
title = "Queues"
key = [{ name = "device", type = "char[16]", as = "text" }]
value = [
  { name = "length", type = "u64", unit = "packets", kind = "max" },
  { name = "room", type = "u64", unit = "bytes", kind = "max" },
]
sort = "length"

[histograms.wait]
unit = "ns"
key = [{ name = "device", type = "char[16]", as = "text" }]
"""


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Manifest]:
    return {"sample": catalogue.load(make(tmp_path_factory.mktemp("probes"), GOOD + RULES))}


def snapshot(**more: Any) -> Snapshot:
    """Of 10 s."""
    head = {"schema": "", "created": f"{DAY}T21:00:00Z", "netconsole": "", "host": {"name": "", "kernel": ""}}
    return msgspec.convert({**head, "profile": {"name": ""}, "duration_s": 10.0, **more}, Snapshot)


def told(**incident: Any) -> str:
    [one] = standing_out(snapshot(incidents=[{**INCIDENT, **incident}]), {})
    return one.text


def judged(manifests: dict[str, Manifest], status: str = "attached", **probe: Any) -> list[Highlight]:
    return standing_out(snapshot(probes={"sample": {"status": status, **probe}}), manifests)


BEGAN, ENDED = f"{DAY}T21:00:03Z", f"{DAY}T21:00:25Z"


@pytest.mark.parametrize(
    ("incident", "said"),
    [
        ({}, ""),
        ({"began": BEGAN}, "; since 21:00:03"),
        ({"began": BEGAN, "duration_s": 7.0}, "; since 21:00:03 (7 s)"),
        ({"began": "2026-11-19T23:59:59Z"}, "; since 2026-11-19T23:59:59Z"),
        ({"began": BEGAN, "ended": ENDED, "duration_s": 22.0}, "; from 21:00:03 to 21:00:25 (22 s)"),
        ({"duration_s": 22.0}, ""),  # how long what is not known since when?
        (
            {"began": BEGAN, "not_measured_since": f"{DAY}T21:00:09Z"},
            "; since 21:00:03, not measured since 21:00:09",
        ),
        ({"began": BEGAN, "ended": ENDED, "not_measured_since": ENDED}, "; from 21:00:03 to 21:00:25"),
        ({"total": 21010, "unit": "packets"}, "; 21\u202f010 packets"),
        ({"total": 5}, "; 5"),
        ({"total": 0, "peak_per_s": 0.0, "at_least": True, "unit": "x"}, "; ≥0 x, peak ≥0/s"),
        ({"began": BEGAN, "total": 5, "peak_per_s": 955.0}, "; since 21:00:03: 5, peak 955/s"),
        ({"peak": 1500.0, "unit": "us"}, "; peak 1.50 ms"),
        ({"peak": 1500.0, "unit": "us", "total": 1}, "; 1 us"),
        ({"peak_per_s": 3.0}, ""),
    ],
)
def test_an_incident_is_told_with_its_time_and_size(incident: dict[str, Any], said: str) -> None:
    assert told(**incident) == f"vnet3 loses{said}"


def test_what_came_again_is_told_once() -> None:
    """As the console tells it. What is of another place, or of an older snapshot, has a line of its own."""
    times = [("20:40:07", "20:40:09", 20_000), ("21:00:03", "21:00:25", 21_010), ("20:50:01", "20:50:02", 20)]
    episodes = [
        {**INCIDENT, "began": f"{DAY}T{a}Z", "ended": f"{DAY}T{b}Z", "total": n, "unit": "packets", "peak_per_s": 955.0}
        for a, b, n in times
    ]
    same = [{**one, "same": 0} for one in episodes]
    other = {**episodes[0], "what": "eth0 loses", "same": 1}

    def said(*incidents: dict[str, Any]) -> list[str]:
        return [one.text for one in standing_out(snapshot(incidents=list(incidents)), {})]

    assert said(*same, other) == [
        "vnet3 loses; 3 times, first 20:40:07, last from 21:00:03 to 21:00:25: "
        "21\u202f010 packets, 41\u202f030 in all, peak 955/s",
        "eth0 loses; from 20:40:07 to 20:40:09: 20\u202f000 packets, peak 955/s",
    ]
    assert len(said(*episodes)) == 3
    assert "≥41\u202f030 in all" in said(same[0], {**same[1], "at_least": True}, same[2])[0]
    assert " in all" not in said({**same[0], "total": None}, same[1])[0]


def test_an_incident_keeps_its_place_its_proof_and_what_to_do() -> None:
    proof = [{"probe": one, "kind": "source"} for one in ("first", "second")]
    incidents: list[dict[str, Any]] = [
        {**INCIDENT, "evidence": proof, "next": ["Look.", "Act."], "commands": ["ip a", "ip l"]},
        {**INCIDENT, "level": "!!", "what": "", "began": BEGAN},
    ]
    assert standing_out(snapshot(incidents=incidents), {}) == [
        Highlight("!", "first", "vnet3 loses", "Look. Act.", 0.0, ("ip a", "ip l")),
        Highlight("!!", "", "since 21:00:03", "", 0.0),
    ]
    many = standing_out(snapshot(incidents=[{**INCIDENT, "what": str(n)} for n in range(25)]), {})
    assert [one.text for one in many] == [str(n) for n in range(20)] and MAX_SHOWN == 20


def test_an_incident_is_drawn_as_long_as_it_lasted() -> None:
    """In its own unit, or a second for what is a count; not where it was always 0."""
    past = [None, 0.0, 955.0]
    ended = {**INCIDENT, "total": 3, "unit": "packets", "began": BEGAN, "ended": f"{DAY}T21:00:25Z", "history": past}
    late = {**INCIDENT, "unit": "ns", "history": past}
    still = {**INCIDENT, "history": [0.0, None]}
    drawn = [one.curve for one in standing_out(snapshot(incidents=[ended, late, still]), {})]
    assert drawn == [
        Curve("until 21:00:25 UTC", "packets/s", past),
        Curve("until the end of the measurement", "ns", past),
        None,
    ]


def test_where_incidents_were_looked_for_rules_say_nothing(manifests: dict[str, Manifest]) -> None:
    probes = {"sample": {"status": "attached", "tables": {"drops": [{"reason": "X", "count": 10**6}]}}}
    assert standing_out(snapshot(probes=probes, incidents=[]), manifests) == []
    assert standing_out(snapshot(probes=probes), manifests) != []


def drops(count: Any, **labels: Any) -> dict[str, Any]:
    return {"reason": "X", "class": "suspicious", "count": count, **labels}


@pytest.mark.parametrize(
    ("count", "said"), [(10, []), (11, ["1.10/s X"]), (True, []), ("99", []), (None, []), (22.0, ["2.20/s X"])]
)
def test_a_rate_is_over_its_limit_of_one_per_second(
    manifests: dict[str, Manifest], count: Any, said: list[str]
) -> None:
    assert [one.text for one in judged(manifests, tables={"drops": [drops(count)]})] == said
    assert judged(manifests, tables={"drops": [drops(count, **{"class": "benign"})]}) == []


def test_the_more_urgent_rule_says_a_row_and_others_are_of_other_rows(manifests: dict[str, Manifest]) -> None:
    """In the 5 s in which the probe was attached. What explains most comes first, the urgent before all."""
    rows = [drops(50), drops(505), drops(600, **{"class": "benign"})]
    found = judged(manifests, tables={"drops": rows}, duration_s=5.0)
    assert found == [
        Highlight("!!", "sample", "many: 120/s, 600 in all, X", "Hurry.", 120.0),
        Highlight("!!", "sample", "many: 101/s, 505 in all, X", "Hurry.", 101.0),
        Highlight("!", "sample", "10/s X", "Look there.", 10.0),
    ]
    [least] = judged(manifests, tables={"drops": [drops(20)]}, ledger={"map_full": 1})
    assert least.text == "≥2/s X"
    assert judged(manifests, tables={"drops": [drops(20)]}, ledger={"lost": 1})[0].text == "2/s X"
    assert judged(manifests, tables={"drops": [drops(10**9)]}, duration_s=0.0) == []


def test_a_gauge_is_no_rate(manifests: dict[str, Manifest]) -> None:
    rows = [{"device": "eth0", "length": length, "room": 2048} for length in (10, 11)]
    [found] = judged(manifests, tables={"queues": rows})
    assert (found.text, found.weight) == ("eth0: 11 packets wait of 2 kB", 11)


def wait(count: int, **more: Any) -> dict[str, Any]:
    return {"count": count, "buckets": [[1000, 1002, count]], "labels": {"device": "eth0"}, **more}


def test_a_percentile_is_held_against_its_limit(manifests: dict[str, Manifest]) -> None:
    """1001 ns of 1000. Its weight is the packets above it: one in a hundred of ten per second."""
    [found] = judged(manifests, histograms={"wait": {"unit": "ns", "by": [wait(100)]}})
    assert (found.level, found.text, found.next) == ("!", "eth0: p99 1.00 us at 10/s", "Look at the wait.")
    assert found.weight == pytest.approx(0.1)
    alone = wait(100, unit="us")
    assert judged(manifests, histograms={"wait": alone}, duration_s=0.0)[0].text == "eth0: p99 1.00 ms at –/s"
    assert judged(manifests, histograms={"wait": alone}, duration_s=0.0)[0].weight == 0
    for harmless in (
        wait(MIN_SAMPLES - 1),
        wait(100, labels={"device": "eth1"}),
        wait(100, buckets=[[999, 1001, 100]]),  # 1000 ns: at the limit
        wait(100, buckets=[]),
    ):
        assert judged(manifests, histograms={"wait": {"by": [harmless]}}) == []
    assert len(judged(manifests, histograms={"wait": {"by": [wait(MIN_SAMPLES)]}})) == 1
    assert judged(manifests, histograms={"other": wait(100)}) == []


def test_a_probe_that_did_not_measure_says_nothing(manifests: dict[str, Manifest]) -> None:
    tables = {"drops": [drops(1000)]}
    assert [len(judged(manifests, status, tables=tables)) for status in ("attached", "degraded", "failed")] == [1, 1, 0]


def test_of_a_probe_that_nobody_knows_what_is_worse_is_said() -> None:
    """By its own word, else by its name."""
    counters = {
        "drops": {"total": 20, "unit": "packets"},
        "errors": {"total": 0},
        "misses": {"total": 30, "worse": "none"},
        "passed": {"total": 40},
        "odd": {"total": 50, "worse": "up"},
        "timeouts": {"total": None},
    }
    assert judged({}, counters=counters) == [
        Highlight("!", "sample", "sample: odd 5/s", "", 5.0),
        Highlight("!", "sample", "sample: drops 2 packets/s", "", 2.0),
    ]
    [never] = judged({}, counters={"drops": {"total": 20}}, duration_s=0.0)
    assert (never.text, never.weight) == ("sample: drops –", 0.0)
    both = judged({}, counters={"b_drops": {"total": 1}, "a_drops": {"total": 1}})
    assert [one.text for one in both] == ["sample: a_drops 0.1/s", "sample: b_drops 0.1/s"]


@pytest.mark.parametrize(("percent", "value"), [(0, 1), (50, 1), (98, 1), (98.1, 11), (99, 11), (99.1, 21), (100, 21)])
def test_a_percentile_is_the_middle_of_its_bucket(percent: float, value: float) -> None:
    """Of 100 samples, 98 lie between 0 and 2, one at 11 and one at 21; between them is a bucket without any."""
    buckets = [(-2.0, 0.0, 0), (0.0, 2.0, 98), (2.0, 10.0, 0), (10.0, 12.0, 1), (20.0, 22.0, 1)]
    data = HistogramData(count=100, buckets=buckets)
    assert data.percentile(percent) == value
    within = msgspec.structs.replace(data, min=1.5, max=15.0)
    assert within.percentile(percent) == min(15.0, max(1.5, value))
    assert HistogramData(buckets=[(0.0, 1.0, 0)]).percentile(percent) is None
