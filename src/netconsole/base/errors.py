"""The errors that end a command: bad input, with one line per mistake, and a host that cannot do it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from netconsole.base.figure import place, safe

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for untrusted bytes: they are no JSON or not of the type, no text, or nested without end."""
MAX_PROBLEMS = 200
"""More mistakes than this in one file are only counted: the file is something else, or malicious."""


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
        """The same without the file: key and what was expected."""
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


class HostLost(OSError):
    """A far host does not answer, or makes no sense. Sources say so and go on; a command that needs it: exit code 3."""


def bad(file: object, key: str, message: str) -> BadInput:
    """A BadInput of one mistake."""
    return BadInput([Problem(str(file), key, message)])
