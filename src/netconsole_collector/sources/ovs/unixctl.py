"""Sends JSON-RPC requests to ovs-vswitchd's control socket, as ovs-appctl does (OVS lib/unixctl.c)."""

import errno
import json
import os
from typing import List, NamedTuple, Optional, Sequence

from netconsole_collector.primitives.exchange import MAX_REPLY_BYTES
from netconsole_collector.primitives.here import HERE, Here

DIRECTORIES = ("/run/openvswitch", "/var/run/openvswitch", "/usr/local/var/run/openvswitch")
NAMES = ("ovs-vswitchd", "ovs-vswitchd-dpdk")
"""Of the program, as it was called: pidfile and socket have it. The second is Debian's build with DPDK."""
PROGRAM_COMMS = tuple(name[:15] for name in NAMES)
"""As the kernel keeps them: 15 bytes."""
DIRECTORY_VARIABLE = "OVS_RUNDIR"
"""Where Open vSwitch's own tools look first."""
TIMEOUT_S = 0.25
"""An idle ovs-vswitchd answers within 1 ms. Its main thread answers, so a slow answer shows that it is busy."""
_NUMBER = 1
"""Of every request: at most one is open on a connection."""


class UnixctlError(Exception):
    """ovs-vswitchd does not answer, or refuses; the message says why in a few words."""


class Refused(UnixctlError):
    """It refused: the command is unknown, or its object does not exist."""


class LateAnswer(UnixctlError):
    """It has not answered in time: a CPU is busy, its or ours."""


class Unixctl:
    """A connection to a running ovs-vswitchd. Not thread-safe."""

    def __init__(self, path: str, host: Here = HERE) -> None:
        """Raises UnixctlError."""
        try:
            self._socket = host.connect(path, TIMEOUT_S)
        except OSError as error:
            raise UnixctlError(f"{path}: {error.strerror or 'no answer'}") from None

    def ask(self, command: str, *arguments: str, timeout_s: float = TIMEOUT_S) -> str:
        """The text of the answer. Raises UnixctlError. Unless that is Refused, do not use the connection again."""
        request = {"method": command, "params": list(arguments), "id": _NUMBER}
        try:
            reply = json.loads(self._socket.ask(json.dumps(request).encode(), timeout_s).decode("utf-8"))
        except TimeoutError:
            raise LateAnswer(f"no answer to {command} within {timeout_s:g} s") from None
        except OSError as error:
            is_long = error.errno == errno.EMSGSIZE
            why = f"an answer of more than {MAX_REPLY_BYTES >> 20} MiB" if is_long else error.strerror
            raise UnixctlError(f"{command}: {why}") from None
        except ValueError:
            reply = None
        if not isinstance(reply, dict) or reply.get("id") != _NUMBER:
            raise UnixctlError(f"{command}: not an answer to what was asked")
        if reply.get("error") is not None:
            raise Refused(f"{command}: {str(reply['error']).strip()}")
        return str(reply.get("result", ""))

    @property
    def took_s(self) -> float:
        """How long the last answer took."""
        return self._socket.took_s

    def close(self) -> None:
        """Close the connection. ovs-vswitchd then forgets the request."""
        self._socket.close()


def directories() -> List[str]:
    """Where an ovs-vswitchd may keep its sockets."""
    named = os.environ.get(DIRECTORY_VARIABLE)
    return [named] if named else list(DIRECTORIES)


class RunningVswitchd(NamedTuple):
    """A process of Open vSwitch, and its control socket."""

    pid: int
    control: str


def running_vswitchd(directories: Sequence[str], host: Here = HERE) -> Optional[RunningVswitchd]:
    """The first that runs of those that the pidfiles of these directories name."""
    for directory in directories:
        for name in NAMES:
            try:
                pid = int(host.read(f"{directory}/{name}.pid", 64).decode("ascii"))
                comm = host.read(f"/proc/{pid}/comm").decode("utf-8", "replace").strip()
            except (OSError, ValueError):
                continue
            if comm == PROGRAM_COMMS[NAMES.index(name)]:
                return RunningVswitchd(pid, f"{directory}/{name}.{pid}.ctl")
    return None
