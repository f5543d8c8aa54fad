#!/usr/bin/env bash
# pyroute2 0.9.7 tells less than the kernel says where a figure of traffic control needs more than 32 bits.
#
# Guess, before it was run: the rate of a 40 Gbit/s tbf comes as an unknown attribute, with its eight bytes beside it.
# Seen: the attribute comes as "UNKNOWN" with its header alone, its value is thrown away, and `rate` stands at
# 4294967295 bytes/s (34.36 Gbit/s), whatever the rate is. The packets of a queueing discipline beyond 2^32 likewise:
# TCA_STATS_BASIC has the low 32 bits, and TCA_STATS_PKT64 (since Linux 5.5) is "UNKNOWN". No error, no warning.
# For both the message is what the kernel sends (net/sched/sch_tbf.c: tbf_dump; net/core/gen_stats.c).
# Two dumps of shapers of 40 and of 60 Gbit/s are therefore equal when they are compared by what pyroute2 decodes.
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


def qdisc(bits_per_second: int, packets: int) -> tcmsg:
    rate, lowest = bits_per_second // 8, 0xFFFFFFFF
    # struct tc_tbf_qopt: two struct tc_ratespec of 12 bytes, whose rate is at 8, then limit, buffer and mtu
    parameters = struct.pack("=8xI", min(rate, lowest)) + bytes(12) + struct.pack("=III", 60_000_000, 32_767, 0)
    options = attribute(1, parameters) + attribute(4, struct.pack("=Q", rate))  # TCA_TBF_PARMS, TCA_TBF_RATE64
    figures = attribute(1, struct.pack("=QI", 0, packets & lowest)) + attribute(8, struct.pack("=Q", packets))
    body = struct.pack("=BxxxiIII", 0, 1, 0x80010000, lowest, 2)
    body += attribute(1, b"tbf\0") + attribute(2, options) + attribute(7, figures)
    message = tcmsg(struct.pack("=IHHII", 16 + len(body), 36, 0, 0, 0) + body)
    message.decode()
    return message


forty, sixty = qdisc(40_000_000_000, 2**32 + 5), qdisc(60_000_000_000, 2**33 + 5)
for one in (forty, sixty):
    options, figures = one.get_attr("TCA_OPTIONS"), one.get_attr("TCA_STATS2")
    assert options.get_attr("TCA_TBF_PARMS")["rate"] == 4294967295
    assert options.get_attr("TCA_TBF_RATE64") is None
    assert dict(options["attrs"])["UNKNOWN"] == {"header": {"length": 12, "type": 4}}
    assert figures.get_attr("TCA_STATS_BASIC")["packets"] == 5
    assert dict(figures["attrs"])["UNKNOWN"] == {"header": {"length": 12, "type": 8}}
assert str(forty["attrs"]) == str(sixty["attrs"])
print(f"pyroute2 {version('pyroute2')}: shapers of 40 and 60 Gbit/s are both 34.36 Gbit/s, and 2^32 packets are lost")
PYTHON
