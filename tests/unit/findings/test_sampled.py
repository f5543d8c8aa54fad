"""Incidents of a probe that is attached for a share of the time: rates of what was seen, and nothing counted twice."""

from __future__ import annotations

from typing import Any

import pytest

from netconsole.findings.incident import Incident
from netconsole.findings.incidents import Incidents
from netconsole.probes.manifest import Manifest
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Count, Row
from tests.unit.telemetry.test_state import SECOND, Stream

LABELS: dict[str, frames.Label] = {"reason": "QDISC_DROP", "class": "suspicious", "provenance": "kernel"}


class Sampled:
    """Intervals of a table of drops, and what is made of them."""

    def __init__(self, stream: Stream, manifests: dict[str, Manifest]) -> None:
        self._stream, self._findings = stream, Incidents(manifests)
        self.total = 0
        stream.status(knobs={"seen_pct": 10})

    def interval(self, seen_ns: int, delta: int) -> list[Incident]:
        """What stands out after an interval of which so much was seen, with so many drops."""
        self.total += delta
        rows = [Row(labels=LABELS, counts={"count": Count(delta, self.total)})] if delta else []
        timing: dict[str, Any] = {"interval_ns": SECOND, "seen_ns": seen_ns}
        stamp = self._stream.stamp
        self._stream.state.apply(frames.Counters(**stamp(), **timing, values={}))
        self._stream.state.apply(frames.Table(**stamp(), **timing, name="drops", full=False, rows=rows))
        self._stream.end()
        return self._findings.update(self._stream.state)


@pytest.fixture
def sampled(stream: Stream, manifests: dict[str, Manifest]) -> Sampled:
    return Sampled(stream, manifests)


def test_what_is_held_while_the_probe_rests_is_not_counted_again(sampled: Sampled) -> None:
    """Five drops a second are small: they stand out when they have lasted, and most of that time nothing was seen."""
    listed: list[Incident] = []
    for _ in range(3):
        listed = sampled.interval(SECOND, 5)
        for _ in range(6):
            listed = sampled.interval(0, 0)
    (one,) = listed
    assert one.total == sampled.total == 15
    assert one.sentence.startswith("5/s") and one.peak == pytest.approx(5.0)


def test_a_small_rate_is_of_the_time_that_was_seen(sampled: Sampled) -> None:
    for _ in range(20):
        listed = sampled.interval(SECOND // 10, 1)
    (one,) = listed
    assert one.total == 20 and one.sentence.startswith("10/s") and one.peak == pytest.approx(10.0)


def test_what_was_not_looked_at_makes_totals_lower_bounds_and_no_rates(sampled: Sampled, stream: Stream) -> None:
    for number in range(1, 21):
        stream.cost(ledger={"unseen_ms": Count(900, 900 * number)})
        listed = sampled.interval(SECOND // 10, 100)
    (one,) = listed
    assert (one.at_least, one.sentence) == (True, "1.00k/s QDISC_DROP")
