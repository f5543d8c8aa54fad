"""Measures flow_top, mirror or mirror_xdp at the highest rate at which this machine can send: what it counts and costs.

Frames of 128 bytes go over a veth between two namespaces, each of another flow, and between them those of a few heavy
flows; then the same inside VXLAN. The sender hands them to a packet socket a thousand at a time. For each load it
prints the packets that were sent and that the probe counted on each side, how many heavy flows are listed and how much
of the worst one is missing, what a flow that is not listed can have had at most, the rate with and without the probe,
and the kernel's nanoseconds per packet. It ends with 1 if a packet is not counted or a heavy flow is not listed.

With --pairs it says instead at which share of the rate of an XDP program that only passes mirror_xdp lets packets
come: it sends each load so often with the one and then with the other.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.path_cost import STATISTICS_MS, Timing
from tests.live.probes.test_nic_counters import DROP_ALL
from tests.support.live.network import Namespace, Wire

PASS_ALL = DROP_ALL.replace("0xB7, 0, 0, 1", "0xB7, 0, 0, 2")
"""An XDP program that returns XDP_PASS."""
COUNTERS = {"flow_top": ("sent", "received"), "mirror": ("arrived",), "mirror_xdp": ("arrived",)}
"""Of each probe those that have all packets of a load."""
TARGET = "100.127.55.1"
"""Of all flows: others' packets are filtered out."""
HEAVY = 16
ONE_IN = 5
"""One packet in so many is one of a heavy flow."""
LEAST_PACKETS = 500_000
INTERVAL_MS = 500

SEND = """
import ctypes, os, socket, struct, sys, time
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # as a NIC does it: a flow stays on its CPU
device, flows, heavy, one_in, passes, vxlan, checked = sys.argv[1], *map(int, sys.argv[2:])
ETHERNET = bytes.fromhex("02000000000b02000000000a0800")
def ip(source, payload, target=bytes([100, 127, 55, 1])):
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 0, 0x4000, 64, 17, 0, source, target)
    total = sum(struct.unpack(">10H", head))
    total = (total & 0xffff) + (total >> 16)
    check = struct.pack(">H", ~(total + (total >> 16)) & 0xffff) if checked else head[10:12]
    return head[:10] + check + head[12:] + payload
def frame(source, port):
    inner = ETHERNET + ip(source, struct.pack(">HHHH", port, 9, 94, 0) + bytes(86))
    if not vxlan:
        return inner
    outer = struct.pack(">HHHHII", 49152 + port % 16384, 4789, 16 + len(inner), 0, 1 << 27, 7 << 8) + inner
    return ETHERNET + ip(bytes([203, 0, 113, 1]), outer)
light = [frame(struct.pack(">I", 0x0a000000 + n), 2000) for n in range(flows)]
large = [frame(bytes([198, 18, 0, n]), 1000 + n) for n in range(heavy)]
size, order, sent_large = len(light[0]), [], 0
for n in range(flows):
    order.append(heavy + n)
    if n % (one_in - 1) == 0:
        order.append(sent_large % heavy)
        sent_large += 1
frames = ctypes.create_string_buffer(b"".join(large + light), (heavy + flows) * size)
base = ctypes.addressof(frames)
vectors = ctypes.create_string_buffer(16 * len(order))
messages = ctypes.create_string_buffer(64 * len(order))
at = ctypes.addressof(vectors)
for place, number in enumerate(order):
    struct.pack_into("=QQ", vectors, 16 * place, base + number * size, size)
    struct.pack_into("=QIIQQQQII", messages, 64 * place, 0, 0, 0, at + 16 * place, 1, 0, 0, 0, 0)
libc, start = ctypes.CDLL(None, use_errno=True), ctypes.addressof(messages)
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind((device, 0))
began = time.monotonic()
for _ in range(passes):
    done = 0
    while done < len(order):
        count = libc.sendmmsg(wire.fileno(), ctypes.c_void_p(start + 64 * done), min(1024, len(order) - done), 0)
        if count < 0 and ctypes.get_errno() != 105:
            raise OSError(ctypes.get_errno(), "sendmmsg")
        done += max(0, count)
print(passes * len(order), time.monotonic() - began, passes * (sent_large // heavy))
"""


class Load:
    """So many flows, plain or inside VXLAN. ``is_checked``: with IP checksums, so that the stack takes them."""

    def __init__(self, wire: Wire, flows: int, *, vxlan: bool, is_checked: bool = False) -> None:
        self.wire, self.flows, self.vxlan, self.is_checked = wire, flows, vxlan, is_checked
        self.passes = 1 + LEAST_PACKETS // flows
        self.title = f"{flows:,} flows{' in VXLAN' if vxlan else ''}"

    def send(self) -> tuple[int, float, int]:
        """Packets in all, how many a second, and of each heavy flow at least."""
        words = (Wire.DEVICES[0], self.flows, HEAVY, ONE_IN, self.passes, int(self.vxlan), int(self.is_checked))
        sent, took_s, heavy = self.wire.a.python(SEND, *words).split()
        return int(sent), int(sent) / float(took_s), int(heavy)


