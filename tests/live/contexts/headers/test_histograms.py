"""Histograms and counts of the shared headers: every value of 64 bits, and exact sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from netconsole.telemetry.histogram import bounds, index
from tests.support.live.contexts.made_clock import Headers
from tests.support.live.contexts.unattached import UnattachedProbe

Load = Callable[..., UnattachedProbe]
LAST_SLOT = 495
LARGEST = (1 << 64) - 1


def at_the_bounds() -> Iterator[int]:
    for slot in range(LAST_SLOT + 1):
        low, high = bounds(slot)
        yield from (low, high - 1)


def test_each_value_falls_into_its_slot(load: Load) -> None:
    headers = Headers(load("headers"))
    values = sorted({*range(2048), *at_the_bounds()})
    assert values[-1] == LARGEST and index(LARGEST) == LAST_SLOT
    assert [headers.call("slot", value) for value in values] == [index(value) for value in values]


def test_a_histogram_is_the_values(load: Load) -> None:
    headers = Headers(load("headers"))
    values = [5_000_000_000, 700, 701, 4_294_967_295, 4_294_967_296, 90_000_000_000, 700]
    for number, value in enumerate(values, 1):
        headers.call("value", value)
        headers.probe.read()
        so_far = values[:number]
        slots = sorted({index(one) for one in so_far})
        expected = {
            "count": number,
            "sum": sum(so_far),
            "min": min(so_far),
            "max": max(so_far),
            "buckets": [[slot, sum(index(one) == slot for one in so_far)] for slot in slots],
        }
        assert headers.probe.histograms("values") == [{"which": 0, **expected}]
        assert headers.probe.histograms("whole") == [{"cpu": 0, "which": 0, **expected}]
    assert headers.probe.ledger() == {}
    for value in (0, LARGEST):
        headers.call("value", value)
    headers.probe.read()
    for name in ("values", "whole"):
        (found,) = headers.probe.histograms(name)
        assert (found["min"], found["max"], found["count"]) == (0, LARGEST, len(values) + 2)


def test_a_slot_without_room_is_lost_and_counted(load: Load) -> None:
    headers = Headers(load("headers", values=1))
    for value in (700, 100_000, 700, 1):
        headers.call("value", value)
    headers.probe.read()
    (found,) = headers.probe.histograms("values")
    assert (found["count"], found["sum"]) == (2, 1400) and headers.probe.ledger() == {"map_full": 2}


def test_counters_and_ledger_count_each_call(load: Load) -> None:
    headers = Headers(load("headers"))
    headers.often(3, "count", 5)
    headers.call("count", 1 << 40)
    headers.probe.read()
    assert headers.probe.counters() == {"own": 4, "shared": 4}
    assert headers.probe.ledger() == {"join_missed": 15 + (1 << 40)}
