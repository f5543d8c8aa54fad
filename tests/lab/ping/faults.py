"""Faults of one place on the way of a ping. Each tells its size from something else than a vantage point.

They are context managers. What they yield gives the time that a fault has cost each echo of a case, in microseconds,
when the fault is over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from netconsole.ping.cases import PingCase
from tests.lab.machine.hypervisor import Hypervisor
from tests.lab.machine.l2 import Guest
from tests.lab.network.traffic import on_a_busy_cpu, qemu_pid, worker_pids
from tests.lab.ping.four_points import capture_of
from tests.lab.ping.two_hosts import IN_THE_WIRE

Cost: TypeAlias = Callable[[PingCase], float]

ECHO_BYTES = 98
"""Of the frame: Ethernet 14, IPv4 20, ICMP 8 and 56 that it carries."""
CGROUP = "/run/lab/cgroup"
WAITED = 1
"""Place in a thread's schedstat: ns that it was runnable and did not run (Documentation/scheduler/sched-stats.rst)."""


@contextlib.contextmanager
def slow_wire(hypervisor: Hypervisor, delay_ms: int) -> Iterator[Cost]:
    """What goes to the receiver's host takes so much longer."""
    hypervisor.run(*IN_THE_WIRE, "tc", "qdisc", "add", "dev", "tob", "root", "netem", "delay", f"{delay_ms}ms")
    try:
        yield lambda case: delay_ms * 1000.0
    finally:
        hypervisor.run(*IN_THE_WIRE, "tc", "qdisc", "del", "dev", "tob", "root")


@contextlib.contextmanager
def narrow_tap(hypervisor: Hypervisor, guest: Guest, rate_bytes: int, burst_bytes: int) -> Iterator[Cost]:
    """The guest gets so many bytes a second (tbf). The size is what a bucket does to echoes that come as these did."""

    def cost(case: PingCase) -> float:
        came = [echo.at_ns / 1e9 for echo in capture_of(case, "receiver-host").packets if echo.at_ns is not None]
        waits = waits_of_bucket(came, ECHO_BYTES, rate_bytes, burst_bytes)
        return sum(waits) / len(waits) * 1e6

    rate = ("rate", f"{rate_bytes * 8}bit", "burst", str(burst_bytes), "limit", "100k")
    hypervisor.run("tc", "qdisc", "add", "dev", guest.card.tap, "root", "tbf", *rate)
    try:
        yield cost
    finally:
        hypervisor.run("tc", "qdisc", "del", "dev", guest.card.tap, "root")


def waits_of_bucket(arrivals_s: Sequence[float], size: int, rate_bytes: int, burst_bytes: int) -> list[float]:
    """How long each packet of one size waits for its tokens, in seconds (net/sched/sch_tbf.c)."""
    waits, full_at = [], arrivals_s[0]
    for arrival in arrivals_s:
        leaves = max(arrival, full_at + (size - burst_bytes) / rate_bytes)
        full_at = max(full_at, leaves) + size / rate_bytes
        waits.append(leaves - arrival)
    return waits


@contextlib.contextmanager
def busy_worker(hypervisor: Hypervisor, guests: Sequence[Guest], slow: Guest) -> Iterator[Cost]:
    """A guest's vhost worker has a busy CPU. The size is what the scheduler says that the worker waited.

    All guests run on the other CPU.
    """
    workers, taken = worker_pids(hypervisor, slow), [0.0]
    qemus = [qemu_pid(hypervisor, guest) for guest in guests]
    hypervisor.shell("\n".join(f"taskset -apc 0 {pid}" for pid in qemus))
    before = _waited_us(hypervisor, workers)
    try:
        with on_a_busy_cpu(hypervisor, workers):
            yield lambda case: taken[0] / len(capture_of(case, "receiver-host").packets)
            taken[0] = _waited_us(hypervisor, workers) - before
    finally:
        hypervisor.shell("\n".join(f"taskset -apc 0,1 {pid}" for pid in qemus))


def _waited_us(hypervisor: Hypervisor, pids: Sequence[str]) -> float:
    files = " ".join(f"/proc/{pid}/schedstat" for pid in pids)
    return sum(int(line.split()[WAITED]) for line in hypervisor.shell(f"cat {files}").splitlines()) / 1000


@contextlib.contextmanager
def slow_guest(hypervisor: Hypervisor, guest: Guest, quota_ms: int, period_ms: int) -> Iterator[Cost]:
    """A guest's QEMU gets so much CPU time in each period, and something in the guest takes all of it.

    The size follows from how long the group was throttled: what comes then waits half of that time on average. vhost's
    worker is in no such group, and gets all that it wants.
    """
    taken = [0.0]
    guest.run("sh -c 'while :; do :; done' & echo $! >/spinning")
    hypervisor.shell(f"""
        mkdir -p {CGROUP}
        mountpoint -q {CGROUP} || mount -t cgroup2 none {CGROUP}
        echo +cpu >{CGROUP}/cgroup.subtree_control
        mkdir -p {CGROUP}/slow
        echo {quota_ms * 1000} {period_ms * 1000} >{CGROUP}/slow/cpu.max
        echo {qemu_pid(hypervisor, guest)} >{CGROUP}/slow/cgroup.procs
    """)
    before, began_s = _throttled(hypervisor), hypervisor.uptime_s()
    try:
        yield lambda case: taken[0]
        after, ended_s = _throttled(hypervisor), hypervisor.uptime_s()
        times, throttled_us = (later - earlier for later, earlier in zip(after, before, strict=True))
        taken[0] = throttled_us / (ended_s - began_s) / 1e6 * throttled_us / times / 2
    finally:
        hypervisor.shell(f"""
            echo {qemu_pid(hypervisor, guest)} >{CGROUP}/cgroup.procs
            rmdir {CGROUP}/slow
        """)
        guest.run("kill $(cat /spinning)")


def _throttled(hypervisor: Hypervisor) -> tuple[int, int]:
    """How often the group was throttled, and for how many microseconds."""
    told = dict(line.split() for line in hypervisor.shell(f"cat {CGROUP}/slow/cpu.stat").splitlines())
    return int(told["nr_throttled"]), int(told["throttled_usec"])
