"""Bad input files, reported whole: every mistake of a file at once, each in one line of file, key and expected form.

:class:`Checker` walks a decoded document with its place in it; nothing here raises before the whole file was looked at.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from netconsole.base.figure import place, safe

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_FILE_BYTES = 256 * 1024
"""A manifest or profile is a few kB; a larger file is something else, and is not even parsed."""
MAX_PROBLEMS = 200
"""More mistakes than this in one file are counted, not listed: it is something else, or meant to do harm."""
_MAX_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: where, and what was expected there."""

    file: str
    key: str
    message: str

    def __str__(self) -> str:
        """The line that people read."""
        return f"{place(self.file, 240)}: {self.without_file}"

    @property
    def without_file(self) -> str:
        """The same where the file is known already: key and expected form."""
        return safe(f"{self.key}: {self.message}" if self.key else self.message, 400)


class BadInput(Exception):
    """A file or an argument that cannot be used: exit code 2. ``str()`` is one line per mistake."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        """All mistakes, one a line, at most MAX_PROBLEMS of them."""
        lines = [str(problem) for problem in self.problems[:MAX_PROBLEMS]]
        if len(self.problems) > MAX_PROBLEMS:
            lines.append(f"… and {len(self.problems) - MAX_PROBLEMS} more")
        return "\n".join(lines)


class Unable(Exception):
    """This host cannot do it: exit code 3. ``str()`` is one line that says why and what would help."""


def bad(file: object, key: str, message: str) -> BadInput:
    """A BadInput of one mistake."""
    return BadInput([Problem(str(file), key, message)])


def read_bytes(path: Path, limit: int = MAX_FILE_BYTES) -> bytes:
    """The bytes of a small regular file. Raises BadInput in one line, whatever is wrong with it."""
    try:
        if not path.is_file():
            raise bad(path, "", "no such file" if not path.exists() else "not a file")
        with path.open("rb") as stream:
            content = stream.read(limit + 1)
    except (OSError, ValueError) as error:
        raise bad(path, "", getattr(error, "strerror", None) or str(error)) from None
    if len(content) > limit:
        raise bad(path, "", f"longer than {limit // 1024} kB: this is not a file of ours")
    return content


def stat_of(path: Path) -> os.stat_result | None:
    """What is at a path that a user named; None when nothing is. Raises BadInput when it cannot be looked at.

    ``Path.exists`` and ``Path.is_dir`` raise OSError for a name that is too long and a directory that may not be read.
    """
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise bad(path, "", f"{why[:1].lower()}{why[1:]}") from None


def read_toml(path: Path) -> dict[str, object]:
    """A TOML document from an untrusted file. Raises BadInput in one line."""
    content = read_bytes(path)
    try:
        return tomllib.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise bad(path, "", f"not UTF-8 text (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise bad(path, "", f"not TOML: {error}") from None
    except (RecursionError, ValueError, OverflowError):
        raise bad(path, "", "not TOML: nested too deeply, or a number too large") from None


def shown(value: object) -> str:
    """A value found in a file, short and printable, for a message."""
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
    """`; did you mean X?`, or what is known when nothing is close and the choice is small."""
    choices = list(known)
    matches = difflib.get_close_matches(word[:64], choices, n=1, cutoff=0.6)
    if matches:
        return f'; did you mean "{matches[0]}"?'
    return f"; known: {', '.join(choices)}" if 0 < len(choices) <= 12 else ""


class Checker:
    """One table of a document: takes out typed values, and collects mistakes into a list shared by the whole file."""

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
        """Note a mistake at a key of this table."""
        self.problems.append(Problem(self.file, self._path(name), message))

    def has(self, name: str) -> bool:
        """Whether the file says anything about this key."""
        return name in self.values

    def only(self, known: Collection[str], what: str = "key") -> None:
        """Every other key is a mistake."""
        for name in self.values:
            if name not in known:
                self.wrong(name, f"unknown {what}{close(name, known)}")

    def table(self, name: str) -> Checker:
        """A table below; an absent one is empty."""
        return Checker(self.file, self.values.get(name), self._path(name), self.problems)

    def tables(self, name: str) -> list[Checker]:
        """A list of tables; an absent one is empty."""
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
