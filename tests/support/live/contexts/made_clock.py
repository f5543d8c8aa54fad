"""The shared headers of the probes at a time that the test sets (made/headers)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from tests.support.live.contexts.unattached import UnattachedProbe

WINDOW_NS = 1 << 27
"""A window of the circuit breaker (docs/design/governor.md)."""
BEGAN = 1000
"""The window in which the clock begins."""
CALL_NS = 50
"""What being called costs, which a run cannot measure itself."""
DETAILS, COUNTERS = 64, 128
"""Flags of config.h."""
_WINDOW = struct.Struct("=3Q")


class Window(NamedTuple):
    number: int
    runs: int
    took_ns: int


class Headers:
    """Their programs. The clock stands still but for what a run takes."""

    def __init__(self, probe: UnattachedProbe) -> None:
        self.probe = probe
        self._maps = probe.running._maps
        self.time(BEGAN * WINDOW_NS)

    def time(self, ns: int, jiffies: int = 8000) -> None:
        """The kernel's clock, and its ticks."""
        self._maps.write("made_clock", struct.pack("=2Q", ns, jiffies))

    def call(self, program: str, *arguments: int) -> int:
        return self.probe.prepare(program, *arguments)()

    def often(self, times: int, program: str, *arguments: int) -> list[int]:
        """What each call returned."""
        call = self.probe.prepare(program, *arguments)
        return [call() for _ in range(times)]

    @property
    def window(self) -> Window:
        return Window(*_WINDOW.unpack(self._maps["nc_window"].get(bytes(4)) or b""))

    @window.setter
    def window(self, window: Window) -> None:
        self._maps.write("nc_window", _WINDOW.pack(*window))

    @property
    def arrival(self) -> int:
        """When the next event may come, in ns (events.h)."""
        return int.from_bytes(self._maps["nc_arrival"].get(bytes(4)) or b"", "little")

    @arrival.setter
    def arrival(self, ns: int) -> None:
        self._maps.write("nc_arrival", ns.to_bytes(8, "little"))

    def attended(self, until: int) -> None:
        """The governor is known to be at work before this window."""
        self._maps.write("nc_attended", until.to_bytes(8, "little"))
