"""Records of the kernel as labels and fields; names from a host that means no good."""

from __future__ import annotations

import json
import os
import socket
import struct
from pathlib import Path

import pytest

from netconsole_collector.kernel.syscalls import c_string
from netconsole_collector.names.drop_reasons import DropReasons
from netconsole_collector.names.labels import Labels
from netconsole_collector.names.lookups import Lookups
from netconsole_collector.names.namespaces import Namespaces
from netconsole_collector.names.processes import Processes
from netconsole_collector.names.symbols import Symbols
from netconsole_collector.probe import decode

KALLSYMS = """\
ffffffff81000000 T _stext
ffffffff81000000 T first
ffffffff81000100 t __pfx_second
ffffffff81000110 t second
ffffffff81000180 D some_data
ffffffff81000200 W third
ffffffffc0002000 t late\t[tun]
ffffffffc0001000 t tun_net_xmit\t[tun]
ffffffffc0005000 t vhost_poll\t[vhost]
"""


def made(symbols: Symbols | None = None) -> Labels:
    return Labels(Lookups(symbols), DropReasons({}))


@pytest.fixture
def symbols(tmp_path: Path) -> Symbols:
    path = tmp_path / "kallsyms"
    path.write_text(KALLSYMS)
    return Symbols(str(path))


@pytest.mark.parametrize(
    ("address", "function", "frame"),
    [
        (0xFFFFFFFF81000110, "second", "second+0x0"),
        (0xFFFFFFFF81000150, "second", "second+0x40"),
        (0xFFFFFFFF81000190, "second", "second+0x80"),
        (0xFFFFFFFF81000204, "third", "third+0x4"),
        (0xFFFFFFFFC0001010, "tun_net_xmit", "tun_net_xmit+0x10"),
        (0xFFFFFFFFC0002FFF, "late", "late+0xfff"),
        (0xFFFFFFFFC0005001, "vhost_poll", "vhost_poll+0x1"),
        (0x1000, "0x1000", "0x1000"),
        (0xFFFFFFFFF0000000, "0xfffffffff0000000", "0xfffffffff0000000"),
    ],
)
def test_addresses_have_the_function_that_holds_them(symbols: Symbols, address: int, function: str, frame: str) -> None:
    assert symbols.function(address) == function
    assert symbols.frame(address) == frame


def test_hidden_addresses_are_shown_as_numbers(tmp_path: Path) -> None:
    path = tmp_path / "kallsyms"
    path.write_text("0000000000000000 T first\n0000000000000000 T second\n")
    assert Symbols(str(path)).function(0xFFFFFFFF81000000) == "0xffffffff81000000"
    assert Symbols(str(tmp_path / "missing")).function(7) == "0x7"


def test_the_running_kernel_s_symbols_take_little_memory() -> None:
    lines = [line.split() for line in Path("/proc/kallsyms").read_text().splitlines()]
    functions = {int(line[0], 16): line[2] for line in lines if line[1] in "tT" and not line[2].startswith("__pfx_")}
    if len(functions) < 1000:
        pytest.skip("cannot run here: kallsyms hides addresses")
    found = Symbols()
    by_address: dict[int, set[str]] = {}
    for line in lines:
        by_address.setdefault(int(line[0], 16), set()).add(line[2])
    for address in list(functions)[::97]:
        assert found.function(address) in by_address[address]
    packed = sum(len(block) for run in found._runs for block in run.blocks)
    assert packed + 8 * sum(len(run.addresses) for run in found._runs) < 4_000_000


def test_a_struct_is_laid_out_as_c_does() -> None:
    columns = [
        {"name": "a", "type": "u8"},
        {"name": "b", "type": "u32"},
        {"name": "c", "type": "char[3]", "as": "text"},
        {"name": "d", "type": "u64"},
        {"name": "e", "type": "u16"},
    ]
    layout = decode.Layout(columns)
    assert layout.size == 32
    raw = struct.pack("@BI3sQH", 1, 2, b"xyz", 3, 4).ljust(32, b"\0")
    assert layout.unpack(raw) == [1, 2, b"xyz", 3, 4]


