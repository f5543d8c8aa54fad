"""Measures what programs take for a run: of the data path of virtual machines and their disks, host_path, conntrack,
block_path.

They run on kernel objects made by the tests (tests/live/contexts), on this machine's CPU, by loads and by helpers: so
vhost and KVM need not be there. Prints the median of ns per run by the kernel's statistics, which take 60 to 70 of
them. The objects are always the same ones, so they are in the CPU's cache; what a real packet costs is more.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from netconsole_collector.kernel import syscalls
from tests.live.contexts import test_virtio_blk as vm_disk
from tests.live.contexts.losses import test_conntrack as conntrack
from tests.live.contexts.vhost import test_irq_path as irq
from tests.live.contexts.vhost import test_kvm_irqs as kvm
from tests.live.contexts.vhost import test_tun_queues as tun
from tests.live.contexts.vhost import test_tx_kick_path as kick
from tests.live.contexts.vhost import test_vhost_queues as vhost
from tests.support.live.contexts import block
from tests.support.live.contexts.hooks import Functions
from tests.support.live.contexts.memory import place_of
from tests.support.live.contexts.modules import OF_PROBE
from tests.support.live.contexts.packets import Flow
from tests.support.live.contexts.taps import EPOLLIN, KICK_AT, RX, TX
from tests.support.live.contexts.unattached import UnattachedProbe, on_cpu
from tests.support.live.contexts.vhost_types import POLL
from tests.support.live.contexts.ways import Ways

Step = Callable[[], object]
WARM, RUNS = 100, 3000
LISTED, PAUSE_S = 250, 0.09
"""Fewer packets than conntrack lists in eight ticks, and more than these (at 100 Hz)."""


def of_vhost(probe: UnattachedProbe) -> list[Step]:
    """A packet at the tap wakes the worker, which gives one buffer to the guest and signals it."""
    host = vhost.Runs(probe)
    host.ring(host.here, 250)
    poll = host._poll(host.here, RX, kicked=False)
    heads = host.memory.keep(struct.pack("=II", 0, 112).ljust(1024, b"\0"))
    return [
        probe.prepare("woken", poll + POLL["wait"], 1, 0, vhost.READABLE),
        probe.prepare("rx_net", poll + POLL["work"]),
        probe.prepare("flushed", 0, host.here.rx, heads, 1, 1),
        probe.prepare("signalled", host.here.calls[RX]),
        probe.prepare("rx_kick_end"),
    ]


def of_tun(probe: UnattachedProbe) -> list[Step]:
    """A packet of the same flow as before, and vhost's batch."""
    host = tun.Rings(probe)
    host.ring(host.here, 5, 3)
    skb = host.offered(host.here, hash=0x12345)
    return [probe.prepare("offered", skb, host.here.device), probe.prepare("taken", 0, host.here.rx)]


def of_irq(probe: UnattachedProbe) -> list[Step]:
    """A packet of its own for each interrupt."""
    host = irq.Interrupts(probe)
    tap, skb = host.here, host.to_tap(host.here)
    return [
        probe.prepare("s1", skb, tap.device),
        probe.prepare("received", tap.sock, host.message(skb)),
        probe.prepare("s2", 0, tap.rx, 0, 1),
        probe.prepare("s3", tap.calls[RX]),
        probe.prepare("s4", tap.lines[RX] + place_of("kvm_kernel_irqfd", "wait")[0], 3, 0, EPOLLIN),
        probe.prepare("s5", irq.APIC, 0, 0, irq.VECTOR),
    ]


def of_kick(probe: UnattachedProbe) -> list[Step]:
    """A kick and a run for each packet."""
    host = kick.Kicks(probe)
    tap = host.here
    device = tap.ioeventfd + place_of("_ioeventfd", "dev")[0]
    return [
        probe.prepare("k1", tap.vcpu, device, KICK_AT, 2, tap.written),
        probe.prepare("k2", tap.work(TX)),
        probe.prepare("k3", tap.sock, host.message()),
        probe.prepare("k4", host.to_tap(tap)),
        probe.prepare("end"),
    ]


def of_kvm(probe: UnattachedProbe) -> list[Step]:
    """An interrupt, a halt of a virtual CPU, and its end."""
    host = kvm.Machines(probe)
    wait = host.here.lines[RX] + place_of("kvm_kernel_irqfd", "wait")[0]
    return [
        probe.prepare("signalled", wait, 3, 0, EPOLLIN),
        probe.prepare("accepted", 7, 0, 0, 0x41),
        probe.prepare("halted", host.here.vcpu),
        probe.prepare("awake", 1000, 1, 1),
        probe.prepare("kicked", host.here.vcpu),
    ]


def of_path(probe: UnattachedProbe) -> list[Step]:
    """A packet from a tap to a NIC. With a threshold each is followed."""
    probe.set(threshold_us=1e6)
    return _crossing(Ways(probe))


def of_path_in_storm(probe: UnattachedProbe) -> list[Step]:
    """The same when it is only counted."""
    host = Ways(probe)
    host.use_up()
    return _crossing(host)


