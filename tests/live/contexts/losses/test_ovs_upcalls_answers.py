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

from tests.support.live.contexts.filters import STRANGER
from tests.support.live.contexts.moments import elapsed, lies, wait
from tests.support.live.contexts.ovs_types import LATER
from tests.support.live.contexts.packets import ICMP, ICMPV6, TCP, Flow
from tests.support.live.contexts.unattached import UnattachedProbe
from tests.support.live.contexts.upcalls import AS_FUNCTIONS, FLOW6, Upcalls

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


@pytest.mark.parametrize(("flow", "first", "second", "parsed", "differ"), PAIRS)
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
