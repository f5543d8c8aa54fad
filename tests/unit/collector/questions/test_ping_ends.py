"""Rows of the kernel's tables of addresses and neighbours, as far as a search for a VM needs them."""

from __future__ import annotations

import socket
import struct

from netconsole_collector.questions.ping_ends import addresses, neighbours
from tests.support.rtnetlink import attribute

VM_MAC = "52:54:00:00:00:07"


def test_rows_of_neighbours_that_are_of_many_or_of_none_are_left_out() -> None:
    """52:… is a locally administered address, 53:… and 33:33:… are of many."""

    def neighbour(mac: str, address: str = "192.0.2.7") -> memoryview:
        raw = bytes.fromhex(mac.replace(":", ""))
        return memoryview(
            struct.pack("=BxxxiHBB", socket.AF_INET, 3, 0, 0, 0)
            + attribute(1, socket.inet_aton(address))
            + attribute(2, raw)
        )

    rows = [neighbour(mac) for mac in (VM_MAC, "53:54:00:00:00:07", "33:33:00:00:00:01", "00:00:00:00:00:00", "52:54")]
    assert list(neighbours(rows)) == [("192.0.2.7", VM_MAC, 3)]


def test_of_a_link_between_two_ends_the_own_address_counts() -> None:
    """The kernel calls that of the other end the address, and the own one local."""
    far, own = socket.inet_aton("192.0.2.9"), socket.inet_aton("192.0.2.7")
    head = struct.pack("=BBBBI", socket.AF_INET, 24, 0, 0, 3)
    both = memoryview(head + attribute(1, far) + attribute(2, own))
    six = memoryview(head + attribute(1, socket.inet_pton(socket.AF_INET6, "2001:db8::7")))
    assert list(addresses([both, six, memoryview(head), memoryview(head + attribute(2, b"odd"))])) == [
        ("192.0.2.7", 3),
        ("2001:db8::7", 3),
    ]
