"""What all tiers share: the stage of a test, which may be run again, and that a skip is a failure in CI."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest

from tests.support.reruns import cause, may_run_again

STAGES = ("computing", "booting", "starting", "counting", "making", "costs", "terminals", "long")
"""When `make test` runs a test (see the Makefile); ``long`` is for `make test-lab` alone."""
USUAL_STAGE = {
    "unit": "computing",
    "tui": "computing",
    "live/contexts": "making",
    "live": "counting",
    "lab": "long",
}
"""By directory, the inner one first; files of another stage say so: ``pytestmark = pytest.mark.starting``."""
TESTS = Path(__file__).parent

CANNOT = "cannot run here: "
"""A skip whose reason begins with this is accepted in CI: the kernel or hardware lacks what the test is about."""


@pytest.hookimpl(tryfirst=True)  # before pytest looks for the stage that -m asks for
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test is of exactly one stage; one with a parameter that is ``long``, of that as well."""
    for item in items:
        stages = {mark.name for mark in item.iter_markers() if mark.name in STAGES}
        if len(stages - {"long"}) > 1:
            raise pytest.UsageError(f"{item.nodeid}: of several stages: {', '.join(sorted(stages))}")
        if not stages:
            item.add_marker(
                next(stage for place, stage in USUAL_STAGE.items() if item.path.is_relative_to(TESTS / place))
            )


def pytest_collection_finish(session: pytest.Session) -> None:
    """No test is run again that may not be (tests/support/reruns.py)."""
    for item in session.items:
        if (again := item.get_closest_marker("flaky")) is None:
            continue
        proves = item.get_closest_marker("proves") is not None
        if not may_run_again(item.path.relative_to(TESTS), proves, again.kwargs.get("only_rerun")):
            raise pytest.UsageError(f"{item.nodeid}: may not be run again: it proves a value, or nothing disturbs it")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell every further run, and what it was for."""
    if lines := summary_of_reruns(terminalreporter.stats.get("rerun", ())):
        terminalreporter.section("run again, and why")
        for line in lines:
            terminalreporter.write_line(line)


def summary_of_reruns(reports: Iterable[pytest.TestReport]) -> list[str]:
    """One line for each failed run that was followed by another one."""
    return [f"{report.nodeid}: {cause(report)}" for report in reports]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        if not reason.startswith(CANNOT):
            report.outcome = "failed"
            report.longrepr = f"skipped in CI, where it must run: {reason}"
    return report
