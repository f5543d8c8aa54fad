"""A far host that is this machine: login shells and what they do to a command, without ssh."""

from __future__ import annotations

from collections.abc import Sequence

from netconsole.far.address import Address
from netconsole.far.far_host import FarHost
from netconsole.far.ssh import SshLine


class LocalLine(SshLine):
    """Gives the command to a login shell here, as sshd does there."""

    def __init__(self, *shell: str) -> None:
        super().__init__(Address("hv", "me", 2222))
        self._shell: Sequence[str] = shell or ("sh", "-c")

    def open(self, may_ask: bool = False) -> None:
        """Nothing to do."""

    def command(self, far_command: str) -> list[str]:
        """See SshLine."""
        return [*self._shell, far_command]


def host(*shell: str) -> FarHost:
    """By default with sh as login shell; else what gets the command as its last argument."""
    line = LocalLine(*shell)
    return FarHost(line.address, line)


def script(text: str) -> FarHost:
    """With this script as login shell; the command is in $1."""
    return host("sh", "-c", text, "sh")
