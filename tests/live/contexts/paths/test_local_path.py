"""local_path on packets of the test's own: from the device to a socket, from a socket to the device."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

from tests.support.live.contexts.moments import MS, Span, elapsed, lies, wait
from tests.support.live.contexts.packets import ETHERNET, ICMP, TCP, UDP, Flow
from tests.support.live.contexts.stack import OF_TCP, OF_TCP6, Stack
from tests.support.live.contexts.unattached import UnattachedProbe
from tests.support.live.contexts.ways import FLOW6, WAYS

PROBE = "local_path"
Load = Callable[..., UnattachedProbe]

TRACEPOINTS = {"ready": "on_ready"}
FUNCTIONS = {"ready": "on_ready_function", "made4": "on_made", "made6": "on_made"}
AF_PACKET = 17
LOOPBACK = 1
"""The index of lo in each network namespace."""
ANOTHER = Flow().packet()[:5] + b"\x09" + Flow().packet()[6:]
"""It has another identification."""
FRAGMENT = Flow().packet(108)[:6] + bytes((0, 185)) + Flow().packet(108)[8:]
"""From byte 1480 of a datagram on."""


def since(stamp: int, moment: Span) -> Span:
    return moment[0] - stamp, moment[1] - stamp


@pytest.mark.proves(
    "local_path",
    "counters.{received,delivered,packets}",
    "histograms.crossing",
    "histograms.crossing.{direction,from,to}",
    "tables.flows.{packets,bytes,samples,latency_ns,latency_max_ns}",
    "tables.flows.{direction,source,target,source_port,target_port,protocol,vlan}",
)
@pytest.mark.parametrize("functions", [TRACEPOINTS, FUNCTIONS])
def test_what_comes_in_is_timed_from_its_device_to_its_socket(load: Load, functions: dict[str, str]) -> None:
    probe = load(PROBE, functions)
    host = Stack(probe)
    times: dict[tuple[str, str], list[Span]] = {}
    flows = (OF_TCP, OF_TCP6, Flow(vlan=42), FLOW6, Flow(protocol=ICMP))
    for flow in flows:
        skb = host.come(flow, "eth0")
        received = host.ran("receive", skb)
        others = host.sock(99, queued=host.come(Flow(protocol=99), "veth0")), host.sock(TCP, queued=skb)
        for sock in (host.sock(flow.protocol, AF_PACKET, skb), *others):
            probe.run("ready", sock)  # of others: packet sockets, raw ones; TCP tells later
        wait(3)
        if flow.protocol == TCP:
            ended = host.ran("tcp", 0, skb)
            probe.run("tcp", 0, skb)
        else:
            family = socket.AF_INET if flow.ethertype == 0x0800 else socket.AF_INET6
            ended = host.ready(skb, flow.protocol, family)
            if flow.protocol != UDP:  # another raw socket gets it, too
                host.ready(skb, flow.protocol, family)
        times[flow.source, "tcp" if flow.protocol == TCP else "datagram"] = [
            *times.get((flow.source, "tcp" if flow.protocol == TCP else "datagram"), []),
            elapsed(received, ended),
        ]
    merged = host.merged(host.come(Flow(vlan=42), "eth0", payload=2001), 1000)
    received = host.ran("receive", merged)
    wait(1)
    longer = elapsed(received, host.ready(merged))
    probe.read()
    counters = {name: count for name, count in probe.counters().items() if count}
    assert counters == {"received": 6, "delivered": 6, "packets": 8} and probe.ledger() == {}
    crossing = {(one["direction"], one["from"], one["to"]): one for one in probe.histograms("crossing")}
    assert crossing.keys() == {("in", "eth0", "tcp"), ("in", "eth0", "datagram")}
    for (_, _, kind), one in crossing.items():
        spans = [span for (_, other), some in times.items() if other == kind for span in some]
        assert one["count"] == len(spans) + (kind == "datagram")
        assert lies(one["sum"], *spans, *([longer] if kind == "datagram" else []))
    assert probe.histograms("stages") == []
    rows = {row["source"] if row["protocol"] != "ICMP" else "ICMP": row for row in probe.rows("flows")}
    assert len(rows) == len(flows)
    for flow, words in zip(flows, ("TCP", "TCP", "UDP", "UDP", "ICMP"), strict=True):
        row = rows[flow.source if words != "ICMP" else "ICMP"]
        assert (row["direction"], row["source"], row["target"]) == ("in", flow.source, flow.target)
        ports = (flow.source_port, flow.target_port) if words != "ICMP" else (0, 0)
        assert (row["source_port"], row["target_port"], row["protocol"], row["vlan"]) == (*ports, words, flow.vlan)
        assert row["latency_max_ns"] <= row["latency_ns"]
        if flow.vlan:
            assert (row["packets"], row["samples"], row["bytes"]) == (4, 2, 48 + 2029)
            continue
        assert (row["packets"], row["samples"], row["bytes"]) == (1, 1, 68 if ":" in flow.source else 48)
        assert any(lies(row["latency_max_ns"], span) for some in times.values() for span in some)
        assert row["latency_max_ns"] == row["latency_ns"]


@pytest.mark.proves(
    "local_path",
    "counters.{left,packets}",
    "histograms.{crossing,stages}",
    "histograms.crossing.{direction,from,to}",
    "histograms.stages.{direction,stage}",
    "events.slow.{mono_ns,from,to,direction,source,target,source_port,target_port,protocol,vlan,total_ns,length_bytes}",
    "events.slow.{packets,stack_ns,devices_ns,qdisc_ns}",
)
@pytest.mark.parametrize("functions", [TRACEPOINTS, FUNCTIONS])
def test_what_goes_out_is_timed_from_its_socket_to_its_device(load: Load, functions: dict[str, str]) -> None:
    probe = load(PROBE, functions)
    host = Stack(probe)
    probe.set("details", events_per_s=1e6)
    ways: list[tuple[Flow, str, Span, Span, Span, Span, int]] = []
    for flow in (OF_TCP, OF_TCP6, Flow(vlan=42), FLOW6):
        skb = host.own(flow)
        made: Span | None = None
        if flow.protocol == TCP:
            if "made4" in functions:
                host.ran("made4" if flow is OF_TCP else "made6", 0, host.owner(skb), skb)
                wait(1)
            stamp = host.stamped(skb)  # it brings its own time along
            made = stamp, stamp
        elif "made4" in functions:
            name = "made4" if flow.ethertype == 0x0800 else "made6"
            made = host.ran(name, 0, host.owner(skb), skb)
        wait(2)
        first = last = host.queued(skb, "veth0" if flow.vlan or flow is OF_TCP6 else "eth0")
        if flow.vlan or flow is OF_TCP6:
            wait(1.5)
            last = host.queued(skb)
        wait(3)
        sent = host.sent(skb)
        probe.run("send", skb, host.devices["eth0"])  # the driver was busy
        kind = "tcp" if flow.protocol == TCP else "datagram" if made else "queue"
        ways.append((flow, kind, made or first, first, last, sent, ETHERNET + (68 if ":" in flow.source else 48)))
    probe.read()
    counters = {name: count for name, count in probe.counters().items() if count}
    assert counters == {"left": 4, "packets": 4}
    sums: dict[str, list[Span]] = {}
    for event, (flow, kind, made, first, last, sent, length) in zip(probe.events(), ways, strict=True):
        assert (event["from"], event["to"], event["direction"]) == (kind, "eth0", "out")
        assert (event["source"], event["source_port"]) == (flow.source, flow.source_port)
        assert (event["target"], event["target_port"]) == (flow.target, flow.target_port)
        assert (event["protocol"], event["vlan"]) == ("TCP" if kind == "tcp" else "UDP", flow.vlan)
        assert (event["length_bytes"], event["packets"]) == (length, 1)
        took = {
            "stack": (0, 0) if kind == "queue" else elapsed(made, first),
            "devices": (0, 0) if first is last else elapsed(first, last),
            "qdisc": elapsed(last, sent),
        }
        for stage, span in took.items():
            assert lies(event[f"{stage}_ns"], span), (flow, stage)
            if span != (0, 0):
                sums.setdefault(stage, []).append(span)
        assert event["stack_ns"] + event["devices_ns"] + event["qdisc_ns"] == event["total_ns"]
        assert lies(event["mono_ns"], sent)
    stages = {(one["direction"], one["stage"]): one for one in probe.histograms("stages")}
    assert {stage: one["count"] for (_, stage), one in stages.items()} == {name: len(one) for name, one in sums.items()}
    for (direction, stage), one in stages.items():
        assert direction == "out" and lies(one["sum"], *sums[stage])
    crossing = {(one["direction"], one["from"], one["to"]): one for one in probe.histograms("crossing")}
    kinds = {kind for _, kind, *_ in ways}
    assert crossing.keys() == {("out", kind, "eth0") for kind in kinds}
    for (_, kind, _), one in crossing.items():
        spans = [elapsed(made, sent) for _, other, made, _, _, sent, _ in ways if other == kind]
        assert one["count"] == len(spans) and lies(one["sum"], *spans)


@pytest.mark.proves("local_path", "counters.left", "histograms.crossing", "tables.flows.{packets,direction,samples}")
def test_segments_that_were_cut_before_the_driver_are_timed_by_their_stamp(load: Load) -> None:
    probe = load(PROBE, TRACEPOINTS)
    host = Stack(probe)
    spans = []
    for payload in (20, 21):
        segment = host.own(OF_TCP, payload=payload)
        stamp = host.stamped(segment)
        wait(3)
        spans.append(since(stamp, host.sent(segment)))
    for stamp in (0, time.monotonic_ns() - 10_001 * MS, time.monotonic_ns() + 15_000 * MS):
        other = host.own(OF_TCP)
        host.memory.change("sk_buff", other, {"tstamp": stamp})  # nobody's, or of another clock
        host.sent(other)
    datagram = host.own(Flow())
    host.stamped(datagram)
    host.sent(datagram)
    recent = host.own(OF_TCP)
    host.memory.change("sk_buff", recent, {"tstamp": time.monotonic_ns() - 9000 * MS})
    old = since(time.monotonic_ns() - 9000 * MS, host.sent(recent))
    early = host.own(OF_TCP)
    host.memory.change("sk_buff", early, {"tstamp": time.monotonic_ns() + 5000 * MS})  # a pacing socket's
    host.sent(early)
    probe.read()
    assert {name: count for name, count in probe.counters().items() if count} == {"left": 4, "packets": 4}
    (one,) = probe.histograms("crossing")
    assert (one["from"], one["count"], one["min"]) == ("tcp", 4, 0)
    assert lies(one["sum"] - one["max"], *spans) and 9_000 * MS <= one["max"] <= old[1] + 1000 * MS
    (row,) = probe.rows("flows")
    assert (row["packets"], row["samples"], row["direction"]) == (4, 4, "out") and probe.histograms("stages") == []


@pytest.mark.proves(
    "local_path", "counters.{reused,evicted,exchanged,received,delivered,left}", "ledger.{parse_failed,map_full}"
)
def test_what_does_not_arrive_is_counted_by_what_became_of_it(load: Load) -> None:
    probe = load(PROBE, TRACEPOINTS, flows=1)
    host = Stack(probe)
    skb = host.come(OF_TCP, "eth0")
    probe.run("receive", skb)
    probe.run("receive", skb)  # the first one was forwarded or dropped
    (data,) = host.memory.pointers("sk_buff", skb, "data")
    packet = bytearray(OF_TCP.packet())
    packet[5] = 9  # another identification
    host.memory.put(data, bytes(packet))
    probe.run("tcp", 0, skb)
    assert host.counted("received", "delivered", "reused", "exchanged") == [2, 0, 1, 1]
    without_sock, received = host.own(Flow()), host.own(Flow())
    host.memory.change("sk_buff", without_sock, {"sk": 0})  # the kernel's own
    host.memory.change("sk_buff", received, {"skb_iif": 5})  # forwarded
    for other in (without_sock, received):
        host.queued(other)
        host.sent(other)
    assert host.counted("left") == [0]
    probe.run("receive", host.come(Flow(), "eth0"))
    probe.set(port=7)
    kept_out = host.come(Flow(), "eth0")
    probe.run("receive", kept_out)
    host.ready(kept_out)
    assert host.counted("delivered") == [0]
    probe.set()
    first, *others = crowd = host.crowd(host.come(OF_TCP, "eth0"))
    for one in crowd:
        probe.run("receive", one)
    for one in (first, *others):
        probe.run("tcp", 0, one)
    assert host.counted("evicted", "delivered") == [1, WAYS]
    for broken in (b"\x55" + Flow().packet()[1:], Flow().packet()[:12]):
        probe.run("receive", host.come(Flow(), "eth0", packet=broken))
    probe.read()
    assert probe.ledger() == {"parse_failed": 2}
    for flow in (OF_TCP, OF_TCP6, Flow(source_port=9)):
        skb = host.come(flow, "eth0")
        probe.run("receive", skb)
        probe.run(*(("tcp", 0, skb) if flow.protocol == TCP else ("ready", host.sock(UDP, queued=skb))))
    probe.read()
    assert probe.ledger() == {"parse_failed": 2, "map_full": 2}


@pytest.mark.proves("local_path", "counters.{reused,left}", "histograms.crossing.from", "tables.flows.latency_ns")
@pytest.mark.parametrize("later", ["tcp", "frame", "past the queue", "kept out"])
def test_a_datagram_that_came_to_no_queue_gives_its_start_to_no_other_packet(load: Load, later: str) -> None:
    """IP's filter dropped it, or it waits for its neighbour; its sk_buff is that of another packet then."""
    probe = load(PROBE, FUNCTIONS)
    host = Stack(probe)
    skb = host.own(Flow())
    probe.run("made4", 0, host.owner(skb), skb)
    wait(30)
    if later == "kept out":
        probe.set(port=7)
        probe.run("queue", skb)
        probe.set()
        host.gone(skb, host.own(Flow()))
        probe.run("made4", 0, host.owner(skb), skb)
        assert host.counted("reused") == [0], "the first one was never followed"
        return
    host.gone(skb, host.own(OF_TCP if later == "tcp" else Flow(source_port=68)))
    if later == "tcp":
        probe.run("made4", 0, host.owner(skb), skb)
        stamp = host.stamped(skb)
        began: Span = (stamp, stamp)
        host.queued(skb)
    elif later == "frame":  # of a packet socket: it does not come by IP
        began = host.queued(skb)
    wait(2)
    sent = host.sent(skb)
    probe.read()
    if later == "past the queue":  # a packet socket may do without
        assert host.counted("left") == [0] and probe.rows("flows") == []
        return
    assert host.counted("left", "reused") == [1, 1]
    (crossing,) = probe.histograms("crossing")
    assert crossing["from"] == ("tcp" if later == "tcp" else "queue")
    assert lies(crossing["sum"], elapsed(began, sent))


