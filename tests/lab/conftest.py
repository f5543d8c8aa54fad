"""Fixtures of the lab. Booting takes seconds, so modules that need the same kernel share one machine."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.lab.collector import InsideMeasurement
from tests.lab.kernels import stored
from tests.lab.kernels.each import DEFAULT, ONLY
from tests.lab.kernels.fetch import all_kernels, kernel_named
from tests.lab.machine.errors import LabError, LabUnavailable, MachineDied
from tests.lab.machine.hypervisor import Hypervisor
from tests.lab.network.testbed import Testbed, boot, compile_project
from tests.lab.network.wires import Wires

HERE = Path(__file__).parent
DIED = pytest.StashKey[bool]()
NAMES_KERNEL = ("testbed", "bare", "files", "kernel")
"""Parameters of tests and fixtures that say which kernel it is."""
WITH_DETAILS = ("irq_path", "tx_kick_path")


class Lab:
    """The machines that run at the moment, by kernel."""

    def __init__(self) -> None:
        self._testbeds: dict[str, Testbed] = {}
        self._bare: dict[str, Hypervisor] = {}
        self._collectors: dict[Testbed, InsideMeasurement] = {}
        self._wires: dict[Testbed, Wires] = {}

    def testbed(self, kernel: str) -> Testbed:
        """A running one of this kernel; boots it when there is none or when tests have wrecked it."""
        testbed = self._testbeds.get(kernel)
        if testbed is None or not testbed.hypervisor.answers():
            self.close()  # one at a time: two would fight for the memory and the cores of a small machine
            testbed = self._testbeds[kernel] = boot(kernel_named(kernel))
        testbed.hypervisor.keep()
        return testbed

    def bare(self, kernel: str) -> Hypervisor:
        """A running machine of this kernel, without guests: it is ready in half the time."""
        testbed = self._testbeds.get(kernel)
        machine = testbed.hypervisor if testbed else self._bare.get(kernel)
        if machine is None or not machine.answers():
            self.close()
            compile_project()
            machine = self._bare[kernel] = Hypervisor(kernel_named(kernel))
        elif testbed:
            testbed.rest()
        machine.keep()
        return machine

    def collector(self, testbed: Testbed) -> InsideMeasurement:
        """The collector of this machine: probes take long to compile there, so that they stay loaded."""
        if testbed not in self._collectors:
            self._collectors[testbed] = InsideMeasurement(testbed.hypervisor)
        return self._collectors[testbed]

    def wires(self, testbed: Testbed) -> Wires:
        """The namespaces of this machine."""
        if testbed not in self._wires:
            self._wires[testbed] = Wires(testbed)
        return self._wires[testbed]

    def close(self) -> None:
        self._wires.clear()
        for collector in self._collectors.values():
            with suppress(LabError):  # its machine is dead: the tests that it died in have said so
                collector.close()
        self._collectors.clear()
        for testbed in self._testbeds.values():
            testbed.close()
        self._testbeds.clear()
        for machine in self._bare.values():
            machine.close()
        self._bare.clear()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-references", action="store_true", help="write what doctor says in the lab as reference")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "last_of_its_kernel: ends its machine, or awaits what takes until its limit")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The tests of one kernel together, so that each kernel boots once; everything else keeps its place.

    If one kernel was asked for by name, tests on others are left out. A test whose machine dies runs again, once, on
    another machine: emulated ones die now and then (docs/design/lab.md), and no value was wrong.
    """
    others = [item for item in items if ONLY and _is_ours(item) and _kernel_of(item) != ONLY]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]
    for item in filter(_is_ours, items):
        item.add_marker(pytest.mark.flaky(reruns=1, only_rerun=MachineDied))
    places = [place for place, item in enumerate(items) if _is_ours(item)]
    for place, item in zip(places, sorted((items[place] for place in places), key=_kernel_rank), strict=True):
        items[place] = item


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Note that the machine of this test has died in it."""
    if call.excinfo is not None and call.when != "teardown" and is_death(call.excinfo.value):
        item.stash[DIED] = True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Take down all that stood on a machine that has died: whoever runs next gets another one.

    It comes first: pytest-rerunfailures keeps what belongs to the module of a test that will run again. What cannot be
    closed since the machine is dead is no error of its own: with one, the test would not run again.
    """
    if item.stash.get(DIED, False):
        del item.stash[DIED]
        try:
            item.session._setupstate.teardown_exact(None)
        except Exception as error:
            if not is_death(error):
                raise


def is_death(error: BaseException | None) -> bool:
    """Whether this came of a machine's death; of several errors, whether each did."""
    if several := getattr(error, "exceptions", ()):
        return all(map(is_death, several))
    return error is not None and (isinstance(error, MachineDied) or is_death(error.__cause__ or error.__context__))


def _kernel_rank(item: pytest.Item) -> tuple[int, bool]:
    names = [kernel.name for kernel in all_kernels()]
    return names.index(_kernel_of(item)), item.get_closest_marker("last_of_its_kernel") is not None


def _is_ours(item: pytest.Item) -> bool:
    return item.path.is_relative_to(HERE)


def _kernel_of(item: pytest.Item) -> str:
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    of_file = getattr(getattr(item, "module", None), "ONLY_KERNEL", DEFAULT)  # a file may be of one alone
    named = next((parameters[one] for one in NAMES_KERNEL if one in parameters), of_file)
    return stored.kernel_of(named) if isinstance(named, Path) else str(named)


@pytest.fixture(scope="package")
def lab() -> Iterator[Lab]:
    machines = Lab()
    yield machines
    machines.close()


@pytest.fixture(scope="module")
def testbed(request: pytest.FixtureRequest, lab: Lab) -> Testbed:
    """Hypervisor, switch and two guests. `indirect` parameter: the name of a kernel of kernels.toml."""
    try:
        testbed = lab.testbed(getattr(request, "param", DEFAULT))
    except LabUnavailable as error:
        # In CI this fails: tests/conftest.py turns skips into failures there.
        pytest.skip(str(error))
    for guest in testbed.guests:
        guest.revive()
    return testbed


@pytest.fixture(scope="module")
def bare(request: pytest.FixtureRequest, lab: Lab) -> Hypervisor:
    """The machine without its guests. `indirect` parameter: the name of a kernel."""
    try:
        return lab.bare(getattr(request, "param", DEFAULT))
    except LabUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def hypervisor(testbed: Testbed) -> Hypervisor:
    """The machine alone, for tests that need no guest."""
    return testbed.hypervisor


@pytest.fixture(scope="module")
def wires(testbed: Testbed, lab: Lab) -> Wires:
    """Two namespaces on the bridge."""
    return lab.wires(testbed)


@pytest.fixture(scope="module")
def vm_path(request: pytest.FixtureRequest, testbed: Testbed, lab: Lab) -> InsideMeasurement:
    """A collector with the module's PROBES; those of a path with details, without a limit."""
    collector = lab.collector(testbed)

    def need(probe: str) -> None:
        if probe in WITH_DETAILS:
            collector.need(probe, "details", events_per_s=10_000, threshold_us=0)
        else:
            collector.need(probe)

    with ThreadPoolExecutor() as pool:  # the collector compiles two at once
        list(pool.map(need, request.module.PROBES))
    return collector
