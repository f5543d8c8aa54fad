"""Where echoes were lost: each by the innermost vantage point that saw it."""

from __future__ import annotations

from netconsole.ping.analysis.echoes import EchoKey
from netconsole.ping.analysis.merge import INWARDS, JoinedCaptures, RoleTimes
from netconsole.ping.breakdown import Loss
from netconsole.ping.capture import Role

_NAMED = 5
_OUTCOMES = {
    "request_lost_inside": "request lost inside {role}",
    "reply_lost_inside": "reply lost inside {role}",
    "lost_outside": "lost beyond {role}",
    "timeout": "no answer came in time at {role}",
    "late": "the answer came late at {role}",
    "unfinished": "still under way at {role} when the capture ended",
}


def located(joined: JoinedCaptures) -> list[Loss]:
    """Echoes without an answer in time, by where they ended; the most frequent first."""
    order = [role for role, times in _in_order(joined) if times.echoes or times.ended]
    found: dict[str, list[EchoKey]] = {}
    keys = {key: None for role in order for key in joined.roles[role].ended}
    for key in keys:
        found.setdefault(_where(joined, order, key), []).append(key)
    losses = [Loss(where, len(keys), [_name(key) for key in keys[:_NAMED]]) for where, keys in found.items()]
    for role, times in _in_order(joined):
        for one in times.files:
            if one.capture.packets:
                continue
            for outcome, count in one.capture.outcomes.items():
                if outcome in _OUTCOMES and count:
                    losses.append(Loss(_OUTCOMES[outcome].format(role=role), count))
    return sorted(losses, key=lambda loss: -loss.count)


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
