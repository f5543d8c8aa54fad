"""tx_queue_latency on packets of the test's own: each wait, each end of it, and what is lost."""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Callable

import pytest

from tests.support.live.contexts.budgets import FEW, MANY, spend_events, spend_time
from tests.support.live.contexts.filters import BY_FRAME, FILTERS, FLOWS, FRAMES, NETNS, OTHER_NETNS
from tests.support.live.contexts.memory import place_of
from tests.support.live.contexts.moments import Span, lies, wait
from tests.support.live.contexts.packets import TCP, Flow, MadeUpHost
from tests.support.live.contexts.unattached import UnattachedProbe

PROBE = "tx_queue_latency"
Load = Callable[..., UnattachedProbe]

GOLDEN = 0x9E3779B97F4A7C15
WAYS = 4
OK, DROPPED, BUSY, NO_BUFFERS = 0, 1, 0x10, -105


class Queues(MadeUpHost):
    """A shaped device, one with a queue for each of its own (mq), and one that does not queue."""

    def __init__(self, probe: UnattachedProbe) -> None:
        super().__init__(probe.memory)
        self.probe = probe
        self.shaped = self.device("eth0", self.net(NETNS), 2)
        self.discipline(self.shaped, enqueues=True)
        self.many = self.device("eth1", self.net(OTHER_NETNS), 3)
        self.discipline(self.many, enqueues=False, of_queue=False)
        self.none = self.device("veth0", self.net(NETNS), 4)

    def queued(self, skb: int) -> tuple[int, int]:
        """Between which moments its wait began."""
        before = time.monotonic_ns()
        self.probe.run("queued", skb)
        return before, time.monotonic_ns()

    def sent(self, skb: int, device: int, began: tuple[int, int]) -> tuple[int, int]:
        """Between which bounds its wait lies."""
        before = time.monotonic_ns()
        self.probe.run("sent", skb, device)
        return before - began[1], time.monotonic_ns() - began[0]


@pytest.mark.proves(
    "tx_queue_latency",
    "counters.{queued,sent,dropped}",
    "histograms.wait",
    "histograms.wait.{device,netns,queue}",
    "tables.dropped.{device,netns,queue,count}",
)
def test_each_packet_waits_as_long_as_it_waited(load: Load) -> None:
    probe = load(PROBE)
    host = Queues(probe)
    shaped = [host.packet(Flow(), host.shaped) for _ in range(3)]
    many = [host.packet(Flow(), host.many, {"queue_mapping": 5}) for _ in range(2)]
    began = [host.queued(skb) for skb in (*shaped, *many)]
    passing = host.packet(Flow(), host.none)
    host.queued(passing)
    probe.run("sent", passing, host.none)
    probe.run("freed", passing)
    wait(4)
    first = host.sent(shaped[0], host.shaped, began[0])
    wait(3)
    second = host.sent(shaped[1], host.shaped, began[1])
    third = host.sent(many[0], host.many, began[3])
    for skb in (shaped[2], many[1], shaped[2]):  # the last one waits no more
        probe.run("freed", skb)
    probe.run("sent", shaped[0], host.shaped)
    probe.read()
    assert probe.counters() == {"queued": 5, "sent": 3, "dropped": 2}
    found = {(one["device"], one["netns"], one["queue"]): one for one in probe.histograms("wait")}
    assert found.keys() == {("eth0", str(NETNS), 0), ("eth1", str(OTHER_NETNS), 5)}
    waits = found["eth0", str(NETNS), 0]
    assert waits["count"] == 2 and lies(waits["sum"], first, second)
    assert lies(waits["min"], first) and lies(waits["max"], second)
    waits = found["eth1", str(OTHER_NETNS), 5]
    assert waits["count"] == 1 and lies(waits["sum"], third)
    rows = {(one["device"], one["netns"], one["queue"]): one["count"] for one in probe.rows("dropped")}
    assert rows == {("eth0", str(NETNS), 0): 1, ("eth1", str(OTHER_NETNS), 5): 1}
    assert probe.ledger() == {}


LEAVES = {f"leaf_{kind}": "leaf" for kind in ("pfifo", "bfifo", "fq_codel")}


