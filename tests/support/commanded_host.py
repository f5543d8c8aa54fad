"""A host whose collector is a command of the test's own, on this machine."""

from __future__ import annotations

from collections.abc import Sequence

from netconsole.far.host import ThisHost
from netconsole.far.program import Launch


class CommandedHost(ThisHost):
    """Runs the command as its collector."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)

    def collector(self, *arguments: str) -> Launch:
        return Launch([*self._command, *arguments])
