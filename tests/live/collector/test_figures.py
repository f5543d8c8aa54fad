"""What the collector says is what happened: counters, tables, histograms, events, knobs, exactly."""

from __future__ import annotations

import os

import pytest

from netconsole.telemetry import frames, histogram
from netconsole_collector.collector import MAX_INTERVAL_MS
from netconsole_collector.probe.reading.map_reader import IDLE_INTERVALS
from tests.support.live.collector_driver import MAPS, Driver, call, calls_spec, load_command, of

pytestmark = pytest.mark.starting


def final(driver: Driver, name: str = "calls") -> list[frames.AnyFrame]:
    """The last figures of a probe: those of its unloading, when it stands still."""
    start = len(driver.seen)
    assert driver.ask(command="unload", probe=name).ok
    return driver.seen[start:]


def test_counts_rows_and_gauges_are_exact(driver: Driver) -> None:
    driver.load()
    for argument in (3, 4, 1000):
        call(argument, argument)
    seen = final(driver)
    total = 3 + 4 + 1000
    assert of(frames.Counters, seen)[-1].values["calls"].total == total
    assert sum(frame.values["calls"].delta for frame in of(frames.Counters, driver.seen)) == total
    rows = {}
    for table in of(frames.Table, driver.seen):
        rows.update({row.labels["argument"]: row for row in table.rows})
    assert set(rows) == {3, 4, 1000}
    for number, row in rows.items():
        assert isinstance(number, int)
        assert row.labels == {"argument": number, "name": "get", "parity": number & 1}
        assert row.counts["count"].total == number
        assert row.counts["weight"].total == number * number
        assert row.gauges == {"highest": number}


def test_deltas_add_up_to_totals_over_many_intervals(driver: Driver) -> None:
    driver.load()
    for times in (5, 0, 7):
        call(9, times)
        driver.interval()
    final(driver)
    deltas = [row.counts["count"].delta for table in of(frames.Table, driver.seen) for row in table.rows]
    assert sum(deltas) == 12
    # Rows that did not change are only in full tables.
    for table in of(frames.Table, driver.seen):
        assert table.full or all(row.counts["count"].delta for row in table.rows)


def test_a_histogram_agrees_with_the_console_s_own_arithmetic(driver: Driver) -> None:
    driver.load()
    values = [0, 2, 8, 100, 100, 5000, 123456]  # all even: one set of labels
    for value in values:
        call(value)
    last = of(frames.Histogram, driver.seen + final(driver))[-1]
    assert last.labels == {"parity": 0}
    assert last.unit == "bytes"
    assert (last.total.count, last.total.sum, last.total.min, last.total.max) == (7, sum(values), 0, 123456)
    expected: dict[int, int] = {}
    for value in values:
        expected[histogram.index(value)] = expected.get(histogram.index(value), 0) + 1
    assert dict(last.total.buckets) == expected


def test_every_event_is_accounted_for(driver: Driver) -> None:
    driver.load(mode="details", knobs={"pid": os.getpid(), "events_per_s": 200})
    driver.interval()
    call(77, 20_000)
    seen = final(driver)
    events = of(frames.Cost, seen)[-1].events
    assert events["seen"].total == 20_000 == sum(events[name].total for name in ("submitted", "suppressed", "lost"))
    assert 0 < events["submitted"].total < 20_000
    arrived = of(frames.Event, driver.seen)
    assert len(arrived) + of(frames.Cost, seen)[-1].ledger["shed"].total == events["submitted"].total
    assert {event.fields["argument"] for event in arrived} == {77}
    for event in arrived:
        stack = event.fields["stack"]
        assert isinstance(stack, list)
        assert not any(frame.startswith(("bpf_prog_", "bpf_trace_run")) for frame in stack)


def test_summary_mode_sends_no_events_and_keeps_the_counts(driver: Driver) -> None:
    driver.load()
    call(5, 50)
    seen = driver.seen + final(driver)
    assert not of(frames.Event, seen)
    assert of(frames.Cost, seen)[-1].events["seen"].total == 0
    assert of(frames.Counters, seen)[-1].values["calls"].total == 50


def test_a_knob_is_changed_without_a_gap(driver: Driver) -> None:
    driver.load()
    call(5, 10)
    reply = driver.ask(command="set", probe="calls", knobs={"pid": 1})
    assert reply.ok
    status = of(frames.Status, driver.seen)[-1]
    assert (status.state, status.knobs) == ("attached", {"events_per_s": 100, "pid": 1})
    call(5, 10)
    driver.ask(command="set", probe="calls", knobs={"pid": os.getpid()})
    call(5, 10)
    assert of(frames.Counters, final(driver))[-1].values["calls"].total == 20


