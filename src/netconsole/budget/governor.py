"""Decides what to give up when measuring costs more than its budget, and when to restore it (docs/design/governor.md).

It reads no clock, no kernel and no session: figures and times come in, decisions go out. The same figures give the same
decisions. :mod:`netconsole.budget.enforcer` carries them out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from netconsole.budget.ladder import Rung
from netconsole.profile.profile import Budget
from netconsole.telemetry.action import BudgetAction
from netconsole_collector.probe.config import SEEN_PCT

Limited: TypeAlias = Literal["kernel_cpu_pct", "ns_per_packet", "events_per_s"]
"""Limits that every probe has a share in. They are kept by reducing the most expensive probe."""
Overhead: TypeAlias = Literal["user_cpu_pct", "memory_mb"]
"""Limits of our own processes. No probe has a measured share, so an excess is reported, or stops everything."""

SETTLE_S = 10.0
"""A probe is restored at the earliest so long after its last change, and only if there was room all that time."""
MAX_SETTLE_S = 80.0
"""The settling time doubles after every relapse, up to this."""
RELAPSE_S = 30.0
"""It is a relapse when a probe must be reduced again within this time after it was restored."""
REACTION_S = 4.0
"""With figures every second, the budget is met again after this time, whatever the steps really save."""
PATIENCE = 2
"""How many times in a row the expected savings are trusted. After that a probe is detached, because that is certain."""
AIM = 0.9
"""The cost to reach when something is given up, as a share of the limit. Figures of single windows vary."""
ROOM = 0.6
"""A probe is restored up to this share of the limit. It is well below AIM, to avoid going up and down."""
BURST = 1.25
"""Events may exceed their limit by this factor for a short time: the kernel's token bucket can save up the events of a
quarter of a second (docs/design/collector.md)."""
OVERHEAD_AFTER = 10
"""Intervals in a row over the limit before the cost of our processes is reported. Starting up takes fewer."""
MACHINE = 5.0
"""A probe that the profile keeps is detached only above so many times the limit: then the machine is protected."""
SURE = 2
"""Figures in a row above a limit before a probe is detached: a single one may be of a machine that is overloaded."""
BLIND_S = 0.5
"""Figures that come so soon after an action were measured before it."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one probe costs now. None is unknown."""

    kernel_cpu_pct: float | None = None
    """In-kernel time, percent of one core."""
    events_per_s: float | None = None
    """Events submitted."""
    ns_per_packet: float | None = None
    """In-kernel time per packet that the kernel receives; None also when there are too few packets."""
    is_new: bool = True
    """Whether the in-kernel time was measured since the last reading: windows of probes end at different times."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A probe goes to a rung. Without a rung, the action is only a message."""

    action: BudgetAction
    rung: Rung | None = None
    is_own: bool = False
    """The budget takes nothing of the probe: it is as its own limit wants it, or nearer to what was asked for."""


@dataclass(slots=True)
class _Position:
    """Where a probe is on its ladder, and since when."""

    ladder: tuple[Rung, ...]
    pinned: bool = False
    kept: bool = False
    """The profile is for it: it gives up last, and is not detached to keep the budget."""
    own_pct: float | None = None
    """Above so many percent of one core it alone takes a share of the time."""
    own_over: int = 0
    """Figures in a row above that."""
    asked: int = 0
    """The rung that its own limit asks for."""
    at: int = 0
    moved_s: float | None = None
    room_since_s: float | None = None
    settle_s: float = SETTLE_S
    raised_s: float | None = None

    @property
    def rung(self) -> Rung:
        return self.ladder[self.at]

    @property
    def lowest(self) -> int:
        """The last rung that a budget may bring it to."""
        return max(self.at, len(self.ladder) - 1 - self.kept)


