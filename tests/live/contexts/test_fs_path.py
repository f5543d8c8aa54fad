"""fs_path on calls of the test's own, on its own files: what is joined, what is not, and what is left out."""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.live.contexts.memory import place_of
from tests.support.live.contexts.moments import Span, at, elapsed, lies, wait
from tests.support.live.contexts.unattached import UnattachedProbe

PROBE = "fs_path"
Load = Callable[..., UnattachedProbe]
PAGE = 4096
try:
    place_of("pt_regs", "orig_ax")
    NUMBER, FIRST, CALLS = "orig_ax", "di", {"pread": 17, "pwrite": 18, "fsync": 74, "getpid": 39, "pwritev2": 328}
    FLAGS = "r9"
except KeyError:
    NUMBER, FIRST, CALLS = "syscallno", "regs", {"pread": 67, "pwrite": 68, "fsync": 82, "getpid": 172, "pwritev2": 287}
    FLAGS = "regs[5]"
RWF_DSYNC, RWF_SYNC, RWF_APPEND = 2, 4, 16
SETS, WAYS, VISIT_BYTES = 1024, 8, 144
EBADF = 9
COMM = Path("/proc/self/comm").read_text().rstrip()


@pytest.fixture(params=[False, True], ids=["loads", "helpers"])
def plain(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


class Calls:
    """Calls of this thread on one file."""

    def __init__(self, probe: UnattachedProbe, file: int) -> None:
        self.probe, self._memory, self._file = probe, probe.memory, file

    def enter(self, call: str, file: int | None = None, flags: int = 0) -> Span:
        return at(lambda: self.probe.run("entered", self._registers(call, file, flags), CALLS[call]))

    def leave(self, call: str, result: int = PAGE) -> Span:
        return at(lambda: self.probe.run("returned", self._registers(call, None), result & (1 << 64) - 1))

    def whole(self, call: str, result: int = PAGE, file: int | None = None, flags: int = 0) -> None:
        self.enter(call, file, flags)
        self.leave(call, result)

    def rows(self) -> dict[tuple[str, str], dict[str, Any]]:
        """By call and way, without what is 0 and who asks."""
        self.probe.read()
        names = {"device", "file_system", "call", "way", "process", "pid", "vm"}
        return {
            (row["call"], row["way"]): {name: value for name, value in row.items() if value and name not in names}
            for row in self.probe.rows("calls")
        }

    def _registers(self, call: str, file: int | None, flags: int = 0) -> int:
        number = self._file if file is None else file
        return self._memory.make("pt_regs", {NUMBER: CALLS[call], FIRST: number, FLAGS: flags})


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "a-file", os.O_RDWR | os.O_CREAT)
    yield opened
    with suppress(OSError):
        os.close(opened)


@pytest.fixture
def calls(load: Load, file: int) -> Calls:
    return Calls(load(PROBE), file)


@pytest.mark.proves("fs_path", "counters.{calls,errors}", "tables.calls.{calls,bytes,errors}", "histograms.times")
def test_a_call_takes_from_its_begin_to_its_end(calls: Calls) -> None:
    began = calls.enter("pread")
    wait(3)
    ended = calls.leave("pread")
    calls.whole("pwrite", 2 * PAGE)
    calls.whole("pwrite", -EBADF)
    calls.whole("fsync", 0)
    found = {key: tuple(row.get(name, 0) for name in ("calls", "bytes", "errors")) for key, row in calls.rows().items()}
    assert found == {
        ("read", "cache"): (1, PAGE, 0),
        ("write", "buffered"): (2, 2 * PAGE, 1),
        ("fsync", "all"): (1, 0, 0),
    }
    assert calls.probe.counters() == {"calls": 4, "errors": 1} and calls.probe.ledger() == {}
    (took,) = [one for one in calls.probe.histograms("times") if one["call"] == "read"]
    assert took["count"] == 1 and lies(took["sum"], elapsed(began, ended))
    assert (took["process"], took["pid"]) == (COMM, os.getpid())


@pytest.mark.proves("fs_path", "tables.calls.{call,calls}")
def test_what_is_none_of_these_calls_or_no_file_is_no_figure(calls: Calls) -> None:
    here, there = os.pipe()
    for name in ("/proc/self/stat", "/sys/kernel/mm/transparent_hugepage/enabled", "/dev/null"):
        of_the_kernel = os.open(name, os.O_RDONLY)
        calls.whole("pread", file=of_the_kernel)
        os.close(of_the_kernel)
    calls.whole("pread", file=here)
    calls.whole("pread", file=there + 1)  # not open
    calls.whole("pread", file=1 << 30)
    calls.whole("getpid")
    calls.leave("pread")  # it began before the probe
    os.close(here)
    os.close(there)
    assert calls.rows() == {} and calls.probe.ledger() == {}


@pytest.mark.proves("fs_path", "ledger.join_missed", "counters.calls")
def test_an_end_that_was_not_seen_is_joined_with_no_other(calls: Calls) -> None:
    calls.enter("pread")
    calls.enter("pread")
    calls.leave("pread")
    calls.enter("pwrite")
    calls.leave("pread")
    calls.leave("pwrite")
    assert calls.rows()["read", "cache"]["calls"] == 1
    assert calls.probe.counters()["calls"] == 1 and calls.probe.ledger() == {"join_missed": 2}


@pytest.mark.proves("fs_path", "knobs.seen_pct")
def test_a_call_over_a_rest_is_no_figure(calls: Calls) -> None:
    calls.enter("pread")
    calls.probe.rest()
    calls.leave("pread")
    wait(20)
    calls.probe.wake()
    calls.leave("pread")
    calls.whole("pread")
    assert calls.rows()["read", "cache"]["calls"] == 1 and calls.probe.ledger()["join_missed"] == 1


