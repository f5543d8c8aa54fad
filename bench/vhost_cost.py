"""Measures what the probes between tap and guest cost the traffic: in the lab, with and without each probe, in turn.

Rates and worker CPU are from a peer that only drives vhost-net (tests/lab/network/vhost_peer.py) and kicks itself.
Beside them are the rate and the round trip of a nested guest, whose kicks go through KVM. Prints the ratio of a phase
with the probe to the mean of the phases without it before and after, and the kernel's nanoseconds per run and packet.
Checks nothing. "nothing" is the noise of the measurement. "empty" is the cost of being called: programs that return at
once, on every hook of these probes. For "governed" the console's own governor first finds the share of the time that
keeps the budget of the profile summary. The lab is an emulated machine: ratios carry over to real machines, times do
not.

`--instructions`: the emulated machine's clock counts instructions, one as one nanosecond. Packets go to the peer one
after the other, so that each has a wake-up of its own. Only the worker's CPU time for them is measured, no guest runs,
and probes are always attached. It does not tell how long an instruction takes on a real machine.

Probes that are attached for a share of the time have phases of a minute. A run can be short: `--only vhost_queues
--keep FILE` adds its rounds to those in FILE, and prints the table of all of them. `--table --keep FILE` only prints
the table.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from netconsole.probes import catalogue
from netconsole.probes.includes import behind_headers
from netconsole.telemetry import frames
from tests.lab.collector import InsideMeasurement
from tests.lab.governed import Setting, found_by_governor
from tests.lab.kernels.fetch import kernels
from tests.lab.machine.errors import LabError, LabUnavailable
from tests.lab.network.peer import FAR, Peer
from tests.lab.network.testbed import CLOCK_OF_REAL_MACHINES, Testbed, boot
from tests.lab.network.traffic import ping, worker_pids, workers_of
from tests.support.live.measurement import CHECKOUT

PROBES = ("vhost_queues", "tun_queues", "irq_path", "tx_kick_path", "kvm_irqs")
GROUPS: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "empty": ("empty",),
    **{name: (name,) for name in PROBES},
    "all": PROBES,
    "vhost_queues, a tenth of the time": ("vhost_queues",),
    "tun_queues, a tenth of the time": ("tun_queues",),
    "all, a tenth of the time": PROBES,
    "vhost_queues, governed": ("vhost_queues",),
    "all, governed": PROBES,
}
WITHOUT_GUEST = ("nothing", "empty", "vhost_queues", "tun_queues", "irq_path", "all")
"""What packets to the peer alone can measure. Of the others only a guest makes the hooks run."""
SAMPLED, SAMPLED_PCT = ", a tenth of the time", 10
GOVERNED = ", governed"
STEADY_S = 60.0
"""The sampler's first periods are short: it has to find out what attaching costs."""
SAMPLED_S = 60.0
"""A phase with them, and those beside it: two of the sampler's longest periods, in which all slices count alike."""
SLICES = 3
"""Of a phase: in each figure the least disturbed one counts."""
LOST_AT_MOST = 3
PACKETS = 4000
FROM_GUEST = 2000
FLOODS = 50
"""So many times as many packets in one go, for the governor: its figures are of short moments."""
PINGS = 15
STATISTICS_MS = 1000
PAUSE_S = 0.0002
"""Between packets that go one after the other: the worker sleeps again by then."""
FLOODER = """
import socket, sys, time
address = sys.argv[1]
flood = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
flood.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 26)
for line in sys.stdin:
    count, pause_s = int(line.split()[0]), float(line.split()[1])
    start = time.monotonic_ns()
    for number in range(count):
        flood.sendto(bytes(60), (address, 9))
        if pause_s:
            time.sleep(pause_s)
    print(time.monotonic_ns() - start, flush=True)
"""
EMPTY = """
int on_entry(void *ctx) { return 0; }
int on_tracepoint(struct bpf_raw_tracepoint_args *ctx) { return 0; }
"""


class Slice(NamedTuple):
    """A turn of the traffic: ns for each packet, of the sender's time or the worker's CPU, and ms of a round trip.

    NaN: not measured.
    """

    from_guest_ns: float
    from_guest_worker_ns: float
    to_guest_ns: float
    to_guest_worker_ns: float
    guest_worker_ns: float
    round_trip_ms: float


TIME, INSTRUCTIONS = "time", "instructions"
"""What the clock of the emulated machine counts."""
HEADS = (
    "from peer: time",
    "from peer: worker CPU",
    "to peer: sender's time",
    "to peer: worker CPU",
    "from guest: worker CPU",
    "guest: round trip",
)