def test_the_mode_is_changed_on_the_running_probe(driver: Driver) -> None:
    driver.load()
    assert driver.ask(command="set", probe="calls", mode="details").ok
    call(6, 5)
    driver.until(frames.Event)
    assert of(frames.Status, driver.seen)[-1].mode == "details"


def test_filters_hold_from_the_first_packet(driver: Driver) -> None:
    """Programs are attached with their knobs already written: nothing that they keep out is counted even once."""
    for number in range(3):
        driver.load(probe=f"calls{number}", knobs={"pid": 1})
        call(8, 10)
    for number in range(3):
        assert of(frames.Counters, final(driver, f"calls{number}"), f"calls{number}")[-1].values["calls"].total == 0


def test_a_row_that_finds_no_room_is_counted(driver: Driver) -> None:
    spec = calls_spec()
    spec["tables"]["calls"]["max_rows"] = 16
    driver.load(spec=spec)
    for argument in range(100):
        call(argument)
    seen = driver.seen + final(driver)
    ledger = of(frames.Cost, seen)[-1].ledger
    rows = {row.labels["argument"] for table in of(frames.Table, seen) for row in table.rows}
    assert of(frames.Counters, seen)[-1].values["calls"].total == 100
    assert len(rows) + ledger["map_full"].total == 100
    assert ledger["map_full"].total > 0
    assert ledger["unaccounted"].total == 0


ROWS = 52
"""Of 64: four fifths. A map that is almost full makes room sooner, and not of all that is idle."""


@pytest.mark.proves("collector", "ledger.evicted")
def test_idle_rows_make_room_and_are_counted_as_evicted(driver: Driver) -> None:
    spec = calls_spec()
    spec["tables"]["calls"]["max_rows"] = 64
    assert driver.ask(command="interval", ms=MAX_INTERVAL_MS).ok
    driver.load(spec=spec)
    for argument in range(ROWS):
        call(argument)
    # They are read together, and so idle together: who comes later stays when those before have made room.
    assert driver.ask(command="interval", ms=50).ok

    def known() -> int:
        return len({row.labels["argument"] for table in of(frames.Table, driver.seen) for row in table.rows})

    driver.until(frames.Cost, lambda cost: cost.probe == "calls" and known() == cost.ledger["evicted"].total == ROWS)
    driver.until(frames.Table, lambda table: table.full and not table.rows)
    before = len(driver.seen)
    call(7, 3)
    driver.until(frames.Table, lambda table: [row.counts["count"].total for row in table.rows] == [3])
    assert sum(row.counts["count"].delta for table in of(frames.Table, driver.seen[before:]) for row in table.rows) == 3
    ledger = of(frames.Cost, final(driver))[-1].ledger
    assert ledger["unaccounted"].total == 0


def test_idle_rows_of_an_array_stay(driver: Driver) -> None:
    """A CPU without softirqs for a minute is such a row."""
    spec = calls_spec()
    spec["tables"]["calls"].update(max_rows=4, key=[{"name": "parity", "type": "u32"}])
    source = load_command()["source"]
    for hashed, in_array in (
        (
            f'BPF_TABLE("percpu_hash", struct call_key, struct call_value, {MAPS[0]}, ',
            f'BPF_TABLE("array", u32, struct call_value, {MAPS[0]}, ',
        ),
        (f"{MAPS[0]}.lookup_or_try_init(key, &none)", f"{MAPS[0]}.lookup(&key->parity)"),
    ):
        assert hashed in source
        source = source.replace(hashed, in_array)
    assert driver.ask(command="interval", ms=50).ok
    assert driver.ask(**load_command(spec=spec, source=source)).ok
    for _ in range(IDLE_INTERVALS + 5):
        driver.until(frames.Cost, lambda cost: cost.probe == "calls")
    call(7, 3)

    def odd(table: frames.Table) -> list[int]:
        return [row.counts["count"].total for row in table.rows if row.labels["parity"] == 1]

    driver.until(frames.Table, lambda table: odd(table) == [3])
    assert of(frames.Cost, final(driver))[-1].ledger["evicted"].total == 0


@pytest.mark.proves("collector", "ledger.unaccounted")
def test_a_counter_without_rows_shows_as_unaccounted(driver: Driver) -> None:
    command = load_command()
    command["source"] = command["source"].replace("nc_add(&value->count, 1);", "")
    assert driver.ask(**command).ok
    call(7, 30)
    driver.until(frames.Cost, lambda cost: cost.probe == "calls" and cost.ledger["unaccounted"].total == 30)


def test_the_end_of_an_interval_is_the_cost_of_the_collector_itself(driver: Driver) -> None:
    driver.load()
    interval = driver.interval()
    assert isinstance(interval[-1], frames.Cost)
    assert interval[-1].usage is not None
    assert interval[-1].usage.pss_kb is not None
    assert [frame.seq for frame in driver.seen] == list(range(1, len(driver.seen) + 1))
