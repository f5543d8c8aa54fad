"""Measures a planned ping for the wizard of the console: every vantage point in a thread, here or over ssh.

What fails at one place is said there, and the others go on. ``netconsole ping run`` does the same without a screen.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from netconsole.base.errors import BadInput, Unable
from netconsole.base.fact_keys import FactData
from netconsole.far.door import Approach
from netconsole.far.host import AnyHost
from netconsole.host.privileges import require
from netconsole.ping.capture import EchoOutcome, EchoTimes, PingCapture, Role
from netconsole.ping.echo_log import EchoLog
from netconsole.ping.vantage import request_of
from netconsole.probes.catalogue import typed_modules
from netconsole.probes.manifest import Manifest
from netconsole.run.ping_capture import INTERVAL_S, SETTLE_LIMIT_S, VantageRun, attached, document, next_reading
from netconsole.run.ping_places import HERE, HOST_ROLES, PlaceTables, read_places
from netconsole.run.ping_plan import PingPlan, PlannedPoint
from netconsole.run.ping_run import EchoSender
from netconsole.run.stop import Stop
from netconsole.run.tsc_points import TscPoints
from netconsole.session.live import LiveSession
from netconsole.sources.facts import collect

PlacePhase = Literal["connecting", "starting", "watching", "ended", "failed"]
LAST_ECHOES = 12
_LOOK_S = 0.1
_AFTER_S = 0.5
"""After the last echo's time limit: until it has been read everywhere."""


@dataclass(frozen=True, slots=True)
class PlaceProgress:
    """How far one vantage point is. ``why`` is the reason when it failed, else what it watches with."""

    role: Role
    place: str
    phase: PlacePhase
    why: str = ""
    outcomes: Mapping[EchoOutcome, int] = field(default_factory=dict)
    last: tuple[EchoTimes, ...] = ()


@dataclass(slots=True)
class _Place:
    point: PlannedPoint
    phase: PlacePhase = "connecting"
    why: str = ""
    host: AnyHost | None = None
    run: VantageRun | None = None
    taken: PingCapture | None = None

    @property
    def settled(self) -> bool:
        """Whether it watches, or never will."""
        return self.phase not in ("connecting", "starting")


def look_around(at: Mapping[Role, str], manifests: Mapping[str, Manifest], also: Sequence[str] = ()) -> PlaceTables:
    """What this machine, the hosts of a plan and the hosts ``also`` know of its ends. Their lines are closed again.

    Raises BadInput and Unable as :func:`read_places`.
    """
    with contextlib.ExitStack() as stack:

        def enter(place: str) -> AnyHost:
            way = stack.enter_context(contextlib.closing(Approach(place, may_ask=False)))
            return way.enter(typed_modules(manifests))

        return read_places({role: place for role, place in at.items() if role in HOST_ROLES}, enter, also)