@pytest.mark.proves("local_path", "counters.{reused,left}", "histograms.crossing.from", "histograms.stages.stage")
def test_a_tunnel_s_socket_does_not_begin_the_packet_anew_that_it_carries(load: Load) -> None:
    """IP gets it twice: from its socket, and from that of the kernel's tunnel, inside a datagram."""
    probe = load(PROBE, FUNCTIONS)
    host = Stack(probe)
    skb = host.own(Flow())
    made = host.ran("made4", 0, host.owner(skb), skb)
    wait(2)
    first = host.queued(skb, "veth0")
    wait(3)
    probe.run("made4", 0, host.sock(UDP), skb)
    last = host.queued(skb)
    sent = host.sent(skb)
    probe.read()
    assert host.counted("left", "reused") == [1, 0]
    (crossing,) = probe.histograms("crossing")
    assert crossing["from"] == "datagram" and lies(crossing["sum"], elapsed(made, sent))
    stages = {one["stage"]: one["sum"] for one in probe.histograms("stages")}
    assert lies(stages["stack"], elapsed(made, first)) and lies(stages["devices"], elapsed(first, last))


@pytest.mark.proves("local_path", "counters.delivered", "tables.flows.{source_port,latency_ns}")
@pytest.mark.parametrize("functions", [TRACEPOINTS, FUNCTIONS])
@pytest.mark.parametrize("protocol", [UDP, ICMP, 89])
def test_packets_that_come_in_a_list_are_timed_each_for_itself(
    load: Load, functions: dict[str, str], protocol: int
) -> None:
    """NAPI hands up a list: all of it is received before the first one comes to its socket."""
    probe = load(PROBE, functions)
    host = Stack(probe)
    flows = [Flow(f"192.0.2.{number}", source_port=number, protocol=protocol) for number in (11, 12, 13)]
    packets, times = [host.come(flow, "eth0") for flow in flows], {}
    for flow, skb in zip(flows, packets, strict=True):
        times[flow.source] = host.ran("receive", skb)
        wait(3)
    for flow, skb in zip(flows[:2], packets, strict=False):  # the last one is forwarded
        times[flow.source] = elapsed(times[flow.source], host.ready(skb, protocol))
        wait(1)
    probe.read()
    assert host.counted("received", "delivered") == [3, 2] and probe.ledger() == {}
    rows = {row["source"]: row["latency_ns"] for row in probe.rows("flows")}
    assert rows.keys() == {flow.source for flow in flows[:2]}
    assert all(lies(took, times[source]) for source, took in rows.items())


