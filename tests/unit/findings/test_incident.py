"""One incident as documents have it, how it is told, and which comes first."""

from __future__ import annotations

from typing import Any

import pytest

from netconsole.findings.incident import Incident, document, told, urgency
from netconsole.findings.match import RANK, Evidence, Match
from netconsole.snapshot.document import EvidenceData, IncidentData

S = 1_000_000_000
NOON = 1_763_640_000 * S
"""2025-11-20T12:00:00Z"""
ROW = Evidence("table", "kernel_drops", "drops", (("device", "eth0"), ("port", 53)))


def incident(**more: Any) -> Incident:
    plain: dict[str, Any] = {
        "number": 1, "level": "!", "cause": "c", "sentence": "eth0 loses", "since_ns": NOON, "ended_ns": None,
        "blind_since_ns": None, "evidence": (ROW,), "where": {}, "weight": 1.0, "total": None, "peak": None,
        "at_least": False, "share_pct": None, "unit": "", "next": (), "commands": (), "history": (),
    }  # fmt: skip
    return Incident(**{**plain, **more})


def test_an_incident_in_a_document() -> None:
    proofs = [ROW, Evidence("histogram", "p", "wait"), Evidence("probe", "p"), Evidence("collector", "")]
    whole = incident(
        level="!!", where={"device": "eth0"}, ended_ns=NOON + 22 * S, blind_since_ns=NOON + 5 * S, evidence=(*proofs,),
        total=7, peak=1.23456, share_pct=0.98765, unit="packets", next=("a", "b"), commands=("c",), at_least=True,
    )  # fmt: skip
    assert document([whole]) == [
        IncidentData(
            level="!!", cause="c", what="eth0 loses", where={"device": "eth0"}, began="2025-11-20T12:00:00Z",
            ended="2025-11-20T12:00:22Z", total=7, peak_per_s=1.235, share_pct=0.988, unit="packets",
            evidence=[
                EvidenceData("kernel_drops", "table", "drops", {"device": "eth0", "port": 53}),
                EvidenceData("p", "histogram", "wait"), EvidenceData("p", "source"), EvidenceData("", "source"),
            ],
            next=["a", "b"], commands=["c"], at_least=True, not_measured_since="2025-11-20T12:00:05Z",
        )
    ]  # fmt: skip
    assert whole.probe == "kernel_drops" and whole.is_count and incident(total=0).is_count


def test_what_is_no_count_has_a_peak_in_its_unit() -> None:
    [gauge] = document([incident(peak=1.23456, unit="us")])
    assert (gauge.total, gauge.peak_per_s, gauge.peak) == (None, None, 1.235)
    assert (gauge.ended, gauge.share_pct, gauge.not_measured_since) == (None, None, None)
    [counted] = document([incident(total=0)])
    [drawn] = document([incident(history=(None, None, 1.23456, None, 0.0))])
    assert drawn.history == [1.235, None, 0.0], "from where something is known"
    assert (counted.total, counted.peak_per_s, counted.peak) == (0, None, None)
    assert not incident().is_count


@pytest.mark.parametrize(("ended_s", "kept"), [(None, 1), (9, 0), (10, 1), (11, 1)])
def test_what_ended_before_the_measurement_is_left_out(ended_s: int | None, kept: int) -> None:
    one = incident(ended_ns=None if ended_s is None else NOON + ended_s * S)
    assert len(document([one], NOON + 10 * S)) == kept and len(document([one])) == 1
    assert document([incident(level="ok")]) == []


def test_what_is_over_is_told_with_how_much_it_was() -> None:
    """From the begin of its first interval to the end of its last."""
    over = incident(ended_ns=NOON + 22 * S, total=21010, unit="packets")
    assert told(over) == "eth0 loses; 21\u202f010 packets in 22 s"
    assert told(incident(ended_ns=NOON + S, total=1, at_least=True, unit="x")) == "eth0 loses; ≥1 x in 1 s"
    assert told(incident(ended_ns=NOON)) == told(incident(total=5)) == "eth0 loses"


def test_what_goes_on_comes_first_then_the_worst_the_largest_the_oldest() -> None:
    order = [
        incident(number=9, level="!!"),
        incident(number=8, weight=5.0),
        incident(number=7, since_ns=NOON - S),
        incident(number=3),
        incident(number=4),
        incident(number=1, level="?", weight=99.0),
        incident(number=2, level="!!", ended_ns=NOON),
    ]
    backwards = order[::-1]
    assert sorted(backwards, key=urgency) == order
    assert [one.level for one in document(backwards)] == ["!!", "!", "!", "!", "!", "?", "!!"]


def test_levels_from_the_worst_on_and_a_plain_match() -> None:
    assert sorted(RANK, key=lambda level: RANK[level]) == ["!!", "!", "?", "ok"]
    plain = Match(ROW, "c", "!", lambda *_: "", 1.0, 1.0)
    assert (plain.specific, plain.needed, plain.lasting) == (0, 1, False)
