"""The faults of tests/faults on the kernels of the lab: each says there what it says here."""

from __future__ import annotations

import pytest

from tests.lab.kernels.compiled import bring, shipped
from tests.lab.kernels.each import PROVEN
from tests.lab.machine.hypervisor import Hypervisor
from tests.lab.pytest_inside import run_pytest
from tests.live.console.test_faults import PROBES
from tests.support.live.faults import all_faults

pytestmark = [pytest.mark.booting, pytest.mark.long, pytest.mark.parametrize("bare", PROVEN, indirect=True)]

FILE = "tests/live/console/test_faults.py"
TEST = f"{FILE}::test_each_fault_is_one_incident_that_says_its_cause_and_counts_exactly"
PORTIONS = 2
"""They are made in so many goes, each with a console of its own: what is wrong with one is said earlier."""


@pytest.mark.parametrize("portion", range(PORTIONS))
def test_each_fault_says_inside_what_it_says_here(portion: int, bare: Hypervisor) -> None:
    bring(bare, shipped(PROBES).values())
    bare.shell("echo 1 >/sys/kernel/rcu_expedited")  # hundreds of namespaces come and go
    names = [one.name for one in all_faults()][portion::PORTIONS]
    run_pytest(bare, *(f"{TEST}[{name}]" for name in names), limit_s=1200.0).has_passed(FILE)
