"""A ping as the wizard of the console looks at it: each vantage point is entered in a thread, here or over ssh.

What fails at one place is said there, and the others go on.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from netconsole.base.errors import BadInput, Unable
from netconsole.far.door import Approach
from netconsole.far.host import AnyHost
from netconsole.ping.capture import EchoOutcome, EchoTimes, PingCapture, Role
from netconsole.probes.catalogue import typed_modules
from netconsole.probes.manifest import Manifest
from netconsole.run.ping_capture import VantageRun, vantage_run
from netconsole.run.ping_places import HERE, HOST_ROLES, PlaceTables, read_places
from netconsole.run.ping_plan import PingPlan, PlannedPoint
from netconsole.run.ping_run import EchoSender, Ending, PingRun
from netconsole.run.stop import Interrupted, Stop

PlacePhase = Literal["connecting", "starting", "watching", "ended", "failed"]
LAST_ECHOES = 12


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
    why: str = ""
    """Why it cannot be entered."""
    run: VantageRun | None = None

    def progress(self, is_over: bool) -> PlaceProgress:
        run, why = self.run, self.why or (self.run.why if self.run is not None else "")
        if why:
            return PlaceProgress(self.point.role, self.point.host, "failed", why.splitlines()[0])
        if run is None or not run.attach:
            phase: PlacePhase = "connecting" if run is None else "starting"
            return PlaceProgress(self.point.role, self.point.host, phase)
        has_ended = is_over or run.session.connection().phase in ("lost", "ended")
        seen = run.outcomes()
        last = tuple(echo.times(outcome) for echo, outcome in seen[-LAST_ECHOES:])
        counts = Counter(outcome for _, outcome in seen)
        phase = "ended" if has_ended else "watching"
        return PlaceProgress(self.point.role, self.point.host, phase, ", ".join(run.attach), counts, last)


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

    def __init__(self, plan: PingPlan, manifests: Mapping[str, Manifest]) -> None:
        self._plan = plan
        self._manifests = manifests
        self._stop = Stop()
        self._places = [_Place(point) for point in plan.points]
        self._ping: PingRun | None = None
        self._taken: list[PingCapture] = []
        self._thread = threading.Thread(target=self._run, name="ping", daemon=True)
        self._told = ""
        self.is_over = False
        """Whether all echoes were sent and have ended, or nothing is left that watches."""

    @property
    def told(self) -> str:
        """How far the sending is, in words."""
        return self._told or (self._ping.told if self._ping is not None else "")

    def start(self) -> None:
        """Begins. Returns at once."""
        self._thread.start()

    def progress(self) -> list[PlaceProgress]:
        """How far each place is, now."""
        return [place.progress(self.is_over) for place in self._places]

    def finish(self) -> dict[Role, PingCapture]:
        """Ends the measuring; what each place saw. Waits for the last reading: some tenths of a second."""
        self.close()
        self._thread.join()
        return {one.role: one for one in self._taken}

    def close(self) -> None:
        """Ends everything. Returns at once: the threads clean up."""
        self._stop.requested = True
        self._stop.heard()

    def _run(self) -> None:
        with contextlib.ExitStack() as stack:
            entering = [threading.Thread(target=self._enter, args=(one, stack), daemon=True) for one in self._places]
            for thread in entering:
                thread.start()
            for thread in entering:
                thread.join()
            runs = [place.run for place in self._places if place.run is not None]
            send = None if self._plan.sent_at is None else self._send
            ending = Ending(count=self._plan.traffic.count)
            if send is None:
                self._told = "netconsole sends nothing: somebody else pings"
            self._ping = PingRun(runs, ending, self._stop, _nothing, send, self._plan.name)
            try:
                self._taken = self._ping.measure()
            except (Unable, Interrupted):
                pass  # each place says why
            except Exception as error:
                for place in self._places:
                    place.why = place.why or _bug(error)
        self.is_over = True

    def _enter(self, place: _Place, stack: contextlib.ExitStack) -> None:
        """Starts to watch there, while others are still entered."""
        far = None if place.point.host == HERE else place.point.host
        try:
            way = Approach(far, may_ask=False)
            stack.callback(way.close)
            host = way.enter(typed_modules(self._manifests))
            run = vantage_run(place.point.role, place.point.between, self._manifests, host)
            stack.callback(run.session.close)
            run.begin(self._stop.heard)
            place.run = run
        except (BadInput, Unable) as error:
            place.why = str(error)
        except Exception as error:  # a bug here must not end the others, nor look as if it went on
            place.why = _bug(error)

    def _send(self, changed: Callable[[], None]) -> EchoSender | None:
        plan, told = self._plan, "netconsole sends no echoes"
        runs = (place.run for place in self._places if place.point.host == plan.sent_at)
        host = next((run.host for run in runs if run is not None), None)
        if host is None:
            self._told = f"{told}, because {plan.sent_at} was not reached: ping there by hand"
            return None
        try:
            return EchoSender(host, plan.receiver.address, plan.traffic, changed)
        except Unable as error:
            self._told = f"{told} ({error}): ping by hand"
            return None


def _bug(error: Exception) -> str:
    return f"a bug in netconsole: {type(error).__name__}: {error}"


def _nothing(_line: str) -> None:
    """The wizard looks by itself."""
