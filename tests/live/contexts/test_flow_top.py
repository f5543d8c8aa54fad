"""flow_top on packets of the test's own: which are listed, and by how much a row may be short."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from netconsole_collector.kernel import cpus
from netconsole_collector.probe import config
from tests.support.live.collector_driver import PYTHON
from tests.support.live.contexts.filters import BY_FRAME, FILTERS, FLOWS, FRAMES, NETNS, OTHER_NETNS
from tests.support.live.contexts.packets import HEADROOM, IPV4, MACS, TCP, UDP, Flow, MadeUpHost
from tests.support.live.contexts.unattached import UnattachedProbe

PROBE = "flow_top"
Load = Callable[..., UnattachedProbe]

WINDOW_SHIFT = 30
"""Weights are halved every 2^30 ns of the monotonic clock (the head of the probe's C)."""
LISTED = 512
"""Flows beyond these that each CPU lists where there are MANY_CPUS; all together list 131 072."""
MANY_CPUS = 256
SENT = 1024
"""Rows that are sent."""
FEW = 16
LINK = 14


class Top(MadeUpHost):
    def __init__(self, probe: UnattachedProbe) -> None:
        super().__init__(probe.memory)
        self.probe = probe
        self.eth0 = self.device("eth0", self.net(NETNS), 2)

    def rows(self, *labels: str) -> dict[Any, tuple[int, int]]:
        """Packets and bytes by these labels."""
        self.probe.read()
        return {tuple(row[one] for one in labels): (row["packets"], row["bytes"]) for row in self.probe.rows("flows")}

    def send_each(self, many: int, packets: Callable[[int], int]) -> None:
        """Packets of so many flows, each from another host of 10.0.0.0/8."""
        skb = self.packet(Flow(), self.eth0)
        (head,) = self.memory.pointers("sk_buff", skb, "head")
        send = self.probe.prepare("sent", skb, self.eth0)
        for number in range(many):
            self.memory.put(head + HEADROOM + LINK + 12, struct.pack(">I", 0x0A000000 + number))
            for _ in range(packets(number)):
                send()


@pytest.fixture
def many_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpus, "nr_cpu_ids", lambda: MANY_CPUS)


@pytest.mark.proves(
    "flow_top",
    "counters.{received,sent,received_bytes,sent_bytes}",
    "tables.flows.{direction,device,source,target,netns,source_port,target_port,ethertype,vlan,protocol,inner}",
    "tables.flows.{packets,bytes}",
    "modes.summary",
)
def test_each_flow_has_its_packets_as_on_the_wire(load: Load) -> None:
    probe = load(PROBE)
    host = Top(probe)
    eth1 = host.device("a-long-name-eth", host.net(OTHER_NETNS), 3)
    v4, v6, tagged = Flow(), Flow("2001:db8::1", "2001:db8::2", 5, 6, TCP), Flow(source_port=9, vlan=77)
    out = host.packet(v4, host.eth0)
    for _ in range(3):
        probe.run("sent", out, host.eth0)
    arrived = host.arrived(host.packet(v6, eth1, payload=100))
    for _ in range(2):
        probe.run("received", arrived)
    probe.run("sent", host.packet(tagged, host.eth0), host.eth0)
    merged = host.merged(host.packet(v4, host.eth0, payload=2500), 1000)
    probe.run("sent", merged, host.eth0)
    probe.run("received", host.arrived(host.merged(host.packet(v4, eth1, payload=3000), 1000)))
    inner = Flow("198.18.0.1", "198.18.0.2", 4000, 53)
    ethernet = MACS + struct.pack(">H", IPV4) + inner.packet()
    vxlan = struct.pack(">HHHHII", 50000, 4789, 16 + len(ethernet), 0, 1 << 27, 7 << 8) + ethernet
    outer = (
        struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(vxlan), 1, 0, 64, UDP, 0) + bytes([10, 0, 0, 1, 10, 0, 0, 2]) + vxlan
    )
    probe.run("received", host.arrived(host.frame(IPV4, outer, eth1)))

    here, there, ports = str(NETNS), str(OTHER_NETNS), (1111, 2222)
    labels = [
        "direction",
        "device",
        "netns",
        "source",
        "target",
        "source_port",
        "target_port",
        "ethertype",
        "vlan",
        "protocol",
        "inner",
    ]
    ends = ("192.0.2.1", "192.0.2.2")
    assert host.rows(*labels) == {
        ("out", "eth0", here, *ends, *ports, "IPv4", 0, "UDP", 0): (3 + 3, 3 * (LINK + 48) + LINK + 28 + 2500),
        ("out", "eth0", here, *ends, 9, 2222, "IPv4", 77, "UDP", 0): (1, LINK + 48),
        ("in", "a-long-name-eth", there, *ends, *ports, "IPv4", 0, "UDP", 0): (3, LINK + 28 + 3000),
        ("in", "a-long-name-eth", there, "2001:db8::1", "2001:db8::2", 5, 6, "IPv6", 0, "TCP", 0): (
            2,
            2 * (LINK + 148),
        ),
        ("in", "a-long-name-eth", there, "198.18.0.1", "198.18.0.2", 4000, 53, "IPv4", 0, "UDP", 1): (
            1,
            LINK + len(outer),
        ),
    }
    assert probe.counters() == {
        "received": 3 + 2 + 1,
        "sent": 3 + 1 + 3,
        "received_bytes": (LINK + 3028) + 2 * (LINK + 148) + LINK + len(outer),
        "sent_bytes": 4 * (LINK + 48) + LINK + 2528,
        "left_packets": 0,
    }
    assert probe.ledger() == {}


