"""The live tests of probes and sources, run on the hypervisor's kernel: the same exactness as on this machine's own."""

from __future__ import annotations

import pytest

from .hypervisor import Hypervisor
from .pytest_inside import Run, run_pytest

pytestmark = pytest.mark.lab

RUN_LIMIT_S = 900.0  # only a hang meets it
# host_path and local_path have yet to be held to their counts on these kernels.
PROBES = ("kernel_drops", "tx_queue_latency", "softirq_health", "socket_drops")
FILES = [*(f"tests/live/test_probe_{probe}.py" for probe in PROBES), "tests/live/test_sources.py"]


@pytest.fixture(scope="module")
def inside(hypervisor: Hypervisor) -> Run:
    """One pytest for all files: it takes seconds to start without hardware help."""
    return run_pytest(hypervisor, *FILES, limit_s=RUN_LIMIT_S)


@pytest.mark.parametrize("file", FILES)
def test_probe(inside: Run, file: str) -> None:
    """All tests of the file ran inside and none failed; a skip needs a reason that the kernel cannot help."""
    outcomes = inside.of(file)
    assert outcomes, f"no test of {file} came back{' before the limit' if inside.cut_off else ''}:\n{inside.output}"
    failed = [f"{outcome.name}: {outcome.text}" for outcome in outcomes if outcome.state == "failed"]
    assert not failed, "\n".join(failed)
    passed = [outcome for outcome in outcomes if outcome.state == "passed"]
    assert passed, "\n".join(f"{outcome.name}: {outcome.text}" for outcome in outcomes)
    assert not inside.cut_off, f"cut off at {RUN_LIMIT_S:g} s:\n{inside.output}"
