"""The console's own sources: exact deltas of the kernel's counters, real sockets, and a failing one among others."""

from __future__ import annotations

import itertools
import os
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from netconsole.frames import AnyFrame, Cost, Status, Table
from netconsole.session import ProbeRequest
from netconsole.sources import runner
from netconsole.sources.base import FULL_EVERY, Accumulator, FrameMaker, RowMaker, SourceError
from netconsole.sources.links import COUNTS, Links, parse_devices
from netconsole.sources.own_cost import OwnCost
from netconsole.sources.runner import SourceRunner
from netconsole.sources.sockets import SocketGroups
from netconsole.sources.softnet import Softnet, parse_softnet

LIMIT_S = 120.0
DEVICES = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo:  1000      10    1    2    0     0          0         0     2000      20    3    4    0     0       0          0
[bold]x:    5       6    7    8    0     0          0         0        9      10   11   12    0     0       0          0
 eth0:1:  50       6    7    8    0     0          0         0        9      10   11   12    0     0       0          0
"""


def rows(frames: Sequence[AnyFrame]) -> dict[tuple[object, ...], Table]:
    table = frames[0]
    assert isinstance(table, Table)
    return {tuple(row.labels.values()): row for row in table.rows}  # type: ignore[misc]


def test_interfaces_are_read_whatever_they_are_called() -> None:
    read = dict(parse_devices(DEVICES).values())
    assert read["lo"] == (10, 1000, 1, 2, 20, 2000, 3, 4)
    assert list(read) == ["lo", "[bold]x", "eth0:1"]
    assert dict(zip(COUNTS, read["lo"], strict=False))["tx_drops"] == 4


def test_counters_are_counted_from_the_first_reading(tmp_path: Path) -> None:
    path = tmp_path / "dev"
    path.write_text(DEVICES)
    links = Links(path)
    make = FrameMaker()
    first = rows(links.read(make))
    assert first[("lo", None)].counts["rx_packets"].total == 0  # type: ignore[attr-defined]
    path.write_text(DEVICES.replace("  1000      10 ", "  1500      17 "))
    second = rows(links.read(make))
    assert list(second) == [("lo", None)]
    counts = second[("lo", None)].counts  # type: ignore[attr-defined]
    assert (counts["rx_packets"].delta, counts["rx_bytes"].total) == (7, 500)


def test_a_counter_that_went_back_is_that_of_a_thing_made_anew() -> None:
    one = Accumulator(["n"])
    assert one.take("a", (100,)) is None
    assert one.take("a", (107,)) == [7]
    assert one.take("a", (3,)) == [3]
    assert one.counts("a", (3,))["n"].total == 10
    one.keep([])
    assert one.take("a", (50,)) is None


def test_all_rows_are_sent_now_and_then_and_a_row_that_is_gone_is_not() -> None:
    maker = RowMaker(["n"], 2)
    sent = [maker.rows([({"a": 1}, (5,), {}), ({"a": 2}, (5,), {})]) for _ in range(FULL_EVERY + 1)]
    assert [(len(one), full) for one, full, _ in sent] == [(2, True), *[(0, False)] * (FULL_EVERY - 1), (2, True)]
    for _ in range(FULL_EVERY):
        last, full, omitted = maker.rows([({"a": 2}, (5,), {}), ({"a": 3}, (5,), {}), ({"a": 4}, (5,), {})])
    assert full
    assert [row.labels["a"] for row in last] == [2, 3]
    assert omitted == 1


def test_softnet_knows_old_and_new_layouts() -> None:
    old = "00000010 00000001 00000002 0 0 0 0 0 0 00000003\n" * 2
    assert list(parse_softnet(old)) == [(0, (16, 1, 2, 3, 0)), (1, (16, 1, 2, 3, 0))]
    new = "00000010 00000001 00000002 0 0 0 0 0 0 00000003 00000004 00000000 00000005\n"
    assert list(parse_softnet(new)) == [(5, (16, 1, 2, 3, 4))]


def test_a_layout_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "softnet_stat"
    path.write_text("not hexadecimal\n")
    with pytest.raises(SourceError, match="layout"):
        Softnet(path).read(FrameMaker())
    with pytest.raises(SourceError, match="No such file"):
        Softnet(tmp_path / "missing").open()


def test_the_idle_siblings_of_a_dropping_socket_are_seen() -> None:
    group = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3)]
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    source = SocketGroups()
    try:
        for one in group:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            one.bind(("127.0.0.1", group[0].getsockname()[1]))
        port = group[0].getsockname()[1]
        source.open()
        make = FrameMaker()
        seen = {row.labels["inode"]: row for row in source.read(make)[0].rows if row.labels["port"] == port}  # type: ignore[union-attr]
        assert len(seen) == 3
        assert all(str(row.labels["process"]).endswith(f"/{os.getpid()}") for row in seen.values())
        # One flow: all datagrams are for the same socket, and nobody reads.
        for _ in range(100):
            sender.sendto(b"x" * 700, ("127.0.0.1", port))
        moved = [row for row in source.read(make)[0].rows if row.labels["port"] == port]  # type: ignore[union-attr]
        assert len(moved) == 1
        accepted = 100 - moved[0].counts["drops"].delta
        assert 0 < accepted < 100
        for one in group:
            one.setblocking(False)
        assert accepted == sum(_drain(one) for one in group)
    finally:
        source.close()
        for one in (*group, sender):
            one.close()


def _drain(one: socket.socket) -> int:
    for count in itertools.count():
        try:
            one.recv(1)
        except BlockingIOError:
            return count
    raise AssertionError


def test_own_cost_is_what_the_kernel_says() -> None:
    own = OwnCost()
    own.open()
    sum(range(2_000_000))
    usage = own.usage()
    assert usage.cpu_ns is not None and usage.cpu_ns > 1_000_000
    assert usage.rss_kb is not None and usage.rss_kb > 5_000
    assert usage.pss_kb is not None and usage.pss_kb <= usage.rss_kb
    (row,) = own.read(FrameMaker())[0].rows  # type: ignore[union-attr]
    assert row.counts["busy_ms"].delta <= row.counts["all_ms"].delta


class Broken:
    """Fails at every second reading."""

    name: ClassVar[str] = "broken"

    def __init__(self) -> None:
        self.readings = 0

    def open(self) -> None: ...

    def read(self, make: FrameMaker) -> list[AnyFrame]:
        self.readings += 1
        if self.readings % 2:
            raise SourceError("the file is gone", "bring it back")
        return []

    def close(self) -> None: ...


class Unopened(Broken):
    """Cannot be opened."""

    def open(self) -> None:
        raise SourceError("no such thing here")


def test_a_failing_source_says_why_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(runner.FACTORIES, "broken", Broken)
    monkeypatch.setitem(runner.FACTORIES, "unopened", Unopened)
    delivered: list[AnyFrame] = []
    enough = threading.Event()

    def deliver(batch: list[AnyFrame]) -> None:
        delivered.extend(batch)
        if sum(isinstance(frame, Cost) for frame in delivered) >= 4:
            enough.set()

    requests = [
        ProbeRequest("unopened", source="unopened"),
        ProbeRequest("broken", source="broken"),
        ProbeRequest("self_cost", source="self"),
        ProbeRequest("kernel_drops", source="bpf"),
    ]
    sources = SourceRunner(requests, 0.01, deliver, itertools.count(1))
    sources.start()
    assert enough.wait(LIMIT_S)
    sources.close()
    sources.close()
    states = [(frame.probe, frame.state, frame.why) for frame in delivered if isinstance(frame, Status)]
    assert ("unopened", "failed", "no such thing here") in states
    assert states.count(("broken", "failed", "the file is gone")) >= 2
    assert states.count(("broken", "attached", None)) >= 2
    assert sum(isinstance(frame, Table) and frame.probe == "self_cost" for frame in delivered) >= 4
    assert all(frame.source == "console" for frame in delivered)
    assert [frame.seq for frame in delivered] == list(range(1, len(delivered) + 1))
    # An interval ends with the process's own cost, and all of its frames are delivered together.
    assert isinstance(delivered[-1], Cost)
