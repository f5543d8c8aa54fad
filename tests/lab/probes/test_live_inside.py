"""Runs the live tests of probes and sources on the hypervisor's kernel. They are as exact as on this machine."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.lab.kernels.compiled import bring, kept_inside, shipped
from tests.lab.kernels.each import PROVEN
from tests.lab.network.testbed import Testbed
from tests.lab.pytest_inside import Run, run_pytest

pytestmark = [pytest.mark.booting, pytest.mark.parametrize("testbed", PROVEN, indirect=True)]

RUN_LIMIT_S = 900.0  # only a hang meets it
# Many packets one after another through the same code, seconds each without hardware help: test_more_inside.py.
LEFT_OUT = ("test_filters", "test_headers_are_read", "garbage", "leaves_no_message")
PROBES = ("kernel_drops", "tx_queue_latency", "softirq_health", "socket_drops")
FILES = [*(f"tests/live/probes/test_{probe}.py" for probe in PROBES), "tests/live/probes/test_sources.py"]


@dataclass(frozen=True)
class Inside:
    """What became of the tests, and the compiled programs that were there before and afterwards (kept_inside)."""

    run: Run
    brought: list[str]
    before: dict[str, str]
    after: dict[str, str]


@pytest.fixture(scope="module")
def inside(testbed: Testbed) -> Inside:
    """One pytest for all files: it takes seconds to start without hardware help."""
    testbed.rest()
    brought = bring(testbed.hypervisor, shipped(PROBES).values())
    before = kept_inside(testbed.hypervisor)
    run = run_pytest(
        testbed.hypervisor, *FILES, limit_s=RUN_LIMIT_S, select=" and ".join(f"not {name}" for name in LEFT_OUT)
    )
    return Inside(run, brought, before, kept_inside(testbed.hypervisor))


@pytest.mark.parametrize("file", FILES)
def test_probe(inside: Inside, file: str) -> None:
    """All tests of the file ran inside and none failed; a skip needs a reason that the kernel cannot help."""
    inside.run.has_passed(file)


def test_what_was_compiled_here_is_what_is_loaded_there(inside: Inside) -> None:
    """The collector inside found each probe's programs under the name that it asks for, and had nothing to compile."""
    assert len(inside.brought) == len(PROBES)
    assert inside.before.keys() >= set(inside.brought)
    assert inside.after == inside.before
