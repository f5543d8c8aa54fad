"""Snapshots: exactly what happened between two whole intervals, from a state."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole.base.timestamps import utc
from netconsole.probes import catalogue
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import Budget, Profile
from netconsole.report.formats.to_text import to_text
from netconsole.report.of_snapshot import of_snapshot
from netconsole.snapshot import builder, of_probe
from netconsole.snapshot.document import ExampleData, Snapshot, encode, parse
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Buckets, Count, Row
from netconsole.telemetry.histogram import EMPTY, index, subtract
from netconsole.telemetry.session import LineState
from netconsole.telemetry.state import State
from tests.unit.probes.test_manifest_reader import GOOD, make
from tests.unit.telemetry.test_state import SECOND, Stream

PROFILE = Profile("summary", budget=Budget(kernel_cpu_pct=5.0))


@pytest.fixture
def manifests(tmp_path: Path) -> dict[str, Manifest]:
    return {"p": catalogue.load(make(tmp_path, GOOD))}


@pytest.fixture
def stream() -> Stream:
    one = Stream(State())
    one.hello()
    one.status(attach=["raw_tracepoint:kfree_skb"])
    return one


def interval(stream: Stream, delta: int, total: int, row_total: int | None = None) -> None:
    stream.counters(drops=(delta, total))
    row = Row(
        labels={"reason": "NO_SOCKET", "class": "benign"},
        counts={"count": Count(delta=delta, total=total if row_total is None else row_total)},
        gauges={"depth": 3},
    )
    stream.state.apply(frames.Table(**stream.stamp(), name="drops", interval_ns=SECOND, full=True, rows=[row]))
    stream.cost(
        programs=[frames.Program(name="drop", attach="x:y", run_count=100, run_time_ns=20_000, missed=0)],
        statistics=frames.Statistics(window_ns=SECOND // 10, interval_ns=SECOND, estimated=True),
        events={"submitted": Count(delta=1, total=total), "suppressed": Count(delta=0, total=0)},
        ledger={"missed": Count(delta=delta, total=total)},
        usage=None,
    )
    usage = frames.Usage(cpu_ns=SECOND // 100, rss_kb=13_000, pss_kb=None)
    stream.state.apply(frames.Cost(**stream.stamp(None), interval_ns=SECOND, usage=usage))
    stream.mono_ns += SECOND


def take(stream: Stream, manifests: dict[str, Manifest], since: builder.Totals) -> Snapshot:
    taken = builder.build(stream.state, manifests, PROFILE, since)
    # What is written must be what the readers of snapshots take.
    assert parse(encode(taken), "test") == taken
    return taken


def test_a_snapshot_holds_what_happened_since_the_mark(stream: Stream, manifests: dict[str, Manifest]) -> None:
    interval(stream, 7, 7)
    start = builder.totals(stream.state)
    interval(stream, 10, 17)
    interval(stream, 30, 47)
    taken = take(stream, manifests, start)
    probe = taken.probes["p"]
    assert taken.duration_s == 2.0
    assert (probe.counters["drops"].total, probe.counters["drops"].per_s) == (40, 20.0)
    assert probe.counters["drops"].unit == "packets"
    assert probe.tables["drops"] == [{"reason": "NO_SOCKET", "class": "benign", "count": 40, "depth": 3}]
    assert probe.history == {"drops": [10.0, 30.0], "drops.count": [10.0, 30.0]}
    assert probe.row_history == {"drops.count": [[10.0, 30.0]]}
    assert probe.ledger == {"missed": 40}
    assert (probe.status, probe.why, probe.attach) == ("attached", None, ["raw_tracepoint:kfree_skb"])
    # 100 runs of 200 ns in each window of a tenth of a second: ten times that in all.
    assert (probe.cost["run_count"], probe.cost["run_time_ns"], probe.cost["ns_per_run"]) == (2000, 400_000, 200.0)
    assert probe.cost["submitted"] == 40
    assert taken.cost["kernel_cpu_pct"] == pytest.approx(0.02)
    assert taken.cost["collector"] == {"cpu_pct": pytest.approx(1.0), "rss_kb": 13_000, "pss_kb": None}
    assert taken.host.name == "hv"
    assert taken.profile.budget["kernel_cpu_pct"] == 5.0


def test_counters_of_a_probe_that_rests_have_their_own_time(stream: Stream, manifests: dict[str, Manifest]) -> None:
    """Attached for a quarter of two seconds. One counter counts then alone; the other one is read from the kernel."""
    start = builder.totals(stream.state)
    count = Count(delta=10, total=10)
    for seen_ns, name in ((SECOND // 4, "drops"), (None, "misses")):
        values = {name: count}
        stream.state.apply(frames.Counters(**stream.stamp(), interval_ns=SECOND, values=values, seen_ns=seen_ns))
    stream.mono_ns += 2 * SECOND
    stream.cost(ledger={"unseen_ms": Count(delta=1500, total=1500)}, usage=None)
    stream.state.apply(frames.Cost(**stream.stamp(None), interval_ns=SECOND))
    taken = take(stream, manifests, start).probes["p"]
    assert taken.duration_s == 0.5
    seen, all_the_time = taken.counters["drops"], taken.counters["misses"]
    assert (seen.total, seen.per_s, seen.duration_s) == (10, 20.0, None)
    assert (all_the_time.total, all_the_time.per_s, all_the_time.duration_s) == (10, 5.0, 2.0)


def test_a_probe_is_measured_from_one_of_its_readings_to_the_other(
    stream: Stream, manifests: dict[str, Manifest]
) -> None:
    """The first reading with drops looks up names of functions, and the end of its interval came late by that."""
    interval(stream, 7, 7)
    start = builder.totals(stream.state)
    stream.mono_ns += SECOND // 4
    stream.counters(drops=(15, 22))
    stream.cost(usage=None)
    stream.mono_ns += SECOND // 8
    stream.state.apply(frames.Cost(**stream.stamp(None), interval_ns=SECOND))
    probe = take(stream, manifests, start).probes["p"]
    assert (probe.duration_s, probe.counters["drops"].per_s) == (1.25, 12.0)


def test_the_start_of_everything_is_the_first_frame(stream: Stream) -> None:
    interval(stream, 7, 7)
    start, none = builder.totals_at_start(stream.state), builder.totals_at_start(State())
    assert (start.mono_ns, start.wall_ns) == (100 * SECOND, 100 * SECOND + 5)
    assert (none.mono_ns, none.wall_ns) == (0, 0)


def test_a_probe_that_never_ran_has_no_time_of_a_run(stream: Stream, manifests: dict[str, Manifest]) -> None:
    start = builder.totals(stream.state)
    window = frames.Statistics(window_ns=SECOND // 10, interval_ns=SECOND, estimated=True)
    stream.cost(programs=[frames.Program("drop", "x:y", 0, 0, 0)], statistics=window)
    stream.end()
    cost = take(stream, manifests, start).probes["p"].cost
    assert (cost["run_count"], cost["run_time_ns"], cost["ns_per_run"]) == (0, 0, None)


def test_statistics_that_were_on_all_the_time_are_not_scaled(stream: Stream, manifests: dict[str, Manifest]) -> None:
    start = builder.totals(stream.state)
    window = frames.Statistics(window_ns=SECOND, interval_ns=SECOND, estimated=False)
    stream.cost(programs=[frames.Program("drop", "x:y", 100, 20_000, 0)], statistics=window)
    stream.end()
    cost = take(stream, manifests, start).probes["p"].cost
    assert (cost["run_count"], cost["run_time_ns"], cost["estimated"]) == (100, 20_000, False)


def test_a_period_that_began_before_counts_with_its_share(stream: Stream, manifests: dict[str, Manifest]) -> None:
    """30 s at 2 % of a core, of which the snapshot has ten."""
    closed = frames.Statistics(window_ns=0, interval_ns=SECOND, estimated=True)
    nothing = frames.Program("drop", "x:y", 0, 0, 0)
    for _ in range(20):
        stream.cost(programs=[nothing], statistics=closed)
        stream.end()
    start = builder.totals(stream.state)
    for _ in range(9):
        stream.cost(programs=[nothing], statistics=closed)
        stream.end()
    period = frames.Statistics(window_ns=30 * SECOND, interval_ns=SECOND, estimated=True)
    stream.cost(programs=[frames.Program("drop", "x:y", 3000, 600_000_000, 0)], statistics=period)
    stream.end()
    cost = take(stream, manifests, start).probes["p"].cost
    assert (cost["run_count"], cost["run_time_ns"]) == (1000, 200_000_000)


def test_without_statistics_the_cost_is_that_of_its_counts_where_it_was_calibrated(
    stream: Stream, manifests: dict[str, Manifest]
) -> None:
    stream.state.per_count = {("p", "summary"): ("drops", 150.0), ("q", "summary"): ("unknown", 150.0)}
    for name in ("p", "q"):
        stream.state.apply(frames.Status(**stream.stamp(name), state="attached", mode="summary"))
        stream.state.probes[name].per_count = stream.state.per_count
        stream.state.probes[name].cost.measurable = False
    stream.counters(drops=(7, 7))
    stream.end()
    start = builder.totals(stream.state)
    stream.counters(drops=(40, 47))
    stream.end()
    probes = take(stream, manifests, start).probes
    cost = probes["p"].cost
    assert (cost["run_count"], cost["run_time_ns"], cost["calibrated"]) == (None, 40 * 150, True)
    assert (probes["q"].cost["run_time_ns"], probes["q"].cost["calibrated"]) == (None, False)


def test_a_counter_that_its_manifest_does_not_know_has_no_unit(stream: Stream, manifests: dict[str, Manifest]) -> None:
    stream.end()
    start = builder.totals(stream.state)
    stream.counters(drops=(4, 4), unheard_of=(8, 8))
    stream.end()
    counters = take(stream, manifests, start).probes["p"].counters
    assert (counters["drops"].unit, counters["drops"].per_s) == ("packets", 4.0)
    assert (counters["unheard_of"].unit, counters["unheard_of"].per_s) == ("", 8.0)


def test_a_row_has_its_history_in_equal_parts_and_none_that_is_not_its_own(
    stream: Stream, manifests: dict[str, Manifest]
) -> None:
    def rows(second: int) -> list[Row]:
        counts = {"NO_SOCKET": 3 * (second + 1), "SOCKET_RCVBUFF": 500 if second >= 30 else 0}
        delta = {"NO_SOCKET": 3, "SOCKET_RCVBUFF": 500 if second == 30 else 0}
        known = [reason for reason, total in counts.items() if total]
        return [
            Row(
                labels={"reason": reason, "class": "benign"},
                counts={"count": Count(delta=delta[reason], total=counts[reason])},
            )
            for reason in known
        ]

    start = builder.totals(stream.state)
    for second in range(40):
        stream.state.apply(
            frames.Table(**stream.stamp(), name="drops", interval_ns=SECOND, full=True, rows=rows(second))
        )
        stream.end()
    steady, burst = take(stream, manifests, start).probes["p"].row_history["drops.count"]
    assert steady == [3.0] * of_probe.MAX_PARTS
    assert burst == [0.0] * 15 + [250.0] + [0.0] * 4
    stream.state.probes["p"].tables["drops"]._history.clear()  # as when 200 other rows have moved since
    stream.end()
    assert take(stream, manifests, start).probes["p"].row_history == {}


def test_a_snapshot_of_a_far_host_says_how_its_clock_stands(stream: Stream, manifests: dict[str, Manifest]) -> None:
    start = builder.totals(stream.state)

    def clock(line: LineState | None) -> dict[str, int | None]:
        found = builder.build(stream.state, manifests, PROFILE, start, line=line).clock
        return {name: value for name, value in found.items() if name.startswith("host_")}

    assert clock(None) == {}
    assert clock(LineState("ssh://hv", None, None, None, None)) == {"host_ahead_ns": None, "host_within_ns": None}
    known = LineState("ssh://hv", 0.052, 0.026, -3.5, None)
    assert clock(known) == {"host_ahead_ns": -3_500_000_000, "host_within_ns": 26_000_000}


def test_rows_have_their_latest_packets_in_their_order(stream: Stream, manifests: dict[str, Manifest]) -> None:
    start = builder.totals(stream.state)
    interval(stream, 7, 7)
    assert take(stream, manifests, start).probes["p"].row_examples == {}
    packets: dict[str, frames.Labels] = {"A": {"mono_ns": stream.mono_ns - SECOND, "vlan": 3}, "B": {}}
    rows = [
        Row(labels={"reason": reason}, counts={"count": Count(delta=1, total=1)}, example=packet)
        for reason, packet in packets.items()
    ]
    stream.state.apply(frames.Table(**stream.stamp(), name="drops", interval_ns=SECOND, full=False, rows=rows))
    came = utc((stream.mono_ns - SECOND) / 1e9)
    stream.end()
    probe = take(stream, manifests, start).probes["p"]
    assert [row["reason"] for row in probe.tables["drops"]] == ["NO_SOCKET", "A", "B"]
    assert probe.row_examples == {"drops": [None, ExampleData(came, {"vlan": 3}), None]}


def test_what_is_unknown_is_null(stream: Stream, manifests: dict[str, Manifest]) -> None:
    start = builder.totals(stream.state)
    stream.counters(drops=(1, 1))
    stream.end()
    taken = take(stream, manifests, start)
    assert taken.cost["kernel_cpu_pct"] is None
    assert taken.cost["console"] == {"cpu_pct": None, "rss_kb": None, "pss_kb": None}
    assert taken.cost["machine_cpu_pct"] is None
    assert taken.probes["p"].cost["run_count"] is None


def test_a_row_that_did_not_move_is_no_row(stream: Stream, manifests: dict[str, Manifest]) -> None:
    stream.table(Row(labels={"device": "lo"}, counts={"n": Count(delta=5, total=5)}), full=True)
    stream.end()
    start = builder.totals(stream.state)
    stream.end()
    assert take(stream, manifests, start).probes["p"].tables["t"] == []


def test_a_restarted_collector_is_said_and_what_the_first_one_counted_stays(
    stream: Stream, manifests: dict[str, Manifest]
) -> None:
    interval(stream, 70, 70)
    start = builder.totals(stream.state)
    stream.hello()
    stream.status()
    interval(stream, 5, 5)
    probe = take(stream, manifests, start).probes["p"]
    assert probe.counters["drops"].total == 5, "those before the begin are not of the run"
    assert probe.status == "degraded"
    assert "started again" in (probe.why or "")


def test_counts_that_went_back_by_themselves_begin_again_and_it_is_said(
    stream: Stream, manifests: dict[str, Manifest]
) -> None:
    """A count below 0 could not even be read again."""
    interval(stream, 70, 70)
    start = builder.totals(stream.state)
    interval(stream, 5, 5, row_total=80)
    probe = take(stream, manifests, start).probes["p"]
    assert (probe.counters["drops"].total, probe.ledger, probe.cost["submitted"]) == (5, {"missed": 5}, 5)
    assert probe.tables["drops"][0]["count"] == 80, "also where the new count is above the old one"
    assert (probe.status, probe.why) == ("degraded", of_probe.SOURCE_RESTARTED)
    assert probe.cost["run_count"] == 1000, "what it cost is of the whole time"


def test_a_probe_that_cannot_run_has_no_figures_but_a_reason(stream: Stream, manifests: dict[str, Manifest]) -> None:
    stream.status("unsupported", why="no such tracepoint", help="Linux 5.17 or later")
    stream.end()
    probe = take(stream, manifests, builder.totals_at_start(stream.state)).probes["p"]
    assert (probe.status, probe.why) == ("unsupported", "no such tracepoint; Linux 5.17 or later")
    assert not probe.counters


def test_the_samples_of_the_run_are_the_newest(stream: Stream, manifests: dict[str, Manifest]) -> None:
    def sample(number: int) -> None:
        stream.state.apply(frames.Event(**stream.stamp(), name="drop", fields={"number": number}))

    sample(1)
    interval(stream, 1, 1)
    start = builder.totals(stream.state)
    interval(stream, 1, 2)
    assert take(stream, manifests, start).probes["p"].events == []
    sample(2)
    interval(stream, 1, 3)
    assert [one["number"] for one in take(stream, manifests, start).probes["p"].events] == [2]
    sample(3)
    interval(stream, 1, 4)
    events = take(stream, manifests, start).probes["p"].events
    assert [(one["name"], one["number"]) for one in events] == [("drop", 2), ("drop", 3)]


def test_each_percentile_of_a_histogram_is_its_own(stream: Stream, manifests: dict[str, Manifest]) -> None:
    """Of 1000 values: 500 of 100, 400 of 1000, 90 of 10 000, 9 of 100 000 and one of a million."""
    counts = {100: 500, 1000: 400, 10_000: 90, 100_000: 9, 1_000_000: 1}
    start = builder.totals(stream.state)
    whole = Buckets(
        count=1000, sum=sum(value * n for value, n in counts.items()), min=100, max=1_000_000,
        buckets=[(index(value), n) for value, n in counts.items()],
    )  # fmt: skip
    stream.histogram(whole, whole, device="lo")
    stream.end()
    one = take(stream, manifests, start).probes["p"].histograms["h"]
    found = [one.p50, one.p90, one.p99, one.p999]
    assert found == [pytest.approx(value, rel=0.0625) for value in (100, 1000, 10_000, 100_000)]


def test_a_histogram_without_labels_is_no_part_of_itself(stream: Stream, manifests: dict[str, Manifest]) -> None:
    start = builder.totals(stream.state)
    one = Buckets(count=1, sum=100, min=100, max=100, buckets=[(index(100), 1)])
    stream.histogram(one, one)
    stream.end()
    assert take(stream, manifests, start).probes["p"].histograms["h"].by == []
    stream.histogram(one, one, device="lo")
    stream.end()
    whole = take(stream, manifests, start).probes["p"].histograms["h"]
    assert (whole.count, [part.labels for part in whole.by]) == (2, [{}, {"device": "lo"}])


def test_what_was_submitted_and_lost_is_of_the_run(stream: Stream, manifests: dict[str, Manifest]) -> None:
    def cost(factor: int) -> None:
        events = {"submitted": Count(1, 100 * factor), "suppressed": Count(1, 10 * factor), "lost": Count(1, factor)}
        stream.cost(events=events, ledger={"map_full": Count(1, 1000 * factor)})
        stream.end()

    cost(1)
    start = builder.totals(stream.state)
    cost(3)
    found = take(stream, manifests, start).probes["p"].cost
    assert [found[name] for name in ("submitted", "suppressed", "lost", "map_full")] == [200, 20, 2, 2000]


def test_histograms_are_of_the_run_alone(stream: Stream, manifests: dict[str, Manifest]) -> None:
    before = Buckets(count=2, sum=2000, min=900, max=1100, buckets=[(index(900), 1), (index(1100), 1)])
    after = Buckets(
        count=5, sum=17_000, min=900, max=5000, buckets=[(index(900), 1), (index(1100), 1), (index(5000), 3)]
    )
    stream.histogram(before, before, device="lo")
    stream.end()
    start = builder.totals(stream.state)
    stream.histogram(EMPTY, after, device="lo")
    stream.end()
    one = take(stream, manifests, start).probes["p"].histograms["h"]
    assert (one.count, one.sum, one.unit) == (3, 15_000, "ns")
    assert one.p50 == pytest.approx(5000, rel=0.0625)
    assert one.max == 5000
    assert [bucket[2] for bucket in one.buckets] == [3]
    assert one.by[0].labels == {"device": "lo"}


def test_the_difference_of_histograms_is_exact_in_counts() -> None:
    now = Buckets(count=3, sum=30, min=4, max=20, buckets=[(4, 1), (12, 2)])
    assert subtract(now, EMPTY) is now
    assert subtract(now, now) == EMPTY


# ---- its balance ----

LINK: dict[str, frames.Label] = {"device": "eth0", "netns": "host", "qdisc": "tbf"}
SHED: dict[str, frames.Label] = {"reason": "QDISC_DROP", "location": "f", "device": "eth0", "netns": "host"}


class Shedding:
    """A qdisc sheds packets. The console reads the kernel's counters, and then the collector reads the probe."""

    def __init__(self) -> None:
        state = State()
        self.stream, self.console = Stream(state), Stream(state, "console")
        self.stream.hello()
        self.lost = self.seen = self.unlisted = 0
        self.console.state.apply(frames.Status(**self.console.stamp("link_rates"), state="attached", mode="summary"))
        self.mode("summary")

    def mode(self, name: frames.Mode) -> None:
        self.stream.state.apply(frames.Status(**self.stream.stamp("kernel_drops"), state="attached", mode=name))

    def second(self, lost: int, seen: int, unlisted: int = 0) -> None:
        """An interval of both sources. What is not listed was counted, too."""
        self.lost, self.seen, self.unlisted = self.lost + lost, self.seen + seen, self.unlisted + unlisted
        self._row(self.console, "link_rates", "links", LINK, "qdisc_drops", Count(lost, self.lost))
        self.console.end()
        count, total = Count(seen + unlisted, self.seen + self.unlisted), {"unlisted": Count(unlisted, self.unlisted)}
        apply, stamp = self.stream.state.apply, self.stream.stamp
        apply(frames.Counters(**stamp("kernel_drops"), interval_ns=SECOND, values={"drops": count}))
        if self.stream.state.probes["kernel_drops"].mode != "counters":
            self._row(self.stream, "kernel_drops", "drops", SHED, "count", Count(seen, self.seen))
        apply(frames.Cost(**stamp("kernel_drops"), interval_ns=SECOND, ledger=total))
        self.stream.end()

    def mark(self) -> builder.Totals:
        return builder.totals(self.stream.state)

    def balance(self, since: builder.Totals | None = None) -> tuple[int, int, float | None, list[str]]:
        """Of the qdisc: packets lost, unexplained, coverage, and what may hide them."""
        state = self.stream.state
        (row,) = builder.build(state, {}, PROFILE, since or builder.totals_at_start(state)).balance or []
        return row.dropped, row.unexplained, row.coverage_pct, row.hidden_by

    def _row(
        self, stream: Stream, probe: str, table: str, labels: dict[str, frames.Label], value: str, count: Count
    ) -> None:
        rows = [Row(labels=labels, counts={value: count})]
        stamp = stream.stamp(probe)
        stream.state.apply(frames.Table(**stamp, name=table, interval_ns=SECOND, full=False, rows=rows))


