"""Measures what probes cost Open vSwitch's kernel datapath: the same packets with and without each probe, in the lab.

A turn has three loads: a storm in which every packet is a new flow, new flows one after the other, and packets of one
flow. In the storm at most 64 packets wait for their answer, so its rate is that of answered upcalls. Each load is
repeated a few times, and the least disturbed repetition counts. (Probes that are attached for a share of the time have
turns of a minute, of which all repetitions count.) Flows are removed before each turn, and are not revalidated during
it. A pair is a turn with the probe and one without, in changing order. Between them, the probe is only attached or
detached. Prints the share of its speed that the datapath keeps (median of all pairs, with its 95 % interval), and the
kernel's nanoseconds for an upcall and for a packet of a known flow. In the modes "governed" the console's own governor
first finds the share of the time that keeps the budget of the profile summary under the load of the probe's target.
"empty programs" is what calling programs on the probe's hooks costs. Checks nothing. The lab is an emulated machine:
ratios carry over to real machines, times do not.

`--instructions`: the emulated machine's clock counts instructions, one as one nanosecond. Two pairs then give the same
figure to a tenth of a percent. Only packets of a known flow are measured, and only probes that are always attached: one
thread runs both CPUs in turns, so that waiting for another CPU takes instructions as well, and a minute of that clock
takes several real minutes. It does not tell how long an instruction takes on a real machine.
"""

from __future__ import annotations

import argparse
import copy
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from netconsole.calibrate.plan import empty_programs
from netconsole.probes import catalogue
from netconsole.telemetry import frames
from netconsole_collector.probe.config import SEEN_PCT
from tests.lab.collector import INTERVAL_MS, InsideMeasurement
from tests.lab.governed import found_by_governor
from tests.lab.kernels.fetch import kernels
from tests.lab.machine.errors import LabUnavailable
from tests.lab.network.testbed import BRIDGE, CLOCK_OF_REAL_MACHINES, Testbed

TARGET = 0.95
"""The share of its upcall rate that the datapath is to keep."""
PROBES = ("ovs_upcalls", "ovs_drops", "host_path")
GROUPS: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "ovs_upcalls": ("ovs_upcalls",),
    "ovs_upcalls, counters alone": ("ovs_upcalls",),
    "ovs_drops": ("ovs_drops",),
    "host_path": ("host_path",),
    "all of them": PROBES,
    "ovs_upcalls, a tenth of the time": ("ovs_upcalls",),
    "ovs_drops, a tenth of the time": ("ovs_drops",),
    "host_path, a tenth of the time": ("host_path",),
    **{f"{name}, governed": (name,) for name in PROBES},
    **{f"{name}, empty programs": (name,) for name in PROBES},
}
SAMPLED, SAMPLED_PCT = ", a tenth of the time", 10
GOVERNED = ", governed"
EMPTY = ", empty programs"
STEADY_S = 60.0
"""The sampler's first periods are short: it has to find out what attaching costs."""
SAMPLED_S = 60.0
"""A turn with them or without: two of the sampler's longest periods, in which all slices count alike."""
KNOBS = {"host_path": {"inside_devices": "va", "outside_devices": "vb"}}
SLICES = 5
"""Of a turn."""
STORM, WAITING = 1000, 64
ALONE = 50
KNOWN = 1000
LOADS = 10
WARM = 200
"""New flows after each change, not counted: the emulator translates changed code anew when it comes to it."""
SUMMARY, COUNTERS, DETACHED = "summary", "counters", "details"
"""Modes: here no program belongs to the last, so that it has none of them attached."""
ATTENDED_MS, ALONE_MS = INTERVAL_MS, 3_600_000
"""How often the collector reads: not during turns, for its Python is emulated, too."""
STATISTICS_MS = 500
Z_95 = 1.96
NS_PER_US = 1000

