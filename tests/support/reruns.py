"""Which tests may be run again when they fail, and what each further run was for (docs/design/testing.md)."""

from __future__ import annotations

from pathlib import PurePath

import pytest

ATTEMPTS_MORE = 2
NEVER_AGAIN = ("live/collector/test_cleanup", "live/console/test_cleanup", "live/contexts/")
"""Files whose tests may not fail even once: what is left behind is left behind, and nothing takes anything away from
programs that a test runs itself."""


def may_run_again(file: PurePath, proves: bool) -> bool:
    """Whether a test may fail because of what the machine does to it. ``file``: below tests/.

    Only a test on the running kernel can: others use that machine too. One that ``proves`` a value never may: a value
    that is wrong once is a defect.
    """
    return file.parts[0] == "live" and not str(file).startswith(NEVER_AGAIN) and not proves


def cause(report: pytest.TestReport) -> str:
    """Why a run failed, in one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message if crash is not None else report.longrepr)
    return " ".join(text.split())[:200]
