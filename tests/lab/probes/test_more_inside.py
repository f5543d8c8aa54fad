"""Runs the live tests that take too long for `make test`: path probes, filters, headers, broken packets."""

from __future__ import annotations

import pytest

from tests.lab.kernels.compiled import bring, shipped
from tests.lab.machine.hypervisor import Hypervisor
from tests.lab.network.testbed import Testbed
from tests.lab.probes.test_live_inside import LEFT_OUT, RUN_LIMIT_S
from tests.lab.pytest_inside import Run, run_pytest

PROBES = ("host_path", "local_path", "kernel_drops", "tx_queue_latency", "socket_drops")
FILES = [f"tests/live/probes/test_{probe}.py" for probe in PROBES]
PATHS, LEFT = FILES[:2], FILES[2:]


@pytest.fixture(scope="module")
def compiled(hypervisor: Hypervisor) -> None:
    bring(hypervisor, shipped(PROBES).values())


@pytest.fixture(scope="module")
def paths(testbed: Testbed, compiled: None) -> Run:
    testbed.rest()
    return run_pytest(testbed.hypervisor, *PATHS, limit_s=RUN_LIMIT_S)


@pytest.fixture(scope="module")
def left(testbed: Testbed, compiled: None) -> Run:
    testbed.rest()
    return run_pytest(testbed.hypervisor, *LEFT, limit_s=RUN_LIMIT_S, select=" or ".join(LEFT_OUT))


@pytest.mark.parametrize("file", PATHS)
def test_path(paths: Run, file: str) -> None:
    paths.has_passed(file)


@pytest.mark.parametrize("file", LEFT)
def test_what_is_left(left: Run, file: str) -> None:
    left.has_passed(file)
