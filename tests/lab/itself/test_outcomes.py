"""Which outcomes of tests that ran inside are no success, and what may be refused there."""

from __future__ import annotations

import inspect
import re
from types import SimpleNamespace
from typing import Any

import pytest

from netconsole.session import live
from tests.conftest import CANNOT
from tests.lab import collector
from tests.lab.collector import InsideMeasurement, InsideProcess
from tests.lab.conftest import is_death
from tests.lab.machine.errors import MachineDied
from tests.lab.pytest_inside import Outcome, Run
from tests.support.live.measurement import MUST_LOAD, Measurement

pytestmark = pytest.mark.computing

FILE = "tests/live/probes/test_one.py"


def run(*outcomes: tuple[str, str], cut_off: bool = False) -> Run:
    return Run([Outcome(FILE, "test_it", state, text, 1.0) for state, text in outcomes], "", cut_off)


@pytest.mark.parametrize(
    ("outcomes", "why"),
    [
        ([], "no test of"),
        ([("passed", ""), ("failed", "1 != 2")], "1 != 2"),
        ([("skipped", f"{CANNOT}no XDP")], CANNOT),
        ([("passed", ""), ("skipped", "needs root")], "skipped without need"),
    ],
)
def test_what_is_no_success(outcomes: list[tuple[str, str]], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        run(*outcomes).has_passed(FILE)


def test_a_session_can_read_a_collector_inside_as_its_own() -> None:
    asked = set(re.findall(r"\bprocess\.(\w+)", inspect.getsource(live.LiveSession._run_once)))
    assert "frames" in asked and not asked - set(dir(InsideProcess))


def test_of_several_errors_each_has_to_come_of_a_machine_s_death() -> None:
    class Several(Exception):
        def __init__(self, *exceptions: Exception) -> None:
            self.exceptions = exceptions

    assert is_death(Several(MachineDied("close"), MachineDied("write")))
    assert not is_death(Several(MachineDied("close"), AssertionError()))


def test_a_skip_that_cannot_be_helped_is_no_failure() -> None:
    run(("passed", ""), ("skipped", f"{CANNOT}no XDP\n…")).has_passed(FILE)


def test_a_probe_may_be_refused_where_its_kernel_was_reviewed_to_lack_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """That a module was not loaded when doctor was asked is no reason later."""
    absent = {"state": "unsupported", "why": "the kernel module virtio_net is not loaded", "tried": []}
    lacking = {**absent, "why": "packets cannot be measured: no attach point"}
    whole: dict[str, Any] = {"state": "attached", "why": None, "tried": []}
    kernels = {"made up": {"probes": {"guest": absent, "old": lacking, "drops": whole}}}
    monkeypatch.setattr(collector, "references", lambda: kernels)
    there: Any = SimpleNamespace(
        _hypervisor=SimpleNamespace(tree=SimpleNamespace(kernel=SimpleNamespace(name="made up")))
    )
    assert [InsideMeasurement.may_lack(there, one) for one in ("guest", "old", "drops")] == [False, True, False]
    assert Measurement.may_lack(there, "drops")
    monkeypatch.setenv(MUST_LOAD, "1")
    assert not Measurement.may_lack(there, "drops")
