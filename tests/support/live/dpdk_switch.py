"""Runs Debian's ovs-vswitchd with DPDK for a test: its PMD thread forwards millions of packets a second."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from netconsole_collector.sources.ovs.unixctl import Unixctl
from tests.lab.machine.errors import LabUnavailable
from tests.support.live.pmd_switch import CPU, LIMIT_S
from tests.support.live.userland import Userland, unpacked
from tests.support.live.vswitchd import BRIDGE, Vswitchd

SUITE = "bookworm"
PACKAGES = ("openvswitch-switch-dpdk", "librte-net-null23", "librte-bus-vdev23", "librte-mempool-ring23")
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
PLUGINS = ("librte_bus_vdev", "librte_mempool_ring", "librte_net_null")
PAGES, MEMORY_MB = 300, 512
PAGES_OF_THE_KERNEL = Path("/proc/sys/vm/nr_hugepages")


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


@contextmanager
def huge_pages(directory: Path) -> Iterator[Path]:
    """There are huge pages in this directory, for so long. Skips where there can be none."""
    before = PAGES_OF_THE_KERNEL.read_text()
    PAGES_OF_THE_KERNEL.write_text(str(PAGES))
    subprocess.run(["mount", "-t", "hugetlbfs", "none", str(directory)], check=True)
    try:
        if int(PAGES_OF_THE_KERNEL.read_text()) < PAGES:
            pytest.skip(f"cannot run here: no {PAGES} huge pages")
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)
        PAGES_OF_THE_KERNEL.write_text(before)


@contextmanager
def dpdk_switch(directory: Path, pages: Path) -> Iterator[DpdkSwitch]:
    """Its files are in the one directory, and its memory in the other. Skips where it cannot be had."""
    with huge_pages(pages):
        try:
            userland = DpdkUserland()
        except LabUnavailable as error:
            pytest.skip(str(error))
        running = DpdkSwitch(directory, pages, userland)
        try:
            yield running
        finally:
            running.close()
