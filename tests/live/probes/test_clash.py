"""Several first packets of one connection, confirmed one after the other: each clash is counted, exactly."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from contextlib import closing

import pytest

from tests.live.probes.test_protocol_counters import Losses
from tests.support.live.held import Held
from tests.support.live.network import Wire, send_frames
from tests.support.live.packets import echo, ipv4, udp

PORT = 9
RELEASE = tuple(int(number) for number in re.findall(r"\d+", platform.release())[:2])
JOINS = RELEASE <= (6, 1)
"""Debian's 5.10 and 6.1: a packet that comes back from a queue is given the entry that was made meanwhile
(nf_conntrack_update). So none of them clashes there. Those of 6.12 and later are confirmed as they are."""


def counted(wire: Wire, frames: Sequence[bytes]) -> dict[str, int]:
    with Held(wire.b, len(frames)) as held, closing(Losses(wire)) as losses:
        send_frames(wire.a, Wire.DEVICES[0], frames)
        held.let_go()
        return losses.since()


@pytest.mark.proves("protocol_counters", "tables.counters.count")
def test_datagrams_of_one_new_flow_clash_and_all_arrive(wire: Wire) -> None:
    """The first one makes the entry; each of the others is given that one."""
    found = counted(wire, [ipv4(udp(PORT))] * 12)
    assert found["UdpNoPorts"] == 12
    assert found.get("Conntrackclashres", 0) == (0 if JOINS else 11)
    assert not found.keys() & {"Conntrackdrop", "Conntrackinsert_failed"}


@pytest.mark.proves("protocol_counters", "tables.counters.count")
def test_pings_of_one_new_flow_clash_and_one_is_left(wire: Wire) -> None:
    """Of ICMP and TCP no two packets may make one entry: those that lose are dropped."""
    before = wire.b.snmp("Icmp", "InEchos")
    found = counted(wire, [ipv4(echo(8), protocol=1)] * 9)
    lost = 0 if JOINS else 8
    assert found.get("Conntrackinsert_failed", 0) == found.get("Conntrackdrop", 0) == lost
    assert "Conntrackclashres" not in found
    assert wire.b.snmp("Icmp", "InEchos") - before == 9 - lost
