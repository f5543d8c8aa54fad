"""Relates the clock of a vantage point to its machine's TSC, before and after the echoes; a host's also to its VM's.

It is extra: where it cannot be told, the capture does without, and what no probe saw stays one remainder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import msgspec

from netconsole.base.errors import UNREADABLE, Unable
from netconsole.far.host import AnyHost
from netconsole.far.program import Gone, ProgramProcess
from netconsole.ping.capture import GuestTsc, TscPoint

READER = "netconsole_collector.tsc_point"
ANSWER_S = 20.0
_MAX_BYTES = 65536


class _TscAnswer(msgspec.Struct):
    points: list[TscPoint]
    guest: GuestTsc | None = None


class TscPoints:
    """What was read of one machine: the first point and the last one, which is as much as a line needs."""

    def __init__(self, host: AnyHost) -> None:
        self._host = host
        self.points: list[TscPoint] = []
        self.guest: GuestTsc | None = None

    def read(self, taps: Sequence[str] = ()) -> None:
        """One more point; and of a host what KVM adds for the VM of these taps. Waits for a Python to start there."""
        with contextlib.suppress(Unable, Gone, *UNREADABLE):
            answer = msgspec.json.decode(_said(self._host, taps), type=_TscAnswer)
            self.points = [*self.points[:1], *answer.points[:1]]
            self.guest = answer.guest or self.guest


def _said(host: AnyHost, taps: Sequence[str]) -> bytes:
    program = ProgramProcess(host.launch_of(READER, *taps), "the reader of the TSC")
    said = b""
    with contextlib.closing(program):
        for chunk in program.chunks(ANSWER_S):
            said += chunk
            if said.endswith(b"\n") or len(said) > _MAX_BYTES:
                break
    return said[:_MAX_BYTES]
