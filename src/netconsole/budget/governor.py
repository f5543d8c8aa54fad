"""Decides what to give up when watching costs more than its budget, and when to take it back (docs/design/governor.md).

Nothing here reads a clock, the kernel or a session: figures and times come in, moves go out, and the same figures give
the same moves. :mod:`netconsole.budget.enforcer` carries them out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from netconsole.budget.ladder import Rung
from netconsole.profile.profile import Budget
from netconsole.telemetry.action import BudgetAction

Limited: TypeAlias = Literal["kernel_cpu_pct", "ns_per_packet", "events_per_s"]
"""What every probe has a share in: it is kept by giving up some of the dearest one."""
Overhead: TypeAlias = Literal["user_cpu_pct", "memory_mb"]
"""What our processes take: no probe has a measured share in it. It is said, or ends the profile that asks for that."""

SETTLE_S = 10.0
"""Nothing is taken back sooner than this after the last change of a probe, and only if there was room all the while."""
MAX_SETTLE_S = 80.0
"""The settling time doubles up to this when what was taken back had to be given up again soon."""
RELAPSE_S = 30.0
"""What has to be given up so soon after it was taken back is a relapse."""
REACTION_S = 4.0
"""With figures every second the budget is met again after so long, whatever the steps really save."""
PATIENCE = 2
"""So many times in a row the expected savings are believed; then only detaching is, for that is sure."""
AIM = 0.9
"""Where to, as a share of the limit, when something is given up: figures are measured in windows, and scatter."""
ROOM = 0.6
"""Up to this share of the limit, something is taken back: well below AIM, so that it does not swing."""
BURST = 1.25
"""A burst is allowed: the kernel's token buckets save up a quarter of a second's events (docs/design/collector.md)."""
OVERHEAD_AFTER = 10
"""Intervals in a row before what our processes take counts: starting up is dear, and over by then."""
BLIND_S = 0.5
"""Figures that come so soon after a move are of the time before it."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one probe costs now. None is unknown."""

    kernel_cpu_pct: float | None = None
    """In-kernel time, percent of one core."""
    events_per_s: float | None = None
    """Events submitted."""
    ns_per_packet: float | None = None
    """In-kernel time for each packet that the kernel takes in; None also when there are hardly any."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A probe goes to a rung. Without one the action only says something."""

    action: BudgetAction
    rung: Rung | None = None


@dataclass(slots=True)
class _Standing:
    """Where a probe is on its ladder, and since when."""

    ladder: tuple[Rung, ...]
    pinned: bool = False
    at: int = 0
    moved_s: float | None = None
    room_since_s: float | None = None
    settle_s: float = SETTLE_S
    raised_s: float | None = None

    @property
    def rung(self) -> Rung:
        return self.ladder[self.at]


