"""What the console adds to a session in each interval: its own cost, and the names of the scope's network namespace."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import msgspec

from netconsole.host import machine
from netconsole.profile.scope import RunScope
from netconsole.telemetry.frames import Table, Usage
from netconsole_collector.kernel import usage

PSS_EVERY = 5
"""Intervals between two readings of PSS. The kernel walks our page tables for it, which takes about 1 ms."""
NAME_EVERY = 10
"""Intervals between two looks at the names of the scope's network namespace."""


class OwnCost:
    """CPU and memory of this process."""

    def __init__(self) -> None:
        self._cpu_ns = time.process_time_ns()
        self._reading = 0
        self._pss_kb: int | None = None

    def usage(self) -> Usage:
        """CPU time since the last call, memory now."""
        now = time.process_time_ns()
        used, self._cpu_ns = now - self._cpu_ns, now
        if self._reading % PSS_EVERY == 0:
            self._pss_kb = usage.pss_kb()
        self._reading += 1
        return Usage(cpu_ns=used, rss_kb=usage.rss_kb(), pss_kb=self._pss_kb)


class OwnInterval:
    """Tells the cost of each interval, with its length in ns, from a thread of its own.

    ``names``: what a network namespace is called, by its inode, and whether it is the collector's own. Raises OSError.
    """

    def __init__(
        self,
        interval_s: float,
        tell: Callable[[Usage, int], None],
        scope: RunScope | None,
        names: Callable[[int], tuple[set[str], bool]],
    ) -> None:
        self._interval_s = interval_s
        self._tell = tell
        self._scope = scope
        self._names = names
        self._own = OwnCost()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="own cost", daemon=True)

    def start(self) -> None:
        """Start."""
        self._thread.start()

    def close(self) -> None:
        """End the thread. Idempotent."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(1.0)

    def _run(self) -> None:
        due = last = time.monotonic()
        interval = 0
        while not self._stop.is_set():
            if interval % NAME_EVERY == 0 and self._scope is not None and self._scope.netns is not None:
                with contextlib.suppress(OSError):  # the next look tells
                    self._scope.learn(*self._names(self._scope.netns))
            interval += 1
            now = time.monotonic()
            self._tell(self._own.usage(), max(1, int((now - last) * 1e9)))
            last, now = now, time.monotonic()
            # One that is late is skipped: the next one is due at the next full interval.
            due += self._interval_s * (1 + int((now - due) / self._interval_s))
            self._stop.wait(due - now)


def with_before(table: Table) -> Table:
    """The row of the machine, with how busy that was before the console measured: only the console was there."""
    gauges = {"before_cpu_pct": machine.before_pct()}
    rows = [msgspec.structs.replace(row, gauges={**row.gauges, **gauges}) for row in table.rows]
    return msgspec.structs.replace(table, rows=rows)