class Traffic:
    """A peer's packets in both directions, and a guest's answers."""

    def __init__(self, bed: Testbed, peer: Peer) -> None:
        self._bed, self._peer = bed, peer
        owner = bed.hypervisor.run("pgrep", "-f", "vhost_peer.py").text.split()[0]
        (self._worker,) = workers_of(bed.hypervisor, owner)
        if bed.guests:
            self._find_worker_of_guest()
        self._flooder = bed.hypervisor.start("python3", "-c", FLOODER, FAR)
        self.without: Slice | None = None
        """The last phase, if nothing was loaded in it."""

    def touch(self) -> None:
        """Packets of a guest, for probes to hold their layouts against: a peer kicks by itself, without KVM.

        A guest that has lost an interrupt (l2.py) starts anew.
        """
        self.revive()
        if self._bed.guests:
            ping(self._bed.hypervisor, self._bed.guests[0], PINGS, interval_s=0.02)

    def revive(self) -> None:
        """Starts the guest anew when it does not answer."""
        if self._bed.guests and self._bed.guests[0].revive():
            self._find_worker_of_guest()

    def phase(self, sampled: bool = False) -> Slice:
        """The best of several slices, figure by figure. ``sampled``: the mean of all in a minute."""
        if sampled:
            return self._mean(SAMPLED_S)
        return Slice(*map(min, zip(*(self._slice() for _ in range(SLICES)), strict=True)))

    @property
    def clock(self) -> str:
        return TIME if self._bed.guests else INSTRUCTIONS

    @property
    def packets_of_phase(self) -> int:
        return SLICES * (2 * PACKETS + FROM_GUEST + 2 * PINGS if self._bed.guests else PACKETS)

    def settle(self) -> None:
        """The same packets until the sampler has found its period."""
        self._mean(STEADY_S)

    def _mean(self, seconds: float) -> Slice:
        end_s = time.monotonic() + seconds
        slices = [self._slice()]
        while time.monotonic() < end_s:
            slices.append(self._slice())
        return Slice(*map(statistics.fmean, zip(*slices, strict=True)))

    def flood(self, count: int = PACKETS) -> int:
        """Packets to the peer, which the targets are about. Returns how long it took, in ns."""
        self._flooder.write(f"{count} {0 if self._bed.guests else PAUSE_S}\n".encode())
        return int(self._flooder.wait_for(b"\n"))

    def _slice(self) -> Slice:
        if not self._bed.guests:
            _, worker_ns = self._to_peer()
            return Slice(math.nan, math.nan, math.nan, worker_ns, math.nan, math.nan)
        start = self._cpu_ns(self._worker)
        sending_ns = self._peer.send(PACKETS)
        sending_worker_ns = self._cpu_ns(self._worker) - start
        to_peer = self._to_peer()
        start_of_guest = self._cpu_ns(self._worker_of_guest)
        self._bed.guests[0].send_udp(FROM_GUEST, self._bed.bridge, port=9)
        guest_ns = self._cpu_ns(self._worker_of_guest) - start_of_guest
        times_ms = ping(self._bed.hypervisor, self._bed.guests[0], PINGS, interval_s=0.02)
        return Slice(
            sending_ns / PACKETS,
            sending_worker_ns / PACKETS,
            *to_peer,
            guest_ns / FROM_GUEST,
            statistics.median(times_ms),
        )

    def _to_peer(self) -> tuple[float, float]:
        before, start = self._peer.used(), self._cpu_ns(self._worker)
        flood_ns = self.flood()
        received_ns = self._cpu_ns(self._worker) - start
        return flood_ns / PACKETS, received_ns / max(1, self._peer.used() - before)

    def _find_worker_of_guest(self) -> None:
        (self._worker_of_guest,) = worker_pids(self._bed.hypervisor, self._bed.guests[0])

    def _cpu_ns(self, thread: str) -> int:
        return int(self._bed.hypervisor.read_file(f"/proc/{thread}/schedstat").split()[0])


