"""Raw values as labels, from a host that means no good."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from netconsole_collector.kernel.syscalls import c_string
from netconsole_collector.names.drop_reasons import DropReasons
from netconsole_collector.names.labels import Labeller
from netconsole_collector.names.lookups import Lookups
from netconsole_collector.names.symbols import Symbols


def made(symbols: Symbols | None = None) -> Labeller:
    return Labeller(Lookups(symbols), DropReasons({}))


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
