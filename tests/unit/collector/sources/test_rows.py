"""Rows: exact deltas and totals of the kernel's counters, whatever becomes of what they count."""

from __future__ import annotations

from netconsole_collector.sources.base import FULL_EVERY, Accumulator, RowMaker


def test_a_counter_that_went_back_is_that_of_a_thing_made_anew() -> None:
    one = Accumulator(["n"])
    assert one.take("a", (100,)) is None
    assert one.take("a", (107,)) == [7]
    assert one.take("a", (3,)) == [3]
    assert one.total("a") == [10]
    one.keep([])
    assert one.take("a", (50,)) is None
    for value in (2**64 - 1, 3, 2**64 - 1):  # of a driver that counts below 0
        one.take("a", (value,))
    assert one.total("a") == [2**63 - 1]


def test_all_rows_are_sent_now_and_then_and_a_row_that_is_gone_is_not() -> None:
    maker = RowMaker(["n"], 2)
    sent = [maker.rows([({"a": 1}, (5,), {}), ({"a": 2}, (5,), {})]) for _ in range(FULL_EVERY + 1)]
    assert [(len(one), full) for one, full, _ in sent] == [(2, True), *[(0, False)] * (FULL_EVERY - 1), (2, True)]
    for _ in range(FULL_EVERY):
        last, full, omitted = maker.rows([({"a": 2}, (5,), {}), ({"a": 3}, (5,), {}), ({"a": 4}, (5,), {})])
    assert full
    assert [row["labels"]["a"] for row in last] == [2, 3]
    assert omitted == 1
