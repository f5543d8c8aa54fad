"""Traffic with a known number of packets, and faults of a VM, for tests between tap and guest."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from tests.lab.machine.hypervisor import Hypervisor
from tests.lab.machine.l2 import Guest

PING_LIMIT_S = 60.0
BUSY_S = 0.2
FREE_S = 0.02

# Takes a CPU from everything that is not of a real-time class, and lets go of it again and again.
HOG = """
import os, sys, time
busy_s, free_s = float(sys.argv[1]), float(sys.argv[2])
os.sched_setaffinity(0, {1})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
print("busy", flush=True)
while True:
    end = time.monotonic() + busy_s
    while time.monotonic() < end:
        pass
    time.sleep(free_s)
"""

# Through the whole stack, unlike pktgen, which keeps a reference to every packet: those are never seen as dropped.
FLOOD = """
import socket, sys
address, count = sys.argv[1], int(sys.argv[2])
flood = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
flood.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 26)
for number in range(count):
    flood.sendto(bytes(60), (address, 9))
"""

# Each connected socket has a hash of its own, which the host gives its packets.
FLOWS = """
import socket, sys
address, flows, each = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for flow in range(flows):
    flow = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    flow.connect((address, 9))
    sent = 0
    while sent < each:
        try:
            flow.send(bytes(60))
            sent += 1
        except ConnectionRefusedError:  # the answer to an earlier one
            pass
"""

# TCP packets of several segments as a guest hands them over: whole, for whoever is next to cut (PACKET_VNET_HDR).
SEGMENTS = """
import socket, struct, sys
device, mac, packets, segments, size = sys.argv[1], bytes.fromhex(sys.argv[2]), *map(int, sys.argv[3:6])
sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
sender.setsockopt(263, 15, 1)
sender.bind((device, 0x0800))
header = struct.pack("=BBHHHH", 1, 1, 54, size, 34, 16)  # checksum wanted, TCP over IPv4
data = bytes(segments * size)
ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 40 + len(data), 0, 0, 64, 6, 0, bytes(4), bytes(4))
tcp = struct.pack("!HHIIBBHHH", 9, 9, 0, 0, 0x50, 0x10, 1024, 0, 0)
for number in range(packets):
    sender.send(header + mac + mac + b"\\x08\\x00" + ip + tcp + data)
"""


def ping(hypervisor: Hypervisor, guest: Guest, count: int, *, interval_s: float = 0.05) -> list[float]:
    """Round-trip times in ms of exactly `count` echoes from the hypervisor; fails when one is lost."""
    command = ("busybox", "ping", "-c", str(count), "-i", str(interval_s), "-W", "20", guest.card.at.ip)
    shown = hypervisor.run(*command, limit_s=PING_LIMIT_S, check=False).text
    times = [float(time) for time in re.findall(r"time=([\d.]+) ms", shown)]
    assert len(times) == count, shown
    return times


def flood(hypervisor: Hypervisor, ip: str, count: int) -> None:
    """Sends exactly `count` UDP datagrams of 60 bytes from a socket of the hypervisor."""
    hypervisor.run("python3", "-c", FLOOD, ip, str(count))


def flows(hypervisor: Hypervisor, ip: str, count: int, packets: int) -> None:
    """Sends so many UDP datagrams of each of `count` flows."""
    hypervisor.run("python3", "-c", FLOWS, ip, str(count), str(packets))


def large_segments(hypervisor: Hypervisor, device: str, mac: str, packets: int, segments: int, size: int) -> None:
    """Gives the device TCP packets, each of so many segments with `size` bytes of data."""
    arguments = (device, mac.replace(":", ""), str(packets), str(segments), str(size))
    hypervisor.run("python3", "-c", SEGMENTS, *arguments)


@contextlib.contextmanager
def paused(guest: Guest) -> Iterator[None]:
    """The guest does not run: QEMU's monitor has stopped it, and QEMU has taken its queues away from vhost."""
    guest.monitor("stop")
    try:
        yield
    finally:
        guest.monitor("cont")


FREEZE = """
mkdir -p /run/freezer
mountpoint -q /run/freezer || mount -t cgroup -o freezer freezer /run/freezer
mkdir -p /run/freezer/guest
for task in /proc/{pid}/task/*; do
    case "$(cat $task/comm)" in vhost-*) ;; *) echo "${{task##*/}}" >/run/freezer/guest/tasks ;; esac
done
echo FROZEN >/run/freezer/guest/freezer.state
until [ "$(cat /run/freezer/guest/freezer.state)" = FROZEN ]; do sleep 0.05; done
"""
THAW = """
echo THAWED >/run/freezer/guest/freezer.state
for task in $(cat /run/freezer/guest/tasks); do echo "$task" >/run/freezer/tasks || true; done
rmdir /run/freezer/guest
umount /run/freezer
"""


@contextlib.contextmanager
def frozen(hypervisor: Hypervisor, guest: Guest) -> Iterator[None]:
    """The guest does not run: its QEMU gets no CPU. vhost's worker goes on until the ring is used up.

    Not by SIGSTOP: since 6.4 the worker is a thread of QEMU, and would stop too (kernel/vhost_task.c).
    """
    hypervisor.shell(FREEZE.format(pid=qemu_pid(hypervisor, guest)))
    try:
        yield
    finally:
        hypervisor.shell(THAW)


@contextlib.contextmanager
def stopped(hypervisor: Hypervisor, guest: Guest) -> Iterator[None]:
    """Its QEMU is stopped by SIGSTOP, and since 6.4 vhost's worker with it."""
    pid = qemu_pid(hypervisor, guest)
    hypervisor.run("kill", "-STOP", pid)
    try:
        yield
    finally:
        hypervisor.run("kill", "-CONT", pid)


@contextlib.contextmanager
def worker_on_a_busy_cpu(hypervisor: Hypervisor, guest: Guest) -> Iterator[None]:
    """The guest's vhost workers get a CPU for 20 ms in every 220: what comes in between waits, 100 ms on average."""
    with on_a_busy_cpu(hypervisor, worker_pids(hypervisor, guest)):
        yield


@contextlib.contextmanager
def on_a_busy_cpu(hypervisor: Hypervisor, pids: list[str]) -> Iterator[None]:
    """Likewise, for these threads."""
    hypervisor.shell("\n".join(f"taskset -pc 1 {pid}" for pid in pids))
    with hypervisor.start("python3", "-c", HOG, str(BUSY_S), str(FREE_S)) as hog:
        hog.wait_for(b"busy")
        yield
    hypervisor.shell("\n".join(f"taskset -pc 0,1 {pid}" for pid in pids))


def qemu_pid(hypervisor: Hypervisor, guest: Guest) -> str:
    return hypervisor.run("pgrep", "-f", f"^qemu-system-x86_64 .*-name {guest.name}[ ,]").text.split()[0]


def worker_pids(hypervisor: Hypervisor, guest: Guest) -> list[str]:
    """The vhost threads of a guest."""
    return workers_of(hypervisor, qemu_pid(hypervisor, guest))


def workers_of(hypervisor: Hypervisor, pid: str) -> list[str]:
    """The vhost threads of a process: its own since 6.4, before that kernel threads named after it."""
    return hypervisor.run("pgrep", "--lightweight", f"^vhost-{pid}$").text.split()
