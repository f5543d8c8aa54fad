"""Puts the times of a guest and its host on one clock, and so divides what no probe saw into its two halves.

KVM adds an offset to the host's TSC for a guest, and may scale it. Where a capture of the host tells both, and each
capture relates its clock to its TSC, a guest's time is a host's time. The sum of the halves needs no clock: only the
point at which it is divided is as uncertain as ``accuracy_us`` says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from netconsole.ping.analysis.echoes import EchoKey
from netconsole.ping.analysis.measure import PathFigures
from netconsole.ping.analysis.merge import RoleTimes
from netconsole.ping.analysis.times import of_packets, shown
from netconsole.ping.breakdown import PathTime
from netconsole.ping.capture import GuestTsc, PingCapture, Role, TscPoint
from netconsole.ping.model import REMAINDERS, PingSide

_TSC = 1 << 64
SLEW = 500e-6
"""NTP may speed up or slow down a clock by this share; two points measure it, one does not."""
_ENDS: tuple[tuple[PingSide, Role, Role, str, str], ...] = (
    ("sender", "sender-vm", "sender-host", "I1", "L"),
    ("receiver", "receiver-vm", "receiver-host", "B1", "E"),
)
_KICK_WORDS = {
    "sender": "request: from the guest's driver to the {to}",
    "receiver": "reply: from the guest's driver to the {to}",
}
_IRQ_WORDS = {
    "sender": "reply: from the {of} to netif_receive_skb of the guest",
    "receiver": "request: from the {of} to netif_receive_skb of the guest",
}

ToHost: TypeAlias = Callable[[int], float]
"""From a time of the guest's clock to one of the host's, both in nanoseconds."""


@dataclass(frozen=True, slots=True)
class ClockRelation:
    """How a guest's clock is related to its host's."""

    to_host_ns: ToHost
    accuracy_us: float
    how: str


def halves(figures: PathFigures) -> dict[str, dict[str, PathTime]]:
    """The halves of the remainders, where the clocks are related and every echo has its times."""
    found = {}
    for side, guest_role, host_role, kick, irq in _ENDS:
        guest, host = (figures.joined.roles.get(role) for role in (guest_role, host_role))
        if guest is None or host is None or not {guest_role, host_role} <= figures.joined.by_packet:
            continue
        relation = related(guest.main, host.main, figures.joined.paired, guest)
        if relation is None:
            continue
        parts = _parts(figures, side, guest, host, relation.to_host_ns, kick, irq)
        if parts is not None:
            found[REMAINDERS[side]] = _shown(figures, side, parts, relation, kick, irq)
    return found


def related(
    guest: PingCapture, host: PingCapture, paired: Sequence[EchoKey] = (), times: RoleTimes | None = None
) -> ClockRelation | None:
    """How the clocks of two captures are related. None where nobody can tell."""
    if guest.clock is None or host.clock is None:
        return None
    own_error = (guest.error_us or 0.0) + (host.error_us or 0.0)
    if guest.clock.boot_id and guest.clock.boot_id == host.clock.boot_id and guest.clock.name == host.clock.name:
        return ClockRelation(float, own_error, "one kernel, one clock")
    if host.guest_tsc is None or not guest.clock.tsc or not host.clock.tsc:
        return None
    if host.guest_tsc.vm and guest.vm and host.guest_tsc.vm != guest.vm:
        return None
    guest_points, host_points = (
        sorted(one.clock.tsc, key=lambda point: point.ns) for one in (guest, host) if one.clock
    )
    mapping = host.guest_tsc

    def to_host(guest_ns: int) -> float:
        point, hz = _nearest(guest_points, guest_ns), _hz(guest_points)
        tsc = _host_tsc(point.tsc + round((guest_ns - point.ns) * hz / 1e9), mapping)
        base = min(host_points, key=lambda one: abs(_signed(tsc - one.tsc)))
        return base.ns + _signed(tsc - base.tsc) * 1e9 / _hz(host_points)

    seen = [] if times is None else [times.echoes[key].at_ns for key in paired]
    on_guest = [ns for ns in seen if ns is not None]
    error = _error_us(guest_points, on_guest) + _error_us(host_points, [to_host(ns) for ns in on_guest])
    return ClockRelation(to_host, error + own_error, "the guest's TSC as KVM sets it")


def _parts(
    figures: PathFigures,
    side: PingSide,
    guest: RoleTimes,
    host: RoleTimes,
    to_host_ns: ToHost,
    kick: str,
    irq: str,
) -> tuple[dict[EchoKey, float], dict[EchoKey, float]] | None:
    """Per echo: what lies between guest and host on the way out of the guest, and on the way into it."""
    outgoing: dict[EchoKey, float] = {}
    incoming: dict[EchoKey, float] = {}
    for key in figures.joined.paired:
        g, h = guest.echoes[key], host.echoes[key]
        if None in (g.at_ns, h.at_ns, g.request_us, g.between_us, h.request_us, h.between_us) or g.at_ns is None:
            return None
        if h.at_ns is None:
            return None
        begin = (to_host_ns(g.at_ns) - h.at_ns) / 1000  # when the guest saw the echo first, after the host did
        guest_first = begin + (g.request_us or 0)
        guest_between = guest_first + (g.between_us or 0)
        host_first = h.request_us or 0
        host_between = host_first + (h.between_us or 0)
        measured = {name: _of(figures, name, key) for name in (kick, irq)}
        if side == "sender":
            outgoing[key] = -guest_first - measured[kick]
            incoming[key] = guest_between - (host_between + (h.reply_us or 0)) - measured[irq]
        else:
            outgoing[key] = host_between - (guest_between + (g.reply_us or 0)) - measured[kick]
            incoming[key] = begin - host_first - measured[irq]
    return outgoing, incoming


def _of(figures: PathFigures, name: str, key: EchoKey) -> float:
    time = figures.segments.get(name)
    if time is None:
        return 0.0
    return time.values.get(key, time.mean) if time.values else time.mean


def _shown(
    figures: PathFigures,
    side: PingSide,
    parts: tuple[dict[EchoKey, float], dict[EchoKey, float]],
    relation: ClockRelation,
    kick: str,
    irq: str,
) -> dict[str, PathTime]:
    to = "kick" if kick in figures.segments else "host's network stack, with kick and vhost"
    of = "interrupt" if irq in figures.segments else "tap, with vhost and interrupt"
    words = (_KICK_WORDS[side].format(to=to), _IRQ_WORDS[side].format(of=of))
    formulas = (f"host's clock: {relation.how}", f"host's clock: {relation.how}")
    rows = [
        shown(of_packets(values), False, side, what, formula, figures.round_trip)
        for values, what, formula in zip(parts, words, formulas, strict=True)
    ]
    accurate = [msgspec.structs.replace(row, accuracy_us=relation.accuracy_us) for row in rows]
    return {"kick": accurate[0], "interrupt": accurate[1]}


def _error_us(points: Sequence[TscPoint], times: Sequence[float]) -> float:
    """How far off a clock can be at these times of its own, in microseconds: each clock drifts from its own points."""
    reading = max(point.accuracy_us for point in points)
    if _tell_drift(points):
        return reading
    return reading + SLEW * max((abs(ns - _nearest(points, ns).ns) for ns in times), default=0.0) / 1000


def _nearest(points: Sequence[TscPoint], ns: float) -> TscPoint:
    return min(points, key=lambda point: abs(point.ns - ns))


def _hz(points: Sequence[TscPoint]) -> float:
    first, last = points[0], points[-1]
    return (last.tsc - first.tsc) * 1e9 / (last.ns - first.ns) if _tell_drift(points) else first.hz


def _tell_drift(points: Sequence[TscPoint]) -> bool:
    """Whether they are points of two moments."""
    return points[-1].ns > points[0].ns and points[-1].tsc > points[0].tsc


def _host_tsc(guest_tsc: int, mapping: GuestTsc) -> int:
    scaled = (guest_tsc - mapping.offset) % _TSC
    return (scaled << mapping.fraction_bits) // mapping.ratio if mapping.ratio else scaled


def _signed(difference: int) -> int:
    return (difference + _TSC // 2) % _TSC - _TSC // 2