def _crossing(host: Ways) -> list[Step]:
    probe = host.probe
    skb = host.come(Flow(), "tap0")
    receive = probe.prepare("receive", skb)
    came = host.memory.bytes_of("sk_buff", skb)
    host.leaving(skb, host.devices["eth0"])
    leaves = host.memory.bytes_of("sk_buff", skb)
    return [
        lambda: host.memory.put(skb, came),
        receive,
        lambda: host.memory.put(skb, leaves),
        probe.prepare("queue", skb),
        probe.prepare("send", skb, host.devices["eth0"]),
    ]


def of_tracked_storm(probe: UnattachedProbe) -> list[Step]:
    """A packet of a connection that is known. Of so many nearly all are only counted."""
    host = conntrack.Tracking(probe)
    skb, connection = host.packet(Flow(), host.eth0), host.connection()
    came = host.memory.bytes_of("sk_buff", skb)
    host.memory.change("sk_buff", skb, {"_nfct": connection | conntrack.ESTABLISHED})
    found = host.memory.bytes_of("sk_buff", skb)
    return [
        lambda: host.memory.put(skb, came),
        probe.prepare("began", skb, host.arriving),
        lambda: host.memory.put(skb, found),
        probe.prepare("ended", skb, host.arriving, conntrack.ACCEPT, 0, 0, 0, conntrack.ACCEPT),
    ]


def of_tracked(probe: UnattachedProbe) -> list[Step]:
    """The same, few enough that all are listed. After each pause the CPU's cache has something else."""
    numbers = itertools.count(1)

    def pause() -> None:
        if next(numbers) % LISTED == 0:
            time.sleep(PAUSE_S)

    return [pause, *of_tracked_storm(probe)]


def of_block(probe: UnattachedProbe) -> list[Step]:
    """An I/O that is one request, on a device without a scheduler."""
    disks = block.Disks(probe)
    request, _ = disks.started(block.READ, 4096)
    return [
        probe.prepare("started", request),
        probe.prepare("issued", request),
        probe.prepare("completed", request, 0, 4096),
    ]


def of_vm_disk(probe: UnattachedProbe) -> list[Step]:
    """An I/O of a VM, alone in flight, which QEMU's own thread asks for."""
    machine = vm_disk.Machine(probe)
    device, call = machine.queues[0]
    bio = machine.bio()
    return [
        probe.prepare("b1", 0, device, vm_disk.KICK_AT, 4, 0),
        probe.prepare("b2", call),
        probe.prepare("b3", bio),
        probe.prepare("b4", bio),
        probe.prepare("b5", 0, 0, 0, vm_disk.EPOLLIN),
    ]


PROBES: dict[str, tuple[Functions, Callable[[UnattachedProbe], list[Step]]]] = {
    "vhost_queues": (vhost.FUNCTIONS, of_vhost),
    "tun_queues": (tun.FUNCTIONS, of_tun),
    "irq_path": (irq.FUNCTIONS, of_irq),
    "tx_kick_path": (kick.FUNCTIONS, of_kick),
    "kvm_irqs": (kvm.FUNCTIONS, of_kvm),
    "host_path": ({}, of_path),
    "host_path, a storm": ({}, of_path_in_storm),
    "block_path": ({}, of_block),
    "virtio_blk": (vm_disk.FUNCTIONS, of_vm_disk),
    "conntrack": ({}, of_tracked),
    "conntrack, a storm": ({}, of_tracked_storm),
}
"""Behind a comma, what is done with the probe."""


def ran(fd: int) -> tuple[int, int]:
    """Time in ns and runs of a program."""
    info = syscalls.program_info(fd)
    return info.run_time_ns or 0, info.run_count or 0


def measure(probe: UnattachedProbe, steps: list[Step], rounds: int) -> dict[str, list[float]]:
    """ns per run of each program that runs, one figure for each round."""
    found: dict[str, list[float]] = {}
    for _ in range(WARM):
        for step in steps:
            step()
    for _ in range(rounds):
        before = {program.name: ran(program.fd) for program in probe.running.programs}
        for _ in range(RUNS):
            for step in steps:
                step()
        for program in probe.running.programs:
            (from_ns, first), (to_ns, last) = before[program.name], ran(program.fd)
            if last > first:
                found.setdefault(program.name, []).append((to_ns - from_ns) / (last - first))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", nargs="*", choices=tuple(PROBES), default=list(PROBES))
    options = parser.parse_args()
    counted = syscalls.enable_statistics()
    with tempfile.TemporaryDirectory() as directory, on_cpu(0):
        for name in options.only:
            functions, make = PROBES[name]
            for way, plain in (("by loads", False), ("by helpers", True)):
                kept = Path(directory) / "compiled"
                probe_name = name.split(",")[0]
                probe = UnattachedProbe(probe_name, kept, {}, functions, OF_PROBE.get(probe_name, {}), plain=plain)
                times = measure(probe, make(probe), options.rounds)
                probe.close()
                each = (
                    f"{one} {statistics.median(ns):.0f} ns ({min(ns):.0f}-{max(ns):.0f})" for one, ns in times.items()
                )
                print(f"{name}, {way}: {'; '.join(each)}", flush=True)
    os.close(counted)


if __name__ == "__main__":
    main()
