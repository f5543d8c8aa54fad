"""The rules beside the probes (findings in probe.toml): whether one fits a row, and what it says of it.

The live tracker and the report of a snapshot both read rules by these functions.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from netconsole.base import figure
from netconsole.probes.causes import Causes
from netconsole.probes.manifest import ColumnSpec, FindingSpec, TableSpec
from netconsole_collector.names.netns_labels import is_namespace_inode

ANYTHING = "*"
"""Instead of a value in ``where``: the row has this label, and it is not empty."""
NOT = "!"
"""Before a value in ``where``: the row has any other."""
MAX_NAME = 90
"""Longer than any name, and than what a counter means in our words."""
MAX_WORD = 1024
"""Of a command: what is cut there names something else. Paths of control groups are long."""
_MAX_WHY = 160
ROWS = "rows"
"""A label in place of how many rows a sentence is of, where it is of more than one."""
WHY = "why"
"""A label in place of what the rule says of the cause: what was found out about it."""
_NO_PROTOCOL = (None, "", "none", "not IP", "unparsed")
_HOST = "host"
"""The network namespace of the host itself, as labels name it."""
_OF_HOST = "host: "
_BY_NAME = re.compile(r"ip netns exec ('[^']*'|[^ ']+) ")
_BY_INODE = re.compile(r'nsenter -n -t "\$\(lsns -rno PID ([0-9]+) \| head -n 1\)" ')
_DEVICES = ("device", "port")
"""Labels that name a device: the host's lo is not that of a container, and a sentence says which."""


class HasWhere(Protocol):
    """A rule that speaks of some rows only."""

    @property
    def where(self) -> Mapping[str, tuple[str, ...]]:
        """By label, the values of which a row must have one."""
        ...


def fits(rule: HasWhere, labels: Mapping[str, object]) -> bool:
    """Whether the row is one that the rule speaks of. ``*`` stands for anything but nothing, ``!0`` for all but 0."""
    return all(_is_one_of(wanted, labels.get(name)) for name, wanted in rule.where.items())


def _is_one_of(wanted: Sequence[str], label: object) -> bool:
    said = str(label)
    if said in wanted or (label is not None and ANYTHING in wanted):
        return True
    return any(one.startswith(NOT) and one[len(NOT) :] != said for one in wanted)


def rule_of(rule: FindingSpec, causes: Causes | None, labels: Mapping[str, object]) -> FindingSpec | None:
    """The rule, as it is said of this row; None where it does not speak of it."""
    if rule.kinds:
        cause = causes.of(labels) if causes is not None else None
        found = rule.cases.get(cause) if cause is not None else None
    else:
        found = rule
    return found if found is not None and fits(found, labels) else None


def is_urgent(rule: FindingSpec, value: float) -> bool:
    """Whether a value that is not small and lasting is ``!!``."""
    return rule.level == "!!" or (rule.urgent_over is not None and value > rule.urgent_over)


def supersedes(level: str, known: str) -> bool:
    """Whether a rule of ``level`` says a row instead of one of ``known`` that stands before it in the manifest.

    Manifests go from the general rule to the special one: of equally urgent rules the last says most.
    """
    return known != "!!" or level == "!!"


def words_of_table(
    rule: FindingSpec,
    column: ColumnSpec,
    value: float,
    total: float | None,
    at_least: bool | str = False,
    total_at_least: bool | str = False,
    is_peak: bool = False,
) -> dict[str, str]:
    """What a sentence may say of a value: a rate per second, or of a gauge the value itself.

    ``at_least``, ``total_at_least``: it, or the total, is a lower bound, or has this mark. ``is_peak``: the value is
    the highest of several, and is said to be so.
    """
    rate = figure.amount(value, column.unit, at_least) if column.kind != "max" else figure.number(value, at_least)
    if is_peak:
        rate = f"at its peak {rate}" if at_least else f"up to {rate}"
    return {
        "rate": rate,
        "value": figure.quantity(value, column.unit) if column.kind == "max" else rate,
        "total": figure.amount(total, column.unit, total_at_least),
        "unit": column.unit,
        rule.value: rate,
    }


def words_of_gauges(spec: TableSpec, gauges: Mapping[str, object]) -> dict[str, str]:
    """What a sentence may say of the gauges of a row: the size of a buffer, and the like."""
    known = [(column, gauges.get(column.name)) for column in spec.value if column.kind == "max"]
    return {column.name: _gauge(value, column.unit) for column, value in known}


