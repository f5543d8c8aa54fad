"""What the question `route` knows of a tunnel's other end."""

from __future__ import annotations

import socket
import struct

import pytest

from netconsole_collector.questions.net.route import other_end
from netconsole_collector.questions.net.rtnetlink import Interface

LINKINFO, KIND, DATA = 18, 1, 2


def attribute(number: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), number) + value + bytes(-len(value) % 4)


def tunnel(kind: bytes, number: int, remote: bytes) -> Interface:
    info = attribute(KIND, kind + b"\0") + attribute(DATA, attribute(number, remote))
    return Interface(5, 0, "t1", {LINKINFO: info})


@pytest.mark.parametrize(
    ("kind", "number", "remote", "expected"),
    [
        (b"ipip", 3, socket.inet_aton("192.0.2.2"), ("192.0.2.2", 20)),
        (b"gre", 7, socket.inet_aton("192.0.2.2"), ("192.0.2.2", 24)),
        (b"gretap", 7, socket.inet_aton("192.0.2.2"), ("192.0.2.2", 38)),
        (b"ip6tnl", 3, socket.inet_pton(socket.AF_INET6, "2001:db8::2"), ("2001:db8::2", 40)),
        (b"gre", 7, bytes(4), (None, 24)),  # whoever is called
        (b"gre", 6, socket.inet_aton("192.0.2.1"), (None, 24)),  # this end
        (b"gre", 7, b"cut", (None, 24)),
        (b"vlan", 3, socket.inet_aton("192.0.2.2"), (None, 0)),
    ],
)
def test_the_other_end_of_a_tunnel(kind: bytes, number: int, remote: bytes, expected: tuple[str | None, int]) -> None:
    assert other_end(tunnel(kind, number, remote)) == expected
