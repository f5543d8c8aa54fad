"""tun_queues counts exactly with the Python and BCC of other Debian releases: compiled, loaded and read by them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from netconsole.host.collector_process import CollectorProcess
from tests.lab.collector import InsideMeasurement, InsideProcess
from tests.lab.kernels.compiled import KEPT_INSIDE, bring_files, compile_by
from tests.lab.machine.errors import LabUnavailable
from tests.lab.machine.hypervisor import Hypervisor
from tests.lab.network.testbed import Testbed
from tests.lab.network.traffic import ping
from tests.support.live.userland import SUITES, Userland

pytestmark = pytest.mark.long

PROBE = "tun_queues"
PINGS = 40


class WithUserland(InsideMeasurement):
    """A collector inside that another release's Python runs."""

    def __init__(self, hypervisor: Hypervisor, userland: Userland, scratch: Path) -> None:
        self._userland, self._scratch = userland, scratch
        super().__init__(hypervisor)

    def start(self) -> CollectorProcess:
        command = self._userland.collector("--keep-compiled", KEPT_INSIDE)
        return cast(CollectorProcess, InsideProcess(self._hypervisor, command))

    def bring(self, command: Mapping[str, Any]) -> None:
        kept = self._scratch / "compiled"
        kept.mkdir(mode=0o700)
        python = self._userland.python(self._scratch)
        bring_files(self._hypervisor, compile_by(python, self._hypervisor.tree, command, kept))


@pytest.fixture(params=SUITES)
def userland(request: pytest.FixtureRequest) -> Userland:
    try:
        return Userland(request.param)
    except LabUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def inside(userland: Userland, testbed: Testbed, tmp_path: Path) -> Iterator[WithUserland]:
    one = WithUserland(testbed.hypervisor, userland, tmp_path)
    yield one
    one.close()


def test_k_pings_are_k_packets_of_a_queue(testbed: Testbed, inside: WithUserland) -> None:
    inside.load(PROBE)
    inside.begin()
    ping(testbed.hypervisor, testbed.guests[0], PINGS)
    inside.settle()
    rows = inside.rows(PROBE, "queues", device=testbed.guests[0].card.tap)
    assert [(row.counts["packets"], row.counts["taken"]) for row in rows] == [(PINGS, PINGS)]
    inside.assert_whole(PROBE)
