"""Measures what the probes cost a UDP storm: paired runs with and without each probe, on this machine.

A sender on a fixed CPU sends to a closed port on the loopback of its own namespace. So every datagram is a dropped
packet, and passes all hooks. A window with a probe is compared with the windows without it before and after. On a busy
machine, trust the sender's CPU time per datagram: other processes on its CPU are not in it. They only disturb its
caches and its core. So each window has slices, and the least disturbed slice counts. Nanoseconds per run come from the
kernel's statistics, in other windows: statistics cost time themselves.

The last mode is the command itself, with its governor, after it had time to keep its budget. What the governor gives
up may be a share of the time, so there each slice takes a second, and the median of them counts. Of a probe that is
attached for a share of the time the mean of its periods counts.

With --course it watches storms of 0.1, 0.5 and 1 million drops a second under the profile summary, of one reason and of
two, second by second: what the console knew of them, what the governor did, what it cost.

The sender is compiled here, if there is a compiler; else it is Python, which takes about as long for a datagram as the
kernel does. Peers are what else is installed: bpftrace, perf. All of them are measured in the same pairs.

With --tracked the namespace tracks connections, and the probe is conntrack: for a kernel with kprobes. With --lab it
runs on a kernel of the lab, which is booted for it.
"""

from __future__ import annotations

import argparse
import itertools
import mmap
import os
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from netconsole.base import paths
from netconsole.host.collector_process import CollectorProcess
from netconsole.probes import catalogue
from netconsole.profile.loader import load_file
from netconsole.telemetry import frames
from netconsole_collector.probe.config import SEEN_PCT

CHECKOUT = Path(__file__).resolve().parents[1]
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or "python3"
SLICES = 8
SLICE_S = 0.1
PEER_S = 3.0
GOVERNED_S = 20.0
"""The governor needs four seconds, and a share of the time is known after its period."""
LEAST = 1000
"""Datagrams of a slice: with fewer, others had the CPU all the time."""
STATISTICS_S = 0.5
SETTLE_S = 0.1
MEANS, MEAN_S = 7, 1.0
COURSE_S = 14
SAMPLED_S = 90.0
"""Three of the longest periods in which probes come and go."""
LIMIT_S = 180.0
"""In the lab, attaching takes more than a minute beside other work."""
LAB_LIMIT_S = 1500.0
_CPUCLOCK_SCHED = 2
"""include/linux/posix-timers.h."""

SENDER = """
import mmap, os, socket, subprocess, sys
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
if sys.argv[4:]:
    subprocess.run(["nft", "-f", "-"], input=sys.argv[4].encode(), check=True)
os.sched_setaffinity(0, {int(sys.argv[2])})
with open(sys.argv[1], "r+b") as file:
    shared = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")
sender, payload, to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), bytes(64), ("127.0.0.1", 9)
while os.getppid() == int(sys.argv[3]):
    for _ in range(100):
        sender.sendto(payload, to)
    shared[0] += 100
"""
IN_C = """
#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int count, char **words)
{
    char payload[64] = {};
    cpu_set_t cpus;
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9), .sin_addr = { htonl(INADDR_LOOPBACK) } };
    volatile unsigned long long *sent = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, open(words[1], O_RDWR), 0);
    int sender = socket(AF_INET, SOCK_DGRAM, 0);

    CPU_ZERO(&cpus);
    CPU_SET(atoi(words[2]), &cpus);
    sched_setaffinity(0, sizeof(cpus), &cpus);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == atoi(words[3])) {
        for (int i = 0; i < 100; i++)
            sendto(sender, payload, sizeof(payload), 0, (struct sockaddr *)&to, sizeof(to));
        *sent += 100;
    }
}
"""
"""The same sender, compiled here: Python takes as long for a datagram as the kernel does."""
RULES = "table inet f {\nchain out { type filter hook output priority 0; ct state new counter; }\n}\n"
"""Whatever rule names conntrack makes the namespace track."""


@dataclass
class Mode:
    """What is loaded while the sender is measured, and what came out."""

    title: str
    probes: Sequence[str]
    mode: str = "summary"
    seen_pct: int = 100
    """For how many percent of the time they are attached."""
    command: Sequence[str] = ()
    """The console's own, instead of probes; an output file's name follows."""
    peer: Sequence[str] = ()
    """Another tool's command, instead of probes: what people count drops with."""
    target_pct: float | None = None
    """The share of its rate that the sender is to keep."""
    rates: list[float] = field(default_factory=list)
    """Rate with, of the rate without."""
    cpus: list[float] = field(default_factory=list)
    """CPU time per datagram without, of that with."""
    extra_ns: list[float] = field(default_factory=list)
    """CPU time per datagram with, less that without."""
    programs: dict[str, list[float]] = field(default_factory=dict)
    """Nanoseconds per run as the kernel's statistics say."""
    runs: dict[str, float] = field(default_factory=dict)
    """Runs per datagram."""
    attach: dict[str, str] = field(default_factory=dict)