@pytest.mark.usefixtures("many_cpus")
@pytest.mark.proves(
    "flow_top", "counters.left_packets", "tables.flows.missed", "tables.cpus.{cpu,flows,packets,at_most}"
)
def test_a_row_is_never_too_high_and_says_how_low_it_may_be(load: Load) -> None:
    """Held against what was sent, within a window: rows, what they may lack, and what may not be listed at all."""
    chance = random.Random(20261122)
    flows = [Flow(f"10.0.{number >> 8}.{number & 255}") for number in range(1200)]
    weights = [400 if number < 10 else 3 for number in range(len(flows))]
    order = [number for number, weight in enumerate(weights) for _ in range(weight)]
    chance.shuffle(order)
    for _ in range(20):
        probe = load(PROBE, flows=1)
        host = Top(probe)
        probe.run("sent", host.packet(Flow("198.18.0.1"), host.eth0), host.eth0)  # has the only place
        calls = [probe.prepare("sent", host.packet(flow, host.eth0), host.eth0) for flow in flows]
        window = (time.monotonic_ns() >> WINDOW_SHIFT) + 1
        while time.monotonic_ns() >> WINDOW_SHIFT < window:
            pass
        for number in order:
            calls[number]()
        if time.monotonic_ns() >> WINDOW_SHIFT == window:
            break
    sent = Counter(flows[number].source for number in order)
    probe.read()
    rows = {row["source"]: row for row in probe.rows("flows")}
    assert rows.pop("198.18.0.1")["packets"] == 1
    assert LISTED - FEW <= len(rows) <= LISTED  # now and then one of the 64 sets has fewer flows than ways
    for source, row in rows.items():
        assert row["packets"] <= sent[source] <= row["packets"] + row["missed"]
    left = probe.row("cpus")
    assert left["cpu"] == 0 and left["flows"] >= len(flows) - LISTED
    assert max(sent[source] for source in sent.keys() - rows.keys()) <= left["at_most"] <= 2 * len(order) // LISTED * 2
    for number in range(10):
        assert flows[number].source in rows
    listed = sum(row["packets"] for row in rows.values())
    assert probe.counters()["sent"] - 1 == len(order) == listed + left["packets"]
    assert probe.counters()["left_packets"] == left["packets"] and probe.ledger() == {}


