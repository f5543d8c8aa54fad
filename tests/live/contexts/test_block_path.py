"""block_path on requests and bios of the test's own: each that the block layer is known to make, in its order."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.live.contexts.block import DISCARD, FLUSH, READ, SENT_TO_DRIVER, WRITE, Disks, preflush
from tests.support.live.contexts.memory import place_of
from tests.support.live.contexts.moments import MS, elapsed, lies, wait
from tests.support.live.contexts.unattached import UnattachedProbe

PROBE = "block_path"
Load = Callable[..., UnattachedProbe]
PAGE = 4096
GOLDEN = 0x9E3779B97F4A7C15
WAYS = 8
FAILED = 10
"""BLK_STS_IOERR."""


def rows(disks: Disks) -> dict[tuple[str, str], dict[str, Any]]:
    """Those that counted, by device and operation, each without what is 0."""
    disks.probe.read()
    names = "device", "operation"
    told = {"process", "pid", "vm"}
    return {
        tuple(row[name] for name in names): {
            name: value for name, value in row.items() if value and name not in (*names, *told)
        }
        for row in disks.probe.rows("ios")
    }


def times(disks: Disks) -> dict[tuple[str, str], tuple[int, int]]:
    """Count and sum by operation and stage."""
    return {(one["operation"], one["stage"]): (one["count"], one["sum"]) for one in disks.probe.histograms("times")}


@pytest.mark.proves(
    "block_path",
    "counters.{ios,requests}",
    "tables.ios.{device,operation,process,pid,ios,bytes,requests,merges,unqueued}",
    "tables.devices.{device,started,in_flight,most}",
    "histograms.times",
    "histograms.times.{device,operation,process,pid,stage}",
)
def test_each_stage_is_as_long_as_it_was_and_an_io_is_what_was_asked_for(load: Load) -> None:
    """One through a scheduler; eight adjacent ones that are one request, which nobody inserts."""
    disks = Disks(load(PROBE))
    request, _ = disks.started(WRITE, PAGE)
    inserted = disks.told("inserted", request)
    wait(3)
    issued = disks.told("issued", request)
    wait(2)
    disks.probe.read()
    assert disks.probe.rows("devices") == [
        {"device": disks.NAMES[0], "started": 1, "in_flight": 1, "most": 1, "full": 0}
    ]
    ended = disks.completed(request, PAGE)

    request, _ = disks.started(READ, PAGE)
    for _ in range(7):
        disks.merged(disks.bio(READ, PAGE))
    disks.memory.change("request", request, {"__data_len": 8 * PAGE})
    also_issued = disks.told("issued", request)
    also_ended = disks.completed(request, 8 * PAGE)

    name = disks.NAMES[0]
    assert rows(disks) == {
        (name, "write"): {"ios": 1, "bytes": PAGE, "requests": 1},
        (name, "read"): {"ios": 8, "bytes": 8 * PAGE, "requests": 1, "merges": 7, "unqueued": 1},
    }
    assert disks.probe.counters() == {"ios": 9, "requests": 2, "errors": 0} and disks.probe.ledger() == {}
    found = times(disks)
    assert {stage: count for stage, (count, _) in found.items()} == {
        ("write", "queue"): 1,
        ("write", "device"): 1,
        ("read", "device"): 1,
    }
    assert lies(found["write", "queue"][1], elapsed(inserted, issued))
    assert lies(found["write", "device"][1], elapsed(issued, ended))
    assert lies(found["read", "device"][1], elapsed(also_issued, also_ended))
    comm = Path("/proc/self/comm").read_text().rstrip()
    assert {(row["process"], row["pid"]) for row in disks.probe.rows("ios")} == {(comm, os.getpid())}
    assert {(one["device"], one["process"], one["pid"]) for one in disks.probe.histograms("times")} == {
        (name, comm, os.getpid())
    }


@pytest.mark.proves("block_path", "tables.ios.{requeues,requests}", "counters.requests", "histograms.times.stage")
def test_a_request_that_is_put_back_ends_once_and_its_device_time_begins_at_the_last_issue(load: Load) -> None:
    """Seven times without an issue between, as a full SCSI host does."""
    disks = Disks(load(PROBE))
    request, _ = disks.started(READ, PAGE)
    inserted = disks.told("inserted", request)
    disks.told("issued", request)
    for _ in range(7):
        disks.told("requeued", request)
    wait(3)
    disks.told("inserted", request)
    issued = disks.told("issued", request)
    ended = disks.completed(request, PAGE)
    disks.told("requeued", request)  # of one that we do not know
    assert rows(disks) == {(disks.NAMES[0], "read"): {"ios": 1, "bytes": PAGE, "requests": 1, "requeues": 7}}
    found = times(disks)
    assert lies(found["read", "device"][1], elapsed(issued, ended))
    assert lies(found["read", "queue"][1], elapsed(inserted, issued))


@pytest.mark.proves("block_path", "counters.{requests,errors}", "tables.ios.errors")
def test_a_request_ends_with_the_completion_of_all_that_is_left_of_it(load: Load) -> None:
    """In parts; with nothing done and then an error; once more after what was written went through the cache."""
    disks = Disks(load(PROBE))
    request, _ = disks.started(READ, 4 * PAGE)
    disks.told("issued", request)
    disks.completed(request, PAGE)
    disks.memory.change("request", request, {"__data_len": 3 * PAGE})
    disks.probe.read()
    assert disks.probe.counters()["requests"] == disks.probe.counters()["errors"] == 0
    disks.completed(request, 3 * PAGE)

    request, _ = disks.started(READ, 16 * PAGE)
    disks.told("issued", request)
    disks.completed(request, 0)
    disks.completed(request, 16 * PAGE, FAILED)

    request, _ = disks.started(WRITE | preflush(), PAGE)
    flush = disks.request(FLUSH, 0)
    for _ in range(2):  # before and after the data; it is nobody's
        disks.told("inserted", flush)
        disks.told("issued", flush)
        disks.completed(flush, 0)
    disks.told("issued", request)
    disks.completed(request, PAGE)
    disks.completed(request, 0)
    name = disks.NAMES[0]
    assert rows(disks) == {
        (name, "read"): {"ios": 2, "bytes": 20 * PAGE, "requests": 2, "errors": 1, "unqueued": 2},
        (name, "write"): {"ios": 1, "bytes": PAGE, "requests": 1, "unqueued": 1},
    }
    assert disks.probe.counters() == {"ios": 3, "requests": 3, "errors": 1} and disks.probe.ledger() == {}


@pytest.mark.proves("block_path", "tables.ios.operation", "histograms.times.stage")
def test_a_flush_is_one_as_it_was_asked_for(load: Load) -> None:
    disks = Disks(load(PROBE))
    request, began = disks.started(WRITE | preflush(), 0)
    flush = disks.request(FLUSH, 0)
    disks.told("issued", flush)
    wait(2)
    disks.completed(flush, 0)
    ended = disks.completed(request, 0)
    assert rows(disks) == {(disks.NAMES[0], "flush"): {"ios": 1, "requests": 1, "unqueued": 1}}
    assert times(disks).keys() == {("flush", "whole")} and lies(
        times(disks)["flush", "whole"][1], elapsed(began, ended)
    )


@pytest.mark.proves("block_path", "tables.ios.{operation,ios,bytes}")
def test_operations(load: Load) -> None:
    """A discard is counted as it is asked for, because the kernel merges discards without a word."""
    disks = Disks(load(PROBE))
    disks.served(READ, PAGE)
    disks.served(WRITE, 2 * PAGE)
    disks.served(SENT_TO_DRIVER, 512)
    for _ in range(3):
        disks.queued(disks.bio(DISCARD, 1 << 20))
    disks.served(DISCARD, 3 << 20)
    assert {key[1]: (row["ios"], row["bytes"]) for key, row in rows(disks).items()} == {
        "read": (1, PAGE),
        "write": (1, 2 * PAGE),
        "other": (1, 512),
        "discard": (3, 3 << 20),
    }


@pytest.mark.proves("block_path", "tables.ios.{splits,ios}", "counters.ios")
def test_what_is_too_large_for_one_request_is_one_io(load: Load) -> None:
    disks = Disks(load(PROBE))
    size = 4 * PAGE
    for _ in range(3):
        disks.split(disks.bio(READ, size))
        disks.served(READ, size)
    disks.served(READ, PAGE)
    assert rows(disks) == {
        (disks.NAMES[0], "read"): {
            "ios": 1,
            "bytes": 3 * size + PAGE,
            "requests": 4,
            "splits": 3,
            "unqueued": 4,
        }
    }
    assert disks.probe.counters()["ios"] == 1


@pytest.mark.proves("block_path", "tables.devices.full")
def test_who_takes_the_last_request_of_a_device_is_counted(load: Load) -> None:
    """Of its two queues together. A device without requests is never full."""
    disks = Disks(load(PROBE))
    (queue,) = disks.memory.pointers("gendisk", disks.here, "queue")
    disks.hold(queue, requests=1, queues=2)
    first, second = (disks.started(READ, PAGE)[0] for _ in range(2))
    for request in (first, second):  # before 6.5 it begins here
        disks.told("issued", request)
    disks.completed(first, PAGE)
    disks.served(READ, PAGE)
    disks.completed(second, PAGE)
    disks.served(READ, PAGE)
    above = disks.bio(READ, PAGE, disks.above)
    disks.queued(above)
    disks.probe.read()
    assert {row["device"]: row["full"] for row in disks.probe.rows("devices")} == {disks.NAMES[0]: 2, disks.NAMES[1]: 0}


@pytest.mark.proves("block_path", "tables.ios.merges", "tables.devices.{most,in_flight}")
def test_a_request_that_becomes_part_of_another_one(load: Load) -> None:
    disks = Disks(load(PROBE))
    first, second = (disks.started(WRITE, PAGE)[0] for _ in range(2))
    for request in (first, second):
        disks.told("inserted", request)
    disks.told("absorbed", second)
    disks.merged(disks.bio(WRITE, PAGE), "front_merged")
    disks.memory.change("request", first, {"__data_len": 3 * PAGE})
    disks.told("issued", first)
    disks.completed(first, 3 * PAGE)
    assert rows(disks) == {(disks.NAMES[0], "write"): {"ios": 3, "bytes": 3 * PAGE, "requests": 1, "merges": 2}}
    assert disks.probe.rows("devices") == [
        {"device": disks.NAMES[0], "started": 2, "in_flight": 0, "most": 2, "full": 0}
    ]


@pytest.mark.proves("block_path", "tables.ios.refused")
def test_a_device_that_only_passes_bios_on(load: Load) -> None:
    """Its time is that of its bios. On a device with requests, the end of a bio is that of one that failed before."""
    disks = Disks(load(PROBE))
    first, failing = disks.bio(READ, PAGE, disks.above), disks.bio(READ, PAGE, disks.above, status=FAILED)
    began = [disks.queued(bio) for bio in (first, failing)]
    wait(2)
    ended = [disks.bio_completed(bio) for bio in (first, failing)]
    disks.bio_completed(first)  # a clone's end, whose beginning was no I/O
    disks.split(disks.bio(READ, PAGE, disks.above))
    disks.queued(disks.bio(READ, PAGE))
    disks.bio_completed(disks.bio(READ, PAGE, status=FAILED))
    disks.bio_completed(disks.bio(READ, PAGE))
    assert rows(disks) == {
        (disks.NAMES[1], "read"): {
            "ios": 2,
            "bytes": 2 * PAGE,
            "requests": 2,
            "errors": 1,
            "splits": 1,
            "unqueued": 2,
        },
        (disks.NAMES[0], "read"): {"refused": 1},
    }
    count, total = times(disks)["read", "whole"]
    assert count == 2 and lies(total, *(elapsed(*both) for both in zip(began, ended, strict=True)))


@pytest.mark.proves("block_path", "counters.{ios,requests}")
def test_what_began_before_the_probe_is_no_figure(load: Load) -> None:
    disks = Disks(load(PROBE))
    request = disks.request(READ, PAGE)
    disks.completed(request, PAGE)
    disks.told("requeued", request)
    disks.bio_completed(disks.bio(READ, PAGE, disks.above))
    assert rows(disks) == {} and disks.probe.ledger() == {}


@pytest.mark.proves("block_path", "ledger.join_missed", "tables.devices.in_flight")
def test_an_end_that_was_not_seen_leaves_nothing_in_flight(load: Load) -> None:
    disks = Disks(load(PROBE))
    bio = disks.bio(READ, PAGE, disks.above)
    for _ in range(3):
        disks.queued(bio)
    disks.bio_completed(bio)
    assert rows(disks)[disks.NAMES[1], "read"] == {
        "ios": 3,
        "bytes": 3 * PAGE,
        "requests": 1,
        "unqueued": 1,
    }
    assert disks.probe.ledger() == {"join_missed": 2}
    assert disks.probe.rows("devices") == [
        {"device": disks.NAMES[1], "started": 3, "in_flight": 0, "most": 1, "full": 0}
    ]


@pytest.mark.proves("block_path", "ledger.map_full", "counters.{ios,requests}")
def test_full_maps(load: Load) -> None:
    """The counters go on. What finds no place in the table of what is in flight has no end."""
    disks = Disks(load(PROBE, ios=1))
    disks.served(READ, PAGE)
    other = disks.disk("made1")
    for _ in range(3):
        disks.merged(disks.bio(READ, PAGE, other))
    assert {key[0]: (row["ios"], row["requests"]) for key, row in rows(disks).items()} == {disks.NAMES[0]: (1, 1)}
    assert disks.probe.counters() == {"ios": 4, "requests": 1, "errors": 0} and disks.probe.ledger() == {"map_full": 3}


def of_one_set(disks: Disks, count: int) -> list[int]:
    """Bios that share one set of the table of what is in flight; all that counts of them lies in each other."""
    place, size = place_of("bio", "bi_iter")
    content = disks.memory.bytes_of("bio", disks.bio(READ, PAGE, disks.above))[: place + size]
    sets: dict[int, list[int]] = {}
    while max(map(len, sets.values()), default=0) < count:
        bio = disks.memory.keep(content)
        sets.setdefault(bio * GOLDEN % (1 << 64) >> 53, []).append(bio)
    return max(sets.values(), key=len)


@pytest.mark.proves("block_path", "ledger.map_full", "tables.devices.{started,in_flight,most}")
def test_a_full_set_takes_no_more_and_one_that_ended_gives_way(load: Load) -> None:
    disks = Disks(load(PROBE))
    crowd = of_one_set(disks, WAYS + 1)[: WAYS + 1]
    for bio in crowd:
        disks.queued(bio)
    for bio in crowd:
        disks.bio_completed(bio)
    disks.probe.read()
    assert disks.probe.counters() == {"ios": WAYS + 1, "requests": WAYS, "errors": 0}
    assert disks.probe.ledger() == {"map_full": 1}
    for bio in crowd:
        disks.queued(bio)
        disks.bio_completed(bio)
    disks.probe.read()
    assert disks.probe.counters()["requests"] == 2 * WAYS + 1
    device = {"device": disks.NAMES[1], "started": 2 * WAYS + 1, "in_flight": 0, "most": WAYS, "full": 0}
    assert disks.probe.rows("devices") == [device]


@pytest.mark.proves("block_path", "tables.devices.device")
def test_an_address_that_another_disk_has_later_is_another_device(load: Load) -> None:
    disks = Disks(load(PROBE))
    disks.served(READ, PAGE)
    disks.memory.change("gendisk", disks.here, {"disk_name": b"made7"})
    for _ in range(2):
        disks.served(READ, PAGE)
    disks.probe.read()
    found = {row["device"]: row["started"] for row in disks.probe.rows("devices")}
    assert found == {disks.NAMES[0]: 1, "made7": 2}
    disks.served(READ, PAGE, disks.disk("made7"))  # one that is gone and comes back
    disks.probe.read()
    assert {"device": "made7", "started": 3, "in_flight": 0, "most": 1, "full": 0} in disks.probe.rows("devices")


@pytest.mark.proves("block_path", "knobs.device")
def test_one_device_alone(load: Load) -> None:
    disks = Disks(load(PROBE))
    disks.probe.set(device=disks.NAMES[0])
    other = disks.disk("made00")
    for disk in (disks.here, other):
        disks.served(READ, PAGE, disk)
        disks.merged(disks.bio(READ, PAGE, disk))
    disks.queued(disks.bio(READ, PAGE, disks.above))
    assert {key[0] for key in rows(disks)} == {disks.NAMES[0]} and disks.probe.counters()["ios"] == 2


@pytest.mark.proves(
    "block_path",
    "events.io.{mono_ns,total_ns,queue_ns,device_ns,device,operation,process,pid,sector,bytes}",
    "knobs.threshold_us",
    "modes.{summary,details}",
)
def test_a_slow_io_is_an_event_with_its_stages(load: Load) -> None:
    disks = Disks(load(PROBE))
    disks.probe.set("details", threshold_us=2000, events_per_s=100_000)
    request, _ = disks.started(WRITE, 2 * PAGE, sector=4711)
    inserted = disks.told("inserted", request)
    wait(2)
    issued = disks.told("issued", request)
    wait(1)
    ended = disks.completed(request, 2 * PAGE)
    disks.served(READ, PAGE)  # not so slow
    disks.probe.read()
    events = disks.probe.events()
    event = events[0]
    assert lies(event["queue_ns"], elapsed(inserted, issued)) and lies(event["device_ns"], elapsed(issued, ended))
    assert event["total_ns"] == event["queue_ns"] + event["device_ns"] and lies(event["mono_ns"], ended)
    names = "device", "operation", "pid", "sector", "bytes"
    assert tuple(event[name] for name in names) == (disks.NAMES[0], "write", os.getpid(), 4711, 2 * PAGE)
    assert event["process"] == Path("/proc/self/comm").read_text().rstrip()
    assert all(one["total_ns"] > 2 * MS for one in events)
    disks.probe.set(threshold_us=0, events_per_s=100_000)
    disks.served(READ, PAGE)
    disks.probe.read()
    assert disks.probe.events() == []


@pytest.mark.proves("block_path", "knobs.events_per_s", "ledger.{suppressed,breaker,unmeasured}", "counters.requests")
def test_events_keep_their_budget_and_rows_stay_whole_without_time(load: Load) -> None:
    disks = Disks(load(PROBE))
    disks.probe.set("details", events_per_s=100)
    began = time.monotonic_ns()
    for _ in range(60):
        disks.served(READ, PAGE)
    earned = (time.monotonic_ns() - began) * 100 / 1e9
    disks.probe.read()
    made = disks.probe.ledger()
    assert made["seen"] == 60 == made["submitted"] + made["suppressed"]
    assert 25 <= made["submitted"] <= 25 + earned + 1

    disks.probe.set("details", events_per_s=1e9)
    disks.probe.running.bound(1e-9)
    for _ in range(300):
        disks.served(READ, PAGE)
    disks.probe.read()
    made = disks.probe.ledger()
    assert disks.probe.counters() == {"ios": 360, "requests": 360, "errors": 0}
    assert disks.probe.row("ios")["requests"] == 360
    assert made["unmeasured"] > 0 and made["breaker"] > 0
    assert sum(count for count, _ in times(disks).values()) == 360 - made["unmeasured"]


@pytest.mark.proves("block_path", "ledger.lost")
def test_events_for_which_there_is_no_room(load: Load) -> None:
    disks = Disks(load(PROBE, nc_events=4096))
    disks.probe.set("details", events_per_s=1e9)
    for _ in range(60):
        disks.served(READ, PAGE)
    disks.probe.read()
    made = disks.probe.ledger()
    assert made["seen"] == 60 == made["submitted"] + made["lost"]
    assert 0 < len(disks.probe.events()) == made["submitted"] < 60
