"""ovs_upcalls: which packet an answer is to, and the threads that answer."""

from __future__ import annotations

import ctypes
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from netconsole_collector.kernel import cpus
from tests.support.live.contexts.filters import STRANGER
from tests.support.live.contexts.memory import place_of
from tests.support.live.contexts.moments import elapsed, lies, wait
from tests.support.live.contexts.ovs_types import FLOW, KEY, KEY_BYTES, LATER, MISS, flow_key
from tests.support.live.contexts.packets import ICMP, ICMPV6, TCP, Flow
from tests.support.live.contexts.unattached import UnattachedProbe
from tests.support.live.contexts.upcalls import AS_FUNCTIONS, BY_LINK, FLOW6, Upcalls

PROBE = "ovs_upcalls"
Load = Callable[..., UnattachedProbe]
PR_SET_NAME = 15


def tcp(seq: int, ack: int = 0) -> bytes:
    packet = bytearray(Flow(protocol=TCP).packet())
    packet[24:32] = seq.to_bytes(4, "big") + ack.to_bytes(4, "big")
    return bytes(packet)


def icmp(identity: int) -> bytes:
    packet = bytearray(Flow(protocol=ICMP).packet())
    packet[24:28] = identity.to_bytes(4, "big")
    return bytes(packet)


def with_ip(identity: int) -> bytes:
    packet = bytearray(Flow().packet())
    packet[4:8] = identity.to_bytes(4, "big")
    return bytes(packet)


def label(number: int) -> bytes:
    packet = bytearray(FLOW6.packet())
    packet[0:4] = (6 << 28 | number).to_bytes(4, "big")
    return bytes(packet)


OF_TCP, OF_ICMP, OF_ICMP6 = Flow(protocol=TCP), Flow(protocol=ICMP), Flow("2001:db8::1", "2001:db8::2", protocol=ICMPV6)
PAIRS: list[tuple[Flow, bytes, bytes, dict[str, int], bool]] = [
    (OF_TCP, tcp(1), tcp(2), {}, True),
    (OF_TCP, tcp(1, 1), tcp(1, 2), {}, True),
    (OF_TCP, tcp(1), tcp(2), {"fragment": LATER}, False),
    (OF_ICMP, icmp(1), icmp(2), {}, True),
    (OF_ICMP, icmp(1 << 16), icmp(2 << 16), {}, True),
    (Flow(), with_ip(1), with_ip(2), {}, True),
    (Flow(), with_ip(1 << 16), with_ip(2 << 16), {}, True),
    (Flow(), Flow().packet(20), Flow().packet(21), {}, True),
    (FLOW6, label(1), label(2), {}, True),
    (Flow(), with_ip(1), with_ip(2), {"protocol": 0}, False),
]
"""Two packets of a flow, how it was parsed, and whether an answer tells them apart."""


@pytest.mark.parametrize(("flow", "first", "second", "parsed", "differ"), PAIRS, ids=range(len(PAIRS)))
def test_an_answer_is_to_the_packet_with_the_same_headers(
    load: Load, flow: Flow, first: bytes, second: bytes, parsed: dict[str, int], differ: bool
) -> None:
    probe = load(PROBE, AS_FUNCTIONS)
    host = Upcalls(probe)
    one = host.upcall(flow, packet=first, **parsed)
    wait(2)
    two = host.upcall(flow, packet=second, **parsed)
    took = elapsed(two if differ else one, host.answer(flow, second, **parsed))
    host.read()
    (found,) = probe.histograms("latency")
    assert found["count"] == 1 and lies(found["sum"], took)
    assert probe.counters()["unasked"] == 0


def test_an_answer_is_of_the_same_flow(load: Load) -> None:
    probe = load(PROBE, AS_FUNCTIONS)
    host = Upcalls(probe)
    host.upcall(Flow())
    others: list[tuple[Flow, dict[str, int]]] = [
        (Flow(vlan=3), {}),
        (Flow(source_port=9), {}),
        (Flow(target_port=9), {}),
        (Flow(mac=STRANGER.mac), {}),
        (Flow("192.0.2.7"), {}),
        (Flow(), {"in_port": 4}),
        (Flow(), {"recirculation": 1}),
        (Flow(), {"protocol": 132}),
        (Flow(), {"fragment": 1}),
    ]
    for flow, parsed in others:
        host.answer(flow, Flow().packet(), **parsed)
    host.read()
    assert probe.counters()["unasked"] == len(others) and probe.counters()["answered"] == 0
    host.answer(Flow())
    host.read()
    assert probe.counters()["answered"] == 1


def test_each_packet_that_is_not_answered_is_found_once_and_no_other(load: Load) -> None:
    """In the order in which they were handed over, with answers between them, and one that was refused."""
    probe = load(PROBE, AS_FUNCTIONS)
    host = Upcalls(probe)
    probe.set(unanswered_after_ms=30)
    flows = [Flow(source_port=number) for number in range(1, 8)]
    for flow in flows:
        host.upcall(flow)
    host.ask(Flow())
    host.hand_over(host.copy(Flow()), host.copy(Flow(), Flow().packet(9)), error=-1)  # the second one is refused
    for flow in (flows[1], flows[4]):
        host.answer(flow)
    host.read()
    wait(30)
    for _ in range(2 * cpus.nr_cpu_ids()):  # at each tick of the kernel eight packets of the ring of one CPU
        wait(11)
        probe.run("switched")
    host.read()
    assert probe.counters()["unanswered"] == 6 and probe.ledger() == {}
    for flow in flows:
        host.answer(flow)
    host.read()
    assert (probe.counters()["late"], probe.counters()["unasked"]) == (5, 2)


