"""Reads the root queueing discipline of every link: its counters, its queue, and the rate that it limits packets to.

Layouts: include/uapi/linux/rtnetlink.h, pkt_sched.h, gen_stats.h.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from netconsole.host.target import NetlinkSocket
from netconsole.sources.netlink import attributes

NOQUEUE = "noqueue"
RATED = ("tbf", "htb")
RTM_GETQDISC = 38
RTM_GETTCLASS = 42
TC_H_ROOT = 0xFFFFFFFF
TC_H_INGRESS = 0xFFFFFFF1
TCA_KIND = 1
TCA_OPTIONS = 2
TCA_STATS2 = 7
TCA_STATS_QUEUE = 3
TCA_TBF_PARMS, TCA_TBF_RATE64 = 1, 4
TCA_HTB_PARMS, TCA_HTB_CEIL64 = 1, 7
_RATE_AT, _CEIL_AT = 8, 20
"""Where struct tc_tbf_qopt has its rate, and struct tc_htb_opt its ceiling: the rate is at 8 in struct tc_ratespec."""
_TCMSG = struct.Struct("=BxxxiIII")
_QUEUE = struct.Struct("=IIIII")
QDISCS = (RTM_GETQDISC, _TCMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0))
"""The request for all queueing disciplines."""
_U32 = struct.Struct("=I")
_U64 = struct.Struct("=Q")
_UNITS = ((10**12, "Tbit/s"), (10**9, "Gbit/s"), (10**6, "Mbit/s"), (10**3, "kbit/s"))


@dataclass(frozen=True, slots=True)
class Qdisc:
    """A qdisc of a device: packets and bytes that wait in it, and its counters since it was created.

    ``rate_bits`` is the rate of a tbf, or the ceiling of the one root class of an htb, per second; else None.
    """

    ifindex: int
    kind: str
    backlog_packets: int
    backlog_bytes: int
    drops: int
    requeues: int
    overlimits: int
    rate_bits: int | None = None
    handle: int = 0
    parent: int = TC_H_ROOT
    """Of a child: the class of another qdisc that it belongs to."""

    @property
    def shaper(self) -> str | None:
        """`tbf of 5 Mbit/s`; the kind alone where its rate is not known; None of a kind that has none."""
        if self.kind not in RATED:
            return None
        return self.kind if self.rate_bits is None else f"{self.kind} of {rate_text(self.rate_bits)}"


def handle_text(handle: int) -> str:
    """As tc writes it: 1:, 1:10, in hexadecimal."""
    minor = handle & 0xFFFF
    return f"{handle >> 16:x}:{minor:x}" if minor else f"{handle >> 16:x}:"


def rate_text(bits: int) -> str:
    """A rate with as many digits as it has been given, thousands as tc counts them: 5 Mbit/s, 1.5 Gbit/s."""
    for size, unit in _UNITS:
        if bits >= size:
            return f"{bits / size:.3f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{bits} bit/s"


class QdiscReader:
    """Reads the root qdiscs of one network namespace; a root's figures hold its children's (mq_dump_common).

    Most do not change between two readings. Their messages are then the same, and are not parsed again.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, Qdisc | None] = {}
        self.children: list[Qdisc] = []
        """Those of the last reading that are no root: of the queues of an mq, of the classes of an htb."""

    def read(self, netlink: NetlinkSocket) -> list[Qdisc]:
        """The roots. Raises OSError."""
        known, self._known = self._known, {}
        for body in netlink.dump(*QDISCS):
            message = bytes(body)
            self._known[message] = known[message] if message in known else parse(body)
        found = [qdisc for qdisc in self._known.values() if qdisc is not None]
        self.children = [qdisc for qdisc in found if qdisc.parent not in (TC_H_ROOT, TC_H_INGRESS)]
        return [qdisc for qdisc in found if qdisc.parent == TC_H_ROOT]


def htb_rate(netlink: NetlinkSocket, ifindex: int) -> int | None:
    """The ceiling of an htb's root class in bits per second; None when there is none, or more than one.

    Raises OSError.
    """
    request = _TCMSG.pack(socket.AF_UNSPEC, ifindex, 0, 0, 0)
    ceilings = list(_ceilings(netlink.dump(RTM_GETTCLASS, request)))
    return ceilings[0] if len(ceilings) == 1 else None


def parse(body: memoryview) -> Qdisc | None:
    """A qdisc from an RTM_NEWQDISC message; None of one without counters."""
    _, ifindex, handle, parent, _ = _TCMSG.unpack_from(body)
    name, rate = "", None
    for kind, value in attributes(body, _TCMSG.size):
        if kind == TCA_KIND:
            name = bytes(value).rstrip(b"\0").decode("ascii", "replace")
        elif kind == TCA_OPTIONS and name == "tbf":
            rate = _rate(dict(attributes(value, 0)), TCA_TBF_PARMS, _RATE_AT, TCA_TBF_RATE64)
        elif kind == TCA_STATS2:
            for statistic, figures in attributes(value, 0):
                if statistic == TCA_STATS_QUEUE and len(figures) >= _QUEUE.size:
                    packets, waiting, drops, requeues, overlimits = _QUEUE.unpack_from(figures)
                    return Qdisc(ifindex, name, packets, waiting, drops, requeues, overlimits, rate, handle, parent)
    return None


def _ceilings(bodies: Iterator[memoryview]) -> Iterator[int | None]:
    for body in bodies:
        parent = _TCMSG.unpack_from(body)[3]
        options = next((value for kind, value in attributes(body, _TCMSG.size) if kind == TCA_OPTIONS), None)
        if parent == TC_H_ROOT and options is not None:
            yield _rate(dict(attributes(options, 0)), TCA_HTB_PARMS, _CEIL_AT, TCA_HTB_CEIL64)


def _rate(options: Mapping[int, memoryview], parameters: int, at: int, rate64: int) -> int | None:
    """Bits per second from a 32-bit field, or from the attribute beside it where that has no room for it."""
    large, small = options.get(rate64), options.get(parameters)
    if large is not None and len(large) >= _U64.size:
        return int(_U64.unpack_from(large)[0]) * 8
    if small is not None and len(small) >= at + _U32.size:
        return int(_U32.unpack_from(small, at)[0]) * 8
    return None
