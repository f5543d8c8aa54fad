"""A probe that is attached for a share of the time: rates of the time that was seen, held while nothing is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netconsole.probes import catalogue
from netconsole.profile.profile import Budget, Profile
from netconsole.report.of_snapshot import of_snapshot
from netconsole.snapshot import builder
from netconsole.snapshot.document import encode, parse
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Buckets, Count
from netconsole.telemetry.state import SEEN_INTERVALS, State
from tests.unit.probes.test_manifest_reader import GOOD, make
from tests.unit.telemetry.test_state import LO, SECOND, Stream, row

HALF = SECOND // 2


class Sampled(Stream):
    """Its counter `all` goes on while the probe rests, `some` and rows do not."""

    rested_ns = all = some = 0

    def interval(self, seen_ns: int | None, all_: int, some: int) -> None:
        self.all, self.some = self.all + all_, self.some + some
        self.counters(all=(all_, self.all))
        of_what: dict[str, Any] = {"interval_ns": SECOND, "seen_ns": seen_ns}
        values = {"some": Count(delta=some, total=self.some)}
        self.state.apply(frames.Counters(**self.stamp(), **of_what, values=values))
        rows = [row("lo", some, self.some)] if some else []
        self.state.apply(frames.Table(**self.stamp(), name="t", full=False, rows=rows, **of_what))
        if some:
            found = Buckets(some, 8 * some, 8, 8, [(8, some)])
            self.state.apply(
                frames.Histogram(**self.stamp(), name="h", unit="ns", labels={}, delta=found, total=found, **of_what)
            )
        rest_ns = 0 if seen_ns is None else SECOND - seen_ns
        self.rested_ns += rest_ns
        self.cost(
            ledger={"unseen_ms": Count(rest_ns // 10**6, self.rested_ns // 10**6), "unlisted": Count(all_, self.all)}
        )
        self.end()


@pytest.fixture
def stream() -> Sampled:
    one = Sampled(State())
    one.hello()
    one.status(knobs={"seen_pct": 50})
    return one


def test_rates_are_of_the_time_that_was_seen_and_totals_a_lower_bound(stream: Sampled) -> None:
    stream.interval(HALF, 100, 50)
    probe = stream.state.probes["p"]
    assert (probe.counters["all"].count.per_s, probe.counters["some"].count.per_s) == (100.0, 100.0)
    assert probe.tables["t"].rows[LO].per_s("n") == 100.0 and probe.histograms["h"].rows[()].per_s == 100.0
    assert probe.is_exact("all") and not probe.is_exact("some")
    assert probe.at_least().keys() == {"unseen_ms", "unlisted"}, "rows are a lower bound"
    assert not probe.lacks_now and not probe.counters_lack_now, "rates are not"
    assert probe.seen_pct == 50.0


def test_figures_are_held_while_nothing_is_seen(stream: Sampled) -> None:
    stream.interval(HALF, 100, 50)
    for _ in range(30):
        stream.interval(0, 100, 0)
    probe = stream.state.probes["p"]
    assert (probe.counters["all"].count.per_s, probe.counters["some"].count.per_s) == (100.0, 100.0)
    assert probe.counters["some"].count.delta == 0
    assert probe.tables["t"].rows[LO].per_s("n") == 100.0
    assert probe.histograms["h"].rows[()].delta.count == 50, "it is not gone either"
    assert probe.counter_history("some", 2) == [None, None] and probe.tables["t"].sums(2) == {"n": [None, None]}
    assert probe.tables["t"].history(LO, "n", 2) == [None, None]
    assert probe.counter_history("all", 2) == [100.0, 100.0]
    stream.interval(HALF, 100, 0)
    assert probe.tables["t"].rows[LO].per_s("n") == 0.0 and probe.histograms["h"].rows[()].per_s == 0.0


def test_the_share_is_of_the_last_time_and_ends_with_the_sampling(stream: Sampled) -> None:
    for _ in range(SEEN_INTERVALS):
        stream.interval(0, 1, 0)
    for _ in range(SEEN_INTERVALS // 2):
        stream.interval(HALF, 1, 1)
        stream.interval(0, 1, 0)
    probe = stream.state.probes["p"]
    assert probe.seen_pct == 25.0
    stream.status(knobs={"seen_pct": 100})
    stream.interval(None, 8, 8)
    assert probe.counters["some"].count.per_s == 8.0 and not probe.is_exact("some"), (
        "its total still lacks what was not seen"
    )
    assert stream.state.probes["p"].seen_pct is None


def test_a_snapshot_has_rates_of_the_time_that_was_seen(stream: Sampled, tmp_path: Path) -> None:
    manifests = {"p": catalogue.load(make(tmp_path, GOOD))}
    stream.interval(0, 1, 0)
    start = builder.totals(stream.state)
    for _ in range(5):
        stream.interval(HALF, 100, 50)
        stream.interval(0, 100, 0)
    taken = builder.build(stream.state, manifests, Profile("summary", budget=Budget()), start)
    assert parse(encode(taken), "test") == taken
    probe = taken.probes["p"]
    assert taken.duration_s == 10.0 and probe.duration_s == 2.5 and probe.ledger["unseen_ms"] == 7500
    every, some = probe.counters["all"], probe.counters["some"]
    assert (every.total, every.per_s, every.duration_s) == (1000, 100.0, 10.0)
    assert (some.total, some.per_s, some.duration_s) == (250, 100.0, None)
    said = str(of_snapshot(taken, manifests))
    assert "The probe was attached for 25 % of the time" in said and "not attached for 7.50 s" in said


def test_a_counter_is_exact_again_when_its_probe_was_attached_anew(stream: Sampled) -> None:
    stream.interval(HALF, 100, 50)
    stream.status(knobs={"seen_pct": 100})
    stream.all = stream.some = stream.rested_ns = 0
    stream.interval(None, 8, 8)
    probe = stream.state.probes["p"]
    assert probe.is_exact("some") and probe.counters["some"].count.total == 8


def test_the_share_may_change_between_two_frames_of_one_interval(stream: Sampled) -> None:
    """Status frames overtake those that wait for the end of their interval."""
    for seen_pct in (50, 25, 10):
        stream.counters(all=(1, 1))
        stream.status(knobs={"seen_pct": seen_pct})
    stream.counters(all=(1, 1))
    assert stream.state.probes["p"].seen_pct == 100.0