def test_a_loss_that_goes_on_and_is_seen_is_closed() -> None:
    host = Shedding()
    host.second(1000, 1400)  # the kernel's counters are read 0.4 s before the probe
    since = host.mark()
    for _ in range(10):
        host.second(1000, 1000)
    assert host.balance(since) == (10_000, 0, 100.0, [])


@pytest.mark.parametrize(("seconds", "hidden_by"), [(10, ["begin"]), (20, [])])
def test_what_a_blind_probe_saw_before_the_begin_makes_up_for_nothing(seconds: int, hidden_by: list[str]) -> None:
    """It misses 8 %. Within twelve intervals that may be what it saw in the one before; it is never closed."""
    host = Shedding()
    for _ in range(3):
        host.second(1000, 920)
    since = host.mark()
    for _ in range(seconds):
        host.second(1000, 920)
    assert host.balance(since) == (1000 * seconds, 80 * seconds, 92.0, hidden_by)


def test_a_burst_before_the_begin_does_not_pay_for_a_loss_after_it() -> None:
    host = Shedding()
    host.second(5000, 5000)
    since = host.mark()
    host.second(300, 0)
    assert host.balance(since) == (300, 300, 0.0, ["begin"]), "nobody can tell: its end may have been read late"
    host = Shedding()
    host.second(5000, 5000)
    host.second(0, 0)
    since = host.mark()
    host.second(300, 0)
    assert host.balance(since) == (300, 300, 0.0, [])


