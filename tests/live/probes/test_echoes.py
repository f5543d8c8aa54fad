"""Every echo has a record of its own at each vantage point: when it passed, and where it was lost."""

from __future__ import annotations

import shutil
import socket
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from netconsole.ping.capture import EchoOutcome, Role
from netconsole.ping.echo_log import FRAGMENTED, Echo
from netconsole_collector.echo_sender import checksum
from tests.support.live.echoes import A6, B6, LIMIT, MACS, TAPS, WIRES, A, B, TwoHosts, Vantages, between
from tests.support.live.measurement import LIMIT_S
from tests.support.live.network import SEND_FRAMES

pytestmark = pytest.mark.counting

SOME, MANY = 200, 10_000
EVERY_MS = 1000
"""In µs."""
HOSTS: tuple[Role, ...] = ("sender-host", "receiver-host")
LATE_S = LIMIT + 0.1


@pytest.fixture(scope="module")
def net() -> Iterator[TwoHosts]:
    hosts = TwoHosts()
    yield hosts
    hosts.remove()


@pytest.fixture(scope="module")
def points() -> Iterator[Vantages]:
    measurement = Vantages()
    yield measurement
    measurement.close()


@pytest.fixture
def hosts(points: Vantages, net: TwoHosts) -> Vantages:
    """Both hosts are watched, and nothing has been seen yet."""
    for role in HOSTS:
        points.watch(role, between(role))
    return points


def is_in_order(way: Sequence[int | None]) -> bool:
    known = [at_ns for at_ns in way if at_ns is not None]
    return len(known) == len(way) and known == sorted(known)


def seen(points: Vantages, role: Role, count: int) -> list[Echo]:
    found = points.await_echoes(role, count)
    assert points.missed(role) == {}
    return found


@pytest.mark.parametrize(("source", "target"), [(A, B), (A6, B6)])
@pytest.mark.proves("echo_host", "records.echoes.{source,target,id,seq}", "modes.summary")
def test_every_echo_has_its_record_at_both_hosts(hosts: Vantages, net: TwoHosts, source: str, target: str) -> None:
    sent = net.send(target, SOME, EVERY_MS)
    sender, receiver = (seen(hosts, role, SOME) for role in HOSTS)
    wanted = [(source, target, sent["id"], seq) for seq in range(SOME)]
    assert [echo.identity[:4] for echo in sender] == [echo.identity[:4] for echo in receiver] == wanted
    for outer, inner in zip(sender, receiver, strict=True):
        # One kernel, one clock: the points of the way come one after another.
        assert is_in_order([*outer.at_ns[:2], *inner.at_ns, *outer.at_ns[2:]])
    assert hosts.logs["sender-host"].devices == tuple({name: SOME} for name in (TAPS[0], WIRES[0], WIRES[0], TAPS[0]))
    assert hosts.logs["receiver-host"].devices == tuple({name: SOME} for name in (WIRES[1], TAPS[1], TAPS[1], WIRES[1]))


@pytest.mark.skipif(shutil.which("nft") is None, reason="cannot run here: no nft")
@pytest.mark.parametrize("target", [B, B6])
def test_a_lost_echo_is_lost_where_it_was_dropped(hosts: Vantages, net: TwoHosts, target: str) -> None:
    net.drop({3: (WIRES[0], False), 4: (TAPS[1], False), 5: ("", False), 6: (WIRES[1], True), 7: (TAPS[0], True)})
    try:
        sent = net.send(target, 10, EVERY_MS)
    finally:
        net.drop_nothing()
    assert sent["answered"] == 5
    told: list[dict[int, EchoOutcome]] = [hosts.outcomes(role) for role in HOSTS]
    at_sender: dict[int, EchoOutcome] = {
        3: "request_lost_inside", 4: "lost_outside", 5: "lost_outside", 6: "lost_outside", 7: "reply_lost_inside"
    }  # fmt: skip
    at_receiver: dict[int, EchoOutcome] = {4: "request_lost_inside", 5: "lost_outside", 6: "reply_lost_inside"}
    everyone: dict[int, EchoOutcome] = dict.fromkeys(range(10), "answered")
    assert told[0] == {**everyone, **at_sender}
    assert told[1] == {seq: ({**everyone, **at_receiver})[seq] for seq in everyone if seq != 3}
    assert [hosts.missed(role) for role in HOSTS] == [{}, {}]


ANSWER = """
import socket, sys, time
late_s = float(sys.argv[1])
sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
print("ready", flush=True)
late = None
while True:
    packet, (source, _) = sock.recvfrom(2048)
    echo = packet[20:]
    if echo[0] != 8:
        continue
    seq, total = int.from_bytes(echo[6:8], "big"), int.from_bytes(echo[2:4], "big") + 0x0800
    reply = b"\\0\\0" + ((total & 0xffff) + (total >> 16)).to_bytes(2, "big") + echo[4:]
    if seq == 2:
        time.sleep(late_s)
    for _ in range(3 if seq == 1 else 1):
        sock.sendto(reply, (source, 0))
"""


@pytest.mark.proves("echo_host", "records.echoes.duplicates")
def test_late_and_further_replies_are_told_apart(hosts: Vantages, net: TwoHosts) -> None:
    net.b.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/icmp_echo_ignore_all")
    answering = net.b.start(ANSWER, LATE_S)
    try:
        assert answering.stdout is not None
        assert answering.stdout.readline() == "ready\n"
        net.send(B, 3, EVERY_MS)
    finally:
        answering.kill()
        answering.wait(LIMIT_S)
        net.b.run("sh", "-c", "echo 0 > /proc/sys/net/ipv4/icmp_echo_ignore_all")
    for role in HOSTS:
        assert hosts.outcomes(role) == {0: "answered", 1: "answered", 2: "late"}
        assert [echo.duplicates for echo in hosts.logs[role].echoes()] == [0, 2, 0]
        assert hosts.missed(role) == {}


