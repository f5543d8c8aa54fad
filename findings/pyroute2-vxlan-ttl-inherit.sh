#!/usr/bin/env bash
# pyroute2 0.9.7 says of every VXLAN device that it takes the TTL of the packet inside.
#
# Guess, before it was run: IFLA_VXLAN_TTL_INHERIT is 0 or False for a device that was made with "ttl 5".
# Seen: True, for a device with "ttl 5" and for one with "ttl inherit": the answers are equal but for the TTL.
# The kernel sends the attribute always, with one byte that says yes or no (drivers/net/vxlan/vxlan_core.c:
# vxlan_fill_info). pyroute2 takes its presence for a yes, which is right only for a request that makes a device.
# It reads the same byte of a GENEVE device (IFLA_GENEVE_TTL_INHERIT) as a number.
# Who asks why packets of a tunnel die on the way looks for the TTL: with "inherit" it is the guest that decides.
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


def vxlan(ttl: int, inherit: int) -> tuple[object, object]:
    found = settings(b"vxlan", attribute(5, bytes([ttl])) + attribute(28, bytes([inherit])))
    return found.get_attr("IFLA_VXLAN_TTL"), found.get_attr("IFLA_VXLAN_TTL_INHERIT")


fixed, inherited = vxlan(5, 0), vxlan(0, 1)
assert fixed == (5, True), fixed
assert inherited == (0, True), inherited
geneve = settings(b"geneve", attribute(12, b"\0")).get_attr("IFLA_GENEVE_TTL_INHERIT")
assert geneve == 0, geneve
print(f"pyroute2 {version('pyroute2')}: (TTL, inherit) is {fixed} for ttl 5, and {inherited} for ttl inherit")
PYTHON
