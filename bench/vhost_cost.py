"""What the probes between tap and guest cost the traffic that they watch: the lab, with and without each, in turn.

Rates and worker CPU are those of a peer that only drives vhost-net (tests/lab/vhost_peer.py); the round trip is of a
nested guest. Prints ratios, each of a window with the probe to the mean of those without around it, and the kernel's
own nanoseconds per run; asserts nothing. An emulated machine: relations carry over, times do not.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.lab.collector import InsideMeasurement
from tests.lab.errors import LabUnavailable
from tests.lab.fetch import kernels
from tests.lab.peer import FAR, Peer
from tests.lab.testbed import Testbed
from tests.lab.traffic import FLOOD, ping

from netconsole import frames

PROBES = ("vhost_queues", "tun_queues", "irq_path", "tx_kick_path", "kvm_irqs")
PACKETS = 20_000
PINGS = 40
STATISTICS_MS = 1000
TIMED_FLOOD = "import time\nstart = time.monotonic_ns()\n" + FLOOD + "print(time.monotonic_ns() - start)\n"


class Window(NamedTuple):
    """One turn of the traffic: ns for each packet of the sender's and of the worker's, and ms of a round trip."""

    from_guest_ns: float
    from_guest_worker_ns: float
    to_guest_ns: float
    to_guest_worker_ns: float
    round_trip_ms: float


HEADS = ("from guest: time", "worker CPU", "to guest: sender", "worker CPU", "round trip")


class Traffic:
    def __init__(self, bed: Testbed, peer: Peer) -> None:
        self._bed, self._peer = bed, peer
        owner = bed.hypervisor.run("pgrep", "-f", "vhost_peer.py").text.split()[0]
        self._worker = bed.hypervisor.run("pgrep", f"^vhost-{owner}$").text.strip()

    def window(self) -> Window:
        start = self._worker_ns()
        sending_ns = self._peer.send(PACKETS)
        sent = self._worker_ns()
        before = self._peer.used()
        flood_ns = int(self._bed.hypervisor.run("python3", "-c", TIMED_FLOOD, FAR, str(PACKETS)).text)
        received_ns = self._worker_ns() - sent
        received = max(1, self._peer.used() - before)
        times_ms = ping(self._bed.hypervisor, self._bed.guests[0], PINGS, interval_s=0.02)
        return Window(
            sending_ns / PACKETS,
            (sent - start) / PACKETS,
            flood_ns / PACKETS,
            received_ns / received,
            statistics.median(times_ms),
        )

    def _worker_ns(self) -> int:
        return int(self._bed.hypervisor.read_file(f"/proc/{self._worker}/schedstat").split()[0])


def ratios(before: Window, during: Window, after: Window) -> list[float]:
    return [2 * d / (b + a) for b, d, a in zip(before, during, after, strict=True)]


def shown(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


class Collector(InsideMeasurement):
    """Also keeps the run-time statistics of every interval; those of a window of its own are asked for."""

    def __init__(self, bed: Testbed) -> None:
        self.runs: dict[str, list[int]] = {}
        super().__init__(bed.hypervisor)
        self.statistics(False)

    def statistics(self, wanted: bool) -> None:
        self.command(command="statistics", window_ms=STATISTICS_MS * wanted, every_ms=STATISTICS_MS)
        self.runs.clear()

    def _fold(self, frame: frames.AnyFrame) -> None:
        super()._fold(frame)
        if isinstance(frame, frames.Cost):
            for program in frame.programs:
                known = self.runs.setdefault(program.name, [0, 0])
                known[0] += program.run_count or 0
                known[1] += program.run_time_ns or 0


def measured(collector: Collector, traffic: Traffic, names: list[str], rounds: int) -> list[list[float]]:
    """Ratios of each round; prints what the programs took in a window behind them."""
    found = []
    before = traffic.window()
    for number in range(rounds):
        for name in names:
            collector.load(name)
        during = traffic.window()
        if number == rounds - 1 and names:
            told(collector, traffic, names)
        for name in names:
            collector.command(command="unload", probe=name)
        after = traffic.window()
        found.append(ratios(before, during, after))
        before = after
    return found


def told(collector: Collector, traffic: Traffic, names: list[str]) -> None:
    collector.statistics(True)
    traffic.window()
    collector.settle()
    programs = [f"{name} {ns / count:.0f} ns x {count}" for name, (count, ns) in collector.runs.items() if count]
    collector.statistics(False)
    submitted = sum(collector.cost(name).events["submitted"].total for name in names if collector.cost(name).events)
    print(f"  {', '.join(names)}: {'; '.join(programs)}; events submitted: {submitted}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=("nothing", *PROBES, "all"), default=["nothing", *PROBES, "all"])
    options = parser.parse_args()
    groups = {"nothing": [], **{name: [name] for name in PROBES}, "all": list(PROBES)}
    try:
        bed = Testbed(kernels()[0], guests=1)
    except LabUnavailable as error:
        print(f"cannot run here: {error}")
        return
    with bed, Peer(bed.hypervisor) as peer:
        peer.refill(True)
        traffic, collector = Traffic(bed, peer), Collector(bed)
        base = traffic.window()
        print("without, per packet: " + ", ".join(f"{h} {v:.1f}" for h, v in zip(HEADS, base, strict=True)), flush=True)
        print(f"| with | {' | '.join(HEADS)} |\n|---|{'---|' * len(HEADS)}", flush=True)
        for title in options.only:
            columns = zip(*measured(collector, traffic, groups[title], options.rounds), strict=True)
            print(f"| {title} | {' | '.join(shown(list(column)) for column in columns)} |", flush=True)
        collector.close()


if __name__ == "__main__":
    main()
