"""Joins the captures of one ping by echo, and says in checks what does not fit together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePath
from typing import NamedTuple, TypeVar

from netconsole.base.errors import bad
from netconsole.base.figure import things
from netconsole.ping.analysis.echoes import ROUNDING_US, WRAP, EchoKey, completed_summary, keyed, named, read
from netconsole.ping.breakdown import BreakdownCheck
from netconsole.ping.capture import (
    EchoSummary,
    EchoTimes,
    IrqSummary,
    IrqTimes,
    KickSummary,
    KickTimes,
    PingCapture,
    Role,
)

INWARDS: tuple[Role, ...] = ("sender-vm", "host", "sender-host", "receiver-host", "receiver-vm")
"""Each role's time lies within that of the roles before it."""
NO_LOSS = ("other_pings", "repeated", "duplicates", "another")
"""Entries of a ledger that count other packets than the echoes of this ping."""
MUCH = 0.9
"""Stages that were measured for this share of the echoes join them; with less they count by their means."""
T = TypeVar("T")


class CaptureFile(NamedTuple):
    """A capture, and the name of the file that it is from."""

    file: str
    capture: PingCapture


@dataclass(slots=True)
class RoleTimes:
    """What one vantage point measured, from one file or several that complete each other."""

    role: Role
    files: list[CaptureFile]
    echoes: dict[EchoKey, EchoTimes] = field(default_factory=dict)
    ended: dict[EchoKey, EchoTimes] = field(default_factory=dict)
    summary: EchoSummary | None = None
    irq: dict[EchoKey, IrqTimes] = field(default_factory=dict)
    irq_summary: IrqSummary | None = None
    kick: dict[EchoKey, KickTimes] = field(default_factory=dict)
    kick_summary: KickSummary | None = None

    @property
    def error_us(self) -> float:
        """How far a time of an echo can be off."""
        return max((one.capture.error_us or 0.0 for one in self.files), default=0.0)

    @property
    def main(self) -> PingCapture:
        """The capture with the echoes; without one, the first."""
        captures = [one.capture for one in self.files]
        return next((one for one in captures if one.packets or one.summary), captures[0])


@dataclass(slots=True)
class JoinedCaptures:
    """The vantage points of one ping. ``paired``: the echoes that all roles in ``by_packet`` have."""

    roles: dict[Role, RoleTimes]
    paired: list[EchoKey] = field(default_factory=list)
    by_packet: set[Role] = field(default_factory=set)
    one_host: bool = False
    """Both ends are on one host, and no wire lies between them."""
    joined_parts: set[tuple[Role, str]] = field(default_factory=set)
    """The stages (``vhost_irq``, ``vhost_kick``) that are known for every paired echo."""
    checks: list[BreakdownCheck] = field(default_factory=list)


def join(files: Sequence[CaptureFile]) -> JoinedCaptures:
    """The captures of one ping, joined. Raises BadInput for two of one role that both have the same times."""
    joined = JoinedCaptures({})
    for role in INWARDS:
        of_role = [one for one in files if one.capture.role == role]
        if of_role:
            joined.roles[role] = _role(role, of_role, joined.checks)
    if "host" in joined.roles and {"sender-vm", "sender-host"} & joined.roles.keys():
        other = next(one for one in files if one.capture.role == "host")
        raise bad(
            other.file,
            "role",
            "a capture of the role host is of a host that pings itself: it cannot stand beside a capture of a sender",
        )
    _same_run(files, joined.checks)
    _without_ids(joined)
    _same_rounds(joined)
    _of_one_host(joined)
    _pair(joined)
    _leave_out_impossible(joined)
    _leave_out_partial(joined)
    _join_stages(joined)
    return joined


def _role(role: Role, files: list[CaptureFile], checks: list[BreakdownCheck]) -> RoleTimes:
    times = RoleTimes(role, files)
    taken: dict[str, int] = {}
    for number, (file, capture) in enumerate(files):
        for part in ("packets", "vhost_irq", "vhost_kick"):
            has = (capture.packets or capture.summary) if part == "packets" else getattr(capture, part)
            if has and taken.setdefault(part, number) != number:
                what, first = "echoes" if part == "packets" else part, PurePath(files[taken[part]].file).name
                raise bad(file, "role", f"{role} has its {what} from {first} already: name only one of the two files")
        if capture.packets or capture.summary:
            found = read(capture)
            times.echoes, times.ended = found.times, found.ended
            times.summary = None if capture.summary is None else completed_summary(capture.summary)
            checks += found.checks
        if capture.vhost_irq is not None:
            times.irq = _stages(role, "vhost_irq", keyed(capture.vhost_irq.packets), checks)
            times.irq_summary = capture.vhost_irq.summary
        if capture.vhost_kick is not None:
            times.kick = _stages(role, "vhost_kick", keyed(capture.vhost_kick.packets), checks)
            times.kick_summary = capture.vhost_kick.summary
        kind = "imported" if capture.source else "noted"
        checks += [BreakdownCheck(kind, False, f"{role}: {note}") for note in capture.notes]
        missed = {name: n for name, n in capture.ledger.items() if n and name not in NO_LOSS}
        if missed:
            said = ", ".join(f"{name} {n}" for name, n in sorted(missed.items())[:5])
            checks.append(BreakdownCheck("nothing missed", False, f"{role}: the capture missed records: {said}"))
    return times


