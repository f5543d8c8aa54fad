"""Why the packets of a row were dropped, in words: lists of causes that several probes may share (probes/common)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from netconsole.base.checker import Checker, shown
from netconsole.base.errors import BadInput, Problem
from netconsole.base.readers import read_toml
from netconsole.probes.includes import common
from netconsole.probes.sentences import alternatives, check_sentence, word

CAUSE_KINDS = ("full", "shed", "fault", "refused", "unwanted", "harmless", "unknown")
"""What a cause is to people; the words are in probes/common/drop_causes.toml."""
CAUSE_LABELS = ("reason", "location", "hook", "protocol", "ethertype", "class", "device", "port", "netns", "provenance")
"""Labels of rows of drops. An entry fits a row that has those which the entry names."""
REASONLESS = ("NOT_SPECIFIED", "unknown")
"""The reason of a row to which the kernel gives none."""

_KEYS = ("cause", "kind", "why", "next", "commands", "place", "explains", "specific", "stage", "same_as")
_PLACE = ("netns", "device")
_MAX_KNOWN = 8192


@dataclass(frozen=True, slots=True, eq=False)
class CauseSpec:
    """One entry: the rows that it speaks of, and what findings and places of drops say of them."""

    cause: str
    kind: str
    why: str
    where: Mapping[str, tuple[str, ...]]
    next: str = ""
    commands: tuple[str, ...] = ()
    place: tuple[str, ...] = _PLACE
    explains: tuple[str, ...] = ()
    specific: int = 0
    stage: str = ""
    same_as: tuple[str, ...] = ()
    """Words by which other sources count the same packets; empty: as the manifest says."""


class Causes:
    """A list of causes, from the general to the special ones."""

    def __init__(self, specs: Sequence[CauseSpec]) -> None:
        self.specs = specs
        self._names = tuple(dict.fromkeys(name for spec in specs for name in spec.where))
        self._known: dict[tuple[object, ...], CauseSpec | None] = {}

    def of(self, labels: Mapping[str, object]) -> CauseSpec | None:
        """The last entry that fits a row; None where none does."""
        key = tuple(labels.get(name) for name in self._names)
        if key not in self._known:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            fitting = (spec for spec in reversed(self.specs) if _fits(spec.where, labels))
            self._known[key] = next(fitting, None)
        return self._known[key]


def _fits(where: Mapping[str, tuple[str, ...]], labels: Mapping[str, object]) -> bool:
    return all(_plain(name, labels.get(name)) in wanted for name, wanted in where.items())


def _plain(label: str, value: object) -> str:
    """A function without what the compiler adds to its name (.isra.0), and without its module ("f [nf_tables]")."""
    return re.split(r"[. ]", str(value), maxsplit=1)[0] if label == "location" else str(value)


def read_causes(item: Checker, directory: Path) -> Causes | None:
    """The list that a table of a probe in this directory names. Mistakes are noted in ``item``."""
    if not item.has("causes"):
        return None
    name = item.text("causes")
    if not name.isidentifier():
        item.wrong("causes", f"expected the name of a list in probes/common, found {shown(name)}")
        return None
    found, problems = _read(common(directory) / f"{name}.toml")
    item.problems.extend(problems)
    return found


@lru_cache(maxsize=4)
def _read(path: Path) -> tuple[Causes, tuple[Problem, ...]]:
    """Read once: it is long, and several probes name it."""
    try:
        root = Checker(str(path), read_toml(path))
    except BadInput as error:
        return Causes(()), tuple(error.problems)
    root.only(("causes",), "section")
    return Causes([_cause(one) for one in root.tables("causes")]), tuple(root.problems)


def _cause(item: Checker) -> CauseSpec:
    item.only((*_KEYS, *CAUSE_LABELS))
    where = {name: alternatives(item, name) for name in item.values if name in CAUSE_LABELS}
    if "location" in where:
        where.setdefault("reason", REASONLESS)
    why, commands = item.text("why"), item.texts("commands")
    check_sentence(item, "why", why, ("reason", *where))
    for command in commands:
        check_sentence(item, "commands", command, CAUSE_LABELS)
    return CauseSpec(
        cause=item.text("cause"),
        kind=item.text("kind", None, CAUSE_KINDS),
        why=why,
        where=where,
        next=item.text("next", ""),
        commands=tuple(commands),
        place=tuple(item.texts("place", _PLACE, CAUSE_LABELS)),
        explains=tuple(item.texts("explains")),
        specific=item.integer("specific", 0, 0, 9) or 0,
        stage=word(item, "stage", ""),
        same_as=tuple(item.texts("same_as")),
    )
