"""Runs an ovs-vswitchd for a test that has a PMD thread, and brings packets to the ports that it polls."""

from __future__ import annotations

import os
import re
from pathlib import Path

from netconsole_collector.sources.ovs.unixctl import Unixctl
from tests.support.live.vswitchd import BRIDGE, DATAPATH, Vswitchd

CPU = max(os.sched_getaffinity(0))
AT_ONCE = 50
"""Frames that one command brings: a port that is no device keeps a hundred."""
LIMIT_S = 20.0
_FRAME = "02000000000b02000000000a0800" + "450000230000000040110000c0000201c0000202" + "{:04x}0009000f0000" + "00" * 18
"""Ethernet, IPv4 and UDP, in hexadecimal digits."""
_RECEIVED = re.compile(r"Rx packets:\s+(\d+)")


def frame(flow: int) -> str:
    """A frame of one of many flows: each has a port of its own."""
    return _FRAME.format(1024 + flow)


class PmdSwitch(Vswitchd):
    """The switch has one PMD thread, for the ports p0 and p1."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "--enable-dummy")
        try:
            self.vsctl("set", "Open_vSwitch", ".", f"other_config:pmd-cpu-mask={1 << CPU:x}")
            for port in ("p0", "p1"):
                self.add(port)
            self.ofctl("add-flow", "in_port=p0,actions=output:p1")
            self.until(lambda: "core_id" in self.performance())
        except BaseException:
            self.close()
            raise

    def add(self, port: str) -> None:
        self.vsctl("add-port", BRIDGE, port, "--", "set", "Interface", port, "type=dummy-pmd")

    def performance(self) -> str:
        return self.appctl("dpif-netdev/pmd-perf-show", DATAPATH)

    def figure(self, name: str) -> int:
        """A figure of the PMD thread, as ovs-appctl shows it."""
        found = re.search(rf"{name}:\s+(\d+)", self.performance())
        return int(found[1]) if found else 0

    def cycles(self) -> int:
        found = re.search(r"core_id.*?processing cycles: (\d+)", self.appctl("dpif-netdev/pmd-stats-show"), re.S)
        assert found
        return int(found[1])

    def forward(self, packets: int, at_once: int = AT_ONCE, flows: int = 1) -> None:
        """Brings packets of so many flows to p0, some at a time, and waits until these have been received."""
        control = Unixctl(str(self.directory / f"ovs-vswitchd.{self.pid}.ctl"))

        def received() -> int:
            found = _RECEIVED.search(control.ask("dpif-netdev/pmd-perf-show", DATAPATH, timeout_s=LIMIT_S))
            return int(found[1]) if found else 0

        expected = received()
        for first in range(0, packets, at_once):
            brought = [frame(number % flows) for number in range(first, first + at_once)]
            control.ask("netdev-dummy/receive", "p0", *brought, timeout_s=LIMIT_S)
            expected += at_once
            if (first + at_once) % AT_ONCE == 0:
                self.until(lambda: received() == expected)  # noqa: B023 - it is called before the next turn
        control.close()