_COUNT_BY_REASON = "tracepoint:skb:kfree_skb { @[args->reason, args->location] = count(); }"
EMPTY = (("empty",), ("empty_tracked",))
"""What other programs at the same hooks are compared with."""
SUMMARY = ("kernel_drops", "tx_queue_latency", "softirq_health", "socket_drops")
MODES = (
    Mode("none (noise)", ()),
    Mode("empty programs on all hooks", ("empty",)),
    Mode("count only", ("count_only",)),
    Mode("kernel_drops, summary", ("kernel_drops",), target_pct=95.5),
    Mode("kernel_drops, details", ("kernel_drops",), mode="details", target_pct=94),
    Mode("tx_queue_latency, summary", ("tx_queue_latency",)),
    Mode("softirq_health, summary", ("softirq_health",)),
    Mode("the summary profile's probes", SUMMARY, target_pct=85),
    Mode("submit each, with a wake-up", ("submit_each",), mode="details"),
    Mode("bpftrace, a count in a map", (), peer=("bpftrace", "-e", _COUNT_BY_REASON)),
    Mode("perf record, each drop", (), peer=("perf", "record", "-a", "-e", "skb:kfree_skb", "-o")),
    Mode("the command, governed", (), command=("record", "--profile", "summary", "--output"), target_pct=90),
)


GOVERNED_CONNTRACK = ("record", "--profile", "conntrack", "--probe", "conntrack")
TRACKED = (
    Mode("none (noise)", ()),
    Mode("conntrack's hooks, empty programs", ("empty_tracked",)),
    Mode("conntrack, summary", ("conntrack",)),
    Mode("conntrack, details", ("conntrack",), mode="details", target_pct=90),
    Mode("conntrack, details, a tenth of the time", ("conntrack",), mode="details", seen_pct=10, target_pct=90),
    Mode("submit each, with a wake-up", ("submit_tracked",), mode="details"),
    # Forced: its forecast is over the budget, and it would not start.
    Mode("the command, governed", (), command=(*GOVERNED_CONNTRACK, "--force", "--output"), target_pct=90),
)


class Collector:
    """The real collector, as little of it as is needed here."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "src")}
        self._process = CollectorProcess([PYTHON, "-m", "netconsole_collector"], environment)
        self._ids = itertools.count(1)
        self._changed = threading.Condition()
        self._replies: dict[int, frames.Reply] = {}
        self._costs: list[frames.Cost] = []
        threading.Thread(target=self._read, daemon=True).start()
        self.command(command="interval", ms=100)
        self.statistics(0)

    def command(self, **command: object) -> None:
        number = next(self._ids)
        self._process.send({"id": number, **command})
        with self._changed:
            if not self._changed.wait_for(lambda: number in self._replies, LIMIT_S):
                raise SystemExit(f"no answer to {command['command']} in {LIMIT_S:g} s")
            if not self._replies[number].ok:
                raise SystemExit(f"{command['command']}: {self._replies[number].error}")

    def load(self, name: str, mode: str, seen_pct: int) -> None:
        own = CHECKOUT / "bench/probes" / name
        manifest = catalogue.load(own) if own.exists() else catalogue.shipped(name)
        words: dict[str, object] = {"spec": manifest.raw, "source": manifest.code()}
        knobs = dict(manifest.knobs) | ({SEEN_PCT: seen_pct} if seen_pct < 100 else {})
        words |= {"mode": mode, "knobs": knobs}
        self.command(command="load", probe=name, **words)

    def unload(self, name: str) -> None:
        self.command(command="unload", probe=name)

    def statistics(self, window_ms: int) -> None:
        """The kernel's run-time statistics: always on, or off with 0."""
        self.command(command="statistics", window_ms=window_ms, every_ms=max(window_ms, 1))

    def take_costs(self) -> list[frames.Cost]:
        with self._changed:
            costs, self._costs = self._costs, []
        return costs

    def close(self) -> None:
        self._process.close()

    def _read(self) -> None:
        for frame in self._process.frames():
            with self._changed:
                if isinstance(frame, frames.Reply):
                    self._replies[frame.id] = frame
                elif isinstance(frame, frames.Cost) and frame.probe:
                    self._costs.append(frame)
                self._changed.notify_all()


