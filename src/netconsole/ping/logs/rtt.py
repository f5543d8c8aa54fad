"""kernel_icmp_rtt: what a VM's own kernel does with an echo. Its labels are read, never its stage numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from netconsole.base.errors import bad
from netconsole.ping.capture import PingCapture, Role
from netconsole.ping.logs.text import made, number

_BEGIN = re.compile(r"=== ICMP RTT Trace: .*\((TX|RX) \(")
_SESSION = re.compile(r"Session: (\S+) -> (\S+) \(ID: (\d+), Seq: (\d+)\)")
_TIMES = (
    ("request_us", re.compile(r"Total Path 1:\s*(\S+)\s*us")),
    ("reply_us", re.compile(r"Total Path 2:\s*(\S+)\s*us")),
    ("total_us", re.compile(r"Total RTT \(Path1 Start to Path2 End\):\s*(\S+)\s*us")),
    ("between_us", re.compile(r"Inter-Path Latency \(P1 end -> P2 start\):\s*(\S+)\s*us")),
)
_ROLES: dict[str, tuple[Role, ...]] = {"TX": ("sender-vm", "host"), "RX": ("receiver-vm",)}
SOURCE = "kernel_icmp_rtt"


def is_log(head: str) -> bool:
    """Whether a log is of this tool."""
    return "=== ICMP RTT Trace:" in head or "ICMP RTT Tracer" in head


def read(lines: Iterable[str], file: str, role: Role | None) -> list[PingCapture]:
    """The capture of a log. Raises BadInput."""
    echoes: list[dict[str, Any]] = []
    directions: set[str] = set()
    addresses: list[str] = []
    after_driver = before_driver = False
    for line in lines:
        begin = _BEGIN.search(line)
        if begin:
            directions.add(begin[1])
            echoes.append({})
            continue
        after_driver = after_driver or "(net_dev_xmit)" in line
        before_driver = before_driver or "(dev_queue_xmit)" in line
        if not echoes:
            continue
        session = _SESSION.search(line)
        if session:
            addresses = addresses or [session[1][:64], session[2][:64]]
            echoes[-1].update(id=int(session[3]) & 0xFFFF, seq=int(session[4]))
        for name, pattern in _TIMES:
            found = pattern.search(line)
            if found:
                echoes[-1][name] = number(found[1])
    echoes = [echo for echo in echoes if "seq" in echo]
    if not echoes:
        raise bad(file, SOURCE, "this log has no whole echo")
    if len(directions) > 1:
        raise bad(file, SOURCE, "this log has both directions, TX and RX: each VM needs a log of its own")
    [direction] = directions
    wanted = role or _ROLES[direction][0]
    if wanted not in _ROLES[direction]:
        raise bad(
            file,
            SOURCE,
            f"this log traced {direction}, so it is of {' or '.join(_ROLES[direction])}, and not of {wanted}",
        )
    boundary = None if after_driver == before_driver else "after_driver" if after_driver else "before_driver"
    return [made(file, wanted, SOURCE, packets=echoes, addresses=addresses, boundary=boundary)]