@pytest.mark.proves(
    "flow_top",
    "tables.devices.{direction,device,netns,packets,bytes,flows}",
    "tables.pairs.{direction,device,netns,source,target,packets,bytes,flows}",
    "tables.ports.{direction,device,netns,protocol,port,packets,bytes,flows}",
    "tables.prefixes.{direction,device,netns,source,target,packets,bytes,flows}",
)
def test_sums_are_of_all_flows_by_what_they_share(load: Load) -> None:
    probe = load(PROBE)
    host = Top(probe)
    flows = [
        Flow("192.0.2.1", "198.51.100.7", 40000, 443, TCP),
        Flow("192.0.2.1", "198.51.100.7", 40001, 443, TCP),
        Flow("192.0.2.200", "198.51.100.8", 443, 40002, TCP),
        Flow("2001:db8::1", "2001:db8:0:1::9", 53, 53),
    ]
    for number, flow in enumerate(flows):
        for _ in range(number + 1):
            probe.run("sent", host.packet(flow, host.eth0), host.eth0)
    v4, v6 = LINK + 48, LINK + 68
    here = ("out", "eth0", str(NETNS))

    def sums(table: str, *labels: str) -> dict[Any, tuple[int, int, int]]:
        return {
            tuple(row[one] for one in ("direction", "device", "netns", *labels)): (
                row["packets"],
                row["bytes"],
                row["flows"],
            )
            for row in probe.rows(table)
        }

    for _ in range(2):  # a second reading finds nothing new
        probe.read()
        assert sums("devices") == {here: (10, 6 * v4 + 4 * v6, 4)}
        assert sums("pairs", "source", "target") == {
            (*here, "192.0.2.1", "198.51.100.7"): (3, 3 * v4, 2),
            (*here, "192.0.2.200", "198.51.100.8"): (3, 3 * v4, 1),
            (*here, "2001:db8::1", "2001:db8:0:1::9"): (4, 4 * v6, 1),
        }
        assert sums("ports", "protocol", "port") == {
            (*here, "TCP", 443): (6, 6 * v4, 3),
            (*here, "UDP", 53): (4, 4 * v6, 1),
        }
        assert sums("prefixes", "source", "target") == {
            (*here, "192.0.2.0/24", "198.51.100.0/24"): (6, 6 * v4, 3),
            (*here, "2001:db8::/64", "2001:db8:0:1::/64"): (4, 4 * v6, 1),
        }


def test_a_thousand_flows_are_a_thousand_exact_rows(load: Load) -> None:
    probe = load(PROBE)
    host = Top(probe)
    host.send_each(1000, lambda number: 1 + number % 99)
    rows = host.rows("source")
    assert rows == {
        (f"10.0.{number >> 8}.{number & 255}",): (1 + number % 99, (1 + number % 99) * (LINK + 48))
        for number in range(1000)
    }
    assert {row["missed"] for row in probe.rows("flows")} == {0}