class Storm:
    """The sender; ends with this process."""

    def __init__(self, rules: str) -> None:
        self._file = tempfile.NamedTemporaryFile()  # noqa: SIM115 - closed with the sender
        self._file.write(bytes(8))
        self._file.flush()
        self._count = mmap.mmap(self._file.fileno(), 8)
        self._directory = tempfile.TemporaryDirectory()
        arguments = [self._file.name, str(min(os.sched_getaffinity(0))), str(os.getpid())]
        program = None if rules else compiled(Path(self._directory.name) / "sender", IN_C)
        if program is None:
            words = [PYTHON, "-c", SENDER, *arguments, *([rules] if rules else [])]
        else:
            words = ["sh", "-c", 'ip link set lo up && exec "$@"', "sender", str(program), *arguments]
        self.is_compiled = program is not None
        self._process = subprocess.Popen(["unshare", "--net", *words])
        while not self.sent():
            if self._process.poll() is not None:
                raise SystemExit("the sender did not start")
            time.sleep(0.01)

    def sent(self) -> int:
        return int(struct.unpack("=Q", self._count[:8])[0])

    def window(self) -> tuple[float, float]:
        """Datagrams per second, and CPU nanoseconds per datagram: the best of all slices."""
        time.sleep(SETTLE_S)
        slices = [self._slice() for _ in range(SLICES)]
        return max(rate for rate, _ in slices), min(cpu_ns for _, cpu_ns in slices)

    def mean(self) -> tuple[float, float]:
        """The same of a slice in the middle: each is long enough to hold what comes and goes in a second."""
        time.sleep(SETTLE_S)
        slices = [self._slice(MEAN_S) for _ in range(MEANS)]
        return statistics.median(rate for rate, _ in slices), statistics.median(cpu_ns for _, cpu_ns in slices)

    def long_mean(self) -> tuple[float, float]:
        """The same of one slice, in which what comes and goes has done so a few times."""
        time.sleep(SETTLE_S)
        return self._slice(SAMPLED_S)

    def _slice(self, seconds: float = SLICE_S) -> tuple[float, float]:
        began, sent, cpu_ns = time.monotonic(), self.sent(), self._cpu_ns()
        while (count := self.sent() - sent) < LEAST or time.monotonic() < began + seconds:
            time.sleep(SLICE_S)
        return count / (time.monotonic() - began), (self._cpu_ns() - cpu_ns) / count

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._file.close()
        self._directory.cleanup()

    def _cpu_ns(self) -> int:
        """Its time on a CPU, softirqs in its context included, to the nanosecond: as clock_getcpuclockid(3) has it."""
        return time.clock_gettime_ns(~self._process.pid << 3 | _CPUCLOCK_SCHED)


def compiled(place: Path, code: str) -> Path | None:
    """A program in C; None where there is no compiler."""
    compiler = next((one for one in map(shutil.which, ("cc", "gcc", "clang")) if one), None)
    if compiler is None:
        return None
    source = place.with_suffix(".c")
    source.write_text(code)
    done = subprocess.run([compiler, "-O2", "-D_GNU_SOURCE", "-o", str(place), str(source)], check=False)
    return place if done.returncode == 0 else None


def measure(collector: Collector, storm: Storm, mode: Mode, base: tuple[float, float]) -> tuple[float, float]:
    """One pair: with the mode, then without again; returns the latter."""
    if mode.command:
        return _measure_command(storm, mode, base)
    if mode.peer:
        return _measure_peer(storm, mode, base)
    is_sampled = mode.seen_pct < 100
    if is_sampled:
        base = storm.mean()
    for name in mode.probes:
        collector.load(name, mode.mode, mode.seen_pct)
    with_rate, with_cpu = storm.long_mean() if is_sampled else storm.window()
    if mode.probes and not is_sampled:
        _run_times(collector, storm, mode)
    for name in mode.probes:
        collector.unload(name)
    after = storm.window()
    _keep(mode, base, (with_rate, with_cpu), storm.mean() if is_sampled else after)
    return after


