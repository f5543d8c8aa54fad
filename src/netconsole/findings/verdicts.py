"""What a host is asked about a cause, and what its answer says of it, in words (probes/common/verdicts.toml)."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from netconsole.base import figure, paths
from netconsole.base.checker import Checker
from netconsole.base.errors import BadInput
from netconsole.base.readers import read_toml
from netconsole.findings.match import Level
from netconsole.findings.rules import MAX_NAME, filled
from netconsole.probes.sentences import alternatives
from netconsole.telemetry.frames import Scalar

Words: TypeAlias = Mapping[str, Scalar | None]
"""Labels of a row, fields of its latest packet, and what a host answered, by name."""
NETNS = "netns"
ANYTHING = "*"
_LARGER = ">"


class Asked(NamedTuple):
    """A question with its arguments filled in."""

    name: str
    arguments: Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class QuestionSpec:
    """What is asked when an incident of one of these causes begins."""

    causes: Sequence[str]
    name: str
    where: Mapping[str, Sequence[str]]
    arguments: Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class VerdictSpec:
    """What an answer says. ``level``: that of an incident which was none before; empty: as it is."""

    causes: Sequence[str]
    when: Mapping[str, Sequence[str]]
    why: str
    next: str
    commands: Sequence[str]
    level: Level | None
    names: Sequence[str]
    """What its sentence names: without one of these it cannot be said."""


@dataclass(frozen=True, slots=True)
class CauseVerdict:
    """What is known of the cause of one incident, its names made safe. ``is_answered``: by asking the host."""

    why: str
    next: str
    commands: tuple[str, ...]
    level: Level | None
    is_answered: bool


class Verdicts:
    """All of them, in the order of the file."""

    def __init__(self, questions: Sequence[QuestionSpec], verdicts: Sequence[VerdictSpec]) -> None:
        self.questions, self.verdicts = questions, verdicts

    def question(self, cause: str, words: Words) -> Asked | None:
        """What to ask about a row; None where nothing is asked, or what it needs is not known (yet)."""
        for spec in self.questions:
            if cause in spec.causes and _fits(spec.where, words):
                arguments = _filled(spec.arguments, words)
                return (
                    None if arguments is None else Asked(spec.name, {NETNS: str(words.get(NETNS) or ""), **arguments})
                )
        return None

    def verdict(self, cause: str, words: Words, is_answered: bool) -> CauseVerdict | None:
        """The first that fits; None where nothing more is known than the cause."""
        for spec in self.verdicts:
            if cause in spec.causes and _fits(spec.when, words) and all(_known(words, name) for name in spec.names):
                return _said(spec, words, is_answered)
        return None


@lru_cache(maxsize=1)
def shipped() -> Verdicts:
    """Those of this program. Raises BadInput."""
    path = paths.data("probes") / "common" / "verdicts.toml"
    root = Checker(str(path), read_toml(path))
    root.only(("questions", "verdicts"), "section")
    questions = [_question(one) for one in root.tables("questions")]
    verdicts = [_verdict(one) for one in root.tables("verdicts")]
    if root.problems:
        raise BadInput(root.problems)
    return Verdicts(questions, verdicts)


def _question(item: Checker) -> QuestionSpec:
    item.only(("cause", "ask", "where", "arguments"))
    arguments = item.table("arguments")
    return QuestionSpec(
        alternatives(item, "cause"), item.text("ask"), _conditions(item.table("where")), _scalars(arguments.values)
    )


def _verdict(item: Checker) -> VerdictSpec:
    item.only(("cause", "when", "why", "next", "commands", "level"))
    level: Level | None = "!" if item.text("level", "", ("", "!")) else None
    why = item.text("why")
    return VerdictSpec(
        alternatives(item, "cause"),
        _conditions(item.table("when")),
        why,
        item.text("next", ""),
        tuple(item.texts("commands")),
        level,
        tuple(name for _, name, _, _ in string.Formatter().parse(why) if name),
    )


def _conditions(item: Checker) -> Mapping[str, Sequence[str]]:
    return {
        name: tuple(map(_text, value)) if isinstance(value, list) else (_text(value),)
        for name, value in item.values.items()
    }


def _scalars(values: Mapping[str, object]) -> Mapping[str, Scalar]:
    return {name: value if isinstance(value, (bool, int)) else str(value) for name, value in values.items()}


def _text(value: object) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _known(words: Words, name: str) -> bool:
    return words.get(name) not in (None, "")


def _said(spec: VerdictSpec, words: Words, is_answered: bool) -> CauseVerdict:
    named = {name: figure.safe(_text(value), MAX_NAME) for name, value in words.items()}
    return CauseVerdict(
        spec.why.format_map(named),
        spec.next.format_map(_Unknown(named)),
        filled(spec.commands, words),
        spec.level,
        is_answered,
    )


class _Unknown(dict[str, str]):
    """Names what is not known so."""

    def __missing__(self, _name: str) -> str:
        return figure.UNKNOWN


def _fits(when: Mapping[str, Sequence[str]], words: Words) -> bool:
    return all(any(_is(wanted, words.get(name), words) for wanted in known) for name, known in when.items())


def _is(wanted: str, value: Scalar | None, words: Words) -> bool:
    if wanted.startswith(_LARGER):
        than = words.get(wanted[1:])
        return _is_number(value) and _is_number(than) and float(value or 0) > float(than or 0)
    text = _text(value)
    return text != "" if wanted == ANYTHING else fnmatchcase(text, wanted)


def _is_number(value: Scalar | None) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _filled(arguments: Mapping[str, Scalar], words: Words) -> Mapping[str, Scalar] | None:
    """None where something is not known that an argument names without a question mark."""
    found_all: dict[str, Scalar] = {}
    for name, value in arguments.items():
        if not isinstance(value, str) or not value.startswith("{"):
            found_all[name] = value
            continue
        word = value.strip("{}")
        found = words.get(word.rstrip("?"))
        if found not in (None, ""):
            found_all[name] = found
        elif not word.endswith("?"):
            return None
    return found_all
