#!/usr/bin/env bash
# pyroute2 0.9.7 gives the four packet lengths in the statistics of cake the names of one another.
#
# Expected: the shortest packet of 60 bytes is TCA_CAKE_STATS_MIN_NETLEN. The guess, after its source was read and
# before it was run: it has another name.
# Seen: it is MAX_NETLEN, the longest of 1500 bytes is MAX_ADJLEN, and of 84 and 1524 bytes, which are the two with the
# overhead of the link, the first one is MIN_NETLEN and the second one MIN_ADJLEN.
# The kernel's order is minimum and maximum without, then minimum and maximum with the overhead
# (include/uapi/linux/pkt_sched.h: TCA_CAKE_STATS_MIN_NETLEN and the next ones); tc shows "min/max network layer size".
# The minimum is above the maximum, and whoever looks for packets that are larger than the link's MTU, such as those
# of a VM's segmentation offload in front of a shaper, finds the smallest.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check pyroute2==0.9.7
"$work/venv/bin/python" - <<'PYTHON'
import struct
from importlib.metadata import version

from pyroute2.netlink.rtnl.tcmsg import tcmsg


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


KERNEL = {6: ("MIN_NETLEN", 60), 7: ("MAX_NETLEN", 1500), 8: ("MIN_ADJLEN", 84), 9: ("MAX_ADJLEN", 1524)}
lengths = b"".join(attribute(number, struct.pack("=I", value)) for number, (_, value) in KERNEL.items())
body = struct.pack("=BxxxiIII", 0, 1, 0x80010000, 0xFFFFFFFF, 2) + attribute(1, b"cake\0")
body += attribute(7, attribute(4, lengths))  # TCA_STATS2 with TCA_STATS_APP
message = tcmsg(struct.pack("=IHHII", 16 + len(body), 36, 0, 0, 0) + body)
message.decode()
told = message.get_attr("TCA_STATS2").get_attr("TCA_STATS_APP")
seen = {name: told.get_attr(f"TCA_CAKE_STATS_{name}") for name, _ in KERNEL.values()}
print(f"pyroute2 {version('pyroute2')}: {dict(KERNEL.values())} is {seen}")
assert seen == {"MIN_NETLEN": 84, "MAX_NETLEN": 60, "MIN_ADJLEN": 1524, "MAX_ADJLEN": 1500}
PYTHON
