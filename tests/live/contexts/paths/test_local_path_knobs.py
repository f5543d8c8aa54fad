"""local_path on packets of the test's own: which packets and devices its knobs choose, and its bounds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.live.contexts.budgets import FEW, MANY, spend_events, spend_time
from tests.support.live.contexts.filters import BY_FRAME, FILTERS, FLOWS, FRAMES, NETNS, OTHER_NETNS
from tests.support.live.contexts.moments import MS, elapsed, wait
from tests.support.live.contexts.packets import TCP, UDP, Flow
from tests.support.live.contexts.stack import OF_TCP, Stack
from tests.support.live.contexts.unattached import UnattachedProbe

PROBE = "local_path"
Load = Callable[..., UnattachedProbe]

TRACEPOINTS = {"ready": "on_ready"}


@pytest.mark.proves("local_path", "knobs.threshold_us", "counters.slow", "tables.flows.slow", "modes.{summary,details}")
def test_only_what_is_above_the_threshold_is_slow(load: Load) -> None:
    probe = load(PROBE, TRACEPOINTS)
    host = Stack(probe)
    for mode in ("details", "summary"):
        probe.set(mode, threshold_us=5000, events_per_s=1e6)
        for flow, ms in ((Flow(), 5.2), (OF_TCP, 5.2), (Flow(source_port=7), 4.1)):
            took = 0, 5 * MS
            while ms < 5 <= took[1] / MS or took[0] < ms * MS:
                before, skb = host.counted("slow"), host.come(flow, "eth0")
                received = host.ran("receive", skb)
                wait(ms)
                ended = host.ran("tcp", 0, skb) if flow.protocol == TCP else host.ready(skb)
                took = elapsed(received, ended)  # the machine may take its time
            assert host.counted("slow") == [before[0] + (ms > 5)]
    probe.read()
    assert probe.counters()["slow"] == sum(row["slow"] for row in probe.rows("flows"))
    ports = [event["source_port"] for event in probe.events() if event["source_port"] != 7]
    assert ports == [Flow().source_port, OF_TCP.source_port]
    rows = {row["source_port"]: row["slow"] for row in probe.rows("flows")}
    assert rows[Flow().source_port] == rows[OF_TCP.source_port] == 2


@pytest.mark.proves("local_path", "knobs.{address,port,protocol,netns}")
def test_filters_let_pass_what_they_name_and_nothing_else(load: Load) -> None:
    probe = load(PROBE, TRACEPOINTS)
    host = Stack(probe)
    filters = [one for one in FILTERS if "device" not in one[0]]
    packets = iter([(host.come(flow, "eth0"), host.own(flow)) for _ in "12" for _ in filters for flow in FLOWS])
    slots = "received", "left"
    for mode in ("summary", "details"):
        for knobs, wanted in filters:
            probe.set(mode, **knobs)
            for number, flow in enumerate(FLOWS):
                before, (coming, going) = host.counted(*slots), next(packets)
                probe.run("receive", coming)
                probe.run("queue", going)
                probe.run("send", going, host.devices["eth0"])
                passed = [now - then for now, then in zip(host.counted(*slots), before, strict=True)]
                assert passed == [int(number in wanted)] * 2, (mode, knobs, flow)
    for netns, elsewhere in ((OTHER_NETNS, 1), (NETNS, 0), (0, 1)):
        probe.set(netns=netns)
        before, coming, going = host.counted(*slots), host.come(Flow(), "eth0"), host.own(Flow())
        for skb in (coming, going):
            host.memory.change("sk_buff", skb, {"dev": host.elsewhere})
        probe.run("receive", coming)
        probe.run("queue", going)
        probe.run("send", going, host.elsewhere)
        assert [now - then for now, then in zip(host.counted(*slots), before, strict=True)] == [elsewhere] * 2
    for netns, missed in ((NETNS, 0), (OTHER_NETNS, 1)):
        probe.set(netns=netns)
        broken = host.come(Flow(), "eth0", packet=b"\x55" + Flow().packet()[1:])
        host.memory.change("sk_buff", broken, {"dev": host.elsewhere})
        probe.run("receive", broken)
        probe.read()
        assert probe.ledger().get("parse_failed", 0) == missed


@pytest.mark.proves("local_path", "knobs.{address,port,protocol,netns}", "counters.reused")
@pytest.mark.parametrize(
    "knobs", [{"port": 4711}, {"protocol": "udp"}, {"address": "192.0.2.7"}, {"netns": OTHER_NETNS}]
)
def test_what_filters_keep_out_does_not_end_the_way_of_another(load: Load, knobs: dict[str, str | int]) -> None:
    """A segment that no socket took is sent again, as it was, when the filters have changed meanwhile."""
    probe = load(PROBE, TRACEPOINTS)
    host = Stack(probe)
    skb = host.come(OF_TCP, "eth0")
    probe.run("receive", skb)
    probe.set(**knobs)
    probe.run("receive", skb)
    probe.run("tcp", 0, skb)
    assert host.counted("received", "reused", "delivered", "exchanged") == [1, 1, 0, 0]
    probe.read()
    assert probe.rows("flows") == [] and probe.ledger() == {}


@pytest.mark.proves("local_path", "knobs.vlan", "counters.{reused,delivered}")
def test_a_filter_by_tag_holds_on_the_device_that_has_the_tag(load: Load) -> None:
    """On the device above, the packet has none any more, and is still the same."""
    probe = load(PROBE, TRACEPOINTS)
    host = Stack(probe)
    probe.set(host_devices="eth0 br0", vlan=42)
    skb = host.come(Flow(source_port=OF_TCP.source_port, protocol=TCP, vlan=42), "eth0")
    probe.run("receive", skb)
    host.memory.change("sk_buff", skb, {"dev": host.devices["br0"], "vlan_tci": 0})
    probe.run("receive", skb)
    probe.run("tcp", 0, skb)
    assert host.counted("received", "reused", "delivered") == [1, 0, 1]


@pytest.mark.proves("local_path", "knobs.{vlan,ethertype,mac}")
def test_filters_by_frame_let_pass_what_they_name(load: Load) -> None:
    probe = load(PROBE, TRACEPOINTS)
    host = Stack(probe)
    packets = iter([(host.come(flow, "eth0"), host.own(flow)) for _ in BY_FRAME for flow in FRAMES])
    for knobs, wanted in BY_FRAME:
        probe.set(**knobs)
        for flow in FRAMES:
            before, (coming, going) = host.counted("received", "left"), next(packets)
            probe.run("receive", coming)
            probe.run("queue", going)
            probe.run("send", going, host.devices["eth0"])
            passed = [now - then for now, then in zip(host.counted("received", "left"), before, strict=True)]
            assert passed == [int(flow in wanted)] * 2, (knobs, flow)


@pytest.mark.proves("local_path", "knobs.host_devices", "histograms.crossing.{from,to}", "counters.{received,left}")
def test_devices_are_those_of_the_set_after_each_change(load: Load) -> None:
    probe = load(PROBE, TRACEPOINTS)
    host = Stack(probe)
    for mode in ("summary", "details"):
        for knobs, wanted in (
            ({}, {"eth0", "eth1", "own0"}),
            ({"host_devices": "tap1"}, {"tap1"}),
            ({"host_devices": "kind:veth e*"}, {"veth0", "eth0", "eth1"}),
            ({"host_devices": ""}, set()),
            ({"host_devices": "kind:bridge kind:tap"}, {"br0", "tap0", "tap1"}),
        ):
            probe.set(mode, **knobs)
            for device in host.devices:
                before, coming, going = host.counted("received", "left"), host.come(Flow(), device), host.own(Flow())
                probe.run("receive", coming)
                host.queued(going, device)
                host.sent(going, device)
                passed = [now - then for now, then in zip(host.counted("received", "left"), before, strict=True)]
                assert passed == [int(device in wanted)] * 2, (knobs, device)
    probe.set(host_devices="eth0 br0")
    skb = host.come(OF_TCP, "eth0")
    host.ran("receive", skb)
    wait(2)
    host.memory.change("sk_buff", skb, {"dev": host.devices["br0"]})
    host.ran("receive", skb)  # the upper device of the same packet: it began below
    host.ran("tcp", 0, skb)
    probe.read()
    (whole,) = [one for one in probe.histograms("crossing") if one["direction"] == "in"]
    assert (whole["from"], whole["to"], whole["count"]) == ("eth0", "tcp", 1) and whole["min"] > 2 * MS


@pytest.mark.proves("local_path", "knobs.events_per_s", "ledger.{suppressed,breaker,unlisted}")
def test_rows_and_events_keep_their_bounds(load: Load) -> None:
    probe = load(PROBE, TRACEPOINTS)
    host = Stack(probe)
    skb = host.come(Flow(), "eth0")
    calls = [probe.prepare("receive", skb), probe.prepare("ready", host.sock(UDP, queued=skb))]
    now = spend_time(probe, calls, spend_events(probe, calls))
    listed = probe.row("flows")["samples"]
    assert listed + now["unlisted"] == FEW + MANY
    assert sum(one["count"] for one in probe.histograms("crossing")) == listed
    assert now["seen"] == FEW + MANY == probe.counters()["delivered"]