@pytest.mark.proves("tx_queue_latency", "histograms.wait.tc_class", "tables.dropped.tc_class", "events.wait.tc_class")
def test_in_details_a_wait_is_that_of_the_class_whose_leaf_had_the_packet(load: Load) -> None:
    probe = load(PROBE, LEAVES)
    host = Queues(probe)
    probe.set("details", events_per_s=1e6)
    classes = {"1:10": 0x10010, "1:2f": 0x1002F, "": 0xFFFFFFFF}
    leaves = {name: host.memory.make("Qdisc", {"parent": number}) for name, number in classes.items()}
    none = host.memory.make("Qdisc", {"parent": 0})
    skb = host.packet(Flow(), host.shaped)
    waits: dict[str, list[Span]] = {}
    for program, name in zip((*LEAVES, "leaf_pfifo"), ("1:10", "1:2f", "", "1:10"), strict=True):
        began = host.queued(skb)
        probe.run(program, skb, leaves[name])
        wait(2)
        waits.setdefault(name, []).append(host.sent(skb, host.shaped, began))
    for name in ("1:10", ""):
        host.queued(skb)
        probe.run("leaf_pfifo", skb, leaves["1:2f"])  # and in that leaf there is another one
        probe.run("leaf_fq_codel", skb, leaves[name] if name else none)
        probe.run("freed", skb)
    probe.run("leaf_pfifo", skb, leaves["1:10"])  # it does not wait
    host.queued(skb)
    waits.setdefault("", []).append(host.sent(skb, host.shaped, (time.monotonic_ns(),) * 2))
    probe.read()
    found = {one["tc_class"]: (one["count"], one["sum"]) for one in probe.histograms("wait")}
    assert {name: count for name, (count, _) in found.items()} == {name: len(spans) for name, spans in waits.items()}
    for name in ("1:10", "1:2f"):
        assert lies(found[name][1], *waits[name])
    assert {one["tc_class"]: one["count"] for one in probe.rows("dropped")} == {"1:10": 1, "1:2f": 1}
    assert [one["tc_class"] for one in probe.events()] == ["1:10", "1:2f", "", "1:10", ""]
    assert probe.ledger().get("join_missed") is None


@pytest.mark.proves("tx_queue_latency", "ledger.join_missed")
def test_a_wait_that_is_overwritten_is_missed(load: Load) -> None:
    """By the next packet at its address, by one that is not wanted, and by the fifth of a set: the longest one goes."""
    probe = load(PROBE)
    host = Queues(probe)
    skb = host.packet(Flow(), host.shaped)
    host.queued(skb)
    wait(3)
    began = host.queued(skb)
    last = host.sent(skb, host.shaped, began)
    probe.read()
    assert probe.ledger() == {"join_missed": 1}
    assert lies(probe.histograms("wait")[0]["sum"], last)

    host.queued(skb)
    probe.set(port=7)
    host.queued(skb)
    probe.run("sent", skb, host.shaped)
    probe.set()
    probe.read()
    assert probe.counters() == {"queued": 3, "sent": 1, "dropped": 0} and probe.ledger() == {"join_missed": 2}

    at, size = place_of("sk_buff", "dev")  # all that counts of these packets: they lie in each other
    content = bytes(at) + host.shaped.to_bytes(size, sys.byteorder)
    sets: dict[int, list[int]] = {}
    while max(map(len, sets.values()), default=0) <= WAYS:
        area = probe.memory.keep(content)
        key = (area + host.shaped * GOLDEN) % (1 << 64)
        sets.setdefault(key * GOLDEN % (1 << 64) >> 52, []).append(area)
    crowd = max(sets.values(), key=len)
    for skb in crowd:
        host.queued(skb)
    for skb in crowd:
        probe.run("sent", skb, host.shaped)
    probe.read()
    assert probe.counters()["sent"] == 1 + WAYS and probe.ledger() == {"join_missed": 3}
    host.queued(crowd[0])
    probe.run("sent", crowd[0], host.shaped)
    probe.read()
    assert probe.counters()["sent"] == 2 + WAYS and probe.ledger() == {"join_missed": 3}


