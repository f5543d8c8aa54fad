"""What becomes of events where nobody reads them, and where the circuit breaker stops them: to the event."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from netconsole_collector.probe.reading import ledger as slots
from netconsole_collector.probe.reading.decode import Layout
from tests.live.contexts.test_mirror import Mirror, frame, vxlan
from tests.support.live.contexts.filters import NETNS
from tests.support.live.contexts.memory import enumerator
from tests.support.live.contexts.packets import IPV4, Flow, MadeUpHost
from tests.support.live.contexts.stack import Stack
from tests.support.live.contexts.unattached import UnattachedProbe
from tests.support.live.contexts.ways import Ways

Load = Callable[..., UnattachedProbe]
Calls = list[Callable[[], int]]

RING_BYTES = 64 * 4096
HEADER_BYTES = 8
"""BPF_RINGBUF_HDR_SZ: before each record, which begins at a multiple of 8 (include/uapi/linux/bpf.h)."""
SOME = 500
LONGEST_S = 60.0
"""A storm is let in by windows of time: how many runs they take is up to the machine, how long they last is not."""
UNLIMITED_PER_S = 1e9
WINDOW_SHIFT = 27
RUNS_OF_A_WINDOW, GRANT = 2684, 64
"""20000 a second in 134 ms, up to the end of a grant (docs/design/governor.md)."""


def drops(probe: UnattachedProbe) -> Calls:
    host = MadeUpHost(probe.memory)
    reason = enumerator("skb_drop_reason", "SKB_DROP_REASON_QDISC_DROP")
    return [probe.prepare("drop", host.packet(Flow(), host.device("eth0", host.net(NETNS))), 0x1000, reason, 0)]


def resets(probe: UnattachedProbe) -> Calls:
    return [probe.prepare("reset_sent", probe.memory.make("tcp_sock", {}))]


def softirqs(probe: UnattachedProbe) -> Calls:
    return [probe.prepare(program, 3) for program in ("raised", "entered", "left")]


def waits(probe: UnattachedProbe) -> Calls:
    host = MadeUpHost(probe.memory)
    eth0 = host.device("eth0", host.net(NETNS))
    host.discipline(eth0, enqueues=True)
    skb = host.packet(Flow(), eth0)
    return [probe.prepare("queued", skb), probe.prepare("sent", skb, eth0)]


def packets(probe: UnattachedProbe) -> Calls:
    host = MadeUpHost(probe.memory)
    net = host.net(NETNS)
    skb = host.packet(Flow(), host.device("eth0", net))
    hook = probe.memory.make("nf_hook_state", {"net": net})
    return [probe.prepare("began", skb, hook), probe.prepare("ended", skb, hook, 1)]


def datagrams(probe: UnattachedProbe) -> Calls:
    table = probe.memory.make("fqdir", {})
    net = probe.memory.make("net", {"ipv4.fqdir": table})
    probe.memory.change("fqdir", table, {"net": net})
    return [probe.prepare("ended", probe.memory.make("inet_frag_queue", {"fqdir": table, "meat": 8}))]


def crossings(probe: UnattachedProbe) -> Calls:
    host = Ways(probe)
    skb = host.come(Flow(), "tap0")
    return [probe.prepare("receive", skb), probe.prepare("send", skb, host.devices["eth0"])]


def departures(probe: UnattachedProbe) -> Calls:
    host = Stack(probe)
    skb = host.own(Flow())
    return [probe.prepare("queue", skb), probe.prepare("send", skb, host.devices["eth0"])]


def tunnels(probe: UnattachedProbe) -> Calls:
    host = Mirror(probe)
    return [probe.prepare("arrived", host.arrived(host.frame(IPV4, vxlan(frame()), host.eth0)))]


PROBES: dict[str, Callable[[UnattachedProbe], Calls]] = {
    "kernel_drops": drops,
    "socket_drops": resets,
    "softirq_health": softirqs,
    "tx_queue_latency": waits,
    "conntrack": packets,
    "ip_fragments": datagrams,
    "host_path": crossings,
    "local_path": departures,
    "mirror": tunnels,
}


def record_bytes(spec: dict[str, Any]) -> int:
    (event,) = spec["events"].values()
    size = Layout(event["record"]).size
    return HEADER_BYTES + (size + 7) // 8 * 8


@pytest.mark.proves("kernel_drops", "ledger.lost")
@pytest.mark.proves("socket_drops", "ledger.lost")
@pytest.mark.proves("softirq_health", "ledger.{lost,breaker}")
@pytest.mark.proves("tx_queue_latency", "ledger.lost")
@pytest.mark.proves("conntrack", "ledger.lost")
@pytest.mark.proves("ip_fragments", "ledger.lost")
@pytest.mark.proves("host_path", "ledger.lost")
@pytest.mark.proves("local_path", "ledger.lost")
@pytest.mark.proves("mirror", "ledger.{lost,breaker}")
@pytest.mark.parametrize("name", PROBES)
def test_a_ring_that_nobody_reads_takes_what_it_has_room_for(load: Load, name: str) -> None:
    probe = load(name)
    probe.set("details", **({"threshold_us": 0} if name == "softirq_health" else {}), events_per_s=UNLIMITED_PER_S)
    calls, runs, lost = PROBES[name](probe), 0, 0
    began = time.monotonic_ns() >> WINDOW_SHIFT
    deadline = time.monotonic() + LONGEST_S
    while lost < SOME:  # the breaker lets through what a window has room for
        assert time.monotonic() < deadline, f"{lost} of {SOME} lost after {runs} runs"
        for call in calls * SOME:
            call()
        runs, lost = runs + SOME, slots.read(probe.running._ledger_slots)["lost"]
    windows = (time.monotonic_ns() >> WINDOW_SHIFT) - began + 1
    probe.read()
    ledger = probe.ledger()
    room = (RING_BYTES - 1) // record_bytes(probe.running.spec)
    assert ledger["submitted"] == room == len(probe.events()) + ledger.get("shed", 0)
    breaker, untimed = ledger.get("breaker", 0), ledger.get("unmeasured", 0)
    assert ledger["seen"] == runs - untimed == room + ledger["lost"] + breaker
    assert breaker >= runs - untimed - (RUNS_OF_A_WINDOW + GRANT) * windows
