"""Sends JSON-RPC requests to ovs-vswitchd's control socket, as ovs-appctl does (OVS lib/unixctl.c)."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

DIRECTORIES = ("/run/openvswitch", "/var/run/openvswitch", "/usr/local/var/run/openvswitch")
DIRECTORY_VARIABLE = "OVS_RUNDIR"
"""Where Open vSwitch's own tools look first."""
TIMEOUT_S = 0.25
"""An idle ovs-vswitchd answers within 1 ms. Its main thread answers, so a slow answer shows that it is busy."""
MAX_REPLY_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 16


class UnixctlError(Exception):
    """ovs-vswitchd does not answer, or refuses; the message says why in a few words."""


class Refused(UnixctlError):
    """It refused: the command is unknown, or its object does not exist."""


class Unixctl:
    """A connection to a running ovs-vswitchd. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        """Raises UnixctlError."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._number = 0
        try:
            self._socket.settimeout(TIMEOUT_S)
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise UnixctlError(f"{path}: {error.strerror or 'no answer'}") from None

    def ask(self, command: str, *arguments: str, timeout_s: float = TIMEOUT_S) -> str:
        """The text of the answer. Raises UnixctlError. Unless that is Refused, do not use the connection again."""
        self._number += 1
        request = {"method": command, "params": list(arguments), "id": self._number}
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(json.dumps(request).encode())
            reply = self._reply(command, time.monotonic() + timeout_s)
        except TimeoutError:
            raise UnixctlError(f"no answer to {command} within {timeout_s:g} s") from None
        except OSError as error:
            raise UnixctlError(f"{command}: {error.strerror}") from None
        if not isinstance(reply, dict) or reply.get("id") != self._number:
            raise UnixctlError(f"{command}: not an answer to what was asked")
        if reply.get("error") is not None:
            raise Refused(f"{command}: {str(reply['error']).strip()}")
        return str(reply.get("result", ""))

    def close(self) -> None:
        """Close the connection. ovs-vswitchd then forgets the request."""
        self._socket.close()

    def _reply(self, command: str, deadline: float) -> object:
        received = bytearray()
        while len(received) <= MAX_REPLY_BYTES:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            chunk = self._socket.recv(_CHUNK_BYTES)
            if not chunk:
                raise UnixctlError(f"{command}: the connection was closed")
            received += chunk
            if not chunk.endswith(b"}"):
                continue
            try:
                return json.loads(received)
            except ValueError:
                continue  # this brace was inside the text
        raise UnixctlError(f"{command}: an answer of more than {MAX_REPLY_BYTES >> 20} MiB")


def directories() -> list[Path]:
    """Where an ovs-vswitchd may keep its sockets."""
    named = os.environ.get(DIRECTORY_VARIABLE)
    return [Path(named)] if named else [Path(one) for one in DIRECTORIES]


def vswitchd_pid(directory: Path) -> int | None:
    """The process that this directory's pidfile names, when it runs."""
    try:
        pid = int((directory / "ovs-vswitchd.pid").read_text("ascii"))
        comm = Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except (OSError, ValueError):
        return None
    return pid if comm == "ovs-vswitchd" else None
