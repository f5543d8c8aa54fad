"""Records of echoes where vhost carries them: the stages of each echo's packet, and a host's own ping by kprobes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from netconsole.ping.vantage import Between
from tests.lab.collector import InsideMeasurement
from tests.lab.network.testbed import Testbed
from tests.lab.network.traffic import ping
from tests.support.live.echoes import Vantages

pytestmark = pytest.mark.long

PINGS = 20
NEARLY_ALL = 0.8
"""A guest may poll when it is told of a packet, and needs no interrupt for the next one."""
LIMIT_S = 20.0


class InsideVantages(Vantages, InsideMeasurement):
    """Vantage points on the lab's hypervisor."""


@pytest.fixture(scope="module")
def points(testbed: Testbed) -> Iterator[InsideVantages]:
    inside = InsideVantages(testbed.hypervisor)
    yield inside
    inside.close()


def is_in_order(way: Sequence[int | None]) -> bool:
    known = [at_ns for at_ns in way if at_ns is not None]
    return len(known) == len(way) and known == sorted(known)


def test_stages_of_an_echo_between_two_guests(testbed: Testbed, points: InsideVantages) -> None:
    first, second = testbed.guests[:2]
    points.watch("sender-host", Between(("vnet0",), ("vnet1",), (), 0, LIMIT_S))
    points.watch("receiver-host", Between(("vnet1",), ("vnet0",), (), 0, LIMIT_S))
    first.run(f"ping -c {PINGS} -i 0.1 -W 20 {second.card.at.ip} >/dev/null")
    sender, receiver = (points.await_echoes(role, PINGS) for role in ("sender-host", "receiver-host"))
    assert len(sender) == len(receiver) == PINGS
    assert points.missed("sender-host") == points.missed("receiver-host") == {}
    for echoes, reached, came in ((sender, 3, 0), (receiver, 1, 2)):
        interrupted = [echo for echo in echoes if None not in echo.irq_ns]
        kicked = [echo for echo in echoes if None not in echo.kick_ns]
        assert len(interrupted) >= PINGS * NEARLY_ALL
        assert len(kicked) >= PINGS * NEARLY_ALL
        for echo in interrupted:
            assert echo.irq_ns[0] == echo.at_ns[reached]  # D ends, and K, where E begins, and L
            assert is_in_order(echo.irq_ns)
        for echo in kicked:
            assert is_in_order([*echo.kick_ns, echo.at_ns[came]])
    for echo in receiver:  # the guest answers after its interrupt
        if None not in (*echo.irq_ns, *echo.kick_ns):
            assert is_in_order([*echo.irq_ns, *echo.kick_ns])


def test_a_hosts_own_ping_has_all_points(testbed: Testbed, points: InsideVantages) -> None:
    points.watch("host", Between((), ("vnet0",), (), 0, LIMIT_S))
    ping(testbed.hypervisor, testbed.guests[0], PINGS)
    echoes = points.await_echoes("host", PINGS)
    assert len(echoes) == PINGS
    assert all(is_in_order(echo.at_ns) for echo in echoes)
    assert "fentry:__ip_local_out" in points.statuses[points.name("host")].attach
    assert "fentry:icmp_rcv" in points.statuses[points.name("host")].attach
    assert points.missed("host") == {}
