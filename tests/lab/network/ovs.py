"""Open vSwitch with the kernel datapath on the lab's hypervisor."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from netconsole_collector.types.header_tree import version_code
from tests.lab.machine.errors import LabError

if TYPE_CHECKING:
    from tests.lab.machine.hypervisor import Hypervisor

SAYS_WHY = "6.7"
"""From this kernel on the datapath gives a reason. Before, the probe finds it out from the flow's actions."""
DIRECTORY = "/run/openvswitch"
START_LIMIT_S = 90.0
NO_SOCKET, NOBODY_S = "0", "4000000000"
FAULT_BEFORE_S = 7.0  # of the 10 s that the fault needs; starting takes the rest

# ovs-vswitchd keeps its count of CPUs for 10 s of monotonic time, beginning with none at 0. One that starts before the
# machine is up for 10 s gives the kernel an empty list of upcall ports, and every upcall is lost
# (OVS lib/ovs-thread.c, count_cpu_cores; lib/dpif-netlink.c, dpif_netlink_set_handler_pids).
START = """
set -e
mkdir -p {directory}
cd {directory}
if [ {early} = no ]; then
    until [ "$(cut -d. -f1 /proc/uptime)" -ge 11 ]; do sleep 0.2; done
fi
ovsdb-tool create conf.db /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server conf.db --remote=punix:{directory}/db.sock --pidfile --detach --log-file={directory}/ovsdb-server.log
ovs-vsctl --no-wait init
ovs-vswitchd --pidfile --detach --log-file={directory}/ovs-vswitchd.log
"""

# Gives the datapath these sockets for upcalls, or before 5.15 each of its ports (OVS_DP_CMD_SET and OVS_VPORT_CMD_SET,
# which are 4), and prints those that there were.
SET_SOCKETS = """
import json, struct, sys
from netconsole_collector.sources import netlink_messages as netlink
from netconsole_collector.sources.ovs import datapaths as ovs_netlink
families, wanted = ovs_netlink.OvsNetlink(), json.loads(sys.argv[1])
made, dump = families._netlink._socket, families._netlink.dump
def attribute(kind, *numbers):
    return struct.pack(f"=HH{len(numbers)}I", 4 + 4 * len(numbers), kind, *numbers)
def numbers(value):
    return struct.unpack(f"={len(value) // 4}I", value)
def change(family, *attributes):
    request = struct.pack("=BBxxi", 4, 2, index) + b"".join(attributes)
    made.send(struct.pack("=IHHII", 16 + len(request), family, 5, 77, 0) + request)
    assert struct.unpack_from("=i", made.recv(4096), 16)[0] == 0
(body,) = dump(families._datapaths, struct.pack("=BBxxi", 3, 2, 0))
index, values = struct.unpack_from("=4xi", body)[0], dict(netlink.attributes(body, 8))
if 8 in values:
    had = numbers(values[8])
    change(families._datapaths, attribute(5, *numbers(values[5])), attribute(8, *wanted))
else:
    ports = [dict(netlink.attributes(body, 8)) for body in dump(families._ports, struct.pack("=BBxxi", 3, 2, index))]
    had = {numbers(port[1])[0]: numbers(port[5]) for port in ports}
    for port in had:
        sockets = wanted[str(port)] if type(wanted) is dict else wanted
        change(families._ports, attribute(1, port), attribute(5, *sockets))
print(json.dumps(had))
"""


class OpenVSwitch:
    """A running ovsdb-server and ovs-vswitchd."""

    def __init__(self, hypervisor: Hypervisor, *, lose_all_upcalls: bool = False) -> None:
        """Starts both.

        `lose_all_upcalls` starts the switch too early after boot, a fault that real hosts have had: no upcall reaches
        it. The first bridge has to be added at once. Raises LabError when the hypervisor is too old for that already.
        """
        self.hypervisor = hypervisor
        if lose_all_upcalls and hypervisor.uptime_s() > FAULT_BEFORE_S:
            raise LabError("this hypervisor has been up for too long to lose all upcalls")
        early = "yes" if lose_all_upcalls else "no"
        script = START.format(directory=DIRECTORY, early=early)
        hypervisor.run("sh", "-c", script, limit_s=START_LIMIT_S)

    def add_bridge(self, name: str, address: str) -> None:
        """A bridge with kernel datapath whose local port has this address (with prefix length)."""
        self.vsctl("add-br", name)
        self.hypervisor.shell(f"""
            echo 1 >/proc/sys/net/ipv6/conf/{name}/disable_ipv6
            ip address add {address} dev {name}
            ip link set {name} up
        """)

    def add_port(self, bridge: str, device: str) -> None:
        self.vsctl("--may-exist", "add-port", bridge, device)

    def vsctl(self, *arguments: str) -> str:
        return self.hypervisor.run("ovs-vsctl", *arguments).text

    @contextlib.contextmanager
    def without_handlers(self, socket: str = NO_SOCKET) -> Iterator[None]:
        """The datapath has no socket for upcalls: as with `lose_all_upcalls`, but it can be taken back.

        With `socket` NOBODY_S it has one that is nobody's, as when ovs-vswitchd has just died.
        """
        had = self._set_sockets(f"[{socket}]")
        try:
            yield
        finally:
            self._set_sockets(had)

    def _set_sockets(self, sockets: str) -> str:
        """As JSON, both those that it is to have and, returned, those that it had."""
        from tests.lab.machine.hypervisor import CHECKOUT

        command = (sys.executable, "-c", SET_SOCKETS, sockets)
        return self.hypervisor.run("env", f"PYTHONPATH={CHECKOUT / 'src'}", *command).text

    @property
    def asks_by_cpu(self) -> bool:
        """Each CPU has a handler for its upcalls. Before 5.15 a flow has one: the hash of its addresses and ports says
        which of its port's handlers."""
        return version_code(self.hypervisor.release) >= version_code("5.15")

    def upcalls(self) -> dict[str, int]:
        """The datapath's lookups: hit, missed (upcalls asked for), lost (upcalls that did not reach the switch)."""
        shown = self.hypervisor.run("ovs-dpctl", "show").text
        match = re.search(r"lookups: hit:(\d+) missed:(\d+) lost:(\d+)", shown)
        assert match is not None, shown
        return dict(zip(("hit", "missed", "lost"), map(int, match.groups()), strict=True))

    def port_counters(self, device: str) -> dict[str, int]:
        """The port's own counters by OVS: rx_packets, tx_packets, rx_dropped, … (rx: from the guest)."""
        shown = self.hypervisor.run("ovs-dpctl", "--statistics", "show").text
        port = shown.partition(f": {device}")[2].partition("\n  port ")[0]
        counters = {}
        for line in port.splitlines():
            direction, _, fields = line.strip().partition(" packets:")
            if direction in ("RX", "TX"):
                for name, value in re.findall(r"(\w+):(\d+)", f"packets:{fields}"):
                    counters[f"{direction.lower()}_{name}"] = int(value)
        return counters
