#!/usr/bin/env bash
# pyroute2 0.9.7 swaps the two bytes of a bridge's priority, and the four bytes of a VXLAN device's flow label.
#
# Guess, before it was run: the priority in the bridge's identifier is the 4096 that IFLA_BR_PRIORITY says beside it.
# Seen: 16, in one and the same message that says 4096. The flow label 0x12345 of a VXLAN device is 1159921920, and a
# flow label has only 20 bits. `ip -d link` says "bridge_id 1000.02:00:00:00:00:01" and "flowlabel 0x12345" of both.
# Both are in network order (net/bridge/br_private.h: struct bridge_id; drivers/net/vxlan/vxlan_core.c), and pyroute2
# reads them in the order of this CPU. It does read the label of a GENEVE device in network order.
# Who compares the root bridge's priority with what a switch shows, or the label with a capture, finds no match.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check pyroute2==0.9.7
"$work/venv/bin/python" - <<'PYTHON'
import struct
from importlib.metadata import version

from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg


def attribute(number: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), number) + value + bytes(-len(value) % 4)


def settings(kind: bytes, told: bytes) -> ifinfmsg:
    """What pyroute2 makes of a device of this kind: IFLA_LINKINFO with IFLA_INFO_KIND and IFLA_INFO_DATA."""
    body = bytes(16) + attribute(18, attribute(1, kind + b"\0") + attribute(2, told))
    message = ifinfmsg(struct.pack("=IHHII", 16 + len(body), 16, 0, 0, 0) + body)
    message.decode()
    return message.get_nested("IFLA_LINKINFO", "IFLA_INFO_DATA")


address = bytes((2, 0, 0, 0, 0, 1))
identifier = struct.pack(">H", 4096) + address  # struct ifla_bridge_id: __u8 prio[2], __u8 addr[6]
bridge = settings(b"bridge", attribute(6, struct.pack("=H", 4096)) + attribute(11, identifier))
assert bridge.get_attr("IFLA_BR_PRIORITY") == 4096
seen = bridge.get_attr("IFLA_BR_BRIDGE_ID")
assert (seen["prio"], seen["addr"]) == (16, "02:00:00:00:00:01"), seen

label = struct.pack(">I", 0x12345)  # __be32, of IFLA_VXLAN_LABEL and of IFLA_GENEVE_LABEL
vxlan = settings(b"vxlan", attribute(26, label)).get_attr("IFLA_VXLAN_LABEL")
geneve = settings(b"geneve", attribute(11, label)).get_attr("IFLA_GENEVE_LABEL")
assert (vxlan, geneve) == (1159921920, 0x12345), (vxlan, geneve)
print(f"pyroute2 {version('pyroute2')}: bridge priority 4096 is {seen['prio']}, VXLAN flow label {0x12345} is {vxlan}")
PYTHON
