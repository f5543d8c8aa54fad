"""Traffic with a known number of packets, and faults of a VM, for tests of what lies between tap and guest."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from .hypervisor import Hypervisor
from .l2 import Guest

PING_LIMIT_S = 60.0
YIELDING = 19  # nice: a seventieth of the CPU, beside a process of nice 0

# Through the whole stack, unlike pktgen, which keeps a reference to every packet: those are never seen as dropped.
FLOOD = """
import socket, sys
address, count = sys.argv[1], int(sys.argv[2])
flood = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
flood.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 26)
for number in range(count):
    flood.sendto(bytes(60), (address, 9))
"""


def ping(hypervisor: Hypervisor, guest: Guest, count: int, *, interval_s: float = 0.05) -> list[float]:
    """Round-trip times in ms of exactly `count` echoes from the hypervisor; fails when one is lost."""
    command = ("busybox", "ping", "-c", str(count), "-i", str(interval_s), "-W", "20", guest.card.at.ip)
    shown = hypervisor.run(*command, limit_s=PING_LIMIT_S, check=False).text
    times = [float(time) for time in re.findall(r"time=([\d.]+) ms", shown)]
    assert len(times) == count, shown
    return times


def flood(hypervisor: Hypervisor, guest: Guest, count: int) -> None:
    """Sends exactly `count` UDP datagrams of 60 bytes from a socket of the hypervisor."""
    hypervisor.run("python3", "-c", FLOOD, guest.card.at.ip, str(count))


@contextlib.contextmanager
def frozen(hypervisor: Hypervisor, guest: Guest) -> Iterator[None]:
    """The guest does not run: its QEMU is stopped. vhost, a kernel thread, goes on until the ring is used up."""
    pid = qemu_pid(hypervisor, guest)
    hypervisor.run("kill", "-STOP", pid)
    try:
        yield
    finally:
        hypervisor.run("kill", "-CONT", pid)


@contextlib.contextmanager
def worker_on_a_busy_cpu(hypervisor: Hypervisor, guest: Guest) -> Iterator[None]:
    """The guest's vhost workers share one CPU with a loop that never sleeps, and yield to it."""
    pids = worker_pids(hypervisor, guest)
    with hypervisor.start("taskset", "-c", "1", "python3", "-c", "print(1, flush=True)\nwhile True: pass") as loop:
        loop.wait_for(b"1")
        for pid in pids:
            hypervisor.shell(f"taskset -pc 1 {pid}; renice -n {YIELDING} -p {pid}")
        try:
            yield
        finally:
            for pid in pids:
                hypervisor.shell(f"taskset -pc 0,1 {pid}; renice -n 0 -p {pid}")


def qemu_pid(hypervisor: Hypervisor, guest: Guest) -> str:
    return hypervisor.run("pgrep", "-f", f"^qemu-system-x86_64 .*-name {guest.name} ").text.split()[0]


def worker_pids(hypervisor: Hypervisor, guest: Guest) -> list[str]:
    """The vhost threads of a guest (kernel threads named after their owner, before 6.4)."""
    return hypervisor.run("pgrep", f"^vhost-{qemu_pid(hypervisor, guest)}$").text.split()