@pytest.mark.proves("local_path", "counters.{delivered,reused,exchanged}", "ledger.join_missed")
def test_a_datagram_of_no_device_of_the_set_ends_no_other_s_way(load: Load) -> None:
    probe = load(PROBE, TRACEPOINTS)
    host = Stack(probe)
    probe.run("receive", host.come(Flow(), "eth0"))
    skb = host.come(Flow(source_port=53), "veth0")
    probe.run("receive", skb)
    host.ready(skb)
    probe.run("ready", host.sock(UDP))
    assert host.counted("received", "delivered") == [1, 0]
    for index, name in ((LOOPBACK, "reused"), (host.index["veth0"], "exchanged")):
        followed = host.come(Flow(), "eth0")
        probe.run("receive", followed)  # it is forwarded, say, and its sk_buff that of another packet then
        host.gone(followed, host.come(Flow(), "veth0", packet=ANOTHER))
        host.memory.change("sk_buff", followed, {"skb_iif": index})
        before = host.counted(name)
        host.ready(followed)
        host.ready(followed)
        assert host.counted(name) == [before[0] + 1]
    probe.read()
    assert host.counted("delivered") == [0] and probe.rows("flows") == [] and probe.ledger() == {}


@pytest.mark.proves("local_path", "counters.delivered", "ledger.join_missed")
@pytest.mark.parametrize("functions", [TRACEPOINTS, FUNCTIONS])
def test_a_datagram_that_cannot_be_told_is_in_the_ledger(load: Load, functions: dict[str, str]) -> None:
    probe = load(PROBE, functions)
    host = Stack(probe)
    followed = host.come(Flow(source_port=1), "eth0")
    probe.run("receive", followed)
    probe.run("ready", host.sock(UDP, reading=followed))  # its reader has seen it, and not taken it
    assert host.counted("delivered") == [1]
    missed = 0
    probe.run("ready", host.sock(UDP))  # nothing was received since
    for queue in (0, followed):  # its reader has taken it; a packet of another CPU came after it
        probe.run("receive", host.come(Flow(source_port=2), "eth0"))
        probe.run("ready", host.sock(UDP, queued=queue))
        missed += 1
        probe.read()
        assert probe.ledger() == {"join_missed": missed}
    merged = host.merged(host.come(Flow(source_port=3), "eth0", payload=2001), 1000)
    probe.run("receive", merged)
    for _ in range(3):  # its socket takes no merged ones
        host.ready(host.come(Flow(source_port=3), "eth0", payload=1000))
    clones = host.come(Flow(source_port=4), "eth0")
    probe.run("receive", clones)
    host.ready(host.copy(clones))  # all sockets of a multicast group but one get a copy
    host.ready(clones)
    probe.read()
    assert probe.ledger() == {"join_missed": missed + 1}
    assert {row["source_port"] for row in probe.rows("flows")} == {1, 4} and host.counted("delivered") == [2]