def _measure_command(storm: Storm, mode: Mode, base: tuple[float, float]) -> tuple[float, float]:
    before = storm.mean()
    with tempfile.TemporaryDirectory() as directory:
        words = [str(Path(sys.executable).with_name("netconsole")), *mode.command, str(Path(directory) / "storm")]
        command = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        _until_it_records(command)
        time.sleep(GOVERNED_S)
        during = storm.mean()
        command.send_signal(signal.SIGINT)
        print(command.communicate()[1], file=sys.stderr)
    _keep(mode, before, during, storm.mean())
    return base


def _measure_peer(storm: Storm, mode: Mode, base: tuple[float, float]) -> tuple[float, float]:
    """Another tool watches, from when it is attached: a second, for it says so in a way of its own."""
    with tempfile.TemporaryDirectory() as directory:
        words = [*mode.peer, str(Path(directory) / "storm")] if mode.peer[-1] == "-o" else [*mode.peer]
        tool = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(PEER_S)
        if tool.poll() is not None:
            raise SystemExit(f"{mode.peer[0]} ended with exit status {tool.returncode}")
        during = storm.window()
        tool.send_signal(signal.SIGINT)
        tool.wait()
    after = storm.window()
    _keep(mode, base, during, after)
    return after


def _until_it_records(command: subprocess.Popen[str]) -> None:
    """All of its probes are attached then. In the lab that takes longer than the governor needs."""
    assert command.stderr is not None
    for line in command.stderr:
        print(line, end="", file=sys.stderr)
        if "recording to" in line:
            return
    raise SystemExit("the command did not record")


def _keep(mode: Mode, before: tuple[float, float], during: tuple[float, float], after: tuple[float, float]) -> None:
    without_rate, without_cpu = (before[0] + after[0]) / 2, (before[1] + after[1]) / 2
    mode.rates.append(during[0] / without_rate)
    mode.cpus.append(without_cpu / during[1])
    mode.extra_ns.append(during[1] - without_cpu)


def _run_times(collector: Collector, storm: Storm, mode: Mode) -> None:
    collector.statistics(100)
    time.sleep(3 * SETTLE_S)
    collector.take_costs()
    before = storm.sent()
    time.sleep(STATISTICS_S)
    sent = storm.sent() - before
    totals: dict[str, list[int]] = {}
    for cost in collector.take_costs():
        for program in cost.programs:
            total = totals.setdefault(f"{cost.probe}/{program.name}", [0, 0])
            total[0] += program.run_count
            total[1] += program.run_time_ns
            mode.attach[f"{cost.probe}/{program.name}"] = program.attach
    collector.statistics(0)
    for name, (count, time_ns) in totals.items():
        if count:
            mode.programs.setdefault(name, []).append(time_ns / count)
            mode.runs[name] = count / sent


def report(modes: Sequence[Mode], rates: Sequence[float], cpus_ns: Sequence[float]) -> None:
    """The tables."""
    rate, cpu_ns = statistics.median(rates), statistics.median(cpus_ns)
    print(f"UDP storm without probes: {rate:,.0f} datagrams/s, {cpu_ns:,.0f} ns of CPU each (medians)\n")
    print(f"{'mode':40} {'rate kept':>10} {'by CPU':>8} {'range':>13} {'ns/datagram':>12}  target")
    for mode in modes:
        by_cpu = 100 * statistics.median(mode.cpus)
        spread = f"{100 * min(mode.cpus):.1f}-{100 * max(mode.cpus):.1f}"
        kept, extra = 100 * statistics.median(mode.rates), statistics.median(mode.extra_ns)
        target = (
            "" if mode.target_pct is None else f"at least {mode.target_pct:g} %: {_verdict(by_cpu >= mode.target_pct)}"
        )
        print(f"{mode.title:40} {kept:8.1f} % {by_cpu:6.1f} % {spread:>13} {extra:12.0f}  {target}")

    run_ns = {mode.title: {name: statistics.median(all_ns) for name, all_ns in mode.programs.items()} for mode in modes}
    empty_mode = next((mode for mode in modes if mode.probes in EMPTY), None)
    empty = {} if empty_mode is None else {empty_mode.attach[n]: ns for n, ns in run_ns[empty_mode.title].items()}
    print(f"\n{'program':32} {'ns/run':>8} {'less empty':>11} {'runs/datagram':>14}")
    for mode in modes:
        if not mode.programs:
            continue
        print(f"{mode.title}:")
        together = 0.0
        for name, ns in run_ns[mode.title].items():
            net = ns - empty.get(mode.attach[name], 0.0)
            together += net * mode.runs[name]
            print(f"  {name:30} {ns:8.0f} {net:11.0f} {mode.runs[name]:14.2f}")
        print(f"  {'all, per datagram':30} {'':8} {together:11.0f}")
        runs, seen_ns = sum(mode.runs.values()), sum(ns * mode.runs[name] for name, ns in run_ns[mode.title].items())
        unseen = (statistics.median(mode.extra_ns) - seen_ns) / runs
        print(f"  what a run costs beyond what the statistics say: {unseen:.0f} ns")
    count, drops = (
        next(iter(run_ns.get(title, {}).values()), None) for title in ("count only", "kernel_drops, summary")
    )
    if count and drops:
        verdict = _verdict(drops <= 2.5 * count)
        print(f"\nkernel_drops costs {drops / count:.2f} times a program that only counts (at most 2.5: {verdict})")


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "NOT met"


