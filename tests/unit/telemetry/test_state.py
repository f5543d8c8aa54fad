"""The state: exact totals whatever is lost, rates of the interval, gaps that stay gaps, and bounded memory."""

from __future__ import annotations

import copy
import itertools
import tracemalloc
from typing import Any

import pytest

from netconsole.telemetry import checkpoint, frames
from netconsole.telemetry.frames import Buckets, Count, Row
from netconsole.telemetry.histogram import index
from netconsole.telemetry.series import SAMPLES, Series, Timeline
from netconsole.telemetry.state import MAX_EVENTS, State
from netconsole.telemetry.tables import (
    GONE_AFTER_INTERVALS,
    MAX_HISTORY_ROWS,
    MAX_ROWS,
    MAX_VALUES,
    CountState,
    row_key,
)

SECOND = 1_000_000_000
HOST = frames.Host(name="hv", kernel="6.1", arch="x86_64", os="Debian", cpus=2, boot_id="b")


class Stream:
    """Frames of one source with running numbers and clocks, applied to a state."""

    def __init__(self, state: State, source: frames.SourceName = "collector") -> None:
        self.state = state
        self.source = source
        self.seq = itertools.count(1)
        self.mono_ns = 100 * SECOND

    def stamp(self, probe: str | None = "p") -> dict[str, Any]:
        return {
            "source": self.source,
            "probe": probe,
            "seq": next(self.seq),
            "mono_ns": self.mono_ns,
            "wall_ns": self.mono_ns + 5,
        }

    def hello(self) -> None:
        self.seq = itertools.count(1)
        self.state.apply(frames.Hello(**self.stamp(None), host=HOST, collector={"pid": 1}, capabilities={}))

    def status(self, state: frames.ProbeStatus = "attached", **values: Any) -> None:
        self.state.apply(frames.Status(**self.stamp(), state=state, mode="summary", **values))

    def counters(self, **values: tuple[int, int]) -> None:
        counts = {name: Count(delta=d, total=t) for name, (d, t) in values.items()}
        self.state.apply(frames.Counters(**self.stamp(), interval_ns=SECOND, values=counts))

    def table(self, *rows: Row, full: bool = False, interval_ns: int = SECOND) -> None:
        self.state.apply(frames.Table(**self.stamp(), name="t", interval_ns=interval_ns, full=full, rows=list(rows)))

    def histogram(self, delta: Buckets, total: Buckets, **labels: frames.Label) -> None:
        self.state.apply(
            frames.Histogram(
                **self.stamp(), name="h", interval_ns=SECOND, unit="ns", labels=labels, delta=delta, total=total
            )
        )

    def cost(self, **values: Any) -> bool:
        return self.state.apply(frames.Cost(**self.stamp(), interval_ns=SECOND, **values))

    def end(self, skipped: int = 0) -> bool:
        ended = self.state.apply(frames.Cost(**self.stamp(None), interval_ns=SECOND))
        self.mono_ns += SECOND * (1 + skipped)
        return ended


def row(device: str, delta: int, total: int, **gauges: float | None) -> Row:
    return Row(labels={"device": device}, counts={"n": Count(delta=delta, total=total)}, gauges=gauges)


LO = row_key({"device": "lo"})


@pytest.fixture
def stream() -> Stream:
    one = Stream(State())
    one.hello()
    one.status()
    return one


def test_only_the_sources_own_cost_ends_an_interval(stream: Stream) -> None:
    assert not stream.cost()
    assert stream.state.collector.intervals == 0
    assert stream.end()
    assert stream.state.collector.intervals == 1
    assert stream.state.collector.closed_mono_ns == 100 * SECOND
    assert stream.state.age_s(102 * SECOND) == 2.0


def test_a_row_that_is_not_sent_stood_still(stream: Stream) -> None:
    stream.table(row("lo", 5, 5), row("eth0", 1, 1), full=True)
    stream.end()
    stream.table(row("eth0", 2, 3))
    stream.end()
    lo = stream.state.probes["p"].tables["t"].rows[LO].counts["n"]
    assert (lo.total, lo.delta, lo.per_s) == (5, 0, 0.0)


