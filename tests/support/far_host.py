"""A far host without ssh: programs of the collector's package in namespaces of their own on this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from netconsole.base.paths import COLLECTOR, collector_package
from netconsole.far.about import About
from netconsole.far.address import Address
from netconsole.far.compiling import FarCompiler
from netconsole.far.program import Launch

_RUN = (
    "import sys; sys.path.insert(0, sys.argv.pop(1));"
    " module = __import__(sys.argv[1], fromlist=['main']); sys.exit(module.main(sys.argv[2:]))"
)


class NearHost:
    """``enter``: the command that brings a program there, such as ``nsenter``."""

    address = Address("near")
    about: About | None = None
    compiler: FarCompiler | None = None

    def __init__(self, enter: Sequence[str] = (), python: str = sys.executable) -> None:
        self._enter, self._python = enter, python
        self._closers: list[Callable[[], None]] = []

    def launch_of(self, module: str, *arguments: str) -> Launch:
        """Without a beat: what ends the program is the end of its input."""
        del arguments
        return Launch([*self._enter, self._python, "-I", "-c", _RUN, str(collector_package().parent), module])

    def collector(self, *arguments: str) -> Launch:
        """Not used."""
        raise NotImplementedError

    def measuring(self) -> Launch:
        """See AnyHost."""
        launch = self.launch_of(COLLECTOR)
        return Launch([*launch.command, "--compiled-elsewhere", "--asked-first"])

    def also_close(self, callback: Callable[[], None]) -> None:
        self._closers.append(callback)

    def close(self) -> None:
        while self._closers:
            self._closers.pop()()
