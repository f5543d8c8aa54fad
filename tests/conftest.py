"""What all tiers share: which tests run side by side; and in CI a skip is a failure, unless nothing can help it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

CANNOT = "cannot run here: "
"""A skip whose reason begins with this is accepted in CI: the kernel or hardware lacks what the test is about."""
HERE = Path(__file__).parent
BESIDE = ("lab", "unit", "live/test_collector_kernels.py", "live/test_collector_headers.py", "live/test_layout.py")
"""The lab has a kernel of its own; the others look at files, or compile. They run beside all that measures this machine
or times a console, one of which runs at a time: they share its counters, and its two processors."""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks for the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Only ``-n 2`` (make test) makes two processes of the two groups."""
    for item in items if config.pluginmanager.hasplugin("xdist") else ():
        is_beside = any(item.path.is_relative_to(HERE / place) for place in BESIDE)
        item.add_marker(pytest.mark.xdist_group("beside" if is_beside else "here"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    report = yield
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        if not reason.startswith(CANNOT):
            report.outcome = "failed"
            report.longrepr = f"skipped in CI, where it must run: {reason}"
    return report
