"""host_path on packets of the test's own: every way, every stage, and what becomes of those that do not cross."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.live.contexts.moments import Span, elapsed, lies, wait
from tests.support.live.contexts.packets import ETHERNET, ICMP, MTU, TCP, Flow
from tests.support.live.contexts.unattached import UnattachedProbe
from tests.support.live.contexts.ways import DIRECTIONS, FLOW6, WAYS, Crossing, Ways

PROBE = "host_path"
Load = Callable[..., UnattachedProbe]

TOOK_MS = (3.0, 1.5, 2.0)


@pytest.mark.proves(
    "host_path",
    "counters.{received,crossed,packets}",
    "histograms.{crossing,stages}",
    "histograms.crossing.{direction,from,to}",
    "histograms.stages.{direction,stage}",
    "tables.flows.{direction,source,target,packets,bytes,samples,latency_ns,latency_max_ns}",
)
def test_each_packet_takes_as_long_as_it_took_stage_by_stage(load: Load) -> None:
    """And the first program of each point is called once more, as for a driver that was busy: that is no packet."""
    probe = load(PROBE)
    host = Ways(probe)
    made = {
        way: [host.cross(flow, *way, TOOK_MS, by) for flow, by in ((Flow(), ""), (FLOW6, "veth0"))]
        for way in DIRECTIONS
    }
    long = host.cross(Flow(), "tap0", "eth0", (12, 0, 0), payload=400)
    skb = host.come(Flow(), "tap0")
    host.ran("receive", skb)
    again = [host.ran("send", skb, host.devices["eth0"]) for _ in range(3)]  # with no queue, and then no more
    assert len(again) == 3
    probe.read()
    assert probe.ledger() == {}
    assert counts(probe) == {"received": 10, "crossed": 10, "packets": 10}
    crossing = {(one["direction"], one["from"], one["to"]): one for one in probe.histograms("crossing")}
    assert crossing.keys() == {(direction, *way) for way, direction in DIRECTIONS.items()}
    stages = {(one["direction"], one["stage"]): one for one in probe.histograms("stages")}
    assert stages.keys() == {(way, stage) for way in DIRECTIONS.values() for stage in ("forward", "devices", "qdisc")}
    rows = {(row["direction"], row["source"], row["target"]): row for row in probe.rows("flows")}
    assert len(rows) == 8
    for way, direction in DIRECTIONS.items():
        v4, v6 = made[way]
        whole = crossing[direction, way[0], way[1]]
        assert stages[direction, "devices"]["count"] == 1
        assert lies(stages[direction, "devices"]["sum"], v6.devices)
        for (source, target), one in ((("192.0.2.1", "192.0.2.2"), v4), (("2001:db8::1", "2001:db8::2"), v6)):
            row = rows[direction, source, target]
            if direction == "out" and one is v4:
                continue
            assert (row["packets"], row["samples"], row["bytes"]) == (1, 1, ETHERNET + (48 if one is v4 else 68))
            assert lies(row["latency_ns"], one.total) and row["latency_max_ns"] == row["latency_ns"]
        if direction != "out":
            assert whole["count"] == stages[direction, "forward"]["count"] == stages[direction, "qdisc"]["count"] == 2
            assert lies(whole["sum"], v4.total, v6.total)
            assert lies(stages[direction, "forward"]["sum"], v4.forward, v6.forward)
            assert lies(stages[direction, "qdisc"]["sum"], v4.qdisc, v6.qdisc)
        assert sum(stages[direction, stage]["sum"] for stage in ("forward", "devices", "qdisc")) == whole["sum"]
    out = rows["out", "192.0.2.1", "192.0.2.2"]
    assert (out["packets"], out["samples"]) == (3, 3) and out["bytes"] == ETHERNET + 48 + ETHERNET + 428 + 48
    v4, v6 = made["tap0", "eth0"]
    assert lies(out["latency_max_ns"], slowest(v4, long))
    assert lies(crossing["out", "tap0", "eth0"]["max"], slowest(v4, v6, long))


@pytest.mark.proves("host_path", "counters.packets", "tables.flows.{packets,samples}", "events.slow.packets")
def test_what_was_merged_counts_as_the_packets_that_it_stands_for(load: Load) -> None:
    probe = load(PROBE)
    host = Ways(probe)
    probe.set("details", events_per_s=1e6)
    for flow, header in ((Flow(), 8), (FLOW6, 8), (Flow(source_port=9, protocol=TCP), 20)):
        for size in (2000, 2001):
            packet = bytearray(flow.packet(size + header - 8))
            if flow.protocol == TCP:
                packet[20 + 12] = 5 << 4
            skb = host.merged(host.come(flow, "tap0", packet=bytes(packet)), 1000)
            host.ran("receive", skb)
            host.ran("send", host.leaving(skb, host.devices["eth0"]), host.devices["eth0"])
    probe.read()
    assert [one["packets"] for one in probe.events()] == [2, 3] * 3
    assert [(row["packets"], row["samples"]) for row in probe.rows("flows")] == [(5, 2)] * 3
    assert (probe.counters()["crossed"], probe.counters()["packets"]) == (6, 15)


def slowest(*crossings: Crossing) -> Span:
    totals = [one.total for one in crossings]
    return max(low for low, _ in totals), max(high for _, high in totals)


def tcp(port: int, sequence: int, payload: int, v6: bool) -> bytes:
    flow = Flow("2001:db8::1", "2001:db8::2", port, 6, TCP) if v6 else Flow(source_port=port, protocol=TCP)
    packet = bytearray(flow.packet(payload + 12))
    at = 40 if v6 else 20
    packet[at + 4 : at + 8] = sequence.to_bytes(4, "big")
    packet[at + 12] = 5 << 4
    return bytes(packet)


@pytest.mark.proves("host_path", "counters.{segments,unmatched}", "ledger.join_missed")
@pytest.mark.parametrize("v6", [False, True])
def test_segments_of_a_packet_that_was_cut_after_it_was_queued_have_a_sample_each(load: Load, v6: bool) -> None:
    probe = load(PROBE)
    host = Ways(probe)
    flow, first, size = FLOW6 if v6 else Flow(), (1 << 32) - 1500, 1400  # sequence numbers wrap round
    packets = [tcp(1, first + number * size & 0xFFFFFFFF, size, v6) for number in range(3)]
    others = [
        tcp(1, first + 3 * size + 200 & 0xFFFFFFFF, size, v6),
        tcp(1, first - 1, size, v6),
        tcp(2, first, size, v6),
    ]
    whole = host.come(flow, "tap0", packet=tcp(1, first, 3 * size, v6))
    host.ran("receive", whole)
    host.ran("queue", host.leaving(whole, host.devices["eth0"]))
    for packet in packets:
        skb = host.leaving(host.come(flow, "tap0", packet=packet), host.devices["eth0"])
        host.ran("send", skb, host.devices["eth0"])
    assert host.counted("crossed", "unmatched") == [3, 0]
    for packet in others:
        skb = host.leaving(host.come(flow, "tap0", packet=packet), host.devices["eth0"])
        host.ran("send", skb, host.devices["eth0"])
    longest = MTU + ETHERNET + 4 - (60 if v6 else 40) - ETHERNET  # with a tag: it need not be cut
    for more, crossed in ((0, 3), (1, 4)):
        whole = host.come(flow, "tap0", packet=tcp(9, 1, longest + more, v6))
        host.ran("receive", whole)
        host.ran("queue", host.leaving(whole, host.devices["eth0"]))
        skb = host.leaving(host.come(flow, "tap0", packet=tcp(9, 1, size, v6)), host.devices["eth0"])
        host.ran("send", skb, host.devices["eth0"])
        assert host.counted("crossed") == [crossed]
    elsewhere = host.leaving(host.come(flow, "tap0", packet=packets[0]), host.devices["eth1"])
    host.ran("send", elsewhere, host.devices["eth1"])
    probe.read()
    counters = probe.counters()
    assert (counters["segments"], counters["crossed"], counters["packets"], counters["unmatched"]) == (4, 4, 4, 5)
    assert probe.ledger() == {"join_missed": 5}


@pytest.mark.proves(
    "host_path",
    "events.slow.{mono_ns,from,to,direction,source,target,source_port,target_port,protocol,vlan,total_ns,length_bytes}",
    "events.slow.{packets,forward_ns,devices_ns,qdisc_ns}",
    "knobs.threshold_us",
    "modes.{summary,details}",
    "counters.slow",
    "tables.flows.slow",
)
def test_an_event_is_the_packet_that_was_slow(load: Load) -> None:
    probe = load(PROBE)
    host = Ways(probe)
    probe.set("details", threshold_us=5000, events_per_s=1e6)
    tagged = Flow(vlan=42)
    slow = [
        host.cross(tagged, "eth0", "tap1", (1, 1, 4), by="veth0", payload=100),
        host.cross(FLOW6, "tap0", "eth0", (5.2, 0, 0)),
    ]
    while not host.cross(Flow(source_port=9), "tap0", "eth0", (4.1, 0, 0)).total[1] < 5_000_000:
        pass  # the machine took its time
    probe.set(threshold_us=5000, events_per_s=1e6)
    host.cross(FLOW6, "tap0", "eth0", (5.2, 0, 0))  # in mode summary
    probe.read()
    events = [one for one in probe.events() if one["source_port"] != 9]
    for one, flow, crossing, ends, length in zip(
        events, (tagged, FLOW6), slow, (("in", "eth0", "tap1"), ("out", "tap0", "eth0")), (128, 68), strict=True
    ):
        assert (one["direction"], one["from"], one["to"]) == ends
        assert (one["source"], one["source_port"]) == (flow.source, flow.source_port)
        assert (one["target"], one["target_port"]) == (flow.target, flow.target_port)
        assert (one["vlan"], one["protocol"], one["packets"]) == (flow.vlan, "UDP", 1)
        assert one["length_bytes"] == ETHERNET + length
        assert lies(one["mono_ns"], crossing.sent) and lies(one["total_ns"], crossing.total)
        assert lies(one["forward_ns"], crossing.forward) and lies(one["qdisc_ns"], crossing.qdisc)
        assert lies(one["devices_ns"], crossing.devices if flow is tagged else (0, 0))
        assert one["lookup_ns"] == one["upcall_ns"] == one["actions_ns"] == one["ct_ns"] == 0
        assert one["forward_ns"] + one["devices_ns"] + one["qdisc_ns"] == one["total_ns"]
    rows = {row["source"]: row["slow"] for row in probe.rows("flows") if row["source_port"] != 9}
    assert rows == {"192.0.2.1": 1, "2001:db8::1": 2}
    not_in_time = len(probe.events()) - 2  # of those that the machine delayed
    assert probe.counters()["slow"] == 3 + not_in_time
    assert probe.counters()["crossed"] > 3 + not_in_time


@pytest.mark.proves(
    "host_path", "counters.{reused,evicted,exchanged,unmatched,from_host}", "ledger.{join_missed,parse_failed}"
)
def test_what_does_not_cross_is_counted_by_what_became_of_it(load: Load) -> None:
    probe = load(PROBE)
    host = Ways(probe)
    eth0 = host.devices["eth0"]
    skb = host.come(Flow(), "tap0")
    probe.run("receive", skb)
    probe.run("receive", skb)  # it was delivered, and the next packet is at its address
    assert counts(probe) == {"received": 2, "reused": 1}
    sent = host.come(Flow(), "tap0")
    probe.run("send", sent, eth0)  # received before the probe was there
    foreign = host.come(Flow(), "veth0")
    probe.run("send", foreign, eth0)  # from a device of no set
    own = host.come(Flow(), "tap0")
    host.memory.change("sk_buff", own, {"skb_iif": 0})
    probe.run("send", own, eth0)
    assert counts(probe) == {"received": 2, "reused": 1, "unmatched": 2, "from_host": 1}
    assert probe.ledger() == {"join_missed": 1}
    probe.run("receive", host.come(Flow(), "tap0"))
    for came, number in (("tap0", 2), ("veth0", 3)):
        packet = bytearray(Flow().packet())
        skb = host.come(Flow(), "tap0")
        probe.run("receive", skb)
        packet[5] = number  # its identification: another packet
        head, data = host.memory.pointers("sk_buff", skb, "head", "data")
        assert data > head
        host.memory.put(data, bytes(packet))
        host.memory.change("sk_buff", skb, {"skb_iif": host.index[came]})
        probe.run("send", skb, eth0)
    assert counts(probe) == {"received": 5, "reused": 1, "unmatched": 2, "from_host": 1, "exchanged": 2}
    assert probe.ledger() == {"join_missed": 2}

    first, *others = crowd = host.crowd(host.come(Flow(), "tap0"))
    for skb in crowd:
        probe.run("receive", skb)
    for skb in (first, *others):  # the one that was longest on its way went
        probe.run("send", skb, eth0)
    found = counts(probe)
    assert (found["received"], found["evicted"], found["crossed"]) == (5 + WAYS + 1, 1, WAYS)
    for broken in (b"\x55" + Flow().packet()[1:], Flow().packet()[:12]):
        probe.run("receive", host.come(Flow(), "tap0", packet=broken))
    probe.read()
    assert probe.ledger() == {"join_missed": 3, "parse_failed": 2}


@pytest.mark.proves("host_path", "counters.{copies,crossed}", "histograms.crossing.{direction,to}")
def test_copies_of_the_packet_that_was_received_last_are_followed(load: Load) -> None:
    probe = load(PROBE)
    host = Ways(probe)
    for flow in (Flow(), FLOW6):
        host.ran("receive", host.come(flow, "tap1"))
        other = host.come(Flow(source_port=7), "tap0", packet=b"\x45" + bytes(19))
        host.ran("receive", other)
        skb = host.come(flow, "tap0")
        received = host.ran("receive", skb)
        strange = host.come(flow, "tap0", packet=Flow(source_port=7, protocol=TCP).packet())
        host.ran("queue", strange)  # on this CPU as well, and another packet
        wait(2)
        copy = host.leaving(host.come(flow, "tap0"), host.devices["tap1"])
        host.ran("queue", copy)
        first = host.ran("send", copy, host.devices["tap1"])
        host.ran("queue", host.leaving(skb, host.devices["eth0"]))
        second = host.ran("send", skb, host.devices["eth0"])
        assert received[1] < first[0] < second[0]
    probe.set(port=5)
    host.ran("receive", host.come(Flow(), "tap0"))  # not wanted: nor are its copies
    late = host.come(FLOW6, "tap0")
    host.ran("queue", late)
    found = counts(probe)
    assert (found["copies"], found["crossed"]) == (2, 4)
    crossing = {(one["direction"], one["to"]): one for one in probe.histograms("crossing")}
    assert {key: one["count"] for key, one in crossing.items()} == {("within", "tap1"): 2, ("out", "eth0"): 2}
    assert all(one["min"] > 2_000_000 for one in crossing.values())


@pytest.mark.proves("host_path", "counters.{crossed,from_host}", "events.slow.devices_ns")
def test_a_packet_that_a_tunnel_has_taken_is_still_the_same(load: Load) -> None:
    """It looks like one of the host's own then. One that looks so before it was queued is one of those."""
    probe = load(PROBE)
    host = Ways(probe)
    probe.set("details", events_per_s=1e6)
    for queues in (True, False):
        skb = host.come(Flow(), "tap0")
        host.ran("receive", skb)
        first = host.ran("queue", host.leaving(skb, host.devices["veth0"])) if queues else (0, 0)
        host.memory.change("sk_buff", skb, {"skb_iif": 0, "dev": host.devices["eth0"]})
        wait(1)
        last = host.ran("queue", skb)
        host.ran("send", skb, host.devices["eth0"])
        if queues:
            took = elapsed(first, last)
    assert counts(probe) == {"received": 2, "crossed": 1, "packets": 1, "from_host": 1}
    (event,) = probe.events()
    assert lies(event["devices_ns"], took)


def counts(probe: UnattachedProbe) -> dict[str, int]:
    """Counters that are not 0."""
    probe.read()
    return {name: count for name, count in probe.counters().items() if count}


@pytest.mark.proves("host_path", "ledger.map_full")
@pytest.mark.parametrize(("table", "lost"), [("flows", 2), ("crossing", 1), ("stages", 1)])
def test_what_finds_no_room_is_counted(load: Load, table: str, lost: int) -> None:
    probe = load(PROBE, **{table: 1})
    host = Ways(probe)
    if table == "flows":
        for flow in (Flow(), Flow(source_port=9), Flow(protocol=ICMP)):
            host.cross(flow, "tap0", "eth0")
    elif table == "crossing":
        for device in ("tap0", "tap1"):
            host.cross(Flow(), device, "eth0")
    else:
        host.cross(Flow(), "tap0", "eth0")  # it has two stages
    probe.read()
    assert probe.ledger() == {"map_full": lost}
