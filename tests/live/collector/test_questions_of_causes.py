"""Questions about causes, in namespaces where the cause was made: the answer names it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from netconsole_collector.questions.known import BadQuestion, answer
from tests.support.live.faults import frame
from tests.support.live.network import Namespace, SleepingReceiver, Wire, send_frames, send_udp

OTHER = "198.51.100.7"
FOREIGN_MAC = "02:00:00:00:00:ff"
LISTENER = """
import socket, sys
one = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=int(sys.argv[3]))
print("ready", flush=True)
sys.stdin.read()
"""
ENDING = """
import socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
server.accept()[0].close()
sys.stdin.read()
"""
FILLED = """
import socket, sys
senders = [socket.socket() for _ in range(int(sys.argv[3]))]
for one in senders:
    one.setblocking(False)
    one.connect_ex((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
sys.stdin.read()
"""
XDP = """
import ctypes, os, platform, socket, struct, sys
CALL = {"x86_64": 321, "aarch64": 280}[platform.machine()]
bpf = lambda command, words: ctypes.CDLL(None).syscall(CALL, command, words.ljust(128, b"\\0"), 128)
code = ctypes.create_string_buffer(struct.pack("=BBhiBBhi", 0xb7, 0, 0, 1, 0x95, 0, 0, 0))  # r0 = XDP_DROP; exit
licence = ctypes.create_string_buffer(b"GPL")
at = struct.pack("=IIQQIIQII", 6, 2, ctypes.addressof(code), ctypes.addressof(licence), 0, 0, 0, 0, 0)
program = bpf(5, at + b"nc_test_drop".ljust(16, b"\\0"))  # BPF_PROG_LOAD
link = bpf(28, struct.pack("=IIII", program, socket.if_nametoindex(sys.argv[1]), 37, 2))  # BPF_LINK_CREATE, BPF_XDP
print("ready" if program >= 0 and link >= 0 else "refused", flush=True)
sys.stdin.read()
"""


HOSTILE_CHAIN = r"""
import socket, struct
def attribute(kind, value):
    head = struct.pack("=HH", 4 + len(value), kind)
    return head + value.ljust(-len(value) % 4 + len(value), bytes(1))
def message(kind, flags, family, resource, body):
    return struct.pack("=IHHIIBBH", 20 + len(body), kind, 1 | flags, 1, 0, family, 0, socket.htons(resource)) + body
def number(kind, value):
    return attribute(kind, struct.pack("!i", value))
name = b"in; add table ip new\0"
hook = number(1, 1) + number(2, 0)  # input, priority 0
chain = attribute(1, b"f\0") + attribute(3, name) + attribute(4 | 0x8000, hook) + attribute(7, b"filter\0")
drop = number(1, 0) + attribute(2 | 0x8000, attribute(2 | 0x8000, number(1, 0)))
element = attribute(1, b"immediate\0") + attribute(2 | 0x8000, drop)
rule = attribute(1, b"f\0") + attribute(2, name) + attribute(4 | 0x8000, attribute(1 | 0x8000, element))
one = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
one.bind((0, 0))
made = message(10 << 8 | 3, 0x400, 1, 0, chain) + message(10 << 8 | 6, 0xC04, 1, 0, rule)
one.send(message(16, 0, 0, 10, b"") + made + message(17, 0, 0, 10, b""))
print(struct.unpack_from("=i", one.recv(4096), 16)[0])
"""


class Ends:
    """Two namespaces with a wire. ``b`` is asked."""

    def __init__(self) -> None:
        self.a, self.b = Namespace(), Namespace()
        Wire(self.a, self.b)
        self.running: list[subprocess.Popen[str]] = []

    def ask(self, question: str, **arguments: object) -> Any:
        return answer(question, {"netns": self.b.name, **arguments})

    def run_in(self, end: Namespace, code: str, *arguments: object) -> None:
        process = end.start(code, *arguments)
        self.running.append(process)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"

    def close(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()
        self.a.remove()
        self.b.remove()


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    try:
        yield made
    finally:
        made.close()


def route(ends: Ends, target: str = OTHER, source: str = Wire.ADDRESSES[0]) -> Any:
    return ends.ask("route", device=Wire.DEVICES[1], target=target, source=source)


@pytest.mark.parametrize("kind", ["blackhole", "prohibit", "unreachable"])
def test_a_route_that_refuses_is_named_with_its_prefix(ends: Ends, kind: str) -> None:
    ends.b.ip("route", "add", "198.51.0.0/16", "via", Wire.ADDRESSES[0])
    ends.b.ip("route", "add", kind, "198.51.100.0/24", "table", "77")
    ends.b.ip("rule", "add", "to", "198.51.100.0/24", "lookup", "77")
    found = route(ends)
    assert (found["refusal"], found["prefix"], found["table"]) == (kind, "198.51.100.0/24", "77")
    assert route(ends, "198.51.99.1")["refusal"] is None


def test_what_refuses_is_no_guess(ends: Ends) -> None:
    ends.b.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
    ends.b.ip("route", "add", "unreachable", "default", "table", "1001")  # as for a VRF: nobody looks there
    found = route(ends)
    assert (found["refusal"], found["rule"]) == (None, None)
    ends.b.ip("route", "add", "prohibit", "198.51.0.0/16")
    ends.b.ip("route", "add", "198.51.100.0/24", "via", Wire.ADDRESSES[0])
    assert route(ends)["refusal"] is None
    ends.b.ip("rule", "add", "pref", "100", "to", OTHER, "prohibit")
    found = route(ends)
    assert (found["refusal"], found["rule_refusal"], found["rule"]) == (None, "prohibit", 100)


def test_settings_that_decide_are_those_of_the_device_and_of_all(ends: Ends) -> None:
    for name, value in (("ip_forward", 1), (f"conf.{Wire.DEVICES[1]}.forwarding", 0), ("conf.all.rp_filter", 1)):
        ends.b.run("sysctl", "-qw", f"net.ipv4.{name}={value}")
    found = route(ends)
    assert (found["forwarding_all"], found["forwarding"], found["rp_filter"]) == (1, 0, 1)
    assert (found["back_device"], found["is_own"]) == (Wire.DEVICES[1], False)
    assert route(ends, Wire.ADDRESSES[1])["is_own"] is True
    assert route(ends, source=OTHER)["back_device"] is None


def test_the_mtu_is_that_of_the_way(ends: Ends) -> None:
    ends.b.ip("route", "add", "198.51.100.0/24", "via", Wire.ADDRESSES[0], "mtu", "1300")
    found = route(ends)
    assert (found["out_device"], found["out_gateway"], found["out_mtu"]) == (Wire.DEVICES[1], Wire.ADDRESSES[0], 1300)
    assert (found["out_route_mtu"], found["back_route_mtu"]) == (1300, None)


def test_the_next_hop_and_what_is_known_of_it(ends: Ends) -> None:
    device = Wire.DEVICES[1]
    ends.b.ip("route", "add", "198.51.100.0/24", "via", "192.0.2.9")
    ends.b.ip("neighbour", "replace", "192.0.2.9", "dev", device, "nud", "failed")
    found = ends.ask("neighbour", device=device, target=OTHER)
    assert (found["hop"], found["is_gateway"], found["state"]) == ("192.0.2.9", True, "failed")
    assert found["entries"] <= found["limit"]
    own = ends.ask("neighbour", device=device, target="192.0.2.77")
    assert (own["hop"], own["is_gateway"], own["state"]) == ("192.0.2.77", False, "absent")


def test_of_several_routers_the_next_hop_is_the_one_that_does_not_answer(ends: Ends) -> None:
    device, routers = Wire.DEVICES[1], ("192.0.2.8", "192.0.2.9", "192.0.2.10")
    hops = [word for one in routers[:2] for word in ("nexthop", "via", one)]
    ends.b.ip("route", "add", "198.51.100.0/24", *hops)
    for one in routers:
        ends.b.ip("neighbour", "replace", one, "lladdr", FOREIGN_MAC, "dev", device, "nud", "permanent")

    def hop_without(*silent: str) -> Any:
        for one in silent:
            ends.b.ip("neighbour", "replace", one, "dev", device, "nud", "failed")
        return ends.ask("neighbour", device=device, target=OTHER)["hop"]

    assert hop_without(routers[2]) in routers[:2], "that one has nothing to do with it"
    assert hop_without(routers[1]) == routers[1]
    assert hop_without(routers[0]) is None


def test_a_frame_with_a_foreign_mac_and_one_of_a_vlan(ends: Ends) -> None:
    device = Wire.DEVICES[1]
    of = {"device": device, "target": Wire.ADDRESSES[1]}
    stale = ends.ask("stranger", **of, target_mac=FOREIGN_MAC)
    assert (stale["is_own"], stale["own_device"], stale["mac_matches"]) == (True, device, False)
    assert stale["is_of_device"] is True
    assert stale["own_mac"] == Wire.MACS[1] and stale["has_vlan"] is None
    assert ends.ask("stranger", **of, target_mac=Wire.MACS[1], vlan=100)["has_vlan"] is False


def test_a_bridge_port_that_waits_says_for_what(ends: Ends) -> None:
    device = Wire.DEVICES[1]
    assert ends.ask("bridge_port", device=device)["bridge"] is None
    ends.b.ip("link", "add", "br0", "type", "bridge", "stp_state", "1", "forward_delay", "3000")
    ends.b.ip("link", "set", "br0", "up")
    ends.b.ip("link", "set", device, "master", "br0")
    found = ends.ask("bridge_port", device=device)
    assert (found["bridge"], found["state"], found["is_isolated"]) == ("br0", "listening", False)
    assert 0 < found["wait_s"] <= 30


def test_what_goes_round_in_a_bridge_is_seen_to_move(ends: Ends) -> None:
    """One ARP request is enough: it goes round for ever, and nobody throws it away."""
    pair = ("loop-x", "loop-y")
    ends.b.ip("link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
    ends.b.ip("link", "add", pair[0], "type", "veth", "peer", "name", pair[1])
    for device in (*pair, "br0"):
        ends.b.run("sysctl", "-qw", f"net.ipv6.conf.{device}.disable_ipv6=1")
    for device in pair:
        ends.b.tc("qdisc", "add", "dev", device, "root", "tbf", "rate", "4mbit", "burst", "4kb", "limit", "1mb")
    for device in (Wire.DEVICES[1], *pair):
        ends.b.ip("link", "set", device, "master", "br0")
        ends.b.ip("link", "set", device, "up")
    quiet = {"bridge": None, "ports": None, "moving": None, "is_own": False}
    assert ends.ask("bridge_loop") == quiet, "it is down"
    ends.b.ip("link", "set", "br0", "up")
    send_frames(ends.a, Wire.DEVICES[0], [frame(mac="ff:ff:ff:ff:ff:ff", ethertype="0806", body="00" * 46)])
    loop = {"bridge": "br0", "ports": "loop-x and loop-y", "moving": Wire.MACS[0], "is_own": False}
    assert ends.ask("bridge_loop") == loop
    assert ends.ask("bridge_loop", device=pair[1], source_mac=Wire.MACS[0]) == loop
    assert ends.ask("bridge_loop", device="br0", source_mac=FOREIGN_MAC) == {**quiet, "bridge": "br0"}
    assert ends.ask("bridge_loop", device="lo", source_mac=Wire.MACS[0]) == quiet
    own = ends.b.run("cat", "/sys/class/net/br0/address").strip()
    assert ends.ask("bridge_loop", device="br0", source_mac=own)["is_own"]


RULES = """
table inet shop {{
  chain deny {{
    {deny}
  }}
  chain in {{
    type filter hook input priority 0; policy {policy};
    tcp dport 10 counter drop
    udp dport 9 jump deny
  }}
  chain elsewhere {{
    type filter hook output priority 0; policy drop;
  }}
}}
"""


@pytest.mark.parametrize(
    ("deny", "policy", "expected"),
    [
        ("counter drop", "accept", {"chain": "deny", "rule": "drop", "remains": False, "moved": 1}),
        ("drop", "accept", {"chain": "deny", "rule": "drop", "remains": True, "moved": 0}),
        ("accept", "drop", {"chain": "in", "is_policy": True, "remains": True, "moved": 0}),
        ("drop", "drop", {"chain": None, "is_policy": False, "remains": False, "moved": 0}),
    ],
    ids=["its counter moves", "it alone has no counter", "the policy is left over", "unknown stays unknown"],
)
def test_the_rule_that_drops(ends: Ends, deny: str, policy: str, expected: dict[str, object]) -> None:
    ends.b.run("nft", "-f", "-", input=RULES.format(deny=deny, policy=policy))
    sender = ends.a.start(
        "import socket, time\none = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nprint('ready', flush=True)\n"
        f"while True:\n    one.sendto(b'x', ('{Wire.ADDRESSES[1]}', 9))\n    time.sleep(0.05)\n"
    )
    ends.running.append(sender)
    assert sender.stdout is not None and sender.stdout.readline() == "ready\n"
    found = ends.ask("firewall", hook="input", protocol="IPv4", device=Wire.DEVICES[1])
    rule = expected.pop("rule", None)
    assert {name: found[name] for name in expected} == expected, found
    assert found["rule"] is None if rule is None else found["rule"].startswith(str(rule))


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (["tcp dport 9 drop", "udp dport 9 drop"], {"rule": "udp dport 9 drop", "remains": False}),
        (["ip saddr 198.51.100.0/24 drop", "ip daddr != 192.0.2.2 drop", "udp sport 53 drop", "drop"],
         {"rule": "drop", "remains": False}),
        (["counter tcp dport 23 drop", "meta l4proto udp drop"], {"rule": "meta l4proto udp drop", "remains": False}),
        (["udp dport { 9, 53 } counter drop", "drop"],
         {"rule": "udp dport { 9, 53 } drop", "remains": True, "moved": 1}),
        (["udp dport vmap { 9 : jump deny }"], {"rule": None, "remains": False, "moved": 0, "uncounted": 2}),
        (["udp dport 9 drop", "ip saddr 192.0.2.1 drop", "drop"], {"rule": "udp dport 9 drop", "remains": False}),
        (["udp dport 9 limit rate over 1/second drop", "drop"], {"rule": None, "remains": False, "uncounted": 2}),
        (["udp dport 10-99 drop", "ip saddr 192.0.2.128/25 drop", "ip daddr & 0.0.0.3 != 2 drop", "udp dport 5-9 drop"],
         {"rule": "udp dport 5-9 drop", "remains": False, "rules": 1}),
        (["ip saddr 192.0.2.0/25 drop", "drop"], {"rule": "ip saddr 192.0.2.0/25 drop", "remains": False}),
        (["udp dport { 9, 53 } drop", "udp dport 9 drop"], {"rule": None, "remains": False, "uncounted": 2}),
        ([f"udp dport {{ {port}, 53 }} counter drop" for port in (*range(100, 170), 9)],
         {"rule": "udp dport { 9, 53 } drop", "remains": False, "moved": 1, "rules": 71}),
    ],
    ids=["another protocol", "other addresses and ports", "a counter of all", "one of two has a counter", "by a map",
         "the first of several that all fit", "the first may let some through", "ranges, networks and bits",
         "a network that fits", "a set is not looked into", "very many that count"],
)  # fmt: skip
def test_rules_that_cannot_have_dropped_such_a_packet_are_left_out(
    ends: Ends, rules: list[str], expected: dict[str, object]
) -> None:
    ends.b.run("nft", "add table inet f; add chain inet f in { type filter hook input priority 0; }")
    ends.b.run("nft", "add chain inet f deny; add rule inet f deny drop")
    for one in rules:
        ends.b.run("nft", f"add rule inet f in {one}")
    sender = ends.a.start(
        "import socket, time\none = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nprint('ready', flush=True)\n"
        f"while True:\n    one.sendto(b'x', ('{Wire.ADDRESSES[1]}', 9))\n    time.sleep(0.05)\n"
    )
    ends.running.append(sender)
    assert sender.stdout is not None and sender.stdout.readline() == "ready\n"
    packet = dict(zip(("source", "target"), Wire.ADDRESSES, strict=True), source_port=40000, target_port=9)
    found = ends.ask(
        "firewall", hook="input", protocol="IPv4", device=Wire.DEVICES[1], transport="UDP", **packet
    )  # fmt: skip
    assert {name: found[name] for name in expected} == expected, found


def test_a_chain_cannot_be_named_so_that_asking_changes_rules(ends: Ends) -> None:
    ends.b.run("nft", "add table inet f; add chain inet f in")
    assert ends.b.python(HOSTILE_CHAIN) == "0\n"
    found = ends.ask("firewall", hook="input", protocol="IPv4", device=Wire.DEVICES[1])
    assert (found["chain"], found["rule"], found["handle"] > 0) == (None, None, True)
    assert ends.b.run("nft", "list", "tables") == "table inet f\n"


def test_who_is_at_a_port(ends: Ends) -> None:
    with SleepingReceiver(ends.b) as receiver:
        found = ends.ask("sockets", wanted="port", protocol="UDP", port=receiver.port, target=Wire.ADDRESSES[1])
    assert found["process"].startswith("python") and found["port"] == receiver.port
    assert found["is_elsewhere"] is False
    ends.run_in(ends.b, LISTENER, "127.0.0.1", 8080, 5)
    found = ends.ask("sockets", wanted="port", protocol="TCP", port=8080, target=Wire.ADDRESSES[1])
    assert (found["address"], found["is_elsewhere"]) == ("127.0.0.1", True)
    nobody = ends.ask("sockets", wanted="port", protocol="TCP", port=8081, target=Wire.ADDRESSES[1])
    assert (nobody["process"], nobody["is_elsewhere"]) == (None, False)


def test_the_counter_that_moves_tells_why(ends: Ends) -> None:
    """All is over when it is asked: the only one that has counted is it."""
    names = "UdpInCsumErrors Udp6InCsumErrors UdpNoPorts XfrmInPolBlock NoSuchCounter"
    of = {"wanted": "port", "protocol": "UDP", "port": 9}
    assert ends.ask("sockets", **of, counters=names)["moved"] == ""
    send_udp(ends.a, Wire.ADDRESSES[1], 9, 3)
    assert ends.ask("sockets", **of, counters=names)["moved"] == "UdpNoPorts"


def test_nobody_listens_at_a_port_beside_one_where_somebody_does(ends: Ends) -> None:
    ends.run_in(ends.b, LISTENER, Wire.ADDRESSES[1], 8080, 1)
    for port, is_nobody in ((8080, False), (9, True)):
        assert ends.ask("sockets", wanted="listener", port=port)["is_nobody"] is is_nobody


def test_the_listener_that_does_not_accept(ends: Ends) -> None:
    ends.run_in(ends.b, LISTENER, Wire.ADDRESSES[1], 8080, 1)
    ends.run_in(ends.a, FILLED, Wire.ADDRESSES[1], 8080, 4)
    found = ends.ask("sockets", wanted="listener")
    assert (found["port"], found["limit"]) == (8080, 1) and found["process"].startswith("python")
    assert found["waiting"] > found["limit"]


@pytest.mark.parametrize(
    ("protocol", "setting"), [("IPv4", "net.ipv4.ipfrag_high_thresh"), ("IPv6", "net.ipv6.ip6frag_high_thresh")]
)
def test_how_much_room_fragments_take_of_how_much(ends: Ends, protocol: str, setting: str) -> None:
    found = ends.ask("fragments", protocol=protocol)
    limit = int(ends.b.run("sysctl", "-n", setting))
    assert found == {"memory": 0, "limit": limit, "waiting": 0, "is_full": False}


def test_a_connection_in_time_wait_is_known_by_its_ends(ends: Ends) -> None:
    ends.run_in(ends.b, ENDING, Wire.ADDRESSES[1], 8080)
    (port,) = ends.a.python(
        "import socket, sys\none = socket.create_connection((sys.argv[1], 8080))\none.recv(1)\n"
        "print(one.getsockname()[1])", Wire.ADDRESSES[1],
    ).split()  # fmt: skip
    while "TIME-WAIT" not in ends.b.run("ss", "-Htan"):
        pass
    of = {"wanted": "listener", "port": 8080, "peer": Wire.ADDRESSES[0]}
    found = ends.ask("sockets", **of, peer_port=int(port))
    assert (found["is_time_wait"], found["has_refused"]) == (True, False), "it has ended, and nobody takes it again"
    assert ends.ask("sockets", **of, peer_port=int(port) - 1)["is_time_wait"] is False


def test_the_queueing_discipline_of_a_device(ends: Ends) -> None:
    ends.b.tc("qdisc", "replace", "dev", Wire.DEVICES[1], "root", "handle", "1:", "htb")
    found = ends.ask("queue", device=Wire.DEVICES[1])
    assert (found["kind"], found["classes"], found["carrier"]) == ("htb", 0, True)
    ends.b.tc("class", "add", "dev", Wire.DEVICES[1], "parent", "1:", "classid", "1:1", "htb", "rate", "1mbit")
    found = ends.ask("queue", device=Wire.DEVICES[1])
    assert (found["classes"], found["shaper"]) == (1, "htb of 1 Mbit/s")
    ends.b.tc(*f"qdisc replace dev {Wire.DEVICES[1]} root tbf rate 2mbit burst 5k limit 10k".split())
    assert ends.ask("queue", device=Wire.DEVICES[1])["shaper"] == "tbf of 2 Mbit/s"


def test_the_other_end_of_a_pair_is_found_in_its_namespace(ends: Ends) -> None:
    ends.a.ip("link", "set", Wire.DEVICES[0], "mtu", "1400")
    found = ends.ask("queue", device=Wire.DEVICES[1])
    assert (found["peer"], found["peer_mtu"], found["peer_is_up"]) == (Wire.DEVICES[0], 1400, True)
    ends.a.ip("link", "set", Wire.DEVICES[0], "down")
    assert ends.ask("queue", device=Wire.DEVICES[1])["peer_is_up"] is False


def test_a_namespace_is_found_by_name_and_by_inode_and_a_wrong_one_is_refused(ends: Ends) -> None:
    by_inode = answer(
        "route", {"netns": str(ends.b.inode), "device": Wire.DEVICES[1], "target": OTHER, "source": OTHER}
    )
    assert by_inode["forwarding_all"] == 0
    for wrong in ("nobody", "../etc", "4026530000"):
        with pytest.raises(BadQuestion, match="no network namespace of this name"):
            answer("conntrack", {"netns": wrong})


def test_a_filter_of_tc_is_named_with_what_it_does(ends: Ends) -> None:
    device = Wire.DEVICES[1]
    ends.b.tc("qdisc", "add", "dev", device, "clsact")
    what = ("match", "u32", "0", "0", "action", "mirred", "egress", "mirror", "dev", "lo")
    ends.b.tc("filter", "add", "dev", device, "ingress", "protocol", "ip", "pref", "7", "u32", *what)
    found = ends.ask("programs", device=device, hook="ingress")
    assert (found["filter"], found["action"]) == ("u32 pref 7", "mirred")
    assert ends.ask("programs", device=device, hook="egress")["filter"] is None


def test_a_program_is_named(ends: Ends) -> None:
    device = Wire.DEVICES[1]
    assert ends.ask("programs", device=device, hook="ingress")["xdp"] is None
    ends.run_in(ends.b, XDP, device)
    found = ends.ask("programs", device=device, hook="ingress")
    assert found["xdp"] == "nc_test_drop" and found["xdp_id"] > 0