def test_sixty_thousand_flows_are_exact_and_the_busiest_are_sent(load: Load) -> None:
    many, heavy = 60_000, 20
    probe = load(PROBE)
    host = Top(probe)
    began = time.monotonic_ns()
    host.send_each(many, lambda number: 1 + 5 * (number % (many // heavy) == 7) + number % 2)
    ended = time.monotonic_ns()
    rows = probe.running._maps["flows"].items()
    kept = {struct.unpack_from(">I", key, 8 + 16 + 12)[0]: struct.unpack("=5Q", value) for key, value in rows}
    assert kept.keys() == {0x0A000000 + number for number in range(many)}
    for address, (packets, size, missed, first, last) in kept.items():
        number = address - 0x0A000000
        assert packets == 1 + 5 * (number % (many // heavy) == 7) + number % 2
        assert size == packets * (LINK + 48) and missed == 0
        assert began <= first <= last <= ended
    found = host.rows("source")
    assert len(found) <= SENT
    assert sum(packets >= 6 for packets, _ in found.values()) == heavy
    total = sum(packets for packets, *_ in kept.values())
    assert probe.row("devices")["packets"] == total == probe.counters()["sent"]
    assert probe.row("devices")["flows"] == many
    (table,) = [one for one in probe.bodies if one["kind"] == "table" and one["name"] == "flows"]
    assert table["omitted"] == many - len(found) and table["full"]
    assert probe.counters()["left_packets"] == 0 and probe.ledger() == {}


def test_a_flow_that_nothing_comes_to_gives_its_place_up(load: Load) -> None:
    probe = load(PROBE, flows=100)
    host = Top(probe)
    host.send_each(100, lambda _: 1)
    assert len(host.rows("source")) == 100
    ranked = probe.running._ranked["flows"]
    ranked._evict(time.monotonic_ns() + 9 * 10**9)
    assert len(list(probe.running._maps["flows"].items())) == 100
    ranked._evict(time.monotonic_ns() + 11 * 10**9)
    assert len(list(probe.running._maps["flows"].items())) == 75
    ranked._due_ns = 0  # a busy machine takes long for a reading, and then leaves out some
    probe.read()
    assert probe.row("devices")["packets"] == 100 and probe.row("devices")["flows"] == 75
    assert probe.ledger() == {"evicted": 25}


GUEST = """
import fcntl, struct, sys
tap = open("/dev/net/tun", "r+b", 0)
fcntl.ioctl(tap, 0x400454CA, struct.pack("16sH22x", sys.argv[3].encode(), 0x1002))  # TUNSETIFF, IFF_TAP | IFF_NO_PI
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.proves("flow_top", "tables.{flows,devices,pairs,ports,prefixes}.vm")
def test_a_flow_on_a_tap_is_of_the_vm_that_has_opened_it(load: Load) -> None:
    """A process that is called as QEMU would be, with a tap of its own."""
    tap = f"ncg{os.getpid()}"
    probe = load(PROBE)
    host = Top(probe)
    devices = [host.eth0, host.device(tap, host.net(NETNS), 3)]
    words = ["qemu-system-x86_64", "-c", GUEST, "-name", "guest=web-07,debug-threads=on", tap]
    with subprocess.Popen(words, executable=PYTHON, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as guest:
        assert guest.stdout is not None and guest.stdout.readline() == "ready\n"
        for device in devices:
            probe.run("sent", host.packet(Flow(), device), device)
        probe.read()
        guest.communicate("")
    for table in ("flows", "devices", "pairs", "ports", "prefixes"):
        assert {(row["device"], row["vm"]) for row in probe.rows(table)} == {("eth0", None), (tap, "web-07")}


@pytest.mark.proves("flow_top", "knobs.{device,address,port,protocol,netns}")
def test_filters_let_pass_what_they_name_and_nothing_else(load: Load) -> None:
    probe = load(PROBE)
    host = Top(probe)
    out = [host.packet(flow, host.eth0) for flow in FLOWS]
    arrived = [host.arrived(host.packet(flow, host.eth0)) for flow in FLOWS]
    for knobs, wanted in FILTERS:
        probe.set(**knobs)
        for number, (going, coming) in enumerate(zip(out, arrived, strict=True)):
            for slot, call in ((1, ("sent", going, host.eth0)), (0, ("received", coming))):
                before = probe.running._maps["nc_counters"].sum_of(slot)
                probe.run(*call)
                passed = probe.running._maps["nc_counters"].sum_of(slot) - before
                assert passed == (number in wanted), (knobs, FLOWS[number])


@pytest.mark.proves("flow_top", "knobs.{vlan,ethertype,mac}")
def test_filters_by_frame_let_pass_what_they_name(load: Load) -> None:
    probe = load(PROBE)
    host = Top(probe)
    packets = {flow: host.packet(flow, host.eth0) for flow in FRAMES}
    for knobs, wanted in BY_FRAME:
        probe.set(**knobs)
        for flow, skb in packets.items():
            before = probe.running._maps["nc_counters"].sum_of(1)
            probe.run("sent", skb, host.eth0)
            assert probe.running._maps["nc_counters"].sum_of(1) - before == (flow in wanted), (knobs, flow)


@pytest.mark.usefixtures("many_cpus")
@pytest.mark.proves("flow_top", "ledger.{map_full,parse_failed,unlisted}")
def test_what_cannot_be_listed_is_counted(load: Load) -> None:
    probe = load(PROBE, cpus=1, flows=1)
    probe.running._maps["cpus"].set(struct.pack("=I", 99), bytes(24))  # of another CPU: there is no room for this one
    host = Top(probe)
    extensions = bytes([60, 0, 1, 4, 0, 0, 0, 0]) * 8
    packet = Flow("2001:db8::1", "2001:db8::2").packet()
    host_of_many = packet[:6] + bytes([60]) + packet[7:40] + extensions
    probe.run("sent", host.frame(0x86DD, host_of_many, host.eth0), host.eth0)
    probe.read()
    assert probe.ledger() == {"parse_failed": 1} and probe.row("flows")["protocol"] == "unparsed"
    for skb in [host.packet(Flow(source_port=1 + number), host.eth0) for number in range(LISTED + 1)]:
        probe.run("sent", skb, host.eth0)  # by chance some do not fit into their set
    probe.read()
    left = probe.counters()["left_packets"]
    assert left == probe.ledger()["map_full"] > 0
    assert sum(row["packets"] for row in probe.rows("flows")) + left == LISTED + 2

    probe = load(PROBE)
    host = Top(probe)
    merged = probe.prepare("sent", host.merged(host.packet(Flow(), host.eth0, payload=3000), 1000), host.eth0)
    # No mode of this probe has a bound today; the program keeps to one all the same.
    bounded = config.pack("details", {"events_per_s": 100}, 1e-9)
    probe.running._maps.write("nc_config", bounded)
    for _ in range(500):
        merged()
    probe.read()
    unlisted = probe.ledger()["unlisted"]
    assert probe.counters()["sent"] == 1500 == probe.row("flows")["packets"] + unlisted
    assert unlisted >= 3 * (500 - 65)
