"""ovs_pmd on Debian's ovs-vswitchd with DPDK, whose PMD thread forwards millions of packets a second."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from netconsole.telemetry.frames import Row, Table
from netconsole_collector.sources.base import SourceReading
from netconsole_collector.sources.ovs.pmd import OvsPmd
from netconsole_collector.sources.ovs.unixctl import Unixctl
from tests.lab.machine.errors import LabUnavailable
from tests.support.live.pmd_switch import CPU, LIMIT_S
from tests.support.live.userland import Userland, unpacked
from tests.support.live.vswitchd import BRIDGE, Vswitchd
from tests.support.sources import frames_of

pytestmark = [pytest.mark.counting, pytest.mark.long]

SUITE = "bookworm"
PACKAGES = ("openvswitch-switch-dpdk", "librte-net-null23", "librte-bus-vdev23", "librte-mempool-ring23")
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
PLUGINS = ("librte_bus_vdev", "librte_mempool_ring", "librte_net_null")
PAGES, MEMORY_MB = 300, 512
PAGES_OF_THE_KERNEL = Path("/proc/sys/vm/nr_hugepages")
READINGS = 4
APART = 0.02


class DpdkUserland(Userland):
    """Open vSwitch with DPDK."""

    program = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"

    def __init__(self) -> None:
        self.root = unpacked(SUITE, PACKAGES)


class DpdkSwitch(Vswitchd):
    """Two ports of DPDK that bring packets without end, and drop what is sent to them."""

    name = "ovs-vswitchd-dpdk"

    def __init__(self, directory: Path, pages: Path, userland: DpdkUserland) -> None:
        self.program = tuple(userland.command())
        self._pages = pages
        super().__init__(directory)
        try:
            for port in ("n0", "n1"):
                self.vsctl("add-port", BRIDGE, port, "--", "set", "Interface", port, "type=dpdk",
                           f"options:dpdk-devargs=net_null{port[1]},size=64")  # fmt: skip
            self._run("ovs-ofctl", "add-flow", BRIDGE, "in_port=n0,actions=output:n1")
            self.until(lambda: "core_id" in self.appctl("dpif-netdev/pmd-perf-show"))
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        self.environment["RUNTIME_DIRECTORY"] = str(self.directory)  # of DPDK
        plugins = " ".join(f"-d {LIBRARIES}/{one}.so.23" for one in PLUGINS)
        settings = {
            "dpdk-init": "true", "dpdk-socket-mem": MEMORY_MB, "pmd-cpu-mask": f"{1 << CPU:x}",
            "dpdk-extra": f'"--no-pci --huge-dir {self._pages} {plugins}"',
        }  # fmt: skip
        words = [f"other_config:{name}={value}" for name, value in settings.items()]
        self.vsctl("--no-wait", "set", "Open_vSwitch", ".", *words)
        super().start()

    def figures(self) -> tuple[int, int, int, int]:
        """Packets, and the duration in ms, of the one answer; packets and busy cycles of the other.

        As ovs-appctl shows them, without the time that a program takes to start.
        """
        control = Unixctl(str(self.directory / f"{self.name}.{self.pid}.ctl"))
        shown = [control.ask(f"dpif-netdev/{one}", timeout_s=LIMIT_S) for one in ("pmd-perf-show", "pmd-stats-show")]
        control.close()
        rates = re.search(r"duration: ([\d.]+) s.*?Rx packets:\s+(\d+)", shown[0], re.S)
        cycles = re.search(r"core_id.*?received: (\d+).*?processing cycles: (\d+)", shown[1], re.S)
        assert rates and cycles
        return int(rates[2]), round(float(rates[1]) * 1000), int(cycles[1]), int(cycles[2])


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where huge pages are, for as long as the test takes."""
    directory, before = tmp_path_factory.mktemp("pages"), PAGES_OF_THE_KERNEL.read_text()
    PAGES_OF_THE_KERNEL.write_text(str(PAGES))
    subprocess.run(["mount", "-t", "hugetlbfs", "none", str(directory)], check=True)
    try:
        if int(PAGES_OF_THE_KERNEL.read_text()) < PAGES:
            pytest.skip(f"cannot run here: no {PAGES} huge pages")
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)
        PAGES_OF_THE_KERNEL.write_text(before)


@pytest.fixture(scope="module")
def switch(pages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DpdkSwitch]:
    try:
        userland = DpdkUserland()
    except LabUnavailable as error:
        pytest.skip(str(error))
    running = DpdkSwitch(tmp_path_factory.mktemp("dpdk"), pages, userland)
    yield running
    running.close()


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
