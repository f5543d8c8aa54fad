"""Where echoes were lost: each by the innermost vantage point that saw it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from netconsole.base.figure import things
from netconsole.ping.analysis.echoes import EchoKey
from netconsole.ping.analysis.merge import INWARDS, JoinedCaptures, RoleTimes
from netconsole.ping.breakdown import BreakdownCheck, Loss
from netconsole.ping.capture import Role

_NAMED = 5
_PINGING: tuple[Role, ...] = ("sender-vm", "host")
"""The machine that pings: nothing lies around it."""
_OUTCOMES = {
    "request_lost_inside": "request lost inside {role}",
    "reply_lost_inside": "reply lost inside {role}",
    "lost_outside": "lost beyond {role}",
    "timeout": "no answer came in time at {role}",
    "late": "the answer came late at {role}",
    "unfinished": "still under way at {role} when the capture ended",
}


class LocatedLosses(NamedTuple):
    """Echoes without an answer in time, by where they ended; the most frequent first."""

    losses: list[Loss]
    checks: list[BreakdownCheck]


def located(joined: JoinedCaptures) -> LocatedLosses:
    """Where echoes were lost. Who pings knows best: an echo that was answered there is not lost, whatever others lack.

    The checks say how many of these there are.
    """
    order = [role for role, times in _in_order(joined) if times.echoes or times.ended]
    found: dict[str, list[EchoKey]] = {}
    keys = {key: None for role in order for key in joined.roles[role].ended}
    unanswered_keys = [key for key in keys if not _is_answered(joined, order, key)]
    answered = len(keys) - len(unanswered_keys)
    checks = [_not_seen(answered)] if answered else []
    for key in unanswered_keys:
        found.setdefault(_where(joined, order, key), []).append(key)
    losses = [Loss(where, len(keys), [_name(key) for key in keys[:_NAMED]]) for where, keys in found.items()]
    for role, times in _in_order(joined):
        for one in times.files:
            if one.capture.packets:
                continue
            for outcome, count in one.capture.outcomes.items():
                if outcome in _OUTCOMES and count:
                    losses.append(Loss(_OUTCOMES[outcome].format(role=role), count))
    losses.sort(key=lambda loss: -loss.count)
    unanswered, most = _unanswered(joined), sum(one.count for one in losses if one.first and _is_lost(one))
    if unanswered is not None and most > unanswered:
        checks.append(_not_seen(most - unanswered))
        losses = [_unseen(one) if _is_lost(one) else one for one in losses if unanswered or not _is_lost(one)]
    return LocatedLosses(losses, checks)


def _is_answered(joined: JoinedCaptures, order: list[Role], key: EchoKey) -> bool:
    """Whether the outermost vantage point that saw it also saw its answer."""
    outermost = next(role for role in order if key in joined.roles[role].ended or key in joined.roles[role].echoes)
    return key in joined.roles[outermost].echoes and outermost in _PINGING


def _unanswered(joined: JoinedCaptures) -> int | None:
    """How many echoes had no answer, by the count of the program that sent them. None: nobody told."""
    told = [one.capture.sent for times in joined.roles.values() for one in times.files if "sent" in one.capture.sent]
    return max((max(0, one["sent"] - one.get("answered", 0)) for one in told), default=None)


def _not_seen(count: int) -> BreakdownCheck:
    detail = f"answered, though a vantage point did not see all of it, and so not lost: {things(count, 'echoes')}"
    return BreakdownCheck("answered is not lost", False, detail)


def _is_lost(loss: Loss) -> bool:
    """Whether it says that there was no answer at all."""
    return not loss.where.startswith((_OUTCOMES["late"].partition("{")[0], _OUTCOMES["unfinished"].partition("{")[0]))


def _unseen(loss: Loss) -> Loss:
    """Some of these were answered, and nobody knows which."""
    return msgspec.structs.replace(loss, where=loss.where.replace("lost", "not seen"))


def _in_order(joined: JoinedCaptures) -> list[tuple[Role, RoleTimes]]:
    return [(role, joined.roles[role]) for role in INWARDS if role in joined.roles]


def _where(joined: JoinedCaptures, order: list[Role], key: EchoKey) -> str:
    saw = [role for role in order if key in joined.roles[role].ended or key in joined.roles[role].echoes]
    innermost = saw[-1]
    row = joined.roles[innermost].ended.get(key)
    if row is None:
        # The innermost one answered: the reply was lost between it and the next that still waits for it.
        waiting = [role for role in saw if key in joined.roles[role].ended]
        return f"reply lost between {saw[saw.index(waiting[-1]) + 1]} and {waiting[-1]}"
    beyond = order[order.index(innermost) + 1 :]
    if row.outcome in ("lost_outside", "timeout") and beyond:
        return f"request lost between {innermost} and {beyond[0]}"
    return _OUTCOMES[row.outcome].format(role=innermost)


def _name(key: EchoKey) -> str:
    return f"{'' if key[0] is None else key[0]}/{key[1]}"