def test_what_the_probe_counts_and_does_not_list_is_unknown() -> None:
    host = Shedding()
    host.second(200, 50, unlisted=150)
    assert host.balance() == (200, 150, 25.0, ["unlisted"])
    host.second(0, 0)
    since = host.mark()
    host.second(100, 60)
    assert host.balance(since) == (100, 40, 60.0, []), "it is of before the snapshot"


def test_what_was_not_listed_just_before_the_begin_may_be_counted_after_it() -> None:
    host = Shedding()
    host.second(0, 0, unlisted=100)
    since = host.mark()
    host.second(100, 0)
    assert host.balance(since) == (100, 100, 0.0, ["unlisted"])


def test_a_mode_that_changed_in_the_middle_leaves_nothing_unexplained() -> None:
    host = Shedding()
    host.second(0, 0)
    since = host.mark()
    host.second(100, 100)
    host.mode("counters")
    host.second(400, 0, unlisted=400)
    assert builder.build(host.stream.state, {}, PROFILE, since).balance == [], "nothing can be said"
    host.mode("summary")
    host.second(100, 100)
    assert host.balance(since) == (600, 400, 33.333, ["unlisted"])
    host.second(5, 0)
    assert host.balance(since) == (605, 405, 33.058, []), "more than it did not list"


