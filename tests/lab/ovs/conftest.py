"""Fixtures of tests that know every frame: three ports of the switch, and who sends by them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.collector import InsideMeasurement
from tests.lab.conftest import Lab
from tests.lab.network.testbed import Testbed
from tests.lab.network.wires import Wires
from tests.lab.ovs.ends import Ends


@pytest.fixture(scope="module")
def ends(testbed: Testbed, wires: Wires) -> Iterator[Ends]:
    made = Ends(testbed, wires)
    yield made
    made.close()


@pytest.fixture(scope="module")
def collector(testbed: Testbed, lab: Lab, request: pytest.FixtureRequest) -> Iterator[InsideMeasurement]:
    """With the module's PROBE loaded anew: after mode counters of another module it knows less for a while."""
    one, probe = lab.collector(testbed), request.module.PROBE
    if probe in one.statuses:
        one.command(command="unload", probe=probe)
    one.load(probe)
    yield one
    one.set(probe)