@pytest.mark.proves(
    "tx_queue_latency",
    "events.wait.{mono_ns,waited_ns,device,netns,source,target,source_port,target_port,ethertype,vlan,protocol}",
    "events.wait.{queue,length_bytes}",
    "knobs.threshold_us",
    "modes.{summary,details}",
)
def test_an_event_has_the_packet_and_its_wait(load: Load) -> None:
    probe = load(PROBE)
    host = Queues(probe)
    probe.set("details", threshold_us=2000, events_per_s=100_000)
    flows = Flow(vlan=42), Flow("2001:db8::1", "2001:db8::2", 53, 4444, TCP), Flow(source_port=9)
    packets = [host.packet(flow, host.many, {"queue_mapping": 3}, payload=100) for flow in flows]
    began = [host.queued(skb) for skb in packets[:2]]
    wait(3)
    waits, moments = [], []
    for skb, moment in zip(packets, began, strict=False):
        before = time.monotonic_ns()
        waits.append(host.sent(skb, host.many, moment))
        moments.append((before, time.monotonic_ns()))
    probe.run("queued", packets[2])
    probe.run("sent", packets[2], host.many)  # it did not wait for so long
    probe.set(threshold_us=2000, events_per_s=100_000)
    host.queued(packets[0])
    wait(3)
    probe.run("sent", packets[0], host.many)  # in mode summary
    probe.read()
    events = probe.events()
    for event, flow, waited, moment, length in zip(events, flows[:2], waits, moments, (142, 162), strict=True):
        assert lies(event["waited_ns"], waited) and lies(event["mono_ns"], moment)
        assert (event["device"], event["netns"], event["queue"]) == ("eth1", str(OTHER_NETNS), 3)
        assert (event["source"], event["source_port"]) == (flow.source, flow.source_port)
        assert (event["target"], event["target_port"]) == (flow.target, flow.target_port)
        assert (event["vlan"], event["length_bytes"]) == (flow.vlan, length)
    assert [(one["ethertype"], one["protocol"]) for one in events] == [("IPv4", "UDP"), ("IPv6", "TCP")]
    assert probe.ledger() == {"seen": 2, "submitted": 2}


@pytest.mark.proves("tx_queue_latency", "knobs.threshold_us")
def test_a_wait_below_the_threshold_is_no_event(load: Load) -> None:
    """One of three quarters of it, or more if the machine takes its time; never one above."""
    probe = load(PROBE)
    host = Queues(probe)
    probe.set("details", threshold_us=20_000, events_per_s=100_000)
    skb = host.packet(Flow(), host.shaped)
    waited, least, most = (0, 0), 0, 0
    while not 15_000_000 <= waited[0] <= waited[1] < 20_000_000:
        began = host.queued(skb)
        wait(15)
        waited = host.sent(skb, host.shaped, began)
        least, most = least + (waited[0] > 20_000_000), most + (waited[1] > 20_000_000)
    probe.read()
    assert least <= len(probe.events()) <= most, waited


@pytest.mark.proves("tx_queue_latency", "histograms.wait")
def test_a_clock_that_goes_back_between_cpus_makes_no_wait_of_centuries(load: Load) -> None:
    probe = load(PROBE)
    host = Queues(probe)
    skb = host.packet(Flow(), host.shaped)
    host.queued(skb)
    index = struct.pack("=I", (skb + host.shaped * GOLDEN) % (1 << 64) * GOLDEN % (1 << 64) >> 52)
    waiting = probe.running._maps["waiting"]
    found = waiting.get(index)
    assert found is not None
    entries = [list(entry) for entry in struct.iter_unpack("=QQQ", found)]
    for entry in entries:
        entry[1] += 60_000_000_000 if entry[0] else 0  # it began in a minute
    waiting.set(index, b"".join(struct.pack("=QQQ", *entry) for entry in entries))
    probe.run("sent", skb, host.shaped)
    probe.read()
    (waits,) = probe.histograms("wait")
    assert (waits["count"], waits["sum"], waits["max"]) == (1, 0, 0)


