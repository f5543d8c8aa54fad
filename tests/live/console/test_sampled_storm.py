"""A storm under a summary: it costs what the budget says, its distributions go on, and it is whole again after it."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from netconsole.telemetry.session import News
from netconsole.telemetry.state import State
from tests.support.live.governed import GovernedSession
from tests.support.live.network import Namespace
from tests.support.live.storm import Storm

pytestmark = [pytest.mark.costs, pytest.mark.long]

PROBE = "softirq_health"
STORM_PER_S = 100_000
SHARE = 0.2
"""The budget, of what the storm costs if nobody does anything."""
FIGURES = 10
"""Of as many the mean is held against the budget."""
PROFILE = f"""
[budget]
kernel_cpu_pct = %.4f
action = "%s"

[probes.{PROBE}]
mode = "summary"
"""


class Watched(GovernedSession):
    """A session of one probe under a budget, and what it cost in each figure."""

    def __init__(self, directory: Path, limit_pct: float, action: str) -> None:
        self.figures: list[float] = []
        self._measured_ns = 0
        super().__init__(directory, PROBE, PROFILE % (limit_pct, action))

    def heard(self, news: News) -> None:
        """See :class:`GovernedSession`."""
        with self.session.view() as state:
            cost = state.probes[PROBE].cost
            measured_ns = max((one.window_ns for one in cost.programs.values()), default=0)
            if news == "interval" and measured_ns > self._measured_ns and cost.kernel_cpu_pct is not None:
                self._measured_ns = measured_ns
                self.figures.append(cost.kernel_cpu_pct)

    def next_figures(self) -> list[float]:
        """So many that are to come."""
        known = len(self.figures)
        self.until(lambda _: len(self.figures) >= known + FIGURES)
        return self.figures[known : known + FIGURES]

    def timed(self) -> int:
        with self.session.view() as state:
            return timed(state)


def timed(state: State) -> int:
    """Softirqs in the histograms of how late they start."""
    group = state.probes[PROBE].histograms.get("late")
    return sum(one.total.count for one in group.rows.values()) if group else 0


@pytest.fixture
def limit_pct(tmp_path: Path, namespace: Namespace) -> float:
    with Watched(tmp_path, 1000.0, "warn") as free, Storm(namespace, STORM_PER_S):
        free.next_figures()
        return SHARE * fmean(free.next_figures())


def test_a_storm_costs_what_the_budget_says_and_its_times_are_still_measured(
    tmp_path: Path, namespace: Namespace, limit_pct: float
) -> None:
    with Watched(tmp_path, limit_pct, "degrade") as governed:
        with Storm(namespace, STORM_PER_S):
            governed.until(lambda _: bool(governed.enforcer.lowered))
            governed.next_figures()
            before = governed.timed()
            figures = governed.next_figures()
            after = governed.timed()
            with governed.session.view() as state:
                seen_pct = state.probes[PROBE].seen_pct
        said = [one.action for one in governed.enforcer.actions]
        print(
            f"limit {limit_pct:.3f} %, mean {fmean(figures):.3f} %, seen {seen_pct} %, {after - before} timed",
            *said,
            sep="\n  ",
        )
        assert all(one.startswith(("summary, ", "partly back: summary, ")) for one in said), (
            "neither detached nor silent"
        )
        assert fmean(figures) <= limit_pct
        assert after > before and seen_pct is not None and 0 < seen_pct < 60
        governed.until(lambda state: not governed.enforcer.lowered and state.probes[PROBE].seen_pct is None)
