"""host_path on packets of the test's own: which packets and devices its knobs choose, and its bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

import pytest

from tests.support.live.contexts.budgets import FEW, MANY, spend_events, spend_time
from tests.support.live.contexts.filters import BY_FRAME, FILTERS, FLOWS, FRAMES, OTHER_NETNS
from tests.support.live.contexts.moments import wait
from tests.support.live.contexts.packets import Flow
from tests.support.live.contexts.unattached import UnattachedProbe
from tests.support.live.contexts.ways import DIRECTIONS, Ways

PROBE = "host_path"
Load = Callable[..., UnattachedProbe]


@pytest.mark.proves("host_path", "knobs.{address,port,protocol,netns}")
def test_filters_let_pass_what_they_name_and_nothing_else(load: Load) -> None:
    """What they keep out is not missed either."""
    probe = load(PROBE)
    host = Ways(probe)
    ways = (("tap0", "eth0"), ("eth0", "tap0"))
    filters = [one for one in FILTERS if "device" not in one[0]]
    packets = iter([host.come(flow, came) for _ in "12" for _ in filters for flow in FLOWS for came, _ in ways])
    slots = "received", "crossed", "unmatched", "from_host"
    for mode in ("summary", "details"):
        for knobs, wanted in filters:
            probe.set(mode, **knobs)
            for number, flow in enumerate(FLOWS):
                for _, leaves in ways:
                    skb, before = next(packets), host.counted(*slots)
                    probe.run("receive", skb)
                    probe.run("send", skb, host.devices[leaves])
                    passed = [now - then for now, then in zip(host.counted(*slots), before, strict=True)]
                    assert passed == ([1, 1, 0, 0] if number in wanted else [0] * 4), (mode, knobs, flow)
    probe.set(netns=OTHER_NETNS)
    other = host.come(Flow(), "eth0")
    host.memory.change("sk_buff", other, {"dev": host.elsewhere})
    before = host.counted("received")
    probe.run("receive", other)
    assert host.counted("received") == [before[0] + 1]
    probe.read()
    assert "join_missed" not in probe.ledger()


@pytest.mark.proves("host_path", "knobs.{address,port,protocol,netns}", "counters.reused")
@pytest.mark.parametrize("knobs", [{"port": 5}, {"protocol": "icmp"}, {"address": "192.0.2.7"}, {"netns": OTHER_NETNS}])
def test_what_filters_keep_out_does_not_end_the_way_of_another(load: Load, knobs: dict[str, str | int]) -> None:
    """A packet that was never forwarded is sent again, as it was, when the filters have changed meanwhile."""
    probe = load(PROBE)
    host = Ways(probe)
    skb = host.come(Flow(), "tap0")
    probe.run("receive", skb)
    probe.set(**knobs)
    probe.run("receive", skb)
    probe.run("queue", host.leaving(skb, host.devices["eth0"]))
    probe.run("send", skb, host.devices["eth0"])
    assert host.counted("received", "reused", "crossed", "unmatched") == [1, 1, 0, 0]
    probe.read()
    assert probe.rows("flows") == [] and probe.ledger() == {}


@pytest.mark.proves("host_path", "knobs.{vlan,ethertype,mac}")
def test_filters_by_frame_let_pass_what_they_name(load: Load) -> None:
    """As a packet comes in: a router puts its own address into the header."""
    probe = load(PROBE)
    host = Ways(probe)
    packets = iter([host.come(flow, "eth0") for _ in BY_FRAME for flow in FRAMES])
    for knobs, wanted in BY_FRAME:
        probe.set(**knobs)
        for flow in FRAMES:
            before = host.counted("received", "crossed")
            skb = next(packets)
            probe.run("receive", skb)
            probe.run("send", host.leaving(skb, host.devices["tap0"]), host.devices["tap0"])
            passed = [now - then for now, then in zip(host.counted("received", "crossed"), before, strict=True)]
            assert passed == [int(flow in wanted)] * 2, (knobs, flow)


Sets: TypeAlias = dict[str, str]
SETS: list[tuple[Sets, dict[tuple[str, str], str]]] = [
    ({}, DIRECTIONS),
    ({"inside_devices": "tap1", "outside_devices": "eth1"}, {("tap1", "eth1"): "out", ("eth1", "tap1"): "in"}),
    ({"inside_devices": "kind:veth", "outside_devices": "tap*"}, {("veth0", "tap0"): "out"}),
    ({"inside_devices": "", "outside_devices": "e* veth0"}, {("eth0", "veth0"): "through"}),
    ({"inside_devices": "tap1 eth0", "outside_devices": "eth1 kind:tap"}, {("tap1", "eth0"): "within"}),
]  # fmt: skip
"""Knobs, and ways with their direction."""
MEMBERS: list[tuple[Sets, set[str]]] = [
    ({}, {"tap0", "tap1", "eth0", "eth1"}),
    ({"inside_devices": "tap1", "outside_devices": "eth1"}, {"tap1", "eth1"}),
    ({"inside_devices": "kind:veth", "outside_devices": "tap*"}, {"veth0", "tap0", "tap1"}),
    ({"inside_devices": "", "outside_devices": "e* veth0"}, {"eth0", "eth1", "veth0"}),
    ({"inside_devices": "eth tap", "outside_devices": "kind:bond"}, set()),
]
"""Knobs, and which devices are in a set then."""


@pytest.mark.proves("host_path", "knobs.{inside_devices,outside_devices}", "histograms.crossing.{direction,from,to}")
def test_devices_are_those_of_the_sets_after_each_change(load: Load) -> None:
    probe = load(PROBE)
    host = Ways(probe)
    expected: Counter[tuple[str, str, str]] = Counter()
    for mode in ("summary", "details"):
        for knobs, ways in SETS:
            probe.set(mode, **knobs)
            for way, direction in ways.items():
                host.cross(Flow(), *way)
                expected[direction, way[0], way[1]] += 1
    probe.read()
    crossing = probe.histograms("crossing")
    assert {(one["direction"], one["from"], one["to"]): one["count"] for one in crossing} == expected
    for knobs, wanted in MEMBERS:
        probe.set(**knobs)
        for device in ("tap0", "tap1", "eth0", "eth1", "veth0"):
            before = host.counted("received", "unmatched")
            probe.run("receive", host.come(Flow(), device))
            probe.run("send", host.come(Flow(), "br0"), host.devices[device])
            passed = [now - then for now, then in zip(host.counted("received", "unmatched"), before, strict=True)]
            assert passed == [int(device in wanted)] * 2, (knobs, device)
    probe.set(outside_devices="eth0")
    for name, wanted_now in ((b"eth0", 1), (b"eth00", 0), (b"eth", 0), (b"eth0", 1)):
        host.memory.change("net_device", host.devices["eth0"], {"name": name})
        before = host.counted("received")
        probe.run("receive", host.come(Flow(), "eth0"))
        assert host.counted("received") == [before[0] + wanted_now], name


@pytest.mark.proves("host_path", "knobs.inside_devices", "histograms.stages.stage")
def test_a_switch_s_own_port_faces_the_host(load: Load) -> None:
    """What the host sends by it begins there, and what is received on it has left."""
    probe = load(PROBE)
    host = Ways(probe)
    for own, knobs in (("own0", {}), ("br0", {"inside_devices": "kind:bridge"})):
        probe.set(**knobs)
        out = host.leaving(host.come(Flow(), own), host.devices[own])
        host.memory.change("sk_buff", out, {"skb_iif": 0})
        began = host.ran("send", out, host.devices[own])
        host.memory.change("sk_buff", out, {"dev": host.devices["eth0"]})
        wait(2)
        queued = host.ran("queue", out)
        host.ran("send", out, host.devices["eth0"])
        incoming = host.come(Flow(), "eth0")
        host.ran("receive", incoming)
        host.memory.change("sk_buff", incoming, {"dev": host.devices[own]})
        wait(1)
        ended = host.ran("receive", incoming)
        assert began[1] < queued[0] < ended[0]
    probe.read()
    found = {(one["direction"], one["from"], one["to"]): one["count"] for one in probe.histograms("crossing")}
    assert found == {
        ("out", "own0", "eth0"): 1,
        ("in", "eth0", "own0"): 1,
        ("out", "br0", "eth0"): 1,
        ("in", "eth0", "br0"): 1,
    }
    stages = {(one["direction"], one["stage"]): one for one in probe.histograms("stages")}
    assert stages["out", "forward"]["min"] > 2_000_000 and stages["in", "forward"]["min"] > 1_000_000
    assert stages["in", "qdisc"]["sum"] == 0
    assert probe.ledger() == {}


@pytest.mark.proves("host_path", "knobs.events_per_s", "ledger.{suppressed,breaker,unlisted}")
def test_rows_and_events_keep_their_bounds(load: Load) -> None:
    probe = load(PROBE)
    host = Ways(probe)
    skb = host.come(Flow(), "tap0")
    calls = [probe.prepare("receive", skb), probe.prepare("send", skb, host.devices["eth0"])]
    now = spend_time(probe, calls, spend_events(probe, calls))
    listed = probe.row("flows")["samples"]
    assert listed + now["unlisted"] == FEW + MANY
    assert sum(one["count"] for one in probe.histograms("crossing")) == listed
    assert now["seen"] == FEW + MANY == probe.counters()["crossed"]
