"""echo_host where vhost carries the echoes, on objects of the test's own: each stage, and whose it is."""

from __future__ import annotations

import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.live.contexts.memory import place_of
from tests.support.live.contexts.modules import (
    CALL_AT,
    DATA_AT,
    KICK_AT,
    NET_QUEUE_BYTES,
    RING_AT,
    ROOM,
    WORK_AT,
    place,
)
from tests.support.live.contexts.moments import Span, lies, wait
from tests.support.live.contexts.packets import Flow
from tests.support.live.contexts.pings import V4, V6, Pinged, reply, request
from tests.support.live.contexts.unattached import UnattachedProbe

PROBE = "echo_host"
Load = Callable[..., UnattachedProbe]

FUNCTIONS = {
    "s5": "on_accepted",
    "deferred": "on_deferred",
    "s4": "on_heard",
    "s3": "on_told",
    "s2": "on_given",
    "read": "on_read",
    "k3": "on_handed",
    "run_end": "on_run_ended",
    "k1": "on_kicked",
    "k2": "on_run",
}
EPOLLIN = 1
ADDRESS, DOORBELL = 0xFE003000, 5
CHIP, MSI = 1, 2
"""KVM_IRQ_ROUTING_… of include/uapi/linux/kvm.h: the lines of a chip are never delivered at once."""


class Guest:
    """A tap of a VM whose queues vhost serves, with the eventfds of both queues, and KVM's ends of them."""

    def __init__(self, host: Pinged, tap: str) -> None:
        memory, self.host = host.memory, host
        tun = memory.make("tun_struct", {"dev": host.devices[tap]})
        file = memory.make("tun_file", {"tun": tun})
        self.tap, self.sock = tap, file + place_of("tun_file", "socket")[0]
        self.call, self.kick = memory.keep(bytes(64)), memory.keep(bytes(64))
        self.receives, self.sends = self._queue(has_ring=True), self._queue(has_ring=False)
        content = bytearray(ROOM)
        struct.pack_into("=Q", content, place("kvm_kernel_irqfd", "eventfd"), self.call)
        irqfd = self.irqfd = memory.keep(bytes(content))
        self.route(MSI)
        self.entry, self.inject = (irqfd + place("kvm_kernel_irqfd", name) for name in ("wait", "inject"))
        self.doorbell = self._doorbell(length=2, wildcard=0)
        self.any_value = self._doorbell(length=2, wildcard=1)

    def route(self, kind: int) -> None:
        """How KVM delivers its interrupt (KVM_IRQ_ROUTING_…)."""
        self.host.memory.change("kvm_kernel_irqfd", self.irqfd, {"irq_entry.type": kind})

    def _queue(self, has_ring: bool) -> int:
        file = self.host.memory.make("file", {"private_data": self.kick})
        content = bytearray(NET_QUEUE_BYTES)
        struct.pack_into("=Q", content, 8 + KICK_AT, file)
        struct.pack_into("=Q", content, 8 + CALL_AT, self.call)
        struct.pack_into("=Q", content, 8 + DATA_AT, self.sock)
        struct.pack_into("=Q", content, RING_AT, int(has_ring))
        return self.host.memory.keep(bytes(content)) + 8

    def _doorbell(self, length: int, wildcard: int) -> int:
        content = bytearray(ROOM)
        struct.pack_into("=Q", content, place("_ioeventfd", "addr"), ADDRESS)
        struct.pack_into("=i", content, place("_ioeventfd", "length"), length)
        struct.pack_into("=Q", content, place("_ioeventfd", "eventfd"), self.kick)
        struct.pack_into("=Q", content, place("_ioeventfd", "datamatch"), DOORBELL)
        content[place("_ioeventfd", "wildcard")] = wildcard
        return self.host.memory.keep(bytes(content)) + place("_ioeventfd", "dev")

    # ---- to the guest ----

    def read(self, skb: int) -> Span:
        return self.host.ran("read", self.sock, self.host.memory.make("msghdr", {"msg_control": skb}))

    def given(self) -> Span:
        return self.host.ran("s2", 0, self.receives)

    def told(self) -> Span:
        return self.host.ran("s3", self.call)

    def heard(self, key: int = EPOLLIN) -> Span:
        return self.host.ran("s4", self.entry, 1, 0, key)

    def accepted(self) -> Span:
        return self.host.ran("s5", 0, 0)

    # ---- from the guest ----

    def kicked(self, value: int = DOORBELL, address: int = ADDRESS, length: int = 2, doorbell: int = 0) -> Span:
        written = self.host.memory.keep(struct.pack("=Q", value))
        return self.host.ran("k1", 0, doorbell or self.doorbell, address, length, written)

    def runs(self) -> Span:
        return self.host.ran("k2", self.sends + WORK_AT)

    def handed(self) -> Span:
        return self.host.ran("k3", self.sock)

    def run_ends(self) -> None:
        self.host.ran("run_end")


