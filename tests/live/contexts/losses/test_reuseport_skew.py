"""reuseport_skew on sockets of the test's own: filters, listeners, idle sockets, and rows that find no room."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable

import pytest

from tests.support.live.contexts.filters import NETNS, OTHER_NETNS
from tests.support.live.contexts.memory import place_of
from tests.support.live.contexts.packets import TCP, UDP, Flow, MadeUpHost
from tests.support.live.contexts.unattached import UnattachedProbe

PROBE = "reuseport_skew"
Load = Callable[..., UnattachedProbe]

SOCK = "inet_conn.icsk_inet.sk."
ENOUGH = 1024
ROOM = 512
"""Bytes of the sockets of a group."""


class Group(MadeUpHost):
    """Sockets that share a port, and what comes to them."""

    def __init__(self, probe: UnattachedProbe, workers: int = 4, port: int = 53, protocol: int = UDP) -> None:
        super().__init__(probe.memory)
        self.probe, self.port, self.protocol = probe, port, protocol
        self.nets = {inode: self.net(inode) for inode in (NETNS, OTHER_NETNS)}
        self.shared = {net: self.memory.make("sock_reuseport", {"num_socks": workers}, ROOM) for net in self.nets}
        self.socks: dict[int, list[int]] = {net: [] for net in self.nets}
        self.eth0 = self.device("eth0", self.nets[NETNS], 2)

    def sock(self, address: str = "192.0.2.1", netns: int = NETNS, is_shared: bool = True, inode: int = 0) -> int:
        is_6 = ":" in address
        family = socket.AF_INET6 if is_6 else socket.AF_INET
        common: dict[str, int | bytes] = {
            "skc_family": family,
            "skc_num": self.port,
            "skc_net.net": self.nets[netns],
            "skc_v6_rcv_saddr" if is_6 else "skc_rcv_saddr": socket.inet_pton(family, address),
        }
        others = {"sk_protocol": self.protocol, "sk_reuseport_cb": self.shared[netns] if is_shared else 0}
        if inode:
            alloc = self.memory.make("socket_alloc", {"vfs_inode.i_ino": inode})
            others["sk_socket"] = alloc + place_of("socket_alloc", "socket")[0]
        members = {f"{SOCK}__sk_common.{name}": value for name, value in common.items()}
        members |= {f"{SOCK}{name}": value for name, value in others.items()}
        made = self.memory.make("tcp_sock", members)
        if is_shared:
            self.has(netns, [*self.socks[netns], made])
        return made

    def has(self, netns: int, socks: list[int]) -> None:
        """The sockets of the group; those that are not made are zeros."""
        self.socks[netns] = socks
        first = self.shared[netns] + place_of("sock_reuseport", "socks")[0]
        self.memory.put(first, b"".join(one.to_bytes(8, sys.byteorder) for one in socks).ljust(ROOM, b"\0"))

    def comes(self, sock: int, flow: Flow | None = None, times: int = 1) -> None:
        if flow is not None:
            skb = self.arrived(self.packet(flow, self.eth0))
            queue = {f"{SOCK}sk_receive_queue.prev": skb, f"{SOCK}sk_receive_queue.qlen": 1}
            self.memory.change("tcp_sock", sock, queue)
        call = self.probe.prepare("ready", sock)
        for _ in range(times):
            call()


@pytest.mark.proves(
    "reuseport_skew",
    "counters.received",
    "tables.members.{inode,process,netns,protocol,port,address,received,flows}",
    "tables.groups.{address,netns,protocol,port,flows,workers,busy,idle}",
    "modes.summary",
)
def test_flows_are_counted_once_and_idle_sockets_when_others_got_enough(load: Load) -> None:
    probe = load(PROBE)
    group = Group(probe)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mine:
        inode = os.fstat(mine.fileno()).st_ino
        one, alone = group.sock(inode=inode), group.sock(is_shared=False)
        other = group.sock(netns=OTHER_NETNS, inode=7)
        for port in (1, 2, 1, 2, 3):
            group.comes(one, Flow(source_port=port))
        group.comes(other, Flow(source_port=1))
        group.comes(alone, Flow())
        probe.read()
    place = {"address": "192.0.2.1", "protocol": "UDP", "port": 53}
    first, second = sorted(probe.rows("members"), key=lambda row: -row["received"])
    process = first.pop("process")
    assert process.endswith(f"({os.getpid()})")
    assert first == {**place, "netns": str(NETNS), "inode": inode, "received": 5, "flows": 3}
    assert (second["netns"], second["inode"], second["received"], second["flows"]) == (str(OTHER_NETNS), 7, 1, 1)
    assert probe.counters() == {"received": 6}
    gauges = {"workers": 4, "busy": 1, "idle": 0, "flows": 3, "moved": 0}
    assert {**place, "netns": str(NETNS), **gauges} in groups(probe)
    group.comes(one, Flow(source_port=3), ENOUGH - 5)
    probe.read()
    assert {**place, "netns": str(NETNS), **gauges, "idle": 3} in groups(probe)
    assert {**place, "netns": str(OTHER_NETNS), "workers": 4, "busy": 1, "idle": 0, "flows": 1, "moved": 0} in groups(
        probe
    )
    assert probe.ledger() == {}


def test_a_socket_that_is_opened_anew_has_got_nothing_yet(load: Load) -> None:
    """Else a group whose workers were started again would seem to have no idle one."""
    probe = load(PROBE)
    group = Group(probe, workers=2)
    before = [group.sock(inode=inode) for inode in (7001, 7002)]
    for sock in before:
        group.comes(sock, Flow(), ENOUGH)
    probe.read()
    (row,) = groups(probe)
    assert (row["workers"], row["busy"], row["idle"]) == (2, 2, 0)
    group.has(NETNS, [])
    one, _ = (group.sock(inode=inode) for inode in (7003, 7004))
    group.comes(one, Flow(source_port=9), ENOUGH)
    probe.read()
    (row,) = groups(probe)
    assert (row["workers"], row["busy"], row["idle"], row["flows"]) == (2, 1, 1, 3)


@pytest.mark.proves("reuseport_skew", "tables.groups.moved")
def test_a_socket_that_takes_the_place_of_a_closed_one_is_told(load: Load) -> None:
    """As the kernel does it: the last one goes where that was, and a new one becomes the last."""
    probe = load(PROBE)
    group = Group(probe, workers=3)
    first, second, third = (group.sock(inode=inode) for inode in (7001, 7002, 7003))
    for sock in (first, second, third):
        group.comes(sock, Flow(), ENOUGH)
    probe.read()
    assert groups(probe)[0]["moved"] == 0
    group.has(NETNS, [third, second])
    for sock in (group.sock(inode=7004), second):
        group.comes(sock, Flow(), ENOUGH)
    probe.read()
    assert groups(probe)[0]["moved"] == 0
    for _ in range(2):
        group.comes(third, Flow(), ENOUGH)
        probe.read()
        (row,) = groups(probe)
        assert (row["moved"], row["busy"], row["idle"]) == (1, 3, 0)


def test_a_flow_is_known_by_its_source_and_by_the_socket_to_which_it_comes(load: Load) -> None:
    probe = load(PROBE)
    group = Group(probe)
    one, other = group.sock(inode=7001), group.sock(inode=7002)
    for _ in range(2):
        group.comes(one, Flow())
        group.comes(one, Flow("192.0.2.7"))
        group.comes(one, Flow("2001:db8::1", "2001:db8::2"))
        group.comes(one, Flow("2001:db8:1::1", "2001:db8::2"))
        group.comes(one, Flow(target_port=9))  # of the same source
        group.comes(other, Flow())
    group.memory.change("tcp_sock", other, {f"{SOCK}sk_receive_queue.qlen": 0})  # somebody has read it by now
    skb = group.arrived(group.packet(Flow(source_port=77), group.eth0))
    group.memory.change("tcp_sock", other, {f"{SOCK}sk_receive_queue.prev": skb})
    group.comes(other)
    probe.read()
    rows = {row["inode"]: (row["received"], row["flows"]) for row in probe.rows("members")}
    assert rows == {7001: (10, 4), 7002: (3, 1)}
    (both,) = groups(probe)
    assert (both["busy"], both["flows"]) == (2, 5)


def groups(probe: UnattachedProbe) -> list[dict[str, object]]:
    (body,) = [one for one in probe.bodies if one["kind"] == "table" and one["name"] == "groups"]
    return [
        {**row["labels"], **row["gauges"], **{name: one["total"] for name, one in row["counts"].items()}}
        for row in body["rows"]
    ]


@pytest.mark.parametrize("function", ["ready", "ready_function"])
def test_connections_of_a_listener_have_no_flow(load: Load, function: str) -> None:
    """By the tracepoint, or by the function on kernels without it."""
    probe = load(PROBE, {"ready": function})
    group = Group(probe, workers=2, protocol=TCP)
    group.comes(group.sock(), Flow(), 3)
    probe.read()
    row = probe.row("members")
    assert (row["protocol"], row["received"], row["flows"]) == ("TCP", 3, 0)


@pytest.mark.proves("reuseport_skew", "knobs.{address,port,protocol,netns}")
def test_filters_let_pass_what_they_name_and_nothing_else(load: Load) -> None:
    probe = load(PROBE)
    group = Group(probe)
    four, six = group.sock(), group.sock("2001:db8::1", OTHER_NETNS)
    cases: list[tuple[dict[str, str | int], tuple[bool, bool]]] = [
        ({}, (True, True)),
        ({"address": "192.0.2.1"}, (True, False)),
        ({"address": "2001:db8::/48"}, (False, True)),
        ({"port": 53}, (True, True)),
        ({"port": 54}, (False, False)),
        ({"protocol": "udp"}, (True, True)),
        ({"protocol": "tcp"}, (False, False)),
        ({"netns": NETNS}, (True, False)),
        ({"netns": OTHER_NETNS}, (False, True)),
    ]
    for knobs, passes in cases:
        probe.set(**knobs)
        for sock, passed in zip((four, six), passes, strict=True):
            before = probe.running._maps["nc_counters"].sum_of(0)
            group.comes(sock, Flow())
            assert probe.running._maps["nc_counters"].sum_of(0) - before == passed, knobs


@pytest.mark.proves("reuseport_skew", "ledger.{map_full,parse_failed}")
def test_what_finds_no_room_or_cannot_be_read_is_counted(load: Load) -> None:
    probe = load(PROBE, groups=1)
    group = Group(probe)
    one, other = group.sock(), group.sock(netns=OTHER_NETNS)
    for _ in range(3):
        group.comes(one, Flow())
        group.comes(other, Flow())
    probe.read()
    assert [row["received"] for row in probe.rows("members")] == [3, 3] and probe.ledger() == {"map_full": 1}

    probe = load(PROBE, members=1)
    group = Group(probe)
    one, other = group.sock(), group.sock(netns=OTHER_NETNS)
    for sock in (one, other, other):
        group.comes(sock, Flow())
    probe.read()
    assert probe.row("members")["received"] == 1 and probe.ledger() == {"map_full": 2}
    broken = group.arrived(group.frame(0x0800, b"\x55" + Flow().packet()[1:], group.eth0))
    members = {f"{SOCK}sk_receive_queue.prev": broken, f"{SOCK}sk_receive_queue.qlen": 1}
    group.memory.change("tcp_sock", one, members)
    group.comes(one)
    probe.read()
    assert probe.ledger()["parse_failed"] == 1