# One rule looks at source addresses, so that every flow in the kernel has to. The sender has a CPU of its own.
# The receiver takes each packet and frees it as sent: if it dropped them, probes of drops would be measured.
SWITCH = """
ip netns add a
ip link add va type veth peer name eth0 netns a
modprobe dummy
ip link add vb type dummy
for where in "" "ip netns exec a"; do $where sh -c 'echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6'; done
ip -n a link set eth0 up
for name in a b; do
    ip link set v$name up
    ovs-vsctl add-port {bridge} v$name
done
ovs-vsctl set Open_vSwitch . other_config:max-idle=600000 other_config:max-revalidator=600000
ovs-ofctl add-flow {bridge} priority=100,in_port=va,actions=output:vb
ovs-ofctl add-flow {bridge} priority=200,in_port=va,dl_src=02:ff:ff:ff:ff:ff,actions=drop
taskset -apc 1 $(cat /run/openvswitch/ovs-vswitchd.pid)
"""
# Each line of its input is a number of packets, how many may wait for their answer, and whether each is a new flow.
SENDER = """
import ctypes, os, socket, struct, sys, time
os.sched_setaffinity(0, {0})
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
sender = 0
for line in sys.stdin:
    count, most, new = map(int, line.split())
    senders = range(sender + 1, sender + 1 + count) if new else [sender] * count
    frames = [b"\\2BB\\0\\0\\1\\2B" + struct.pack("!I", one) + b"\\10\\0" + ip + udp for one in senders]
    sender += new * count
    begun, begin, lost = answered(), time.monotonic_ns(), 0
    def await_answers(enough):
        # A packet is lost now and then, for which nobody waits: so many answers, or none for half a second.
        global lost
        seen, came = 0, time.monotonic_ns()
        while (now := answered() - begun + lost) < enough:
            if now != seen:
                seen, came = now, time.monotonic_ns()
            elif time.monotonic_ns() - came > 500_000_000:
                lost += enough - now
    for number, frame in enumerate(frames):
        if number % min(8, most) == 0:
            await_answers(number - most + 1)
        device.send(frame)
    await_answers(count)
    print((time.monotonic_ns() - begin) / count if not lost else "nan", flush=True)
"""


class Turn(NamedTuple):
    """Nanoseconds for each packet."""

    storm: float
    alone: float
    known: float


class Traffic:
    """The sender, and a switch that does the same in each turn."""

    def __init__(self, bed: Testbed, *, known_flows_alone: bool) -> None:
        self._known_flows_alone = known_flows_alone
        bed.hypervisor.shell(SWITCH.format(bridge=BRIDGE))
        self._hypervisor = bed.hypervisor
        self._sender = bed.hypervisor.start("python3", "-c", SENDER)

    def turn(self, sampled: bool = False) -> Turn:
        """The least disturbed of some slices; ``sampled``: the mean of all in a longer time."""
        self._hypervisor.run("ovs-appctl", "revalidator/purge")
        end_s = time.monotonic() + SAMPLED_S * sampled
        slices: list[Turn] = []
        while len(slices) < SLICES or time.monotonic() < end_s:
            slices.append(self._slice())
        columns = [[one for one in column if not math.isnan(one)] or [math.nan] for column in zip(*slices, strict=True)]
        return Turn(*map(statistics.fmean, columns)) if sampled else Turn(*map(min, columns))

    def _slice(self) -> Turn:
        if self._known_flows_alone:
            return Turn(math.nan, math.nan, self.known(KNOWN))
        return Turn(self.new_flows(STORM), self.new_flows(ALONE, 1), self.known(KNOWN))

    def settle(self) -> None:
        """Packets of a known flow until the sampler has found its period."""
        end_s = time.monotonic() + STEADY_S
        while time.monotonic() < end_s:
            self.known(KNOWN)

    def load(self, name: str) -> None:
        """Some seconds of what the target of a probe is about: new flows, or packets of a known one."""
        self._hypervisor.run("ovs-appctl", "revalidator/purge")
        for _ in range(LOADS):
            self.new_flows(STORM) if name == "ovs_upcalls" else self.known(LOADS * KNOWN)

    def new_flows(self, count: int, waiting: int = WAITING) -> float:
        """The time for each of so many."""
        return self._send(count, waiting, 1)

    def known(self, count: int) -> float:
        """The time for each of so many packets of a known flow."""
        return self._send(count, WAITING, 0)

    def _send(self, count: int, waiting: int, new: int) -> float:
        self._sender.write(f"{count} {waiting} {new}\n".encode())
        return float(self._sender.wait_for(b"\n"))