def test_the_gauges_of_a_row_are_those_that_were_sent_last(stream: Stream) -> None:
    for level in (3, 4):
        stream.table(row("lo", 0, 5, level=level))
        stream.end()
    assert stream.state.probes["p"].tables["t"].rows[LO].gauges == {"level": 4}


def test_the_sum_of_a_table_is_zero_before_its_first_row(stream: Stream) -> None:
    stream.table()
    stream.end()
    stream.end()
    stream.table(row("lo", 5, 5))
    stream.end()
    assert stream.state.probes["p"].tables["t"].sums(3) == {"n": [0.0, 0.0, 5.0]}


def test_a_table_that_is_not_sent_is_not_known_until_it_is(stream: Stream) -> None:
    stream.table(row("lo", 5, 5), row("eth0", 0, 9), full=True)
    stream.end()
    stream.end()
    table = stream.state.probes["p"].tables["t"]
    assert [(one.total("n"), one.per_s("n")) for one in table.rows.values()] == [(5, None), (9, None)]
    stream.table(row("lo", 2, 7))
    stream.end()
    assert [(one.total("n"), one.per_s("n")) for one in table.rows.values()] == [(7, 2.0), (9, 0.0)]
    assert table.history(LO, "n", 3) == [5.0, None, 2.0]


def test_gauges_of_a_source_that_has_stopped_answering_are_unknown(stream: Stream) -> None:
    row = Row(
        labels={"process": "ovs-vswitchd/1"}, counts={"puts": Count(delta=1, total=1)}, gauges={"answer_ms": 4.76}
    )
    stream.table(row)
    stream.end()
    (shown,) = stream.state.probes["p"].tables["t"].rows.values()
    assert shown.gauges == {"answer_ms": 4.76}
    stream.end()
    assert (shown.gauges, shown.total("puts"), shown.per_s("puts")) == ({"answer_ms": None}, 1, None)


def test_a_count_that_a_row_lacks_now_is_unknown_and_its_total_stays(stream: Stream) -> None:
    labels: dict[str, frames.Label] = {"port": "vh0"}
    stream.table(Row(labels=labels, counts={"rx": Count(delta=3, total=3), "tx": Count(delta=1, total=1)}))
    stream.end()
    stream.table(Row(labels=labels, counts={"tx": Count(delta=2, total=3)}))
    stream.end()
    (shown,) = stream.state.probes["p"].tables["t"].rows.values()
    assert (shown.per_s("rx"), shown.total("rx"), shown.per_s("tx")) == (None, 3, 2.0)


