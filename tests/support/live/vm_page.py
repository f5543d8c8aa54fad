"""What `netconsole vm` says of a machine, for tests that hold one back."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

from tests.support.console_command import COMMAND
from tests.support.live.tiny_guest import TinyGuest

LIMIT_S = 90.0
WAITS = "waits for a CPU"
FRAME = bytes.fromhex("ffffffffffff 020000000001 88b5") + bytes(986)
"""1 000 bytes: a broadcast of an EtherType for local experiments (IEEE 802, 88b5)."""
PAUSE_S = 0.01
Caps: TypeAlias = dict[str, dict[str, str]]
"""Each thing that may cap a machine by its name, and "first", which the page says."""


@contextmanager
def frames(one: TinyGuest, per_s: int) -> Iterator[None]:
    """About so many a second go to it."""
    ended = threading.Event()

    def send() -> None:
        while not ended.wait(PAUSE_S):
            for _ in range(int(per_s * PAUSE_S)):
                with suppress(OSError):  # what a queue sheds is told to the sender
                    wire.send(FRAME)

    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        wire.bind((one.tap, 0))
        wire.setblocking(False)
        sending = threading.Thread(target=send)
        sending.start()
        try:
            yield
        finally:
            ended.set()
            sending.join()


def caps(
    one: TinyGuest, probes: Sequence[str], *, where: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Caps:
    """As four seconds show it. No probes: those of the profile. ``where``: words of a command that runs it."""
    words = [word for probe in probes for word in ("--probe", probe)]
    command = [*where, *COMMAND, "vm", one.name, "--duration", "4s", "--format", "json", *words]
    own = {**os.environ, **(environment or {})}
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=own)
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["vms"][0]
    return {"first": found["verdict"], **{cap["name"]: cap for cap in found["caps"]}}


def only(found: Caps, name: str, *also: str) -> str:
    """The text of this cap, which is said first. Threads may wait as well: this machine has other work, too.

    ``also``: what caps such a machine besides.
    """
    assert found[name]["state"] == "caps", found
    assert found["first"]["text"] in (found[name]["text"], found[WAITS]["text"]), found
    others = {cap for cap, said in found.items() if said["state"] == "caps"} - {"first", name, WAITS, *also}
    assert others <= {"anything else that stands out"}, found
    return found[name]["text"]


def first(found: Caps, name: str, *also: str) -> str:
    """The text of a limit: it is said before all others, also where threads wait."""
    text = only(found, name, *also)
    assert found["first"]["text"] == text, found
    return text