def test_what_was_handed_over_before_answers_are_seen_again_may_have_been_answered(load: Load) -> None:
    probe = load(PROBE, AS_FUNCTIONS)
    host = Upcalls(probe)
    probe.set(unanswered_after_ms=30)
    host.upcall(Flow(source_port=1))
    host.resumed(time.monotonic_ns())
    host.upcall(Flow(source_port=2))
    host.read()
    host.until("unanswered", 1)
    assert probe.ledger() == {"join_missed": 1}
    host.upcall(Flow(source_port=3))
    host.upcall(Flow(source_port=3))
    host.resumed(time.monotonic_ns())
    host.answer(Flow(source_port=3))
    host.read()
    assert (probe.counters()["answered"], probe.ledger()["join_missed"]) == (0, 2)


def test_a_flow_that_drops_is_known_by_its_whole_key_where_it_is_masked_in_place(load: Load) -> None:
    """Older kernels do so; the actions are read later. Of another flow nothing is known."""
    probe = load(PROBE, AS_FUNCTIONS)
    host = Upcalls(probe)
    probe.set(unanswered_after_ms=30)
    one, other = Flow(source_port=1), Flow(source_port=2)
    host.upcall(one)
    host.upcall(other)
    flow = host.memory.keep(bytes(FLOW["key"]) + flow_key(one))
    probe.run("put", flow + FLOW["id"], 0, flow + FLOW["key"])
    host.memory.put(flow + FLOW["key"], bytes(KEY_BYTES))  # masked
    probe.run("answered", 0, host.memory.keep(b"\4\0\0\0"), flow + FLOW["key"])
    host.read()
    host.until("unanswered", 1)
    host.until("dropped", 1)


RING = 4096
"""Packets that a CPU keeps in mind, on a machine with at most 32 CPUs."""


def test_a_storm_forgets_what_it_has_no_room_for_and_counts_it(load: Load) -> None:
    probe = load(PROBE, AS_FUNCTIONS)
    host = Upcalls(probe)
    probe.set(unanswered_after_ms=600_000)
    skb, key = host.copy(Flow()), host.key(Flow())
    host._word(skb + place_of("sk_buff", "cb")[0], host.ports[BY_LINK])
    upcall = [
        probe.prepare("asked", host.path, skb, key, host.infos[MISS]),
        probe.prepare("queued", host.path, skb),
        probe.prepare("ended", 0),
    ]
    answer = probe.prepare("given_back", 0, 0, skb, key)
    more = 37
    for calls in (upcall, [answer]):
        for number in range(1, RING + more + 1):
            host.memory.put(key + KEY["tp"], number.to_bytes(2, "big"))
            for call in calls:
                call()
    host.read()
    counters = probe.counters()
    assert (counters["packets"], counters["answered"], counters["unasked"]) == (RING + more, RING, more)
    assert probe.ledger() == {"join_missed": more}


ANSWERS = 12


def _answers(call: Callable[[], int], tell: int) -> None:
    """In a process like ovs-vswitchd with a thread like a handler: answers, and between them it works and sleeps."""
    names = ctypes.CDLL(None)
    names.prctl(PR_SET_NAME, b"ovs-vswitchd", 0, 0, 0)

    def totals() -> tuple[int, ...]:
        """What the kernel has of this thread: CPU time and time of waiting in ns, switches by itself and all."""
        task = Path(f"/proc/self/task/{threading.get_native_id()}")
        ran, waited, _ = (int(word) for word in (task / "schedstat").read_text().split())
        lines = [line.split() for line in (task / "status").read_text().splitlines()]
        own, taken = (int(words[1]) for words in lines if words and words[0].endswith("voluntary_ctxt_switches:"))
        return ran, waited, own, own + taken

    def handle() -> None:
        names.prctl(PR_SET_NAME, b"handler17", 0, 0, 0)
        bounds = []
        for number in range(ANSWERS):
            before = totals()
            call()
            if number in (0, ANSWERS - 1):
                bounds.append((before, totals()))
            wait(3)
            time.sleep(0.002)
        os.write(tell, json.dumps([threading.get_native_id(), bounds]).encode())

    thread = threading.Thread(target=handle)
    thread.start()
    thread.join()


@pytest.mark.proves(
    "ovs_upcalls",
    "tables.handlers.{handler,tid,process,cpu_ns,switches,wakeups,answered,cpu}",
    "histograms.scheduled",
    "histograms.scheduled.{handler,tid}",
)
def test_a_handler_has_its_answers_and_what_the_scheduler_knows_of_it(load: Load) -> None:
    probe = load(PROBE, AS_FUNCTIONS)
    host = Upcalls(probe)
    host.upcall(Flow())
    host.answer(Flow())  # by a thread that is no handler
    ask = host.of_one_packet(Flow())

    def answer() -> int:
        return sum(call() for call in ask)

    hear, tell = os.pipe()
    child = os.fork()
    if not child:
        try:
            _answers(answer, tell)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    tid, ((low, high), (last_low, last_high)) = json.loads(os.read(hear, 4096))
    host.read()
    row = probe.row("handlers")
    assert (row["handler"], row["tid"], row["answered"], row["cpu"]) == ("handler17", tid, ANSWERS, 0)
    assert str(child) in row["process"]
    for number, name in ((0, "cpu_ns"), (2, "wakeups"), (3, "switches")):
        assert last_low[number] - high[number] <= row[name] <= last_high[number] - low[number], name
    (waits,) = probe.histograms("scheduled")
    assert (waits["handler"], waits["tid"], waits["count"]) == ("handler17", tid, ANSWERS - 1)
    assert last_low[1] - high[1] <= waits["sum"] <= last_high[1] - low[1]
