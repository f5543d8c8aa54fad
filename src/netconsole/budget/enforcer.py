"""Keeps the budget of a live session: passes figures to the governor, carries out its decisions, and logs them.

The session calls it after every interval, in a thread of the session. Its methods may be called from any thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from netconsole.budget.forecast import describe as describe_forecast
from netconsole.budget.forecast import of_share
from netconsole.budget.governor import PATIENCE, Decision, Governor, Overhead, Reading
from netconsole.budget.ladder import Rung, ladder
from netconsole.budget.run_times import RunTimes
from netconsole.budget.sampling import CostSample, SamplingPace, counted_per_s
from netconsole.far.host import THIS_HOST, AnyHost
from netconsole.host.privileges import require
from netconsole.probes.manifest import Manifest
from netconsole.profile import spending
from netconsole.profile.plan import plan
from netconsole.profile.profile import ProbeChoice, Profile, ProfileMode
from netconsole.telemetry.action import BudgetAction, describe
from netconsole.telemetry.frames import Mode, Scalar
from netconsole.telemetry.session import Expandable, News
from netconsole.telemetry.state import ProbeState, State
from netconsole_collector.probe.config import SEEN_PCT

MAX_ACTIONS = 1000
"""Actions that are kept. A governor that acts every 10 s fills them in about three hours."""

_MEASURING = ("attached", "degraded")

Setting = tuple[ProfileMode, Mapping[str, Scalar]]


class Enforcer:
    """Keeps ``session`` within the budget of ``profile``. When the profile's time to live ends, its base takes over."""

    def __init__(
        self, session: Expandable, profile: Profile, manifests: Mapping[str, Manifest], host: AnyHost = THIS_HOST
    ) -> None:
        """``host``: the one that is measured."""
        self._host = host
        self.profile = profile
        self._session = session
        self._manifests = manifests
        self._governor = Governor(profile.budget)
        self._lock = threading.RLock()
        self._wanted: dict[str, Setting] = {}
        """What the profile asked for, or the user later."""
        self._sent: dict[str, Setting] = {}
        """What was last sent to the collector."""
        self._started: set[str] = set()
        """Probes that the user started."""
        self._pending: set[str] = set()
        self._measured: dict[str, int] = {}
        """For how long each probe had been measured at the end of the last interval, in ns. Those that the kernel does
        not measure are left out."""
        self._awaited: dict[str, int] = {}
        """Probes that are attached for another share of the time, whose figures are still those of before: how long
        they had been measured then, in ns."""
        self._started_s: float | None = None
        self._pace = SamplingPace()
        self._run_times = RunTimes()
        self._is_often = needs_windows(profile)
        """What the session was last told: whether to sample run times often."""
        self._over_per_packet = 0
        self._was_read = False
        self._read_until_s = float("-inf")
        """Until then our own CPU time is that of somebody who looks through the console."""
        self._windows_ns: int | None = None
        """Length of all statistics windows that were used so far. While it does not grow, there are no new figures."""
        self._actions: list[BudgetAction] = []
        self._callbacks: list[Callable[[BudgetAction], None]] = []
        self.give_up_first: Callable[[str], bool] | None = None
        """Called, with a reason, before a probe of the profile is lowered. True: it gave up something else."""

    def start(self) -> None:
        """Follow the session. Call this before the session starts."""
        self._bound()
        self._session.on_news(self._news)

    def leave_out(self, because: Mapping[str, str]) -> None:
        """Log the probes that were not started because of their cost."""
        for probe, why in because.items():
            self.note(BudgetAction(time.monotonic(), probe, "not started", why))

    def on_action(self, callback: Callable[[BudgetAction], None]) -> None:
        """Call ``callback`` for every action, in a thread of the session or in the caller's."""
        self._callbacks.append(callback)

    def note(self, action: BudgetAction) -> None:
        """Log an action that another part of the program took."""
        with self._lock:
            self._tell(action)

    def is_read(self) -> None:
        """Somebody looks through the console now: what that costs is no fault of what is measured."""
        self._was_read = True

    @property
    def actions(self) -> Sequence[BudgetAction]:
        """All actions so far, oldest first. ``at_s`` is CLOCK_MONOTONIC of the measured host."""
        with self._lock:
            return tuple(self._actions)

    @property
    def pinned(self) -> frozenset[str]:
        """Probes that the governor does not change."""
        return self._governor.pinned

    @property
    def lowered(self) -> tuple[str, ...]:
        """Probes that were reduced."""
        with self._lock:
            return tuple(self._governor.lowered)

    def governs(self, probe: str) -> bool:
        """Whether a probe can be pinned: it runs in the kernel, and the budget counts it."""
        with self._lock:
            return self._governor.governs(probe)

    def toggle_pin(self, probe: str) -> bool:
        """Pin a probe: restore it and do not change it any more. Or unpin it. False: it is not governed."""
        with self._session.view() as state:
            at_s = _now_s(state) or 0.0
        with self._lock:
            governor = self._governor
            move = governor.unpin(probe, at_s) if probe in governor.pinned else governor.pin(probe, at_s)
            if move is not None:
                self._carry_out([move])
        return move is not None

    def forecast_now(
        self, manifest: Manifest, mode: Mode, knobs: Mapping[str, Scalar] | None = None
    ) -> tuple[str, str | None]:
        """What a probe would cost in a mode, in one line, and the limit that it would exceed with all others that run.

        Counts the calls of its hooks for half a second. Raises Unable when this host cannot do that.
        """
        from netconsole.budget.forecaster import excess_beside, forecast_now, running_times

        with self._session.view() as state:
            running = {manifest.name: running_times(state, manifest.name)}
        (found,) = forecast_now([(manifest, mode)], running, self._host).forecasts
        one = of_share(found, knobs or {})
        with self._session.view() as state:
            return describe_forecast(one), excess_beside(state, one, self.profile.budget)

    def begin(self, manifest: Manifest, choice: ProbeChoice) -> Future[None]:
        """Start a probe that the session lacks, as if the profile contained it. From then on it is governed too.

        Raises Unable when we lack the privileges that it needs.
        """
        chosen = replace(self.profile, probes={manifest.name: choice})
        (request,) = plan(chosen, self._manifests)
        if self._host.about is None:
            require([request])
        with self._session.view() as state:
            at_s = _now_s(state) or 0.0
        self._started.add(manifest.name)
        self.note(BudgetAction(at_s, manifest.name, f"started in mode {request.mode}", "the user asked for it"))
        return self._session.load(request)

    # ---- every interval ----

    def _news(self, news: News) -> None:
        if news != "interval":
            return
        with self._session.view() as state:
            at_s = _now_s(state)
            packets_per_s = spending.packets_per_s(state)
            pcts = {name: self._cpu_pct(probe) for name, probe in state.probes.items() if probe.measuring}
            awaits_figures = any(name in self._awaited for name in pcts)
            measured = {name: _measured_ns(probe) for name, probe in state.probes.items() if probe.cost.measurable}
            is_new = {name: ns != self._measured.get(name) for name, ns in measured.items()}
            readings = {
                name: replace(_reading(state, state.probes[name], pct, packets_per_s), is_new=is_new.get(name, True))
                for name, pct in pcts.items()
                if name in self._manifests
            }
            kernel_pct = sum(pct for pct in pcts.values() if pct is not None)
            spent = spending.spendings(state, self.profile.budget, kernel_pct)
            over = {one.name for one in spent if one.word == "over"}
            kb = spending.memory_kb(state)
            overheads: dict[Overhead, float | None] = {
                "user_cpu_pct": None if self._looks(at_s) else spending.user_cpu_pct(state),
                "memory_mb": None if kb is None else kb / 1024,
            }
            windows_ns = _windows_ns(state)
            has_window = windows_ns is None or windows_ns != self._windows_ns
            samples = {
                name: CostSample(counted_per_s(probe, self._manifests[name]), probe.kernel_cpu_pct, has_window)
                for name, probe in state.probes.items()
                if name in readings and probe.cost.measurable and self._manifests[name].source == "bpf"
            }
            found = {name: (probe.status, probe.mode, dict(probe.knobs)) for name, probe in state.probes.items()}
        if at_s is None or self._is_given_up(over):
            return
        with self._lock:
            self._measured = measured
            self._started_s = at_s if self._started_s is None else self._started_s
            for name, (status, mode, knobs) in found.items():
                if name in self._manifests and self._manifests[name].source == "bpf" and name not in self._pending:
                    self._see(name, status, mode, knobs, at_s)
            if self.profile.ttl_s is not None and at_s - self._started_s >= self.profile.ttl_s:
                self._expire(at_s)
            elif has_window:
                self._windows_ns = windows_ns
                self._carry_out(self._governor.observe(at_s, readings, overheads, may_raise=not awaits_figures))
            has_details = any(status in _MEASURING and mode == "details" for status, mode, _ in found.values())
            self._pace_sampling(at_s, samples, packets_per_s, has_details)

    def _looks(self, at_s: float | None) -> bool:
        """Whether somebody has looked through the console in the time of which our CPU time is the median."""
        if at_s is None:
            return False
        if self._was_read:
            self._was_read, self._read_until_s = False, at_s + spending.STEADY_INTERVALS
        return at_s < self._read_until_s

    def _cpu_pct(self, probe: ProbeState) -> float | None:
        """What it costs; None until there is a figure since it is to be attached for another share of the time."""
        pct = self._run_times.cpu_pct(probe)
        if probe.cost.measurable and self._awaited.get(probe.name, -1) == _measured_ns(probe):
            return None
        self._awaited.pop(probe.name, None)
        return pct

    def _pace_sampling(
        self, at_s: float, samples: Mapping[str, CostSample], packets_per_s: float | None, has_details: bool
    ) -> None:
        """Sample run times often while there are details, and as soon as the cost of summaries may have jumped."""
        limit_pct = spending.kernel_limit_pct(self.profile.budget, packets_per_s)
        is_often = needs_windows(self.profile)
        if limit_pct is not None and self.profile.budget.action != "warn":
            is_often |= has_details or self._pace.is_often(at_s, samples, limit_pct)
        if is_often != self._is_often:
            self._is_often = is_often
            self._session.sample_often(is_often)

    def _is_given_up(self, over: set[spending.Limit]) -> bool:
        """Whether an escalation was given up, because a limit that probes have a share in is exceeded.

        A low packet rate may explain an excess per packet. So it is allowed for some intervals, as in the governor.
        """
        self._over_per_packet = self._over_per_packet + 1 if "ns_per_packet" in over else 0
        is_over = over & {"kernel_cpu_pct", "events_per_s"} or self._over_per_packet > PATIENCE
        return bool(is_over) and self.give_up_first is not None and self.give_up_first("the budget is exceeded")

    def _see(self, name: str, status: str, mode: ProfileMode, knobs: dict[str, Scalar], at_s: float) -> None:
        """Compare a probe with what was last sent to it: it may be new, gone, or changed by the user."""
        if status not in _MEASURING:
            asked = self._sent.get(name)
            if asked is not None and asked[0] != "off" and status != "compiling":
                self._governor.remove(name)
                del self._sent[name]
            return
        asked = self._sent.get(name)
        if asked == (mode, knobs):
            return
        self._sent[name] = self._wanted[name] = (mode, knobs)
        self._govern(name, (mode, knobs), self._is_pinned_by_profile(name))
        if asked is not None:
            self._tell(BudgetAction(at_s, name, f"now in mode {mode}", "the user changed it"))

    def _carry_out(self, moves: Sequence[Decision]) -> None:
        for move in moves:
            if move.rung is not None:
                self._pace.changed(move.action.at_s)
                setting = self._wanted[move.action.probe]
                asked = (move.rung.mode, {**setting[1], **move.rung.knobs})
                # Not from the session's state: who holds that may ask for something here, and wait for this lock.
                if SEEN_PCT in move.rung.knobs and move.action.probe in self._measured:
                    self._awaited[move.action.probe] = self._measured[move.action.probe]
                # A probe that runs as it was asked for needs no reason.
                is_as_asked = move.is_own or asked == setting
                self._send(move.action.probe, asked, None if is_as_asked else describe(move.action))
            self._tell(move.action)

    def _send(self, probe: str, setting: Setting, why: str | None) -> None:
        mode, knobs = setting
        was = self._sent.get(probe)
        self._sent[probe] = setting
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
                # The next figures show how it is now. Its ladder starts again from there.
                self._sent.pop(probe, None)
                self._governor.remove(probe)
                at_s = self._actions[-1].at_s if self._actions else 0.0
                self._tell(BudgetAction(at_s, probe, "could not be changed", str(error)))

    def _expire(self, at_s: float) -> None:
        """The profile's time to live has ended: return to the profile that it inherits from."""
        base = self.profile.base
        if base is None:
            return
        pinned_by_user = {name for name in self.pinned if not self._is_pinned_by_profile(name)}
        because = f"profile {self.profile.name} was for {self.profile.ttl_s:g} s"
        self.profile = base
        self._bound()
        wanted = {request.name: request for request in plan(base, self._manifests)}
        self._governor = Governor(base.budget)
        for name in [*self._sent]:
            if name in pinned_by_user | self._started:
                setting = self._wanted[name]
            else:
                setting = (wanted[name].mode, wanted[name].knobs) if name in wanted else ("off", {})
            self._wanted[name] = setting
            pinned = name in pinned_by_user or self._is_pinned_by_profile(name)
            self._govern(name, setting, pinned)
            if setting != self._sent[name]:
                self._send(name, setting, because)
                self._tell(BudgetAction(at_s, name, setting[0] if setting[0] != "off" else "detached", because))
        self._tell(BudgetAction(at_s, "", f"now profile {base.name}", because))

    def _govern(self, name: str, setting: Setting, pinned: bool) -> None:
        is_kept, own_pct = name in self.profile.keep, self._own_pct(name, setting[0])
        self._governor.add(name, self._ladder(name, setting), pinned, is_kept, own_pct)

    def _ladder(self, name: str, setting: Setting) -> tuple[Rung, ...]:
        manifest = self._manifests[name]
        counts_by_fewer = any("counters" not in one.modes for one in manifest.programs)
        return ladder(*setting, manifest.modes, counts_by_fewer, name in self.profile.keep)

    def _bound(self) -> None:
        """Have the kernel limit the details of each probe too. That works also when user space does not run."""
        budget = self.profile.budget
        self._session.bound(None if budget.action == "warn" else budget.kernel_cpu_pct)

    def _own_pct(self, name: str, mode: ProfileMode) -> float | None:
        """The limit that the profile gives a probe alone; None in another mode than summary, which the user chose."""
        choice = self.profile.probes.get(name)
        return choice.kernel_cpu_pct if choice is not None and mode == "summary" else None

    def _is_pinned_by_profile(self, name: str) -> bool:
        return name in self.profile.probes and self.profile.probes[name].pin

    def _tell(self, action: BudgetAction) -> None:
        self._actions.append(action)
        del self._actions[:-MAX_ACTIONS]
        self._session.say_action(action.probe, action.action, action.because, action.measured, action.limit)
        for callback in self._callbacks:
            callback(action)