def measure(collector: Timing, probe: str, load: Load) -> bool:
    """Prints what came of one load. Returns whether all was counted and listed."""
    _, alone, _ = load.send()
    device = {"device": Wire.DEVICES[1]} if probe == "mirror_xdp" else {}
    collector.load(probe, address=TARGET, **device)
    collector.command(command="interval", ms=INTERVAL_MS)
    collector.begin()
    sent, rate, heavy = load.send()
    collector.command(command="read_whole")  # of many flows the rows are read less often
    collector.settle()
    counted = [collector.counter(probe, name) for name in COUNTERS[probe]]
    rows = collector.rows(probe, "flows", device=Wire.DEVICES[1])
    found = {str(row.labels["source"]): row for row in rows}
    listed = [found[f"198.18.0.{n}"] for n in range(HEAVY) if f"198.18.0.{n}" in found]
    missing = [1 - row.counts["packets"] / heavy for row in listed]
    bounds = [int(row.gauges.get("missed") or 0) for row in listed]
    at_most = max((int(row.gauges["at_most"] or 0) for row in collector.rows(probe, "cpus")), default=0)
    collector.statistics(STATISTICS_MS)
    load.send()
    collector.settle()
    runs = {name: time_ns / count for name, (count, time_ns) in collector.runs.items() if count}
    collector.statistics(0)
    collector.command(command="unload", probe=probe)
    print(
        f"| {load.title} | {sent:,} | {' · '.join(f'{count:,}' for count in counted)} "
        f"| {len(listed)} of {HEAVY}, {100 * max(missing, default=1):.2f} % missing (said: {max(bounds, default=0)}) "
        f"| {at_most} | {rate:,.0f} of {alone:,.0f} | {' · '.join(f'`{n}` {ns:.0f}' for n, ns in runs.items())} |"
    )
    return set(counted) == {sent} and len(listed) == HEAVY


def against_empty(collector: Timing, load: Load, pairs: int) -> None:
    """Prints the median and the range of the shares."""
    device = Wire.DEVICES[1]
    shares, rates = [], []
    for _ in range(pairs):
        passing = load.wire.b.start(PASS_ALL, device)
        assert passing.stdout and passing.stdout.readline() == "ready\n"
        _, empty, _ = load.send()
        passing.communicate(timeout=60)
        collector.load("mirror_xdp", device=device)
        _, rate, _ = load.send()
        collector.command(command="unload", probe="mirror_xdp")
        shares.append(rate / empty)
        rates.append(empty)
    low, high = min(shares), max(shares)
    print(f"| {load.title} | {median(rates):,.0f} | {median(shares):.2f} ({low:.2f}-{high:.2f}, {pairs} pairs) |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flows", type=int, nargs="+", default=[100, 60_000, 300_000])
    parser.add_argument("--probe", choices=tuple(COUNTERS), default="flow_top")
    parser.add_argument("--pairs", type=int, default=0)
    options = parser.parse_args()
    if options.pairs and options.probe != "mirror_xdp":
        parser.error("--pairs is for --probe mirror_xdp")
    if not options.pairs and min(options.flows) < HEAVY * (ONE_IN - 1):
        parser.error("so few flows have no heavy ones among them: take 64 or more, or --pairs")
    if os.geteuid() != 0:
        raise SystemExit("flow_rate.py needs root: it loads BPF programs and makes network namespaces")
    with ExitStack() as stack:
        ends = [Namespace(), Namespace()]
        for end in ends:
            stack.callback(end.remove)
        wire = Wire(*ends)
        collector = stack.enter_context(closing(Timing(inside=wire.b if options.probe == "mirror_xdp" else None)))
        collector.statistics(0)
        if options.pairs:
            print("| load | packets/s with an empty program | share of it with mirror_xdp |")
            print("|---|---|---|")
            for flows in options.flows:
                against_empty(collector, Load(wire, flows, vxlan=True), options.pairs)
            return 0
        print("| load | sent | counted out · in | heavy flows listed | not listed: at most | packets/s | ns a run |")
        print("|---|---|---|---|---|---|---|")
        loads = [
            Load(wire, flows, vxlan=vxlan)
            for vxlan in ((False, True) if options.probe == "flow_top" else (True,))
            for flows in options.flows
        ]
        verdicts = [measure(collector, options.probe, load) for load in loads]
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
