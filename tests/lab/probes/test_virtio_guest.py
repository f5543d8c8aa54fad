"""virtio_guest in the only guest of the lab with Python: the hypervisor itself, with two network cards on one wire."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.lab.collector import InsideMeasurement
from tests.lab.conftest import Lab
from tests.lab.machine.hypervisor import Hypervisor
from tests.lab.network.testbed import Testbed
from tests.support.live.measurement import Row

PINGS = 50
NEAR, FAR = "10.78.0.1", "10.78.0.2"
SHORTAGES = 5
# For a moment no page can be had without waiting, as the receive path wants it: the kernel is told to keep more of them
# free than the machine has. Whoever may wait calls for the OOM killer, which finds processes that are there for that.
SHORTAGE = """
import ctypes, os, signal, time
victims = []
for _ in range(60):
    victims.append(os.fork())
    if not victims[-1]:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
        signal.pause()
kept = os.open("/proc/sys/vm/min_free_kbytes", os.O_RDWR)
enough = os.pread(kept, 32, 0).strip()
with open("/proc/meminfo") as file:
    too_many = str(3 * int(file.readline().split()[1])).encode()
time.sleep(0.5)  # until all victims wait
ctypes.CDLL(None).mlockall(3)
end = time.monotonic() + 0.05
os.pwrite(kept, too_many, 0)
while time.monotonic() < end:
    pass
