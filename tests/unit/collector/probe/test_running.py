"""An attached probe: what is written to it and in which order, what is read of it and when, and what is left behind."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from netconsole_collector.names.lookups import Lookups
from netconsole_collector.probe import config, device_sets, running
from netconsole_collector.probe.reading import ledger
from netconsole_collector.probe.reading.decode import LayoutError
from netconsole_collector.probe.reading.histograms import CpuHistogramReader, HistogramReader
from tests.support.fake_map import CPUS
from tests.support.running_probe import BEGAN_NS, COUNT, QUEUE, SECOND, WAITS, Made

pytestmark = pytest.mark.usefixtures("no_kernel")

# ---- what is written to it, in which order ----


def test_a_new_probe_is_in_summary_without_a_bound(made: Made) -> None:
    assert (made.probe.mode, made.probe.knobs, made.probe.note) == ("summary", {}, None)
    assert (made.probe.bound_pct, made.probe.has_own_bound) == (0.0, False)
    assert made.probe.program_fds == [1, 2, 3]
    assert made.did() == [], "nothing is done to it before it is configured"


def test_programs_of_a_mode_are_attached_before_the_probe_knows_of_it_and_others_detached_after(made: Made) -> None:
    made.probe.configure("counters", {})
    # The last one goes first, so that nothing waits for what does not come any more.
    assert made.did() == [device_sets.MAP, "nc_config", "nc_arrival", "detach tell", "detach wait"]
    made.probe.configure("details", {})
    assert made.did() == ["attach wait", "attach tell", running.RESUMED, device_sets.MAP, "nc_config"]
    made.probe.configure("details", {})
    assert made.did() == [device_sets.MAP, "nc_config"], "what runs is not attached again"
    assert (made.probe.mode, made.probe.attached) == ("details", ["point of count", "point of wait", "point of tell"])


def test_the_probe_is_told_when_its_programs_were_resumed(made: Made) -> None:
    made.probe.configure("counters", {})
    made.log.clear()
    made.probe.configure("summary", {})
    assert (running.RESUMED, struct.pack("=Q", 4711)) in made.log
    assert running.RESUMED == "nc_resumed"


def test_a_budget_is_emptied_when_it_has_changed_alone(made: Made) -> None:
    made.probe.configure("details", {"events_per_s": 100})
    assert "nc_arrival" in made.did()
    made.probe.configure("details", {"events_per_s": 100, "device": "eth0"})
    assert "nc_arrival" not in made.did()
    made.probe.configure("details", {"events_per_s": 25})
    assert "nc_arrival" in made.did()
    assert made.probe.knobs == {"device": "eth0", "events_per_s": 25, "threshold_us": 0}


def test_what_is_written_is_what_was_asked_for(made: Made) -> None:
    made.probe.bound_pct = 2.5
    made.probe.configure("details", {"events_per_s": 30})
    written: dict[str, bytes] = dict(one for one in made.log if isinstance(one, tuple))
    knobs = {"device": "", "events_per_s": 30, "threshold_us": 0}
    assert written["nc_config"] == config.pack("details", knobs, 2.5)
    assert written["nc_arrival"] == bytes(8)
    assert written[device_sets.MAP] == device_sets.pack(knobs, 1)
    made.probe.configure("details", {})
    assert (device_sets.MAP, device_sets.pack(knobs, 2)) in made.log, "its number differs from the last one's"


def test_a_bound_is_written_with_the_mode_and_knobs_that_there_are(made: Made) -> None:
    made.probe.configure("details", {"events_per_s": 30})
    made.log.clear()
    made.probe.bound(1.5)
    assert (made.probe.mode, made.probe.knobs["events_per_s"], made.probe.bound_pct) == ("details", 30, 1.5)
    assert made.did() == [device_sets.MAP, "nc_config"]


@pytest.mark.parametrize(
    ("mode", "changes", "says"),
    [
        ("loud", {}, "mode 'loud': this probe has counters and summary and details"),
        ("details", {"port": 1}, "knob port"),
        ("details", {"events_per_s": -1}, "knob events_per_s"),
    ],
)
def test_what_is_refused_has_changed_nothing(made: Made, mode: str, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(config.KnobError, match=says):
        made.probe.configure(mode, changes)
    assert made.did() == [] and (made.probe.mode, made.probe.knobs) == ("summary", {})


def test_a_probe_that_names_no_modes_has_summary_alone() -> None:
    made = Made(probe={})
    made.probe.configure("summary", {})
    with pytest.raises(config.KnobError, match="this probe has summary"):
        made.probe.configure("details", {})


def test_what_another_mode_alone_needs_is_not_missing(made: Made) -> None:
    made.probe._never_ran.append({"name": "tell"})
    made.probe.configure("summary", {})
    assert made.probe.missing == []
    made.probe.configure("details", {})
    assert made.probe.missing == [{"name": "tell"}]


def test_what_cannot_be_attached_again_is_missing_and_not_tried_for_ever(made: Made) -> None:
    made.probe._never_ran.append({"name": "never"})
    made.probe.configure("counters", {})
    made.probe.programs[1].refuses = True  # type: ignore[attr-defined]
    made.log.clear()
    made.probe.configure("summary", {})
    why = {"point": "point of wait", "why": "no such function", "detail": ""}
    assert made.probe.missing == [{"name": "never"}, {"name": "wait", "measures": "waits", "tried": [why]}]
    assert made.probe.attached == ["point of count"]
    made.log.clear()
    made.probe.configure("summary", {})
    assert made.did() == [device_sets.MAP, "nc_config", "detach tell"]


# ---- what is read of it, and when ----


def test_frames_are_of_the_probe_and_counters_come_before_their_rows() -> None:
    made = Made(
        events={"drop": {"map": "ring"}},
        histograms={"waits": {"map": "waits", "key": WAITS, "unit": "ns"}},
        records={
            "echoes": {
                "map": "lately",
                "key": [{"name": "number", "type": "u32"}],
                "value": [{"name": "began_ns", "type": "u64"}, {"name": "ended_ns", "type": "u64"}],
                "since": "began_ns",
                "keep": "keep_ms",
            }
        },
    )
    made.probe.knobs["keep_ms"] = 100
    made.rows.content[struct.pack("=II", 1, 6)] = struct.pack("=3Q", 1, 2, 3)
    waits: Any = made.maps["waits"]
    waits.content[struct.pack("=I", 0)] = struct.pack("=499Q", 8, 8, 2**64 - 9, *[0] * 8, 1, *[0] * 487) * CPUS
    bodies = made.read(1.0)
    kinds = ["counters", "table", *["histogram"] * CPUS, "records", "event", "cost"]
    assert [one["kind"] for one in bodies] == kinds and {one["probe"] for one in bodies} == {"drops"}
    assert all(one["interval_ns"] == SECOND for one in bodies if one["kind"] in ("counters", "table", "histogram"))
    assert bodies[1]["name"] == "queues" and bodies[1]["full"]
    assert (bodies[2]["name"], bodies[2]["unit"], bodies[2]["total"]["count"]) == ("waits", "ns", 1)
    assert bodies[-3]["name"] == "echoes"


def test_a_histogram_in_an_array_and_one_in_a_hash_are_read_each_in_its_way() -> None:
    made = Made(
        histograms={
            "waits": {"map": "waits", "key": WAITS, "unit": "ns"},
            "sizes": {"map": "buckets", "key": QUEUE, "unit": "bytes"},
        }
    )
    assert [type(one) for one in made.probe._histograms] == [CpuHistogramReader, HistogramReader]


def test_counts_are_differences_of_two_readings(made: Made) -> None:
    made.counters.totals = {0: 5, 1: 7}
    [counters, *_] = made.read(1.0)
    assert counters["values"] == {"seen": {"delta": 5, "total": 5}}, "the other one is kept in details alone"
    made.counters.totals = {0: 12, 1: 7}
    assert made.read(2.0)[0]["values"] == {"seen": {"delta": 7, "total": 12}}


def test_an_interval_begins_when_this_probe_was_read_last(made: Made) -> None:
    lengths = [made.read(at_s, since_s)[0]["interval_ns"] for at_s, since_s in ((0.25, 0.0), (1.25, 0.75), (2.25, 1.0))]
    assert lengths == [SECOND // 4, SECOND // 2, SECOND]
    assert Made().read(1.0, since_s=-3.0)[0]["interval_ns"] == SECOND, "at most since the probe is there"


def test_every_tenth_reading_has_all_rows(made: Made) -> None:
    made.rows.content[struct.pack("=II", 1, 6)] = struct.pack("=3Q", 1, 2, 3)
    found = [made.read(float(second))[1] for second in range(1, 22)]
    assert [number for number, one in enumerate(found) if one["full"]] == [0, 10, 20]
    assert [len(one["rows"]) for one in found[:11]] == [1, *[0] * 9, 1]


def test_in_mode_counters_there_are_no_rows_and_a_mode_that_has_ended_is_read_once_more(made: Made) -> None:
    kinds = []
    for second, mode in enumerate(("summary", "counters", "counters", "details", "summary", "summary"), 1):
        made.probe.mode = mode
        bodies = made.read(float(second))
        kinds.append(([one["kind"] for one in bodies], list(bodies[0]["values"])))
    rows, none = ["counters", "table", "cost"], ["counters", "cost"]
    assert kinds == [
        (rows, ["seen"]),
        (rows, ["seen"]),
        (none, ["seen"]),
        (rows, ["seen", "slow"]),
        (rows, ["seen", "slow"]),
        (rows, ["seen"]),
    ]


def test_a_table_of_another_mode_is_passed_over_and_the_next_one_is_read() -> None:
    table = {"map": "rows", "key": QUEUE, "value": COUNT}
    made = Made(tables={"flows": {**table, "modes": ["details"]}, "queues": table})
    assert [one.get("name") for one in made.read(1.0)] == [None, "queues", None]


def test_programs_know_that_somebody_keeps_the_budget_while_details_have_a_bound(made: Made) -> None:
    for mode, bound_pct, told in (("details", 0.0, False), ("summary", 2.0, False), ("details", 2.0, True)):
        made.probe.mode, made.probe.bound_pct = mode, bound_pct
        made.log.clear()
        made.read(7.0)
        assert (("nc_attended", config.attended(BEGAN_NS + 7 * SECOND)) in made.log) is told


# ---- the ledger ----


def test_what_no_row_explains_is_unaccounted_when_two_readings_say_so(made: Made) -> None:
    made.counters.totals = {0: 100}
    made.rows.content[struct.pack("=II", 1, 6)] = struct.pack("=3Q", 30, 20, 10)
    made.accounts.totals = {ledger.SLOTS.index("map_full"): 8, ledger.SLOTS.index("unlisted"): 9}
    assert made.cost(1.0)["ledger"]["unaccounted"] == {"delta": 0, "total": 0}, "a packet may be on its way"
    assert made.cost(2.0)["ledger"]["unaccounted"] == {"delta": 100 - 60 - 17, "total": 23}
    assert made.cost(3.0)["ledger"]["unaccounted"] == {"delta": 0, "total": 23}


def test_the_ledger_has_each_loss_with_what_programs_tables_and_events_lost_themselves() -> None:
    made = Made(events={"drop": {"map": "ring"}}, histograms={"waits": {"map": "waits", "key": WAITS, "unit": "ns"}})
    made.accounts.totals = {slot: 10 + slot for slot in range(len(ledger.SLOTS))}
    for program, skipped in zip(made.probe.programs, (3, None, 4), strict=True):
        program.skipped = skipped  # type: ignore[attr-defined]
    made.probe._tables[0].reader.evicted = 5
    made.probe._histograms[0].evicted = 6  # type: ignore[misc]
    made.probe._events.shed = 2
    book = made.cost(1.0)["ledger"]
    totals = ledger.read(made.accounts)  # type: ignore[arg-type]
    expected = {name: totals[name] for name in ledger.LOSSES}
    expected |= {"missed": 7, "evicted": 11, "shed": 2, "unaccounted": 0, "unseen_ms": 0}
    assert book == {name: {"delta": total, "total": total} for name, total in expected.items()}
    assert [one["missed"] for one in made.cost(2.0)["programs"]] == [3, None, 4]


def test_what_became_of_events_is_told_where_there_are_any() -> None:
    made = Made(events={"drop": {"map": "ring"}})
    made.accounts.totals = {0: 9, 1: 3}
    totals = ledger.read(made.accounts)  # type: ignore[arg-type]
    assert made.cost(1.0)["events"] == {
        name: {"delta": totals[name], "total": totals[name]} for name in ("seen", "submitted", "suppressed", "lost")
    }
    assert made.probe._events.names == ["drop 74"]  # type: ignore[attr-defined]
    assert Made().cost(1.0)["events"] == {}


# ---- what it costs ----


def test_the_cost_names_each_program_with_its_runs_and_time(made: Made) -> None:
    cost = made.cost(1.0)
    assert cost["programs"][1] == {
        "name": "wait", "attach": "point of wait", "run_count": 2, "run_time_ns": 20, "missed": 0,
    }  # fmt: skip
    assert [one["run_count"] for one in cost["programs"]] == [1, 2, 3] and cost["interval_ns"] == SECOND


def test_a_time_is_estimated_when_the_window_was_shorter_than_the_interval(made: Made) -> None:
    window = {"window_ns": 100_000_000, "interval_ns": SECOND, "estimated": True}
    assert made.cost(1.0)["statistics"] == window
    made.window.took_ns = SECOND
    assert made.cost(2.0)["statistics"]["estimated"] is False
    made.window.window_ns = 0
    assert made.cost(3.0)["statistics"] is None
    made.window.window_ns, made.window.why_not = 1, "the kernel has none"
    assert made.cost(4.0)["statistics"] is None


def test_the_memory_of_maps_is_asked_for_every_tenth_time(made: Made) -> None:
    found = []
    for second in range(1, 23):
        made.maps.kb = second
        found.append(made.cost(float(second))["maps_kb"])
    assert found == [*[1] * 10, *[11] * 10, 21, 21]


# ---- leaders, checks, and the end ----


def test_a_program_that_leads_gets_the_map_of_followers() -> None:
    made = Made()
    made.spec["programs"][1]["leads"] = True
    again = running.RunningProbe("drops", made.spec, made.answer, Lookups(), BEGAN_NS)
    assert made.did() == ["wait leads followers"] and len(again.programs) == 3


def test_a_wrong_layout_detaches_what_needs_it_and_says_so(made: Made) -> None:
    assert made.probe.detach_failed_checks() is False
    made = Made(checks=[{"slot": 0, "says": "struct sock differs", "programs": ["wait", "tell"]}])
    made.probe.configure("summary", {})
    made.log.clear()
    assert made.probe.detach_failed_checks() is True
    why = "struct sock differs"
    assert [(one["name"], one["tried"][0]["why"]) for one in made.probe.missing] == [("wait", why)]
    assert made.probe.detach_failed_checks() is False
    made.probe.configure("details", {})
    assert not [entry for entry in made.did() if entry.startswith("attach")], "those of another mode are as wrong"
    assert {one["name"] for one in made.probe.missing} == {"wait", "tell"}


def test_at_the_end_all_is_stopped_before_anything_is_given_back(made: Made) -> None:
    made.probe.close()
    stopped = ["detach tell", "detach wait", "detach count"]
    assert made.did() == [*stopped, "close count", "close wait", "close tell", "maps closed"]
    assert made.probe.programs == []


def test_a_probe_without_a_ledger_has_lost_nothing_that_is_known(made: Made) -> None:
    del made.answer["maps"]["nc_ledger"]
    again = running.RunningProbe("drops", made.spec, made.answer, Lookups(), BEGAN_NS)
    first: Any = made.probe
    assert again._ledger_slots is None and first._ledger_slots is made.accounts


def test_of_a_probe_that_does_not_fit_nothing_is_left() -> None:
    made = Made()
    made.spec["tables"]["queues"]["value"] = [*COUNT, {"name": "bytes", "type": "u64"}]
    with pytest.raises(LayoutError, match="value of table queues: 16 bytes in the manifest, 8 in the program"):
        running.RunningProbe("drops", made.spec, made.answer, Lookups(), BEGAN_NS)
    assert made.did()[-1] == "maps closed"


# ---- rows and the counter that they are held against ----


def storm(made: Made, monkeypatch: pytest.MonkeyPatch, per_reading: tuple[int, ...]) -> None:
    """So many come when the rows have been read, once, twice, …; they are in both."""
    come = iter(per_reading)
    items = made.rows.items

    def read() -> list[tuple[bytes, bytes]]:
        found = items()
        counted = made.counters.totals[0] + next(come, 0)
        rows(made, counted)
        return found

    monkeypatch.setattr(made.rows, "items", read)


def rows(made: Made, count: int) -> None:
    made.counters.totals[0] = count
    made.rows.content[bytes(8)] = struct.pack("=Q", count).ljust(made.rows.value_bytes, b"\0")


def told(made: Made, after_s: float) -> tuple[int, int]:
    """Totals of the counter and of the rows."""
    bodies = made.read(after_s)
    (table,) = [one for one in bodies if one["kind"] == "table"]
    counters = next(one["values"] for one in bodies if one["kind"] == "counters")
    return counters["seen"]["total"], sum(row["counts"]["count"]["total"] for row in table["rows"])


def test_what_comes_while_names_are_looked_up_is_of_the_next_interval(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the rows would have it, and the counter that was read before them not."""
    rows(made, 1000)
    (table,) = made.probe._tables

    def refresh() -> bool:
        rows(made, made.counters.totals[0] + 117_000)
        return False

    monkeypatch.setattr(table.reader, "refresh_labels", refresh)
    made.probe.configure("summary", {})
    assert told(made, 1.0) == (1000, 1000)
    assert told(made, 2.0) == (118_000, 118_000)


def test_counter_and_rows_are_taken_again_where_much_came_between(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made.probe.configure("summary", {})
    rows(made, 100_000)
    storm(made, monkeypatch, (50_000, 40, 7))
    assert told(made, 1.0) == (150_000, 150_000)
    assert made.counters.totals[0] == 150_040, "a hundredth of what the interval has counted is little"


def test_a_storm_that_does_not_end_is_taken_three_times_and_no_more(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.probe.configure("summary", {})
    rows(made, 1)
    storm(made, monkeypatch, (1_000_000,) * 10)
    assert told(made, 1.0) == (2_000_001, 2_000_001)
    assert made.counters.totals[0] == 3_000_001