class Governor:
    """Keeps one budget. Call :meth:`observe` every interval. Not thread-safe."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._probes: dict[str, _Position] = {}
        self._over: dict[Limited | Overhead, int] = {}
        self._far_over = 0
        """Figures in a row above MACHINE times the limit of kernel time."""
        self._told: set[Limited | Overhead] = set()
        self._acted_s: float | None = None
        self._stopped = False

    def add(
        self,
        probe: str,
        rungs: Sequence[Rung],
        pinned: bool = False,
        kept: bool = False,
        own_pct: float | None = None,
    ) -> None:
        """Add a probe as it was asked for, or as the user has just changed it. Its ladder starts there.

        ``own_pct``: above so many percent of one core it takes a share of the time, whatever the budget is.
        """
        position = self._probes.get(probe)
        self._probes[probe] = _Position(tuple(rungs), position.pinned if position else pinned, kept, own_pct)

    def remove(self, probe: str) -> None:
        """Forget a probe that somebody else removed."""
        self._probes.pop(probe, None)

    def rung(self, probe: str) -> Rung | None:
        """The rung of a probe; None for one that is not governed."""
        position = self._probes.get(probe)
        return position.rung if position else None

    @property
    def lowered(self) -> dict[str, Rung]:
        """The probes that the budget reduced. One that keeps its own limit is as the profile wants it."""
        return {name: one.rung for name, one in self._probes.items() if one.at > one.asked}

    @property
    def pinned(self) -> frozenset[str]:
        """The probes that are not changed."""
        return frozenset(name for name, one in self._probes.items() if one.pinned)

    def governs(self, probe: str) -> bool:
        """Whether it may change this probe, or did before the probe was pinned."""
        return probe in self._probes

    def pin(self, probe: str, at_s: float) -> Decision | None:
        """Restore a probe, and do not change it again, whatever it costs. None for one that is not governed."""
        position = self._probes.get(probe)
        if position is None:
            return None
        position.pinned = True
        lowered, position.at, position.asked = position.at > 0, 0, 0
        self._note_move(position, at_s)
        says = f"back to {position.rung.says}, and pinned" if lowered else "pinned"
        return Decision(BudgetAction(at_s, probe, says, "the user asked for it"), position.rung if lowered else None)

    def unpin(self, probe: str, at_s: float) -> Decision | None:
        """The governor may change the probe again; None for one that is not governed."""
        position = self._probes.get(probe)
        if position is None:
            return None
        position.pinned = False
        self._over.clear()  # reducing this probe has not been tried yet
        return Decision(BudgetAction(at_s, probe, "no longer pinned", "the user asked for it"))

    def observe(
        self,
        at_s: float,
        readings: Mapping[str, Reading],
        overheads: Mapping[Overhead, float | None] | None = None,
        may_raise: bool = True,
    ) -> list[Decision]:
        """Take the figures of an interval and return what to do. The governor assumes that it is done.

        ``may_raise``: False while a probe has no figure of its present setting: how much room there is, is not known.
        """
        if self._acted_s is not None and at_s - self._acted_s < BLIND_S:
            return []
        moves: list[Decision] = []
        is_over = False
        for limited, limit in self._limits():
            costs = {name: _cost(reading, limited) for name, reading in readings.items()}
            total = _total(costs.values())
            if total is None:
                continue
            if limited == "kernel_cpu_pct":
                self._far_over = self._far_over + 1 if total > MACHINE * limit else 0
            if total > limit:
                is_over = True
                self._over[limited] = self._over.get(limited, 0) + 1
                if self._may_be_a_burst(limited, total, limit):
                    continue
                # Only one limit at a time: what is given up for the first may be enough for the second.
                moves = moves or self._exceeded(at_s, limited, costs, total, limit)
            else:
                self._over[limited] = 0
                if limited in self._told and total <= AIM * limit:
                    self._told.discard(limited)
                    moves.append(
                        Decision(BudgetAction(at_s, "", "within the budget again", _WORDS[limited], total, limit))
                    )
        if not is_over:
            moves += self._keep_own_limits(at_s, readings)
        moves += self._check_overheads(at_s, overheads or {})
        raised = self._raise(at_s, readings, is_allowed=may_raise and not is_over and not self._stopped)
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
        """Whether an excess is allowed for now: a small one of events, or any per packet (packets may be few)."""
        if limited == "kernel_cpu_pct" or self._over[limited] > PATIENCE:
            return False
        return limited == "ns_per_packet" or total <= BURST * limit

    def _check_overheads(self, at_s: float, overheads: Mapping[Overhead, float | None]) -> list[Decision]:
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
                says = "over the budget; a smaller profile or fewer probes would cost less"
                moves += self._tell(at_s, name, measured, limit, says)
        return moves

    def _exceeded(
        self, at_s: float, limited: Limited, costs: Mapping[str, float | None], total: float, limit: float
    ) -> list[Decision]:
        if self._budget.action == "warn":
            return self._tell(at_s, limited, total, limit, "over the budget, and the profile only warns")
        if self._budget.action == "stop":
            return self._stop(at_s, limited, total, limit)
        targets = self._targets(limited, costs, limit)
        if limited == "kernel_cpu_pct" and self._far_over > PATIENCE:
            targets = {name: len(self._probes[name].ladder) - 1 for name in self._movable(costs)}
        moves = []
        for name, at in targets.items():
            position = self._probes[name]
            if self._over[limited] < SURE and position.ladder[at].mode == "off":
                at -= 1
            if at == position.at:
                continue
            self._lower(position, at, at_s)
            moves.append(
                Decision(BudgetAction(at_s, name, position.rung.says, _WORDS[limited], total, limit), position.rung)
            )
        left = sum(cost or 0.0 for name, cost in costs.items() if name not in targets)
        if left > limit:
            pinned = sorted(name for name in self.pinned if costs.get(name))
            why = f"what costs is pinned ({', '.join(pinned)})" if pinned else "nothing more can be given up"
            moves += self._tell(at_s, limited, total, limit, f"over the budget, and {why}")
        return moves

    def _targets(self, limited: Limited, costs: Mapping[str, float | None], limit: float) -> dict[str, int]:
        """The new rung of each probe that must go down, until the expected sum fits.

        The most expensive first, and those that the profile keeps after all others.
        """
        expected = {name: cost or 0.0 for name, cost in costs.items()}
        is_doubtful = self._over[limited] > PATIENCE
        targets: dict[str, int] = {}
        while sum(expected.values()) > AIM * limit:
            free = [
                name
                for name in self._movable(costs)
                if expected[name] > 0 and targets.get(name, self._probes[name].at) < self._probes[name].lowest
            ]
            if not free:
                break
            costliest = max(free, key=lambda name: (not self._probes[name].kept, expected[name], name))
            position = self._probes[costliest]
            at = targets[costliest] = targets.get(costliest, position.at) + 1
            share = _share(position.ladder[at], limited)
            if not is_doubtful or not share:
                now = _share(position.rung, limited)
                expected[costliest] = (costs[costliest] or 0.0) * (share / now if now else 0.0)
        return targets

    def _keep_own_limits(self, at_s: float, readings: Mapping[str, Reading]) -> list[Decision]:
        """Attach those for a share of the time that alone cost more than the profile lets them."""
        moves: list[Decision] = []
        if self._budget.action != "degrade" or self._stopped:
            return moves
        for name, position in self._probes.items():
            reading = readings.get(name, Reading())
            cost = reading.kernel_cpu_pct
            if position.own_pct is None or position.pinned or cost is None or not reading.is_new:
                continue
            position.own_over = position.own_over + 1 if cost > position.own_pct else 0
            shares = [at for at, rung in enumerate(position.ladder) if at > position.at and SEEN_PCT in rung.knobs]
            if position.own_over < SURE or not shares:
                continue
            whole = cost / position.rung.kernel_share
            fits = (at for at in shares if whole * position.ladder[at].kernel_share <= AIM * position.own_pct)
            position.asked = next(fits, shares[-1])
            self._lower(position, position.asked, at_s)
            action = BudgetAction(at_s, name, position.rung.says, _OWN_WORDS, cost, position.own_pct)
            moves.append(Decision(action, position.rung, is_own=True))
        return moves

    def _lower(self, position: _Position, at: int, at_s: float) -> None:
        position.at, position.own_over = at, 0
        if position.raised_s is not None and at_s - position.raised_s < RELAPSE_S:
            position.settle_s = min(MAX_SETTLE_S, position.settle_s * 2)
        self._note_move(position, at_s)

    def _movable(self, costs: Mapping[str, float | None]) -> list[str]:
        """Those that cost something and may be changed."""
        return [
            name
            for name, cost in costs.items()
            if cost and (position := self._probes.get(name)) is not None and not position.pinned
        ]

    def _stop(self, at_s: float, limited: Limited | Overhead, total: float, limit: float) -> list[Decision]:
        if self._over[limited] < PATIENCE:  # a single window may be an outlier, and a stop is final
            return []
        moves = []
        for name, position in self._probes.items():
            if not position.pinned and position.rung.mode != "off":
                position.at = len(position.ladder) - 1
                self._note_move(position, at_s)
                moves.append(
                    Decision(BudgetAction(at_s, name, "stopped", _WORDS[limited], total, limit), position.rung)
                )
        self._stopped = self._stopped or bool(moves)
        return moves or self._tell(at_s, limited, total, limit, "over the budget, and what costs is pinned")

    def _tell(self, at_s: float, limited: Limited | Overhead, total: float, limit: float, says: str) -> list[Decision]:
        """Report once each time that the limit becomes exceeded."""
        if limited in self._told:
            return []
        self._told.add(limited)
        return [Decision(BudgetAction(at_s, "", says, _WORDS[limited], total, limit))]

    # ---- up ----

    def _raise(self, at_s: float, readings: Mapping[str, Reading], is_allowed: bool) -> list[Decision]:
        """Restore a probe when there was room for it during its settling time: one at a time.

        Those that the profile keeps first, then the cheapest.
        """
        ready: list[tuple[bool, float, str, int]] = []
        for name, position in self._probes.items():
            if position.pinned or not position.at:
                continue
            # A probe that was restored and is still compiling cannot be changed, and its cost is not known.
            is_there = name in readings or position.rung.mode == "off"
            found = self._room(name, position, readings) if is_allowed and is_there else None
            if found is None:
                position.room_since_s = None
                continue
            if position.room_since_s is None:
                position.room_since_s = at_s
            since_s = max(position.room_since_s, position.moved_s or 0.0)
            if at_s - since_s >= position.settle_s:
                ready.append((not position.kept, found[1], name, found[0]))
        if not ready:
            return []
        _, _, name, at = min(ready)
        position = self._probes[name]
        position.at, position.asked = at, min(at, position.asked)
        self._note_move(position, at_s)
        because = f"there was room for {position.settle_s:g} s; {_WORDS['kernel_cpu_pct']}"
        if position.raised_s is not None and at_s - position.raised_s > RELAPSE_S + position.settle_s:
            position.settle_s = SETTLE_S
        position.raised_s = at_s
        total = _total(_cost(reading, "kernel_cpu_pct") for reading in readings.values())
        limit = self._budget.kernel_cpu_pct
        says = f"back to {position.rung.mode}" if at == 0 else f"partly back: {position.rung.says}"
        action = BudgetAction(at_s, name, says, because, total, limit)
        return [Decision(action, position.rung, is_own=at == position.asked)]

    def _room(self, name: str, position: _Position, readings: Mapping[str, Reading]) -> tuple[int, float] | None:
        """The highest rung that is expected to fit, and the in-kernel time it would add; None when none fits.

        The cost of a detached probe cannot be estimated. So it goes up by one rung only.
        """
        highest = position.at - 1 if position.rung.mode == "off" else 0
        for at in range(highest, position.at):
            added = 0.0
            for limited, limit in self._limits():
                costs = {other: _cost(reading, limited) for other, reading in readings.items()}
                now = _share(position.rung, limited)
                # The knob limits events in the kernel. How many there will be is not known before.
                growth = (costs.get(name) or 0.0) * (_share(position.ladder[at], limited) / now - 1) if now else 0.0
                if (_total(costs.values()) or 0.0) + growth > ROOM * limit and (
                    growth > 0 or limited != "events_per_s"
                ):
                    break
                own = position.own_pct if limited == "kernel_cpu_pct" else None
                if own is not None and (costs.get(name) or 0.0) + growth > ROOM * own:
                    break
                added += growth if limited == "kernel_cpu_pct" else 0.0
            else:
                return at, added
        return None

    def _note_move(self, position: _Position, at_s: float) -> None:
        position.moved_s, position.room_since_s = at_s, None


_OWN_WORDS = "kernel time of this probe, % of one core"
_WORDS: dict[Limited | Overhead, str] = {
    "kernel_cpu_pct": "kernel time of all probes, % of one core",
    "ns_per_packet": "kernel time of all probes, ns per received packet",
    "user_cpu_pct": "CPU of console and collector, % of one core",
    "memory_mb": "memory of console and collector, MB",
    "events_per_s": "rate of all events, per second",
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
