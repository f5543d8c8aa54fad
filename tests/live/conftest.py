"""Fixtures of the live tests: a collector, and a network of the test's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live.collector_driver import PYTHON, Driver
from tests.support.live.measurement import Measurement
from tests.support.live.network import Namespace, Wire
from tests.support.live.path import Host
from tests.support.reruns import ATTEMPTS_MORE, may_run_again

HERE = Path(__file__).parent
LAST = ("test_calibrate.py", "test_forecast.py", "test_governor.py")
"""What things cost is measured when most of what `make test` runs beside this has ended."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A machine that others use takes packets, runs of programs (SEEN) or seconds away: what fails is tried again.

    A probe that counts wrong does so every time. Not all tests may be tried again (tests/support/reruns.py).
    """
    for item in items:
        if may_run_again(item.path.relative_to(HERE.parent), item.get_closest_marker("proves") is not None):
            item.add_marker(pytest.mark.flaky(reruns=ATTEMPTS_MORE))
    items.sort(key=lambda item: item.path.is_relative_to(HERE) and item.path.name in LAST)


def pytest_runtest_setup() -> None:
    """Before any fixture: only root may load BPF programs."""
    if os.geteuid() != 0:
        pytest.skip("needs root")


@pytest.fixture(scope="session")
def compiled_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where they are kept from one test to the next."""
    return tmp_path_factory.mktemp("compiled", numbered=True)


@pytest.fixture
def driver(compiled_programs: Path) -> Iterator[Driver]:
    """A collector without probes, each line of which is looked at."""
    with Driver(PYTHON, "--keep-compiled", str(compiled_programs)) as one:
        one.ask(command="interval", ms=100)
        yield one


@pytest.fixture(scope="module")
def collector() -> Iterator[Measurement]:
    """A running collector without probes; one for all tests of a file, because a compile is what takes time."""
    measurement = Measurement()
    yield measurement
    measurement.close()


@pytest.fixture(scope="module")
def _wire() -> Iterator[Wire]:
    a, b = Namespace(), Namespace()
    try:
        yield Wire(a, b)
    finally:
        a.remove()
        b.remove()


@pytest.fixture
def wire(_wire: Wire) -> Iterator[Wire]:
    """Two namespaces joined by a veth pair.

    They live as long as the collector: the kernel gives the inode of a namespace that is gone to the next one.
    """
    yield _wire
    _wire.restore()


@pytest.fixture
def namespace(wire: Wire) -> Namespace:
    """A network namespace, for what happens on its loopback."""
    return wire.a


@pytest.fixture(scope="module")
def bridged() -> Iterator[Host]:
    """Two namespaces and a bridge in a third one between them."""
    host = Host()
    try:
        host.bridge()
        yield host
    finally:
        host.remove()
