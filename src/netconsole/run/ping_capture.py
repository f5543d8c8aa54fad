"""One vantage point of a ping: its probe, every echo that it has seen, and the document of both."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

import netconsole
from netconsole.base.errors import UNREADABLE, Unable
from netconsole.base.fact_keys import FactData
from netconsole.base.figure import safe, things
from netconsole.base.timestamps import utc
from netconsole.far.host import THIS_HOST, AnyHost
from netconsole.far.program import Gone, ProgramProcess
from netconsole.host.privileges import require
from netconsole.ping.capture import (
    SCHEMA,
    CaptureClock,
    EchoOutcome,
    GuestTsc,
    PingCapture,
    Role,
    TscPoint,
    VhostIrq,
    VhostKick,
    WallPoint,
)
from netconsole.ping.echo_log import Echo, EchoLog
from netconsole.ping.vantage import VANTAGE_POINTS, Between, request_of
from netconsole.ping.visible_points import notes, watched
from netconsole.probes.manifest import Manifest
from netconsole.run.stop import Stop
from netconsole.session.live import LiveSession
from netconsole.telemetry.session import Recordable, Session
from netconsole.telemetry.state import ProbeState, State

READER = "netconsole_collector.tsc_point"
ANSWER_S = 20.0
_MAX_BYTES = 65536


class _TscAnswer(msgspec.Struct):
    points: list[TscPoint]
    guest: GuestTsc | None = None


class TscPoints:
    """What was read of one machine: the first point and the last one, which is as much as a line needs."""

    def __init__(self, host: AnyHost) -> None:
        self._host = host
        self.points: list[TscPoint] = []
        self.guest: GuestTsc | None = None

    def read(self, taps: Sequence[str] = ()) -> None:
        """One more point; and of a host what KVM adds for the VM of these taps. Waits for a Python to start there."""
        with contextlib.suppress(Unable, Gone, *UNREADABLE):
            answer = msgspec.json.decode(_said(self._host, taps), type=_TscAnswer)
            self.points = [*self.points[:1], *answer.points[:1]]
            self.guest = answer.guest or self.guest


def _said(host: AnyHost, taps: Sequence[str]) -> bytes:
    program = ProgramProcess(host.launch_of(READER, *taps), "the reader of the TSC")
    said = b""
    with contextlib.closing(program):
        for chunk in program.chunks(ANSWER_S):
            said += chunk
            if said.endswith(b"\n") or len(said) > _MAX_BYTES:
                break
    return said[:_MAX_BYTES]


INTERVAL_S = 0.25
"""How often echoes are read. A thousand a second are 250 records then, far below what a frame takes."""
SETTLE_LIMIT_S = 120.0
_STARTING = ("compiling", "attaching")
LAST_INTERVAL_LIMIT_S = 3.0
_LEDGER = ("map_full", "missed", "parse_failed")
"""Entries of the probe's ledger that may hide an echo."""


class CaptureSession(Session, Recordable, Protocol):
    """What a capture needs of a session."""


@dataclass(slots=True)
class VantageRun:
    """One vantage point, its session and what it has kept so far."""

    role: Role
    between: Between
    session: CaptureSession
    log: EchoLog
    attach: list[str] = field(default_factory=list)
    """The attach points of the probe, once it runs."""
    id: int | None = None
    """ICMP's id of the echoes that are meant; None: any."""
    sent: Mapping[str, int] = field(default_factory=dict)
    """What the sender of the echoes counted itself."""
    tsc: TscPoints | None = None
    """None: nobody wants its clock related to others."""
    host: AnyHost = THIS_HOST
    has_begun: bool = False
    why: str = ""
    """Why it does not watch."""

    @property
    def probe(self) -> str:
        """The probe that it runs."""
        return VANTAGE_POINTS[self.role].probe

    def begin(self, news: Callable[[object], None]) -> None:
        """Start the session, unless it was. ``news`` hears of it."""
        if not self.has_begun:
            self.has_begun = True
            self.session.on_news(news)
            self.session.attach(self.log)
            self.session.start()

    def outcomes(self) -> list[tuple[Echo, EchoOutcome]]:
        """Each echo, and what became of it as far as is known."""
        now_ns, limit_s = self.clock_ns(), self.between.limit_s
        by_version = {version: watched(self.role, self.attach, version) for version in (4, 6)}
        return [
            (echo, echo.outcome(now_ns, limit_s, by_version[echo.version]))
            for echo in self.log.echoes()
            if self.id in (None, echo.id)
        ]

    def finished(self) -> int:
        """Echoes of which nothing more is awaited."""
        return sum(outcome != "unfinished" for _, outcome in self.outcomes())

    def relate_clock(self) -> None:
        """Read the TSC of its machine, and on a host what KVM adds for the VM behind the devices inside."""
        if self.tsc is not None:
            self.tsc.read(_devices(self)[0])

    def clock_ns(self) -> int:
        """The measured host's monotonic clock when its figures were read last."""
        return self.log.clocks[-1][0] if self.log.clocks else 0


def vantage_run(role: Role, between: Between, manifests: Mapping[str, Manifest], host: AnyHost) -> VantageRun:
    """A vantage point of a host, not started. Raises BadInput and Unable."""
    request = request_of(role, between, manifests)
    if host.address is None:
        require([request])
    session = LiveSession(host, [request], INTERVAL_S)
    return VantageRun(role, between, session, EchoLog(between.addresses), tsc=TscPoints(host), host=host)


