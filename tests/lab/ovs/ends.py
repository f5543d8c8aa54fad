"""Who sends by the ports va, vb and oi of the switch, and what the switch does with it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from netconsole.telemetry import frames
from tests.lab.collector import InsideMeasurement
from tests.lab.machine.hypervisor import CPUS
from tests.lab.network.frames import FrameSender, inode
from tests.lab.network.testbed import BRIDGE, Testbed
from tests.lab.network.wires import Wires
from tests.support.live.ovs_frames import ANSWERED_BY, TRAFFIC

VSWITCHD = "/run/openvswitch/ovs-vswitchd.pid"
# Each flow looks at the source in Ethernet because one rule does, so each frame with another one is a new flow.
RULES = [
    rule
    for port, other in (("va", "vb"), ("vb", "va"), ("oi", "vb"))
    for rule in (
        f"priority=100,in_port={port},actions=output:{other}",
        f"priority=200,in_port={port},dl_src=02:ff:ff:ff:ff:ff,actions=drop",
    )
]
MAKE = f"""
ip netns add c
for one in all default; do ip netns exec c sh -c "echo 1 >/proc/sys/net/ipv6/conf/$one/disable_ipv6"; done
ovs-vsctl add-port {BRIDGE} oi -- set Interface oi type=internal \
    -- set Open_vSwitch . other_config:max-idle=600000 other_config:max-revalidator=600000
ip link set oi netns c
ip -n c link set oi up
"""
UNMAKE = f"""
ovs-vsctl del-port {BRIDGE} oi -- remove Open_vSwitch . other_config max-idle max-revalidator
ip netns delete c
ovs-appctl revalidator/purge
"""


class Ends:
    """Three ports, and a sender behind each."""

    def __init__(self, testbed: Testbed, wires: Wires) -> None:
        self.hypervisor, self.ovs = wires.hypervisor, wires.ovs
        self.guest = testbed.guests[0]
        self.hypervisor.shell(MAKE)
        for rule in RULES:
            self.hypervisor.run("ovs-ofctl", "add-flow", BRIDGE, rule)
        self.netns = {
            "host": inode(self.hypervisor, "/proc/1/ns/net"),
            "c": inode(self.hypervisor, "/run/netns/c"),
        }
        self.sender = FrameSender(self.hypervisor, {"a": ("eth0", "va"), "b": ("eth0", "vb"), "c": ("oi", "oi")})

    def close(self) -> None:
        self.sender.close()
        for rule in RULES:
            self.hypervisor.run("ovs-ofctl", "--strict", "del-flows", BRIDGE, rule.partition(",actions")[0])
        self.hypervisor.shell(UNMAKE)

    @property
    def vswitchd(self) -> str:
        return self.hypervisor.read_file(VSWITCHD).decode().strip()

    def send_traffic(self, *, cpu: int | None = None, is_answered: bool) -> None:
        for number, (place, frame) in enumerate(TRAFFIC):
            self.sender.send(
                place, [frame] * (1 << number), cpu=cpu, answered_by=ANSWERED_BY[place] if is_answered else ""
            )

    @contextlib.contextmanager
    def rule(self, match: str, actions: str) -> Iterator[None]:
        """What flows do meanwhile; those that are there already are made anew."""
        self.hypervisor.run("ovs-ofctl", "add-flow", BRIDGE, f"{match},actions={actions}")
        self.hypervisor.run("ovs-appctl", "revalidator/purge")
        try:
            yield
        finally:
            self.hypervisor.run("ovs-ofctl", "--strict", "del-flows", BRIDGE, match)
            self.hypervisor.run("ovs-appctl", "revalidator/purge")

    @contextlib.contextmanager
    def stopped(self) -> Iterator[str]:
        """ovs-vswitchd does not run meanwhile; its process."""
        process = self.vswitchd
        self.hypervisor.run("kill", "-STOP", process)
        try:
            yield process
        finally:
            self.hypervisor.run("kill", "-CONT", process)

    # ---- the handlers, by /proc ----

    def handlers(self) -> dict[int, dict[str, Any]]:
        """By thread: its name, and what the scheduler has in its own books."""
        shown = self.hypervisor.shell(f"""
            cd /proc/{self.vswitchd}/task
            for comm in $(grep -l '^handler' */comm); do
                cd ${{comm%/comm}}
                echo ${{comm%/comm}} $(cat comm) $(cat schedstat) $(grep ctxt_switches status)
                cd ..
            done
        """)
        found = {}
        for line in shown.splitlines():
            tid, name, cpu_ns, waited_ns, _ = line.split()[:5]
            voluntary, involuntary = map(int, re.findall(r"ctxt_switches: (\d+)", line))
            found[int(tid)] = {
                "handler": name,
                "cpu_ns": int(cpu_ns),
                "waited_ns": int(waited_ns),
                "wakeups": voluntary,
                "switches": voluntary + involuntary,
            }
        return found

    @contextlib.contextmanager
    def handlers_on(self, cpu: int) -> Iterator[None]:
        """All of them run on this CPU only."""
        self._pin(str(cpu))
        try:
            yield
        finally:
            self._pin(f"0-{CPUS - 1}")

    def _pin(self, cpus: str) -> None:
        self.hypervisor.shell("\n".join(f"taskset -pc {cpus} {tid} >/dev/null" for tid in self.handlers()))


def events_of(collector: InsideMeasurement, probe: str) -> list[frames.Event]:
    return [event for event in collector.events if event.probe == probe]
