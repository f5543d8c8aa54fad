"""Keeps the budget of a live session: feeds figures to the governor, carries out its moves, remembers what was done.

It is told of every interval by the session, in the session's thread, and may be asked from any other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from netconsole.budget import spending
from netconsole.budget.forecast import said as said_forecast
from netconsole.budget.governor import PATIENCE, Decision, Governor, Overhead, Reading
from netconsole.budget.ladder import Level, Rung, ladder
from netconsole.budget.run_times import RunTimes
from netconsole.budget.sampling import CostSample, SamplingPace, counted_per_s
from netconsole.host.privileges import require
from netconsole.probes.manifest import Manifest
from netconsole.profile.plan import plan
from netconsole.profile.profile import ProbeChoice, Profile
from netconsole.session.protocol import Expandable, News
from netconsole.telemetry.action import BudgetAction, said
from netconsole.telemetry.frames import Mode, Scalar
from netconsole.telemetry.state import ProbeState, State

MAX_ACTIONS = 1000
"""Actions that are kept; a governor that moves every ten seconds fills them in hours."""

_MEASURING = ("attached", "degraded")

Wish = tuple[Level, Mapping[str, Scalar]]


class Enforcer:
    """Governs ``session`` by the budget of ``profile``, which may change when its time to live has ended."""

    def __init__(self, session: Expandable, profile: Profile, manifests: Mapping[str, Manifest]) -> None:
        self.profile = profile
        self._session = session
        self._manifests = manifests
        self._governor = Governor(profile.budget)
        self._lock = threading.RLock()
        self._wishes: dict[str, Wish] = {}
        """What was asked for, by the profile or by the user since."""
        self._asked: dict[str, Wish] = {}
        """What was last asked of the collector."""
        self._begun: set[str] = set()
        """Probes that the user started."""
        self._pending: set[str] = set()
        self._began_s: float | None = None
        self._pace = SamplingPace()
        self._run_times = RunTimes()
        self._is_often = needs_windows(profile)
        """Whether the statistics are on often, as the session was last told."""
        self._over_per_packet = 0
        self._windows_ns: int | None = None
        """Statistics windows that were looked at: the same figures twice are no news."""
        self._actions: list[BudgetAction] = []
        self._callbacks: list[Callable[[BudgetAction], None]] = []
        self.yields_first: Callable[[str], bool] | None = None
        """Asked to give up what was added (for a reason) before probes of the profile are; True when it did."""

    def start(self) -> None:
        """Listen to the session. Call it before the session starts."""
        self._bound()
        self._session.on_news(self._news)

    def leave_out(self, because: Mapping[str, str]) -> None:
        """Remember what was not started, because of its cost."""
        for probe, why in because.items():
            self.note(BudgetAction(time.monotonic(), probe, "not started", why))

    def on_action(self, callback: Callable[[BudgetAction], None]) -> None:
        """Call ``callback`` for everything that is done, from a thread of the session or the one that asked."""
        self._callbacks.append(callback)

    def note(self, action: BudgetAction) -> None:
        """Remember and tell something that somebody else did to the probes."""
        with self._lock:
            self._tell(action)

    @property
    def actions(self) -> Sequence[BudgetAction]:
        """What was done so far, oldest first; ``at_s`` is CLOCK_MONOTONIC of the measured host."""
        with self._lock:
            return tuple(self._actions)

    @property
    def pinned(self) -> frozenset[str]:
        """Probes that are left alone."""
        return self._governor.pinned

    @property
    def lowered(self) -> tuple[str, ...]:
        """Probes that are not as they were asked for."""
        with self._lock:
            return tuple(self._governor.lowered)

    def toggle_pin(self, probe: str) -> bool:
        """Undo what was done to a probe and leave it alone from now on, or the reverse. False: it is not governed."""
        with self._session.view() as state:
            at_s = _now_s(state) or 0.0
        with self._lock:
            governor = self._governor
            move = governor.unpin(probe, at_s) if probe in governor.pinned else governor.pin(probe, at_s)
            if move is not None:
                self._carry_out([move])
        return move is not None

    def look_ahead(self, manifest: Manifest, mode: Mode) -> tuple[str, str | None]:
        """What a probe would cost in a mode, in one line, and the limit that it would exceed beside all that runs.

        Counts its hooks for a moment. Raises Unable when that cannot be done here.
        """
        from netconsole.budget.forecaster import excess_beside, look_ahead, running_times

        with self._session.view() as state:
            running = {manifest.name: running_times(state, manifest.name)}
        (one,) = look_ahead([(manifest, mode)], running).forecasts
        with self._session.view() as state:
            return said_forecast(one), excess_beside(state, one, self.profile.budget)

    def begin(self, manifest: Manifest, choice: ProbeChoice) -> Future[None]:
        """Run a probe that the session lacks, as if the profile had chosen it so; from then on it is governed, too.

        Raises Unable without the privileges that it needs.
        """
        chosen = replace(self.profile, probes={manifest.name: choice})
        (request,) = plan(chosen, self._manifests)
        require([request])
        with self._session.view() as state:
            at_s = _now_s(state) or 0.0
        self._begun.add(manifest.name)
        self.note(BudgetAction(at_s, manifest.name, f"started: {request.mode}", "the user asked for it"))
        return self._session.load(request)

    # ---- every interval ----

    def _news(self, news: News) -> None:
        if news != "interval":
            return
        with self._session.view() as state:
            at_s = _now_s(state)
            packets_per_s = spending.packets_per_s(state)
            pcts = {name: self._run_times.cpu_pct(probe) for name, probe in state.probes.items() if probe.measuring}
            readings = {
                name: _reading(state, state.probes[name], pct, packets_per_s)
                for name, pct in pcts.items()
                if name in self._manifests
            }
            kernel_pct = sum(pct for pct in pcts.values() if pct is not None)
            spent = spending.spendings(state, self.profile.budget, kernel_pct)
            over = {one.name for one in spent if one.word == "over"}
            kb = spending.memory_kb(state)
            overheads: dict[Overhead, float | None] = {
                "user_cpu_pct": spending.user_cpu_pct(state),
                "memory_mb": None if kb is None else kb / 1024,
            }
            windows_ns = _windows_ns(state)
            is_new = windows_ns is None or windows_ns != self._windows_ns
            samples = {
                name: CostSample(counted_per_s(probe, self._manifests[name]), probe.kernel_cpu_pct, is_new)
                for name, probe in state.probes.items()
                if name in readings and probe.cost.measurable and self._manifests[name].source == "bpf"
            }
            found = {name: (probe.status, probe.mode, dict(probe.knobs)) for name, probe in state.probes.items()}
        if at_s is None or self._is_yielded(over):
            return
        with self._lock:
            self._began_s = at_s if self._began_s is None else self._began_s
            for name, (status, mode, knobs) in found.items():
                if name in self._manifests and self._manifests[name].source == "bpf" and name not in self._pending:
                    self._meet(name, status, mode, knobs, at_s)
            if self.profile.ttl_s is not None and at_s - self._began_s >= self.profile.ttl_s:
                self._end_of_time(at_s)
            elif is_new:
                self._windows_ns = windows_ns
                self._carry_out(self._governor.observe(at_s, readings, overheads))
            has_details = any(status in _MEASURING and mode == "details" for status, mode, _ in found.values())
            self._pace_sampling(at_s, samples, packets_per_s, has_details)

    def _pace_sampling(
        self, at_s: float, samples: Mapping[str, CostSample], packets_per_s: float | None, has_details: bool
    ) -> None:
        """Have statistics often while there are details, or as soon as the costs of summaries may have jumped."""
        limit_pct = spending.kernel_limit_pct(self.profile.budget, packets_per_s)
        is_often = needs_windows(self.profile)
        if limit_pct is not None and self.profile.budget.action != "warn":
            is_often |= has_details or self._pace.is_often(at_s, samples, limit_pct)
        if is_often != self._is_often:
            self._is_often = is_often
            self._session.sample_often(is_often)

    def _is_yielded(self, over: set[spending.Limit]) -> bool:
        """Whether what was added to the profile was given up, because a limit that probes have a share in is exceeded.

        Few packets may explain an excess per packet: it is borne for a while, as by the governor.
        """
        self._over_per_packet = self._over_per_packet + 1 if "ns_per_packet" in over else 0
        is_over = over & {"kernel_cpu_pct", "events_per_s"} or self._over_per_packet > PATIENCE
        return bool(is_over) and self.yields_first is not None and self.yields_first("the budget is exceeded")

    def _meet(self, name: str, status: str, mode: Level, knobs: dict[str, Scalar], at_s: float) -> None:
        """Take note of how a probe is: new, gone, or changed by somebody else since it was last asked for something."""
        if status not in _MEASURING:
            asked = self._asked.get(name)
            if asked is not None and asked[0] != "off" and status != "compiling":
                self._governor.remove(name)
                del self._asked[name]
            return
        asked = self._asked.get(name)
        if asked == (mode, knobs):
            return
        self._asked[name] = self._wishes[name] = (mode, knobs)
        self._governor.add(name, self._ladder(name, (mode, knobs)), self._is_pinned_by_profile(name))
        if asked is not None:
            self._tell(BudgetAction(at_s, name, f"now {mode}", "the user changed it"))

    def _carry_out(self, moves: Sequence[Decision]) -> None:
        for move in moves:
            if move.rung is not None:
                self._pace.changed(move.action.at_s)
                wish = self._wishes[move.action.probe]
                asked = (move.rung.mode, {**wish[1], **move.rung.knobs})
                # What is as it was asked for needs no reason any more.
                self._ask(move.action.probe, asked, said(move.action) if asked != wish else None)
            self._tell(move.action)

    def _ask(self, probe: str, wish: Wish, why: str | None) -> None:
        mode, knobs = wish
        was = self._asked.get(probe)
        self._asked[probe] = wish
        self._pending.add(probe)
        if mode == "off":
            future = self._session.unload(probe, why)
        elif was is not None and was[0] == "off":
            future = self._session.reload(probe, mode, knobs, why)
        else:
            future = self._session.set(probe, mode, knobs, why)
        future.add_done_callback(partial(self._answered, probe))

    def _answered(self, probe: str, future: Future[None]) -> None:
        error = future.exception()
        with self._lock:
            self._pending.discard(probe)
            if error is not None:
                # How it is now is seen with the next figures; the ladder begins there.
                self._asked.pop(probe, None)
                self._governor.remove(probe)
                at_s = self._actions[-1].at_s if self._actions else 0.0
                self._tell(BudgetAction(at_s, probe, "could not be changed", str(error)))

    def _end_of_time(self, at_s: float) -> None:
        """The profile's time to live has ended: back to what it inherits."""
        base = self.profile.base
        if base is None:
            return
        pinned_by_user = {name for name in self.pinned if not self._is_pinned_by_profile(name)}
        because = f"the {self.profile.ttl_s:g} s of profile {self.profile.name} are over"
        self.profile = base
        self._bound()
        wanted = {request.name: request for request in plan(base, self._manifests)}
        self._governor = Governor(base.budget)
        for name in [*self._asked]:
            if name in pinned_by_user | self._begun:
                wish = self._wishes[name]
            else:
                wish = (wanted[name].mode, wanted[name].knobs) if name in wanted else ("off", {})
            self._wishes[name] = wish
            pinned = name in pinned_by_user or self._is_pinned_by_profile(name)
            self._governor.add(name, self._ladder(name, wish), pinned)
            if wish != self._asked[name]:
                self._ask(name, wish, because)
                self._tell(BudgetAction(at_s, name, wish[0] if wish[0] != "off" else "detached", because))
        self._tell(BudgetAction(at_s, "", f"profile {base.name}", because))

    def _ladder(self, name: str, wish: Wish) -> tuple[Rung, ...]:
        manifest = self._manifests[name]
        return ladder(*wish, manifest.modes, any("counters" not in one.modes for one in manifest.programs))

    def _bound(self) -> None:
        """Have the kernel itself keep each probe's details within the budget: for when nobody is there to do it."""
        budget = self.profile.budget
        self._session.bound(None if budget.action == "warn" else budget.kernel_cpu_pct)

    def _is_pinned_by_profile(self, name: str) -> bool:
        return name in self.profile.probes and self.profile.probes[name].pin

    def _tell(self, action: BudgetAction) -> None:
        self._actions.append(action)
        del self._actions[:-MAX_ACTIONS]
        self._session.say_action(action.probe, action.action, action.because, action.measured, action.limit)
        for callback in self._callbacks:
            callback(action)


