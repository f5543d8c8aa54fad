"""Behind which port a bridge knows a MAC."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from netconsole_collector.questions.net import bridge_port

MAC = "02:00:00:00:00:0c"
BRIDGE: Any = SimpleNamespace(number=7)


def entry(port: int, vlan: int) -> bytes:
    """A message of a neighbour of PF_BRIDGE: NDA_LLADDR, NDA_VLAN and NDA_MASTER (net/bridge/br_fdb.c)."""
    mac = struct.pack("=HH", 10, 2) + bytes.fromhex(MAC.replace(":", "")) + bytes(2)
    of_vlan = struct.pack("=HHHxx", 6, 5, vlan) if vlan else b""
    return struct.pack("=BxxxiHBB", 7, port, 0, 0, 0) + mac + of_vlan + struct.pack("=HHI", 8, 9, BRIDGE.number)


@pytest.mark.parametrize(
    ("entries", "port"),
    [
        ([entry(3, 0)], 3),
        ([entry(3, 0), entry(3, 1)], 3),  # one for each VLAN of the port
        ([entry(3, 1), entry(4, 2)], None),  # which one it is of depends on the VLAN
        ([], None),
    ],
)
def test_the_port_of_a_mac(entries: list[bytes], port: int | None) -> None:
    routes: Any = SimpleNamespace(dump=lambda *_: iter(entries))
    assert bridge_port._entry(routes, BRIDGE, MAC) == port