def _stages(
    role: Role, part: str, read: tuple[dict[EchoKey, T], list[EchoKey]], checks: list[BreakdownCheck]
) -> dict[EchoKey, T]:
    rows, twice = read
    if twice:
        detail = (
            f"{role}, {part}: {things(len(twice), 'records')} there twice ({', '.join(named(twice))}): the first counts"
        )
        checks.append(BreakdownCheck("duplicates", False, detail))
    return rows


def _same_run(files: Sequence[CaptureFile], checks: list[BreakdownCheck]) -> None:
    for what, several, of in (
        ("run", "runs", lambda one: one.run),
        ("addresses", "addresses", lambda one: " and ".join(one.addresses) or None),
    ):
        found: dict[str, list[str]] = {}
        for _, capture in files:
            value = of(capture)
            if value is not None:
                found.setdefault(value, []).append(capture.role)
        if len(found) > 1:
            said = "; ".join(f"{', '.join(roles)}: {value[:60]}" for value, roles in found.items())
            checks.append(BreakdownCheck(f"same {what}", False, f"captures of different {several}: {said}"))
    known = {capture.boundary for _, capture in files if capture.boundary is not None}
    if len(known) > 1:
        ends = "; ".join(
            f"{capture.role}: {capture.boundary.replace('_', ' the ')}" for _, capture in files if capture.boundary
        )
        detail = (
            "the captures end their segments at different points, so segments overlap or leave gaps where"
            f" they meet ({ends})"
        )
        checks.append(BreakdownCheck("same boundary", False, detail))
    elif known == {"after_driver"}:
        detail = (
            "the segments end when the driver returns, so they also hold what the driver starts (the kick,"
            " vhost's wake-up)"
        )
        checks.append(BreakdownCheck("boundary", False, detail))


def _without_ids(joined: JoinedCaptures) -> None:
    """Where a capture knows no ids, all are joined by sequence alone."""
    tables = [table for role in joined.roles.values() for table in (role.echoes, role.irq, role.kick) if table]
    if not any(id is None for table in tables for id, _ in table) or len(tables) < 2:
        return
    for role in joined.roles.values():
        role.echoes = _by_sequence(role.role, role.echoes, joined.checks)
        role.irq = _by_sequence(role.role, role.irq, joined.checks)
        role.kick = _by_sequence(role.role, role.kick, joined.checks)
        role.ended = {(None, seq): row for (_, seq), row in role.ended.items()}


def _by_sequence(role: Role, table: Mapping[EchoKey, T], checks: list[BreakdownCheck]) -> dict[EchoKey, T]:
    found: dict[EchoKey, T] = {}
    for (_, seq), row in table.items():
        found.setdefault((None, seq), row)
    if len(found) < len(table):
        ids = len({id for id, _ in table})
        detail = (
            f"{role} saw {ids} pings at once, and another capture has no ids: of each sequence number only"
            " the first echo counts"
        )
        checks.append(BreakdownCheck("ids", False, detail))
    return found


def _same_rounds(joined: JoinedCaptures) -> None:
    """Sequences begin again after 65536: a capture that began later counts its rounds from its own beginning."""
    tables = [role.echoes for role in joined.roles.values() if role.echoes]
    if not any(seq >= WRAP for table in tables for _, seq in table):
        return
    reference = max(tables, key=len)
    for role in joined.roles.values():
        best = max((0, WRAP, -WRAP, 2 * WRAP, -2 * WRAP), key=lambda by: _shared(reference, role.echoes, by))
        if best and role.echoes is not reference:
            role.echoes, role.ended = _later(role.echoes, best), _later(role.ended, best)
            role.irq, role.kick = _later(role.irq, best), _later(role.kick, best)


def _later(table: Mapping[EchoKey, T], by: int) -> dict[EchoKey, T]:
    return {(id, seq + by): row for (id, seq), row in table.items()}


def _shared(reference: Mapping[EchoKey, object], table: Mapping[EchoKey, object], by: int) -> int:
    return sum((id, seq + by) in reference for id, seq in table)


def _of_one_host(joined: JoinedCaptures) -> None:
    """Both vantage points of one host see an echo on the same two taps: what the sender's side measured counts."""
    sender, receiver = joined.roles.get("sender-host") or joined.roles.get("host"), joined.roles.get("receiver-host")
    if sender is None:
        return
    joined.one_host = sender.main.one_host or (receiver is not None and _share_taps(sender.main, receiver.main))
    if joined.one_host and receiver is not None:
        receiver.echoes, receiver.ended, receiver.summary = sender.echoes, sender.ended, sender.summary


def _share_taps(sender: PingCapture, receiver: PingCapture) -> bool:
    boots = {one.clock.boot_id if one.clock else "" for one in (sender, receiver)}
    crossed = {*sender.outside} & {*receiver.inside} and {*sender.inside} & {*receiver.outside}
    return len(boots) == 1 and "" not in boots and bool(crossed)


