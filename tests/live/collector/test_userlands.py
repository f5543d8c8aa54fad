"""The collector compiles, loads and counts exactly with the Python and BCC of other Debian releases."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.lab.machine.errors import LabUnavailable
from tests.support.live.network import Namespace, send_udp
from tests.support.live.userland import SUITES, MeasurementInside, Userland

pytestmark = [pytest.mark.starting, pytest.mark.long]

VERSIONS = {"bullseye": [3, 9, "0.18"], "trixie": [3, 13, "0.31"]}
"""Python's and BCC's. Those of unstable change."""
CLOSED_PORT = 9
MANY = 5_000


@pytest.fixture(scope="module", params=SUITES)
def suite(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def userland(suite: str) -> Userland:
    try:
        return Userland(suite)
    except LabUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def inside(userland: Userland) -> Iterator[MeasurementInside]:
    measurement = MeasurementInside(userland)
    yield measurement
    measurement.close()


def test_they_are_the_versions_that_these_systems_have(suite: str, userland: Userland) -> None:
    print_versions = "import bcc, json, sys; print(json.dumps([*sys.version_info[:2], bcc.__version__[:4]]))"
    said = subprocess.run(userland.command("-c", print_versions), capture_output=True, check=True).stdout
    versions = json.loads(said)
    assert versions == VERSIONS.get(suite, versions)
    assert versions[:2] >= [3, 9]


def test_each_dropped_datagram_is_counted_once(inside: MeasurementInside, namespace: Namespace) -> None:
    inside.load("kernel_drops")
    inside.begin()
    send_udp(namespace, "127.0.0.1", CLOSED_PORT, MANY)
    inside.settle()
    assert inside.total("kernel_drops", "drops", netns=namespace.name) == MANY
