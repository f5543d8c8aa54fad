"""A terminal at the far end of a line that carries little: 4 kB/s, as over a bad mobile link."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.support.terminal_process import LIMIT_S, TerminalProcess

BYTES_PER_S = 4_000
TURN_S = 0.05


class PoorLine:
    """Shows what a process writes at the pace of the line. It counts the keys."""

    def __init__(self, process: TerminalProcess) -> None:
        self.process = process
        self.keys = 0

    def until(self, text: str) -> str:
        """Reads at the pace of the line until the screen shows a text; the screen then."""
        return self._read(f"never saw {text!r}", lambda: text in self.process.text())

    def until_gone(self, text: str) -> str:
        """Reads on until the screen does not show a text any more; the screen then."""
        return self._read(f"always saw {text!r}", lambda: text not in self.process.text())

    def _read(self, wrong: str, condition: Callable[[], bool]) -> str:
        end_s = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < end_s, f"{wrong}; the screen was:\n{self.process.text()}"
            self.process.pump(0, most=int(BYTES_PER_S * TURN_S))
            time.sleep(TURN_S)  # the pace of the line, not a wait for something to happen
        return self.process.text()

    def press(self, *keys: str) -> None:
        """Types; each of ``keys`` is one."""
        self.keys += len(keys)
        self.process.press("".join(keys))
