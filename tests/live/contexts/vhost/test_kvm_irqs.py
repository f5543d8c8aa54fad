"""kvm_irqs on lines and virtual CPUs of the test's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.live.contexts.filters import NETNS, OTHER_NETNS
from tests.support.live.contexts.machines import DEVICE, NAME, machine
from tests.support.live.contexts.memory import place_of
from tests.support.live.contexts.taps import EPOLLIN, RX, TX, Tap, Taps
from tests.support.live.contexts.unattached import UnattachedProbe
from tests.support.live.contexts.vhost_types import QUEUE

Load = Callable[..., UnattachedProbe]
FUNCTIONS = {one: one for one in ("signalled", "given", "deferred", "halted", "kicked")}
NOTHING = {"wakeups": 0, "msi": 0, "at_once": 0, "deferred": 0, "accepted": 0}


class Machines(Taps):
    def signalled(self, tap: Tap, direction: int = RX, key: int = EPOLLIN) -> None:
        self.ran("signalled", tap.lines[direction] + place_of("kvm_kernel_irqfd", "wait")[0], 3, 0, key)

    def deferred(self, tap: Tap, direction: int = RX) -> None:
        self.ran("deferred", tap.lines[direction] + place_of("kvm_kernel_irqfd", "inject")[0])

    def accepted(self, apic: int, vector: int) -> None:
        self.ran("accepted", apic, 0, 0, vector)


def lines(host: Machines) -> list[tuple[object, ...]]:
    """vm, gsi, wakeups, msi, at_once, deferred, accepted, vector, apic"""
    names = ("vm", "gsi", *NOTHING, "vector", "apic")
    return sorted(tuple(row[name] for name in names) for row in host.probe.rows("lines"))


@pytest.mark.proves("kvm_irqs", "tables.lines.{vm,gsi,wakeups,msi,at_once,deferred,accepted,vector,apic}")
@pytest.mark.proves("kvm_irqs", "tables.vcpus.{vm,vcpu,halts,halted_ns,polled,kicks}", "counters.{wakeups,halts}")
def test_lines_and_virtual_cpus(load: Load) -> None:
    with machine() as process:
        host = Machines(load("kvm_irqs", FUNCTIONS), "made0", (process, process))
        for vector in (0x41, 0x52, 0x43):
            host.signalled(host.here)
            host.accepted(7, vector)
        host.signalled(host.here, key=EPOLLIN << 4)  # an eventfd that nobody signals
        host.accepted(9, 0x99)  # of something else
        host.signalled(host.here, TX)
        host.memory.change("kvm_kernel_irqfd", host.there.lines[RX], {"irq_entry.type": 0})
        host.signalled(host.there)
        host.signalled(host.there)
        host.deferred(host.there)
        host.accepted(8, 0x61)
        for length, waited, tap in ((1000, 1, host.here), (300, 0, host.here), (70, 1, host.there)):
            host.ran("halted", tap.vcpu)
            host.ran("awake", length, waited, 1)
        host.ran("awake", 5, 1, 1)  # the end of a halt whose beginning was not seen
        for tap in (host.here, host.there, host.there):
            host.ran("kicked", tap.vcpu)
        host.probe.read()
    assert lines(host) == [
        (NAME, host.here.gsi + RX, 3, 3, 3, 0, 3, 0x43, 7),
        (NAME, host.here.gsi + TX, 1, 1, 0, 0, 0, 0, 0),
        (NAME, host.there.gsi + RX, 2, 0, 0, 1, 1, 0x61, 8),
    ]
    names = ("vm", "vcpu", "halts", "halted_ns", "polled", "kicks")
    assert sorted(tuple(row[name] for name in names) for row in host.probe.rows("vcpus")) == [
        (NAME, 2, 2, 1300, 1, 1),
        (NAME, 3, 1, 70, 0, 2),
    ]
    assert host.probe.counters() == {"wakeups": 6, "halts": 3}
    assert host.probe.ledger() == {}


@pytest.mark.proves("kvm_irqs", "tables.wires.{vm,gsi,device,netns,queue,direction,signals}")
def test_the_queue_of_a_line_is_that_whose_worker_signals_it(load: Load) -> None:
    """Not that which it served last: whoever else signals a line, as QEMU does, is no queue of a tap."""
    with machine() as process:
        host = Machines(load("kvm_irqs", FUNCTIONS), DEVICE, (process, process))
        host.signalled(host.here)  # nobody has given a batch
        for tap, queue, direction in ((host.here, host.here.rx, RX), (host.there, host.there.tx, TX)):
            for _ in range(2):
                host.ran("given", 0, queue)
                host.signalled(tap, direction)
        host.signalled(host.here)  # of another queue than that of the last batch
        host.ran("given", 0, host.here.rx)
        host.signalled(host.here, key=EPOLLIN << 4)
        host.memory.put(host.here.rx + QUEUE["private_data"], bytes(8))  # QEMU has taken its tap away
        host.ran("given", 0, host.here.rx)
        host.signalled(host.here)
        host.probe.read()
    names = ("vm", "gsi", "device", "netns", "queue", "direction", "signals")
    assert sorted(tuple(row[name] for name in names) for row in host.probe.rows("wires")) == [
        (NAME, host.here.gsi + RX, DEVICE, str(NETNS), 0, "rx", 2),
        (NAME, host.there.gsi + TX, DEVICE, str(OTHER_NETNS), 1, "tx", 2),
    ]
    assert host.probe.counters()["wakeups"] == 7
    assert host.probe.ledger() == {}


@pytest.mark.proves("kvm_irqs", "tables.lines.{at_once,accepted,deferred}")
@pytest.mark.parametrize(("route", "is_at_once"), [(0, False), (1, False), (2, True), (4, True), (5, True)])
def test_what_a_thread_accepts_next_is_not_of_a_line_that_is_never_delivered_at_once(
    load: Load, route: int, is_at_once: bool
) -> None:
    """Such as its own timer. It is of none either that was signalled before."""
    host = Machines(load("kvm_irqs", FUNCTIONS))
    host.signalled(host.here, TX)
    host.memory.change("kvm_kernel_irqfd", host.here.lines[RX], {"irq_entry.type": route})
    host.signalled(host.here)
    host.accepted(3, 0xEC)
    host.deferred(host.here)
    host.accepted(4, 0x41)
    host.probe.read()
    rows = {row["gsi"]: (row["at_once"], row["deferred"], row["accepted"]) for row in host.probe.rows("lines")}
    assert rows == {
        host.here.gsi + RX: (int(is_at_once), 1, 1 + is_at_once),
        host.here.gsi + TX: (0, 0, 0),
    }


def test_what_no_program_counts_is_unknown_and_not_0(load: Load) -> None:
    """As on arm64, where KVM does not say what an APIC accepts; and where there is no tracepoint of halts."""
    host = Machines(load("kvm_irqs", {**FUNCTIONS, "accepted": "", "awake": ""}))
    host.signalled(host.here)
    host.deferred(host.here)
    host.ran("kicked", host.here.vcpu)
    host.probe.read()
    line = host.probe.row("lines")
    assert {name: line.get(name) for name in (*NOTHING, "vector", "apic")} == {
        **dict.fromkeys((*NOTHING, "vector", "apic")), "wakeups": 1, "msi": 1, "deferred": 1
    }  # fmt: skip
    vcpu = host.probe.row("vcpus")
    assert {name: vcpu.get(name) for name in ("halts", "halted_ns", "polled", "kicks")} == {
        "halts": None, "halted_ns": None, "polled": None, "kicks": 1
    }  # fmt: skip
    assert host.probe.counters() == {"wakeups": 1}
    assert host.probe.ledger() == {}


@pytest.mark.proves("kvm_irqs", "ledger.map_full")
def test_a_full_table(load: Load) -> None:
    """Of a line without a row, the signal and the interrupt; of a virtual CPU, each halt and kick."""
    host = Machines(load("kvm_irqs", FUNCTIONS, lines=1, vcpus=1))
    for tap in (host.here, host.there):
        host.signalled(tap)
        host.accepted(1, 0x41)
        host.ran("kicked", tap.vcpu)
    host.ran("halted", host.there.vcpu)
    host.ran("awake", 5, 1, 1)
    host.probe.read()
    assert host.probe.ledger() == {"map_full": 4}
    assert [row["wakeups"] for row in host.probe.rows("lines")] == [1]
