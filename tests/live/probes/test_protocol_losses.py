"""Losses that protocols count, provoked one by one in a namespace: each is seen, exactly, under its own name."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field

import pytest

from netconsole_collector.sources.net.protocol_counters import parse_paired, parse_single
from tests.live.probes.test_protocol_counters import Losses
from tests.support.live.network import Wire, send_frames
from tests.support.live.packets import (
    A6,
    B6,
    ELSEWHERE,
    ELSEWHERE6,
    A,
    B,
    arp,
    echo,
    echo6,
    fragment6,
    ipv4,
    ipv6,
    tcp,
    udp,
    udp_lite,
)

MD5 = bytes([19, 18, *range(16), 1, 1])
"""The option of a signature that nobody made."""
DONT_FRAGMENT, MORE_FRAGMENTS = 0x4000, 0x2000
SILENT = "192.0.2.77"
"""Answers to it get no answer."""
SILENT_IS_KNOWN = f"ip neighbour replace {SILENT} lladdr 02:00:00:00:00:77 dev veth-b nud permanent"
"""A search for it would fail seconds later, in the midst of the next test, by one ICMP message for each answer."""
SEND = """
import socket, sys
family, protocol, target, port, count, size = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], *map(int, sys.argv[4:])
sender = socket.socket(family, socket.SOCK_DGRAM, protocol)
for _ in range(count):
    try:
        sender.sendto(bytes(size), (target, port))
    except OSError:
        pass  # refused here, and counted all the same
"""
CONNECT = """
import socket, struct, sys
how, count = sys.argv[1], int(sys.argv[2])
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
if how == "deferred":
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 30)
listener.listen(2 if how == "overflowing" else 512)
kept = []
for _ in range(count):
    one = socket.socket()
    one.setblocking(how != "overflowing")
    one.connect_ex(listener.getsockname())
    kept.append(one)
    if how == "reset":
        kept.append(listener.accept()[0])
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0))
        one.close()
"""
"""Connections of the second namespace with itself."""
KEEP = """
import socket, sys
for family, protocol in ((socket.AF_INET, 136), (socket.AF_INET6, 136), (socket.AF_INET6, 17)):
    receiver = socket.socket(family, socket.SOCK_DGRAM, protocol)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    if family == socket.AF_INET6:
        receiver.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    receiver.bind(("", 7200))
    kept = [*globals().get("kept", []), receiver]
print("ready", flush=True)
sys.stdin.read()
"""
"""Receivers that never read."""
LISTEN = """
import socket, struct, sys
def listener(port):
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("", port))
    return one
low, signed, plain, short = map(listener, (7101, 7102, 7103, 7104))
low.setsockopt(socket.IPPROTO_IP, 21, 255)  # IP_MINTTL
peer = struct.pack("=H", socket.AF_INET) + bytes(2) + socket.inet_aton(sys.argv[1])
signed.setsockopt(socket.IPPROTO_TCP, 14, peer.ljust(128, bytes(1)) + struct.pack("=BBHi80s", 0, 0, 3, 0, b"key"))
for one in (low, signed, plain):
    one.listen(512)
