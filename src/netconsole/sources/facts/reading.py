"""Holds collected facts, each with its source: bounded, thread-safe. A read error makes a fact unknown, with why."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from netconsole.base.fact_keys import FactValue
from netconsole.host.target import Question, Target
from netconsole_collector.primitives.files import MAX_NAMES
from netconsole_collector.primitives.here import HERE

MAX_FACTS = 50_000
"""200 VMs with 8 queues each have about 15 000 facts."""
MAX_BYTES = 64 * 1024
"""The most that is read of one file. Command lines are the longest."""
MAX_TEXT = 4096
"""A longer value is cut. A kernel command line has 4096 characters at most."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One setting of this host. ``value`` None is unknown, and ``why`` gives the reason.

    ``volatile``: the fact (a process id, a tap's number) only identifies something. A comparison does not report it.
    """

    value: FactValue
    source: str
    why: str | None = None
    volatile: bool = False

    def to_json(self) -> dict[str, Any]:
        """As in a snapshot, without empty fields."""
        document: dict[str, Any] = {"value": self.value, "source": self.source}
        if self.why is not None:
            document["why"] = self.why
        if self.volatile:
            document["volatile"] = True
        return document


class Facts:
    """Collects facts of a host under keys like ``nic/eth0/driver``."""

    def __init__(self, target: Target = HERE) -> None:
        self.target = target
        self.omitted = 0
        self._facts: dict[str, Fact] = {}
        self._lock = threading.Lock()

    def taken(self) -> dict[str, Fact]:
        """A copy of all facts so far, in the order of the keys."""
        with self._lock:
            return dict(sorted(self._facts.items()))

    def put(self, key: str, value: FactValue, source: str, volatile: bool = False) -> None:
        """Add a fact whose value is known; see :meth:`unknown` for the others."""
        if isinstance(value, str):
            value = value[:MAX_TEXT]
        elif isinstance(value, list):
            value = [text[:MAX_TEXT] for text in value[:MAX_NAMES]]
        self._add(key, Fact(value, source, volatile=volatile))

    def unknown(self, key: str, source: str, why: str) -> None:
        """Add a fact that could not be read."""
        self._add(key, Fact(None, source, why=why[:MAX_TEXT]))

    def list_ahead(self, paths: Iterable[str]) -> None:
        """The entries of these directories will be asked for."""
        self.target.ahead(Question("names", (path, MAX_NAMES)) for path in paths)

    def file(self, key: str, path: str, convert: Callable[[str], FactValue] = str, volatile: bool = False) -> FactValue:
        """Add the content of a file, stripped and converted; its path is the source. Returns the value."""
        try:
            value = convert(self.text(path).strip())
        except OSError as error:
            self.unknown(key, path, reason(error))
        except ValueError:
            self.unknown(key, path, "the value is not in the expected form")
        else:
            self.put(key, value, path, volatile)
            return value
        return None

    def text(self, path: str) -> str:
        """The first 64 kB of a file. Raises OSError."""
        return decoded(self.target.read(path, MAX_BYTES))

    def ahead(self, paths: Iterable[str]) -> None:
        """The text of these files will be asked for, or whether they exist."""
        self.target.ahead(Question("read", (path, MAX_BYTES)) for path in paths)

    def entries(self, path: str) -> list[str]:
        """Names in a directory, in natural order; empty when it cannot be read."""
        try:
            names = self.target.names(path, MAX_NAMES)
        except OSError:
            return []
        return sorted(names, key=natural)

    def link(self, path: str) -> str | None:
        """The last component of a symbolic link's target; None when it is no link."""
        try:
            return self.target.link(path).rpartition("/")[2]
        except OSError:
            return None

    def inode(self, path: str) -> int | None:
        """The inode that a path leads to (for a namespace: its number); None when it cannot be read."""
        try:
            return self.target.status(path).inode
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory."""
        return self.target.exists(path)

    def _add(self, key: str, fact: Fact) -> None:
        with self._lock:
            if len(self._facts) >= MAX_FACTS and key not in self._facts:
                self.omitted += 1
            else:
                self._facts[key] = fact


def reason(error: OSError) -> str:
    """An OSError in words, without the path."""
    return (error.strerror or type(error).__name__).lower()


def decoded(data: bytes) -> str:
    """Text from the kernel or a process. Bytes that are not UTF-8 are shown as ``\\xff``."""
    return data.decode("utf-8", "backslashreplace")


def natural(name: str) -> tuple[int, int, str]:
    """Sort key: cpu2 before cpu10, 9 before 10."""
    digits = "".join(character for character in name if character in "0123456789")[:18]
    return (0, int(digits), name) if name.isdigit() and name.isascii() else (1, int(digits or 0), name)


def grouped(numbered: Iterable[tuple[int, str]]) -> str:
    """One text for the values of many CPUs: ``performance`` if all agree, else ``performance: 0-3; powersave: 4-7``."""
    by_value: dict[str, list[int]] = {}
    for number, value in numbered:
        by_value.setdefault(value, []).append(number)
    if len(by_value) <= 1:
        return next(iter(by_value), "")
    return "; ".join(f"{value}: {ranges(numbers)}" for value, numbers in sorted(by_value.items()))


def ranges(numbers: Iterable[int]) -> str:
    """0-3,8 for [0, 1, 2, 3, 8]."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in runs)
