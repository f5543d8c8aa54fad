"""host_path in a storm, on packets of the test's own: the first ones are followed, and all are counted."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.support.live.contexts.filters import NETNS
from tests.support.live.contexts.moments import wait
from tests.support.live.contexts.packets import ETHERNET, TCP, Flow
from tests.support.live.contexts.unattached import UnattachedProbe
from tests.support.live.contexts.ways import FLOW6, Ways

PROBE = "host_path"
Load = Callable[..., UnattachedProbe]

BURST, IN_EIGHT_TICKS = 1024, 16
"""So many packets of a CPU are followed, as the probe says in cannot_see."""
CLOCK_MONOTONIC_COARSE = 6
WINDOW_NS = 8 * time.clock_getres(CLOCK_MONOTONIC_COARSE) * 1e9
"""The coarse clock has the resolution of a tick (time.h)."""
ASKED = [{"port": 1111}, {"address": "192.0.2.1"}, {"netns": NETNS}, {"threshold_us": 1e6}]


def used_up(load: Load) -> Ways:
    """A host where no packet is followed."""
    host = Ways(load(PROBE))
    host.use_up()
    return host


def found(host: Ways) -> dict[str, int]:
    """Counters and the ledger, what is not 0."""
    host.probe.read()
    counters = {name: count for name, count in host.probe.counters().items() if count}
    return {**counters, **host.probe.ledger()}


def storm(host: Ways, packets: int) -> None:
    """From tap0 to eth0, all of one flow."""
    skb = host.come(Flow(), "tap0")
    came = host.memory.bytes_of("sk_buff", skb)
    left = host.memory.bytes_of("sk_buff", host.leaving(skb, host.devices["eth0"]))
    receive, queue = host.probe.prepare("receive", skb), host.probe.prepare("queue", skb)
    send = host.probe.prepare("send", skb, host.devices["eth0"])
    for _ in range(packets):
        host.memory.put(skb, came)
        receive()
        host.memory.put(skb, left)
        queue()
        send()


@pytest.mark.proves("host_path", "counters.{received,crossed,packets}", "ledger.unlisted")
def test_of_a_storm_the_first_ones_are_followed_and_all_are_counted(load: Load) -> None:
    host, packets = Ways(load(PROBE)), 4 * BURST
    began = time.monotonic_ns()
    storm(host, packets)
    windows = (time.monotonic_ns() - began) / WINDOW_NS
    figures = found(host)
    (crossing,) = host.probe.histograms("crossing")
    listed = crossing["count"]
    assert BURST <= listed <= BURST + IN_EIGHT_TICKS * (windows + 2)
    assert figures == {
        "received": packets,
        "crossed": packets,
        "packets": packets,
        "unlisted": packets - listed,
    }
    assert {one["stage"]: one["count"] for one in host.probe.histograms("stages")} == {
        "forward": listed,
        "qdisc": listed,
    }
    assert host.probe.row("flows")["samples"] == host.probe.row("flows")["packets"] == listed


def test_a_burst_is_followed_whole_and_what_a_cpu_does_not_use_is_kept(load: Load) -> None:
    host = Ways(load(PROBE))
    storm(host, BURST)
    assert found(host) == {"received": BURST, "crossed": BURST, "packets": BURST}
    while "unlisted" not in (before := found(host)):
        storm(host, BURST)
    rests = 3
    wait(rests * WINDOW_NS / 1e6)
    storm(host, rests * IN_EIGHT_TICKS)
    figures = found(host)
    assert figures["received"] == before["received"] + rests * IN_EIGHT_TICKS
    assert figures["unlisted"] == before["unlisted"]


@pytest.mark.parametrize("knobs", ASKED)
def test_who_asks_for_something_gets_each_packet(load: Load, knobs: dict[str, str | float]) -> None:
    host = used_up(load)
    host.probe.set(**knobs)
    host.cross(Flow(), "tap0", "eth0")
    assert found(host) == {"received": 1, "crossed": 1, "packets": 1}
    host.probe.set()
    host.cross(Flow(), "tap0", "eth0")
    assert found(host)["unlisted"] == 1
    host.probe.set("details", events_per_s=1e6)
    host.cross(Flow(), "tap0", "eth0")
    host.probe.read()
    assert len(host.probe.events()) == 1


def test_what_was_merged_counts_as_the_packets_that_it_stands_for_in_a_storm_as_well(load: Load) -> None:
    host = used_up(load)
    for flow, header in ((Flow(), 8), (FLOW6, 8), (Flow(protocol=TCP), 20)):
        packet = bytearray(flow.packet(2001 + header - 8))
        if flow.protocol == TCP:
            packet[20 + 12] = 5 << 4
        skb = host.merged(host.come(flow, "tap0", packet=bytes(packet)), 1000)
        host.ran("receive", skb)
        host.ran("send", host.leaving(skb, host.devices["eth0"]), host.devices["eth0"])
    assert found(host) == {"received": 3, "crossed": 3, "packets": 9, "unlisted": 3}
    assert host.probe.rows("flows") == host.probe.histograms("crossing") == []


def test_what_does_not_cross_is_told_apart_in_a_storm_as_well(load: Load) -> None:
    host = used_up(load)
    eth0 = host.devices["eth0"]
    skb = host.come(Flow(), "tap0")
    host.ran("receive", skb)
    host.ran("receive", skb)  # the first one was delivered, and the next is at its address
    assert found(host) == {"received": 2, "reused": 1}
    host.memory.change("sk_buff", skb, {"skb_iif": 0})
    host.ran("queue", host.leaving(skb, eth0))  # dropped, and one of the host's own is there
    host.ran("send", skb, eth0)
    assert found(host) == {"received": 2, "reused": 1, "from_host": 1}
    sent = host.come(Flow(), "tap0")
    host.ran("receive", sent)
    host.ran("send", host.leaving(sent, eth0), eth0)
    host.ran("send", sent, eth0)  # its driver was busy
    assert host.counted("crossed") == [1]


@pytest.mark.parametrize(
    ("by", "leaves", "queued", "other"),
    [("veth0", "eth0", False, "exchanged"), ("", "eth0", True, "from_host"), ("tap0", "elsewhere", True, "exchanged")],
)
def test_a_packet_whose_origin_was_changed_is_known_by_its_headers(
    load: Load, by: str, leaves: str, queued: bool, other: str
) -> None:
    """By a bond or VLAN, a tunnel, another namespace. Where it does not know the headers, it is another packet."""
    host = used_up(load)
    device = host.elsewhere if leaves == "elsewhere" else host.devices[leaves]
    for is_other in (False, True):
        skb = host.come(Flow(), "tap0")
        host.ran("receive", skb)
        host.leaving(skb, device)
        if queued:
            host.ran("queue", skb)
        host.memory.change("sk_buff", skb, {"skb_iif": host.index.get(by, 0)})
        if is_other:
            packet = bytearray(Flow().packet())
            packet[5] = 7  # its identification
            (data,) = host.memory.pointers("sk_buff", skb, "data")
            host.memory.put(data + ETHERNET, bytes(packet))
        host.ran("send", skb, device)
    figures = found(host)
    assert (figures["crossed"], figures["unlisted"], figures[other]) == (1, 1, 1)
    assert figures.get("join_missed", 0) == 0


def test_copies_of_what_is_only_counted_are_only_counted(load: Load) -> None:
    host = used_up(load)
    skb = host.come(Flow(), "tap0")
    host.ran("receive", skb)
    copy = host.leaving(host.come(Flow(), "tap0"), host.devices["tap1"])
    for one, device in ((copy, "tap1"), (host.leaving(skb, host.devices["eth0"]), "eth0")):
        host.ran("queue", one)
        host.ran("send", one, host.devices[device])
    assert found(host) == {"received": 1, "copies": 1, "crossed": 2, "packets": 2, "unlisted": 2}


def test_segments_of_what_is_only_counted_are_only_counted(load: Load) -> None:
    host = used_up(load)
    eth0, size = host.devices["eth0"], 1400
    skb = host.come(Flow(), "tap0", payload=2 * size)
    host.ran("receive", skb)
    host.ran("queue", host.leaving(skb, eth0))
    for _ in range(2):
        host.ran("send", host.leaving(host.come(Flow(), "tap0", payload=size), eth0), eth0)
    assert found(host) == {"received": 1, "crossed": 2, "packets": 2, "segments": 2, "unlisted": 2}


def test_a_rest_voids_what_is_only_counted(load: Load) -> None:
    """It may have ended unseen: what leaves from its address afterwards has no start."""
    host = used_up(load)
    skb = host.come(Flow(), "tap0")
    host.ran("receive", skb)
    host.probe.rest()
    host.probe.wake()
    host.ran("send", host.leaving(skb, host.devices["eth0"]), host.devices["eth0"])
    figures = found(host)
    assert (figures["received"], figures["unmatched"]) == (1, 1) and "unlisted" not in figures


def stale(host: Ways, number: int, size: int) -> int:
    """A packet that the firewall has dropped: its end is not seen, and its address is free."""
    packet = Flow().packet(size)
    skb = host.come(Flow(), "tap0", packet=packet[:4] + bytes([9, number]) + packet[6:])
    host.ran("receive", skb)
    return skb


@pytest.mark.proves("host_path", "counters.{crossed,packets,segments,exchanged}", "ledger.{unlisted,join_missed}")
@pytest.mark.parametrize("is_storm", [True, False])
def test_what_the_kernel_cuts_is_not_taken_for_a_dropped_packet_at_its_address(load: Load, is_storm: bool) -> None:
    host = used_up(load) if is_storm else Ways(load(PROBE))
    eth0, size = host.devices["eth0"], 1400
    addresses = [stale(host, number, size) for number in (1, 2)]
    skb = host.come(Flow(), "tap0", payload=2 * size)
    host.ran("receive", skb)
    host.ran("queue", host.leaving(skb, eth0))
    for address in addresses:
        segment = host.leaving(host.come(Flow(), "tap0", payload=size), eth0)
        host.memory.put(address, host.memory.bytes_of("sk_buff", segment))
        host.ran("send", address, eth0)
    unlisted = {"unlisted": 2} if is_storm else {}
    assert found(host) == {"received": 3, "crossed": 2, "packets": 2, "segments": 2, **unlisted}


@pytest.mark.proves("host_path", "counters.{crossed,exchanged}", "ledger.{unlisted,join_missed}")
@pytest.mark.parametrize("is_storm", [True, False])
def test_a_later_fragment_is_not_taken_for_a_dropped_packet_at_its_address(load: Load, is_storm: bool) -> None:
    host = used_up(load) if is_storm else Ways(load(PROBE))
    eth0, packet = host.devices["eth0"], Flow().packet(100)
    address = stale(host, 1, 100)
    skb = host.come(Flow(), "tap0", packet=packet)
    host.ran("receive", skb)
    second = host.leaving(host.come(Flow(), "tap0", packet=packet[:6] + bytes([0, 16]) + packet[8:]), eth0)
    host.memory.put(address, host.memory.bytes_of("sk_buff", second))
    for fragment in (host.leaving(skb, eth0), address):
        host.ran("queue", fragment)
        host.ran("send", fragment, eth0)
    unlisted = {"unlisted": 1} if is_storm else {}
    expected = {"received": 2, "crossed": 1, "packets": 1, "exchanged": 1, "join_missed": 1}
    assert found(host) == {**expected, **unlisted}
