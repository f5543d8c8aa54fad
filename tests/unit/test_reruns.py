"""Which tests are run again when they fail, and that every further run is told with its cause."""

from __future__ import annotations

from pathlib import PurePath

import pytest

from tests.conftest import summary_of_reruns
from tests.lab.machine.errors import CommandTimeout, MachineDied
from tests.support.reruns import may_run_again


@pytest.mark.parametrize(
    ("file", "proves", "again"),
    [
        ("live/probes/test_kernel_drops.py", False, True),
        ("live/probes/test_kernel_drops.py", True, False),
        ("live/probes/test_host_path.py", True, True),
        ("live/contexts/test_softirq_health.py", False, False),
        ("live/console/test_cleanup.py", False, False),
        ("live/collector/test_cleanup.py", False, False),
        ("unit/budget/test_governor.py", False, False),
        ("tui/test_widgets.py", False, False),
        ("lab/probes/test_tun.py", False, False),
    ],
)
def test_only_what_the_machine_can_disturb_may_run_again(file: str, proves: bool, again: bool) -> None:
    assert may_run_again(PurePath(file), proves) is again


@pytest.mark.parametrize(("after", "again"), [(MachineDied, True), (CommandTimeout, False), (None, False)])
def test_in_the_lab_only_the_death_of_a_machine_has_a_test_run_again(after: object, again: bool) -> None:
    assert may_run_again(PurePath("lab/probes/test_ovs.py"), True, after) is again


def test_each_further_run_is_told_with_its_cause() -> None:
    def failed(name: str, text: str) -> pytest.TestReport:
        return pytest.TestReport(name, ("a.py", 1, "test"), {}, "failed", text, "call")

    lines = summary_of_reruns([failed("a.py::one", "assert 3 == 4\n  because of this"), failed("a.py::two", "late")])
    assert lines == ["a.py::one: assert 3 == 4 because of this", "a.py::two: late"]
