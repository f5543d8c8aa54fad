"""What the counters of a namespace say of connections that were refused in TIME-WAIT."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

import pytest

from netconsole_collector.questions.moving import Moved
from netconsole_collector.questions.net import sockets
from netconsole_collector.questions.net.rtnetlink import Interface
from netconsole_collector.questions.net.sockets import WaitingSocket, refused_in

IP = b"IpExt: InNoRoutes InOctets\nIpExt: 5 7\n"


@pytest.mark.parametrize(
    ("names", "values", "refused"),
    [
        (b"SyncookiesSent PAWSEstab", b"3 0", False),
        (b"SyncookiesSent PAWSEstab", b"0 7", True),
        (b"PAWSEstab PAWSTimewait", b"7 7", False),  # such a packet has a drop reason of its own
        (b"SyncookiesSent", b"3", False),
    ],
)
def test_refused_time_stamps_are_known_by_a_counter_where_no_reason_tells(
    names: bytes, values: bytes, refused: bool
) -> None:
    assert refused_in(b"TcpExt: " + names + b"\nTcpExt: " + values + b"\n" + IP) is refused


def test_without_counters_nothing_was_refused() -> None:
    assert not refused_in(b"")


@pytest.mark.parametrize(
    ("listens_at", "asked"), [(9, ["Checksums"]), (80, ["Checksums", "Resets"]), (None, ["Checksums", "Resets"])]
)
def test_resets_are_asked_about_only_where_nobody_listens(
    monkeypatch: pytest.MonkeyPatch, listens_at: int | None, asked: list[str]
) -> None:
    """The resets of another port were more than the wrong checksums of this one, which were not told then."""
    everyone = [] if listens_at is None else [WaitingSocket(10, "::", listens_at, "", 0, 128, 7)]
    seen: list[Sequence[str]] = []

    def moves(names: Sequence[str]) -> Moved:
        seen.append(names)
        return Moved(names[0], True)

    monkeypatch.setattr(sockets, "within", lambda _arguments, ask: ask())
    monkeypatch.setattr(sockets, "_listening", lambda _ends: (everyone, False, False))
    monkeypatch.setattr(sockets, "moving", moves)
    told = sockets.answer({"wanted": "listener", "port": 9, "counters": "Checksums", "unheard": "Resets"})
    assert (seen, told["moved"], told["is_nobody"]) == ([asked], "Checksums", listens_at != 9)


def test_a_port_of_who_calls_is_told_from_that_of_a_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one is bound, so that nobody listens there meanwhile."""
    monkeypatch.setattr(sockets, "within", lambda _arguments, ask: ask())
    with socket.socket() as caller:
        caller.bind(("127.0.0.1", 0))
        asked = {"wanted": "port", "protocol": "TCP"}
        known = [sockets.answer({**asked, "port": port})["is_callers"] for port in (caller.getsockname()[1], 9)]
    assert known == [True, False]


def link(number: int, name: str, kind: bytes, master: int = 0) -> Interface:
    """As the kernel tells of it: IFLA_LINKINFO with IFLA_INFO_KIND, and IFLA_MASTER."""
    return Interface(
        number, 0, name, {18: struct.pack("=HH", 5 + len(kind), 1) + kind + b"\0", 10: struct.pack("=I", master)}
    )


class Links:
    """In place of the kernel: eth0 is in a VRF, eth1 in a bridge."""

    known = (link(1, "eth0", b"", 3), link(2, "eth1", b"", 4), link(3, "blue", b"vrf"), link(4, "br0", b"bridge"))

    def __enter__(self) -> Links:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def link(self, name: str) -> Interface | None:
        return next((one for one in self.known if one.name == name), None)

    def link_at(self, number: int) -> Interface | None:
        return next((one for one in self.known if one.number == number), None)


@pytest.mark.parametrize(
    ("device", "accepts", "vrf"),
    [
        ("eth0", 0, "blue"),
        ("blue", 0, "blue"),
        ("eth1", 0, None),
        ("gone", 0, None),
        ("eth0", 1, None),
        ("eth0", None, None),
    ],
)
def test_a_socket_outside_takes_nothing_of_a_vrf_unless_a_setting_lets_it(
    monkeypatch: pytest.MonkeyPatch, device: str, accepts: int | None, vrf: str | None
) -> None:
    monkeypatch.setattr(sockets, "RouteSocket", Links)
    monkeypatch.setattr(sockets, "sysctl", {"ipv4/udp_l3mdev_accept": accepts}.get)
    assert sockets._outside_of(device, "UDP") == vrf
