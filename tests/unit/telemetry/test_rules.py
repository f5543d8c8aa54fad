"""Rules of the state at their edges: what is bounded, what is unknown, and whose costs count."""

from __future__ import annotations

import pytest

from netconsole.telemetry import frames
from netconsole.telemetry.frames import Buckets, Count, Program, Row, Statistics
from netconsole.telemetry.histogram import EMPTY, index
from netconsole.telemetry.series import SAMPLES, Series, Timeline
from netconsole.telemetry.state import MAX_EVENTS, MAX_PROBES, State
from netconsole.telemetry.tables import (
    GONE_AFTER_INTERVALS,
    MAX_HISTOGRAM_HISTORIES,
    MAX_HISTOGRAMS,
    MAX_NAMES,
    MAX_VALUES,
    per_second,
    row_key,
)
from tests.unit.telemetry.test_state import SECOND, Stream, row

LO = row_key({"device": "lo"})


@pytest.fixture
def stream() -> Stream:
    one = Stream(State())
    one.hello()
    one.status()
    return one


def one_of(*values: int) -> Buckets:
    slots = sorted({index(value): sum(index(other) == index(value) for other in values) for value in values}.items())
    return Buckets(count=len(values), sum=sum(values), min=min(values), max=max(values), buckets=slots)


# ---- costs ----


