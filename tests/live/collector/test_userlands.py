"""The collector compiles, loads and counts exactly with the Python and BCC of other Debian releases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.machine.errors import LabUnavailable
from tests.support.live.network import Namespace, send_udp
from tests.support.live.userland import SUITES, MeasurementInside, Userland

pytestmark = [pytest.mark.starting, pytest.mark.long]

CLOSED_PORT = 9
MANY = 5_000


@pytest.fixture(scope="module", params=SUITES)
def suite(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def inside(suite: str) -> Iterator[MeasurementInside]:
    try:
        userland = Userland(suite)
    except LabUnavailable as error:
        pytest.skip(str(error))
    measurement = MeasurementInside(userland)
    yield measurement
    measurement.close()


def test_each_dropped_datagram_is_counted_once(inside: MeasurementInside, namespace: Namespace) -> None:
    inside.load("kernel_drops")
    inside.begin()
    send_udp(namespace, "127.0.0.1", CLOSED_PORT, MANY)
    inside.settle()
    assert inside.total("kernel_drops", "drops", netns=namespace.name) == MANY
