"""The live tests of probes and sources, run on the hypervisor's kernel: the same exactness as on this machine's own."""

from __future__ import annotations

import pytest

from .pytest_inside import Run, run_pytest
from .testbed import Testbed

pytestmark = pytest.mark.lab

RUN_LIMIT_S = 900.0  # only a hang meets it
# Many packets one after another through the same code, seconds each without hardware help: test_more_inside.py.
LEFT_OUT = ("test_filters", "test_headers_are_read", "garbage")
PROBES = ("kernel_drops", "tx_queue_latency", "softirq_health", "socket_drops")
FILES = [*(f"tests/live/test_probe_{probe}.py" for probe in PROBES), "tests/live/test_sources.py"]


@pytest.fixture(scope="module")
def inside(testbed: Testbed) -> Run:
    """One pytest for all files: it takes seconds to start without hardware help."""
    testbed.rest()
    return run_pytest(
        testbed.hypervisor, *FILES, limit_s=RUN_LIMIT_S, select=" and ".join(f"not {name}" for name in LEFT_OUT)
    )


@pytest.mark.parametrize("file", FILES)
def test_probe(inside: Run, file: str) -> None:
    """All tests of the file ran inside and none failed; a skip needs a reason that the kernel cannot help."""
    inside.has_passed(file)
