"""Runs the live tests that test_live_inside.py leaves out: path probes, flows, budgets, filters, headers, broken
packets.
"""

from __future__ import annotations

import pytest

from tests.lab.kernels.compiled import bring, shipped
from tests.lab.machine.hypervisor import Hypervisor
from tests.lab.network.testbed import Testbed
from tests.lab.probes.test_live_inside import ALL_OF_THEM, RUN_LIMIT_S, TESTS
from tests.lab.pytest_inside import Run, run_pytest

PROBES = ("host_path", "local_path", "kernel_drops", "tx_queue_latency", "softirq_health", "socket_drops")
FLOW_PROBES = ("flow_top", "reuseport_skew")
FLOWS = [f"tests/live/probes/test_{probe}.py" for probe in FLOW_PROBES]
PATHS = [f"tests/live/probes/test_{probe}.py" for probe in ("host_path", "local_path")]
SLOW = "test_filters or test_headers_are_read or garbage or leaves_no_message"
"""Many packets one after another through the same code, seconds each without hardware help."""
SOURCES = "tests/live/probes/test_sources.py"
HAVE_SLOW = [f"tests/live/probes/test_{probe}.py" for probe in ("kernel_drops", "tx_queue_latency", "socket_drops")]


@pytest.fixture(scope="module")
def compiled(hypervisor: Hypervisor) -> None:
    bring(hypervisor, shipped((*PROBES, *FLOW_PROBES)).values())


@pytest.fixture(scope="module")
def paths(testbed: Testbed, compiled: None) -> Run:
    testbed.rest()
    return run_pytest(testbed.hypervisor, *PATHS, limit_s=RUN_LIMIT_S)


@pytest.fixture(scope="module")
def flows(testbed: Testbed, compiled: None) -> Run:
    testbed.rest()
    return run_pytest(testbed.hypervisor, *FLOWS, limit_s=RUN_LIMIT_S)


@pytest.fixture(scope="module")
def slow(testbed: Testbed, compiled: None) -> Run:
    testbed.rest()
    return run_pytest(testbed.hypervisor, *HAVE_SLOW, limit_s=RUN_LIMIT_S, select=SLOW)


@pytest.fixture(scope="module")
def others(testbed: Testbed, compiled: None) -> Run:
    testbed.rest()
    return run_pytest(
        testbed.hypervisor, *TESTS, SOURCES, limit_s=RUN_LIMIT_S, select=f"not ({SLOW})", leave_out=ALL_OF_THEM
    )


@pytest.mark.parametrize("file", PATHS)
def test_path(paths: Run, file: str) -> None:
    paths.has_passed(file)


@pytest.mark.parametrize("file", FLOWS)
def test_flows(flows: Run, file: str) -> None:
    flows.has_passed(file)


@pytest.mark.parametrize("file", HAVE_SLOW)
def test_what_takes_many_packets(slow: Run, file: str) -> None:
    slow.has_passed(file)


@pytest.mark.parametrize("file", [*TESTS, SOURCES])
def test_what_else_the_file_has(others: Run, file: str) -> None:
    others.has_passed(file)
