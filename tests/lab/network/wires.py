"""Two namespaces on the switch's bridge, and frames from one to the other. Each frame can be a new flow."""

from __future__ import annotations

from tests.lab.machine.hypervisor import Hypervisor
from tests.lab.network.testbed import BRIDGE, Testbed

IN_A = ("ip", "netns", "exec", "a")

# Two namespaces on the bridge by veth. Nothing of them speaks by itself: no IPv6, fixed neighbours.
WIRES = """
for name in a b; do
    ip netns add $name
    ip link add v$name type veth peer name eth0 netns $name
    echo 1 >/proc/sys/net/ipv6/conf/v$name/disable_ipv6
    ip netns exec $name sh -c 'echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6'
    ip link set v$name up
    ip -n $name link set eth0 up
    ovs-vsctl add-port {bridge} v$name
done
ip -n a address add 10.9.0.1/24 dev eth0
ip -n b address add 10.9.0.2/24 dev eth0
ip -n a neighbour replace 10.9.0.2 lladdr $(ip netns exec b cat /sys/class/net/eth0/address) dev eth0 nud permanent
ip -n b neighbour replace 10.9.0.1 lladdr $(ip netns exec a cat /sys/class/net/eth0/address) dev eth0 nud permanent
"""

# Frames as they come from the wire, each of a sender of its own: the switch learns addresses, so each is a new flow.
FRAMES = """
import socket, struct, sys
what, count, first, step = sys.argv[1], *map(int, sys.argv[2:])
device = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
device.bind(("eth0", 0))
l4 = {
    "tcp": (6, struct.pack("!HHIIHHHH", 1000, 2000, 7, 8, 0x5002, 100, 0, 0)),
    "udp": (17, struct.pack("!HHHH", 1000, 4444, 28, 0) + bytes(20)),
    "icmp": (1, struct.pack("!BBHHH", 8, 0, 0, 5, 6) + bytes(20)),
    "udp6": (17, struct.pack("!HHHH", 1000, 2000, 28, 0) + bytes(20)),
    "icmp6": (58, struct.pack("!BBHHH", 128, 0, 0, 5, 6) + bytes(20)),
    "garbage": (6, bytes(3)),
    "vlan": (17, struct.pack("!HHHH", 1000, 2000, 28, 0) + bytes(20)),
    "qinq": (17, struct.pack("!HHHH", 1000, 2000, 28, 0) + bytes(20)),
    "kept": (17, struct.pack("!HHHH", 1000, 8888, 28, 0) + bytes(20)),
    "large": (17, struct.pack("!HHHH", 1000, 5555, 1008, 0) + bytes(1000)),
    "metered": (17, struct.pack("!HHHH", 1000, 6666, 28, 0) + bytes(20)),
    "tracked": (17, b""),
}
tags = {"vlan": "8100002a", "qinq": "88a8002a81000063"}
protocol, payload = l4[what]
six = what.endswith("6")
end = b"\\xfd" + bytes(14)
for one in range(count):
    number = first + step * one
    if what == "tracked":  # each a connection of its own
        payload = struct.pack("!HHHH", 1000 + one, 7777, 28, 0) + bytes(20)
    if six:
        ip = struct.pack("!IHBB", 6 << 28, len(payload), protocol, 64) + end + b"\\1" + end + b"\\2"
    else:
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 0, 0x4000, 64, protocol, 0)
        ip += b"\\12\\11\\0\\1" + b"\\12\\11\\0\\2"
    ethernet = bytes.fromhex("0242420000010242") + struct.pack("!I", number)
    ethernet += bytes.fromhex(tags.get(what, "")) + (b"\\x86\\xdd" if six else b"\\x08\\0")
    device.send(ethernet + (ip[:7] + bytes(3) if what == "garbage" else ip + payload))
"""


class Wires:
    """The two namespaces; every frame is sent by a, and comes in by the port va."""

    def __init__(self, testbed: Testbed) -> None:
        self.hypervisor: Hypervisor = testbed.hypervisor
        self.ovs = testbed.ovs
        self._senders = 0
        self.hypervisor.shell(WIRES.format(bridge=BRIDGE))

    def send(self, what: str, count: int, *, new: bool = True) -> None:
        """`new`: each from an address that the switch has never seen; else all from one that it has."""
        first = self._senders if new else 0
        self._senders += count if new else 0
        frames = (what, str(count), str(first), str(int(new)))
        self.hypervisor.run(*IN_A, "python3", "-c", FRAMES, *frames)
