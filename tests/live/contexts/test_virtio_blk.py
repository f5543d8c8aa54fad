"""virtio_blk on kicks, I/Os and interrupts of the test's own: each stage, row and event, and what is not timed."""

from __future__ import annotations

import functools
import struct
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.live.contexts.block import READ, Disks
from tests.support.live.contexts.memory import place_of
from tests.support.live.contexts.moments import MS, Span, at, elapsed, lies, wait
from tests.support.live.contexts.unattached import UnattachedProbe

PROBE = "virtio_blk"
Load = Callable[..., UnattachedProbe]
FUNCTIONS = {"b5": "raised", "b4": "completed", "b3": "asked", "b1": "kicked", "b2": "taken"}
STAGES = ("B1-B2", "B2-B3", "B3-B4", "B4-B5")
FIELDS = ("b1_b2_ns", "b2_b3_ns", "b3_b4_ns", "b4_b5_ns")
LONG = (1, 2, 3, 1.5)
PAGE = 4096
MANY = 60
KICK_AT, EPOLLIN, EPOLLOUT = 0xFEB0_3000, 1, 4
DEVICE = Disks.NAMES[0]
NUMBER_AT = 40
"""In a trip."""


class Machine:
    """A virtual machine of two disks. This process is its QEMU, and this thread takes the kicks of both."""

    def __init__(self, probe: UnattachedProbe) -> None:
        self.probe, self.memory, self.blocks = probe, probe.memory, Disks(probe)
        self.queues = [self._queue(number) for number in range(2)]

    def _queue(self, number: int) -> tuple[int, int]:
        """Where a queue's kicks go: the device of KVM, and the call that takes them."""
        eventfd = self.memory.make("eventfd_ctx", {})
        kick = self.memory.make("_ioeventfd", {"addr": KICK_AT + 4 * number, "eventfd": eventfd})
        file = self.memory.make("file", {"private_data": eventfd})
        return kick + place_of("_ioeventfd", "dev")[0], self.memory.make("kiocb", {"ki_filp": file})

    def kicked(self, queue: int = 0) -> Span:
        return self._ran("b1", 0, self.queues[queue][0], KICK_AT + 4 * queue, 4, 0)

    def taken(self, queue: int = 0) -> Span:
        return self._ran("b2", self.queues[queue][1])

    def bio(self, parts: int = 1) -> int:
        bio = self.blocks.bio(READ, PAGE)
        self.memory.change("bio", bio, {"__bi_remaining.counter": parts})
        return bio

    def asked(self, bio: int) -> Span:
        return self._ran("b3", bio)

    def completed(self, bio: int) -> Span:
        return self._ran("b4", bio)

    def raised(self, event: int = EPOLLIN) -> Span:
        return self._ran("b5", 0, 0, 0, event)

    def read(self, queue: int = 0) -> None:
        """One read from the kick to the interrupt."""
        bio = self.bio()
        self.kicked(queue)
        self.taken(queue)
        self.asked(bio)
        self.completed(bio)
        self.raised()

    def _ran(self, program: str, *arguments: int) -> Span:
        return at(self.probe.prepare(program, *arguments))

    def row(self) -> dict[str, int]:
        self.probe.read()
        return self.probe.row("ios")

    def timed(self, stage: str = "total") -> int:
        self.probe.read()
        return sum(one["count"] for one in self.probe.histograms("stages") if one["stage"] == stage)


