"""Reads the queueing disciplines of every link, and their classes: counters, queues, and the rates of shapers.

Layouts: include/uapi/linux/rtnetlink.h, pkt_sched.h, gen_stats.h.
"""

import socket
import struct
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from netconsole_collector.primitives.netlink import attributes

NOQUEUE = "noqueue"
RATED = ("tbf", "htb")
CLASSFUL = ("htb", "hfsc", "drr", "qfq", "ets", "prio")
"""Kinds with classes that somebody set up: those of an mq are its queues, those of an fq_codel its flows."""
RTM_GETQDISC = 38
RTM_GETTCLASS = 42
TC_H_ROOT = 0xFFFFFFFF
TC_H_INGRESS = 0xFFFFFFF1
TCA_KIND = 1
TCA_OPTIONS = 2
TCA_STATS2 = 7
TCA_STATS_BASIC, TCA_STATS_QUEUE, TCA_STATS_PKT64 = 1, 3, 8
"""The kernel sends the last one where a number of packets has no room in 32 bits (gnet_stats_copy_basic)."""
TCA_TBF_PARMS, TCA_TBF_RATE64 = 1, 4
TCA_HTB_PARMS, TCA_HTB_CEIL64 = 1, 7
_RATE_AT, _CEIL_AT = 8, 20
"""Where struct tc_tbf_qopt has its rate, and struct tc_htb_opt its ceiling: the rate is at 8 in struct tc_ratespec."""
_TCMSG = struct.Struct("=BxxxiIII")
_QUEUE = struct.Struct("=IIIII")
_BASIC = struct.Struct("=QI")
QDISCS = (RTM_GETQDISC, _TCMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0))
"""The request for all queueing disciplines."""
_U32 = struct.Struct("=I")
_U64 = struct.Struct("=Q")
_WRAPS_AT = 1 << 32
_32_BITS = ("drops", "requeues", "overlimits", "sent_packets")
QueueKey = Tuple[int, str, int, int]
_UNITS = ((10**12, "Tbit/s"), (10**9, "Gbit/s"), (10**6, "Mbit/s"), (10**3, "kbit/s"))


class Qdisc(NamedTuple):
    """A qdisc of a device, or a class of one: what waits in it, and its counters since it was created.

    ``rate_bits`` is the rate of a tbf, or the ceiling of the one root class of an htb, per second; else None.
    """

    ifindex: int
    kind: str
    backlog_packets: int
    backlog_bytes: int
    drops: int
    requeues: int
    overlimits: int
    rate_bits: Optional[int] = None
    handle: int = 0
    parent: int = TC_H_ROOT
    """Of a child: the class of another qdisc that it belongs to."""
    sent_packets: int = 0
    sent_bytes: int = 0

    @property
    def key(self) -> QueueKey:
        """What tells it from all others of its namespace."""
        return self.ifindex, self.kind, self.handle, self.parent

    @property
    def shaper(self) -> Optional[str]:
        """`tbf of 5 Mbit/s`; the kind alone where its rate is not known; None of a kind that has none."""
        if self.kind not in RATED:
            return None
        return self.kind if self.rate_bits is None else f"{self.kind} of {rate_text(self.rate_bits)}"


def handle_text(handle: int) -> str:
    """As tc writes it: 1:, 1:10, in hexadecimal; root."""
    if handle == TC_H_ROOT:
        return "root"
    minor = handle & 0xFFFF
    return f"{handle >> 16:x}:{minor:x}" if minor else f"{handle >> 16:x}:"


def rate_text(bits: int) -> str:
    """A rate with as many digits as it has been given, thousands as tc counts them: 5 Mbit/s, 1.5 Gbit/s."""
    for size, unit in _UNITS:
        if bits >= size:
            return f"{bits / size:.3f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{bits} bit/s"


class Widened:
    """Counters of qdiscs with more than the 32 bits that the kernel keeps: 5.8 million a second wrap in 12 minutes.

    One that went back has wrapped around, or belongs to a qdisc that was made again under the same handle. The bytes
    tell which: they have 64 bits. A qdisc that sends nothing has none, so it also has to be half the way at most.
    """

    def __init__(self) -> None:
        self._last: Dict[QueueKey, Tuple[Qdisc, Qdisc]] = {}

    def of(self, told: Iterable[Qdisc]) -> List[Qdisc]:
        """The same with wide counters. Of one that is as it was, the same object."""
        last, self._last = self._last, {}
        for one in told:
            raw, wide = last.get(one.key, (one, one))
            self._last[one.key] = one, wide if raw is one else _widened(one, raw, wide)
        return [wide for _, wide in self._last.values()]


def _widened(now: Qdisc, raw: Qdisc, wide: Qdisc) -> Qdisc:
    if now.sent_bytes < raw.sent_bytes:
        return now
    counts: Dict[str, Any] = {}
    for name in _32_BITS:
        new, old = getattr(now, name), getattr(raw, name)
        went = (new - old) % _WRAPS_AT if max(new, old) < _WRAPS_AT else new - old
        if new < old and not 0 <= went < _WRAPS_AT // 2:
            return now
        counts[name] = getattr(wide, name) + went
    return now._replace(**counts)