@pytest.mark.proves(
    "tx_queue_latency",
    "counters.refused",
    "tables.refused.{device,netns,queue,code,count}",
)
def test_what_a_driver_returns_is_counted_by_its_code(load: Load) -> None:
    probe = load(PROBE)
    host = Queues(probe)
    probe.set("details")
    skb = host.packet(Flow(), host.shaped, {"queue_mapping": 2})
    other = host.packet(Flow(), host.shaped, {"queue_mapping": 1})
    for code in (OK, DROPPED, DROPPED, BUSY, NO_BUFFERS):
        probe.run("sent", skb, host.shaped)
        probe.run("returned", skb, code, host.shaped)
    probe.run("returned", skb, DROPPED, host.many)  # a device on top of it: nobody knows by which queue
    probe.run("returned", other, DROPPED, host.shaped)
    probe.read()
    rows = {(one["device"], one["netns"], one["queue"], one["code"]): one["count"] for one in probe.rows("refused")}
    here = ("eth0", str(NETNS))
    assert rows == {
        (*here, 2, "dropped"): 2,
        (*here, 2, "busy"): 1,
        (*here, 2, "ENOBUFS"): 1,
        (*here, -1, "dropped"): 1,
        ("eth1", str(OTHER_NETNS), -1, "dropped"): 1,
    }
    assert probe.counters()["refused"] == 6 and probe.ledger() == {}
    for knobs, more in (
        ({"netns": OTHER_NETNS}, 0),
        ({"netns": NETNS}, 1),
        ({"port": 2222}, 1),
        ({"port": 7}, 0),
        ({"device": "eth1"}, 0),
    ):
        before = probe.counters()["refused"]
        probe.set("details", **knobs)
        probe.run("sent", skb, host.shaped)
        probe.run("returned", skb, DROPPED, host.shaped)
        probe.run("returned", skb, DROPPED, host.shaped + 8)  # of a packet that is not followed, with an unknown place
        probe.read()
        assert probe.counters()["refused"] - before == more, knobs


@pytest.mark.proves("tx_queue_latency", "knobs.{device,address,port,protocol,netns}")
def test_filters_let_pass_what_they_name_and_nothing_else(load: Load) -> None:
    probe = load(PROBE)
    host = Queues(probe)
    packets = [host.packet(flow, host.shaped) for flow in FLOWS]
    for mode in ("summary", "details"):
        for knobs, wanted in FILTERS:
            probe.set(mode, **knobs)
            for number, skb in enumerate(packets):
                before = probe.running._maps["nc_counters"].sum_of(0)
                probe.run("queued", skb)
                passed = probe.running._maps["nc_counters"].sum_of(0) - before
                assert passed == (number in wanted), (mode, knobs, FLOWS[number])
                probe.run("sent", skb, host.shaped)
    probe.read()
    assert probe.counters()["sent"] == probe.counters()["queued"] and probe.ledger().get("join_missed") is None


@pytest.mark.proves("tx_queue_latency", "knobs.{vlan,ethertype,mac}")
def test_filters_by_frame_let_pass_what_they_name(load: Load) -> None:
    probe = load(PROBE)
    host = Queues(probe)
    packets = {flow: host.packet(flow, host.shaped) for flow in FRAMES}
    for knobs, wanted in BY_FRAME:
        probe.set(**knobs)
        for flow, skb in packets.items():
            before = probe.running._maps["nc_counters"].sum_of(0)
            probe.run("queued", skb)
            assert probe.running._maps["nc_counters"].sum_of(0) - before == (flow in wanted), (knobs, flow)
            probe.run("sent", skb, host.shaped)


@pytest.mark.proves("tx_queue_latency", "ledger.{map_full,parse_failed}")
def test_what_finds_no_room_or_cannot_be_read_is_counted(load: Load) -> None:
    probe = load(PROBE, wait=1, dropped=1, refused=1)
    host = Queues(probe)
    probe.set("details", events_per_s=100_000)
    for device in (host.shaped, host.many):
        skb = host.packet(Flow(), device)
        for end in (("sent", skb, device), ("freed", skb)):
            probe.run("queued", skb)
            probe.run(*end)
        probe.run("returned", skb, DROPPED, device)
    probe.read()
    assert [len(probe.rows(table)) for table in ("dropped", "refused")] == [1, 1]
    assert probe.counters() == {"queued": 4, "sent": 2, "dropped": 2, "refused": 2}
    assert probe.ledger()["map_full"] == 3
    assert "parse_failed" not in probe.ledger()
    broken = host.frame(0x0800, b"\x55" + Flow().packet()[1:], host.shaped)
    cut = host.frame(0x86DD, Flow("2001:db8::1", "2001:db8::2").packet()[:39], host.shaped)
    without_ports = host.frame(0x0800, Flow().packet()[:22], host.shaped)
    for skb in (broken, cut, without_ports):
        probe.run("queued", skb)
        probe.run("sent", skb, host.shaped)
    probe.read()
    assert probe.ledger()["parse_failed"] == 3
    assert [one["protocol"] for one in probe.events()] == ["unparsed", "unparsed", "UDP"]


