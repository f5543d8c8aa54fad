"""The faults of tests/faults on the kernels of the lab: each says there what it says here."""

from __future__ import annotations

import pytest

from tests.lab.kernels.compiled import bring, shipped
from tests.lab.kernels.each import PROVEN
from tests.lab.machine.hypervisor import Hypervisor
from tests.lab.pytest_inside import run_pytest
from tests.live.console.test_faults import PROBES

pytestmark = [pytest.mark.booting, pytest.mark.long, pytest.mark.parametrize("bare", PROVEN, indirect=True)]

FILE = "tests/live/console/test_faults.py"


def test_each_fault_says_inside_what_it_says_here(bare: Hypervisor) -> None:
    bring(bare, shipped(PROBES).values())
    run_pytest(bare, FILE, limit_s=1200.0).has_passed(FILE)