class Collector(InsideMeasurement):
    """Also keeps the run-time statistics of every interval; those of a phase of its own are asked for."""

    def __init__(self, bed: Testbed) -> None:
        self.runs: dict[str, list[int]] = {}
        self.loaded: Sequence[str] = ()
        """By :meth:`load_group`."""
        self.settings: dict[str, Setting] = {}
        """What the governor has found."""
        super().__init__(bed.hypervisor)
        self.statistics(0)
        self.runs.clear()

    def load_group(self, title: str) -> None:
        self.loaded = GROUPS[title]
        if title == "empty":
            self._load_empty()
            return
        settings = dict.fromkeys(GROUPS[title], ("summary", SAMPLED_PCT if title.endswith(SAMPLED) else 100))
        if title.endswith(GOVERNED):
            settings = {name: how for name, how in self.settings.items() if how[0] != "off"}
            self.loaded = tuple(settings)
        with ThreadPoolExecutor() as pool:  # the collector compiles two at once
            list(pool.map(lambda name: self.load(name, settings[name][0], seen_pct=settings[name][1]), settings))

    def unseen_ms(self) -> float:
        """For how long the loaded probes were not attached since they were loaded, on average."""
        self.settle()
        costs = [self.cost(name) for name in self.loaded]
        return statistics.fmean(one.ledger["unseen_ms"].total for one in costs) if costs else 0.0

    def _load_empty(self) -> None:
        hooks: dict[str, dict[str, Any]] = {}
        for name in PROBES:
            for program in catalogue.shipped(name).raw["programs"]:  # type: ignore[attr-defined]
                point = program["attach"][0]["point"]
                function = "on_tracepoint" if point.startswith("raw_tracepoint:") else "on_entry"
                attach = [{"point": one["point"], "function": function} for one in program["attach"]]
                hooks[point] = {"name": f"hook{len(hooks)}", "required": True, "measures": point, "attach": attach}
        manifest = catalogue.load(CHECKOUT / "bench" / "probes" / "empty")
        modules = {module for name in PROBES for module in catalogue.shipped(name).btf_modules}
        about = {**cast("dict[str, Any]", manifest.raw["probe"]), "btf_modules": sorted(modules)}
        reply = self.command(
            command="load",
            probe="empty",
            spec={**manifest.raw, "probe": about, "programs": list(hooks.values())},
            source=behind_headers(EMPTY),
        )
        assert reply.ok, reply.error

    def _fold(self, frame: frames.AnyFrame) -> None:
        super()._fold(frame)
        if isinstance(frame, frames.Cost):
            for program in frame.programs:
                known = self.runs.setdefault(f"{frame.probe}/{program.name}", [0, 0])
                known[0] += program.run_count or 0
                known[1] += program.run_time_ns or 0


def measure(bed: Testbed, collector: Collector, traffic: Traffic, title: str, rounds: int, keep: Path) -> None:
    """Adds the ratios of each round to the file, and what the programs took in a phase behind the last one.

    Nested KVM now and then loses a guest, or an interrupt of it (l2.py): then the round is another one.
    """
    done = lost = 0
    collector.settings = {}
    while done < rounds:
        try:
            if title.endswith(GOVERNED) and not collector.settings:
                traffic.touch()
                flood = partial(traffic.flood, FLOODS * PACKETS)
                collector.settings = found_by_governor(bed.hypervisor, {one: {} for one in GROUPS[title]}, flood)
            line = one_round(collector, traffic, title, last=done == rounds - 1)
        except (LabError, AssertionError) as error:
            lost += 1
            if lost > LOST_AT_MOST:
                raise
            print(f"{title}: once more, for {str(error).partition(chr(10))[0]}", file=sys.stderr, flush=True)
            collector.statistics(0)
            traffic.revive()
        else:
            done += 1
            with keep.open("a") as file:
                file.write(json.dumps(line) + "\n")


def one_round(collector: Collector, traffic: Traffic, title: str, last: bool) -> dict[str, Any]:
    """A phase with the probes between two without: as the file has it."""
    is_sampled = title.endswith((SAMPLED, GOVERNED))
    before = traffic.phase(True) if is_sampled else traffic.without or traffic.phase()
    traffic.without = None
    try:
        collector.load_group(title)
        traffic.touch()
        seen_pct = 100.0
        if is_sampled:
            traffic.settle()
            began_s, unseen_ms = time.monotonic(), collector.unseen_ms()
            during = traffic.phase(is_sampled)
            seen_pct -= (collector.unseen_ms() - unseen_ms) / (time.monotonic() - began_s) / 10
        else:
            during = traffic.phase()
        for name in collector.loaded:
            status = collector.statuses[name]
            if status.state != "attached":
                raise SystemExit(
                    f"{name} is not what was to be measured: {status.state}, {status.why}, {status.missing}"
                )
        told = programs(collector, traffic, title) if last and GROUPS[title] and not is_sampled else {}
        if is_sampled:
            told["settings"] = [f"attached for {seen_pct:.1f} % of the time"]
            told["settings"] += [f"{name}: {how}" for name, how in collector.settings.items()]
    finally:
        for name in collector.loaded:
            collector.command(command="unload", probe=name)
    after = traffic.phase(is_sampled)
    traffic.without = None if is_sampled else after
    ratios = [2 * d / (b + a) for b, d, a in zip(before, during, after, strict=True)]
    return {"with": title, "ratios": ratios, "without": [*before], "clock": traffic.clock, **told}


