"""Filters by what an Ethernet frame says let pass the drops that they name, and no others."""

from __future__ import annotations

import pytest

from tests.live.contexts.test_kernel_drops import Drops, Load
from tests.support.live.contexts.filters import BY_FRAME, FLOWS, TAGGED


@pytest.mark.proves("kernel_drops", "knobs.{vlan,ethertype}")
@pytest.mark.parametrize("mode", ["summary", "counters", "details"])
def test_drops_are_filtered_by_vlan_and_ethertype(load: Load, mode: str) -> None:
    probe = load("kernel_drops")
    host = Drops(probe)
    packets = {flow: host.packet(flow, host.eth0) for flow in (*FLOWS, TAGGED)}
    for knobs, wanted in BY_FRAME:
        probe.set(mode, **knobs)
        for flow, skb in packets.items():
            before = probe.running._maps["nc_counters"].sum_of(0)
            host.drop(skb)
            assert probe.running._maps["nc_counters"].sum_of(0) - before == (flow in wanted), (knobs, flow)
    assert {"vlan", "ethertype"} == {name for knobs, _ in BY_FRAME for name in knobs}
