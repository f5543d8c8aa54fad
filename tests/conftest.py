"""What all tiers share: in CI a skip is a failure, unless the machine cannot have what the test needs."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

CANNOT = "cannot run here: "
"""A skip whose reason begins with this is accepted in CI: the kernel or hardware lacks what the test is about."""


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