def test_rates_are_of_the_interval_that_was_measured(stream: Stream) -> None:
    stream.table(row("lo", 5, 5), interval_ns=SECOND // 2)
    stream.end()
    assert stream.state.probes["p"].tables["t"].rows[LO].per_s("n") == 10.0


def test_a_row_that_a_full_frame_lacks_is_gone_but_its_history_stays(stream: Stream) -> None:
    stream.table(row("lo", 5, 5), full=True)
    stream.end()
    stream.table(row("eth0", 1, 1), full=True)
    stream.end()
    table = stream.state.probes["p"].tables["t"]
    assert LO not in table.rows
    assert table.history(LO, "n", 2) == [5.0, 0.0]


def test_the_rows_of_a_table_have_a_history_together(stream: Stream) -> None:
    stream.table(row("lo", 0, 0), full=True)
    stream.end()
    stream.table(row("lo", 5, 5), row("eth0", 2, 2))
    stream.end()
    next(stream.seq)
    stream.end()
    stream.table()
    stream.end()
    stream.table(row("eth0", 1, 3))
    stream.end()
    assert stream.state.probes["p"].tables["t"].sums(5) == {"n": [0.0, 7.0, None, 0.0, 1.0]}


def test_labels_are_one_row_in_any_order(stream: Stream) -> None:
    first = Row(labels={"a": 1, "b": None}, counts={"n": Count(delta=1, total=1)})
    second = Row(labels={"b": None, "a": 1}, counts={"n": Count(delta=1, total=2)})
    stream.table(first)
    stream.end()
    stream.table(second)
    stream.end()
    assert [one.total("n") for one in stream.state.probes["p"].tables["t"].rows.values()] == [2]


def test_a_lost_frame_leaves_totals_right_and_marks_the_gap(stream: Stream) -> None:
    stream.counters(drops=(1, 1))
    stream.end()
    next(stream.seq)  # the counters of this interval never come
    stream.end()
    state = stream.state
    assert state.collector.frames_lost == 1
    assert state.probes["p"].counters["drops"].count.per_s is None
    stream.counters(drops=(3, 9))
    stream.end()
    assert state.probes["p"].counters["drops"].count.total == 9
    assert state.probes["p"].counter_history("drops", 3) == [1.0, None, 3.0]
    assert state.collector.frames_lost == 1


def test_rows_of_an_interval_with_a_lost_frame_are_unknown_not_idle(stream: Stream) -> None:
    stream.table(row("lo", 5, 5), full=True)
    stream.end()
    next(stream.seq)
    stream.end()
    stream.table()
    stream.end()
    assert stream.state.probes["p"].tables["t"].history(LO, "n", 3) == [5.0, None, 0.0]


def test_frames_in_another_order_are_not_lost(stream: Stream) -> None:
    late = stream.stamp()
    stream.end()
    stream.state.apply(frames.Status(**late, state="degraded", mode="summary"))
    assert stream.state.collector.frames_lost == 0


def test_a_collector_that_was_away_leaves_a_gap_and_what_it_had_counted(stream: Stream) -> None:
    stream.counters(drops=(7, 7))
    stream.table(row("lo", 5, 5), full=True)
    stream.end(skipped=3)
    stream.hello()
    state = stream.state
    assert state.collector.restarts == 1
    assert state.probes["p"].status == "compiling"
    assert state.probes["p"].tables["t"].rows[LO].total("n") == 5
    stream.status()
    stream.counters(drops=(2, 2))
    stream.table(row("lo", 1, 1), full=True)
    stream.end()
    assert state.probes["p"].counters["drops"].count.total == 9
    assert state.probes["p"].tables["t"].rows[LO].total("n") == 6
    assert state.probes["p"].counter_history("drops", 5) == [7.0, None, None, None, 2.0]
    assert state.probes["p"].tables["t"].history(LO, "n", 5) == [5.0, None, None, None, 1.0]
    assert state.collector.intervals_missed == 3
    assert state.collector.frames_lost == 0


def test_a_status_of_the_console_does_not_take_a_probe_from_the_collector(stream: Stream) -> None:
    stream.counters(drops=(1, 1))
    stream.end()
    Stream(stream.state, "console").status("failed", why="collector lost")
    assert stream.state.probes["p"].status == "failed"
    assert stream.state.probes["p"].source == "collector"


def test_a_probe_belongs_to_whoever_measures_it() -> None:
    state = State()
    Stream(state, "console").status("compiling")
    collector = Stream(state)
    collector.hello()
    collector.counters(drops=(4, 4))
    collector.end()
    assert state.probes["p"].source == "collector"
    assert state.probes["p"].counter_history("drops", 1) == [4.0]


def test_histograms_rest_and_leave(stream: Stream) -> None:
    one = Buckets(count=100, sum=10_000, min=90, max=110, buckets=[(index(100), 100)])
    stream.histogram(one, one, device="lo")
    stream.end()
    group = stream.state.probes["p"].histograms["h"]
    histogram = group.rows[LO]
    assert histogram.percentile(99) == pytest.approx(100, rel=0.0625)
    assert histogram.per_s == 100.0
    stream.end()
    assert histogram.delta.count == 0
    assert histogram.total.count == 100
    assert group.history(LO, 2)[1] is None
    for _ in range(GONE_AFTER_INTERVALS):
        stream.end()
    assert LO not in group.rows


def test_the_history_of_a_histogram_is_its_99th_percentile(stream: Stream) -> None:
    late = Buckets(count=1000, sum=0, min=None, max=None, buckets=[(index(100), 995), (index(10_000), 5)])
    stream.histogram(late, late, device="lo")
    stream.end()
    assert stream.state.probes["p"].histograms["h"].history(LO, 1) == [pytest.approx(100, rel=0.0625)]


def test_how_busy_the_machine_is_comes_from_the_console_s_own_source() -> None:
    state = State()
    assert state.machine_cpu_pct is None
    busy = Row(labels={}, counts={}, gauges={"machine_cpu_pct": 12.5})
    console = Stream(state, "console")
    stamp = console.stamp("self_cost")
    state.apply(frames.Table(**stamp, name="machine", interval_ns=SECOND, full=True, rows=[busy]))
    assert state.machine_cpu_pct == 12.5


def test_cost_is_the_share_of_the_statistics_windows(stream: Stream) -> None:
    program = frames.Program(
        name="drop", attach="raw_tracepoint:kfree_skb", run_count=1000, run_time_ns=200_000, missed=0
    )
    window = frames.Statistics(window_ns=200_000_000, interval_ns=5 * SECOND, estimated=True)
    stream.cost(programs=[program], statistics=window)
    stream.end()
    stream.cost(programs=[program], statistics=frames.Statistics(window_ns=0, interval_ns=SECOND, estimated=True))
    stream.end()
    cost = stream.state.probes["p"].cost
    assert cost.kernel_cpu_pct == pytest.approx(0.115), "200 ns, and 30 that the statistics do not see"
    assert cost.programs["drop"].ns_per_run == 200.0
    assert cost.estimated
    assert stream.state.kernel_cpu_pct == pytest.approx(0.115)


def test_the_cost_of_a_program_that_no_window_saw_is_unknown(stream: Stream) -> None:
    stream.cost(programs=[frames.Program(name="drop", attach="x:y", run_count=0, run_time_ns=0, missed=0)])
    stream.end()
    assert stream.state.kernel_cpu_pct is None
    assert stream.state.probes["p"].cost.programs["drop"].ns_per_run is None


def test_counts_with_losses_behind_them_are_a_lower_bound(stream: Stream) -> None:
    stream.cost(ledger={"missed": Count(delta=0, total=3), "suppressed": Count(delta=1, total=1)})
    stream.end()
    probe = stream.state.probes["p"]
    assert probe.at_least() == {"missed": 3}
    assert probe.cost.samples_lost() == {"suppressed": 1}
    assert stream.state.ledger_totals() == {"missed": 3, "suppressed": 1}


def test_events_that_had_no_chance_to_be_seen_are_shed(stream: Stream) -> None:
    for number in range(MAX_EVENTS + 7):
        stream.state.apply(frames.Event(**stream.stamp(), name="drop", fields={"n": number}))
    stream.end()
    probe = stream.state.probes["p"]
    assert len(probe.events) == MAX_EVENTS
    assert probe.events_shed == 7
    stream.state.apply(frames.Event(**stream.stamp(), name="drop", fields={}))
    assert probe.events_shed == 7


def test_a_stream_of_new_rows_is_kept_within_bounds(stream: Stream) -> None:
    for begin in range(0, 2 * MAX_ROWS, 1000):
        stream.table(*(row(f"d{n}", 1, 1) for n in range(begin, begin + 1000)))
    stream.end()
    table = stream.state.probes["p"].tables["t"]
    assert len(table.rows) == MAX_ROWS
    assert table.omitted == 1000
    assert sum(bool(table.history(key, "n", 1)) for key in table.rows) == MAX_HISTORY_ROWS


def test_names_that_are_new_in_each_frame_are_kept_within_bounds(stream: Stream) -> None:
    for number in range(50):
        counts = {f"n{number}_{one}": Count(delta=1, total=1) for one in range(32)}
        stream.table(Row(labels={"device": f"d{number}"}, counts=counts), full=True)
        stream.end()
    assert len(stream.state.probes["p"].tables["t"]._sums) <= MAX_VALUES


def test_figures_at_their_bounds_add_up_to_what_can_be_saved(stream: Stream) -> None:
    most = 2**63 - 1
    program = frames.Program(name="one", attach="here", run_count=most, run_time_ns=most, missed=0)
    window = frames.Statistics(window_ns=most, interval_ns=most, estimated=False)
    stream.status(help=f"{'h' * 4090}\nmore")
    for _ in range(3):
        stream.state.apply(frames.Cost(**stream.stamp(), interval_ns=most, programs=[program], statistics=window))
        usage = frames.Usage(cpu_ns=most, rss_kb=1, pss_kb=1)
        stream.state.apply(frames.Cost(**stream.stamp(None), interval_ns=most, usage=usage))
    again = checkpoint.decode(checkpoint.encode(stream.state))
    assert again.probes["p"].cost.programs["one"].run_time_ns == again.collector.cpu_ns == most


def test_two_readings_in_one_interval_are_one_that_is_longer(stream: Stream) -> None:
    """Of a source that was late once: nothing that it counted is missing from rates, sums and history."""
    stream.table(row("lo", 1, 1), row("eth0", 1, 1))
    stream.end()
    stream.end()  # it is late
    probe = stream.state.probes["p"]
    assert probe.unwatched_since_ns(probe.tables["t"]) is None, "its figures may come in the next interval"
    stream.table(row("lo", 30, 31), row("eth0", 20, 21))
    stream.mono_ns += SECOND
    stream.table(row("lo", 10, 41), row("eth1", 6, 6))
    stream.state.apply(frames.Cost(**stream.stamp(None), interval_ns=SECOND))
    table = stream.state.probes["p"].tables["t"]
    rates = {dict(key)["device"]: one.counts["n"].per_s for key, one in table.rows.items()}
    assert rates == {"lo": 20.0, "eth0": 10.0, "eth1": 3.0}
    assert table.history(LO, "n", 1) == [20.0] and table.sums(1) == {"n": [33.0]}
    assert table.rows[LO].counts["n"].delta == 40
    assert next(table.spans())[1:] == (stream.mono_ns - 2 * SECOND, stream.mono_ns)
    for _ in range(2):
        stream.end()
    assert probe.unwatched_since_ns(table) == table.until_ns


def test_a_count_without_history_has_never_moved_or_is_not_known(stream: Stream) -> None:
    counts = {"n": Count(delta=0, total=5), "m": Count(delta=0, total=5)}
    stream.table(Row(labels={"device": "lo"}, counts=counts))
    stream.end()
    table = stream.state.probes["p"].tables["t"]
    assert table.never_moved(LO, "n") and table.never_moved(LO, "m") and not table.never_moved(LO, "other")
    stream.table(row("lo", 1, 6))
    stream.end()
    assert not table.never_moved(LO, "n") and table.never_moved(LO, "m")
    for _ in range(2):
        stream.table(*[row(f"tap{number}", 1, 7) for number in range(MAX_HISTORY_ROWS)])
        stream.end()
    assert table.history(LO, "n") == [] and not table.never_moved(LO, "n"), "its history was given up"


def test_a_row_that_starts_to_move_takes_the_history_of_one_that_rests(stream: Stream) -> None:
    stream.table(*(row(f"d{n}", 1, 1) for n in range(MAX_HISTORY_ROWS)))
    stream.end()
    stream.end()
    stream.table(row("lo", 1, 1))
    stream.end()
    assert stream.state.probes["p"].tables["t"].history(LO, "n", 1) == [1.0]


def test_memory_does_not_grow_with_time(stream: Stream) -> None:
    def intervals(count: int) -> None:
        for number in range(count):
            stream.counters(drops=(1, number))
            stream.table(*(row(f"d{n}", 1, number) for n in range(20)), full=number % 10 == 0)
            stream.state.apply(frames.Event(**stream.stamp(), name="drop", fields={"n": number}))
            stream.end()

    intervals(2 * MAX_EVENTS)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    intervals(500)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    # What is replaced is counted as new once tracing begins: the 500 events and 20 rows there are now, no more.
    assert grown < 600_000


def test_a_series_keeps_the_last_ten_minutes() -> None:
    timeline, series = Timeline(), Series()
    for number in range(SAMPLES + 5):
        series.put(timeline.tick + 1, float(number))
        timeline.close(number, whole=True)
    values = series.values(timeline)
    assert (values[0], values[-1]) == (5.0, SAMPLES + 4)
    for _ in range(SAMPLES + 1):
        timeline.close(0, whole=True)
    assert series.values(timeline, 2) == [0.0, 0.0]
    series.put(timeline.tick + 1, None)
    timeline.close(0, whole=True)
    assert series.values(timeline, 2) == [0.0, None]


def test_a_copy_is_whole_and_its_own() -> None:
    """A console that is paused shows a copy of the state, histories included."""
    stream = Stream(State())
    stream.hello()
    stream.status()
    for total in (5, 12):
        stream.table(row("lo", total - (total == 12) * 5, total))
        stream.histogram(Buckets(1, 7, 7, 7, [(7, 1)]), Buckets(1, 7, 7, 7, [(7, 1)]), device="lo")
        stream.end()
    kept = copy.deepcopy(stream.state)
    stream.table(row("lo", 100, 112))
    stream.end()
    table = kept.probes["p"].tables["t"]
    (key,) = table.rows
    assert [value for value in table.history(key, "n") if value is not None][-2:] == [5.0, 7.0]
    assert kept.probes["p"].histograms["h"].history(next(iter(kept.probes["p"].histograms["h"].rows)))[-1] == 7.0
    assert kept.collector.intervals == 2 and table.timeline is kept.collector.timeline


def test_the_time_so_far_is_up_to_the_last_interval_of_any_source() -> None:
    """From the first frame on: that of the collector here."""
    state = State()
    here, there = Stream(state, "console"), Stream(state)
    known = [state.elapsed_s]
    there.hello()
    known.append(state.elapsed_s)
    for _ in range(3):
        there.end()
    known.append(state.elapsed_s)
    for later_s in (1, 4):
        here.mono_ns += later_s * SECOND
        here.end()
        known.append(state.elapsed_s)
    assert known == [None, None, 2.0, 2.0, 6.0]


def test_what_would_help_is_one_line_and_names_where_its_commands_are() -> None:
    state = State()
    stream = Stream(state)
    stream.hello()
    stream.status("unsupported", why="no types", help="make them:\n    netconsole types make debug\nand carry them")
    assert state.probes["p"].help == "netconsole doctor has the commands: make them"
    stream.status("unsupported", why="no module", help="modprobe tun")
    assert state.probes["p"].help == "modprobe tun"


def test_rows_of_a_share_of_the_packets_are_marked_with_what_chance_does() -> None:
    """Of 160 000 in 10 000 blocks of 16 a row has a quarter: a variance of 16 * 40 000 * 3/4, and one block."""
    state = State()
    stream = Stream(state)
    stream.hello()
    marks = []
    for one_in, lo, total in ((1, 1, 1), (16, 40_000, 40_001), (1, 1, 40_002)):
        rows = [row("lo", lo, total), row("eth0", 3 * lo, 3 * total)]
        stream.state.apply(
            frames.Table(**stream.stamp(), name="t", interval_ns=SECOND, full=False, rows=rows, one_in=one_in)
        )
        stream.end()
        probe = state.probes["p"]
        table = probe.tables["t"]
        here = table.rows[row_key(rows[0].labels)]
        marks.append(probe.rate_mark(table) + "," + probe.total_mark(here, "n"))
    assert marks == [",", "≈,≈", ",≈"]
    assert here.counts["n"].variance == 16 * 40_000 * 3 / 4 + 16**2
    assert here.error("n") == 1359


def test_what_was_counted_before_a_probe_was_detached_stays_and_goes_on(stream: Stream) -> None:
    """Two seconds pass until it is attached again: they are unseen, and the totals are lower bounds."""
    state = stream.state
    stream.status()
    stream.counters(drops=(7, 7))
    stream.table(row("lo", 5, 5), row("eth0", 2, 2), full=True)
    one = Buckets(1, 8, 8, 8, [(8, 1)])
    stream.histogram(one, one)
    stream.cost(ledger={"missed": Count(1, 1)}, events={"seen": Count(3, 3)})
    stream.end()
    stream.status("off", why="detached: to keep the budget")
    stream.end()
    probe = state.probes["p"]
    table = probe.tables["t"]
    assert probe.counters["drops"].count == CountState(7, None, None)
    assert (table.rows[LO].total("n"), table.rows[LO].per_s("n")) == (5, None)
    assert probe.unwatched_since_ns(table) == 100 * SECOND + 5
    assert next(iter(probe.histograms["h"].rows.values())).per_s is None, "not 0"
    stream.status("compiling")
    stream.status()
    stream.counters(drops=(3, 3))
    stream.table(row("lo", 3, 3), full=True)
    stream.histogram(one, one)
    stream.cost(ledger={"missed": Count(0, 0), "unseen_ms": Count(0, 0)}, events={"seen": Count(1, 1)})
    stream.end()
    kept = checkpoint.decode(checkpoint.encode(state)).probes["p"]
    for now in (probe, kept):
        table = now.tables["t"]
        assert now.counters["drops"].count == CountState(10, 3, 3.0) and not now.is_exact("drops")
        assert {key: row.total("n") for key, row in table.rows.items()} == {
            LO: 8,
            row_key({"device": "eth0"}): 2,
        }, "no full frame takes away what was counted before"
        assert next(iter(now.histograms["h"].rows.values())).total.count == 2
        assert now.cost.ledger == {"missed": Count(0, 1), "unseen_ms": Count(0, 2000)}
        assert now.cost.events == {"seen": Count(1, 4)}
        assert now.total_mark(table.rows[LO], "n") == "≥" and now.unwatched_since_ns(table) is None


def test_a_source_that_could_be_read_again_counts_on_and_one_that_was_started_anew_counts_what_was_before() -> None:
    """A source tells no places where it is attached, as programs do."""
    one = Stream(State())
    one.hello()
    one.status()
    one.table(row("lo", 5, 5), full=True)
    one.end()
    one.status("failed", why="the file is gone")
    one.end()
    one.status()
    one.table(row("lo", 3, 8))
    one.end()

    def total() -> int:
        return one.state.probes["p"].tables["t"].rows[LO].counts["n"].total

    assert total() == 8
    one.status("off")
    one.status()
    one.table(row("lo", 2, 2), full=True)
    one.end()
    assert total() == 10
    one.hello()
    one.status()
    one.table(row("lo", 1, 1), full=True)
    assert total() == 11


def test_counters_of_two_readings_in_one_interval_are_added(stream: Stream) -> None:
    stream.counters(n=(10, 10))
    stream.end()
    stream.counters(n=(30, 40))
    stream.mono_ns += SECOND
    stream.counters(n=(10, 50))
    stream.state.apply(frames.Cost(**stream.stamp(None), interval_ns=SECOND))
    probe = stream.state.probes["p"]
    count = probe.counters["n"].count
    assert (count.delta, count.per_s, count.total) == (40, 20.0, 50)
    assert probe.counter_history("n", 2) == [10.0, 20.0]


def test_a_row_that_says_when_it_counted_is_known_since_then() -> None:
    """By the clock of its host; rows of a probe that does not say so are known since the interval that they came in."""
    state = State()
    stream = Stream(state)
    stream.hello()
    counts = {"n": Count(delta=1, total=1)}
    said = Row(labels={"a": 1}, counts=counts, first_ns=stream.mono_ns - 400, last_ns=stream.mono_ns - 30)
    stream.table(said, Row(labels={"a": 2}, counts=counts))
    first, second = state.rows("p", "t")
    wall_ns = stream.mono_ns + 5
    assert (first.first_seen_ns, first.last_active_ns) == (wall_ns - 400, wall_ns - 30)
    assert (second.first_seen_ns, second.last_active_ns) == (wall_ns, wall_ns)
