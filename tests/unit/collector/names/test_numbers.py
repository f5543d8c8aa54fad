"""Names of numbers are those of the headers: of the kernel, of IANA, and of our own programs in C."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from netconsole_collector.names import labels
from netconsole_collector.names.drop_reasons import DropReasons
from netconsole_collector.names.labels import Labeller
from netconsole_collector.names.lookups import Lookups
from netconsole_collector.names.symbols import Symbols

PROBES = Path(__file__).parents[4] / "probes"


@pytest.fixture
def made() -> Labeller:
    return Labeller(Lookups(), DropReasons({}))


def test_protocols_are_those_that_the_c_library_knows_and_a_few_more() -> None:
    known = {
        "ICMP": socket.IPPROTO_ICMP, "IGMP": socket.IPPROTO_IGMP, "TCP": socket.IPPROTO_TCP,
        "UDP": socket.IPPROTO_UDP, "IPv6-in-IP": socket.IPPROTO_IPV6, "GRE": socket.IPPROTO_GRE,
        "ESP": socket.IPPROTO_ESP, "AH": socket.IPPROTO_AH, "ICMPv6": socket.IPPROTO_ICMPV6,
        "SCTP": socket.IPPROTO_SCTP, "PIM": socket.IPPROTO_PIM, "IPIP": socket.IPPROTO_IPIP,
        "IPv6-Frag": socket.IPPROTO_FRAGMENT,
    }  # fmt: skip
    # www.iana.org/assignments/protocol-numbers
    known |= {"DCCP": 33, "OSPF": 89, "VRRP": 112, "L2TP": 115, "UDP-Lite": 136}
    assert {number: name for number, name in labels.L4.items() if number <= 255} == {
        int(number): name for name, number in known.items()
    }


def test_what_is_no_protocol_is_numbered_as_in_the_programs() -> None:
    header = (PROBES / "common/packets.h").read_text("utf-8")
    numbers = {name: int(value, 16) for name, value in re.findall(r"#define NC_L4_(\w+) (0x\w+)", header)}
    assert {name: labels.L4[number] for name, number in numbers.items()} == {
        "NONE": "not IP",
        "UNPARSED": "unparsed",
        "UNIX": "AF_UNIX",
    }


def test_hooks_are_in_the_order_of_the_program() -> None:
    source = (PROBES / "net/kernel_drops/probe.bpf.c").read_text("utf-8")
    [names] = re.findall(r"enum { (HOOK_NONE[^}]*) }", source)
    hooks = [name.removeprefix("HOOK_").lower() for name in re.split(r",\s+", names)]
    assert hooks == [*labels.HOOKS[:-5], "loopback", "to_host", "to_many", "source_route", "no_syn"]
    assert labels.HOOKS[-4:] == ("to this host", "to many", "source route", "no SYN")


def test_ethertypes_are_those_of_the_kernel() -> None:
    """include/uapi/linux/if_ether.h"""
    assert labels.ETHERTYPES == {
        0x0003: "any", 0x0004: "802.2 LLC", 0x0800: "IPv4", 0x0806: "ARP", 0x6558: "TEB", 0x8035: "RARP",
        0x8100: "802.1Q", 0x86DD: "IPv6", 0x8808: "pause", 0x8809: "LACP", 0x8847: "MPLS", 0x8863: "PPPoE discovery",
        0x8864: "PPPoE", 0x88A8: "802.1ad", 0x88CC: "LLDP", 0x88F7: "PTP",
    }  # fmt: skip


def test_what_a_driver_returns_is_named_as_in_the_kernel() -> None:
    """include/linux/netdevice.h: NET_XMIT_SUCCESS, NET_XMIT_DROP, NET_XMIT_CN, NETDEV_TX_BUSY."""
    assert labels.XMIT == {0: "ok", 1: "dropped", 2: "congested", 0x10: "busy"}


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("softirq", 9, "RCU"),
        ("softirq", 10, "softirq 10"),
        ("hook", 0, "none"),
        ("hook", 6, "prerouting or input"),
        ("hook", 11, "hook 11"),
        ("xmit", 3, "code 3"),
        ("xmit", 0xFFFFFFFF, "EPERM"),
        ("xmit", 0x7FFFFFFF, "code 2147483647"),
        ("errno", 1, "EPERM"),
        ("errno", 4000, "4000"),
        ("errno", 0xFFFFFFFF - 3999, "4000"),
        ("errno", 1 << 32, "4294967296"),
        ("ethertype", 0x5, "0x0005"),
        ("hex", 0, "0x0"),
    ],
)
def test_a_number_without_a_name_stays_a_number(made: Labeller, kind: str, value: int, shown: str) -> None:
    assert made.label(kind, value) == shown


def test_the_hardware_address_of_a_packet_without_one_is_unknown(made: Labeller) -> None:
    assert made.label("mac", bytes((2, 0, 0, 0, 0, 0x1F))) == "02:00:00:00:00:1f"
    assert made.label("mac", bytes(6)) is None


def test_bytes_are_text_unless_their_kind_says_that_they_are_an_address(made: Labeller) -> None:
    assert made.label("text", b"eth0\0\0junk") == "eth0"
    assert made.label(None, b"tap0") == "tap0"


def symbols(tmp_path: Path, *names: str) -> Labeller:
    path = tmp_path / "kallsyms"
    lines = [f"{0xFFFFFFFF81000000 + 0x1000 * number:x} t {name}\n" for number, name in enumerate(names)]
    path.write_text("".join(lines))
    return Labeller(Lookups(Symbols(str(path))), DropReasons({}))


@pytest.mark.parametrize("ours", labels._OUR_FRAMES)
def test_frames_of_the_measurement_itself_are_left_out_at_the_top_alone(tmp_path: Path, ours: str) -> None:
    found = symbols(tmp_path, "udp_rcv", f"{ours}x", "ip_rcv")
    addresses = [0xFFFFFFFF81001004, 0xFFFFFFFF81000004, 0xFFFFFFFF81001004, 0xFFFFFFFF81002004]
    assert found.stack(addresses) == ["udp_rcv+0x4", f"{ours}x+0x4", "ip_rcv+0x4"]
    assert found.label("stack", addresses) == f"udp_rcv < {ours}x < ip_rcv"
    assert found.label("stack", [*addresses[:2], 0, addresses[3]]) == "udp_rcv"


def test_a_stack_is_cut_to_what_a_label_may_have(tmp_path: Path) -> None:
    name = "f" * 64
    found = symbols(tmp_path, name, "g" * 55, "h" * 56)
    fits = [0xFFFFFFFF81000000] * 3 + [0xFFFFFFFF81001000]
    assert len(str(found.label("stack", fits))) == labels.MAX_LABEL == 256
    assert str(found.label("stack", fits)).endswith("g")
    cut = str(found.label("stack", [*fits[:3], 0xFFFFFFFF81002000]))
    assert len(cut) == 256 and cut == f"{name} < {name} < {name} < {'h' * 53} …"


def test_labels_whose_answers_change_tell_who_is_to_be_asked_again(made: Labeller) -> None:
    lookups = made.lookups
    assert made.changing(["tap", "vm", "l4", None, "socket"]) == [lookups.vms, lookups.processes]
    assert made.changing(["netns", "process"]) == [lookups.namespaces]


def test_each_kind_asks_its_own_look_up(made: Labeller, monkeypatch: pytest.MonkeyPatch) -> None:
    lookups = made.lookups
    monkeypatch.setattr(lookups.vms, "of_process", lambda pid: f"vm of {pid}")
    monkeypatch.setattr(lookups.processes, "of_socket", lambda inode: f"owner of {inode}")
    monkeypatch.setattr(lookups.processes, "of_pid", lambda pid: f"process {pid}")
    monkeypatch.setattr(lookups.symbols, "function", lambda address: f"function {address}")
    again = Labeller(lookups, made.drop_reasons)
    assert [again.label(kind, 7) for kind in ("vm", "socket", "process", "symbol")] == [
        "vm of 7",
        "owner of 7",
        "process 7",
        "function 7",
    ]


def test_what_connection_tracking_said_has_the_kernel_s_words() -> None:
    """enum ip_conntrack_info and tcp_conntrack of the kernel's own headers."""
    kernel = {0: "established", 1: "related", 2: "new", 3: "established reply", 4: "related reply", 7: "untracked"}
    assert {**kernel, 8: "invalid", 9: "dropped", 10: "tracked before"} == labels.TRACKED
    assert [labels.TCP_TRACKED[state] for state in (0, 1, 3, 8, 9)] == [
        "NONE",
        "SYN_SENT",
        "ESTABLISHED",
        "CLOSE",
        "SYN_SENT2",
    ]


@pytest.mark.parametrize(("value", "name"), [(0, ""), (0x1_000A, "1:a"), (0xFFFF_0000, "ffff:0"), (10, "0:a")])
def test_a_class_is_written_as_tc_does(value: int, name: str) -> None:
    assert labels.tc_class(value) == name


@pytest.mark.parametrize(
    ("value", "name"),
    [(0, "none"), (105, "ENOBUFS"), (-105, "ENOBUFS"), (0xFFFFFF97, "ENOBUFS"), (1 << 31, "2147483648")],
)
def test_an_error_has_its_name_however_it_was_stored(value: int, name: str) -> None:
    assert labels.error_name(value) == name


@pytest.mark.parametrize(
    ("value", "said"),
    [(0, "ok"), (1, "dropped"), (2, "congested"), (0x10, "busy"), (7, "code 7"), (0xFFFFFFF4, "ENOMEM")],
)
def test_what_a_driver_returned_is_said(value: int, said: str) -> None:
    assert labels.xmit(value) == said