@pytest.mark.proves("tx_queue_latency", "knobs.events_per_s", "ledger.{suppressed,breaker,unlisted}")
def test_events_and_rows_keep_their_budgets(load: Load) -> None:
    probe = load(PROBE)
    host = Queues(probe)
    skb = host.packet(Flow(), host.shaped)
    calls = [probe.prepare("queued", skb), probe.prepare("sent", skb, host.shaped)]
    now = spend_time(probe, calls, spend_events(probe, calls))
    assert probe.histograms("wait")[0]["count"] + now["unlisted"] == FEW + MANY
    assert now["seen"] == FEW + MANY == probe.counters()["sent"]


def test_the_layout_of_a_wait_is_what_these_tests_take_it_for(load: Load) -> None:
    """The set of a packet is computed here, too: where that is wrong, the test above would only be slow."""
    probe = load(PROBE)
    host = Queues(probe)
    skb = host.packet(Flow(), host.shaped)
    began = host.queued(skb)
    key = (skb + host.shaped * GOLDEN) % (1 << 64)
    found = probe.running._maps["waiting"].get(struct.pack("=I", key * GOLDEN % (1 << 64) >> 52))
    assert found is not None
    assert (key, True) in [(one, lies(since, began)) for one, since, _ in struct.iter_unpack("=QQQ", found)]


@pytest.mark.proves("tx_queue_latency", "histograms.wait", "counters.{sent,dropped}", "ledger.join_missed")
def test_a_segment_does_not_end_the_wait_of_a_consumed_packet_at_its_address(load: Load) -> None:
    """Packets are cut up behind the queue, and the allocator gives their memory to segments, which passed no queue."""
    probe = load(PROBE)
    host = Queues(probe)
    skb = host.packet(Flow(), host.shaped)
    for end in (("sent", skb, host.shaped), ("freed", skb)):
        host.memory.change("sk_buff", skb, {"len": 30_000})
        host.queued(skb)
        wait(20)
        host.memory.change("sk_buff", skb, {"len": 1514})
        probe.run(*end)
    began = host.queued(skb)
    host.memory.change("sk_buff", skb, {"len": 1518})
    tagged = host.sent(skb, host.shaped, began)
    probe.read()
    assert probe.counters() == {"queued": 3, "sent": 1, "dropped": 0} and probe.ledger() == {"join_missed": 2}
    (waits,) = probe.histograms("wait")
    assert waits["count"] == 1 and lies(waits["sum"], tagged)


@pytest.mark.proves("tx_queue_latency", "knobs.seen_pct", "ledger.join_missed")
def test_a_wait_that_began_before_a_rest_is_not_ended_after_it(load: Load) -> None:
    probe = load(PROBE)
    host = Queues(probe)
    early, freed, unseen, late = (host.packet(Flow(), host.shaped) for _ in range(4))
    host.queued(early)
    host.queued(freed)
    probe.rest()
    host.queued(unseen)
    wait(20)
    probe.wake()
    probe.run("sent", early, host.shaped)
    probe.run("freed", freed)
    probe.run("sent", unseen, host.shaped)
    began = host.queued(late)
    waited = host.sent(late, host.shaped, began)
    probe.read()
    assert probe.counters() == {"queued": 3, "sent": 1, "dropped": 0}
    (waits,) = probe.histograms("wait")
    assert waits["count"] == 1 and lies(waits["sum"], waited)
    assert probe.ledger()["join_missed"] == 2 and not probe.rows("dropped")