def document(run: VantageRun, state: State, began: float, facts: Mapping[str, FactData]) -> PingCapture:
    """The capture as it is now."""
    probe, host = state.probes[run.probe], state.host
    echoes = run.outcomes()
    inside, outside = _devices(run)
    receiver = VANTAGE_POINTS[run.role].receiver
    irqs = [irq for echo, _ in echoes if (irq := echo.irq_times()) is not None]
    kicks = [kick for echo, _ in echoes if (kick := echo.kick_times(receiver)) is not None]
    return PingCapture(
        schema=SCHEMA,
        role=run.role,
        host=host.name if host else "",
        packets=[echo.times(outcome) for echo, outcome in echoes],
        vhost_irq=VhostIrq(irqs) if irqs else None,
        vhost_kick=VhostKick(kicks) if kicks else None,
        created=utc(began),
        netconsole=netconsole.__version__,
        kernel=host.kernel if host else None,
        addresses=_ends(run),
        inside=inside,
        outside=outside,
        one_host=run.between.one_host,
        boundary="before_driver",
        attach=run.attach,
        error_us=_error_us(probe),
        clock=CaptureClock(
            boot_id=host.boot_id if host else "",
            tsc=run.tsc.points if run.tsc else [],
            wall=[WallPoint(ns, unix_ns) for ns, unix_ns in run.log.clocks],
        ),
        guest_tsc=run.tsc.guest if run.tsc else None,
        sent=dict(run.sent),
        ledger=_ledger(run, probe),
        notes=_notes(run, probe),
        facts=dict(facts),
    )


def attached(run: VantageRun) -> list[str]:
    """The attach points of its probe. Raises Unable when it does not run."""
    with run.session.view() as state:
        probe = state.probes.get(run.probe)
        if probe is not None and probe.status in _STARTING:
            raise Unable(
                f"{run.role}: {run.probe} was still {probe.status} after {SETTLE_LIMIT_S:g} s, because"
                " the host is busy."
                " Try again: what was compiled is kept"
            )
        if probe is None or not probe.measuring:
            why = (probe.why if probe else None) or run.session.connection().why or "no reason known"
            raise Unable(f"{run.role}: {run.probe} cannot run: {safe(why)}; netconsole doctor says more")
        return list(dict.fromkeys(probe.attach))


def next_reading(run: VantageRun, stop: Stop) -> None:
    """Wait until the figures are read once more."""
    before = run.clock_ns()
    stop.wait(lambda: run.clock_ns() > before, LAST_INTERVAL_LIMIT_S, stoppable=False)


def _ends(run: VantageRun) -> list[str]:
    """Who pings and who is pinged, if all echoes have the same two."""
    ends = {(echo.source, echo.target) for echo in run.log.echoes()}
    return list(next(iter(ends))) if len(ends) == 1 else []


def _devices(run: VantageRun) -> tuple[list[str], list[str]]:
    """The devices that echoes really passed, or, before the first one, those that were asked for."""
    point = VANTAGE_POINTS[run.role]
    passed = run.log.devices
    if not point.has_inside:
        wire = (0, 3) if point.receiver else (1, 2)
        return [], sorted(passed[wire[0]].keys() | passed[wire[1]].keys()) or list(run.between.outside)
    near, far = sorted(passed[0].keys() | passed[3].keys()), sorted(passed[1].keys() | passed[2].keys())
    first, second = (far, near) if point.receiver else (near, far)
    return first or list(run.between.inside), second or list(run.between.outside)


def _error_us(probe: ProbeState) -> float | None:
    """What a run of the programs takes on average: so much of the measuring may lie within a time that is measured."""
    programs = probe.cost.programs.values()
    runs, time_ns = (sum(getattr(one, name) for one in programs) for name in ("run_count", "run_time_ns"))
    return round(time_ns / runs / 1000, 3) if runs else None


def _ledger(run: VantageRun, probe: ProbeState) -> dict[str, int]:
    """What was missed; only entries that are not 0."""
    found = {name: probe.cost.ledger[name].total for name in _LEDGER if name in probe.cost.ledger}
    totals = {name: counter.count.total for name, counter in probe.counters.items()}
    found.update({name: totals.get(name, 0) for name in ("repeated", "unknown", "another")})
    found["not_written"] = run.log.over
    begun = totals.get("echoes", 0) - found.get("map_full", 0)
    found["not_read"] = max(0, begun - len(run.log) - run.log.others - run.log.over)
    found["other_pings"] = run.log.others
    return {name: count for name, count in found.items() if count}


def _notes(run: VantageRun, probe: ProbeState) -> list[str]:
    found = notes(run.role, run.attach)
    if probe.status == "degraded" and probe.why:
        found.append(safe(probe.why))
    connection = run.session.connection()
    if connection.phase == "lost":
        found.append(f"the capture ended, because the collector was lost: {safe(connection.why or 'no reason known')}")
    point = VANTAGE_POINTS[run.role]
    first, last = (0, 3) if point.receiver else (1, 2)
    wire = run.log.devices[first].keys() | run.log.devices[last].keys()
    if len(run.log) and not point.has_inside and not wire:
        asked = " ".join(run.between.outside) or "kind:physical"
        found.append(f"no echo left or came back by {safe(asked)}: name with --outside the device that the echoes take")
    fragments = sum(bool(echo.flags) for echo in run.log.echoes())
    if fragments:
        came = things(fragments, "echoes")
        found.append(f"{came} came in fragments, and the time is that of the first fragment of each")
    if run.log.over:
        found.append(f"left out: {things(run.log.over, 'echoes')}, because the capture was full")
    return found
