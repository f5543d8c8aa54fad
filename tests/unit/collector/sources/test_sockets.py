"""socket_groups: the sockets that share a port, who owns them, and when that is looked for."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Collection
from pathlib import Path

import pytest

from netconsole.telemetry.frames import Row
from netconsole_collector.primitives.here import HERE, Here
from netconsole_collector.sources.base import SourceError
from netconsole_collector.sources.net import sockets
from netconsole_collector.sources.net.netlink_messages import NETLINK_SOCK_DIAG, BoundSocket, bound_sockets
from netconsole_collector.sources.net.sockets import SEARCH_EVERY, SocketGroups, groups
from tests.support.rtnetlink import Answers
from tests.support.sources import tables_of


class Kernel(Answers):
    """Answers nothing; knows whether it has been closed."""

    is_open = True

    def close(self) -> None:
        self.is_open = False


class Host(Here):
    """A host with these sockets, all of which nginx has."""

    def __init__(self) -> None:
        super().__init__()
        self.sockets: list[BoundSocket] = []
        self.asked: list[set[int]] = []
        self.unknown: set[int] = set()
        self.opened: list[Kernel] = []

    def netlink(self, protocol: int) -> Kernel:
        assert protocol == NETLINK_SOCK_DIAG
        self.opened.append(Kernel())
        return self.opened[-1]

    def owners(self, wanted: Collection[int]) -> dict[int, str]:
        self.asked.append(set(wanted))
        return {inode: f"nginx/{inode}" for inode in wanted if inode not in self.unknown}


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host()
    monkeypatch.setattr(sockets, "bound_sockets", lambda _: made.sockets)
    return made


def bound(inode: int, drops: int | None = 0, waiting: int = 0, port: int = 53) -> BoundSocket:
    return BoundSocket("udp", socket.AF_INET, bytes([127, 0, 0, 1]), 0, port, inode, waiting, drops)


def read(source: SocketGroups) -> dict[object, Row]:
    (table,) = tables_of(source)
    assert table.name == "sockets"
    return {row.labels["inode"]: row for row in table.rows}


def test_each_socket_of_a_group_is_a_row_with_its_owner(host: Host) -> None:
    source = SocketGroups(host)
    source.open()
    host.unknown = {8}
    host.sockets = [bound(7, 100, 3), bound(8, None, 4), bound(9, port=54)]
    found = read(source)
    assert [row.labels for row in found.values()] == [
        {"protocol": "udp", "address": "127.0.0.1", "port": 53, "inode": inode, "process": owner}
        for inode, owner in ((7, "nginx/7"), (8, None))
    ]
    assert {inode: row.gauges["waiting"] for inode, row in found.items()} == {7: 3, 8: 4}
    host.sockets = [bound(7, 105, 3), bound(8, 2, 4)]
    assert {inode: row.counts["drops"].delta for inode, row in read(source).items()} == {7: 5, 8: 2}
    assert host.asked == [{7, 8}] and len(host.opened) == 1


def test_owners_are_looked_for_now_and_then_and_only_those_that_nobody_knows(host: Host) -> None:
    source = SocketGroups(host)
    host.sockets = [bound(7), bound(8)]
    read(source)
    host.sockets.append(bound(9))
    shown = [9 in read(source) for _ in range(SEARCH_EVERY)]
    assert shown == [False] * (SEARCH_EVERY - 1) + [True] and host.asked == [{7, 8}, {9}]
    for _ in range(2 * SEARCH_EVERY):
        read(source)
    assert len(host.asked) == 2, "all are known"


def test_an_owner_is_forgotten_with_its_socket(host: Host) -> None:
    source = SocketGroups(host)
    host.sockets = [bound(7), bound(8)]
    read(source)
    host.sockets = []
    for _ in range(SEARCH_EVERY):
        read(source)
    host.sockets = [bound(7), bound(8)]
    assert set(read(source)) == {7, 8} and host.asked == [{7, 8}, {7, 8}]


def test_a_source_that_is_closed_has_no_socket_and_may_be_opened_again(host: Host) -> None:
    source = SocketGroups(host)
    source.close()
    source.open()
    source.close()
    source.close()
    assert [one.is_open for one in host.opened] == [False]
    source.open()
    assert [one.is_open for one in host.opened] == [False, True]


@pytest.mark.parametrize(
    ("error", "said", "help"),
    [
        (errno.EPERM, "sockets cannot be listed: Operation not permitted", None),
        (errno.ENOENT, "this kernel lists no sockets by netlink", "modprobe inet_diag udp_diag tcp_diag"),
        (0, "sockets cannot be listed: nobody answers", None),
    ],
)
def test_sockets_that_cannot_be_listed_are_said(
    monkeypatch: pytest.MonkeyPatch, host: Host, error: int, said: str, help: str | None
) -> None:
    def fails(_: object) -> list[BoundSocket]:
        raise OSError(error, os.strerror(error)) if error else OSError("nobody answers")

    monkeypatch.setattr(sockets, "bound_sockets", fails)
    with pytest.raises(SourceError) as raised:
        SocketGroups(host).open()
    assert (str(raised.value), raised.value.help) == (said, help)


def test_sockets_that_have_an_interface_each_share_no_port() -> None:
    def on(ifindex: int, inode: int) -> BoundSocket:
        return BoundSocket("udp", socket.AF_INET, bytes(4), ifindex, 67, inode, 0, 0)

    everywhere, bridge, other, sibling = on(0, 1), on(5, 2), on(6, 3), on(6, 4)
    assert groups([everywhere, bridge, other]) == []
    assert groups([everywhere, bridge, other, sibling]) == [other, sibling]


def test_the_interface_of_a_socket_is_read() -> None:
    netlink = HERE.netlink(NETLINK_SOCK_DIAG)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
        except PermissionError:
            pytest.skip("cannot run here: before 5.7 this needs CAP_NET_RAW")
        one.bind(("", 0))
        (found,) = [other for other in bound_sockets(netlink) if other.inode == os.fstat(one.fileno()).st_ino]
    netlink.close()
    assert found.ifindex == socket.if_nametoindex("lo")


def test_a_descriptor_that_is_closed_meanwhile_hides_no_socket(tmp_path: Path) -> None:
    descriptors = tmp_path / "proc/42/fd"
    descriptors.mkdir(parents=True)
    (tmp_path / "proc/42/comm").write_text("server\n")
    for number in range(20):  # in whatever order they are listed
        (descriptors / str(number)).write_text("no link")
    (descriptors / "20").symlink_to("socket:[777]")
    assert Here(tmp_path).owners({777}) == {777: "server/42"}
