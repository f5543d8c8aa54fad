"""Filters by what an Ethernet frame says let pass the drops that they name, and no others."""

from __future__ import annotations

import pytest

from tests.live.contexts.test_kernel_drops import Drops, Load
from tests.support.live.contexts.filters import BY_FRAME, FRAMES
from tests.support.live.contexts.packets import ETHERNET, HEADROOM


@pytest.mark.proves("kernel_drops", "knobs.{vlan,ethertype,mac}")
@pytest.mark.parametrize("mode", ["summary", "counters", "details"])
def test_drops_are_filtered_by_what_their_frame_says(load: Load, mode: str) -> None:
    probe = load("kernel_drops")
    host = Drops(probe)
    packets = {flow: host.packet(flow, host.eth0) for flow in FRAMES}
    for knobs, wanted in BY_FRAME:
        probe.set(mode, **knobs)
        for flow, skb in packets.items():
            before = probe.running._maps["nc_counters"].sum_of(0)
            host.drop(skb)
            assert probe.running._maps["nc_counters"].sum_of(0) - before == (flow in wanted), (knobs, flow)


def test_a_packet_without_an_ethernet_header_is_of_no_mac(load: Load) -> None:
    probe = load("kernel_drops")
    host = Drops(probe)
    skb = host.packet(FRAMES[0], host.eth0)
    (head,) = host.memory.pointers("sk_buff", skb, "head")
    probe.set(mac=FRAMES[0].mac)
    for mac, network, data, wanted in (
        (0, ETHERNET, 0, 1),
        (0, 0, ETHERNET, 1),  # the network header is not set yet
        (0xFFFF, ETHERNET, 0, 0),
        (0, ETHERNET - 1, 0, 0),
        (0, 0, ETHERNET - 1, 0),
    ):
        places = {"network_header": HEADROOM + network, "mac_header": mac or HEADROOM, "data": head + HEADROOM + data}
        host.memory.change("sk_buff", skb, places)
        before = probe.running._maps["nc_counters"].sum_of(0)
        host.drop(skb)
        assert probe.running._maps["nc_counters"].sum_of(0) - before == wanted, (mac, network, data)
