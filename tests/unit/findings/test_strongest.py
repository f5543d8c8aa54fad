"""Of many rows that stand out, the strongest are said; and limits are limits: at them nothing stands out yet."""

from __future__ import annotations

import pytest

from netconsole.findings.incidents import Incidents
from netconsole.findings.matches import MAX_ALIKE, loudest
from netconsole.probes.manifest import Manifest
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Buckets, Count, Row
from netconsole.telemetry.histogram import index
from tests.unit.findings.test_incidents import drops, matches, run
from tests.unit.telemetry.test_state import SECOND, Stream


def test_of_more_rows_than_are_said_the_strongest_are(stream: Stream, manifests: dict[str, Manifest]) -> None:
    assert MAX_ALIKE == 50
    rows = [
        Row({"reason": f"R{rate}", "class": "suspicious", "provenance": "kernel"}, {"count": Count(rate, rate)})
        for rate in range(100, 160)
    ]
    stream.state.apply(
        frames.Table(**stream.stamp(), name="drops", interval_ns=SECOND, full=True, rows=[*rows[30:], *rows[:30]])
    )
    stream.end()
    loud, quiet = (sorted(match.value for match in part) for part in loudest(matches(stream.state, manifests)))
    assert (loud, quiet) == ([*map(float, range(110, 160))], [*map(float, range(100, 110))])


@pytest.mark.parametrize(("rate", "is_said"), [(9, False), (10, True), (11, True)])
def test_a_rate_is_said_at_once_from_ten_times_its_limit_on(
    stream: Stream, manifests: dict[str, Manifest], rate: int, is_said: bool
) -> None:
    """`over = 1.0` of a rule that is not urgent: ten in a second are said in the first interval."""
    assert bool(run(stream, Incidents(manifests), 1, rate)) is is_said


def wait(stream: Stream, ns: int, count: int) -> None:
    buckets = Buckets(count=count, sum=ns * count, min=ns, max=ns, buckets=[(index(ns), count)])
    frame = frames.Histogram(
        **stream.stamp(),
        name="wait",
        interval_ns=SECOND,
        unit="ns",
        labels={"device": "eth0"},
        delta=buckets,
        total=buckets,
    )
    stream.state.apply(frame)


@pytest.mark.parametrize(
    ("ns", "count", "is_said"), [(1_000_000, 10, False), (1_000_001, 10, True), (1_000_001, 9, False)]
)
def test_a_percentile_is_said_above_its_limit_and_of_ten_samples_on(
    stream: Stream, manifests: dict[str, Manifest], ns: int, count: int, is_said: bool
) -> None:
    wait(stream, ns, count)
    stream.end()
    found = matches(stream.state, manifests)
    assert bool(found) is is_said
    if is_said:
        assert found[0].weight == pytest.approx(0.01 * count), "the events per second beyond p99"
        assert found[0].needed == 2


def test_the_ledger_of_a_burst_is_its_own(stream: Stream, manifests: dict[str, Manifest]) -> None:
    """The highest rate of any second, and the sum of all of them."""
    findings, total = Incidents(manifests), 0
    for delta in (50, 400, 30):
        total += delta
        drops(stream, delta, total=total)
        stream.end()
        (one,) = findings.update(stream.state)
    assert (one.total, one.peak) == (480, 400.0)
