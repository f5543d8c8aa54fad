"""Keeps the echoes of a capture as the collector sends them, and says of each what became of it."""

from __future__ import annotations

import ipaddress
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

from netconsole.ping.capture import MAX_ECHOES, EchoOutcome, EchoTimes, IrqTimes, KickTimes
from netconsole.telemetry.frames import AnyFrame, Records, Scalar
from netconsole.telemetry.state import State

POINTS = ("request_in_ns", "request_out_ns", "reply_in_ns", "reply_out_ns")
IRQ_POINTS = ("s1_ns", "s2_ns", "s3_ns", "s4_ns", "s5_ns")
KICK_POINTS = ("k1_ns", "k2_ns", "k3_ns")
"""Where vhost carries an echo: from the tap to the guest's interrupt, and from the guest's kick to the tap."""
FRAGMENTED = 1
"""ECHO_FRAGMENTED of probes/common/echo.h."""
_DEVICES = ("request_in", "request_out", "reply_in", "reply_out")
_NS_PER_S = 1_000_000_000

EchoIdentity: TypeAlias = tuple[str, str, int, int, int]
"""Source and target of the request, ICMP's id and sequence number, and when it began: the numbers come again."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Which of the four points something watches. ``answers_itself``: a VM that is pinged; nothing lies beyond it."""

    points: tuple[bool, bool, bool, bool] = (True, True, True, True)
    answers_itself: bool = False


ALL_WATCHED = Watched()


@dataclass(frozen=True, slots=True)
class Echo:
    """One echo: when it passed the four points, in ns of the monotonic clock. None: not seen there."""

    source: str
    target: str
    id: int
    seq: int
    at_ns: tuple[int, int | None, int | None, int | None]
    duplicates: int
    repeated: int
    flags: int
    irq_ns: tuple[int | None, ...] = ()
    kick_ns: tuple[int | None, ...] = ()

    @property
    def identity(self) -> EchoIdentity:
        """What tells it from all others."""
        return self.source, self.target, self.id, self.seq, self.at_ns[0]

    @property
    def version(self) -> Literal[4, 6]:
        """Of IP."""
        return 6 if ":" in self.source else 4

    @property
    def total_ns(self) -> int | None:
        """From the first point to the last; None while it is under way."""
        last = self.at_ns[3]
        return None if last is None else last - self.at_ns[0]

    def outcome(self, now_ns: int, limit_s: float, watched: Watched = ALL_WATCHED) -> EchoOutcome:
        """What became of it, as far as is known at ``now_ns``."""
        limit_ns = limit_s * _NS_PER_S
        if self.total_ns is not None:
            return "late" if self.total_ns > limit_ns else "answered"
        if now_ns - self.at_ns[0] < limit_ns:
            return "unfinished"
        if self.at_ns[2] is not None:
            return "reply_lost_inside" if watched.points[3] else "timeout"
        if watched.answers_itself:
            return "request_lost_inside" if watched.points[2] else "timeout"
        if self.at_ns[1] is not None:
            return "lost_outside" if watched.points[2] else "timeout"
        return "request_lost_inside" if watched.points[1] else "timeout"

    def times(self, outcome: EchoOutcome) -> EchoTimes:
        """As the capture document has it."""
        first, out, back, last = self.at_ns
        return EchoTimes(
            seq=self.seq,
            id=self.id,
            request_us=_us(first, out),
            between_us=_us(out, back),
            reply_us=_us(back, last),
            total_us=_us(first, last),
            outcome=outcome,
            duplicates=self.duplicates,
            at_ns=first,
        )

    def irq_times(self) -> IrqTimes | None:
        """Its stages from the tap to the guest's interrupt. None where vhost did not carry it."""
        if len(self.irq_ns) != len(IRQ_POINTS) or self.irq_ns[1] is None:
            return None
        s1_s2, s2_s3, s3_s4, s4_s5 = (_us(begin, end) for begin, end in pairwise(self.irq_ns))
        total = _us(self.irq_ns[0], self.irq_ns[-1])
        return IrqTimes(self.seq, self.id, s1_s2, s2_s3, s3_s4, s4_s5, total, self.irq_ns[0])

    def kick_times(self, receiver: bool) -> KickTimes | None:
        """Its stages from the guest's kick to the tap: of the reply where the VM is pinged, else of the request."""
        if len(self.kick_ns) != len(KICK_POINTS) or self.kick_ns[0] is None:
            return None
        points = (*self.kick_ns, self.at_ns[2 if receiver else 0])
        k1_k2, k2_k3, k3_k4 = (_us(begin, end) for begin, end in pairwise(points))
        return KickTimes(self.seq, self.id, k1_k2, k2_k3, k3_k4, _us(points[0], points[-1]), points[0])