class Governor:
    """Keeps one budget. Feed it every interval; not thread-safe."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._probes: dict[str, _Standing] = {}
        self._over: dict[Limited | Overhead, int] = {}
        self._told: set[Limited | Overhead] = set()
        self._acted_s: float | None = None
        self._stopped = False

    def add(self, probe: str, rungs: Sequence[Rung], pinned: bool = False) -> None:
        """A probe as it was asked for, or as the user has just changed it: its ladder begins there."""
        standing = self._probes.get(probe)
        self._probes[probe] = _Standing(tuple(rungs), standing.pinned if standing else pinned)

    def remove(self, probe: str) -> None:
        """A probe that is not there any more, by somebody else's will."""
        self._probes.pop(probe, None)

    def rung(self, probe: str) -> Rung | None:
        """Where a probe stands; None for one that is not governed."""
        standing = self._probes.get(probe)
        return standing.rung if standing else None

    @property
    def lowered(self) -> dict[str, Rung]:
        """The probes that are not as they were asked for."""
        return {name: one.rung for name, one in self._probes.items() if one.at}

    @property
    def pinned(self) -> frozenset[str]:
        """The probes that are left alone."""
        return frozenset(name for name, one in self._probes.items() if one.pinned)

    def pin(self, probe: str, at_s: float) -> Decision | None:
        """The user wants a probe as it was asked for, whatever it costs; None for one that is not governed."""
        standing = self._probes.get(probe)
        if standing is None:
            return None
        standing.pinned = True
        lowered, standing.at = standing.at > 0, 0
        self._note_move(standing, at_s)
        says = f"back to {standing.rung.says}, and pinned" if lowered else "pinned"
        return Decision(BudgetAction(at_s, probe, says, "the user asked for it"), standing.rung if lowered else None)

    def unpin(self, probe: str, at_s: float) -> Decision | None:
        """The governor may change the probe again; None for one that is not governed."""
        standing = self._probes.get(probe)
        if standing is None:
            return None
        standing.pinned = False
        self._over.clear()  # what it may save has not been tried yet
        return Decision(BudgetAction(at_s, probe, "no longer pinned", "the user asked for it"))

    def observe(
        self, at_s: float, readings: Mapping[str, Reading], overheads: Mapping[Overhead, float | None] | None = None
    ) -> list[Decision]:
        """The figures of an interval. Returns what to do; the governor reckons with its being done."""
        if self._acted_s is not None and at_s - self._acted_s < BLIND_S:
            return []
        moves: list[Decision] = []
        is_over = False
        for limited, limit in self._limits():
            costs = {name: _cost(reading, limited) for name, reading in readings.items()}
            total = _total(costs.values())
            if total is None:
                continue
            if total > limit:
                is_over = True
                self._over[limited] = self._over.get(limited, 0) + 1
                if self._may_be_a_burst(limited, total, limit):
                    continue
                # One limit at a time: what is given up for the first may be enough for the second.
                moves = moves or self._exceeded(at_s, limited, costs, total, limit)
            else:
                self._over[limited] = 0
                if limited in self._told and total <= AIM * limit:
                    self._told.discard(limited)
                    moves.append(
                        Decision(BudgetAction(at_s, "", "within the budget again", _WORDS[limited], total, limit))
                    )
        moves += self._keep_overheads(at_s, overheads or {})
        raised = self._raise(at_s, readings, may=not is_over and not self._stopped)
        moves += raised
        if any(move.rung for move in moves):
            self._acted_s = at_s
        return moves

    # ---- down ----

    def _limits(self) -> list[tuple[Limited, float]]:
        budget = self._budget
        all_of_them: list[tuple[Limited, float | None]] = [
            ("kernel_cpu_pct", budget.kernel_cpu_pct),
            ("ns_per_packet", budget.ns_per_packet),
            ("events_per_s", budget.events_per_s),
        ]
        return [(name, limit) for name, limit in all_of_them if limit is not None]

    def _may_be_a_burst(self, limited: Limited, total: float, limit: float) -> bool:
        """Whether an excess is borne for now: of events a small one, per packet one that few packets may explain."""
        if limited == "kernel_cpu_pct" or self._over[limited] > PATIENCE:
            return False
        return limited == "ns_per_packet" or total <= BURST * limit

    def _keep_overheads(self, at_s: float, overheads: Mapping[Overhead, float | None]) -> list[Decision]:
        moves: list[Decision] = []
        limits: dict[Overhead, float | None] = {
            "user_cpu_pct": self._budget.user_cpu_pct,
            "memory_mb": self._budget.memory_mb,
        }
        for name, limit in limits.items():
            measured = overheads.get(name)
            if limit is None or measured is None:
                continue
            if measured <= limit:
                self._over[name] = 0
                self._told.discard(name)
                continue
            self._over[name] = self._over.get(name, 0) + 1
            if self._over[name] < OVERHEAD_AFTER:
                continue
            if self._budget.action == "stop":
                moves += self._stop(at_s, name, measured, limit)
            else:
                says = "over the budget; take a smaller profile or fewer probes (no probe has a measured share in this)"
                moves += self._tell(at_s, name, measured, limit, says)
        return moves

    def _exceeded(
        self, at_s: float, limited: Limited, costs: Mapping[str, float | None], total: float, limit: float
    ) -> list[Decision]:
        if self._budget.action == "warn":
            return self._tell(at_s, limited, total, limit, "over the budget; the profile only asks for a warning")
        if self._budget.action == "stop":
            return self._stop(at_s, limited, total, limit)
        targets = self._targets(limited, costs, limit)
        moves = []
        for name, at in targets.items():
            standing = self._probes[name]
            standing.at = at
            if standing.raised_s is not None and at_s - standing.raised_s < RELAPSE_S:
                standing.settle_s = min(MAX_SETTLE_S, standing.settle_s * 2)
            self._note_move(standing, at_s)
            moves.append(
                Decision(BudgetAction(at_s, name, standing.rung.says, _WORDS[limited], total, limit), standing.rung)
            )
        left = sum(cost or 0.0 for name, cost in costs.items() if name not in targets)
        if left > limit:
            held = sorted(name for name in self.pinned if costs.get(name))
            why = f"only pinned probes are left: {', '.join(held)}" if held else "nothing more can be given up"
            moves += self._tell(at_s, limited, total, limit, f"over the budget, and {why}")
        return moves

    def _targets(self, limited: Limited, costs: Mapping[str, float | None], limit: float) -> dict[str, int]:
        """How far down which probes have to go: the dearest first, a rung at a time, until the sum should fit."""
        expected = {name: cost or 0.0 for name, cost in costs.items()}
        doubtful = self._over[limited] > PATIENCE
        targets: dict[str, int] = {}
        while sum(expected.values()) > AIM * limit:
            free = {
                name: cost
                for name, cost in expected.items()
                if cost > 0
                and (standing := self._probes.get(name)) is not None
                and not standing.pinned
                and targets.get(name, standing.at) < len(standing.ladder) - 1
            }
            if not free:
                break
            dearest = max(free, key=lambda name: (free[name], name))
            standing = self._probes[dearest]
            at = targets[dearest] = targets.get(dearest, standing.at) + 1
            share = _share(standing.ladder[at], limited)
            if not doubtful or not share:
                now = _share(standing.rung, limited)
                expected[dearest] = (costs[dearest] or 0.0) * (share / now if now else 0.0)
        return targets

    def _stop(self, at_s: float, limited: Limited | Overhead, total: float, limit: float) -> list[Decision]:
        if self._over[limited] < PATIENCE:  # a single window may be a hiccup, and stopping is for good
            return []
        moves = []
        for name, standing in self._probes.items():
            if not standing.pinned and standing.rung.mode != "off":
                standing.at = len(standing.ladder) - 1
                self._note_move(standing, at_s)
                moves.append(
                    Decision(BudgetAction(at_s, name, "stopped", _WORDS[limited], total, limit), standing.rung)
                )
        self._stopped = self._stopped or bool(moves)
        return moves or self._tell(at_s, limited, total, limit, "over the budget, and only pinned probes are left")

    def _tell(self, at_s: float, limited: Limited | Overhead, total: float, limit: float, says: str) -> list[Decision]:
        """Said once for each time that the limit is exceeded."""
        if limited in self._told:
            return []
        self._told.add(limited)
        return [Decision(BudgetAction(at_s, "", says, _WORDS[limited], total, limit))]

    # ---- up ----

    def _raise(self, at_s: float, readings: Mapping[str, Reading], may: bool) -> list[Decision]:
        """Takes back what there has been room for during the settling time; one probe at a time, the cheapest first."""
        ready: list[tuple[float, str, int]] = []
        for name, standing in self._probes.items():
            if standing.pinned or not standing.at:
                continue
            # One that has been taken back and is still compiled cannot be changed, and what it costs is not known.
            is_there = name in readings or standing.rung.mode == "off"
            found = self._room(name, standing, readings) if may and is_there else None
            if found is None:
                standing.room_since_s = None
                continue
            if standing.room_since_s is None:
                standing.room_since_s = at_s
            since_s = max(standing.room_since_s, standing.moved_s or 0.0)
            if at_s - since_s >= standing.settle_s:
                ready.append((found[1], name, found[0]))
        if not ready:
            return []
        _, name, at = min(ready)
        standing = self._probes[name]
        standing.at = at
        self._note_move(standing, at_s)
        if standing.raised_s is not None and at_s - standing.raised_s > RELAPSE_S + standing.settle_s:
            standing.settle_s = SETTLE_S
        standing.raised_s = at_s
        total = _total(_cost(reading, "kernel_cpu_pct") for reading in readings.values())
        limit = self._budget.kernel_cpu_pct
        says = f"back to {standing.rung.mode}" if at == 0 else f"partly back: {standing.rung.says}"
        because = f"low for {standing.settle_s:g} s: {_WORDS['kernel_cpu_pct']}"
        return [Decision(BudgetAction(at_s, name, says, because, total, limit), standing.rung)]

    def _room(self, name: str, standing: _Standing, readings: Mapping[str, Reading]) -> tuple[int, float] | None:
        """The highest rung that is expected to fit, and what it would add in the kernel; None without one.

        A probe that is detached measures nothing, so nothing is expected of it: it comes back one rung only.
        """
        highest = standing.at - 1 if standing.rung.mode == "off" else 0
        for at in range(highest, standing.at):
            added = 0.0
            for limited, limit in self._limits():
                costs = {other: _cost(reading, limited) for other, reading in readings.items()}
                now = _share(standing.rung, limited)
                # Events are bounded in the kernel by the knob; what they will be is not known before.
                growth = (costs.get(name) or 0.0) * (_share(standing.ladder[at], limited) / now - 1) if now else 0.0
                if (_total(costs.values()) or 0.0) + growth > ROOM * limit and (
                    growth > 0 or limited != "events_per_s"
                ):
                    break
                added += growth if limited == "kernel_cpu_pct" else 0.0
            else:
                return at, added
        return None

    def _note_move(self, standing: _Standing, at_s: float) -> None:
        standing.moved_s, standing.room_since_s = at_s, None


_WORDS: dict[Limited | Overhead, str] = {
    "kernel_cpu_pct": "kernel time of all probes, % of one core",
    "ns_per_packet": "kernel time of all probes, ns per received packet",
    "user_cpu_pct": "CPU of console and collector, % of one core",
    "memory_mb": "memory of console and collector, MB",
    "events_per_s": "events of all probes per second",
}


def _share(rung: Rung, limited: Limited) -> float:
    return rung.events_share if limited == "events_per_s" else rung.kernel_share


def _cost(reading: Reading, limited: Limited) -> float | None:
    if limited == "events_per_s":
        return reading.events_per_s
    return reading.ns_per_packet if limited == "ns_per_packet" else reading.kernel_cpu_pct


def _total(costs: Iterable[float | None]) -> float | None:
    """None when nothing is known."""
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None