def test_lists_and_padding() -> None:
    layout = decode.Layout(
        [{"type": "pad[8]"}, {"name": "stack", "type": "u64", "count": 3}, {"name": "n", "type": "s32"}]
    )
    raw = struct.pack("=8xQQQi4x", 1, 2, 3, -5)
    assert layout.size == len(raw)
    assert layout.unpack(raw) == [[1, 2, 3], -5]
    assert [column.name for column in layout.columns] == ["stack", "n"]


@pytest.mark.parametrize("kind", ["u128", "char", "char[x]", "pad[]", "", "u32; system"])
def test_unknown_types_are_refused(kind: str) -> None:
    with pytest.raises(decode.LayoutError, match="column x"):
        decode.Layout([{"name": "x", "type": kind}])


def test_sizes_that_differ_are_named() -> None:
    with pytest.raises(decode.LayoutError, match="key of table t: 4 bytes in the manifest, 8 in the program"):
        decode.Layout([{"name": "x", "type": "u32"}]).check(8, "key of table t")


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (bytes(10) + b"\xff\xff" + socket.inet_aton("192.0.2.1"), "192.0.2.1"),
        (socket.inet_pton(socket.AF_INET6, "2001:db8::1"), "2001:db8::1"),
        (bytes(16), None),
    ],
)
def test_addresses(raw: bytes, shown: str | None) -> None:
    assert made().label("address", raw) == shown


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("l4", 17, "UDP"),
        ("l4", 0x100, "not IP"),
        ("l4", 250, "protocol 250"),
        ("ethertype", 0x86DD, "IPv6"),
        ("ethertype", 0x1234, "0x1234"),
        ("ethertype", 0, "none"),
        ("softirq", 3, "NET_RX"),
        ("softirq", 99, "softirq 99"),
        ("errno", 0xFFFFFFFF - 104, "ENOBUFS"),
        ("errno", -11, "EAGAIN"),
        ("errno", 0, "none"),
        ("xmit", 0, "ok"),
        ("xmit", 1, "dropped"),
        ("xmit", 0x10, "busy"),
        ("xmit", 0xFFFFFFFF - 104, "ENOBUFS"),
        ("hex", 255, "0xff"),
        ("port", 443, 443),
        ("netns", 0, None),
        ("process", 0, None),
        (None, 7, 7),
    ],
)
def test_numbers_by_their_kind(kind: str | None, value: int, shown: object) -> None:
    assert made().label(kind, value) == shown


@pytest.mark.parametrize("raw", [b"[bold]x\0junk", b"\x1b[31mred", b"\xff\xfe\x80", b"", b"\0\0"])
def test_text_from_the_host_is_plain_text(raw: bytes) -> None:
    shown = c_string(raw)
    assert "\0" not in shown
    json.dumps(shown).encode("ascii")
    if raw.startswith(b"\xff"):
        assert shown == "\\xff\\xfe\\x80"


def test_namespaces_have_names() -> None:
    host = Path("/proc/1/ns/net") if os.access("/proc/1/ns/net", os.R_OK) else Path("/proc/self/ns/net")
    own = host.stat().st_ino
    found = made()
    assert found.label("netns", own) == "host"
    assert found.label("netns", 123) == "123"
    assert found.label("netns", 0) is None


def test_a_namespace_is_called_what_it_is_called_now(tmp_path: Path) -> None:
    """The kernel gives the inode of one that is gone to the next."""
    named = tmp_path / "blue"
    named.touch()
    inode = named.stat().st_ino
    found = Namespaces(str(tmp_path))
    assert found.name(inode) == "blue"
    changes = found.changes
    named.rename(tmp_path / "green")
    found.refresh()
    assert (found.name(inode), found.changes) == ("green", changes + 1)
    (tmp_path / "green").unlink()
    found.refresh()
    assert (found.name(inode), found.changes) == (str(inode), changes + 2)


def test_stacks_leave_out_the_measurement_itself(tmp_path: Path) -> None:
    path = tmp_path / "kallsyms"
    path.write_text(
        "ffffffff81000000 t udp_rcv\nffffffff81001000 t bpf_trace_run4\nffffffff81002000 t __traceiter_kfree_skb\n"
        "ffffffff81003000 t kfree_skb_reason\nffffffffc0000000 t bpf_prog_1234_drop\t[bpf]\n"
    )
    found = made(Symbols(str(path)))
    addresses = [
        0xFFFFFFFFC0000010,
        0xFFFFFFFF81001004,
        0xFFFFFFFF81002004,
        0xFFFFFFFF81003004,
        0xFFFFFFFF81000004,
        0,
        0,
    ]
    assert found.stack(addresses) == ["kfree_skb_reason+0x4", "udp_rcv+0x4"]