short.listen(4)
print("ready", flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class Provoked:
    """What is done in the second namespace, what is sent to it, and the counters that it raises by so many each."""

    frames: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    before: Sequence[str] = ()
    after: Sequence[str] = ()
    along: Mapping[str, int] = field(default_factory=dict)
    """Counters that these packets raise as well, or more often than their own do."""
    sends: Mapping[str, Sequence[object]] = field(default_factory=dict)
    """By counter: the arguments of SEND, in the second namespace; the fifth is how many."""
    at_least: frozenset[str] = frozenset()
    """Counters of which the kernel itself lets some pass."""
    connects: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """By counter: the arguments of CONNECT."""
    listens: bool = False
    of_packets: bool = True
    """Whether what it counts are packets that died, each of them sent by the test."""
    keeps: bool = False
    """Receivers that never read, on port 7200."""
    is_ipv6: bool = False


def several(number: int, frame: bytes) -> list[bytes]:
    return [frame] * number


def forwarded(payload: bytes, ttl: int = 64, flags: int = 0) -> bytes:
    return ipv4(payload, target="198.51.100.9", ttl=ttl, flags=flags)


GROUPS: dict[str, Provoked] = {
    "wrong IPv4": Provoked(
        {
            "IpInHdrErrors": several(11, ipv4(udp(9), version=9)),
            "IpInAddrErrors": several(12, ipv4(udp(9, target=ELSEWHERE), target=ELSEWHERE)),
            "IpExtInCsumErrors": several(13, ipv4(udp(9), spoil=1)),
            "UdpNoPorts": several(14, ipv4(udp(9))),
            "UdpInCsumErrors": several(15, ipv4(udp(9, wrong=0x1234))),
            "IpInUnknownProtos": several(16, ipv4(bytes(8), protocol=253)),
            "UdpLiteNoPorts": several(17, ipv4(udp_lite(9), protocol=136)),
            "UdpLiteInCsumErrors": several(18, ipv4(udp_lite(9, wrong=0x1234), protocol=136)),
            "TcpInCsumErrors": several(19, ipv4(tcp(9, wrong=0x1234), protocol=6)),
            "IcmpInCsumErrors": several(20, ipv4(bytes([8, 0, 0xDE, 0xAD, 0, 1, 0, 1]), protocol=1)),
        },
        along={"IpInHdrErrors": 11 + 13, "UdpInErrors": 15, "UdpLiteInErrors": 18, "TcpInErrs": 19, "IcmpInErrors": 20},
        before=["sysctl -qw net.ipv4.ip_forward=0", "sysctl -qw net.ipv4.conf.veth-b.rp_filter=0"],
    ),
    "forwarded IPv4": Provoked(
        {
            "IpExtInNoRoutes": several(11, ipv4(udp(9, target=ELSEWHERE), target=ELSEWHERE)),
            "IpInHdrErrors": several(12, forwarded(bytes(16), ttl=1)),
            "IpFragFails": several(13, forwarded(bytes(900), flags=DONT_FRAGMENT)),
        },
        before=["sysctl -qw net.ipv4.ip_forward=1", f"ip route add 198.51.100.0/24 via {A} mtu lock 600"],
        after=["ip route delete 198.51.100.0/24", "sysctl -qw net.ipv4.ip_forward=0"],
    ),
    "IPv4 fragments": Provoked(
        {"IpReasmTimeout": [ipv4(bytes(16), flags=MORE_FRAGMENTS, identity=number) for number in range(11)]},
        along={"IpReasmFails": 11},
        before=["sysctl -qw net.ipv4.ipfrag_time=1"],
        after=["sysctl -qw net.ipv4.ipfrag_time=30"],
    ),
    "IPv6 fragments": Provoked(
        {"Ip6ReasmTimeout": [ipv6(fragment6(number), following=44) for number in range(12)]},
        along={"Ip6ReasmFails": 12},
        before=["sysctl -qw net.ipv6.ip6frag_time=1"],
        after=["sysctl -qw net.ipv6.ip6frag_time=60"],
        is_ipv6=True,
    ),
    "reverse path": Provoked(
        {"TcpExtIPReversePathFilter": several(11, ipv4(udp(9, source=ELSEWHERE), source=ELSEWHERE))},
        before=["sysctl -qw net.ipv4.conf.veth-b.rp_filter=1"],
        after=["sysctl -qw net.ipv4.conf.veth-b.rp_filter=0"],
    ),
    "wrong IPv6": Provoked(
        {
            "Ip6InHdrErrors": several(11, ipv6(udp(9, source=A6, target=B6), version=7)),
            "Ip6InTruncatedPkts": several(12, ipv6(bytes(16), longer=50)),
            "Ip6InNoRoutes": several(13, ipv6(udp(9, source=A6, target=ELSEWHERE6), target=ELSEWHERE6)),
            "Udp6NoPorts": several(15, ipv6(udp(9, source=A6, target=B6))),
            "Udp6InCsumErrors": several(16, ipv6(udp(9, wrong=0x1234, source=A6, target=B6))),
            "Icmp6InCsumErrors": several(17, ipv6(bytes([128, 0, 0xDE, 0xAD, 0, 1, 0, 1]), following=58)),
            "Ip6InUnknownProtos": several(18, ipv6(bytes(8), following=253)),
            "UdpLite6NoPorts": several(19, ipv6(udp_lite(9, source=A6, target=B6), following=136)),
            "UdpLite6InCsumErrors": several(20, ipv6(udp_lite(9, 0x1234, source=A6, target=B6), following=136)),
        },
        along={"Udp6InErrors": 16, "UdpLite6InErrors": 20, "Icmp6InErrors": 17},
        sends={"Ip6OutNoRoutes": (10, 0, ELSEWHERE6, 9, 14, 8)},
        is_ipv6=True,
    ),
    "IPsec policies": Provoked(
        {
            "XfrmInPolBlock": several(11, ipv4(udp(7001))),
            "XfrmInTmplMismatch": several(12, ipv4(udp(7002))),
        },
        before=[
            f"ip xfrm policy add src {A}/32 dst {B}/32 proto udp dport 7001 dir in action block",
            f"ip xfrm policy add src {A}/32 dst {B}/32 proto udp dport 7002 dir in tmpl proto esp mode transport",
            f"ip xfrm policy add src {B}/32 dst {A}/32 proto udp dport 7003 dir out action block",
        ],
        sends={"XfrmOutPolBlock": (2, 0, A, 7003, 13, 8)},
        after=["ip xfrm policy flush"],
    ),
    "conntrack": Provoked(
        {
            "Conntrackinvalid": several(11, ipv4(udp(9, wrong=0x1234))),
            "Conntrackicmp_error": several(12, ipv4(bytes([8, 0, 0xDE, 0xAD, 0, 1, 0, 1]), protocol=1)),
        },
        before=[
            "nft add table inet f",
            "nft add chain inet f pre { type filter hook prerouting priority 0 ; }",
            "nft add rule inet f pre ct state new counter",
        ],
        after=["nft delete table inet f"],
    ),
    "what is sent": Provoked(
        before=["tc qdisc replace dev veth-b root tbf rate 1gbit burst 100 limit 100000"],
        sends={
            "IpOutNoRoutes": (2, 0, ELSEWHERE, 9, 11, 8),
            "IpOutDiscards": (2, 0, A, 9, 12, 400),
        },
        along={"UdpSndbufErrors": 12},
        after=["tc qdisc delete dev veth-b root"],
    ),
    "TCP listeners": Provoked(
        {
            "TcpExtTCPMinTTLDrop": several(11, ipv4(tcp(7101), protocol=6)),
            "TcpExtTCPMD5NotFound": several(12, ipv4(tcp(7102), protocol=6)),
            "TcpExtTCPMD5Failure": several(13, ipv4(tcp(7102, options=MD5), protocol=6)),
            "TcpExtTCPMD5Unexpected": several(14, ipv4(tcp(7103, options=MD5), protocol=6)),
            "TcpExtTCPReqQFullDrop": [
                ipv4(tcp(7104, 5000 + number, source=SILENT), protocol=6, source=SILENT) for number in range(40)
            ],
        },
        before=["sysctl -qw net.ipv4.tcp_syncookies=0", SILENT_IS_KNOWN],
        after=["sysctl -qw net.ipv4.tcp_syncookies=1"],
        along={"TcpExtListenDrops": 40},
        at_least=frozenset({"TcpExtTCPReqQFullDrop", "TcpExtListenDrops"}),
        listens=True,
    ),
    "small buffers": Provoked(
        {
            "UdpLiteRcvbufErrors": several(60, ipv4(udp_lite(7200), protocol=136)),
            "UdpLite6RcvbufErrors": several(60, ipv6(udp_lite(7200, source=A6, target=B6), following=136)),
            "Udp6RcvbufErrors": several(60, ipv6(udp(7200, source=A6, target=B6))),
        },
        at_least=frozenset({"UdpLiteRcvbufErrors", "UdpLite6RcvbufErrors", "Udp6RcvbufErrors"}),
        keeps=True,
        is_ipv6=True,
    ),
    "what is sent by IPv6 and UDP-Lite": Provoked(
        before=["tc qdisc replace dev veth-b root tbf rate 1gbit burst 100 limit 100000"],
        sends={
            "Udp6SndbufErrors": (10, 0, A6, 9, 11, 400),
            "UdpLiteSndbufErrors": (2, 136, A, 9, 12, 400),
            "UdpLite6SndbufErrors": (10, 136, A6, 9, 13, 400),
        },
        along={"Ip6OutDiscards": 60, "IpOutDiscards": 12},
        at_least=frozenset({"Ip6OutDiscards"}),  # IPv6 sends by itself, too
        after=["tc qdisc delete dev veth-b root"],
        is_ipv6=True,
    ),
    "forwarded IPv6": Provoked(
        {
            "Ip6InTooBigErrors": several(11, ipv6(bytes(1400), target="2001:db8:77::7")),
            "Ip6InAddrErrors": several(12, ipv6(bytes(16), target="2001:db8:77::7", source="::")),
        },
        along={"Ip6FragFails": 11},
        before=[
            "ip link add out type ifb", "ip link set out up", "sysctl -qw net.ipv6.conf.all.forwarding=1",
            "ip -6 route add 2001:db8:77::/64 dev out mtu lock 1280",
        ],
        after=["ip link delete out", "sysctl -qw net.ipv6.conf.all.forwarding=0"],
        is_ipv6=True,
    ),
    "ARP": Provoked(
        {"TcpExtArpFilter": several(11, arp("198.51.100.9", B))},
        before=[
            "ip link add out type ifb", "ip link set out up", "ip route add 198.51.100.0/24 dev out",
            "sysctl -qw net.ipv4.conf.veth-b.arp_filter=1",
        ],
        of_packets=False,
        after=["ip link delete out", "sysctl -qw net.ipv4.conf.veth-b.arp_filter=0"],
    ),
    "pings": Provoked(
        {
            "IcmpEchosUnanswered": several(11, ipv4(echo(16), protocol=1)),
            "Icmp6EchosUnanswered": several(12, ipv6(echo6(16), following=58)),
        },
        before=["sysctl -qw net.ipv4.icmp_echo_ignore_all=1", "sysctl -qw net.ipv6.icmp.echo_ignore_all=1"],
        of_packets=False,
        after=["sysctl -qw net.ipv4.icmp_echo_ignore_all=0", "sysctl -qw net.ipv6.icmp.echo_ignore_all=0"],
        is_ipv6=True,
    ),
    "held back by ICMP": Provoked(
        {
            "IcmpOutRateLimitHost": several(40, ipv4(udp(9))),
            "Icmp6OutRateLimitHost": several(40, ipv6(udp(9, source=A6, target=B6))),
        },
        at_least=frozenset({"IcmpOutRateLimitHost", "Icmp6OutRateLimitHost"}),
        is_ipv6=True,
    ),
    "held back by ICMP for all": Provoked(
        {"IcmpOutRateLimitGlobal": several(200, ipv4(udp(9)))},  # 50 may go unhindered: what earlier tests left
        before=[
            "sysctl -qw net.ipv4.icmp_msgs_burst=1", "sysctl -qw net.ipv4.icmp_msgs_per_sec=1",
            "sysctl -qw net.ipv4.icmp_ratelimit=0",
        ],
        after=[
            "sysctl -qw net.ipv4.icmp_msgs_burst=50", "sysctl -qw net.ipv4.icmp_msgs_per_sec=1000",
            "sysctl -qw net.ipv4.icmp_ratelimit=1000",
        ],
        at_least=frozenset({"IcmpOutRateLimitGlobal"}),
        of_packets=False,
    ),
    "connections that end": Provoked(
        {
            "TcpAttemptFails": [ipv4(tcp(7103, 5000 + number), protocol=6) for number in range(11)],
            "TcpExtTCPReqQFullDoCookies": [
                ipv4(tcp(7104, 6000 + number, source=SILENT), protocol=6, source=SILENT) for number in range(40)
            ],
        },
        before=[SILENT_IS_KNOWN],
        connects={"TcpExtListenOverflows": ("overflowing", 40), "TcpExtTCPDeferAcceptDrop": ("deferred", 5)},
        along={"TcpExtEmbryonicRsts": 11},
        at_least=frozenset({"TcpExtTCPReqQFullDoCookies", "TcpExtListenOverflows"}),
        listens=True,
    ),
    "resets": Provoked(
        connects={"TcpEstabResets": ("reset", 6)}, along={"TcpEstabResets": 2 * 6}, of_packets=False  # at both ends
    ),
}  # fmt: skip
LIMIT_S = 60.0


@contextmanager
def prepared(wire: Wire, group: Provoked) -> Iterator[None]:
    """As it says, until the end of the ``with``. Skips where this kernel cannot have it."""
    with ExitStack() as stack:
        if group.is_ipv6:
            wire.use_ipv6()
        if group.listens:
            listening = wire.b.start(LISTEN, A)
            stack.callback(listening.communicate, timeout=LIMIT_S)
            assert listening.stdout and listening.stdout.readline() == "ready\n"
        if group.keeps:
            keeping = wire.b.start(KEEP)
            stack.callback(keeping.communicate, timeout=LIMIT_S)
            assert keeping.stdout and keeping.stdout.readline() == "ready\n"
        for line in group.after:
            stack.callback(wire.b.run, *line.split())
        for line in group.before:
            try:
                wire.b.run(*line.split())
            except AssertionError as error:
                pytest.skip(f"cannot run here: {error}")
        yield


def provoke(wire: Wire, group: Provoked) -> int:
    """Send all that it says; how many packets that is."""
    frames = [frame for some in group.frames.values() for frame in some]
    send_frames(wire.a, Wire.DEVICES[0], frames)
    for arguments in group.sends.values():
        wire.b.python(SEND, *arguments)
    for how, count in group.connects.values():
        wire.b.python(CONNECT, how, count)
    return len(frames) + sum(int(str(arguments[4])) for arguments in group.sends.values())


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.proves("protocol_counters", "tables.counters.{netns,counter,count}")
def test_each_loss_is_seen_under_its_own_name(wire: Wire, name: str) -> None:
    group = GROUPS[name]
    expected = {counter: len(frames) for counter, frames in group.frames.items()}
    expected |= {counter: int(str(how[4])) for counter, how in group.sends.items()}
    expected |= {counter: count for counter, (_, count) in group.connects.items()}
    expected |= group.along
    exact = {counter: times for counter, times in expected.items() if counter not in group.at_least}
    with prepared(wire, group), closing(Losses(wire)) as losses:
        provoke(wire, group)
        counted = Counter(losses.since())
        deadline = time.monotonic() + LIMIT_S
        least = {**dict.fromkeys(group.at_least, 1), **exact}
        while any(counted[counter] < times for counter, times in least.items()) and time.monotonic() < deadline:
            counted.update(losses.since())  # what a timer of the kernel counts, or a softirq, later
    assert {counter: counted[counter] for counter in exact} == exact, counted
    for counter in group.at_least:
        assert 0 < counted[counter] <= expected[counter], counted


ECHOES, ECHO_BYTES = 300, 1400
"""More answers than a CPU's ICMP socket may have under way: twice 64 kB (icmp_init in net/ipv4/icmp.c)."""


@pytest.mark.proves("protocol_counters", "tables.counters.{netns,counter,count}")
def test_answers_to_pings_that_find_no_room_are_counted(wire: Wire) -> None:
    """They wait in a slow queue, until the kernel cannot make more of them."""
    wire.use_ipv6()
    slow = ("rate", "8kbit", "burst", "2kb", "limit", "8mb")
    wire.b.tc("qdisc", "replace", "dev", "veth-b", "root", "tbf", *slow)
    counters = ("IcmpOutErrors", "Icmp6OutErrors", "IcmpOutEchoReps", "Icmp6OutEchoReplies")
    before = _echoes(wire, counters)
    requests = [ipv4(echo(ECHO_BYTES), protocol=1), ipv6(echo6(ECHO_BYTES), following=58)]
    with closing(Losses(wire)) as losses:
        send_frames(wire.a, Wire.DEVICES[0], requests * ECHOES)
        seen, deadline, made = Counter[str](), time.monotonic() + LIMIT_S, Counter[str]()
        while made.total() < 2 * ECHOES and time.monotonic() < deadline:
            seen.update(losses.since())
            made = _echoes(wire, counters) - before
        seen.update(losses.since())
    for failed, answered in zip(counters[:2], counters[2:], strict=True):
        assert 0 < seen[failed] == ECHOES - made[answered], (seen, made)


def _echoes(wire: Wire, counters: Sequence[str]) -> Counter[str]:
    files = [wire.b.run("cat", f"/proc/net/{name}") for name in ("snmp", "snmp6")]
    found = {**dict(parse_paired(files[0])), **dict(parse_single(files[1]))}
    return Counter({name: found[name] for name in counters})
