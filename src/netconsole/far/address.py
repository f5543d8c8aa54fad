"""The address of a host: ``ssh://[USER@]HOST[:PORT]``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from netconsole.base.errors import bad
from netconsole.base.figure import safe

_ADDRESS = re.compile(
    r"ssh://(?:(?P<user>[A-Za-z0-9_][\w.@+\\-]{0,63})@)?"
    r"(?P<host>[A-Za-z0-9_][\w.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}(?:%[\w.-]{1,15})?\])"
    r"(?::(?P<port>[0-9]{1,5}))?/?",
    re.ASCII,
)
"""No part begins with "-", so that ssh takes none of them for an option."""


@dataclass(frozen=True, slots=True)
class Address:
    """A host as ssh knows it: a name of DNS or of ssh's configuration. None: what that configuration says."""

    host: str
    user: str | None = None
    port: int | None = None

    def __str__(self) -> str:
        """The address as it is written on the command line."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        user = f"{self.user}@" if self.user else ""
        return f"ssh://{user}{host}" + (f":{self.port}" if self.port else "")


def parse(text: str) -> Address:
    """Raises BadInput for what is no such address."""
    match = _ADDRESS.fullmatch(text)
    port = int(match["port"]) if match and match["port"] else None
    if match is None or (port is not None and not 0 < port < 65536):
        raise bad("--host", "", f'expected ssh://[USER@]HOST[:PORT], found "{safe(text, 80)}"')
    return Address(match["host"].strip("[]"), match["user"], port)