def by_another_thread(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def loaded(load: Load, **room: int) -> Machine:
    probe = load(PROBE, FUNCTIONS, **room)
    probe.set("details", events_per_s=1e6, threshold_us=0)
    return Machine(probe)


@pytest.mark.proves(
    "virtio_blk", "counters.ios", "histograms.stages", "histograms.stages.{thread,tid,device,operation,stage}"
)
@pytest.mark.proves("virtio_blk", "events.trip.{mono_ns,thread,tid,device,operation}", "modes.details")
@pytest.mark.proves("virtio_blk", "events.trip.{b1_b2_ns,b2_b3_ns,b3_b4_ns,b4_b5_ns,total_ns}")
@pytest.mark.proves("virtio_blk", "tables.ios.{thread,tid,device,operation,ios,bytes,by_workers,unkicked,timed}")
@pytest.mark.proves("virtio_blk", "tables.servers.{thread,tid,kicks,runs,without_io}")
def test_each_stage_takes_as_long_as_it_took(load: Load) -> None:
    machine = loaded(load)
    bio = machine.bio()
    points = [machine.kicked()]
    machine.kicked()
    steps: list[Callable[[], Span]] = [
        machine.taken,
        lambda: machine.asked(bio),
        lambda: machine.completed(bio),
        machine.raised,
    ]
    for step, length in zip(steps, LONG, strict=True):
        wait(length)
        points.append(step())
    row = machine.row()
    me = {"thread": Path("/proc/thread-self/comm").read_text().rstrip(), "tid": threading.get_native_id()}
    io = {**me, "device": DEVICE, "operation": "read"}
    assert row == {**row, **io, "ios": 1, "bytes": PAGE, "by_workers": 0, "unkicked": 0, "timed": 1}
    assert machine.probe.row("servers").items() >= {**me, "kicks": 2, "runs": 1, "without_io": 0}.items()
    assert machine.probe.counters() == {"ios": 1}
    found = {one["stage"]: one for one in machine.probe.histograms("stages")}
    (event,) = machine.probe.events()
    for one in (*found.values(), event):
        assert one.items() >= io.items()
    for stage, field, (began, ended) in zip(STAGES, FIELDS, pairwise(points), strict=True):
        assert lies(found[stage]["sum"], elapsed(began, ended)), stage
        assert event[field] == found[stage]["sum"]
    assert sum(found[stage]["sum"] for stage in STAGES) == found["total"]["sum"] == event["total_ns"]
    assert (found["kick"]["sum"], found["all"]["sum"]) == (found["B1-B2"]["sum"], found["B3-B4"]["sum"])
    assert points[-1][0] <= event["mono_ns"] <= points[-1][1]


@pytest.mark.proves("virtio_blk", "tables.ios.by_workers")
def test_a_worker_asks_for_the_thread_that_waits(load: Load) -> None:
    machine = loaded(load)
    bio = machine.bio()
    machine.kicked()
    machine.taken()
    by_another_thread(lambda: machine.asked(bio))
    machine.completed(bio)
    machine.raised()
    row = machine.row()
    assert row.items() >= {"tid": threading.get_native_id(), "ios": 1, "by_workers": 1, "timed": 1}.items()


def test_with_several_threads_a_worker_asks_for_the_only_one_that_waits(load: Load) -> None:
    """If two wait, it is not known for which: neither has stages then, nor is said to have needed no I/O."""
    machine = loaded(load)
    machine.read()
    by_another_thread(lambda: machine.read(queue=1))
    bio = machine.bio()
    machine.kicked()
    machine.taken()
    by_another_thread(lambda: machine.asked(bio))
    machine.completed(bio)
    machine.raised()
    assert machine.timed() == 3

    def other() -> None:
        machine.kicked(1)
        machine.taken(1)
        for worker_bio in (machine.bio(), machine.bio()):
            by_another_thread(functools.partial(machine.asked, worker_bio))
            machine.completed(worker_bio)
        machine.raised()

    machine.kicked()
    machine.taken()
    by_another_thread(other)
    machine.raised()
    assert machine.timed() == 3
    assert machine.timed("all") == 5, "also of those of which it is not known for whom"
    rows = {row["tid"]: row["ios"] for row in machine.probe.rows("ios")}
    assert rows[0] == 2 and sum(rows.values()) == 5
    assert sum(row["without_io"] for row in machine.probe.rows("servers")) == 0


@pytest.mark.proves("virtio_blk", "tables.ios.{unkicked,timed}")
def test_what_is_not_alone_or_not_kicked_is_counted_and_not_timed(load: Load) -> None:
    machine = loaded(load)
    two = machine.bio(), machine.bio()
    machine.kicked()
    machine.taken()
    for bio in two:
        machine.asked(bio)
    machine.completed(two[1])
    machine.raised()  # of the second one: the first is in flight
    machine.completed(two[0])
    machine.raised()

    polled = machine.bio()
    machine.kicked()  # QEMU looks into the queue first, and then takes the kick
    machine.asked(polled)
    machine.taken()
    machine.completed(polled)
    machine.raised()
    assert machine.row().items() >= {"ios": 3, "unkicked": 1, "timed": 0}.items()

    first, second = machine.bio(), machine.bio()
    machine.kicked()
    machine.taken()
    machine.asked(first)
    machine.kicked(1)
    machine.taken(1)  # of the other disk, whose I/O is not asked for yet
    machine.completed(first)
    machine.raised()
    machine.asked(second)
    machine.completed(second)
    machine.raised()
    assert machine.row().items() >= {"ios": 5, "timed": 0}.items()
    machine.read()
    assert machine.row().items() >= {"ios": 6, "timed": 1}.items()
    assert machine.timed() == 1


def test_the_device_is_timed_for_each_of_several_ios_and_the_kick_for_the_first_of_them(load: Load) -> None:
    """So are those of a second kick, while they are in flight. One that QEMU found without a kick has none."""
    machine = loaded(load)
    bios = [machine.bio() for _ in range(4)]
    kicks: list[tuple[Span, Span]] = []
    asked: list[Span] = []

    def began(*bios: int) -> None:
        kicked = machine.kicked()
        wait(1)
        kicks.append((kicked, machine.taken()))
        asked.extend(machine.asked(bio) for bio in bios)

    began(*bios[:2])
    wait(2)
    began(bios[2])
    wait(1)
    ended = [machine.completed(bio) for bio in reversed(bios[:3])]
    machine.raised()
    asked.append(machine.asked(bios[3]))
    ended.insert(0, machine.completed(bios[3]))
    machine.raised()
    assert machine.row().items() >= {"ios": 4, "unkicked": 1, "timed": 0}.items()
    found = {one["stage"]: one for one in machine.probe.histograms("stages")}
    assert {stage: one["count"] for stage, one in found.items()} == {"all": 4, "kick": 2}
    for stage, spans in (("kick", kicks), ("all", [*zip(asked, reversed(ended), strict=True)])):
        assert lies(found[stage]["sum"], *(elapsed(*span) for span in spans)), stage


def test_the_kick_of_a_run_without_an_io_is_not_that_of_the_next_io(load: Load) -> None:
    machine = loaded(load)
    machine.kicked()
    machine.taken()
    machine.raised()
    bio = machine.bio()
    machine.asked(bio)
    machine.completed(bio)
    machine.raised()
    assert (machine.timed("all"), machine.timed("kick")) == (1, 0)


@pytest.mark.proves("virtio_blk", "tables.servers.without_io")
def test_a_run_without_an_io_is_said_to_be_one(load: Load) -> None:
    """The page cache has it. An event of the interrupt's eventfd that is no signal ends nothing."""
    machine = loaded(load)
    machine.kicked()
    machine.taken()
    machine.raised(EPOLLOUT)
    machine.raised()
    machine.probe.read()
    assert machine.probe.row("servers").items() >= {"kicks": 1, "runs": 1, "without_io": 1}.items()
    assert not machine.probe.rows("ios")


def test_a_split_io_ends_with_its_last_part(load: Load) -> None:
    machine = loaded(load)
    bio = machine.bio(parts=2)
    machine.kicked()
    machine.taken()
    asked = machine.asked(bio)
    machine.completed(bio)
    wait(2)
    machine.memory.change("bio", bio, {"__bi_remaining.counter": 1})
    completed = machine.completed(bio)
    machine.raised()
    machine.probe.read()
    (stage,) = [one for one in machine.probe.histograms("stages") if one["stage"] == "B3-B4"]
    assert lies(stage["sum"], elapsed(asked, completed))


@pytest.mark.proves("virtio_blk", "modes.summary")
def test_others_are_not_counted(load: Load) -> None:
    """A process that takes no kicks asks; an eventfd is read that no guest signals; somebody else's I/O ends."""
    machine = loaded(load)
    machine.probe.set("summary")
    machine.asked(machine.bio())
    machine.taken()
    machine.completed(machine.bio())
    machine.raised()
    machine.probe.read()
    assert not machine.probe.rows("ios") and not machine.probe.rows("servers") and not machine.probe.ledger()
    assert machine.probe.counters() == {"ios": 0}


@pytest.mark.proves("virtio_blk", "knobs.seen_pct")
def test_what_began_before_a_rest_is_not_joined_with_what_comes_after_it(load: Load) -> None:
    machine = loaded(load)
    bio = machine.bio()
    machine.kicked()
    machine.taken()
    machine.asked(bio)
    machine.probe.rest()
    machine.probe.wake()
    machine.completed(bio)
    machine.raised()
    machine.read()
    assert machine.row().items() >= {"ios": 2, "timed": 1}.items()
    assert machine.timed() == machine.timed("all") == machine.timed("kick") == 1


def test_an_end_that_was_missed_keeps_no_trip_open_for_ever(load: Load) -> None:
    """A kick within two seconds may be of a second I/O. A later one begins another trip, and only the next is timed."""
    machine = loaded(load)
    machine.kicked()
    machine.taken()
    machine.asked(machine.bio())
    machine.read()
    assert machine.timed() == 0
    trips = machine.probe.map("trips")
    key = struct.pack("=I", threading.get_native_id())
    trip = bytearray(trips.get(key) or b"")
    struct.pack_into("=Q", trip, NUMBER_AT, time.monotonic_ns() - 2001 * MS)
    trips.set(key, bytes(trip))
    machine.read()
    assert machine.timed() == 0
    machine.read()
    assert machine.timed() == 1


@pytest.mark.proves("virtio_blk", "knobs.{threshold_us,events_per_s}", "ledger.{suppressed,breaker,unmeasured}")
def test_events_keep_their_limits_and_rows_stay_whole_without_time(load: Load) -> None:
    machine = loaded(load)
    machine.probe.set("details", events_per_s=1e6, threshold_us=1_000_000)
    machine.read()
    machine.probe.read()
    assert machine.probe.events() == []

    machine.probe.set("details", events_per_s=100, threshold_us=0)
    began = time.monotonic_ns()
    for _ in range(MANY):
        machine.read()
    earned = (time.monotonic_ns() - began) * 100 / 1e9
    machine.probe.read()
    made = machine.probe.ledger()
    assert made["seen"] == MANY == made["submitted"] + made["suppressed"]
    assert 25 <= made["submitted"] <= 25 + earned + 1

    machine.probe.set("details", events_per_s=1e9, threshold_us=0)
    machine.probe.running.bound(1e-9)
    for _ in range(300):
        machine.read()
    row, made = machine.row(), machine.probe.ledger()
    assert row["ios"] == row["timed"] == MANY + 301
    assert made["unmeasured"] > 0 and made["breaker"] > 0
    assert machine.timed() + machine.timed("all") == 2 * (MANY + 301) - made["unmeasured"]


@pytest.mark.proves("virtio_blk", "ledger.lost")
def test_events_for_which_there_is_no_room(load: Load) -> None:
    """The smallest ring, of one page, and nobody reads."""
    machine = loaded(load, nc_events=4096)
    for _ in range(MANY):
        machine.read()
    machine.probe.read()
    made = machine.probe.ledger()
    assert made["seen"] == MANY == made["submitted"] + made["lost"]
    assert 0 < len(machine.probe.events()) == made["submitted"] < MANY


@pytest.mark.proves("virtio_blk", "ledger.map_full")
def test_a_full_table(load: Load) -> None:
    """Rows of two threads, where there is room for one."""
    machine = loaded(load, servers=1)
    machine.read()
    by_another_thread(machine.read)
    machine.probe.read()
    assert [row["tid"] for row in machine.probe.rows("servers")] == [threading.get_native_id()]
    assert machine.probe.ledger()["map_full"] == 1
