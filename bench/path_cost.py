"""Measures what host_path, local_path and flow_top cost the traffic on this machine: with and without each, in turn.

The loads are datagrams through a bridge between namespaces (the sender's CPU time), and round trips. Prints the ratio
of a window with the probe to the mean of the windows without it before and after. Prints the kernel's nanoseconds per
run, too, from another window. Checks nothing. For Open vSwitch see ovs_cost.py.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from netconsole.telemetry import frames
from tests.support.live.measurement import Measurement
from tests.support.live.path import INSIDE, OUTSIDE, B, Host

SLICES = 5
SLICE_S = 0.3
PORT, ECHO_PORT = 7777, 7778
ROUND_TRIPS = 1000
STATISTICS_MS = 500
HEAD = "| with | CPU per datagram | round trip | events submitted | programs |\n|---|---|---|---|---|"
_CPUCLOCK_SCHED = 2
"""include/linux/posix-timers.h."""

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


ECHO = """
import os, socket, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("", int(sys.argv[2])))
print("ready", flush=True)
while True:
    server.sendto(*server.recvfrom(128))
"""
ASK = """
import os, socket, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
asker, count = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), int(sys.argv[4])
asker.connect((sys.argv[2], int(sys.argv[3])))
times = []
for _ in range(count):
    begin = time.monotonic_ns()
    asker.send(bytes(64))
    asker.recv(128)
    times.append(time.monotonic_ns() - begin)
print(sorted(times)[count // 2])
"""


Window: TypeAlias = Callable[[], tuple[float, ...]]
"""One turn of the load; its figures."""


class Timing(Measurement):
    """Also keeps run counts and times of the kernel's statistics, while these are wanted."""

    runs: dict[str, tuple[int, int]]

    def statistics(self, window_ms: int) -> None:
        """From here on, runs are those that are added."""
        self.runs = {}
        super().statistics(window_ms)

    def _fold(self, frame: frames.AnyFrame) -> None:
        super()._fold(frame)
        if isinstance(frame, frames.Cost) and frame.statistics is not None and frame.statistics.window_ns:
            for program in frame.programs:
                count, time_ns = self.runs.get(program.name, (0, 0))
                self.runs[program.name] = (count + program.run_count, time_ns + program.run_time_ns)


class Probes:
    """Some probes of a collector, loaded and unloaded together."""

    def __init__(self, collector: Timing, names: Sequence[str], knobs: dict[str, dict[str, str]]) -> None:
        self.collector, self.names, self.knobs = collector, names, knobs
        self.submitted = 0

    def row(self, title: str, rounds: int, window: Window) -> str:
        """Ratios of the window's figures with them to those without, of each round: median, least and most."""
        found = []
        runs = ""
        before = window()
        for number in range(rounds):
            self.load()
            during = window()
            if number == rounds - 1:
                runs = self.run_times(window)
            self.unload()
            after = window()
            found.append([2 * d / (b + a) for b, d, a in zip(before, during, after, strict=True)])
            before = after
        columns = [f"{statistics.median(one):.2f} ({min(one):.2f}-{max(one):.2f})" for one in zip(*found, strict=True)]
        return f"| {title} | {' | '.join(columns)} | {self.submitted} | {runs} |"

    def run_times(self, window: Window) -> str:
        """Nanoseconds of a run, and runs, by program; their own 60 to 70 ns are in them."""
        self.collector.statistics(STATISTICS_MS)
        window()
        self.collector.settle()
        runs = self.collector.runs
        self.collector.statistics(0)
        return ", ".join(f"{name} {ns / count:.0f} ns x {count}" for name, (count, ns) in runs.items() if count)

    def load(self) -> None:
        for name in self.names:
            self.collector.load(name, **self.knobs.get(name, {}))

    def unload(self) -> None:
        self.collector.settle()
        for name in self.names:
            self.submitted += self.collector.event_count(name, "submitted")
            self.collector.command(command="unload", probe=name)


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


def measure(rounds: int, groups: dict[str, list[str]]) -> None:
    host, cpus = Host(), sorted(os.sched_getaffinity(0))
    try:
        host.bridge()
        receiver = host.b.start(RECEIVE, cpus[-1], PORT)
        sender = host.a.start(SEND, cpus[0], B, PORT)
        echo = host.b.start(ECHO, cpus[-1], ECHO_PORT)
        with program(receiver), program(sender), program(echo):
            collector = Timing()
            collector.statistics(0)
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

            def round_trip_ns() -> float:
                """Without the storm: the least of a few medians."""
                sender.send_signal(signal.SIGSTOP)
                try:
                    asked = [host.a.python(ASK, cpus[0], B, ECHO_PORT, ROUND_TRIPS) for _ in range(SLICES)]
                finally:
                    sender.send_signal(signal.SIGCONT)
                return min(map(float, asked))

            def window() -> tuple[float, float]:
                return cpu_ns(), round_trip_ns()

            by_cpu, round_trip = window()
            print(f"without: {by_cpu:.0f} ns of the sender's CPU for a datagram through a bridge to a socket;")
            print(f"{round_trip / 1e3:.1f} us for a round trip")
            print(HEAD, flush=True)
            sets = {
                "host_path": {"inside_devices": INSIDE, "outside_devices": OUTSIDE},
                "local_path": {"host_devices": "eth0"},
            }
            for title, names in groups.items():
                print(Probes(collector, names, sets).row(title, rounds, window), flush=True)
            collector.close()
    finally:
        host.remove()


def main() -> None:
    groups = {"nothing": [], "host_path": ["host_path"], "local_path": ["local_path"], "flow_top": ["flow_top"]}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=tuple(groups), default=list(groups))
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("this needs root")
        return
    measure(options.rounds, {name: groups[name] for name in options.only})


if __name__ == "__main__":
    main()