def run_in_lab(kernel: str, arguments: Sequence[str]) -> None:
    """The same there. What it needs is compiled here."""
    sys.path.insert(0, str(CHECKOUT))
    from tests.lab.kernels.compiled import bring
    from tests.lab.kernels.fetch import kernel_named
    from tests.lab.machine.hypervisor import Hypervisor, on_a_still_checkout

    probes = [catalogue.load(CHECKOUT / "bench/probes" / name) for name in ("submit_tracked", "empty_tracked")]
    commands = [{"spec": one.raw, "source": one.code()} for one in (*probes, catalogue.shipped("conntrack"))]
    with Hypervisor(kernel_named(kernel)) as machine:
        machine.run("modprobe", "-a", "nf_conntrack", "nf_tables", "nft_ct")
        bring(machine, commands)
        inside = on_a_still_checkout(sys.executable, str(Path(__file__).resolve()), *arguments)
        done = machine.run(*inside, limit_s=LAB_LIMIT_S, check=False)
        print(done.text, done.errors)


def courses() -> None:
    """Storms under the whole profile, of 14 s each."""
    sys.path.insert(0, str(CHECKOUT))
    from tests.support.live.network import Namespace
    from tests.support.live.storm import OF_802_2, TO_CLOSED_PORT
    from tests.support.live.storm_course import run

    limit_pct = load_file(paths.data("profiles") / "summary.toml", catalogue.load_all()).budget.kernel_cpu_pct or 0.0
    for rate, senders in ((100_000, 1), (500_000, 2), (1_000_000, 2)):
        for kinds in ((TO_CLOSED_PORT,), (OF_802_2,), (TO_CLOSED_PORT, OF_802_2)):
            namespace = Namespace()
            try:
                with tempfile.TemporaryDirectory() as directory:
                    course = run(Path(directory), namespace, kinds, rate, COURSE_S, limit_pct, senders)
            finally:
                namespace.remove()
            listed = sum(course.taken.values())
            print(f"{rate} a second of {len(kinds)} kinds: {100 * listed / course.sent:.3f} % with reason and place")
            print(f"  {course.told()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="pairs per mode (default 5)")
    parser.add_argument(
        "--only", metavar="TEXT", default="", help="only modes whose name holds this text, and the empty one"
    )
    parser.add_argument("--course", action="store_true", help="storms under the profile summary, second by second")
    parser.add_argument("--tracked", action="store_true", help="with connection tracking, and its probe")
    parser.add_argument("--lab", metavar="KERNEL", default="", help="on this kernel of the lab, such as debian-6.1")
    options = parser.parse_args()
    if options.course:
        courses()
        return
    if options.lab:
        words = ["--rounds", str(options.rounds), "--only", options.only]
        run_in_lab(options.lab, [*words, "--tracked"] if options.tracked else words)
        return
    all_modes = TRACKED if options.tracked else MODES
    modes = [mode for mode in all_modes if options.only in mode.title or mode.probes in EMPTY]
    modes = [mode for mode in modes if not mode.peer or shutil.which(mode.peer[0])]
    if os.geteuid() != 0:
        raise SystemExit("storm.py needs root: it loads BPF programs and makes a network namespace")
    collector, storm = Collector(), Storm(RULES if options.tracked else "")
    print(
        "sender: " + ("C" if storm.is_compiled else "Python: this machine has no C compiler, or it tracks connections")
    )
    rates, cpus_ns = [], []
    try:
        base = storm.window()
        for _ in range(options.rounds):
            for mode in modes:
                base = measure(collector, storm, mode, base)
                rates.append(base[0])
                cpus_ns.append(base[1])
    finally:
        storm.close()
        collector.close()
    report(modes, rates, cpus_ns)


if __name__ == "__main__":
    main()