class EchoLog:
    """The echoes between these addresses (none: all), as a sink of a session. ``on_echo`` gets each that changed."""

    def __init__(self, addresses: Sequence[str] = (), on_echo: Callable[[Echo], None] | None = None) -> None:
        self._networks = [ipaddress.ip_network(one, strict=False) for one in addresses]
        self.on_echo = on_echo
        self._lock = threading.Lock()
        self._echoes: dict[EchoIdentity, Echo] = {}
        self.devices: tuple[Counter[str], ...] = tuple(Counter() for _ in POINTS)
        """How many echoes passed each point on which device."""
        self._others: set[EchoIdentity] = set()
        self.over = 0
        """Echoes for which a document has no room."""
        self.clocks: list[tuple[int, int]] = []
        """The monotonic and the wall clock of the measured host, in ns: at the first frame, and at the last."""

    def take(self, state: State, batch: Sequence[AnyFrame]) -> None:
        for frame in batch:
            if frame.source == "collector":
                self.clocks[1:] = [(frame.mono_ns, frame.wall_ns)]
            if isinstance(frame, Records):
                self._take(frame)

    def echoes(self) -> list[Echo]:
        """All of them, in the order in which they began."""
        with self._lock:
            return sorted(self._echoes.values(), key=lambda echo: echo.at_ns[0])

    def __len__(self) -> int:
        """How many echoes there are."""
        return len(self._echoes)

    @property
    def others(self) -> int:
        """Echoes of other pings."""
        return len(self._others)

    def _take(self, frame: Records) -> None:
        rows = [dict(zip(frame.columns, values, strict=False)) for values in frame.records]
        found = [(echo, row) for row in rows if (echo := _echo(row)) is not None]
        for echo, row in sorted(found, key=lambda one: one[0].at_ns[0]):
            if not self._wanted(echo):
                if len(self._others) < MAX_ECHOES:
                    self._others.add(echo.identity)
                continue
            with self._lock:
                known = self._echoes.get(echo.identity)
                if known is None and len(self._echoes) >= MAX_ECHOES:
                    self.over += 1
                    continue
                self._echoes[echo.identity] = echo
            for point, name in enumerate(_DEVICES):
                device = row.get(name)
                if device and isinstance(device, str) and (known is None or known.at_ns[point] is None):
                    self.devices[point][device] += 1
            if self.on_echo is not None:
                self.on_echo(echo)

    def _wanted(self, echo: Echo) -> bool:
        """Each of the addresses is one of its ends."""
        ends = [ipaddress.ip_address(end) for end in (echo.source, echo.target)]
        return all(any(end in network for end in ends) for network in self._networks)


def _echo(row: dict[str, Scalar]) -> Echo | None:
    """None for a row that no probe of ours writes: a stream may come from elsewhere."""
    source, target = row.get("source"), row.get("target")
    try:
        ipaddress.ip_address(str(source)), ipaddress.ip_address(str(target))
    except ValueError:
        return None
    numbers = [row.get(name) for name in ("id", "seq", *POINTS, "duplicates", "repeated", "flags")]
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        return None
    id, seq, first, out, back, last, duplicates, repeated, flags = (int(number) for number in numbers)  # type: ignore[arg-type]
    if not first or id > 0xFFFF or seq > 0xFFFF:
        return None
    at_ns = (first, out or None, back or None, last or None)
    irq_ns, kick_ns = (tuple(_time(row.get(name)) for name in names) for names in (IRQ_POINTS, KICK_POINTS))
    return Echo(str(source), str(target), id, seq, at_ns, duplicates, repeated, flags, irq_ns, kick_ns)


def _time(value: Scalar) -> int | None:
    """0, and what is no time, is not known."""
    return value if isinstance(value, int) and value > 0 else None


def _us(begin: int | None, end: int | None) -> float | None:
    """Clocks of two CPUs may differ a little: what is below zero is reported as it is."""
    return None if begin is None or end is None else (end - begin) / 1000