class Collector(InsideMeasurement):
    """Attaches and detaches probes that stay loaded; keeps the kernel's run-time statistics while they are wanted."""

    def __init__(self, bed: Testbed) -> None:
        self._runs: dict[str, tuple[int, int]] = {}
        self._seen_pct, self._empty, self._unseen_ms = 100, False, 0.0
        super().__init__(bed.hypervisor)
        self.statistics(0)

    def load_detached(self, name: str, seen_pct: int, *, empty: bool = False) -> None:
        self._seen_pct, self._empty, sampled = seen_pct, empty, seen_pct < 100
        manifest = catalogue.shipped(name)
        nothing = empty_programs([manifest])
        spec = copy.deepcopy(dict(nothing.spec if empty else manifest.raw))
        spec["probe"]["name"] = name  # type: ignore[index]
        modes = [SUMMARY] if sampled and COUNTERS not in manifest.modes else [COUNTERS, SUMMARY]
        spec["probe"]["modes"] = [*modes, DETACHED]  # type: ignore[index]
        for program in spec["programs"]:  # type: ignore[attr-defined]
            program["modes"] = [mode for mode in program.get("modes", modes) if mode != DETACHED]
        reply = self.command(
            command="load",
            probe=name,
            spec=spec,
            source=nothing.code if empty else manifest.code(),
            mode=DETACHED,
            knobs=self._knobs(name, DETACHED),
        )
        assert reply.ok, reply.error

    def attach(self, name: str, mode: str) -> None:
        reply = self.command(command="set", probe=name, mode=mode, knobs=self._knobs(name, mode))
        assert reply.ok, reply.error
        status = self.statuses[name]
        assert bool(status.attach) == (mode != DETACHED) and not status.missing, status

    def submitted(self, names: Sequence[str]) -> int:
        """Events since they were loaded."""
        self._read_now()
        return sum(self.event_count(name, "submitted") for name in names)

    def unseen_ms(self, names: Sequence[str]) -> float:
        """For how long they were not attached since the last call, on average."""
        self._read_now()
        in_all_ms = statistics.fmean(self.cost(name).ledger["unseen_ms"].total for name in names)
        before_ms, self._unseen_ms = self._unseen_ms, in_all_ms
        return in_all_ms - before_ms

    def alone(self) -> None:
        """From here on it reads nothing."""
        self._read_every(ALONE_MS)

    def run_times(self, traffic: Traffic) -> str:
        """What the programs take of an upcall, and of a packet of a known flow in a storm of those.

        The clock readings of the statistics themselves are in it.
        """
        upcall = self._run_times(STORM, lambda: traffic.new_flows(STORM))
        return f"{upcall}; of a known flow {self._run_times(LOADS * KNOWN, lambda: traffic.known(LOADS * KNOWN))}"

    def _run_times(self, packets: int, load: Callable[[], object]) -> str:
        self.statistics(STATISTICS_MS)
        self._read_every(ATTENDED_MS)
        self.settle()
        self._runs.clear()
        load()
        self.settle()
        found = dict(self._runs)
        self.statistics(0)
        self._read_every(ALONE_MS)
        programs = [
            f"{name} {ns / runs:.0f} x {runs / packets:.2g}" for name, (runs, ns) in sorted(found.items()) if runs
        ]
        whole_ns = sum(ns for _, ns in found.values()) / packets
        return f"{whole_ns / NS_PER_US:.1f} us: {', '.join(programs)}"

    def _knobs(self, name: str, mode: str) -> dict[str, frames.Scalar]:
        if self._empty:
            return {}
        seen: dict[str, frames.Scalar] = {SEEN_PCT: self._seen_pct} if self._seen_pct < 100 and mode != DETACHED else {}
        return {**catalogue.shipped(name).knobs, **KNOBS.get(name, {}), **seen}

    def _read_now(self) -> None:
        self._read_every(ATTENDED_MS)
        self.settle()
        self._read_every(ALONE_MS)

    def _read_every(self, ms: int) -> None:
        self.command(command="interval", ms=ms)

    def _fold(self, frame: frames.AnyFrame) -> None:
        super()._fold(frame)
        if isinstance(frame, frames.Cost) and frame.statistics is not None and frame.statistics.window_ns:
            for program in frame.programs:
                name = f"{frame.probe}/{program.name}"
                runs, time_ns = self._runs.get(name, (0, 0))
                self._runs[name] = (runs + program.run_count, time_ns + program.run_time_ns)


