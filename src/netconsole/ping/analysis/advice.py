"""What to check for the segments that take most: rules as data (advice.toml), and the facts of the captures.

A command is text for a person. netconsole never runs it.
"""

from __future__ import annotations

import functools
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from netconsole.base.cpu_list import cpus_of
from netconsole.base.fact_keys import FactData, FactValue, key, parts
from netconsole.base.readers import read_toml
from netconsole.ping.analysis.merge import CaptureFile
from netconsole.ping.breakdown import Breakdown, FactShown, PingAdvice
from netconsole.ping.capture import PingCapture, Role
from netconsole.ping.model import SEGMENTS, WIRE
from netconsole.ping.words import largest_stage

RULES = Path(__file__).with_name("advice.toml")
MOST_SEGMENTS = 3
FROM_PCT = 15.0
"""A segment with a smaller share of what is explained is not looked into, unless it is the largest."""
MAX_FACTS = 12
MAX_CPUS = 4
"""Threads that share more CPUs than this are free to avoid each other."""
Machine = Literal["host", "vm"]
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_PLACE = re.compile(r"\{(?:vm|device)\}")


class Unless(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sibling of a fact with a value that makes it harmless."""

    property: str
    equals: str


class Look(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A condition under which a fact is to be looked at."""

    fact: str
    says: str
    above: float | None = None
    below: float | None = None
    equals: list[str] | None = None
    differs: list[str] | None = None
    matches: str | None = None
    share_of_time: Annotated[float, msgspec.Meta(gt=0)] | None = None
    same_cpus_as: str | None = None
    unless: Unless | None = None


class AdviceRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What can cause the time of some segments."""

    topic: str
    segments: list[str]
    reason: str
    facts: list[str]
    command: str = ""
    stages: list[str] = []
    roles: tuple[Machine, ...] = ("host", "vm")
    look: list[Look] = []


class _RuleFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    advice: list[AdviceRule]


@functools.cache
def rules() -> tuple[AdviceRule, ...]:
    """The rules that come with netconsole."""
    return tuple(msgspec.convert(read_toml(RULES), _RuleFile).advice)


def advice(
    breakdown: Breakdown, files: Sequence[CaptureFile], baseline: Sequence[CaptureFile] = ()
) -> list[PingAdvice]:
    """What to check, for the segments that explain most, with the facts of the hosts that they are on.

    With a comparison in ``breakdown`` these are the segments of the difference. ``baseline`` are its captures: a fact
    that was different there says so.
    """
    found = []
    for segment in wanted(breakdown):
        time = breakdown.segments.get(segment)
        stage = largest_stage(breakdown, segment)
        measured = stage[1] if stage else time.mean_us if time is not None else None
        for rule in rules():
            if segment not in rule.segments or (stage and rule.stages and stage[0] not in rule.stages):
                continue
            found += _together(
                [
                    _advice(rule, segment, measured, one, _same_place(one, baseline))
                    for one in _captures(rule, segment, files)
                ]
            )
    order = {"!": 0, "ok": 1, "?": 2}
    return sorted(found, key=lambda one: order[one.word])


def wanted(breakdown: Breakdown) -> list[str]:
    """The segments that explain most of the difference, or of the round trip; the largest first."""
    if breakdown.comparison is not None:
        shares = {name: one.share_pct for name, one in breakdown.comparison.segments.items()}
    else:
        shares = {name: one.share_pct for name, one in breakdown.segments.items()}
    known = {name: share for name, share in shares.items() if share is not None and share > 0}
    order = sorted(known, key=lambda name: -known[name])[:MOST_SEGMENTS]
    return [name for at, name in enumerate(order) if at == 0 or known[name] >= FROM_PCT]


def _together(advices: list[PingAdvice]) -> list[PingAdvice]:
    """Of hosts whose facts nobody collected, one line is enough."""
    without = [one for one in advices if not one.facts]
    if len(without) < 2:
        return advices
    hosts = ", ".join(one.host for one in without)
    return [*(one for one in advices if one.facts), msgspec.structs.replace(without[0], host=hosts)]


def _captures(rule: AdviceRule, segment: str, files: Sequence[CaptureFile]) -> Iterator[PingCapture]:
    """The captures whose machine the segment is on, one for each machine."""
    wanted_roles = [role for role in _roles(segment) if ("vm" if role.endswith("vm") else "host") in rule.roles]
    for role in wanted_roles:
        of_role = [one.capture for one in files if one.capture.role == role]
        if of_role:
            yield next((one for one in of_role if one.facts), of_role[0])


def _roles(segment: str) -> tuple[Role, ...]:
    if segment == WIRE:
        return ("sender-host", "host", "receiver-host")
    if segment == "U_sender":
        return ("sender-host", "sender-vm")
    if segment == "U_receiver":
        return ("receiver-host", "receiver-vm")
    role: Role | None = next((spec.role for spec in SEGMENTS if spec.name == segment), None)
    if role is None:
        return ()
    # A guest is slow because of its host as well.
    of_vm: dict[Role, tuple[Role, ...]] = {
        "sender-vm": ("sender-vm", "sender-host"),
        "receiver-vm": ("receiver-vm", "receiver-host"),
        "sender-host": ("sender-host", "host"),
    }
    return of_vm.get(role, (role,))


def _same_place(capture: PingCapture, baseline: Sequence[CaptureFile]) -> Mapping[str, FactData]:
    return next((one.capture.facts for one in baseline if one.capture.role == capture.role and one.capture.facts), {})


def _advice(
    rule: AdviceRule, segment: str, measured_us: float | None, capture: PingCapture, before: Mapping[str, FactData]
) -> PingAdvice:
    shown: dict[str, FactShown] = {}
    for pattern in rule.facts:
        for name in _matching(pattern, capture):
            shown.setdefault(name, _shown(name, rule, measured_us, capture, before))
    rows = sorted(shown.values(), key=lambda row: row.word != "!")[:MAX_FACTS]
    words = {row.word for row in rows}
    word: Literal["ok", "!", "?"] = "!" if "!" in words else "ok" if "ok" in words else "?"
    return PingAdvice(
        segment=segment,
        topic=rule.topic,
        host=capture.host or capture.role,
        word=word,
        reason=rule.reason,
        command=_command(rule.command, capture),
        facts=rows,
    )


def _shown(
    name: str, rule: AdviceRule, measured_us: float | None, capture: PingCapture, before: Mapping[str, FactData]
) -> FactShown:
    data = capture.facts[name]
    says = [
        look.says
        for look in rule.look
        if _fits(look.fact, name, capture) and _holds(look, name, data.value, measured_us, capture)
    ]
    old = before.get(name)
    if old is not None and old.value != data.value:
        says.append(f"in the baseline: {old.value}")
    word: Literal["ok", "!", "?"] = "!" if says else "?" if data.value is None else "ok"
    return FactShown(name, data.value, word, "; ".join(says) or (data.why or ""))


def _holds(look: Look, name: str, value: FactValue, measured_us: float | None, capture: PingCapture) -> bool:
    if value is None:
        return False
    if look.unless is not None:
        sibling = capture.facts.get(key(*parts(name)[:-1], look.unless.property))
        if sibling is not None and str(sibling.value) == look.unless.equals:
            return False
    text, number = str(value), _number(value)
    if look.same_cpus_as is not None:
        return any(_share_few(text, str(capture.facts[other].value)) for other in _matching(look.same_cpus_as, capture))
    if look.share_of_time is not None:
        return (
            number is not None and measured_us is not None and number >= look.share_of_time * max(measured_us, 0.0) > 0
        )
    return (
        (look.above is not None and number is not None and number > look.above)
        or (look.below is not None and number is not None and number < look.below)
        or (look.equals is not None and text in look.equals)
        or (look.differs is not None and text not in look.differs)
        or (look.matches is not None and re.fullmatch(look.matches, text) is not None)
    )


def _number(value: FactValue) -> float | None:
    if value is None or isinstance(value, (bool, list)):
        return None
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _share_few(one: str, other: str) -> bool:
    """Whether two lists of CPUs (0-3,8) are both short and meet."""
    here, there = cpus_of(one), cpus_of(other)
    return bool(here & there) and len(here | there) <= MAX_CPUS


def _matching(pattern: str, capture: PingCapture) -> list[str]:
    return [name for name in sorted(capture.facts) if _fits(pattern, name, capture)]


def _fits(pattern: str, name: str, capture: PingCapture) -> bool:
    """Whether a fact's key is one of the pattern: ``*`` is any part, {vm} and {device} are those of the capture."""
    wanted_parts, found = pattern.split("/"), parts(name)
    return len(wanted_parts) == len(found) and all(
        one == there or there in _names(one, capture, there) for one, there in zip(wanted_parts, found, strict=True)
    )


def _names(part: str, capture: PingCapture, there: str) -> Sequence[str]:
    """What a part of a pattern stands for. A capture that does not name its VM or devices means all of them."""
    if part == "{vm}" and capture.vm:
        return (capture.vm,)
    if part == "{device}" and capture.outside:
        return capture.outside
    return (there,) if part in ("*", "{vm}", "{device}") else ()


def _command(command: str, capture: PingCapture) -> str:
    """With the capture's names, quoted for a shell; at once, as a name may read like another's place."""
    names = {"{vm}": capture.vm or "VM", "{device}": capture.outside[0] if capture.outside else "DEVICE"}
    return _PLACE.sub(lambda place: shlex.quote(names[place[0]]), command)
