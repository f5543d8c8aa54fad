"""Checks a decoded document and collects every mistake with its place in the file."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping

from netconsole.base.errors import Problem
from netconsole.base.figure import safe

_MAX_SHOWN = 40


def shown(value: object) -> str:
    """A value from a file as short printable text, for a message."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'"{safe(value, _MAX_SHOWN)}"'
        case Mapping():
            return "a table"
        case list():
            return "a list"
        case _:
            return safe(value, _MAX_SHOWN)


def close(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or the known words when none is close and there are few."""
    choices = list(known)
    matches = difflib.get_close_matches(word[:64], choices, n=1, cutoff=0.6)
    if matches:
        return f'; did you mean "{matches[0]}"?'
    return f"; known: {', '.join(choices)}" if 0 < len(choices) <= 12 else ""


class Checker:
    """One table of a document: returns typed values, and adds mistakes to a list that the whole file shares."""

    def __init__(self, file: str, value: object, key: str = "", problems: list[Problem] | None = None) -> None:
        self.file = file
        self.key = key
        self.problems: list[Problem] = [] if problems is None else problems
        self.values: Mapping[str, object] = {}
        if isinstance(value, Mapping):
            self.values = value
        elif value is not None:
            self.wrong("", f"expected a table, found {shown(value)}")

    def wrong(self, name: str, message: str) -> None:
        """Add a mistake at a key of this table."""
        self.problems.append(Problem(self.file, self._path(name), message))

    def has(self, name: str) -> bool:
        """Whether the file has this key."""
        return name in self.values

    def only(self, known: Collection[str], what: str = "key") -> None:
        """Add a mistake for every other key."""
        for name in self.values:
            if name not in known:
                self.wrong(name, f"unknown {what}{close(name, known)}")

    def table(self, name: str) -> Checker:
        """A table inside this one; empty when it is absent."""
        return Checker(self.file, self.values.get(name), self._path(name), self.problems)

    def tables(self, name: str) -> list[Checker]:
        """A list of tables; empty when it is absent."""
        value = self.values.get(name, [])
        if not isinstance(value, list):
            self.wrong(name, f"expected a list of tables, found {shown(value)}")
            return []
        path = self._path(name)
        return [Checker(self.file, item, f"{path}[{i}]", self.problems) for i, item in enumerate(value)]

    def each(self) -> Iterable[tuple[str, Checker]]:
        """Every key as a table."""
        return [(name, self.table(name)) for name in self.values]

    def text(self, name: str, default: str | None = None, choices: Collection[str] = ()) -> str:
        """A string; required when there is no default."""
        value = self.values.get(name, default)
        if value is None:
            self.wrong(name, "missing: expected " + (f"one of {', '.join(choices)}" if choices else "a text"))
        elif not isinstance(value, str):
            self.wrong(name, f"expected a text in quotes, found {shown(value)}")
        elif choices and value not in choices:
            self.wrong(name, f"expected one of {', '.join(choices)}, found {shown(value)}{_hint(value, choices)}")
        else:
            return value
        return default or ""

    def texts(self, name: str, default: Collection[str] = (), choices: Collection[str] = ()) -> list[str]:
        """A list of strings."""
        value = self.values.get(name, list(default))
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.wrong(name, f"expected a list of texts, found {shown(value)}")
            return list(default)
        for item in value:
            if choices and item not in choices:
                self.wrong(name, f"expected of {', '.join(choices)}, found {shown(item)}{_hint(item, choices)}")
        return [item for item in value if not choices or item in choices]

    def integer(self, name: str, default: int | None, low: int, high: int) -> int | None:
        """A whole number within bounds."""
        value = self.values.get(name, default)
        if value is None and not self.has(name):
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.wrong(name, f"expected a whole number from {low} to {high}, found {shown(value)}")
            return default
        return value

    def number(self, name: str, default: float | None, low: float, high: float, unit: str = "") -> float | None:
        """A number within bounds; ``unit`` is said in the message."""
        value = self.values.get(name, default)
        if value is None and not self.has(name):
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            of = f" of {unit}" if unit else ""
            note = " (the unit is in the key's name)" if isinstance(value, str) and unit else ""
            self.wrong(name, f"expected a number{of} from {low:g} to {high:g}{note}, found {shown(value)}")
            return default
        return value

    def boolean(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value = self.values.get(name, default)
        if not isinstance(value, bool):
            self.wrong(name, f"expected true or false, found {shown(value)}")
            return default
        return value

    def _path(self, name: str) -> str:
        return f"{self.key}.{name}" if self.key and name else self.key or name


def _hint(value: str, choices: Collection[str]) -> str:
    matches = difflib.get_close_matches(value[:64], list(choices), n=1, cutoff=0.6)
    return f'; did you mean "{matches[0]}"?' if matches else ""