def needs_windows(profile: Profile) -> bool:
    """Whether the profile needs run-time statistics in every interval from the start: it has details, and a budget.

    What summaries cost goes with the traffic: the calm default windows do until that jumps (sampling.py).
    """
    budget = profile.budget
    keeps = budget.kernel_cpu_pct is not None or budget.ns_per_packet is not None
    has_details = any(choice.mode == "details" for choice in profile.probes.values())
    return bool(profile.escalations) or (has_details and keeps and budget.action != "warn")


def _now_s(state: State) -> float | None:
    closed = state.collector.closed_mono_ns
    return None if closed is None else closed / 1e9


def _windows_ns(state: State) -> int | None:
    """All statistics windows so far; None when nothing that is measured in them runs."""
    probes = [probe for probe in state.probes.values() if probe.measuring and probe.cost.measurable]
    windows = [program.window_ns for probe in probes for program in probe.cost.programs.values()]
    return sum(windows) if windows else None


def _reading(state: State, probe: ProbeState, share: float | None, packets_per_s: float | None) -> Reading:
    submitted = probe.cost.events.get("submitted")
    interval_ns = state.collector.interval_ns
    events = submitted.delta * 1e9 / interval_ns if submitted is not None and interval_ns else None
    if share is None or packets_per_s is None or packets_per_s < spending.MIN_PACKETS_PER_S:
        return Reading(share, events)
    return Reading(share, events, share * 1e7 / packets_per_s)
