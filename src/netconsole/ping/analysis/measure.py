"""From joined captures to the times of the way: each segment, the parts of the round trip, and what remains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from netconsole.ping.analysis.echoes import EchoKey
from netconsole.ping.analysis.figures import of_values
from netconsole.ping.analysis.merge import JoinedCaptures, RoleTimes, total_of
from netconsole.ping.analysis.times import PathFigure, combined, of_packets, of_summary
from netconsole.ping.capture import IrqTimes, KickTimes, Role, TimeSummary
from netconsole.ping.model import KICKS, REMAINDERS, SEGMENTS, STAGES, WIRE, PingSide, SegmentSpec

NO_WIRE = (WIRE, "D", "I")
"""What does not exist where both ends are on one host: there it takes no time."""
PARTS = ("sender_host_us", "physical_network_us", "receiver_host_us")
_OF_HOST = ("B", "K")
"""What the sender's side has when a host itself pings."""


@dataclass(slots=True)
class PathFigures:
    """The times of one ping by name. Unknown ones are not there; ``missing`` has their reasons."""

    joined: JoinedCaptures
    round_trip: PathFigure | None = None
    segments: dict[str, PathFigure] = field(default_factory=dict)
    parts: dict[str, PathFigure] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def sender(self) -> Role:
        """The host on the sender's side: one with a VM that pings, or one that pings itself."""
        return "host" if "host" in self.joined.roles else "sender-host"

    @property
    def outermost(self) -> Role:
        """Who sees the whole round trip."""
        return "host" if "host" in self.joined.roles else "sender-vm"

    @property
    def specs(self) -> list[SegmentSpec]:
        """The segments of this ping: kicks only where a capture has them, and of a host's own ping no VM's."""
        own = self.sender == "host"
        kicks = any(role.kick or role.kick_summary for role in self.joined.roles.values())
        return [
            spec
            for spec in SEGMENTS
            if (kicks or spec.name not in KICKS) and not (own and spec.side == "sender" and spec.name not in _OF_HOST)
        ]

    def missing_of(self, side: PingSide) -> list[str]:
        """The segments of a side that nobody measured, and so are in its remainder."""
        return [spec.name for spec in self.specs if spec.side == side and spec.name not in self.segments]


def measure(joined: JoinedCaptures) -> PathFigures:
    """All times that the captures give."""
    figures = PathFigures(joined)
    for spec in figures.specs:
        found = _none(joined) if joined.one_host and spec.name in NO_WIRE else _segment(joined, spec)
        if isinstance(found, str):
            figures.missing[spec.name] = found
        else:
            figures.segments[spec.name] = found
    figures.round_trip = echo_time(joined, figures.outermost, "total_us")
    external = echo_time(joined, figures.sender, "between_us")
    receiver = external if joined.one_host else echo_time(joined, "receiver-host", "total_us")
    if figures.round_trip is not None and external is not None:
        figures.parts["sender_host_us"] = combined([figures.round_trip], [external])
    if external is not None and receiver is not None:
        figures.parts["physical_network_us"] = figures.segments[WIRE] = combined([external], [receiver])
    if receiver is not None:
        figures.parts["receiver_host_us"] = receiver
    sides: tuple[PingSide, ...] = ("sender", "receiver")
    for side in sides:
        whole = figures.parts.get(f"{side}_host_us")
        if whole is not None and not (side == "sender" and figures.sender == "host"):
            known = [
                figures.segments[spec.name]
                for spec in figures.specs
                if spec.side == side and spec.name in figures.segments
            ]
            figures.segments[REMAINDERS[side]] = combined([whole], known)
    return figures


def _none(joined: JoinedCaptures) -> PathFigure:
    return of_packets(dict.fromkeys(joined.paired, 0.0)) if joined.paired else PathFigure(0.0, None)


def echo_time(joined: JoinedCaptures, role: Role, field_name: str) -> PathFigure | None:
    """One of the four times of a vantage point. None when it was not measured."""
    times = joined.roles.get(role)
    if times is None:
        return None
    if role in joined.by_packet and joined.paired:
        values = {key: getattr(times.echoes[key], field_name) for key in joined.paired}
    else:
        values = {key: getattr(row, field_name) for key, row in times.echoes.items()}
    known = {key: value for key, value in values.items() if value is not None}
    if known and len(known) == len(joined.paired) and role in joined.by_packet:
        return of_packets(known)
    if known:
        return _by_mean(known.values())
    summary = getattr(times.summary, field_name, None) if not times.echoes else None
    return None if summary is None else of_summary(summary)


def stage_time(joined: JoinedCaptures, role: Role, part: str, stage: str) -> PathFigure | None:
    """One stage of a host's vhost, or the whole of them (``total``). None when it was not measured."""
    times = joined.roles.get(role)
    if times is None:
        return None
    rows, summary = _part(times, part)
    values = {key: value for key, row in rows.items() if (value := _stage(row, stage)) is not None}
    if (role, part) in joined.joined_parts:
        values = {key: values[key] for key in joined.paired if key in values}
        return of_packets(values) if values else None
    if values:
        return _by_mean(values.values())
    found = getattr(summary, stage, None)
    return of_summary(found) if isinstance(found, TimeSummary) else None


def _part(times: RoleTimes, part: str) -> tuple[Mapping[EchoKey, IrqTimes | KickTimes], object]:
    return (times.irq, times.irq_summary) if part == "vhost_irq" else (times.kick, times.kick_summary)


def _stage(row: IrqTimes | KickTimes, stage: str) -> float | None:
    return total_of(row) if stage == "total" else getattr(row, stage)


def _by_mean(values: Iterable[float]) -> PathFigure:
    return of_summary(of_values(list(values)))


def _segment(joined: JoinedCaptures, spec: SegmentSpec) -> PathFigure | str:
    role = spec.role
    if role == "sender-host" and "host" in joined.roles:
        role = "host"
    if role not in joined.roles:
        return f"no capture of {role}"
    if spec.part == "echo":
        found = echo_time(joined, role, spec.field)
        return f"the capture of {role} has no {spec.field}" if found is None else found
    found = stage_time(joined, role, spec.part, spec.field)
    if found is None:
        stages = stages_of(joined, role, spec)
        if stages:
            return combined(stages)
        return f"the capture of {role} has no {spec.part}"
    return found


def stages_of(joined: JoinedCaptures, role: Role, spec: SegmentSpec) -> list[PathFigure]:
    """All stages of a segment; empty when one of them is not known."""
    found = [stage_time(joined, role, spec.part, stage) for stage in STAGES[spec.name]]
    known = [stage for stage in found if stage is not None]
    return known if len(known) == len(found) else []