def programs(collector: Collector, traffic: Traffic, title: str) -> dict[str, Any]:
    """Runs and ns of each program in a phase of its own, for the statistics cost time; and events submitted."""
    collector.runs.clear()
    collector.statistics(STATISTICS_MS)
    traffic.phase()
    collector.settle()
    runs = {name: counted for name, counted in collector.runs.items() if counted[0]}
    collector.statistics(0)
    costs = [collector.cost(name) for name in GROUPS[title]]
    submitted = sum(cost.events["submitted"].total for cost in costs if cost.events)
    return {"programs": runs, "submitted": submitted, "packets": traffic.packets_of_phase}


def kept_rounds(keep: Path, clock: str | None = None) -> list[dict[str, Any]]:
    """What is in the file. Ends the program where those are of several clocks, or of another one than this."""
    lines = [json.loads(line) for line in keep.read_text().splitlines()] if keep.exists() else []
    clocks = {line.get("clock") for line in lines}
    if lines and (None in clocks or len(clocks | {clock} - {None}) != 1):
        raise SystemExit(f"{keep} has rounds of another clock, or of an older version: name another file")
    return lines


def show(keep: Path) -> None:
    """The table of all rounds, and under it the programs."""
    lines = kept_rounds(keep)
    if not lines:
        raise SystemExit(f"{keep} has no rounds")
    unit = "instructions" if lines[0]["clock"] == INSTRUCTIONS else "ns; ms of the round trip"
    base = [statistics.median(column) for column in zip(*(line["without"] for line in lines), strict=True)]
    measured = [f"{head} {value:,.1f}" for head, value in zip(HEADS, base, strict=True) if not math.isnan(value)]
    print(f"without, per packet ({unit}): {', '.join(measured)}")
    print(f"| with | pairs | {' | '.join(HEADS)} |\n|---|{'---|' * (len(HEADS) + 1)}")
    for title in GROUPS:
        rounds = [line["ratios"] for line in lines if line["with"] == title]
        if rounds:
            print(f"| {title} | {len(rounds)} | {' | '.join(map(shown, zip(*rounds, strict=True)))} |")
    for line in lines:
        if line.get("settings"):
            print(f"{line['with']}: {'; '.join(line['settings'])}")
        if line.get("programs"):
            each = (f"{name} {ns / count:,.0f} ns x {count}" for name, (count, ns) in sorted(line["programs"].items()))
            runs, ns = (sum(column) / line["packets"] for column in zip(*line["programs"].values(), strict=True))
            print(f"{line['with']}: {runs:.2f} runs and {ns:,.0f} ns a packet; events submitted: {line['submitted']}")
            print(f"  {'; '.join(each)}")


def shown(values: Sequence[float]) -> str:
    """Median, and the range of all."""
    if any(map(math.isnan, values)):
        return ""
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=tuple(GROUPS))
    parser.add_argument(
        "--keep", type=Path, help="file with the rounds of all runs, one a line; without it they are not kept"
    )
    parser.add_argument("--kprobes", action="store_true", help="no fentry and fexit, as where the kernel refuses them")
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--instructions", action="store_true", help="count instructions instead of time")
    options = parser.parse_args()
    if options.table and not options.keep:
        parser.error("--table shows the rounds of a file: say which one with --keep")
    able = WITHOUT_GUEST if options.instructions else tuple(GROUPS)
    options.only = able if options.only is None else options.only
    if not set(options.only) <= set(able):
        parser.error(f"--instructions is for these alone: --only {' '.join(able)}")
    with tempfile.TemporaryDirectory() as directory:
        run(options, options.keep or Path(directory) / "rounds")


def run(options: argparse.Namespace, keep: Path) -> None:
    if not options.table:
        kept_rounds(keep, INSTRUCTIONS if options.instructions else TIME)  # before measuring what could not be added
        try:
            bed = boot(
                kernels()[0],
                guests=0 if options.instructions else 1,
                arguments=CLOCK_OF_REAL_MACHINES,
                counts_instructions=options.instructions,
            )
        except LabUnavailable as error:
            print(f"cannot run here: {error}")
            return
        with bed, Peer(bed.hypervisor) as peer:
            peer.refill(True)
            traffic, collector = Traffic(bed, peer), Collector(bed)
            collector.kprobes = options.kprobes
            for title in options.only:
                measure(bed, collector, traffic, title, options.rounds, keep)
                print(f"{title}: measured", flush=True)
            collector.close()
    show(keep)


if __name__ == "__main__":
    main()
