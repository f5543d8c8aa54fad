"""How the clocks of a guest and its host are related: by one kernel, or by the TSC that KVM gives the guest."""

from __future__ import annotations

from typing import Any

import pytest

from netconsole.ping.analysis.echoes import EchoKey
from netconsole.ping.analysis.joint_clock import SLEW, related
from netconsole.ping.analysis.merge import CaptureFile, RoleTimes
from netconsole.ping.capture import SCHEMA, CaptureClock, EchoTimes, GuestTsc, PingCapture, TscPoint

HZ = 2e9
"""Two counts in a nanosecond."""
OFFSET = 1000


def point(ns: int, tsc: int, accuracy_us: float = 0.25) -> TscPoint:
    return TscPoint(ns, tsc, HZ, accuracy_us)


def guest(*points: TscPoint, **more: Any) -> PingCapture:
    return PingCapture(SCHEMA, "sender-vm", clock=CaptureClock(tsc=list(points)), **more)


def host(*points: TscPoint, **more: Any) -> PingCapture:
    made: dict[str, Any] = {"clock": CaptureClock(tsc=list(points)), "guest_tsc": GuestTsc(OFFSET), **more}
    return PingCapture(SCHEMA, "sender-host", **made)


def test_without_a_clock_on_either_side_nobody_can_tell() -> None:
    one = point(0, 0)
    assert related(guest(one), host(one)) is not None
    assert related(PingCapture(SCHEMA, "sender-vm"), host(one)) is None
    assert related(guest(one), host(clock=None)) is None
    assert related(guest(one), host(one, guest_tsc=None)) is None
    assert related(guest(), host(one)) is None and related(guest(one), host()) is None


@pytest.mark.parametrize(("of_guest", "of_host", "is_known"), [("a", "a", True), ("a", "b", False), (None, "b", True)])
def test_the_tsc_of_another_vm_says_nothing(of_guest: str | None, of_host: str, is_known: bool) -> None:
    found = related(guest(point(0, 0), vm=of_guest), host(point(0, 0), guest_tsc=GuestTsc(OFFSET, vm=of_host)))
    assert (found is not None) is is_known


def test_one_kernel_has_one_clock_and_the_errors_of_both_captures() -> None:
    def with_clock(name: str, boot_id: str) -> PingCapture:
        return PingCapture(SCHEMA, "sender-vm", clock=CaptureClock(name, boot_id), error_us=1.5)

    found = related(with_clock("monotonic", "b"), with_clock("monotonic", "b"))
    assert found is not None and (found.to_host_ns(77), found.accuracy_us) == (77.0, 3.0)
    for other in (with_clock("boottime", "b"), with_clock("monotonic", "c")):
        assert related(with_clock("monotonic", "b"), other) is None
    assert related(with_clock("monotonic", ""), with_clock("monotonic", "")) is None


def test_a_time_of_the_guest_is_told_by_the_nearest_point_of_the_host() -> None:
    """The guest's clock is 500 ns ahead. The host's point in the middle is 40 ns off: near it, it counts."""
    of_guest = (point(10**6 + 500, 2 * 10**6 + OFFSET), point(500, OFFSET))
    of_host = (point(10**6, 2 * 10**6), point(500_000, 10**6 + 80), point(0, 0))
    found = related(guest(*of_guest, error_us=1.0), host(*of_host, error_us=0.5))
    assert found is not None and found.accuracy_us == 2.0  # 0.25 of each point, and both captures' errors
    for ns, off in ((0, 0), (10**5, 0), (490_000, -40), (510_000, -40), (10**6, 0), (2 * 10**6, 0)):
        assert found.to_host_ns(ns + 500) == pytest.approx(ns + off, abs=0.01)


def test_of_the_points_the_least_accurate_counts() -> None:
    of_guest, of_host = (point(0, OFFSET), point(8, 16 + OFFSET, 3.0)), (point(0, 0, 2.0), point(8, 16, 0.1))
    found = related(guest(*of_guest), host(*of_host))
    assert found is not None and found.accuracy_us == 5.0


def test_counters_begin_again_at_two_to_the_64() -> None:
    found = related(guest(point(0, 2**64 - 10)), host(point(100, 2**64 - 20), guest_tsc=GuestTsc(0)))
    assert found is not None and found.to_host_ns(20) == pytest.approx(125.0)
    negative = related(guest(point(0, 50)), host(point(100, 60), guest_tsc=GuestTsc(-10)))
    assert negative is not None and negative.to_host_ns(0) == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("guest_points", "host_points", "drift_us"),
    [(1, 1, 1000.0), (1, 2, 500.0), (2, 2, 0.0)],
)
def test_a_single_point_may_drift_until_the_last_echo(guest_points: int, host_points: int, drift_us: float) -> None:
    """An echo a second after the guest's first point, and at its second one."""
    assert SLEW == 500e-6
    second = 10**9
    of_guest = [point(0, OFFSET), point(second, 2 * second + OFFSET)][:guest_points]
    of_host = [point(0, 0), point(second, 2 * second)][:host_points]
    echoes: dict[EchoKey, EchoTimes] = {(7, 1): EchoTimes(1, 7, at_ns=second), (7, 2): EchoTimes(2, 7)}
    one = guest(*of_guest)
    times = RoleTimes("sender-vm", [CaptureFile("a", one)], echoes)
    found = related(one, host(*of_host), list(echoes), times)
    assert found is not None and found.accuracy_us == pytest.approx(0.5 + drift_us)
