"""ip_fragments on queues of the test's own: what was whole, what was missing of which flow, and how it ended."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.live.contexts.budgets import FEW, MANY, spend_events, spend_time
from tests.support.live.contexts.filters import NETNS, OTHER_NETNS
from tests.support.live.contexts.memory import KernelMemory, enumerator
from tests.support.live.contexts.packets import TCP, UDP
from tests.support.live.contexts.unattached import UnattachedProbe, on_cpu

PROBE = "ip_fragments"
Load = Callable[..., UnattachedProbe]

FIRST, LAST = 1, 2
FUTURE = 1 << 62
"""Ticks at which this kernel will not be."""


@dataclass(frozen=True)
class Datagram:
    """What has come of one. With ``expires`` in the future it was given up before its time."""

    flags: int = FIRST
    meat: int = 1480
    length: int = 1480
    source: str = "192.0.2.1"
    target: str = "192.0.2.2"
    protocol: int = UDP
    user: int = 0
    expires: int = 0
    id: int = 0xBEEF


class Queues:
    """Two namespaces with their tables of IPv4 and IPv6."""

    def __init__(self, probe: UnattachedProbe) -> None:
        self.probe = probe
        self.memory: KernelMemory = probe.memory
        self.tables = {inode: self._tables(inode) for inode in (NETNS, OTHER_NETNS)}

    def _tables(self, inode: int) -> dict[int, int]:
        four, six = self.memory.make("fqdir", {}), self.memory.make("fqdir", {})
        net = self.memory.make("net", {"ns.inum": inode, "ipv4.fqdir": four, "ipv6.fqdir": six})
        for table in (four, six):
            self.memory.change("fqdir", table, {"net": net})
        return {4: four, 6: six}

    def queue(self, one: Datagram, netns: int = NETNS) -> int:
        is_six = ":" in one.source
        family, part = (socket.AF_INET6, "key.v6") if is_six else (socket.AF_INET, "key.v4")
        members: dict[str, int | bytes] = {
            "flags": one.flags,
            "meat": one.meat,
            "len": one.length,
            "timer.expires": one.expires,
            "fqdir": self.tables[netns][6 if is_six else 4],
            f"{part}.user": one.user,
        }
        address = self.memory.make("inet_frag_queue", members)
        source, target = (socket.inet_pton(family, end) for end in (one.source, one.target))
        key = {f"{part}.saddr": source, f"{part}.daddr": target}
        if is_six:
            key[f"{part}.id"] = struct.pack(">I", one.id)
        else:
            key[f"{part}.id"] = struct.pack(">H", one.id)
            key[f"{part}.protocol"] = struct.pack("=H", one.protocol)
        self.memory.change("inet_frag_queue", address, key)
        return address

    def ends(self, one: Datagram, netns: int = NETNS) -> None:
        self.probe.run("ended", self.queue(one, netns))

    def rows(self, *labels: str) -> dict[Any, int]:
        self.probe.read()
        found: dict[Any, int] = {}
        for row in self.probe.rows("failed"):
            key = tuple(row[label] for label in labels)
            found[key] = found.get(key, 0) + row["count"]
        return found


@pytest.mark.proves(
    "ip_fragments",
    "counters.{whole,failed}",
    "tables.failed.{source,target,missing,how,by,netns,protocol,count,received_bytes,missing_bytes}",
    "modes.summary",
)
def test_what_was_missing_of_which_flow(load: Load) -> None:
    probe = load(PROBE)
    queues = Queues(probe)
    tracking = enumerator("ip_defrag_users", "IP_DEFRAG_CONNTRACK_IN") + 5
    other = enumerator("ip_defrag_users", "IP_DEFRAG_MACVLAN")
    six = ("2001:db8::1", "2001:db8::2")
    whole = Datagram(FIRST | LAST, 3000, 3000)
    for one in (whole, whole, Datagram(FIRST | LAST, 3000, 3000, *six)):
        queues.ends(one)
    for one in (
        Datagram(),
        Datagram(LAST, 20, 1500, protocol=TCP, user=tracking),
        Datagram(FIRST | LAST, 1500, 4460, user=other),
        Datagram(0, 1480, 2960, expires=FUTURE),
        Datagram(FIRST, 1480, 1480, *six, user=1),
        Datagram(0, 0, 0),  # its only fragment was wrong
        Datagram(0, 0, 0, expires=FUTURE),  # of two CPUs, the one that came late
    ):
        queues.ends(one)
    queues.ends(Datagram(LAST, 8, 1488, *six), OTHER_NETNS)
    queues.memory.change("fqdir", queues.tables[OTHER_NETNS][4], {"dead": 1})
    queues.ends(Datagram(expires=FUTURE), OTHER_NETNS)
    here, there = str(NETNS), str(OTHER_NETNS)
    four = ("192.0.2.1", "192.0.2.2")
    assert queues.rows("source", "target", "missing", "how", "by", "netns", "protocol") == {
        (*four, "last", "timeout", "host", here, "UDP"): 1,
        (*four, "first", "timeout", "conntrac", here, "TCP"): 1,
        (*four, "middle", "timeout", "other", here, "UDP"): 1,
        (*four, "ends", "wrong", "host", here, "UDP"): 1,
        (*four, "ends", "timeout", "host", here, "UDP"): 1,
        (*six, "last", "timeout", "conntrac", here, "IPv6-Frag"): 1,
        (*six, "first", "timeout", "host", there, "IPv6-Frag"): 1,
        (*four, "last", "netns", "host", there, "UDP"): 1,
    }
    bytes_ = {row["by"]: (row["received_bytes"], row["missing_bytes"]) for row in probe.rows("failed")}
    assert bytes_["other"] == (1500, 4460 - 1500)
    assert probe.counters() == {"whole": 3, "failed": 8} and probe.ledger() == {}


def test_who_puts_datagrams_together_is_told_by_the_kernel_s_own_numbers(load: Load) -> None:
    probe = load(PROBE)
    queues = Queues(probe)
    names = ("IP_DEFRAG_LOCAL_DELIVER", "IP_DEFRAG_CONNTRACK_IN", "__IP_DEFRAG_CONNTRACK_BRIDGE_IN")
    host, first, last = (enumerator("ip_defrag_users", name) for name in names)
    for user in (host, first - 1, first, last, last + 1):
        queues.ends(Datagram(user=user))
    assert queues.rows("by") == {("host",): 1, ("other",): 2, ("conntrac",): 2}


@pytest.mark.proves(
    "ip_fragments",
    "events.failed.{mono_ns,source,target,missing,how,by,netns,protocol,id,received_bytes,length_bytes,cpu}",
    "modes.details",
)
def test_a_sample_has_the_datagram(load: Load) -> None:
    probe = load(PROBE)
    queues = Queues(probe)
    queues.ends(Datagram())  # in mode summary
    probe.set("details", events_per_s=100_000)
    before = time.monotonic_ns()
    queues.ends(Datagram(LAST, 20, 1500))
    after = time.monotonic_ns()
    with on_cpu(1):
        queues.ends(Datagram(FIRST, 1448, 1448, "2001:db8::1", "2001:db8::2", id=0xCAFE0001))
    queues.ends(Datagram(FIRST | LAST, 3000, 3000))
    probe.read()
    first, second = probe.events()
    assert before <= first["mono_ns"] <= after and (first["cpu"], second["cpu"]) == (0, 1)
    assert (first["source"], first["target"], first["protocol"]) == ("192.0.2.1", "192.0.2.2", "UDP")
    assert (first["missing"], first["how"], first["by"], first["netns"]) == ("first", "timeout", "host", str(NETNS))
    assert (first["id"], first["received_bytes"], first["length_bytes"]) == ("0xbeef", 20, 1500)
    assert (second["id"], second["source"], second["missing"]) == ("0xcafe0001", "2001:db8::1", "last")
    assert probe.ledger() == {"seen": 2, "submitted": 2}


@pytest.mark.proves("ip_fragments", "knobs.{address,protocol,netns}")
def test_filters_let_pass_what_they_name_and_nothing_else(load: Load) -> None:
    probe = load(PROBE)
    queues = Queues(probe)
    whole, failed, tcp = Datagram(FIRST | LAST, 8, 8), Datagram(source="192.0.2.9"), Datagram(protocol=TCP)
    cases: list[tuple[dict[str, str | int], list[Datagram]]] = [
        ({}, [whole, failed, tcp]),
        ({"address": "192.0.2.1"}, [whole, tcp]),
        ({"address": "192.0.2.9"}, [failed]),
        ({"address": "from:192.0.2.2"}, []),
        ({"protocol": "tcp"}, [tcp]),
        ({"protocol": "udp", "address": "192.0.2.0/29"}, [whole, failed]),
        ({"netns": NETNS}, [whole, failed, tcp]),
        ({"netns": OTHER_NETNS}, []),
    ]
    for knobs, wanted in cases:
        probe.set(**knobs)
        probe.read()
        before = probe.counters()
        for one in (whole, failed, tcp):
            queues.ends(one)
        probe.read()
        passed = [probe.counters()[name] - before[name] for name in ("whole", "failed")]
        assert passed == [wanted.count(whole), len(wanted) - wanted.count(whole)], knobs


@pytest.mark.proves("ip_fragments", "knobs.events_per_s", "ledger.{suppressed,breaker,unlisted}")
def test_events_and_rows_keep_their_budgets(load: Load) -> None:
    probe = load(PROBE)
    calls = [probe.prepare("ended", Queues(probe).queue(Datagram()))]
    now = spend_time(probe, calls, spend_events(probe, calls))
    assert probe.row("failed")["count"] + now["unlisted"] == FEW + MANY
    assert now["seen"] == FEW + MANY == probe.counters()["failed"]


@pytest.mark.proves("ip_fragments", "ledger.map_full")
def test_a_flow_that_finds_no_room_is_counted(load: Load) -> None:
    probe = load(PROBE, failed=1)
    queues = Queues(probe)
    for number in (1, 1, 2, 3):
        queues.ends(Datagram(source=f"192.0.2.{number}"))
    probe.read()
    listed = sum(row["count"] for row in probe.rows("failed"))
    assert probe.counters()["failed"] == 4 and 0 < probe.ledger()["map_full"] == 4 - listed


@pytest.mark.proves("ip_fragments", "knobs.flows_one_in", "ledger.unsampled")
def test_a_flow_is_sampled_whole_or_not_at_all(load: Load) -> None:
    probe = load(PROBE)
    queues = Queues(probe)
    probe.set("details", flows_one_in=4, events_per_s=100_000)
    sources = [f"192.0.2.{number}" for number in range(32)]
    for source in sources * 2:
        queues.ends(Datagram(source=source))
    probe.read()
    sampled = [one["source"] for one in probe.events()]
    assert 0 < len(set(sampled)) < len(sources)
    assert sampled == sampled[: len(sampled) // 2] * 2
    assert probe.ledger()["unsampled"] == 2 * len(sources) - len(sampled)
    assert probe.counters()["failed"] == 2 * len(sources)
