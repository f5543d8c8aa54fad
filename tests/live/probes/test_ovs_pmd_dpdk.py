"""ovs_pmd on Debian's ovs-vswitchd with DPDK, whose PMD thread forwards millions of packets a second."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from netconsole.telemetry.frames import Row, Table
from netconsole_collector.sources.base import SourceReading
from netconsole_collector.sources.ovs.pmd import OvsPmd
from tests.support.live.dpdk_switch import DpdkSwitch, dpdk_switch
from tests.support.live.pmd_switch import CPU
from tests.support.sources import frames_of

pytestmark = [pytest.mark.counting, pytest.mark.long]

READINGS = 4
APART = 0.02


@pytest.fixture(scope="module")
def switch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DpdkSwitch]:
    with dpdk_switch(*map(tmp_path_factory.mktemp, ("dpdk", "pages"))) as running:
        yield running


def test_rates_and_cycles_are_those_that_open_vswitch_shows(switch: DpdkSwitch) -> None:
    source = OvsPmd(where=[str(switch.directory)])
    source.open()

    def read() -> tuple[Row, int]:
        began = time.monotonic_ns()
        tables = [one for one in frames_of(source.read(SourceReading(1, began))) if isinstance(one, Table)]
        (row,) = [row for row in tables[0].rows if row.labels["core"] == CPU]
        return row, (began + time.monotonic_ns()) // 2

    try:
        _, began_ns = read()
        before, ended_ns = switch.figures(), began_ns
        for _ in range(READINGS):
            while time.monotonic_ns() - ended_ns < 1_000_000_000:
                pass  # as far apart as in a session
            row, ended_ns = read()
        now = switch.figures()
    finally:
        source.close()
    packets, duration_ms, received, cycles = (new - old for new, old in zip(now, before, strict=True))
    total = {name: row.counts[name].total for name in ("packets", "busy_cycles")}
    per_s = total["packets"] / ((ended_ns - began_ns) / 1e9)
    assert per_s > 100_000
    assert per_s == pytest.approx(1000 * packets / duration_ms, rel=APART)
    assert total["busy_cycles"] / total["packets"] == pytest.approx(cycles / received, rel=APART)
