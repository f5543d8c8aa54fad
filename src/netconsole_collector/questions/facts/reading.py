"""Holds collected facts, each with its source: bounded, thread-safe. A read error makes a fact unknown, with why."""

import threading
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

from netconsole_collector.names.fact_keys import FactValue
from netconsole_collector.primitives.files import MAX_NAMES
from netconsole_collector.primitives.here import HERE, Here

MAX_FACTS = 50000
"""200 VMs with 8 queues each have about 15 000 facts."""
MAX_BYTES = 64 * 1024
"""The most that is read of one file. Command lines are the longest."""
MAX_TEXT = 4096
"""A longer value is cut. A kernel command line has 4096 characters at most."""


Json = Dict[str, Any]


class Fact(NamedTuple):
    """One setting of this host. ``value`` None is unknown, and ``why`` gives the reason.

    ``volatile``: the fact (a process id, a tap's number) only identifies something. A comparison does not report it.
    """

    value: FactValue
    source: str
    why: Optional[str] = None
    volatile: bool = False


class Facts:
    """Collects facts of a host under keys like ``nic/eth0/driver``."""

    def __init__(self, host: Here = HERE) -> None:
        self.host = host
        self.omitted = 0
        self.messages: Optional[Json] = None
        """Those of traffic control (tc.py)."""
        self._facts: Dict[str, Fact] = {}
        self._lock = threading.Lock()

    def taken(self) -> Dict[str, Fact]:
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
        return decoded(self.host.read(path, MAX_BYTES))

    def entries(self, path: str) -> List[str]:
        """Names in a directory, in natural order; empty when it cannot be read."""
        try:
            names = self.host.names(path, MAX_NAMES)
        except OSError:
            return []
        return sorted(names, key=natural)

    def link(self, path: str) -> Optional[str]:
        """The last component of a symbolic link's target; None when it is no link."""
        try:
            return self.host.link(path).rpartition("/")[2]
        except OSError:
            return None

    def inode(self, path: str) -> Optional[int]:
        """The inode that a path leads to (for a namespace: its number); None when it cannot be read."""
        try:
            return self.host.status(path).inode
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory."""
        return self.host.exists(path)

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


def natural(name: str) -> Tuple[int, int, str]:
    """Sort key: cpu2 before cpu10, 9 before 10."""
    digits = "".join(character for character in name if character in "0123456789")
    return (0 if digits and digits == name else 1, int(digits[:18] or 0), name)


def grouped(numbered: Iterable[Tuple[int, str]]) -> str:
    """One text for the values of many CPUs: ``performance`` if all agree, else ``performance: 0-3; powersave: 4-7``."""
    by_value: Dict[str, List[int]] = {}
    for number, value in numbered:
        by_value.setdefault(value, []).append(number)
    if len(by_value) <= 1:
        return next(iter(by_value), "")
    return "; ".join(f"{value}: {ranges(numbers)}" for value, numbers in sorted(by_value.items()))


def ranges(numbers: Iterable[int]) -> str:
    """0-3,8 for [0, 1, 2, 3, 8]."""
    runs: List[Tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in runs)
