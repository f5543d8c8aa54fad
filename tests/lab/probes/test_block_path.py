"""block_path on each kernel of the lab: what is asked of a loop device, and of one whose time is known (null_blk).

And io_limits: a VM that its control group (io.max) holds back; and fs_path: what is asked of files on such devices.

From 6.5 a tracepoint names the request in its submitter's task; before, only its bio. 5.10 passes the queue as well.
"""

from __future__ import annotations

import pytest

from tests.lab.kernels.compiled import bring, shipped
from tests.lab.kernels.each import PROVEN
from tests.lab.machine.hypervisor import Hypervisor
from tests.lab.pytest_inside import run_pytest

pytestmark = [pytest.mark.booting, pytest.mark.parametrize("bare", PROVEN, indirect=True)]

FILE = "tests/live/probes/test_block_path.py"
LIMITS = "tests/live/probes/test_io_limits.py"
CALLS = "tests/live/probes/test_fs_path.py"
OF_KNOWN_DEVICES = (
    "test_a_read_that_a_full_device_does_not_take_yet_is_in_its_queue",
    "test_a_level_that_holds_reads_back_is_told_from_the_device_below_it",
    *(f"test_a_queue_that_has_no_more_requests_is_full[{one}]" for one in ("1-8", "64-0")),
)
RUN_LIMIT_S = 900.0  # only a hang meets it


def test_each_io_on_this_kernel(bare: Hypervisor) -> None:
    bring(bare, shipped(("block_path",)).values())
    run = run_pytest(bare, FILE, LIMITS, limit_s=RUN_LIMIT_S)
    run.has_passed(FILE)
    run.has_passed(LIMITS)
    ran = {one.name for one in run.of(FILE) if one.state == "passed"}
    assert {*(f"test_a_device_of_two_milliseconds[{one}]" for one in ("none", "mq-deadline")), *OF_KNOWN_DEVICES} <= ran


def test_each_call_on_this_kernel(bare: Hypervisor) -> None:
    bring(bare, shipped(("block_path", "fs_path")).values())
    run_pytest(bare, CALLS, limit_s=RUN_LIMIT_S).has_passed(CALLS)