def _pair(joined: JoinedCaptures) -> None:
    with_echoes = [role for role in joined.roles.values() if role.echoes]
    if not with_echoes:
        return
    paired, roles = set(with_echoes[0].echoes), [with_echoes[0].role]
    for role in with_echoes[1:]:
        shared = paired & role.echoes.keys()
        if shared:
            paired = shared
            roles.append(role.role)
        else:
            detail = (
                f"no echo is in {role.role} and in {', '.join(roles)}, so the captures are of different runs:"
                " only their means are joined"
            )
            joined.checks.append(BreakdownCheck("same echoes", False, detail))
    if len(with_echoes) > 1 and len(roles) == 1:
        return
    joined.paired, joined.by_packet = sorted(paired, key=_order), set(roles)


def _leave_out_impossible(joined: JoinedCaptures) -> None:
    """An echo that takes longer inside than around it is not one echo, or a clock was set."""
    order = [role for role in INWARDS if role in joined.by_packet]
    impossible: dict[EchoKey, str] = {}
    for outer, inner in pairwise(order):
        around, within = joined.roles[outer], joined.roles[inner]
        slack = ROUNDING_US + around.error_us + within.error_us
        for key in joined.paired:
            if (within.echoes[key].total_us or 0.0) > (around.echoes[key].total_us or 0.0) + slack:
                impossible.setdefault(key, f"{inner} takes longer than {outer} around it")
    if not impossible:
        return
    why = next(iter(impossible.values()))
    if len(impossible) * 2 > len(joined.paired):
        detail = (
            f"{len(impossible)} of {len(joined.paired)} echoes: {why}, so the captures are of different runs:"
            " only their means are joined"
        )
        joined.checks.append(BreakdownCheck("same echoes", False, detail))
        joined.paired, joined.by_packet = [], set()
        return
    detail = f"left out: {things(len(impossible), 'echoes')} ({', '.join(named(impossible))}): {why}"
    detail += ", because a clock was set"
    joined.checks.append(BreakdownCheck("clock", False, detail))
    joined.paired = [key for key in joined.paired if key not in impossible]


def _leave_out_partial(joined: JoinedCaptures) -> None:
    """A few echoes without their middle: a kprobe does not run while its CPU is in another BPF program or map call.

    A kernel that never tells the middle of an echo keeps all of them.
    """
    for role in [role for role in INWARDS if role in joined.by_packet]:  # of the same captures always the same
        rows = joined.roles[role].echoes
        whole = [key for key in joined.paired if None not in (rows[key].request_us, rows[key].between_us)]
        missing = len(joined.paired) - len(whole)
        if missing and len(whole) >= MUCH * len(joined.paired):
            detail = f"{missing} of {len(joined.paired)} echoes left out: {role} knows only their total time"
            joined.checks.append(BreakdownCheck("echoes are whole", True, detail))
            joined.paired = whole


def _join_stages(joined: JoinedCaptures) -> None:
    if not joined.paired:
        return
    parts: list[tuple[Role, str, Mapping[EchoKey, IrqTimes | KickTimes]]] = [
        (role.role, part, rows)
        for role in joined.roles.values()
        for part, rows in (("vhost_irq", role.irq), ("vhost_kick", role.kick))
        if rows
    ]
    all_paired = len(joined.paired)
    for role, part, rows in parts:
        known = [key for key in joined.paired if key in rows and complete(rows[key])]
        if len(known) >= MUCH * all_paired:
            joined.paired = known
            joined.joined_parts.add((role, part))
        else:
            detail = (
                f"{role}, {part}: measured for {len(known)} of {all_paired} echoes, so its mean stands for the others"
            )
            joined.checks.append(BreakdownCheck("stages of every echo", False, detail))


def complete(row: IrqTimes | KickTimes) -> bool:
    """Whether a record of stages has its total, or all stages that make it."""
    return total_of(row) is not None


def total_of(row: IrqTimes | KickTimes) -> float | None:
    """The whole time of a record of stages."""
    if row.total is not None:
        return row.total
    stages = (
        [row.s1_s2, row.s2_s3, row.s3_s4, row.s4_s5] if isinstance(row, IrqTimes) else [row.k1_k2, row.k2_k3, row.k3_k4]
    )
    known = [stage for stage in stages if stage is not None]
    return sum(known) if len(known) == len(stages) else None


def _order(key: EchoKey) -> tuple[int, int]:
    return (-1 if key[0] is None else key[0], key[1])


def roles_missing(joined: JoinedCaptures) -> list[Role]:
    """The vantage points of a ping between two VMs, or from a host, that nobody captured."""
    wanted: Iterable[Role] = ("sender-vm", "sender-host", "receiver-host", "receiver-vm")
    if "host" in joined.roles:
        wanted = ("receiver-vm",) if joined.one_host else ("receiver-host", "receiver-vm")
    return [role for role in wanted if role not in joined.roles]
