"""Questions about causes on the kernels of the lab: netlink, sysctls and programs answer there as they do here."""

from __future__ import annotations

import pytest

from tests.lab.kernels.each import PROVEN
from tests.lab.machine.hypervisor import Hypervisor
from tests.lab.pytest_inside import run_pytest

pytestmark = [pytest.mark.booting, pytest.mark.long, pytest.mark.parametrize("bare", PROVEN, indirect=True)]

FILE = "tests/live/collector/test_questions_of_causes.py"


def test_each_question_is_answered_inside(bare: Hypervisor) -> None:
    run_pytest(bare, FILE, limit_s=600.0).has_passed(FILE)
