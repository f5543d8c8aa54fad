"""What a probe costs, and what it missed: sums over windows, the last window, and which entries make a lower bound."""

from __future__ import annotations

from typing import Any

import pytest

from netconsole.telemetry import frames
from netconsole.telemetry.costs import MAX_PROGRAMS, ProbeCost, ProgramCost
from netconsole.telemetry.frames import Count, Program, Statistics
from netconsole.telemetry.saved import Keyed

SECOND = 1_000_000_000
WINDOW = Statistics(window_ns=SECOND // 10, interval_ns=SECOND, estimated=False)


def frame(*programs: Program, statistics: Statistics | None = WINDOW, **values: Any) -> frames.Cost:
    return frames.Cost(
        seq=1,
        mono_ns=1,
        wall_ns=1,
        probe="p",
        interval_ns=SECOND,
        programs=list(programs),
        statistics=statistics,
        **values,
    )


def test_the_last_window_and_the_sums_of_all_are_told_apart() -> None:
    cost = ProbeCost()
    cost.apply(frame(Program("a", "here", 10, 1_000_000, 0), Program("b", "there", 0, 0, 3), maps_kb=7))
    assert cost.kernel_cpu_pct == pytest.approx(1.0), "1 ms of a window of 100 ms"
    assert cost.estimated, "a window is a part of the interval"
    assert (cost.elapsed_ns, cost.maps_kb, cost.measurable) == (SECOND, 7, True)
    a, b = cost.programs["a"], cost.programs["b"]
    assert a.last_ns_per_run == 100_000.0 and a.last_cpu_pct == pytest.approx(1.0)
    assert (b.last_ns_per_run, b.ns_per_run, b.cpu_pct, b.missed) == (None, None, 0.0, 3)
    cost.apply(frame(Program("a", "elsewhere", 30, 9_000_000, 0)))
    assert cost.kernel_cpu_pct == pytest.approx(9.0)
    assert a.ns_per_run == 250_000.0 and a.cpu_pct == pytest.approx(5.0)
    assert (a.last_ns_per_run, a.attach) == (300_000.0, "elsewhere")
    assert cost.sums() == {"a": (2 * SECOND, 400, 100_000_000), "b": (SECOND, 0, 0)}


@pytest.mark.parametrize(
    ("attach", "ns"),
    [
        ("raw_tracepoint:kfree_skb", 30),
        ("fentry:tun_net_xmit", 35),
        ("fexit:tun_net_xmit", 60),
        ("kprobe:tun_net_xmit", 90),
        ("kretprobe:tun_net_xmit", 155),
    ],
)
def test_what_calling_a_program_costs_is_in_the_share_and_not_in_the_time_of_a_run(attach: str, ns: int) -> None:
    cost = ProbeCost()
    cost.apply(frame(Program("a", attach, 10_000, 1_000_000, 0)))
    program = cost.programs["a"]
    assert program.ns_per_run == program.last_ns_per_run == 100.0, "as the kernel says"
    share_pct = 100 * 10_000 * (100 + ns) / (SECOND // 10)
    assert cost.kernel_cpu_pct == program.last_cpu_pct == program.cpu_pct == pytest.approx(share_pct)


def test_programs_of_a_probe_add_up() -> None:
    cost = ProbeCost()
    cost.apply(frame(Program("a", "here", 1, 1_000_000, 0), Program("b", "there", 1, 2_000_000, 0)))
    assert cost.kernel_cpu_pct == pytest.approx(3.0)


def test_without_a_window_the_last_figure_stays_and_without_statistics_nothing_is_measurable() -> None:
    cost = ProbeCost()
    cost.apply(frame(Program("a", "here", 1, 1_000_000, 0)))
    closed = Statistics(window_ns=0, interval_ns=SECOND, estimated=False)
    cost.apply(frame(Program("a", "here", 0, 0, 0), statistics=closed))
    assert cost.kernel_cpu_pct == pytest.approx(1.0)
    assert (cost.measurable, cost.estimated) == (True, True)
    assert cost.programs["a"].window_ns == SECOND // 10
    cost.apply(frame(Program("a", "here", 0, 0, 0), statistics=None))
    assert (cost.measurable, cost.estimated) == (False, True)
    assert cost.kernel_cpu_pct == pytest.approx(1.0)
    assert cost.elapsed_ns == 3 * SECOND


def test_figures_of_short_windows_and_of_whole_periods_count_alike() -> None:
    """100 s in windows of 200 ms, one in 5 s, at 8 % of a core; then 100 s of periods of 10 s at 0.8 %."""
    cost = ProbeCost()
    closed = Statistics(window_ns=0, interval_ns=SECOND, estimated=True)
    windows = [(SECOND // 5, 5, 0.08, False), (10 * SECOND, 10, 0.008, True)]
    for window_ns, every, share, is_sampled in windows:
        for second in range(1, 101):
            if second % every:
                cost.apply(frame(Program("a", "here", 0, 0, 0), statistics=closed), is_sampled)
                continue
            window = Statistics(window_ns=window_ns, interval_ns=SECOND, estimated=True)
            program = Program("a", "here", round(share * window_ns) // 100, round(share * window_ns), 0)
            cost.apply(frame(program, statistics=window), is_sampled)
    found = cost.programs["a"]
    assert found.cpu_pct == pytest.approx(4.4) and found.runs_per_s == pytest.approx(440_000)
    assert cost.sums()["a"] == (200 * SECOND, 88_000_000, 8_800_000_000)
    assert cost.windows_ns / cost.windows_of_ns == pytest.approx(0.04)


def test_what_a_version_before_has_saved_stands_for_all_time_until_then() -> None:
    cost = ProbeCost(Keyed([ProgramCost("a", "here", 36 * SECOND, 3600, SECOND * 36 // 100)]), elapsed_ns=3600 * SECOND)
    assert cost.programs["a"].cpu_pct == pytest.approx(1.0)
    window = Statistics(window_ns=SECOND // 50, interval_ns=SECOND, estimated=True)
    cost.apply(frame(Program("a", "here", 1, SECOND // 1000, 0), statistics=window))
    assert cost.programs["a"].cpu_pct == pytest.approx(1.0, abs=0.01), "one window is of one second"


def test_statistics_that_are_always_on_are_no_estimate() -> None:
    cost = ProbeCost()
    whole = Statistics(window_ns=SECOND, interval_ns=SECOND, estimated=False)
    cost.apply(frame(Program("a", "here", 1, 1_000_000, 0), statistics=whole))
    assert (cost.measurable, cost.estimated) == (True, False)
    assert cost.kernel_cpu_pct == pytest.approx(0.1)
    cost.apply(frame(statistics=Statistics(window_ns=SECOND, interval_ns=SECOND, estimated=True)))
    assert (cost.estimated, cost.kernel_cpu_pct) == (True, 0.0), "a window in which nothing ran"


def test_events_and_losses_are_those_of_the_last_frame() -> None:
    cost = ProbeCost()
    cost.apply(frame(events={"submitted": Count(1, 1)}, ledger={"missed": Count(2, 2)}))
    cost.apply(frame(events={"submitted": Count(3, 4)}, ledger={"missed": Count(5, 7)}))
    assert (cost.events, cost.ledger) == ({"submitted": Count(3, 4)}, {"missed": Count(5, 7)})


def test_a_program_before_its_first_window_costs_what_nobody_knows() -> None:
    one = ProgramCost("a", "here")
    assert (one.ns_per_run, one.cpu_pct, one.last_cpu_pct, one.last_ns_per_run) == (None, None, None, None)
    assert ProbeCost().kernel_cpu_pct is None


def test_no_more_programs_are_kept_than_a_probe_can_have() -> None:
    cost = ProbeCost()
    cost.apply(frame(*(Program(f"p{number}", "here", 1, 1, 0) for number in range(MAX_PROGRAMS + 5))))
    assert len(cost.programs) == MAX_PROGRAMS == 64


@pytest.mark.parametrize(
    "entry", ["missed", "map_full", "evicted", "join_missed", "parse_failed", "unaccounted", "unlisted"]
)
def test_entries_that_make_counts_a_lower_bound(entry: str) -> None:
    cost = ProbeCost(ledger={entry: Count(0, 5), "lost": Count(1, 9)})
    assert cost.counts_lost() == {entry: 5} and cost.samples_lost() == {"lost": 9}


@pytest.mark.parametrize("entry", ["suppressed", "breaker", "lost", "stack_failed", "shed", "unmeasured", "unsampled"])
def test_entries_that_only_make_samples_a_share(entry: str) -> None:
    cost = ProbeCost(ledger={entry: Count(2, 5), "missed": Count(0, 0)})
    assert cost.counts_lost() == {} and cost.samples_lost() == {entry: 5}
    assert cost.unmeasured == (2 if entry == "unmeasured" else 0)


def test_entries_of_the_last_interval_are_told_from_those_since_the_beginning() -> None:
    cost = ProbeCost(ledger={"missed": Count(2, 5), "unlisted": Count(0, 9), "lost": Count(3, 3)})
    assert set(cost.counts_lost_now()) == {"missed"} and set(cost.counts_lost()) == {"missed", "unlisted"}
