"""A ping between guests on two hosts, seen from all four places: each segment of each echo, and the right one slow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from netconsole.ping.analysis.measure import measure
from netconsole.ping.analysis.merge import MUCH, join
from netconsole.ping.cases import PingCase
from netconsole.ping.compared import against
from netconsole.ping.model import PATH, REMAINDERS, WIRE
from tests.lab.conftest import Lab
from tests.lab.kernels.fetch import kernels
from tests.lab.machine.errors import LabUnavailable
from tests.lab.ping import faults
from tests.lab.ping.door import Door
from tests.lab.ping.four_points import FourPoints
from tests.lab.ping.two_hosts import TwoHosts

pytestmark = pytest.mark.long

COUNT = 40
NEARLY_ALL = 0.95
SIZED_COUNT = 10
ROUNDING_US = 0.01
OF_ITS_SIZE = 0.25
Fault = Callable[[TwoHosts], AbstractContextManager[faults.Cost]]


@pytest.fixture(scope="module")
def hosts(lab: Lab) -> Iterator[TwoHosts]:
    lab.close()  # there is room for one machine
    try:
        found = TwoHosts(kernels()[0])
    except LabUnavailable as error:
        pytest.skip(str(error))
    yield found
    found.close()


@pytest.fixture(scope="module")
def points(hosts: TwoHosts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FourPoints]:
    with Door(hosts.hypervisor, hosts.guests, tmp_path_factory.mktemp("door")) as door:
        found = FourPoints(door)
        yield found
        found.close()


@pytest.fixture(scope="module")
def usual(points: FourPoints) -> PingCase:
    """Without a fault."""
    return points.ping(COUNT, 300)[0]


def test_every_segment_of_every_echo_is_measured_and_they_add_up(usual: PingCase) -> None:
    found = usual.breakdown
    assert found.paired_packets >= COUNT * NEARLY_ALL
    for name in PATH:
        time = found.segments[name]
        assert time.by == "packets" and time.n == found.paired_packets, (name, time)
        assert time.measured == (name not in REMAINDERS.values()), name
        assert not time.contains, name
    assert not [one for one in found.checks if not one.ok]
    joined = join(usual.files)
    figures = measure(joined)
    error_us = sum(role.error_us for role in joined.roles.values())
    assert figures.round_trip is not None and figures.round_trip.values is not None
    closed = 0
    for key, whole in figures.round_trip.values.items():
        times = {name: (figures.segments[name].values or {})[key] for name in PATH}
        assert math.fsum(times.values()) == pytest.approx(whole, abs=ROUNDING_US)
        closed += all(times[name] >= -error_us for name in (*REMAINDERS.values(), WIRE))
    assert closed >= found.paired_packets * NEARLY_ALL


@pytest.mark.parametrize("size", [56, 1400, 1472, 4000, 9000])
def test_an_echo_of_any_size_is_whole_at_all_four_points(points: FourPoints, size: int) -> None:
    """virtio_net leaves the headers of larger packets in a fragment; beyond the MTU they come in several packets."""
    case, _ = points.ping(SIZED_COUNT, 100, size=size)
    assert not case.breakdown.losses
    for file in case.files:
        outcomes = [one.outcome for one in file.capture.packets or ()]
        assert outcomes == ["answered"] * SIZED_COUNT, (file.capture.role, outcomes)
        times = [(one.request_us, one.between_us, one.reply_us, one.total_us) for one in file.capture.packets or ()]
        assert all(None not in of_one for of_one in times), (file.capture.role, times)
    assert case.breakdown.paired_packets >= SIZED_COUNT * MUCH, case.breakdown.checks  # a busy worker needs no kick


def test_the_tsc_divides_what_no_probe_saw(usual: PingCase) -> None:
    """Its accuracy is that of the emulation, and is told: some 50 us."""
    found = usual.breakdown
    assert set(found.halves) == set(REMAINDERS.values())
    for name, halves in found.halves.items():
        remainder = found.segments[name].mean_us
        times = [one.mean_us for one in halves.values()]
        assert None not in times and sum(time or 0 for time in times) == pytest.approx(remainder, abs=1)
        for half in halves.values():
            assert half.accuracy_us is not None and half.min_us is not None
            assert half.min_us > -half.accuracy_us, (name, halves)


@pytest.mark.parametrize(
    ("segments", "fault", "count", "interval_ms"),
    [
        pytest.param(("C+J",), lambda hosts: faults.slow_wire(hosts.hypervisor, 60), 20, 300, id="the wire"),
        pytest.param(
            ("E", "B1"),  # the worker brings the request to the guest, and takes the reply from it
            lambda hosts: faults.busy_worker(hosts.hypervisor, hosts.guests, hosts.guests[1]),
            20,
            500,
            id="a vhost worker",
        ),
        pytest.param(
            ("D",), lambda hosts: faults.narrow_tap(hosts.hypervisor, hosts.guests[1], 490, 200), 10, 100, id="a tap"
        ),
        pytest.param(
            ("U_receiver", "F", "G", "H"),
            lambda hosts: faults.slow_guest(hosts.hypervisor, hosts.guests[1], 50, 200),
            80,
            170,  # no divisor of a period: echoes come at all of its moments
            id="a guest",
        ),
    ],
)
def test_a_fault_is_found_where_it_is_and_as_large_as_it_is(
    segments: tuple[str, ...],
    fault: Fault,
    count: int,
    interval_ms: int,
    usual: PingCase,
    points: FourPoints,
    hosts: TwoHosts,
) -> None:
    slow, cost = points.ping(count, interval_ms, fault(hosts))
    assert cost is not None
    comparison = against(slow, usual).comparison
    assert comparison is not None
    changes = {name: one.difference_us or 0.0 for name, one in comparison.segments.items()}
    print(f"{segments}: {changes}, injected {cost(slow):.0f} us")
    largest = max(changes, key=changes.__getitem__)
    assert largest in segments, changes
    assert slow.breakdown.dominant == largest
    assert comparison.findings[1].startswith(f"{largest} ")
    assert sum(changes[name] for name in segments) == pytest.approx(cost(slow), rel=OF_ITS_SIZE), changes
