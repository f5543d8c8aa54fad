"""The circuit breaker to the run and to the nanosecond (docs/design/governor.md), at a time that the test sets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.live.contexts.made_clock import BEGAN, CALL_NS, COUNTERS, DETAILS, WINDOW_NS, Headers, Window
from tests.support.live.contexts.unattached import UnattachedProbe, on_cpu

Load = Callable[..., UnattachedProbe]
GRANT, TICKS = 64, 8
MOST = 2684
"""20000 a second in 134 ms."""
BOUND_NS = 1 << 20
BOUND_PCT = 100 * BOUND_NS / WINDOW_NS
LONG_NS = 16384
"""A run that took longer was interrupted."""
OWED = 8
"""Windows that are owed at most."""


def whole_grants(runs: int, of: int = GRANT) -> int:
    """Runs until so many have ended, each grant to its end."""
    return (runs + of - 1) // of * of


def test_a_window_has_so_many_runs_of_details(load: Load) -> None:
    headers = Headers(load("headers"))
    headers.probe.set("details")
    for number in (BEGAN, BEGAN + 1, BEGAN + 3):
        headers.time(number * WINDOW_NS, jiffies=TICKS * number)
        found = [flags & (DETAILS | COUNTERS) for flags in headers.often(4000, "flags")]
        assert found == [DETAILS] * whole_grants(MOST) + [0] * (4000 - whole_grants(MOST))


@pytest.mark.parametrize(("per_s", "most"), [(2000, 268), (1908, 4 * GRANT)])
def test_a_window_has_so_many_runs_that_make_rows(load: Load, per_s: int, most: int) -> None:
    headers = Headers(load("headers"))
    headers.probe.set("summary", rows_per_s=per_s)
    found = [flags & (DETAILS | COUNTERS) for flags in headers.often(1000, "flags")]
    assert found == [0] * whole_grants(most) + [COUNTERS] * (1000 - whole_grants(most))
    headers.probe.set("summary")
    headers.time((BEGAN + 1) * WINDOW_NS, jiffies=0)
    before = headers.window
    assert not any(flags & COUNTERS for flags in headers.often(1000, "flags")) and headers.window == before


def test_a_grant_ends_with_its_runs_or_after_eight_ticks(load: Load) -> None:
    """Only runs that have ended count: ten of each grant here."""
    headers = Headers(load("headers"))
    headers.probe.set("details")
    found = list[int]()
    for number in range(300):
        headers.time(BEGAN * WINDOW_NS, jiffies=TICKS * number + number % TICKS)
        found += [flags & DETAILS for flags in headers.often(10, "flags")]
    assert found == [DETAILS] * whole_grants(MOST, 10) + [0] * (3000 - whole_grants(MOST, 10))
    # The last grant had no details. It holds for its ticks, in the next window too.
    headers.time((BEGAN + 1) * WINDOW_NS, jiffies=TICKS * 299 + TICKS - 1)
    assert not headers.call("flags") & DETAILS
    headers.time((BEGAN + 1) * WINDOW_NS, jiffies=TICKS * 300)
    assert headers.call("flags") & DETAILS


def test_what_other_cpus_have_used_counts(load: Load) -> None:
    headers = Headers(load("headers"))
    headers.probe.set("details")
    for grants, wanted in enumerate((DETAILS, 0)):  # at the second one, the run of the first one has ended
        headers.time(BEGAN * WINDOW_NS, jiffies=TICKS * grants)
        headers.window = Window(BEGAN, MOST - 1, 0)
        assert headers.call("flags") & DETAILS == wanted
    headers.probe.set("details")
    with on_cpu(1):
        assert headers.window.runs == MOST
        assert not headers.call("flags") & DETAILS
    headers.time((BEGAN + 1) * WINDOW_NS, jiffies=TICKS * 9)
    assert headers.call("flags") & DETAILS


@pytest.mark.parametrize("attended", [0, 1])
def test_a_window_has_so_much_time_and_twice_as_much_while_somebody_looks(load: Load, attended: int) -> None:
    headers = Headers(load("headers"))
    headers.probe.set("details")
    headers.probe.running.bound(BOUND_PCT)
    headers.attended(BEGAN + attended)
    took = 1000 + CALL_NS
    grants = -(-BOUND_NS * (1 + attended) // (took * GRANT))
    found = [flags & (DETAILS | COUNTERS) for flags in headers.often(2500, "flags", 1000)]
    assert found == [DETAILS] * (grants * GRANT) + [COUNTERS] * (2500 - grants * GRANT)
    assert headers.window == (BEGAN, 2500 // GRANT * GRANT, 2500 // GRANT * GRANT * took)


def test_runs_that_a_filter_ends_leave_details_to_the_others_but_their_time_counts(load: Load) -> None:
    headers = Headers(load("headers"))
    headers.probe.set("details")
    headers.probe.running.bound(100)
    headers.attended(0)
    for runs in (4000, 4016):
        assert all(flags & DETAILS for flags in headers.often(runs, "flags", 1000, 1))
    ended = 8016 // GRANT * GRANT
    assert headers.window == (BEGAN, 0, ended * (1000 + CALL_NS))
    found = [flags & DETAILS for flags in headers.often(4000, "flags", 1000)]
    begun = 8016 - ended  # of the grant in which the filter let pass again
    most = whole_grants(MOST + begun) - begun
    assert found == [DETAILS] * most + [0] * (4000 - most)


def test_time_over_the_bound_is_owed_by_the_windows_that_follow(load: Load) -> None:
    headers = Headers(load("headers"))
    headers.probe.set("details")
    headers.probe.running.bound(BOUND_PCT)
    headers.attended(0)
    cases = (
        (1, 3 * BOUND_NS + 5, 2 * BOUND_NS + 5),
        (2, 3 * BOUND_NS + 5, BOUND_NS + 5),
        (2, 3 * BOUND_NS, BOUND_NS),
        (2, 3 * BOUND_NS - 1, BOUND_NS - 1),
        (3, 3 * BOUND_NS - 1, 0),
        (1, 30 * BOUND_NS, OWED * BOUND_NS),
        (1, (1 + OWED) * BOUND_NS - 1, OWED * BOUND_NS - 1),
    )
    for number, (windows, took, owed) in enumerate(cases, 1):
        headers.time((BEGAN + 10 * number) * WINDOW_NS, jiffies=TICKS * number)
        headers.window = Window(BEGAN + 10 * number - windows, 77, took)
        flags = headers.call("flags") & (DETAILS | COUNTERS)
        assert headers.window == (BEGAN + 10 * number, 0, owed)
        assert flags == (COUNTERS if owed >= BOUND_NS else DETAILS)


def test_the_second_run_of_a_grant_is_timed_and_stands_for_all_unless_it_was_interrupted(load: Load) -> None:
    headers = Headers(load("headers"))
    headers.probe.set("details")
    headers.probe.running.bound(BOUND_PCT)
    headers.attended(0)
    for number, (took, counted) in enumerate(((0, 0), (700, 700), (LONG_NS - 1, LONG_NS - 1), (LONG_NS * 3, LONG_NS))):
        headers.time(BEGAN * WINDOW_NS, jiffies=TICKS * number)
        headers.call("flags", 9000)
        headers.call("flags", took)
        headers.often(GRANT - 2, "flags", 5)
        headers.window = Window(BEGAN, 0, 0)
        headers.call("flags")
        assert headers.window == (BEGAN, GRANT, GRANT * (counted + CALL_NS))


@pytest.mark.parametrize(("program", "entry"), [("list", "unlisted"), ("measure", "unmeasured")])
def test_rows_of_joined_packets_count_twice_and_are_no_runs(load: Load, program: str, entry: str) -> None:
    headers = Headers(load("headers"))
    headers.probe.set("details")
    assert headers.often(1000, program, 10**6) == [1] * 1000 and headers.window == (0, 0, 0)
    headers.probe.running.bound(BOUND_PCT)
    headers.attended(0)
    headers.time(BEGAN * WINDOW_NS)
    took = 2 * (1000 + CALL_NS)
    allowed = -(-BOUND_NS // (took * GRANT)) * GRANT
    assert headers.often(2500, program, 1000) == [1] * allowed + [0] * (2500 - allowed)
    assert headers.window == (BEGAN, 0, 2500 // GRANT * GRANT * took)
    headers.probe.read()
    assert headers.probe.ledger() == {entry: 2500 - allowed}
