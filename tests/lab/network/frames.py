"""Sends frames from beside the switch, one after another, and says when each was sent."""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.lab.machine.hypervisor import CHECKOUT, CPUS, Hypervisor
from tests.support.live.ovs_frames import Frame

PROGRAM = Path(__file__).with_name("frame_sender.py")
ANSWER_LIMIT_S = 120.0
_numbers = itertools.count(1)


class Sent(NamedTuple):
    """The clock of the hypervisor before a frame was sent, and after it was sent (or answered)."""

    began_ns: int
    ended_ns: int


class Held(NamedTuple):
    """See send_and_hold of frame_sender.py."""

    began_ns: int
    there_ns: int
    released_ns: int
    answered_ns: int


class FrameSender:
    """Sends from namespaces; each is the place of one device and one port: `{"a": ("eth0", "va")}`."""

    def __init__(self, hypervisor: Hypervisor, places: dict[str, tuple[str, str]]) -> None:
        words = [",".join((netns, *names)) for netns, names in places.items()]
        program = PROGRAM.relative_to(CHECKOUT)
        self._process = hypervisor.start("/usr/bin/python3", program, *words, cwd=CHECKOUT)
        self._process.wait_for(b"ready\n", ANSWER_LIMIT_S)

    def send(
        self,
        place: str,
        frames: Iterable[Frame | bytes],
        *,
        cpu: int | None = None,
        answered_by: str = "",
        sender: int | None = None,
        times: int = 1,
    ) -> list[Sent]:
        """All of them, so many times, from this CPU. `answered_by`: the port that sends each one before the next one is
        sent; `sender`: all of them have this number in their source."""
        raw = [one if isinstance(one, bytes) else one.raw(sender or next(_numbers)) for one in frames]
        return [Sent(*clock) for clock in self._order(place, raw, cpu, answered_by, times=times)]

    def hold(self, place: str, frame: Frame, ms: int, *, cpu: int, answered_by: str) -> Held:
        """Sends it, and keeps the CPU for so long from whoever is to answer it there."""
        (clock,) = self._order(place, [frame.raw(next(_numbers))], cpu, answered_by, hold_ns=ms * 1_000_000)
        return Held(*clock)

    def send_large(self, place: str, frame: Frame, segment_bytes: int, *, cpu: int) -> None:
        """A TCP packet that is still to be cut into segments of so much payload (struct virtio_net_hdr)."""
        headers = len(frame.raw(0)) - frame.payload
        with_checksum, tcpv4 = 1, 1
        # the checksum is the kernel's to fill in: from the TCP header on, 16 bytes into it
        large = struct.pack("=BBHHHH", with_checksum, tcpv4, headers, segment_bytes, headers - 20, 16)
        self._order(place, [large + frame.raw(next(_numbers))], cpu, "", is_large=True)

    def close(self) -> None:
        self._process.close_input()
        self._process.wait()

    def _order(
        self,
        place: str,
        frames: Sequence[bytes],
        cpu: int | None,
        answered_by: str,
        *,
        hold_ns: int = 0,
        times: int = 1,
        is_large: bool = False,
    ) -> list[list[int]]:
        order = {
            "place": place,
            "frames": [frame.hex() for frame in frames],
            "cpus": list(range(CPUS)) if cpu is None else [cpu],
            "answered_by": answered_by,
            "hold_ns": hold_ns,
            "times": times,
            "is_large": is_large,
        }
        self._process.write(json.dumps(order).encode() + b"\n")
        told: list[list[int]] = json.loads(self._process.wait_for(b"\n", ANSWER_LIMIT_S))
        return told


def inode(hypervisor: Hypervisor, path: str) -> int:
    """Of a network namespace, as /proc has it."""
    return int(hypervisor.run("stat", "-Lc", "%i", path).text)
