"""The sender of echoes: its arguments, its packets, and how it counts replies."""

from __future__ import annotations

import struct

import pytest

from netconsole_collector import echo_sender
from netconsole_collector.echo_sender import EchoSocket, checksum

COOKIE = b"01234567"


class Unconnected(EchoSocket):
    """Without a socket: only root may have a raw one."""

    def __init__(self, version: int, is_raw: bool) -> None:
        self.version, self.is_raw, self.id = version, is_raw, 0x1234


def test_a_request_has_a_checksum_that_adds_up() -> None:
    packet = Unconnected(4, is_raw=True).echo(7, b"odd")
    assert struct.unpack("!BBHHH", packet[:8])[3:] == (0x1234, 7)
    assert checksum(packet) == 0


@pytest.mark.parametrize(
    ("version", "is_raw", "packet", "seq"),
    [
        (4, True, b"\x45" + bytes(19) + struct.pack("!BBHHH", 0, 0, 0, 0x1234, 9) + COOKIE, 9),
        (4, True, b"\x46" + bytes(23) + struct.pack("!BBHHH", 0, 0, 0, 0x1234, 9) + COOKIE, 9),
        (4, False, struct.pack("!BBHHH", 0, 0, 0, 0x1234, 9) + COOKIE, 9),
        (6, True, struct.pack("!BBHHH", 129, 0, 0, 0x1234, 9) + COOKIE, 9),
        (6, True, struct.pack("!BBHHH", 128, 0, 0, 0x1234, 9) + COOKIE, None),
        (6, True, struct.pack("!BBHHH", 129, 0, 0, 0x9999, 9) + COOKIE, None),
        (6, True, struct.pack("!BBHHH", 129, 0, 0, 0x1234, 9) + b"another!", None),
        (6, True, b"", None),
        (4, True, b"\x4f", None),
    ],
)
def test_only_replies_to_its_own_echoes_count(version: int, is_raw: bool, packet: bytes, seq: int | None) -> None:
    assert Unconnected(version, is_raw)._seq_of(packet, COOKIE) == seq


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["192.0.2.1", "1", "1000", "56", "0"],
        ["192.0.2.1", "one", "1000", "56", "0", ""],
        ["192.0.2.1", "-1", "1000", "56", "0", ""],
        ["192.0.2.1", "1", "0", "56", "0", ""],
        ["192.0.2.1", "1", "1000", "15", "0", ""],
        ["192.0.2.1", "1", "1000", "65001", "0", ""],
        ["192.0.2.1", "1", "1000", "56", "65536", ""],
    ],
)
def test_wrong_arguments_are_one_line(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert echo_sender.main(arguments) == 2
    assert capfd.readouterr().err.count("\n") == 1


def test_a_target_that_is_none_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert echo_sender.main(["not an address", "1", "1000", "56", "0", ""]) == 3
    assert capfd.readouterr().err.startswith("cannot send echoes to not an address: ")