@pytest.mark.proves("local_path", "counters.{delivered,exchanged}", "tables.flows.{source_port,bytes}")
def test_a_datagram_of_fragments_is_timed_from_its_last_one(load: Load) -> None:
    """The kernel puts it together in the sk_buff of that, with the headers of the first one."""
    probe = load(PROBE, TRACEPOINTS)
    host = Stack(probe)
    whole = Flow().packet(1600)
    begin = bytearray(whole[:1500])
    begin[6] = 0x20  # more of them come
    probe.run("receive", host.come(Flow(), "eth0", packet=bytes(begin)))
    wait(2)
    skb = host.come(Flow(), "eth0", packet=FRAGMENT)
    received = host.ran("receive", skb)
    wait(1)
    host.gone(skb, host.come(Flow(), "eth0", packet=whole))
    ended = host.ready(skb)
    probe.read()
    row = probe.row("flows")
    assert (row["source_port"], row["bytes"]) == (Flow().source_port, len(whole)) and host.counted("exchanged") == [0]
    assert lies(row["latency_ns"], elapsed(received, ended))


@pytest.mark.proves("local_path", "tables.flows.{bytes,vlan}")
def test_a_datagram_has_the_length_and_the_tag_that_it_came_with(load: Load) -> None:
    """Its headers have been pulled when its socket gets it, and its tag is gone."""
    probe = load(PROBE, TRACEPOINTS)
    host = Stack(probe)
    skb = host.come(Flow(vlan=42), "eth0")
    probe.run("receive", skb)
    data, length = host.memory.pointers("sk_buff", skb, "data", "len")
    host.memory.change("sk_buff", skb, {"data": data + 28, "len": length - 28, "vlan_tci": 0})
    host.ready(skb)
    probe.read()
    row = probe.row("flows")
    assert (row["bytes"], row["vlan"]) == (length, 42)