def watched(load: Load) -> tuple[Pinged, Guest, Guest]:
    host = Pinged(load(PROBE, FUNCTIONS))
    return host, Guest(host, "tap0"), Guest(host, "tap1")


def put_out(host: Pinged, packet: bytes, tap: str) -> tuple[int, Span]:
    """The packet of an echo, sent on the tap; and when."""
    skb = host.leaving(host.carrying(packet, "eth0"), host.devices[tap])
    return skb, host.ran("send", skb, host.devices[tap])


@pytest.mark.proves("echo_host", "records.echoes.{s1_ns,s2_ns,s3_ns,s4_ns,s5_ns}")
@pytest.mark.parametrize("flow", [V4, V6])
def test_each_stage_to_the_guest_is_when_its_function_ran(load: Load, flow: Flow) -> None:
    """Of the reply to the guest that pings, and of the request to the guest that is pinged."""
    host, guest, other = watched(load)
    for is_receiver in (False, True):
        host.probe.set(receiver=is_receiver)
        seq = 1 + is_receiver
        host.received(request(flow, seq), "eth0" if is_receiver else "tap0")
        skb, sent = put_out(host, request(flow, seq) if is_receiver else reply(flow, seq), "tap0")
        wait(1)
        other.given()  # another tap's batch
        guest.read(skb)
        host.ran("s2", 0, guest.sends)  # the other queue of this tap
        wait(1)
        given = guest.given()
        other.told()
        wait(1)
        told = guest.told()
        guest.heard(4)  # the eventfd is closed
        wait(1)
        heard = guest.heard()
        wait(1)
        accepted = guest.accepted()
        for again in (guest.given, guest.told, guest.heard, guest.accepted):
            again()  # the next batch has no echo
        record = host.records()[flow.source, seq]
        assert record["s1_ns"] == record["request_out_ns" if is_receiver else "reply_out_ns"]
        for name, span in (("s1_ns", sent), ("s2_ns", given), ("s3_ns", told), ("s4_ns", heard), ("s5_ns", accepted)):
            assert lies(record[name], span), name


@pytest.mark.proves("echo_host", "records.echoes.s5_ns")
def test_what_a_thread_delivers_next_is_no_interrupt_of_a_line_that_waits_for_a_worker(load: Load) -> None:
    host, guest, _ = watched(load)
    guest.route(CHIP)
    host.received(request(V4, 1), "tap0")
    skb, _ = put_out(host, reply(V4, 1), "tap0")
    guest.read(skb)
    for ran in (guest.given, guest.told, guest.heard, guest.accepted):
        ran()
    record = host.records()[V4.source, 1]
    assert record["s4_ns"] and not record["s5_ns"]


@pytest.mark.proves("echo_host", "records.echoes.{s2_ns,s3_ns,s4_ns,s5_ns}")
def test_an_interrupt_is_of_the_echo_whose_batch_it_tells_of(load: Load) -> None:
    host, guest, other = watched(load)
    for seq in (1, 2, 3, 4):
        host.received(request(V4, seq), "tap0" if seq != 4 else "tap1")
    first, _ = put_out(host, reply(V4, 1), "tap0")
    second, _ = put_out(host, reply(V4, 2), "tap0")
    guest.read(first)
    guest.read(second)  # in one batch: that of the first one
    guest.given()
    guest.given()  # nobody told the guest: it polls
    guest.told()
    for one, tap, seq in ((other, "tap1", 4), (guest, "tap0", 3)):
        skb, _ = put_out(host, reply(V4, seq), tap)
        one.read(skb)
        one.given()
        one.told()
        one.heard()
    with ThreadPoolExecutor(1) as somebody, ThreadPoolExecutor(1) as worker:
        somebody.submit(guest.accepted).result()  # it delivers something else
        worker.submit(host.ran, "deferred", other.inject).result()
        at_once = guest.accepted()
        deferred = worker.submit(guest.accepted).result()
        worker.submit(guest.accepted).result()
    record = host.records()
    assert record[V4.source, 1]["s2_ns"] > 0 == record[V4.source, 1]["s3_ns"]
    assert record[V4.source, 2]["s1_ns"] > 0 == record[V4.source, 2]["s2_ns"]
    assert lies(record[V4.source, 3]["s5_ns"], at_once)
    assert lies(record[V4.source, 4]["s5_ns"], deferred)