class QueueWaits:
    """How long bytes wait in each child, computed from its counters: Little's law, between two readings.

    The mean of what waited at both, divided by the rate at which it left. It is right for a queue that stands, and
    knows nothing of what comes and goes between two readings.
    """

    def __init__(self) -> None:
        self._last: Dict[QueueKey, Tuple[int, int, int]] = {}
        self._waits: Dict[QueueKey, Optional[int]] = {}

    def take(self, children: Iterable[Qdisc], now_ns: int) -> None:
        """They were read at this time."""
        last, self._last, self._waits = self._last, {}, {}
        for one in children:
            self._last[one.key] = one.sent_bytes, one.backlog_bytes, now_ns
            if one.key in last:
                sent, waited, then_ns = last[one.key]
                self._waits[one.key] = _wait(one.sent_bytes - sent, one.backlog_bytes + waited, now_ns - then_ns)

    def of(self, one: Qdisc) -> Optional[int]:
        """In ns; None where nothing waited at either reading, or nothing left."""
        return self._waits.get(one.key)


def _wait(sent: int, waited_twice: int, took_ns: int) -> Optional[int]:
    return waited_twice * took_ns // (2 * sent) if sent > 0 and waited_twice and took_ns > 0 else None


class QdiscReader:
    """Reads the root qdiscs of one network namespace; a root's figures hold its children's (mq_dump_common).

    Most do not change between two readings. Their messages are then the same, and are not parsed again.
    """

    def __init__(self) -> None:
        self._known: Dict[bytes, Optional[Qdisc]] = {}
        self._classful: Dict[int, None] = {}
        self._widened = Widened()
        self.children: List[Qdisc] = []
        """Of the last reading: qdiscs that are no root (of queues of an mq, of classes of an htb), and classes."""

    def read(self, netlink: Any) -> List[Qdisc]:
        """The roots. Raises OSError."""
        known, self._known = self._known, {}
        parsed = [self._parsed(body, known) for body in netlink.dump(*QDISCS)]
        found = [one for one in parsed if one is not None]
        self._classful = dict.fromkeys(qdisc.ifindex for qdisc in found if qdisc.kind in CLASSFUL)
        for request in self.class_requests():
            classes = [self._parsed(body, known) for body in netlink.dump(*request)]
            found += [one._replace(kind=f"{one.kind} class") for one in classes if one and one.kind in CLASSFUL]
        roots, self.children = [], []
        for qdisc in self._widened.of(found):
            if qdisc.parent == TC_H_ROOT and not qdisc.kind.endswith(" class"):
                roots.append(qdisc)
            elif qdisc.parent != TC_H_INGRESS:
                self.children.append(qdisc)
        return roots

    def class_requests(self) -> List[Tuple[int, bytes]]:
        """Those for the classes of each device that had some at the last reading."""
        return [(RTM_GETTCLASS, _TCMSG.pack(socket.AF_UNSPEC, index, 0, 0, 0)) for index in self._classful]

    def _parsed(self, body: memoryview, known: Mapping[bytes, Optional[Qdisc]]) -> Optional[Qdisc]:
        message = bytes(body)
        if message not in self._known:
            self._known[message] = known[message] if message in known else parse(body)
        return self._known[message]


def htb_rate(netlink: Any, ifindex: int) -> Optional[int]:
    """The ceiling of an htb's root class in bits per second; None when there is none, or more than one.

    Raises OSError.
    """
    request = _TCMSG.pack(socket.AF_UNSPEC, ifindex, 0, 0, 0)
    ceilings = list(_ceilings(netlink.dump(RTM_GETTCLASS, request)))
    return ceilings[0] if len(ceilings) == 1 else None


def parse(body: memoryview) -> Optional[Qdisc]:
    """A qdisc from an RTM_NEWQDISC message, or a class from RTM_NEWTCLASS; None of one without counters."""
    _, ifindex, handle, parent, _ = _TCMSG.unpack_from(body)
    name, rate, sent_bytes, sent_packets = "", None, 0, 0
    for kind, value in attributes(body, _TCMSG.size):
        if kind == TCA_KIND:
            name = bytes(value).rstrip(b"\0").decode("ascii", "replace")
        elif kind == TCA_OPTIONS and name == "tbf":
            rate = _rate(dict(attributes(value, 0)), TCA_TBF_PARMS, _RATE_AT, TCA_TBF_RATE64)
        elif kind == TCA_STATS2:
            figures = dict(attributes(value, 0))
            basic, queue = figures.get(TCA_STATS_BASIC, b""), figures.get(TCA_STATS_QUEUE, b"")
            if len(basic) >= _BASIC.size:
                sent_bytes, sent_packets = _BASIC.unpack_from(basic)
            more = figures.get(TCA_STATS_PKT64, b"")
            if len(more) >= _U64.size:
                sent_packets = _U64.unpack_from(more)[0]
            if len(queue) >= _QUEUE.size:
                packets, waiting, drops, requeues, overlimits = _QUEUE.unpack_from(queue)
                done = drops, requeues, overlimits, rate, handle, parent, sent_packets, sent_bytes
                return Qdisc(ifindex, name, packets, waiting, *done)
    return None


def _ceilings(bodies: Iterator[memoryview]) -> Iterator[Optional[int]]:
    for body in bodies:
        parent = _TCMSG.unpack_from(body)[3]
        options = next((value for kind, value in attributes(body, _TCMSG.size) if kind == TCA_OPTIONS), None)
        if parent == TC_H_ROOT and options is not None:
            yield _rate(dict(attributes(options, 0)), TCA_HTB_PARMS, _CEIL_AT, TCA_HTB_CEIL64)


def _rate(options: Mapping[int, memoryview], parameters: int, at: int, rate64: int) -> Optional[int]:
    """Bits per second from a 32-bit field, or from the attribute beside it where that has no room for it."""
    large, small = options.get(rate64), options.get(parameters)
    if large is not None and len(large) >= _U64.size:
        return int(_U64.unpack_from(large)[0]) * 8
    if small is not None and len(small) >= at + _U32.size:
        return int(_U32.unpack_from(small, at)[0]) * 8
    return None