class PingWatch:
    """The vantage points of a plan, measured. Call :meth:`start`, then :meth:`finish` or :meth:`close`."""

    def __init__(
        self,
        plan: PingPlan,
        manifests: Mapping[str, Manifest],
        read_facts: Callable[[AnyHost], Mapping[str, FactData]] = collect,
    ) -> None:
        """``read_facts`` reads the configuration of a place, here or far."""
        self._plan = plan
        self._manifests = manifests
        self._read_facts = read_facts
        self._over = threading.Event()
        self._dropped = threading.Event()
        self._places = [_Place(point) for point in plan.points]
        self._threads = [threading.Thread(target=self._run, args=(one,), daemon=True) for one in self._places]
        self._sender: EchoSender | None = None
        self._sending = threading.Thread(target=self._send, name="ping-sending", daemon=True)
        self.told = ""
        """How far the sending is, in words."""
        self.is_over = False
        """Whether all echoes were sent and have ended, or nothing is left that watches."""

    def start(self) -> None:
        """Begins. Returns at once."""
        for thread in self._threads:
            thread.start()
        self._sending.start()

    def progress(self) -> list[PlaceProgress]:
        """How far each place is, now."""
        return [_progress(place) for place in self._places]

    def finish(self) -> dict[Role, PingCapture]:
        """Ends the measuring; what each place saw. Waits for the last reading: some tenths of a second."""
        self._over.set()
        for thread in (*self._threads, self._sending):
            thread.join()
        return {place.point.role: place.taken for place in self._places if place.taken is not None}

    def close(self) -> None:
        """Ends everything, and keeps nothing. Returns at once: the threads clean up."""
        self._dropped.set()
        self._over.set()

    def _run(self, place: _Place) -> None:
        try:
            far = None if place.point.host == HERE else place.point.host
            with contextlib.closing(Approach(far, may_ask=False)) as way:
                place.host = way.enter(typed_modules(self._manifests))
                self._watch(place, place.host)
                self._sending.join()  # it may send from this host
        except (BadInput, Unable) as error:
            place.phase, place.why = "failed", str(error).splitlines()[0]
        except Exception as error:  # a bug here must not end the others, nor look as if it went on
            place.phase, place.why = "failed", f"a bug in netconsole: {type(error).__name__}: {error}"

    def _watch(self, place: _Place, host: AnyHost) -> None:
        point = place.point
        request = request_of(point.role, point.between, self._manifests)
        if host.address is None:
            require([request])
        session = LiveSession(host, [request], INTERVAL_S)
        run = VantageRun(point.role, point.between, session, EchoLog(point.between.addresses), tsc=TscPoints(host))
        session.attach(run.log)
        place.phase = "starting"
        with contextlib.closing(session):
            session.start()
            self._until(session.settled, SETTLE_LIMIT_S, self._dropped)
            if self._dropped.is_set():
                return
            run.attach = attached(run)
            began = time.time()
            known = self._read_facts(host)
            run.relate_clock()
            place.run, place.why, place.phase = run, ", ".join(run.attach), "watching"
            self._until(lambda: session.connection().phase in ("lost", "ended"), float("inf"), self._over)
            if self._dropped.is_set():
                return
            next_reading(run, Stop())
            run.relate_clock()
            if self._sender is not None:
                run.id, run.sent = self._sender.id, dict(self._sender.counts)
            with session.view() as state:
                taken = document(run, state, began, known)
            place.taken = msgspec.structs.replace(taken, run=self._plan.name)
            place.phase = "ended"

    def _send(self) -> None:
        """Sends the echoes when every place watches, and sees when all is over."""
        self._until(lambda: all(place.settled for place in self._places), float("inf"), self._over)
        running = [place.run for place in self._places if place.run is not None]
        if self._over.is_set() or not running:
            self.is_over = not running
            return
        if self._plan.sent_at is None:
            self.told = "netconsole sends nothing: somebody else pings"
            count = self._plan.traffic.count
            self._until(lambda: max(run.finished() for run in running) >= count, float("inf"), self._over)
            self.is_over = True
            return
        host = next((place.host for place in self._places if place.point.host == self._plan.sent_at), None)
        if host is None:
            self.told = f"netconsole sends no echoes, because {self._plan.sent_at} was not reached: ping there by hand"
            return
        try:
            self._sender = sender = EchoSender(host, self._plan.receiver.address, self._plan.traffic, _nothing)
        except Unable as error:
            self.told = f"netconsole sends no echoes ({error}): ping by hand"
            return
        with contextlib.closing(sender):
            self._until(lambda: self._sent(sender), float("inf"), self._over)
            limit_s = max(run.between.limit_s for run in running) + _AFTER_S
            sent = sender.counts.get("sent", 0)
            self._until(lambda: all(run.finished() >= sent for run in running), limit_s, self._over)
            if sender.why:
                self.told = f"the echoes ended early: {sender.why}"
            self.is_over = True

    def _sent(self, sender: EchoSender) -> bool:
        self.told = ", ".join(f"{count} {name}" for name, count in sender.counts.items()) or "sending"
        return sender.is_over

    def _until(self, true: Callable[[], bool], limit_s: float, stop: threading.Event) -> None:
        deadline = time.monotonic() + limit_s
        while not true() and time.monotonic() < deadline and not stop.wait(_LOOK_S):
            pass


def _nothing() -> None:
    """The wizard looks by itself."""


def _progress(place: _Place) -> PlaceProgress:
    role, run = place.point.role, place.run
    if run is None:
        return PlaceProgress(role, place.point.host, place.phase, place.why)
    seen = run.outcomes()
    last = tuple(echo.times(outcome) for echo, outcome in seen[-LAST_ECHOES:])
    outcomes = Counter(outcome for _, outcome in seen)
    return PlaceProgress(role, place.point.host, place.phase, place.why, outcomes, last)