@pytest.mark.proves("echo_host", "records.echoes.{s2_ns,s3_ns,s4_ns,s5_ns}")
def test_an_echo_that_the_tap_dropped_gets_no_stages_of_a_later_packet_at_its_address(load: Load) -> None:
    host, guest, other = watched(load)

    def at_its_address(skb: int, packet: bytes, tap: str) -> None:
        """The packet is freed, and this one gets its memory."""
        another = host.leaving(host.carrying(packet, "eth0"), host.devices[tap])
        host.memory.put(skb, host.memory.bytes_of("sk_buff", another))

    for seq, (tap, one) in enumerate((("tap0", guest), ("tap1", other)), 1):
        host.received(request(V4, seq), "tap0")
        skb, _ = put_out(host, reply(V4, seq), "tap0")  # its ring is full
        at_its_address(skb, Flow(source_port=7).packet(), tap)
        host.ran("send", skb, host.devices[tap])
        one.read(skb)
        for stage in (one.given, one.told, one.heard, one.accepted):
            stage()
        at_its_address(skb, reply(V4, seq), "tap0")
        guest.read(skb)  # the mark is gone
        for stage in (guest.given, guest.told, guest.heard, guest.accepted):
            stage()
        record = host.records()[V4.source, seq]
        assert record["s1_ns"] > 0
        assert [record[f"s{stage}_ns"] for stage in (2, 3, 4, 5)] == [0, 0, 0, 0], tap


@pytest.mark.proves("echo_host", "records.echoes.{k1_ns,k2_ns,k3_ns}")
@pytest.mark.parametrize("flow", [V4, V6])
def test_each_stage_from_the_guest_is_when_its_function_ran(load: Load, flow: Flow) -> None:
    host, guest, _ = watched(load)
    for seq, knobs in ((1, {}), (2, {"receiver": True})):
        host.probe.set(**knobs)
        if knobs:
            host.received(request(flow, seq), "eth0")
        packet = reply(flow, seq) if knobs else request(flow, seq)
        guest.kicked(address=ADDRESS + 4)
        guest.kicked(value=DOORBELL + 1)
        guest.kicked(length=4)
        kicked = guest.kicked(value=DOORBELL | 0xFF0000)  # of eight bytes it wrote two
        wait(1)
        guest.kicked()  # nobody has answered the first one yet
        wait(1)
        ran = guest.runs()
        wait(1)
        handed = guest.handed()
        wait(1)
        received = host.received(packet, "tap0")
        guest.run_ends()
        record = host.records()[flow.source, seq]
        for name, span in (("k1_ns", kicked), ("k2_ns", ran), ("k3_ns", handed)):
            assert lies(record[name], span), name
        assert lies(record["reply_in_ns" if knobs else "request_in_ns"], received)


@pytest.mark.proves("echo_host", "records.echoes.{k1_ns,k2_ns,k3_ns}")
def test_only_the_first_batch_of_a_run_has_its_kick(load: Load) -> None:
    host, guest, other = watched(load)

    def kicks(seq: int, tap: str = "tap0") -> bool:
        host.received(request(V4, seq), tap)
        record = host.records()[V4.source, seq]
        known = [record[name] > 0 for name in ("k1_ns", "k2_ns", "k3_ns")]
        assert len(set(known)) == 1
        return all(known)

    assert not kicks(1)  # outside of a run
    guest.kicked(doorbell=guest.any_value, value=77)
    guest.runs()
    guest.handed()
    assert not kicks(2, "tap1")  # of another device
    with ThreadPoolExecutor(1) as another:
        assert not another.submit(kicks, 3).result()
    assert kicks(4)
    assert kicks(5)  # the same batch
    guest.handed()
    assert not kicks(6)
    guest.runs()  # without a kick: it polled
    guest.handed()
    assert not kicks(7)
    guest.kicked()
    guest.runs()
    guest.handed()
    guest.run_ends()
    assert not kicks(8)
    other.kicked()
    other.runs()
    other.handed()
    assert kicks(9, "tap1")
