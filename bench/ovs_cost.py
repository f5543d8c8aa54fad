"""What probes of Open vSwitch and of packets' ways cost the traffic that they watch: with and without each, in turn.

`--lab`: a storm in which every packet is a new flow, through Open vSwitch's kernel datapath in the lab; at most 64 of
them wait for their answer, so that its rate is that of upcalls answered. `--local`: datagrams through a bridge between
namespaces on this machine, by the sender's CPU time. Prints ratios, each of a window with the probe to the mean of
those without around it; asserts nothing. The lab is an emulated machine: relations carry over, times do not.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.lab.collector import InsideMeasurement
from tests.lab.errors import LabUnavailable
from tests.lab.fetch import kernels
from tests.lab.testbed import BRIDGE, Testbed
from tests.live.measurement import Measurement
from tests.live.path import INSIDE, OUTSIDE, B, Host

UPCALLS_TARGET = 0.95
"""The share of its upcall rate that the datapath is to keep."""
FLOWS = 1000
SLICES = 5
SLICE_S = 0.3
PORT = 7777
_CPUCLOCK_SCHED = 2
"""include/linux/posix-timers.h."""

# One rule looks at source addresses, so that every flow in the kernel has to.
SWITCH = """
for name in a b; do
    ip netns add $name
    ip link add v$name type veth peer name eth0 netns $name
    for where in "" "ip netns exec $name"; do $where sh -c 'echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6'; done
    ip link set v$name up
    ip -n $name link set eth0 up
    ovs-vsctl add-port {bridge} v$name
done
ovs-ofctl add-flow {bridge} priority=100,in_port=va,actions=output:vb
ovs-ofctl add-flow {bridge} priority=200,in_port=va,dl_src=02:ff:ff:ff:ff:ff,actions=drop
"""
STORM = """
import ctypes, os, socket, struct, sys, time
count, first, most = map(int, sys.argv[1:])
libc, home, there = ctypes.CDLL(None), os.open("/proc/self/ns/net", 0), os.open("/run/netns/a", 0)
assert not libc.setns(there, 0)
device = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
device.bind(("eth0", 0))
assert not libc.setns(home, 0)
answers = open("/sys/class/net/vb/statistics/tx_packets")
def answered():
    answers.seek(0)
    return int(answers.read())
ip = struct.pack("!BBHHHBBH", 0x45, 0, 48, 0, 0x4000, 64, 17, 0) + b"\\12\\11\\0\\1" + b"\\12\\11\\0\\2"
udp = struct.pack("!HHHH", 1000, 2000, 28, 0) + bytes(20)
frames = [b"\\2BB\\0\\0\\1\\2B" + struct.pack("!I", first + one) + b"\\10\\0" + ip + udp for one in range(count)]
begun, begin = answered(), time.monotonic_ns()
for number, frame in enumerate(frames):
    while number % 8 == 0 and number - (answered() - begun) > most:
        pass
    device.send(frame)
while answered() - begun < count:
    pass
print(time.monotonic_ns() - begin)
"""
SEND = """
import os, socket, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
sender, payload, to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), bytes(64), (sys.argv[2], int(sys.argv[3]))
print("ready", flush=True)
while True:
    sender.sendto(payload, to)
"""
RECEIVE = """
import os, socket, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
receiver, room = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), bytearray(128)
receiver.bind(("", int(sys.argv[2])))
print("ready", flush=True)
while True:
    receiver.recv_into(room)
