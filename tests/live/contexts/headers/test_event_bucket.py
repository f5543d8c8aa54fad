"""The budget of events to the event, and which flows have details, at a time that the test sets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.live.contexts.made_clock import BEGAN, DETAILS, WINDOW_NS, Headers, Window
from tests.support.live.contexts.unattached import UnattachedProbe

Load = Callable[..., UnattachedProbe]
S = 10**9


@pytest.mark.parametrize(("per_s", "burst"), [(100, 25), (10, 2), (1, 1), (1000, 64)])
def test_the_bucket_gives_a_burst_and_then_one_event_at_a_time(load: Load, per_s: int, burst: int) -> None:
    headers = Headers(load("headers"))
    headers.probe.set("details", events_per_s=per_s)
    began, every = BEGAN * WINDOW_NS, S // per_s
    assert sum(headers.often(100, "event", 0, 1)) == burst
    headers.time(began + every - 1)
    assert headers.often(3, "event", 0, 1) == [0, 0, 0]
    headers.time(began + every)
    assert headers.often(3, "event", 0, 1) == [1, 0, 0]
    headers.time(began + every + burst * every - 1, jiffies=0)
    assert sum(headers.often(100, "event", 0, 1)) == burst - 1
    headers.time(began + 3600 * S, jiffies=8)  # what was not used is not saved up
    assert sum(headers.often(100, "event", 0, 1)) == burst
    headers.probe.read()
    sent = 3 * burst
    seen = 100 * 3 + 6
    assert headers.probe.ledger() == {"seen": seen, "submitted": sent, "suppressed": seen - sent}
    assert headers.probe.counters() == {"own": 0, "shared": 0}


def test_of_cpus_that_come_at_once_none_takes_too_much(load: Load) -> None:
    """What is too much is taken back."""
    headers = Headers(load("headers"))
    headers.probe.set("details", events_per_s=100)
    now, every, burst = BEGAN * WINDOW_NS, S // 100, 24 * S // 100
    for arrival, may, then in (
        (now + burst + 1, 0, now + burst + 1),
        (now + burst, 1, now + burst + every),
        (now, 1, now + every),
        (now - 5 * S, 1, now + every),
    ):
        headers.arrival = arrival
        assert headers.call("charge") == may and headers.arrival == then


def test_an_event_amid_another_one_on_its_cpu_has_no_record(load: Load) -> None:
    headers = Headers(load("headers"))
    headers.probe.set("details")
    assert headers.call("event", 0, 0) == 1  # an interrupt comes before it is submitted
    assert headers.often(3, "event", 0, 1) == [0, 0, 0]
    headers.probe.read()
    assert headers.probe.ledger() == {"seen": 4, "suppressed": 3}
    headers.probe.write("nc_budget", b"")
    assert headers.often(3, "event", 0, 1) == [1, 1, 1]


def test_the_time_of_an_event_is_time_of_its_window(load: Load) -> None:
    headers = Headers(load("headers"))
    headers.probe.set("details")
    headers.call("event", 0, 1)
    headers.window = Window(BEGAN, 0, 0)
    headers.call("event", 700, 1)
    headers.call("event", 20_000, 1)
    assert headers.window == (BEGAN, 0, 20_700)


def test_what_the_breaker_stops_is_seen_and_suppressed(load: Load) -> None:
    headers = Headers(load("headers"))
    headers.probe.set("details", events_per_s=10)
    assert sum(headers.often(3000, "event", 0, 1)) == 2
    headers.probe.read()
    assert headers.probe.ledger() == {"seen": 3000, "submitted": 2, "suppressed": 2998, "breaker": 3000 - 2688}
    headers.probe.set("summary")
    assert headers.call("flags") & DETAILS == 0


SAMPLED = 4096


@pytest.mark.parametrize("one_in", [1, 4, 16])
def test_one_flow_in_so_many_has_details_whatever_the_flows_differ_in(load: Load, one_in: int) -> None:
    headers = Headers(load("headers"))
    headers.probe.set("details", flows_one_in=one_in)
    kinds: list[Callable[[int], tuple[int, ...]]] = [
        lambda n: (n, 1, 2, 3, 4, 5),
        lambda n: (1, n << 32, 2, 3, 4, 5),
        lambda n: (1, 2, n, 3, 4, 5),
        lambda n: (1, 2, 3, n << 48, 4, 5),
        lambda n: (1, 2, 3, 4, 1024 + n, 53),
        lambda n: (1, 2, 3, 4, 443, 1024 + n),
    ]
    unsampled = 0
    for kind in kinds:
        chosen = [headers.call("sampled", *kind(number)) for number in range(SAMPLED)]
        back = [headers.call("sampled", c, d, a, b, f, e) for a, b, c, d, e, f in map(kind, range(64))]
        assert back == chosen[:64], "both directions of a flow or none"
        wanted = SAMPLED / one_in
        assert abs(sum(chosen) - wanted) <= 5 * (wanted * (1 - 1 / one_in)) ** 0.5
        unsampled += SAMPLED - sum(chosen) + 64 - sum(back)
    headers.probe.read()
    assert headers.probe.ledger().get("unsampled", 0) == unsampled