def _gauge(value: object, unit: str) -> str:
    if not isinstance(value, (int, float)):
        return figure.UNKNOWN
    return figure.memory(value / 1024) if unit == "bytes" else figure.quantity(value, unit)


def words_of_histogram(
    value: float, unit: str, per_s: float | None, count: int, half: float | None = None
) -> dict[str, str]:
    """What a sentence may say of a percentile ``value`` of ``count`` samples, of which half are above ``half``."""
    return {
        "half": figure.quantity(half, unit),
        "rate": figure.number(per_s),
        "value": figure.quantity(value, unit),
        "total": figure.number(count),
        "unit": unit,
    }


def say(rule: FindingSpec, labels: Mapping[str, object], words: Mapping[str, str]) -> str:
    """The rule's sentence on one row, for people; names from outside are made safe for a terminal.

    What is in another network namespace than the host's is said with it: behind its device, else before the first
    colon or at the end.
    """
    named = {name: figure.safe(value, MAX_NAME) for name, value in labels.items()}
    where = "" if labels.get("netns") in (None, "", _HOST) else f" (netns {named['netns']})"
    devices = [label for label in _DEVICES if isinstance(labels.get(label), str)]
    for label in devices:
        named[label] = f"{named[label]}{where}" if labels[label] else where.strip(" ()") or "this host"
    if "netns" in labels:
        named["netns"] = where.strip(" ()") or "this host"
    sentence = rule.say_several if rule.say_several and ROWS in labels else rule.say
    if labels.get("protocol", "") in _NO_PROTOCOL and "protocol" in labels:
        named["protocol"] = "" if labels.get("ethertype") in _NO_PROTOCOL else named.get("ethertype", "")
        sentence = sentence if named["protocol"] else sentence.replace("{protocol} ", "")
    head, colon, rest = sentence.partition(": ")
    if not any(f"{{{label}}}" in sentence for label in ("netns", *devices)):
        head += "{where}"
    if labels.get(WHY) and f"{{{WHY}}}" not in sentence:
        head += f": {{{WHY}}}"  # more is known of the cause than the rule says
    sentence = f"{head}{colon}{rest}"
    try:
        why = figure.safe(labels[WHY], _MAX_WHY) if labels.get(WHY) else rule.why.format(**named)
        return sentence.format(**{**named, **words, WHY: why, "where": where})
    except (KeyError, IndexError, ValueError) as error:
        # The manifest promised a label that this row has not: say so rather than nothing.
        return f"{rule.say} ({error.args[0]}: not in this row)"


def state_of(rule: FindingSpec, labels: Mapping[str, object]) -> tuple[str, str]:
    """A word for the state of the row, with outside names made safe, and what it means. Empty where there is none."""
    return rule.state.format(**{name: figure.safe(value, MAX_NAME) for name, value in labels.items()}), rule.means


def commands(rule: FindingSpec, labels: Mapping[str, object]) -> tuple[str, ...]:
    """The commands that a rule names, with the row's labels filled in and quoted for a shell.

    A command whose label this row does not have is left out. Control characters never get into one. What belongs to
    another network namespace is asked inside it.
    """
    return filled(rule.commands, labels)


def filled(templates: Iterable[str], words: Mapping[str, object]) -> tuple[str, ...]:
    """Commands with their names filled in, as :func:`commands`; one behind "host: " does not run in the namespace."""
    known = {
        name: shlex.quote(figure.safe(value, MAX_WORD)) for name, value in words.items() if value not in (None, "")
    }
    found = []
    for command in templates:
        try:
            is_of_host = command.startswith(_OF_HOST)
            where = "" if is_of_host else _inside(known.get("netns", _HOST))
            found.append(where + command[len(_OF_HOST) if is_of_host else 0 :].format(**known))
        except (KeyError, IndexError, ValueError):
            continue
    return tuple(found)


def apart(command: str) -> tuple[str, str]:
    """The network namespace that a command of an incident is for, and what is to be run there."""
    for pattern in (_BY_NAME, _BY_INODE):
        if (found := pattern.match(command)) is not None:
            return shlex.split(found[1])[0], command[found.end() :]
    return _HOST, command


def _inside(netns: str) -> str:
    """What makes a command run in a network namespace, known by its name or, without one, by its inode."""
    if netns == _HOST:
        return ""
    if is_namespace_inode(netns):
        return f'nsenter -n -t "$(lsns -rno PID {netns} | head -n 1)" '
    return f"ip netns exec {netns} "
