"""protocol_counters sees each loss that can be made here, exactly, in the namespace where it happens."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from netconsole.telemetry import frames
from netconsole_collector.sources.net.protocol_counters import ProtocolCounters
from tests.support.live.network import BARE_PYTHON, SleepingReceiver, Wire, send_frames, send_udp
from tests.support.sources import read_of

SOME = 40
WAIT = "import sys; print('ready', flush=True); sys.stdin.read()"
A, B = Wire.ADDRESSES
ETHERNET = bytes.fromhex(Wire.MACS[1].replace(":", "") + Wire.MACS[0].replace(":", "") + "0800")


class Losses:
    """What is counted in the second namespace from now on."""

    def __init__(self, wire: Wire) -> None:
        self._holder = wire.b.start(WAIT, python=BARE_PYTHON)
        assert self._holder.stdout and self._holder.stdout.readline() == "ready\n"
        self._name, self._source = wire.b.name, ProtocolCounters()
        self._source.open()
        self.since()

    def since(self) -> dict[str, int]:
        """Deltas by counter."""
        *_, table = read_of(self._source, is_whole=True)  # however many namespaces other tests have made
        assert isinstance(table, frames.Table)
        mine = (row for row in table.rows if row.labels["netns"] == self._name)
        return {str(row.labels["counter"]): row.counts["count"].delta for row in mine if row.counts["count"].delta}

    def close(self) -> None:
        self._source.close()
        self._holder.communicate(timeout=60)


def ipv4(payload: bytes, to: str = B, protocol: int = 17, fragment: int = 0, ttl: int = 64, spoil: int = 0) -> bytes:
    """A frame for the second end; ``spoil`` is added to the header's checksum."""
    addresses = bytes(map(int, (*A.split("."), *to.split("."))))
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), 7, fragment, ttl, protocol, 0) + addresses
    total = sum(struct.unpack(">10H", head))
    total = ~(total + (total >> 16)) & 0xFFFF
    return ETHERNET + head[:10] + struct.pack(">H", (total + spoil) & 0xFFFF) + head[12:] + payload


def udp(port: int, checksum: int = 0) -> bytes:
    return struct.pack(">HHHH", 4000, port, 16, checksum) + bytes(8)


def overlapping() -> list[bytes]:
    """Fragments of one datagram, the second of which goes over the first."""
    return [ipv4(bytes(24), fragment=0x2000), ipv4(bytes(24), fragment=0x2001)]


SENT: dict[str, Callable[[], list[bytes]]] = {
    "IpExtInCsumErrors": lambda: [ipv4(udp(9), spoil=1)] * SOME,
    "IpExtInTruncatedPkts": lambda: [ipv4(bytes(60))[:-30]] * SOME,
    "IpInUnknownProtos": lambda: [ipv4(bytes(8), protocol=253)] * SOME,
    "UdpNoPorts": lambda: [ipv4(udp(9))] * SOME,
    "UdpInCsumErrors": lambda: [ipv4(udp(5999, checksum=0x1234))] * SOME,
    "TcpInErrs": lambda: [ipv4(bytes(20), protocol=6)] * SOME,
    "IcmpInCsumErrors": lambda: [ipv4(bytes([8, 0, 1, 1, 0, 0, 0, 0]), protocol=1)] * SOME,
}


@pytest.mark.parametrize("counter", SENT)
@pytest.mark.proves("protocol_counters", "tables.counters.{netns,counter,count}", "modes.summary")
def test_wrong_packets_are_counted_by_the_protocol_that_drops_them(wire: Wire, counter: str) -> None:
    losses = Losses(wire)
    try:
        if counter == "UdpInCsumErrors":
            with SleepingReceiver(wire.b) as receiver:
                send_frames(wire.a, Wire.DEVICES[0], [ipv4(udp(receiver.port, checksum=0x1234))] * SOME)
                counted = losses.since()
        else:
            send_frames(wire.a, Wire.DEVICES[0], SENT[counter]())
            counted = losses.since()
        assert counted.get(counter) == SOME, counted
    finally:
        losses.close()


def test_a_full_receive_buffer_is_counted_with_its_meaning(wire: Wire) -> None:
    losses = Losses(wire)
    try:
        with SleepingReceiver(wire.b) as receiver:
            before = wire.b.snmp("Udp", "RcvbufErrors")
            send_udp(wire.a, B, receiver.port, 200)
            counted = losses.since()
            assert 0 < counted["UdpRcvbufErrors"] == wire.b.snmp("Udp", "RcvbufErrors") - before
    finally:
        losses.close()


def test_fragments_that_overlap_are_counted(wire: Wire) -> None:
    losses = Losses(wire)
    try:
        send_frames(wire.a, Wire.DEVICES[0], overlapping())
        assert losses.since()["IpExtReasmOverlaps"] == 1
    finally:
        losses.close()


@pytest.mark.proves("protocol_counters", "tables.conntrack.{netns,entries,limit,full_pct}")
def test_how_full_conntrack_is_is_told_of_each_namespace(wire: Wire) -> None:
    chain = "add chain inet t in { type filter hook input priority 0 ; }"
    for line in ("add table inet t", chain, "add rule inet t in ct state new accept"):
        wire.b.run("nft", *line.split())
    holder = wire.b.start(WAIT, python=BARE_PYTHON)
    source = ProtocolCounters()
    try:
        assert holder.stdout and holder.stdout.readline() == "ready\n"
        with SleepingReceiver(wire.b, 3) as receiver:
            send_udp(wire.a, B, receiver.port, SOME)
            source.open()
            (table,) = (one for one in read_of(source) if getattr(one, "name", "") == "conntrack")
        assert isinstance(table, frames.Table)
        (row,) = (one for one in table.rows if one.labels["netns"] == wire.b.name)
        entries, limit = (
            int(wire.b.run("sysctl", "-n", f"net.netfilter.nf_conntrack_{name}")) for name in ("count", "max")
        )
        assert row.gauges == {"entries": entries, "limit": limit, "full_pct": round(100.0 * entries / limit, 1)}
        assert entries > 0
    finally:
        source.close()
        holder.communicate(timeout=60)
        wire.b.run("nft", "delete", "table", "inet", "t")