def test_ten_thousand_echoes_a_millisecond_apart_have_their_records(hosts: Vantages, net: TwoHosts) -> None:
    sent = net.send(B, MANY, EVERY_MS, first_seq=60_000)  # the numbers wrap round on the way
    assert (sent["sent"], sent["answered"], sent["refused"]) == (MANY, MANY, 0)
    for role in HOSTS:
        echoes = seen(hosts, role, MANY)
        assert [echo.seq for echo in echoes] == [(60_000 + number) % 65536 for number in range(MANY)]
        assert all(None not in echo.at_ns for echo in echoes)


@pytest.mark.parametrize("target", [B, B6])
@pytest.mark.proves("echo_host", "records.echoes.flags")
def test_an_echo_in_fragments_is_one_echo(hosts: Vantages, net: TwoHosts, target: str) -> None:
    net.send(target, 5, EVERY_MS, size=5000)
    for role in HOSTS:
        assert [echo.flags for echo in seen(hosts, role, 5)] == [FRAGMENTED] * 5


def frame(icmp: bytes, source: str = A, length: int | None = None, fragment: int = 0, options: bytes = b"") -> str:
    """An Ethernet frame with an IPv4 packet from a to b, as hexadecimal digits. ``length`` is what IP says."""
    size = 20 + len(options) + len(icmp)
    words = len(options) // 4 + 5 | 0x40
    head = struct.pack("!BBHHHBBH", words, 0, size if length is None else length, 7, fragment, 64, 1, 0)
    head += socket.inet_aton(source) + socket.inet_aton(B)
    head = head[:10] + struct.pack("!H", checksum(head + options)) + head[12:] + options
    macs = bytes.fromhex((MACS[1] + MACS[0]).replace(":", ""))
    return (macs + b"\x08\x00" + head + icmp).ljust(60, b"\0").hex()


def request(seq: int, carried: bytes = b"c" * 16, code: int = 0, wrong: int = 0) -> bytes:
    packet = struct.pack("!BBHHH", 8, code, 0, 4711, seq) + carried
    return packet[:2] + struct.pack("!H", checksum(packet) ^ wrong) + packet[4:]


NO_OPERATION = b"\1\1\1\0"


@pytest.mark.proves("echo_host", "counters.another", "records.echoes.{repeated,id,seq}")
def test_odd_and_hostile_packets_are_no_echoes_or_echoes_of_their_own(hosts: Vantages, net: TwoHosts) -> None:
    for role in HOSTS:
        hosts.watch(role, between(role, addresses=(A, B)))
    odd = [
        frame(request(1)[:4]),  # shorter than an echo
        frame(request(2), length=24),  # IP says that it is shorter
        frame(request(3), fragment=0x0010),  # a later fragment, whatever it looks like
        frame(request(4, code=1)),
        frame(b"\x03\x03" + request(5)[2:]),  # another type
        frame(request(6), source="10.98.0.77"),  # somebody else's ping
        frame(request(7, wrong=0x1111)),  # an echo that nobody answers
        frame(request(8), options=NO_OPERATION),
        frame(request(9)),
        frame(request(9)),  # the same again
        frame(request(9, b"d" * 16)),  # the same numbers, another echo
        frame(request(10, b"")),  # nothing to carry
    ]
    net.a.run(*FRAMES, input="\n".join(odd))
    net.send(B, SOME, EVERY_MS)
    expected: dict[int, EchoOutcome] = {7: "lost_outside", 8: "answered", 9: "answered", 10: "answered"}
    for role in HOSTS:
        hosts.outcomes(role)
        found = [echo for echo in hosts.logs[role].echoes() if echo.id == 4711]
        now_ns = hosts.logs[role].clocks[-1][0]
        assert {echo.seq: echo.outcome(now_ns, LIMIT) for echo in found} == expected
        assert [echo.repeated for echo in found] == [0, 0, 1, 0]
        assert len(hosts.logs[role]) == SOME + len(found)
        assert hosts.counter(hosts.name(role), "another") == 4  # it passes four points
        assert hosts.missed(role) == {}


FRAMES = ("python3", "-c", SEND_FRAMES, "eth0")


@pytest.mark.parametrize("target", [B, B6])
@pytest.mark.proves("echo_stack", "records.echoes.id", "modes.summary")
def test_a_machine_sees_its_own_echoes_and_those_it_answers(points: Vantages, net: TwoHosts, target: str) -> None:
    points.watch("sender-vm", between("sender-vm", netns=net.a.inode))
    points.watch("receiver-vm", between("receiver-vm", netns=net.b.inode))
    sent = net.send(target, SOME, EVERY_MS)
    sender, receiver = seen(points, "sender-vm", SOME), seen(points, "receiver-vm", SOME)
    assert {echo.id for echo in sender + receiver} == {sent["id"]}
    has_kprobes = Path("/sys/bus/event_source/devices/kprobe").exists()
    for outer, inner in zip(sender, receiver, strict=True):
        known = [at_ns for at_ns in inner.at_ns if at_ns is not None]
        assert len(known) == (4 if has_kprobes else 3)  # when ICMP gets a request takes a kprobe
        assert is_in_order([*outer.at_ns[:2], *known, *outer.at_ns[2:]])
