"""A host on which programs of the collector's package can be started: this machine, or one over ssh (far_host.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from netconsole.base.paths import measuring_command, program_command
from netconsole.far.program import Launch

if TYPE_CHECKING:  # what this machine's console does without
    from netconsole.far.about import About
    from netconsole.far.address import Address
    from netconsole.far.compiling import FarCompiler


class AnyHost(Protocol):
    """Where programs run."""

    @property
    def address(self) -> Address | None:
        """None for this machine."""

    def launch_of(self, module: str, *arguments: str) -> Launch:
        """How :class:`ProgramProcess` runs ``main(arguments)`` of a module of netconsole_collector there, as root.

        What it writes to descriptor 1 arrives here. On a far host its input has an empty line every
        :data:`program.BEAT_S`; when none comes for :data:`archive.SILENCE_S` it has to end by itself. Raises Unable.
        """

    def collector(self, *arguments: str) -> Launch:
        """How to run a collector there with these arguments. Raises Unable."""

    def measuring(self) -> Launch:
        """How to run the collector of a session there. On a far host it is asked first. Raises Unable."""

    @property
    def about(self) -> About | None:
        """What a far host says of itself; None for this machine."""

    @property
    def compiler(self) -> FarCompiler | None:
        """What compiles probes here for that host. None: the collector compiles them there."""

    def also_close(self, callback: Callable[[], None]) -> None:
        """Call this first when the host is closed."""

    def close(self) -> None:
        """Disconnect. Idempotent."""


class ThisHost:
    """This machine."""

    address = None
    about = None
    compiler = None

    def collector(self, *arguments: str) -> Launch:
        return Launch([*measuring_command(), *arguments])

    def measuring(self) -> Launch:
        return self.collector()

    def launch_of(self, module: str, *arguments: str) -> Launch:
        return Launch(program_command(module, *arguments))

    def also_close(self, callback: Callable[[], None]) -> None:
        """Nothing is closed."""

    def close(self) -> None:
        """There is nothing to close."""


THIS_HOST = ThisHost()