def measure(
    collector: Collector,
    traffic: Traffic,
    names: Sequence[str],
    mode: str,
    pairs: int,
    seen_pct: int = 100,
    *,
    empty: bool = False,
) -> str:
    """The columns of one row."""
    sampled = seen_pct < 100
    for name in names:
        collector.load_detached(name, seen_pct, empty=empty)
    collector.alone()
    attached = False

    def turn(*, wanted: bool) -> Turn:
        nonlocal attached
        if wanted != attached:
            for name in names:
                collector.attach(name, mode if wanted else DETACHED)
            attached = wanted
        if sampled and wanted:
            traffic.settle()
            collector.unseen_ms(names)
        traffic.new_flows(WARM)
        began_s = time.monotonic()
        taken = traffic.turn(sampled)
        if sampled and wanted:
            unseen.append(collector.unseen_ms(names) / 1000 / (time.monotonic() - began_s))
        return taken

    unseen: list[float] = []
    kept: list[Turn] = []
    for number in range(pairs):
        order = (False, True) if number % 2 == 0 else (True, False)
        turns = {wanted: turn(wanted=wanted) for wanted in order}
        kept.append(Turn(*(without / during for without, during in zip(turns[False], turns[True], strict=True))))
    if sampled:
        runs = f"attached for {1 - statistics.fmean(unseen):.1%} of the time"
    else:
        turn(wanted=True)
        runs = collector.run_times(traffic) if names else ""
    columns = [shown(column) for column in zip(*kept, strict=True)]
    submitted = collector.submitted(names)
    for name in names:
        collector.command(command="unload", probe=name)
    return f"{' | '.join(columns)} | {submitted} | {runs}"


def shown(shares: Sequence[float]) -> str:
    """The median with its 95 % interval, by order alone: no matter how the figures are spread. Empty: not measured.

    Of a pair in which every repetition lost a packet there is none.
    """
    in_order = sorted(share for share in shares if not math.isnan(share))
    count = len(in_order)
    if not count:
        return ""
    half = Z_95 * math.sqrt(count) / 2
    low = in_order[max(0, math.floor((count - 1) / 2 - half))]
    high = in_order[min(count - 1, math.ceil((count - 1) / 2 + half))]
    left_out = f", of {count} pairs" if count < len(shares) else ""
    return f"{statistics.median(in_order):.1%} ({low:.1%} to {high:.1%}{left_out})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--only", nargs="*", choices=tuple(GROUPS))
    parser.add_argument("--instructions", action="store_true", help="count instructions instead of time")
    options = parser.parse_args()
    able = [title for title in GROUPS if not (options.instructions and title.endswith((SAMPLED, GOVERNED)))]
    titles = able if options.only is None else options.only
    if not set(titles) <= set(able):
        parser.error("--instructions is for probes that are always attached: give --only without the others")
    try:
        bed = Testbed(
            kernels()[0], guests=0, arguments=CLOCK_OF_REAL_MACHINES, counts_instructions=options.instructions
        )
    except LabUnavailable as error:
        print(f"the lab cannot run here: {error}")
        return
    with bed:
        traffic, collector = Traffic(bed, known_flows_alone=options.instructions), Collector(bed)
        traffic.new_flows(WARM)
        base = traffic.turn()
        new_flows = (
            f"{1e9 / base.storm:.0f} upcalls/s answered, each packet a new flow (target: {TARGET:.0%} of it); "
            f"{base.alone / NS_PER_US:.0f} us for one after the other, "
        )
        known = f"{base.known:,.0f} instructions" if options.instructions else f"{base.known / NS_PER_US:.1f} us"
        print(f"without: {'' if options.instructions else new_flows}{known} for a packet of a known flow")
        print(
            "| with | upcalls answered | one after the other | packets of a known flow | events | programs, ns x runs |"
        )
        print("|---|---|---|---|---|---|", flush=True)
        for title in titles:
            mode = COUNTERS if title.endswith("counters alone") else SUMMARY
            seen_pct = SAMPLED_PCT if title.endswith(SAMPLED) else 100
            if title.endswith(GOVERNED):
                (name,) = GROUPS[title]
                found = found_by_governor(bed.hypervisor, {name: KNOBS.get(name, {})}, partial(traffic.load, name))
                mode, seen_pct = found[name]
                if mode == "off":
                    print(f"| {title}: detached | | | | | |", flush=True)
                    continue
            empty = title.endswith(EMPTY)
            columns = measure(collector, traffic, GROUPS[title], mode, options.pairs, seen_pct, empty=empty)
            print(f"| {title}: {mode}, {seen_pct} % of the time | {columns} |", flush=True)
        collector.close()


if __name__ == "__main__":
    main()