def test_a_row_that_was_evicted_and_came_back_counts_what_it_has_now(
    stream: Stream, manifests: dict[str, Manifest]
) -> None:
    interval(stream, 7, 100)
    start = builder.totals(stream.state)
    interval(stream, 3, 103, row_total=3)
    (row,) = take(stream, manifests, start).probes["p"].tables["drops"]
    assert row["count"] == 3


def test_a_bucket_that_was_evicted_takes_nothing_from_the_others() -> None:
    before = Buckets(count=105, sum=100 * 3 + 5 * 6, min=3, max=6, buckets=[(3, 100), (6, 5)])
    now = Buckets(count=9, sum=1 * 3 + 8 * 6, min=3, max=6, buckets=[(3, 1), (6, 8)])
    assert subtract(now, before) == Buckets(count=4, sum=3 + 3 * 6, min=3, max=6, buckets=[(3, 1), (6, 3)])
    gone = Buckets(count=8, sum=8 * 6, min=6, max=6, buckets=[(6, 8)])
    assert subtract(gone, before) == Buckets(count=3, sum=3 * 6, min=6, max=6, buckets=[(6, 3)])


def test_what_a_probe_measured_before_it_was_detached_is_in_it_with_its_time(
    stream: Stream, manifests: dict[str, Manifest]
) -> None:
    start = builder.totals_at_start(stream.state)
    stream.status()
    interval(stream, 30, 30)
    interval(stream, 40, 70)
    stream.status("off", why="detached: kernel time")
    for _ in range(8):
        stream.end()
    snapshot = take(stream, manifests, start)
    probe = snapshot.probes["p"]
    assert (probe.status, probe.counters["drops"].total, probe.tables["drops"][0]["count"]) == ("off", 70, 70)
    assert (snapshot.duration_s, probe.duration_s) == (9.0, 1.0) and probe.until is not None
    text = to_text(of_snapshot(snapshot, manifests))
    assert f"It was detached or lost at {probe.until}" in text


def test_a_probe_that_came_back_has_counted_all_but_what_was_meanwhile(
    stream: Stream, manifests: dict[str, Manifest]
) -> None:
    start = builder.totals_at_start(stream.state)
    stream.status()
    interval(stream, 70, 70)
    stream.status("off", why="detached: kernel time")
    for _ in range(3):
        stream.end()
    stream.status()
    interval(stream, 5, 5)
    probe = take(stream, manifests, start).probes["p"]
    assert (probe.counters["drops"].total, probe.tables["drops"][0]["count"]) == (75, 75)
    assert probe.ledger["unseen_ms"] == 4000 and probe.until is None
