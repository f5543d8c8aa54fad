"""protocol_counters reads all layouts of /proc/net, has words for each counter, and begins at the first reading."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole.telemetry.frames import Table
from netconsole_collector.primitives.here import Here
from netconsole_collector.sources.base import SourceError
from netconsole_collector.sources.net.protocol_counters import (
    ProtocolCounters,
    parse_conntrack,
    parse_paired,
    parse_single,
)
from netconsole_collector.sources.net.protocol_losses import MEANINGS
from tests.support.sources import read_of


def test_the_layouts_are_read() -> None:
    assert dict(parse_paired("Ip: A B\nIp: 1 -1\nUdp: C\nUdp: 5\n")) == {"IpA": 1, "IpB": -1, "UdpC": 5}
    assert dict(parse_single("Ip6InDiscards     \t3\nUdp6NoPorts 4\n")) == {"Ip6InDiscards": 3, "Udp6NoPorts": 4}
    text = "entries  drop early_drop\n00000001  0000000a 00000000\n00000001  00000010 00000002\n"
    assert dict(parse_conntrack(text)) == {"Conntrackentries": 1, "Conntrackdrop": 26, "Conntrackearly_drop": 2}


@pytest.mark.parametrize("text", ["Ip: A B\nIp: 1\n", "Ip: A\n", "Ip: A\nTcp: 1\n", "Ip: A\nIp: x\n"])
def test_another_layout_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        list(parse_paired(text))


def test_every_counter_has_a_kind_and_words() -> None:
    assert {kind for kind, _ in MEANINGS.values()} == {"loss", "noise"}
    assert all(text and len(text) < 90 for _, text in MEANINGS.values())


@pytest.mark.proves("protocol_counters", "tables.counters.{class,meaning}")
def test_only_what_moved_is_shown_and_the_first_loss_counts(tmp_path: Path) -> None:
    net = tmp_path / "proc/net"
    net.mkdir(parents=True)
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/net").touch()
    (net / "netstat").write_text("TcpExt: ListenOverflows\nTcpExt: 0\n")
    source = ProtocolCounters(Here(tmp_path))
    shown: list[list[tuple[object, ...]]] = []
    for count in (7, 7, 9):
        (net / "snmp").write_text(f"Udp: RcvbufErrors NoPorts OutDatagrams\nUdp: {count} 0 99\n")
        if not shown:
            source.open()
        *_, table = read_of(source)
        assert isinstance(table, Table)
        names = "counter", "class", "meaning"
        shown.append([(*(row.labels[one] for one in names), row.counts["count"].delta) for row in table.rows])
    assert shown == [[], [], [("UdpRcvbufErrors", "loss", "UDP socket's receive buffer is full", 2)]]
    (net / "snmp").write_text("Udp: RcvbufErrors NoPorts OutDatagrams\nUdp: 9 5 99\n")
    *_, table = read_of(source)
    assert isinstance(table, Table)
    (row,) = table.rows
    assert (row.labels["class"], row.labels["meaning"]) == ("noise", "nobody listens on the UDP port")
    (net / "snmp").write_text("Udp: RcvbufErrors\n")
    with pytest.raises(SourceError, match="cannot read its layout"):
        read_of(source)


def test_pings_without_an_answer_are_counted_and_never_fewer(tmp_path: Path) -> None:
    """A program that answers what the kernel ignores answers late."""
    net = tmp_path / "proc/net"
    net.mkdir(parents=True)
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/net").touch()
    source = ProtocolCounters(Here(tmp_path))
    shown: list[dict[object, int | None]] = []
    for came, answered in ((10, 10), (12, 10), (13, 12), (16, 13)):
        (net / "snmp").write_text(f"Icmp: InEchos OutEchoReps\nIcmp: {came} {answered}\n")
        if not shown:
            source.open()
        *_, table = read_of(source)
        assert isinstance(table, Table)
        shown.append({row.labels["counter"]: row.counts["count"].total for row in table.rows})
    assert shown == [{}, {"IcmpEchosUnanswered": 2}, {}, {"IcmpEchosUnanswered": 3}]