def costly(stream: Stream, pct: float, window_ns: int = SECOND // 10) -> None:
    window = Statistics(window_ns=window_ns, interval_ns=SECOND, estimated=False)
    stream.cost(programs=[Program("a", "here", 1, round(pct / 100 * window_ns), 0)], statistics=window)


def kernel(state: State) -> tuple[float | None, bool, bool]:
    """In-kernel time, whether it is estimated, and whether it is calibrated."""
    return state.kernel_cpu_pct, state.kernel_cpu_estimated, state.kernel_cpu_calibrated


def test_in_kernel_time_is_that_of_the_probes_that_measure() -> None:
    state = State()
    assert kernel(state) == (None, False, False)
    stream = Stream(state)
    stream.hello()
    stream.status()
    assert kernel(state) == (None, False, False), "before the first window"
    costly(stream, 2.0)
    assert kernel(state) == (2.0, True, False)
    stream.status("degraded")
    assert kernel(state) == (2.0, True, False)
    ended: tuple[frames.ProbeStatus, ...] = ("failed", "off", "unsupported", "compiling")
    for status in ended:
        stream.status(status)
        assert kernel(state) == (None, False, False)


def test_where_the_kernel_tells_nothing_a_count_costs_what_was_calibrated_in_this_mode(stream: Stream) -> None:
    state, probe = stream.state, stream.state.probes["p"]
    probe.per_count = {("p", "summary"): ("packets", 500.0)}
    stream.counters(packets=(20_000, 20_000))
    assert kernel(state) == (None, False, False), "the kernel measures, and has not yet"
    stream.cost(statistics=None)
    assert kernel(state) == (1.0, True, True)
    for other in (("p", "details"), "packets"), (("p", "summary"), "bytes"):
        probe.per_count = {other[0]: (other[1], 500.0)}
        assert kernel(state) == (None, False, False)


@pytest.mark.parametrize(
    ("status", "measuring", "settled"),
    [("compiling", False, False), ("attaching", False, False), ("attached", True, True), ("degraded", True, True),
     ("failed", False, True), ("unsupported", False, True), ("off", False, True)],
)  # fmt: skip
def test_a_probe_measures_or_has_been_refused_or_is_waited_for(
    stream: Stream, status: frames.ProbeStatus, measuring: bool, settled: bool
) -> None:
    stream.status(status)
    probe = stream.state.probes["p"]
    assert (probe.measuring, probe.settled) == (measuring, settled)


def test_counters_are_exact_although_rows_lack_what_was_not_listed(stream: Stream) -> None:
    probe = stream.state.probes["p"]

    def exact(**ledger: Count) -> tuple[bool, dict[str, int]]:
        stream.cost(ledger=ledger)
        return probe.is_exact("packets"), probe.at_least()

    assert exact(unlisted=Count(1, 1)) == (True, {"unlisted": 1})
    assert exact(unlisted=Count(0, 1), missed=Count(1, 1)) == (False, {"missed": 1, "unlisted": 1})
    assert exact(lost=Count(1, 4)) == (True, {})
    assert stream.state.ledger_totals() == {"lost": 4}


def test_a_host_is_this_one_until_it_is_said_to_be_far() -> None:
    assert State().is_far is False


# ---- time ----


def test_the_time_that_has_passed_ends_with_the_last_whole_interval() -> None:
    stream, found = Stream(State()), []
    found.append((stream.state.elapsed_s, stream.state.age_s(103 * SECOND)))
    stream.hello()
    found.append((stream.state.elapsed_s, stream.state.age_s(103 * SECOND)))
    for _ in range(2):
        stream.end()
        found.append((stream.state.elapsed_s, stream.state.age_s(103 * SECOND)))
    assert found == [(None, None), (None, None), (0.0, 3.0), (1.0, 2.0)]
    assert stream.state.age_s(90 * SECOND) == 0.0
    assert (stream.state.first_mono_ns, stream.state.first_wall_ns) == (100 * SECOND, 100 * SECOND + 5)


def test_a_rate_needs_a_difference_and_a_time() -> None:
    assert per_second(5, SECOND // 2) == 10.0
    assert per_second(None, SECOND) is None and per_second(5, 0) is None and per_second(0, SECOND) == 0.0


# ---- bounds ----


def test_no_more_probes_counters_tables_and_histograms_are_kept_than_there_can_be() -> None:
    stream = Stream(State())
    for number in range(MAX_PROBES + 3):
        stream.state.apply(frames.Status(**stream.stamp(f"p{number}"), state="attached", mode="summary"))
    assert len(stream.state.probes) == MAX_PROBES == 64
    stream = Stream(State())
    stream.counters(**{f"c{number}": (1, 1) for number in range(MAX_NAMES + 3)})
    for number in range(MAX_NAMES + 3):
        table = frames.Table(**stream.stamp(), name=f"t{number}", interval_ns=SECOND, full=True, rows=[])
        stream.state.apply(table)
        stream.state.apply(
            frames.Histogram(
                **stream.stamp(), name=f"h{number}", interval_ns=SECOND, unit="ns", labels={}, delta=EMPTY, total=EMPTY
            )
        )
    probe = stream.state.probes["p"]
    assert [len(kept) for kept in (probe.counters, probe.tables, probe.histograms)] == [MAX_NAMES] * 3
    assert MAX_NAMES == 64
    stream.counters(c0=(4, 5))
    assert probe.counters["c0"].count.total == 5, "those that are known go on"


def test_no_more_values_of_a_row_are_kept_than_there_can_be(stream: Stream) -> None:
    stream.table(Row({"device": "lo"}, {f"v{number}": Count(1, 1) for number in range(MAX_VALUES + 3)}))
    kept = stream.state.probes["p"].tables["t"].rows[LO]
    assert len(kept.counts) == MAX_VALUES == 32


def event(stream: Stream) -> None:
    stream.state.apply(frames.Event(**stream.stamp(), name="e", fields={}))


def test_the_last_five_hundred_events_are_kept_and_those_of_one_interval_above_them_are_shed(stream: Stream) -> None:
    probe = stream.state.probes["p"]
    for _ in range(MAX_EVENTS):
        event(stream)
    assert (probe.events_arrived, probe.events_shed, MAX_EVENTS) == (500, 0, 500)
    event(stream)
    assert (probe.events_shed, len(probe.events)) == (1, 500)
    stream.end()
    event(stream)
    assert (probe.events_arrived, probe.events_shed) == (502, 1)
    assert stream.state.ledger_totals() == {"shed": 1}


# ---- histograms ----


def test_a_histogram_that_was_not_sent_for_twenty_five_intervals_is_gone(stream: Stream) -> None:
    stream.histogram(one_of(100), one_of(100), cpu=1)
    for _ in range(GONE_AFTER_INTERVALS + 1):
        stream.end()
    group = stream.state.probes["p"].histograms["h"]
    assert len(group.rows) == 1 and GONE_AFTER_INTERVALS == 25
    stream.end()
    assert not group.rows and group.history((("cpu", 1),)) == []


def test_a_histogram_has_the_history_of_its_p99_and_rests_without_a_frame(stream: Stream) -> None:
    key = (("cpu", 1),)
    stream.histogram(one_of(*[100] * 98, 5000, 5000), one_of(*[100] * 98, 5000, 5000), cpu=1)
    stream.end()
    group = stream.state.probes["p"].histograms["h"]
    assert group.rows[key].per_s == 100.0
    stream.end()
    assert (group.rows[key].per_s, group.rows[key].delta.count) == (0.0, 0)
    assert group.rows[key].percentile(50) == pytest.approx(100, rel=0.0625)
    assert group.rows[key].percentile(50, "delta") is None
    p99, rest = group.history(key, 2)
    assert p99 == pytest.approx(5000, rel=0.0625) and rest is None


def test_no_more_histograms_are_kept_than_there_is_room_for_and_the_others_are_counted(stream: Stream) -> None:
    for cpu in range(MAX_HISTOGRAMS + 3):
        stream.histogram(one_of(8), one_of(8), cpu=cpu)
    group = stream.state.probes["p"].histograms["h"]
    assert (len(group.rows), group.omitted, MAX_HISTOGRAMS) == (1024, 3, 1024)
    with_history = [key for key in group.rows if group.history(key, 1)]
    assert len(with_history) == MAX_HISTOGRAM_HISTORIES == 64


def test_rows_that_did_not_fit_into_the_frame_are_told(stream: Stream) -> None:
    stream.state.apply(
        frames.Table(**stream.stamp(), name="t", interval_ns=SECOND, full=True, omitted=7, rows=[row("lo", 1, 1)])
    )
    table = stream.state.probes["p"].tables["t"]
    assert table.omitted == 7
    lo = table.rows[LO]
    assert (lo.first_seen_ns, lo.last_active_ns, lo.total("n"), lo.total("m"), lo.per_s("m")) == (
        100 * SECOND + 5, 100 * SECOND + 5, 1, None, None,
    )  # fmt: skip


# ---- series ----


def ticked(timeline: Timeline, intervals: int) -> None:
    for _ in range(intervals):
        timeline.close(timeline.tick * SECOND, True)


def test_a_history_is_of_ten_minutes_and_begins_with_the_unknown() -> None:
    timeline, series = Timeline(), Series()
    ticked(timeline, 2)
    series.put(2, 5.0)
    ticked(timeline, 2)
    assert series.values(timeline, 4) == [None, 5.0, 0.0, 0.0]
    assert series.values(timeline, 4, idle=None) == [None, 5.0, None, None]
    assert len(series.values(timeline)) == len(series.values(timeline, 10_000)) == SAMPLES == 600
    ticked(timeline, SAMPLES - 3)
    assert series.values(timeline)[0] == 5.0
    ticked(timeline, 1)
    assert set(series.values(timeline)) == {0.0}, "more than ten minutes ago"


def test_intervals_that_nobody_saw_are_counted_and_are_no_zeros() -> None:
    timeline, series = Timeline(), Series()
    assert timeline.begin(10 * SECOND, SECOND) == 0, "nothing is known of what was before"
    series.put(1, 1.0)
    timeline.close(10 * SECOND, True)
    assert timeline.begin(13 * SECOND + 100, SECOND) == 2
    assert timeline.begin(13 * SECOND + 200, SECOND) == 0, "the first figure of an interval tells"
    timeline.close(13 * SECOND, True)
    assert series.values(timeline, 4) == [1.0, None, None, 0.0]
    assert timeline.begin(15 * SECOND - 600_000_000, SECOND) == 0, "1.4 intervals are one"
    timeline.close(14 * SECOND, False)
    assert series.values(timeline, 2) == [0.0, None]
    assert timeline.begin(10_000_000 * SECOND, SECOND) == SAMPLES, "no more than there is room for"


# ---- rows ----


def test_the_rows_that_moved_are_those_of_the_last_interval_or_all_when_that_is_not_known(stream: Stream) -> None:
    def moving() -> list[str]:
        return sorted(str(one.labels["device"]) for one in stream.state.probes["p"].tables["t"].moving())

    stream.table(row("a", 1, 1), row("b", 0, 4), row("c", 2, 2), full=True)
    assert moving() == ["a", "c"]
    stream.end()
    stream.table(row("b", 3, 7))
    assert moving() == ["b"]
    stream.end()
    stream.end()
    assert moving() == ["a", "b", "c"], "nobody knows"
    stream.table(row("a", 1, 2), row("b", 0, 7), full=True)
    assert moving() == ["a"]


def test_a_row_was_active_when_a_count_of_it_last_moved(stream: Stream) -> None:
    stream.table(row("lo", 1, 1), full=True)
    stream.end()
    stream.table(row("lo", 0, 1), full=True)
    lo = stream.state.probes["p"].tables["t"].rows[LO]
    assert (lo.first_seen_ns, lo.last_active_ns) == (100 * SECOND + 5, 100 * SECOND + 5)
    stream.end()
    stream.table(row("lo", 2, 3))
    assert (lo.first_seen_ns, lo.last_active_ns) == (100 * SECOND + 5, 102 * SECOND + 5)
    stream.histogram(one_of(9), one_of(9))
    stream.end()
    stream.histogram(one_of(9, 9), one_of(9, 9, 9))
    (group,) = stream.state.probes["p"].histograms.values()
    (only,) = group.rows.values()
    assert only.last_active_ns == 103 * SECOND + 5
    stream.end()
    stream.histogram(EMPTY, one_of(9, 9, 9))
    assert only.last_active_ns == 103 * SECOND + 5


def test_a_count_that_was_evicted_and_begins_again_is_taken_as_it_is_sent(stream: Stream) -> None:
    """Its total is another one although nothing moved: the delta is 0 in both frames."""
    stream.table(row("lo", 0, 9), full=True)
    stream.end()
    stream.table(row("lo", 0, 2), full=True)
    assert stream.state.probes["p"].tables["t"].rows[LO].total("n") == 2


def test_each_row_without_room_is_counted_once(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netconsole.telemetry.tables.MAX_ROWS", 2)
    stream.table(*(row(name, 1, 1) for name in "abcde"), full=True)
    table = stream.state.probes["p"].tables["t"]
    assert (len(table.rows), table.omitted) == (2, 3)
    stream.end()
    stream.table(row("f", 1, 1), row("a", 1, 2), row("g", 1, 1))
    assert (len(table.rows), table.omitted) == (2, 2)


# ---- a source that starts again ----


def test_a_source_that_starts_again_has_new_numbers_and_its_costs_so_far(stream: Stream) -> None:
    stream.cost(ledger={"missed": Count(1, 1)})
    next(stream.seq)  # one is lost
    stream.end()
    source, probe = stream.state.collector, stream.state.probes["p"]
    assert (source.frames_lost, source.restarts, set(probe.cost.ledger)) == (1, 0, {"missed"})
    assert stream.state.apply(frames.Bye(**stream.stamp(None), why="gone")) is False, "it ends no interval"
    byes = [source.bye]
    stream.hello()
    assert (source.frames_lost, source.restarts, set(probe.cost.ledger)) == (1, 1, {"missed"})
    assert [*byes, source.bye] == ["gone", None]
    next(stream.seq)
    stream.status()
    stream.end()
    assert source.frames_lost == 2
