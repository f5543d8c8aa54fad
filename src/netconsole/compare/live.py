"""Compares a running session with a baseline, window by window, by the rules of compare."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from netconsole.base.fact_keys import FactData
from netconsole.compare.compare import compare_metrics
from netconsole.compare.document import Comparison, Finding
from netconsole.compare.metrics import flatten
from netconsole.compare.reference import Reference
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import Profile
from netconsole.snapshot import builder
from netconsole.telemetry.session import Session
from netconsole.telemetry.state import State

WINDOW_S = 5.0
"""Long enough to see a rate of two a second, and short enough to be up to date."""
MOST_CPU = 0.01
"""The share of a core that comparing may take. On a host with hundreds of VMs, the windows get longer for that."""
MOST_WINDOW_S = 120.0
FACTS_EVERY_S = 60.0
"""When there is a tap that is not in the facts, they are read again, but not more often than this."""


@dataclass(frozen=True, slots=True)
class ComparedWindow:
    """The last whole window. ``findings`` were also in the window before: a single window may be chance."""

    comparison: Comparison
    findings: tuple[Finding, ...]
    window_s: float
    ended_s: float
    """When it ended (time.monotonic)."""


class LiveComparison:
    """One baseline against one session. :meth:`tick` is called after every interval and returns at once."""

    def __init__(
        self,
        session: Session,
        manifests: Mapping[str, Manifest],
        profile: Callable[[], Profile],
        reference: Reference,
        facts: Mapping[str, FactData],
        read_facts: Callable[[], Mapping[str, FactData]] | None = None,
    ) -> None:
        self.reference = reference
        self.window: ComparedWindow | None = None
        """None until the first two windows are over."""
        self.error: str | None = None
        self._session = session
        self._manifests = manifests
        self._profile = profile
        self._facts = facts
        self._read_facts = read_facts
        self._facts_s = time.monotonic()
        self._newer: Mapping[str, FactData] | None = None
        self._since: builder.Totals | None = None
        self._due_ns = 0
        self._window_s = WINDOW_S
        self._before: dict[str, str] | None = None
        self._thread: threading.Thread | None = None

    def tick(self, state: State) -> None:
        """Call it after each interval, inside ``Session.view``, from the thread that uses the reference."""
        if self._newer is not None:
            self.reference.learn(self._newer)
            self._facts, self._newer = self._newer, None
        if self._thread is not None and self._thread.is_alive():
            return
        now_ns = state.collector.closed_mono_ns or state.console.closed_mono_ns
        if now_ns is None:
            return
        if self._since is None:
            self._begin(state)
        elif now_ns >= self._due_ns:
            self._thread = threading.Thread(target=self._compare, name="live comparison", daemon=True)
            self._thread.start()

    def join(self) -> None:
        """Waits until the current comparison is done."""
        if self._thread is not None:
            self._thread.join()

    def _begin(self, state: State) -> None:
        since = self._since = builder.totals(state)
        # Half an interval of tolerance: intervals are not exactly 1 s long.
        self._due_ns = since.mono_ns + round(self._window_s * 1e9) - (state.collector.interval_ns or 0) // 2

    def _compare(self) -> None:
        """Runs in its own thread. The pane shows an error: a traceback would spoil the screen."""
        try:
            self._window()
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"

    def _window(self) -> None:
        """Judges the window that has ended. Its cost decides how long the next window is."""
        started_s = time.thread_time()
        since = self._since
        assert since is not None
        with self._session.view() as state:
            taken = builder.build(state, self._manifests, self._profile(), since, self._facts)
            unknown = any(_taps(state, self.reference))
            self._begin(state)
        comparison = compare_metrics(flatten(taken, self._manifests), self.reference.metrics)
        certain = {one.metric: one.direction for one in comparison.findings if one.significant}
        if self._before is not None:
            lasting = tuple(
                one for one in comparison.findings if one.significant and self._before.get(one.metric) == one.direction
            )
            self.window = ComparedWindow(comparison, lasting, taken.duration_s, time.monotonic())
        self._before = {metric: str(direction) for metric, direction in certain.items()}
        if unknown and self._read_facts is not None and time.monotonic() - self._facts_s > FACTS_EVERY_S:
            self._facts_s = time.monotonic()
            self._newer = self._read_facts()
        used_s = time.thread_time() - started_s
        self._window_s = min(MOST_WINDOW_S, max(WINDOW_S, used_s / MOST_CPU))


def _taps(state: State, reference: Reference) -> Iterator[bool]:
    """For every row of a VM's tap, whether the facts do not know the tap."""
    for probe in state.probes.values():
        for table in probe.tables.values():
            for row in table.rows.values():
                if row.labels.get("vm") and isinstance(device := row.labels.get("device"), str):
                    yield not reference.knows_device(device)