os.pwrite(kept, enough, 0)
for one in victims:
    os.kill(one, signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def cards(hypervisor: Hypervisor) -> Iterator[tuple[str, str]]:
    """The two cards' names: one here, the other in a namespace, both with an address and without ARP."""
    hypervisor.shell("modprobe virtio_net; ip netns add far")
    names = hypervisor.shell("""
        for mac in 52:54:00:00:01:00 52:54:00:00:01:01; do
            grep -l "$mac" /sys/class/net/*/address | head -n 1 | cut -d/ -f5
        done
    """).split()
    near, far = names
    hypervisor.shell(f"""
        echo 1 >/proc/sys/net/ipv6/conf/{near}/disable_ipv6
        ip link set {far} netns far
        ip netns exec far sh -c 'echo 1 >/proc/sys/net/ipv6/conf/{far}/disable_ipv6'
        ip address add {NEAR}/24 dev {near}; ip link set {near} up
        ip -n far address add {FAR}/24 dev {far}; ip -n far link set {far} up
        ip neighbour replace {FAR} lladdr 52:54:00:00:01:01 dev {near} nud permanent
        ip -n far neighbour replace {NEAR} lladdr 52:54:00:00:01:00 dev {far} nud permanent
    """)
    yield near, far
    hypervisor.shell("ip netns del far; modprobe -r virtio_net")


@pytest.fixture(scope="module")
def collector(testbed: Testbed, lab: Lab, cards: tuple[str, str]) -> Iterator[InsideMeasurement]:
    measurement = lab.collector(testbed)
    measurement.need("virtio_guest")
    yield measurement
    measurement.command(command="unload", probe="virtio_guest")  # a module with a program of ours stays


def interrupts(hypervisor: Hypervisor, device: str) -> int:
    """Of the receive queue, as the kernel counts them."""
    virtio = hypervisor.shell(f"basename $(readlink -f /sys/class/net/{device}/device)").strip()
    (line,) = re.findall(rf"^.*\b{virtio}-input\.0$", hypervisor.read_file("/proc/interrupts").decode(), re.MULTILINE)
    return sum(int(number) for number in re.findall(r"\s(\d+)\b", line.split(":", 1)[1].split("PCI")[0]))


def receive_queue(collector: InsideMeasurement, device: str) -> Row:
    (row,) = collector.rows("virtio_guest", "queues", device=device, direction="rx")
    return row


def test_everything_attaches(collector: InsideMeasurement) -> None:
    status = collector.statuses["virtio_guest"]
    assert status.state == "attached", (status.why, status.missing)


@pytest.mark.proves("virtio_guest", "tables.queues.{packets,interrupts,queue}", "modes.summary")
def test_polls_packets_and_interrupts_are_exact(
    hypervisor: Hypervisor, collector: InsideMeasurement, cards: tuple[str, str]
) -> None:
    near, _ = cards
    collector.begin()
    packets, signals = hypervisor.counter(near, "rx_packets"), interrupts(hypervisor, near)
    hypervisor.run("busybox", "ping", "-c", str(PINGS), "-i", "0.02", FAR)
    collector.settle()
    collector.assert_whole("virtio_guest")
    row = receive_queue(collector, near)
    assert hypervisor.counter(near, "rx_packets") - packets == PINGS
    assert row.counts["packets"] == PINGS
    assert row.counts["interrupts"] == interrupts(hypervisor, near) - signals > 0
    assert row.counts["polls"] >= row.counts["interrupts"]
    assert row.counts["exhausted"] == 0
    assert row.labels["queue"] == 0


@pytest.mark.proves("virtio_guest", "tables.queues.{device,direction,netns}")
def test_both_ends_are_apart(hypervisor: Hypervisor, collector: InsideMeasurement, cards: tuple[str, str]) -> None:
    """Each device is named with its namespace."""
    near, far = cards
    collector.begin()
    hypervisor.run("busybox", "ping", "-c", str(PINGS), "-i", "0.02", FAR)
    collector.settle()
    here, there = receive_queue(collector, near), receive_queue(collector, far)
    assert here.counts["packets"] == there.counts["packets"] == PINGS
    assert (here.labels["netns"], there.labels["netns"]) == ("host", "far")


def test_what_is_no_network_device_is_in_no_row(collector: InsideMeasurement, cards: tuple[str, str]) -> None:
    """The machine has other virtio devices, which interrupt all the time: file shares, consoles."""
    collector.settle()
    devices = {row.labels["device"] for row in collector.rows("virtio_guest", "queues")}
    assert devices <= set(cards)


@pytest.mark.proves("virtio_guest", "tables.devices.device")
def test_a_ring_that_cannot_be_refilled(
    hypervisor: Hypervisor, collector: InsideMeasurement, cards: tuple[str, str]
) -> None:
    """Packets come while there is no memory for more of them: the driver leaves it to a kernel worker."""
    if hypervisor.shell("grep -c ' refill_work' /proc/kallsyms || true").strip() == "0":
        pytest.skip("cannot run here: this driver (7.x) has a pool of pages, which a short shortage does not empty")
    near, far = cards
    hypervisor.shell(f"""
        modprobe pktgen
        ip netns exec far sh -ec '
            cd /proc/net/pktgen
            echo add_device {far} >kpktgend_0
            for line in "count 0" "clone_skb 1000" "delay 1000000" "dst {NEAR}" "dst_mac 52:54:00:00:01:00"; do
                echo "$line" >{far}
            done
        '
    """)
    collector.begin()
    with hypervisor.start("ip", "netns", "exec", "far", "sh", "-c", "echo start >/proc/net/pktgen/pgctrl") as storm:
        for _ in range(SHORTAGES):
            hypervisor.run("python3", "-c", SHORTAGE)
            collector.settle()
            if collector.rows("virtio_guest", "devices"):
                break
        hypervisor.shell("ip netns exec far sh -c 'echo stop >/proc/net/pktgen/pgctrl'")
        storm.wait()
    hypervisor.shell("ip netns exec far sh -c 'echo rem_device_all >/proc/net/pktgen/kpktgend_0'")
    (row,) = collector.rows("virtio_guest", "devices")
    assert row.labels["device"] == near
    assert row.counts["refills"] > 0
    before = hypervisor.counter(near, "rx_packets")
    hypervisor.run("busybox", "ping", "-c", str(PINGS), "-i", "0.02", FAR)
    assert hypervisor.counter(near, "rx_packets") - before == PINGS


def test_a_wrong_layout_is_found_out(
    hypervisor: Hypervisor, collector: InsideMeasurement, cards: tuple[str, str]
) -> None:
    """What a card polls then leads to nothing; that is no other driver's card, so it is told."""
    name = collector.load_altered("virtio_guest", "!= VIRTIO_ID_NET", "== VIRTIO_ID_NET")
    try:
        hypervisor.run("busybox", "ping", "-c", str(PINGS), "-i", "0.02", FAR)
        collector.until(lambda: collector.statuses[name].state == "degraded", "the refusal")
        status = collector.statuses[name]
        assert "no queue of it" in (status.why or "")
        assert status.attach == []
        assert collector.rows(name, "queues") == []
    finally:
        collector.command(command="unload", probe=name)