def test_a_drop_reason_brings_class_and_provenance(symbols: Symbols) -> None:
    reasons = {
        "3": "NO_SOCKET",
        "6": "SOCKET_RCVBUFF",
        "subsystem:2": "openvswitch",
        "131073": "OVS_DROP_EXPLICIT",
    }
    found = Labels(Lookups(symbols), DropReasons(reasons))
    layout = decode.Layout(
        [{"name": "location", "type": "u64", "as": "symbol"}, {"name": "reason", "type": "u32", "as": "drop_reason"}]
    )

    def labels(reason: int) -> dict[str, object]:
        values = layout.unpack(struct.pack("=QI4x", 0xFFFFFFFF81000110, reason))
        return dict(decode.key_labels(layout.columns, values, found))

    assert labels(3) == {"location": "second", "reason": "NO_SOCKET", "class": "benign", "provenance": "kernel"}
    assert labels(6)["class"] == "suspicious"
    assert labels(131073)["reason"] == "OVS_DROP_EXPLICIT"
    assert labels(131075)["reason"] == "openvswitch reason 3"
    assert labels(9 << 16 | 4)["reason"] == "9 reason 4"
    assert labels(99) == {"location": "second", "reason": "reason 99", "class": "unknown", "provenance": "kernel"}


def test_kernels_without_reasons_have_them_inferred() -> None:
    described = DropReasons({}).labels(0, "__udp4_lib_rcv")
    assert described == {"reason": "NO_SOCKET", "class": "benign", "provenance": "inferred"}
    assert DropReasons({}).labels(0, "nobody_knows") == {
        "reason": "unknown",
        "class": "unknown",
        "provenance": "inferred",
    }


def test_drops_of_open_vswitch_have_a_reason_on_every_kernel() -> None:
    def reason(names: dict[str, str], location: str, value: int = 1) -> str:
        described = DropReasons({"1": "NOT_SPECIFIED", **names}).labels(value, location)
        assert (described["class"], described["provenance"]) == ("suspicious", "inferred")
        return described["reason"]

    assert reason({}, "do_output", 0x7FFF0003) == "OVS_TOO_LARGE"
    assert reason({}, "do_output") == "OVS_NO_PORT"
    assert reason({}, "do_execute_actions") == "OVS_ACTION_FAILED"
    since_6_7 = {"196610": "OVS_DROP_ACTION_ERROR"}
    for function in ("ovs_vport_send", "do_output", "do_execute_actions"):
        assert reason(since_6_7, function) == "OVS_TOO_LARGE"


def test_sockets_are_found_at_their_process(tmp_path: Path) -> None:
    (tmp_path / str(os.getpid())).symlink_to("/proc/self")  # of all processes' only some are looked at in one scan
    processes = Processes(str(tmp_path))
    with socket.socket() as one:
        inode = os.fstat(one.fileno()).st_ino
        label = processes.of_socket(inode)
    comm = Path("/proc/self/comm").read_text().strip()
    assert label == f"{comm} ({os.getpid()})"
    assert processes.of_pid(os.getpid()) == label


def test_an_owner_is_looked_for_seldom_and_kept(tmp_path: Path) -> None:
    process = tmp_path / "42"
    (process / "fd").mkdir(parents=True)
    (process / "comm").write_bytes(b"evil\x1b[31m\xff\n")
    (process / "fd" / "3").symlink_to("socket:[777]")
    (tmp_path / "not-a-process").mkdir()
    processes = Processes(str(tmp_path))
    assert processes.of_socket(777) == "evil\x1b[31m\\xff (42)"
    (process / "fd" / "3").unlink()
    assert processes.of_socket(777) == "evil\x1b[31m\\xff (42)"
    (process / "fd" / "4").symlink_to("socket:[778]")
    assert processes.of_socket(778) is None  # not before the next scan
    assert processes.of_socket(0) is None
