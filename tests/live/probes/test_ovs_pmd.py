"""ovs_pmd on a real ovs-vswitchd with a real PMD thread, which polls ports that the test fills."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from netconsole.telemetry.frames import AnyFrame, Cost, Row, Table
from netconsole_collector.sources.base import SourceError, SourceReading
from netconsole_collector.sources.ovs.pmd import OvsPmd
from tests.support.live.pmd_switch import AT_ONCE, CPU, PmdSwitch
from tests.support.live.vswitchd import BRIDGE, DATAPATH
from tests.support.sources import SECOND_NS, frames_of

SOME = 5000
TIERS = {
    "Simple Match hits": "simple_hits", "EMC hits": "emc_hits", "Megaflow hits": "megaflow_hits", "Upcalls": "upcalls",
    "Rx packets": "packets", "Tx packets": "tx_packets", "Tx batches": "tx_batches",
}  # fmt: skip


@pytest.fixture(scope="module")
def switch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PmdSwitch]:
    running = PmdSwitch(tmp_path_factory.mktemp("pmd"))
    yield running
    running.close()


@pytest.fixture
def source(switch: PmdSwitch) -> Iterator[OvsPmd]:
    made = OvsPmd(where=[str(switch.directory)])
    made.open()
    yield made
    made.close()


class Readings:
    """When each was due: a second after the one before, however long the test took."""

    due_ns = 0


def read(source: OvsPmd) -> list[AnyFrame]:
    Readings.due_ns += SECOND_NS
    return frames_of(source.read(SourceReading(SECOND_NS, Readings.due_ns, time.time_ns())))


def rows(frames: list[AnyFrame], table: str) -> list[Row]:
    return [row for frame in frames if isinstance(frame, Table) and frame.name == table for row in frame.rows]


def pmd(frames: list[AnyFrame]) -> Row:
    (row,) = [row for row in rows(frames, "threads") if row.labels["core"] is not None]
    return row


@pytest.mark.proves(
    "ovs_pmd",
    "tables.threads.{datapath,core,packets,simple_hits,emc_hits,megaflow_hits,upcalls,tx_packets,tx_batches}",
    "tables.threads.{busy_cycles,cycles_per_packet,emc_pct,simple_pct}",
    "modes.summary",
)
def test_each_packet_and_its_cycles_are_those_that_open_vswitch_shows(switch: PmdSwitch, source: OvsPmd) -> None:
    switch.forward(SOME)  # the flow is known
    read(source)
    before, cycles = {name: switch.figure(name) for name in TIERS}, switch.cycles()
    switch.forward(SOME)
    row = pmd(read(source))
    assert (row.labels["datapath"], row.labels["core"]) == (DATAPATH, CPU)
    after = {name: switch.figure(name) for name in TIERS}
    for name, count in TIERS.items():
        assert row.counts[count].delta == after[name] - before[name], name
    assert row.counts["packets"].delta == SOME
    busy = switch.cycles() - cycles
    assert row.counts["busy_cycles"].delta == pytest.approx(busy, rel=0.02)
    assert row.gauges["cycles_per_packet"] == pytest.approx(busy / SOME, rel=0.02)
    hits = {name: 100 * (after[name] - before[name]) / SOME for name in ("Simple Match hits", "EMC hits")}
    assert (row.gauges["simple_pct"], row.gauges["emc_pct"]) == pytest.approx(tuple(hits.values()), abs=0.01)


def test_a_thread_of_a_few_packets_has_no_ratios_of_them(switch: PmdSwitch, source: OvsPmd) -> None:
    read(source)
    switch.forward(AT_ONCE)
    row = pmd(read(source))
    assert row.counts["packets"].delta == AT_ONCE
    assert row.gauges["cycles_per_packet"] is None and row.gauges["emc_pct"] is None
    assert sum(row.gauges[name] or 0 for name in ("busy_pct", "idle_pct")) == pytest.approx(100)


def test_a_clear_is_recognised(switch: PmdSwitch, source: OvsPmd) -> None:
    switch.forward(SOME)
    read(source)
    switch.appctl("dpif-netdev/pmd-stats-clear")
    switch.until(lambda: switch.figure("Rx packets") == 0)
    switch.forward(AT_ONCE)
    frames = read(source)
    (cost,) = [frame for frame in frames if isinstance(frame, Cost)]
    assert cost.ledger["set_back"].delta in (1, 2), "of this thread, and of the main one, where it has counted"
    assert pmd(frames).counts["packets"].delta == AT_ONCE


@pytest.mark.proves("ovs_pmd", "tables.rxqs.{port,core,enabled}")
def test_ports_come_and_go(switch: PmdSwitch, source: OvsPmd) -> None:
    def queues() -> set[object]:
        found = rows(frames_of(source.read(SourceReading(SECOND_NS, is_whole=True))), "rxqs")
        assert {(row.gauges["core"], row.gauges["enabled"]) for row in found} <= {(CPU, 1)}
        return {row.labels["port"] for row in found}

    assert queues() == {"p0", "p1"}
    switch.add("p2")
    switch.until(lambda: "p2" in switch.appctl("dpif-netdev/pmd-rxq-show"))
    assert "p2" in queues()
    switch.vsctl("del-port", BRIDGE, "p2")
    switch.until(lambda: "p2" not in switch.appctl("dpif-netdev/pmd-rxq-show"))
    made = OvsPmd(where=[str(switch.directory)])
    assert {row.labels["port"] for row in rows(frames_of(made.read(SourceReading(SECOND_NS))), "rxqs")} == {"p0", "p1"}
    made.close()
    switch.forward(AT_ONCE)
    assert pmd(read(source)).counts["packets"].total >= 0


@pytest.mark.proves("ovs_pmd", "tables.threads.{cpu_ns,waited_ns,involuntary,waits_pct}")
def test_who_takes_the_cpu_of_a_thread_is_seen(switch: PmdSwitch, source: OvsPmd) -> None:
    def books() -> tuple[int, int]:
        (task,) = [one.parent for one in Path(f"/proc/{switch.pid}/task").glob("*/comm") if "pmd" in one.read_text()]
        ran, waited, _ = map(int, (task / "schedstat").read_text().split())
        return ran, waited

    read(source)
    before = books()
    busy = subprocess.Popen([sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {{{CPU}}})\nwhile True: pass"])
    try:
        switch.until(lambda: books()[1] - before[1] > 500_000_000)
        row, after = pmd(read(source)), books()
    finally:
        busy.kill()
        busy.wait()
    ran, waited = after[0] - before[0], after[1] - before[1]
    assert row.counts["waited_ns"].delta == pytest.approx(waited, rel=0.1)
    assert row.counts["cpu_ns"].delta == pytest.approx(ran, rel=0.1)
    assert row.gauges["waits_pct"] == pytest.approx(100 * waited / (ran + waited), rel=0.1)
    assert row.counts["involuntary"].delta > 10


def test_a_switch_that_is_stopped_is_said_within_two_seconds(switch: PmdSwitch, source: OvsPmd) -> None:
    read(source)
    os.kill(switch.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        with pytest.raises(SourceError, match=r"stopped \(SIGSTOP\)"):
            read(source)
        assert time.monotonic() - began < 1.0
    finally:
        os.kill(switch.pid, signal.SIGCONT)


def test_a_switch_that_is_killed_and_started_again(switch: PmdSwitch, source: OvsPmd) -> None:
    switch.forward(SOME)
    read(source)
    switch.kill()
    with pytest.raises(SourceError, match="has ended"):
        read(source)
    switch.start()
    switch.until(lambda: "core_id" in switch.performance())
    with contextlib.suppress(SourceError):
        read(source)
    switch.ofctl("add-flow", "in_port=p0,actions=output:p1")
    read(source)
    switch.forward(SOME)
    frames = read(source)
    assert not [frame for frame in frames if isinstance(frame, Cost)], "a new thread was not set back"
    assert pmd(frames).counts["packets"].delta == SOME
