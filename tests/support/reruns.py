"""Which tests may be run again when they fail, and what each further run was for (docs/design/testing.md)."""

from __future__ import annotations

from pathlib import PurePath

import pytest

from tests.lab.machine.errors import MachineDied

ATTEMPTS_MORE = 2
NEVER_AGAIN = ("live/collector/test_cleanup", "live/console/test_cleanup", "live/contexts/")
"""Files whose tests may not fail even once: what is left behind is left behind, and nothing takes anything away from
programs that a test runs itself."""

OF_EVERY_RUN = (
    "live/console/test_faults",
    "live/probes/test_echoes",
    "live/probes/test_host_path",
    "live/probes/test_ovs_flows",
    "live/probes/test_protocol_counters",
)
"""Files whose proofs need every run of a program, amid real traffic. Kernels exist that run none while init is on the
CPU (SEEN of measurement.py): then the count is right and the machine is not. A probe that counts wrong does so every
time. Not among them is what counts a test's own calls: init is never on the CPU then."""


def may_run_again(file: PurePath, proves: bool, after: object = None) -> bool:
    """Whether a test may fail because of what the machine does to it. ``file``: below tests/.

    A test on the running kernel can: others use that machine too. One that ``proves`` a value may not, as a value that
    is wrong once is a defect, unless it needs every run of a program. A test in the lab may ``after`` the death of its
    machine alone.
    """
    if file.parts[0] == "lab":
        return after is MachineDied
    if file.parts[0] != "live" or str(file).startswith(NEVER_AGAIN):
        return False
    return not proves or str(file).startswith(OF_EVERY_RUN)


def cause(report: pytest.TestReport) -> str:
    """Why a run failed, in one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message if crash is not None else report.longrepr)
    return " ".join(text.split())[:200]