@pytest.mark.proves("fs_path", "knobs.seen_pct", "ledger.map_full")
def test_tasks_that_died_in_a_call_during_a_rest_take_no_room(calls: Calls) -> None:
    """A task and the time when its call began stand first in each of the places."""
    gone = struct.pack("=QQ", 1, 1).ljust(VISIT_BYTES, b"\0") * WAYS
    for number in range(SETS):
        calls.probe.write("visits", gone, number)
    calls.whole("pread")
    assert calls.rows() == {} and calls.probe.ledger() == {"map_full": 1}, "they are in a call still"
    calls.probe.rest()
    calls.probe.wake()
    calls.whole("pread")
    assert calls.rows()["read", "cache"]["calls"] == 1
    assert calls.probe.ledger() == {"map_full": 1, "join_missed": 1}


@pytest.mark.proves("fs_path", "tables.calls.way")
@pytest.mark.parametrize(
    ("flags", "way"), [(RWF_DSYNC, "synced"), (RWF_SYNC, "synced"), (RWF_APPEND, "buffered"), (0, "buffered")]
)
def test_a_single_call_may_be_synced(calls: Calls, flags: int, way: str) -> None:
    calls.whole("pwritev2", flags=flags)
    calls.whole("pwrite", flags=flags)  # it has no flags: there stands what was there before
    found = {key: row["calls"] for key, row in calls.rows().items()}
    assert found == ({("write", way): 1, ("write", "buffered"): 1} if way == "synced" else {("write", way): 2})


@pytest.mark.proves("fs_path", "knobs.pid")
def test_another_process_is_left_out(calls: Calls) -> None:
    calls.probe.set(pid=os.getpid() + 1)
    calls.whole("pread")
    assert calls.rows() == {}
    calls.probe.set(pid=os.getpid())
    calls.whole("pread")
    assert calls.rows()["read", "cache"]["calls"] == 1


@pytest.mark.proves("fs_path", "ledger.map_full", "counters.calls")
def test_a_full_table_is_in_the_ledger(load: Load, file: int) -> None:
    calls = Calls(load(PROBE, calls=1, times=1), file)
    calls.whole("pread")
    calls.whole("pwrite")
    assert calls.rows().keys() == {("read", "cache")}
    assert calls.probe.counters()["calls"] == 2 and calls.probe.ledger()["map_full"] == 2


@pytest.mark.proves(
    "fs_path", "knobs.threshold_us", "events.call.{mono_ns,total_ns,bytes,file}", "modes.{summary,details}"
)
def test_slow_calls_are_sampled_with_the_name_of_the_file(calls: Calls) -> None:
    calls.probe.set("details", threshold_us=100_000, events_per_s=1000)
    calls.whole("pread")
    began = calls.enter("pread")
    wait(150)
    ended = calls.leave("pread")
    assert calls.rows()["read", "cache"]["calls"] == 2
    (event,) = calls.probe.events()
    assert (event["file"], event["bytes"], event["asked"]) == ("a-file", PAGE, 0)
    assert lies(event["total_ns"], elapsed(began, ended)) and lies(event["mono_ns"], ended)
    calls.probe.set(events_per_s=1000)
    calls.whole("pread")
    calls.probe.read()
    assert calls.probe.events() == []


@pytest.mark.proves("fs_path", "knobs.events_per_s", "ledger.{suppressed,breaker,unmeasured}", "counters.calls")
def test_events_keep_their_budget_and_rows_stay_whole_without_time(calls: Calls) -> None:
    calls.probe.set("details", events_per_s=100)
    began = time.monotonic_ns()
    for _ in range(60):
        calls.whole("pread")
    earned = (time.monotonic_ns() - began) * 100 / 1e9
    calls.probe.read()
    made = calls.probe.ledger()
    assert made["seen"] == 60 == made["submitted"] + made["suppressed"]
    assert 25 <= made["submitted"] <= 25 + earned + 1

    calls.probe.set("details", events_per_s=1e9)
    calls.probe.running.bound(1e-9)
    for _ in range(300):
        calls.whole("pread")
    assert calls.rows()["read", "cache"]["calls"] == calls.probe.counters()["calls"] == 360
    made = calls.probe.ledger()
    assert made["unmeasured"] > 0 and made["breaker"] > 0
    (took,) = calls.probe.histograms("times")
    assert took["count"] == 360 - made["unmeasured"]


@pytest.mark.proves("fs_path", "ledger.lost")
def test_events_for_which_there_is_no_room(load: Load, file: int) -> None:
    calls = Calls(load(PROBE, nc_events=4096), file)
    calls.probe.set("details", events_per_s=1e9)
    for _ in range(60):
        calls.whole("pread")
    calls.probe.read()
    made = calls.probe.ledger()
    assert made["seen"] == 60 == made["submitted"] + made["lost"]
    assert 0 < len(calls.probe.events()) == made["submitted"] < 60


@pytest.mark.proves("fs_path", "tables.calls.process")
def test_calls_of_two_threads_at_once_are_two(calls: Calls) -> None:
    """Each ends its own."""
    calls.enter("pread")
    other = threading.Thread(target=calls.whole, args=("pwrite",))
    other.start()
    other.join()
    calls.leave("pread")
    assert {key: row["calls"] for key, row in calls.rows().items()} == {("read", "cache"): 1, ("write", "buffered"): 1}
    assert calls.probe.ledger() == {}
