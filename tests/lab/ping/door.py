"""The door to the lab's machines for a console outside: what `--host` does, with a serial line in place of ssh."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from netconsole.far import address, archive, far_host, program
from netconsole.far.door import Approach
from netconsole.far.ssh import SshLine
from netconsole.host import door
from netconsole.run import ping_capture
from tests.lab.machine.errors import LabError
from tests.lab.machine.l2 import DOOR_PORT, Guest
from tests.lab.machine.machine import Machine, Process

RELAY = Path(__file__).with_name("relay.py")
CHUNK = 65536
LOOK_S = 0.02
HYPERVISOR = "hypervisor"
QUIET_S = 60.0
"""A guest is woken up for nothing as seldom as can be."""
# On the hypervisor: passes on what comes to the door of a guest. Arguments: its address, and the command.
VISIT = """
import os, select, socket, sys
guest = socket.create_connection((sys.argv[1], int(sys.argv[2])))
guest.sendall(sys.argv[3].encode() + b"\\n")
reading = [0, guest.fileno()]
while guest.fileno() in reading:
    for ready in select.select(reading, [], [])[0]:
        part = os.read(ready, 65536)
        if not part:
            reading.remove(ready)
            if ready == 0:
                guest.shutdown(socket.SHUT_WR)
        elif ready == 0:
            guest.sendall(part)
        else:
            os.write(1, part)
"""


@contextlib.contextmanager
def patient(quiet_s: float = QUIET_S) -> Iterator[None]:
    """Machines of the lab may be silent for so long: the line does not count as cut."""
    with contextlib.ExitStack() as stack:
        waits = [(one, "ANSWER_S") for one in (far_host, ping_capture)] + [(archive, "SILENCE_S")]
        for module, name in [*waits, (door, "LINE_S"), (door, "START_S")]:
            stack.enter_context(mock.patch.object(module, name, quiet_s))
        stack.enter_context(mock.patch.object(program, "BEAT_S", quiet_s / 5))
        yield


class Door:
    """Runs programs on the hypervisor and in its guests with Python, for consoles of this machine. Context manager."""

    def __init__(self, hypervisor: Machine, guests: list[Guest], place: Path) -> None:
        self._hypervisor = hypervisor
        self._guests = {guest.name: guest for guest in guests}
        self._path = place / "door"
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self._path))
        self._listening.listen()
        threading.Thread(target=self._serve, name="lab door", daemon=True).start()

    def __enter__(self) -> Door:
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def approach(self, machine: str) -> Approach:
        """The way to the hypervisor or to a guest by its name, as `--host` takes it."""
        text = f"ssh://root@{machine}"
        return Approach(text, False, SerialLine(text, machine, self._path))

    def _serve(self) -> None:
        while True:
            try:
                visitor, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._visit, args=(visitor,), name="lab visitor", daemon=True).start()

    def _visit(self, visitor: socket.socket) -> None:
        with visitor, contextlib.suppress(OSError, LabError):
            asked = b""
            while not asked.endswith(b"\n"):
                asked += visitor.recv(1)
            request = json.loads(asked)
            with self._start(request["machine"], request["command"]) as process:
                threading.Thread(target=_feed, args=(visitor, process), name="lab input", daemon=True).start()
                while not process.ends_within(LOOK_S):
                    _pass_on(process, visitor)
                _pass_on(process, visitor)

    def _start(self, machine: str, command: str) -> Process:
        if machine == HYPERVISOR:
            return self._hypervisor.start("sh", "-c", command)
        ip = self._guests[machine].card.door.partition("/")[0]
        return self._hypervisor.start("python3", "-I", "-S", "-c", VISIT, ip, str(DOOR_PORT), command)


class SerialLine(SshLine):
    """The way to one machine."""

    def __init__(self, text: str, machine: str, path: Path) -> None:
        super().__init__(address.parse(text))
        self._machine, self._path = machine, path

    def open(self, may_ask: bool = False) -> None:
        """It always is."""

    def command(self, far_command: str) -> list[str]:
        """See SshLine."""
        return [sys.executable, "-I", "-S", str(RELAY), str(self._path), self._machine, far_command]


def _feed(visitor: socket.socket, process: Process) -> None:
    with contextlib.suppress(OSError, LabError):
        while part := visitor.recv(CHUNK):
            process.write(part)
        process.close_input()


def _pass_on(process: Process, visitor: socket.socket) -> None:
    """Its errors, too: the console shows the last of them."""
    for stream in (process.out, process.err):
        if stream:
            visitor.sendall(bytes(stream))
            stream.clear()