"""


def compared(rounds: int, window: Callable[[], float], load: Callable[[], None], unload: Callable[[], None]) -> str:
    """Ratios of the figure with to that without, of each round: median, least and most."""
    found = []
    before = window()
    for _ in range(rounds):
        load()
        during = window()
        unload()
        after = window()
        found.append(2 * during / (before + after))
        before = after
    return f"{statistics.median(found):.2f} ({min(found):.2f}-{max(found):.2f})"


class Probes:
    """Some probes of a collector, loaded and unloaded together."""

    def __init__(self, collector: Measurement, names: Sequence[str], knobs: dict[str, dict[str, str]]) -> None:
        self.collector, self.names, self.knobs = collector, names, knobs
        self.submitted = 0

    def load(self) -> None:
        for name in self.names:
            self.collector.load(name, **self.knobs.get(name, {}))

    def unload(self) -> None:
        self.collector.settle()
        for name in self.names:
            self.submitted += self.collector.event_count(name, "submitted")
            self.collector.command(command="unload", probe=name)


def in_the_lab(rounds: int, groups: dict[str, list[str]]) -> None:
    try:
        bed = Testbed(kernels()[0], guests=0)
    except LabUnavailable as error:
        print(f"the lab cannot run here: {error}")
        return
    with bed:
        bed.hypervisor.shell(SWITCH.format(bridge=BRIDGE))
        collector = InsideMeasurement(bed.hypervisor)
        sent = 0

        def per_s() -> float:
            """Upcalls answered per second, the best of a few storms."""
            nonlocal sent
            rates = []
            for _ in range(SLICES):
                bed.hypervisor.run("ovs-appctl", "dpctl/del-flows")
                took_ns = bed.hypervisor.run("python3", "-c", STORM, str(FLOWS), str(sent), "64").text
                sent += FLOWS
                rates.append(FLOWS * 1e9 / int(took_ns))
            return max(rates)

        print(f"without: {per_s():.0f} upcalls/s answered, each packet a new flow; target: {UPCALLS_TARGET:.0%} of it")
        print("| with | upcalls answered, of the rate without | events submitted |\n|---|---|---|", flush=True)
        sets = {"host_path": {"inside_devices": "va", "outside_devices": "vb"}}
        for title, names in groups.items():
            chosen = Probes(collector, names, sets)
            ratio = compared(rounds, per_s, chosen.load, chosen.unload)
            print(f"| {title} | {ratio} | {chosen.submitted} |", flush=True)
        collector.close()


@contextmanager
def program(words: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """A program that says when it is ready, ended with the block."""
    try:
        assert words.stdout is not None
        assert words.stdout.readline() == "ready\n"
        yield words
    finally:
        words.kill()
        words.wait()


def here(rounds: int, groups: dict[str, list[str]]) -> None:
    if os.geteuid() != 0:
        print("the local part needs root")
        return
    host, cpus = Host(), sorted(os.sched_getaffinity(0))
    try:
        host.bridge()
        receiver = host.b.start(RECEIVE, cpus[-1], PORT)
        sender = host.a.start(SEND, cpus[0], B, PORT)
        with program(receiver), program(sender):
            collector = Measurement()
            clock = ~sender.pid << 3 | _CPUCLOCK_SCHED

            def cpu_ns() -> float:
                """The sender's CPU time for a datagram, all that happens to it in its context included: the least."""
                slices = []
                for _ in range(SLICES):
                    sent, began_ns = host.h.statistics(INSIDE)["rx"]["packets"], time.clock_gettime_ns(clock)
                    time.sleep(SLICE_S)
                    took_ns = time.clock_gettime_ns(clock) - began_ns
                    slices.append(took_ns / (host.h.statistics(INSIDE)["rx"]["packets"] - sent))
                return min(slices)

            print(f"without: {cpu_ns():.0f} ns of the sender's CPU for a datagram through a bridge to a socket")
            print("| with | CPU per datagram, of that without | events submitted |\n|---|---|---|", flush=True)
            sets = {
                "host_path": {"inside_devices": INSIDE, "outside_devices": OUTSIDE},
                "local_path": {"host_devices": "eth0"},
            }
            for title, names in groups.items():
                chosen = Probes(collector, names, sets)
                ratio = compared(rounds, cpu_ns, chosen.load, chosen.unload)
                print(f"| {title} | {ratio} | {chosen.submitted} |", flush=True)
            collector.close()
    finally:
        host.remove()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lab", action="store_true", help="only the lab")
    parser.add_argument("--local", action="store_true", help="only this machine")
    parser.add_argument("--only", nargs="*", help="only these rows")
    options = parser.parse_args()
    both = options.lab == options.local
    lab = {"nothing": [], "ovs_upcalls": ["ovs_upcalls"], "ovs_drops": ["ovs_drops"], "host_path": ["host_path"]}
    local = {"nothing": [], "host_path": ["host_path"], "local_path": ["local_path"]}
    if both or options.local:
        here(options.rounds, {name: row for name, row in local.items() if name in (options.only or local)})
    if both or options.lab:
        in_the_lab(options.rounds, {name: row for name, row in lab.items() if name in (options.only or lab)})


if __name__ == "__main__":
    main()