def needs_windows(profile: Profile) -> bool:
    """Whether the profile needs run-time statistics in every interval from the start: it has details and a budget.

    The cost of summaries follows the traffic. For them a window every 5 s is enough until the traffic jumps
    (sampling.py).
    """
    budget = profile.budget
    keeps = budget.kernel_cpu_pct is not None or budget.ns_per_packet is not None
    has_details = any(choice.mode == "details" for choice in profile.probes.values())
    return bool(profile.escalations) or (has_details and keeps and budget.action != "warn")


def _now_s(state: State) -> float | None:
    closed = state.collector.closed_mono_ns
    return None if closed is None else closed / 1e9


def _windows_ns(state: State) -> int | None:
    """Length of all statistics windows so far; None when no probe is measured in them."""
    probes = [probe for probe in state.probes.values() if probe.measuring and probe.cost.measurable]
    windows = [program.window_ns for probe in probes for program in probe.cost.programs.values()]
    return sum(windows) if windows else None


def _measured_ns(probe: ProbeState) -> int:
    """For how long a probe's programs have been measured so far."""
    return max((program.window_ns for program in probe.cost.programs.values()), default=0)


def _reading(state: State, probe: ProbeState, share: float | None, packets_per_s: float | None) -> Reading:
    submitted = probe.cost.events.get("submitted")
    interval_ns = state.collector.interval_ns
    events = submitted.delta * 1e9 / interval_ns if submitted is not None and interval_ns else None
    if events is not None and probe.mode != "details":
        events = 0.0  # those that still come are of the mode that it has left
    if share is None or packets_per_s is None or packets_per_s < spending.MIN_PACKETS_PER_S:
        return Reading(share, events)
    return Reading(share, events, share * 1e7 / packets_per_s)
