"""Measures what a vantage point of a ping costs: for each echo, and for each packet that is none.

Two hosts of veth and bridges on this machine, watched at both. The kernel's run-time statistics say the nanoseconds of
a run; their own 60 to 70 ns are in them. Checks nothing.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from netconsole.ping.capture import Role
from netconsole.telemetry import frames
from tests.support.live.echoes import B, TwoHosts, Vantages, between
from tests.support.live.network import send_udp

ROLES: tuple[Role, ...] = ("sender-host", "receiver-host")
STATISTICS_MS = 500
PORT = 7777


class TimedVantages(Vantages):
    """Also keeps run counts and times of the kernel's statistics, by probe."""

    def __init__(self) -> None:
        self.runs: dict[str, tuple[int, int]] = {}
        super().__init__()

    def _fold(self, frame: frames.AnyFrame) -> None:
        super()._fold(frame)
        if isinstance(frame, frames.Cost) and frame.statistics is not None and frame.probe:
            for program in frame.programs:
                count, time_ns = self.runs.get(frame.probe, (0, 0))
                self.runs[frame.probe] = (count + program.run_count, time_ns + program.run_time_ns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--echoes", type=int, default=2000)
    parser.add_argument("--datagrams", type=int, default=200_000)
    arguments = parser.parse_args()
    hosts, points = TwoHosts(), TimedVantages()
    try:
        for role in ROLES:
            points.watch(role, between(role))
        points.command(command="statistics", window_ms=STATISTICS_MS, every_ms=STATISTICS_MS)
        print("| load | vantage point | runs | ns per run | us per echo |\n|---|---|---|---|---|")
        for load in ("echoes", "datagrams"):
            points.settle()
            points.runs = {}
            if load == "echoes":
                hosts.send(B, arguments.echoes, 1000)
            else:
                send_udp(hosts.a, B, PORT, arguments.datagrams)
            points.settle()
            for role in ROLES:
                count, time_ns = points.runs[points.name(role)]
                each = f"{time_ns / arguments.echoes / 1000:.2f}" if load == "echoes" else ""
                print(f"| {load} | {role} | {count} | {time_ns / max(count, 1):.0f} | {each} |")
    finally:
        points.close()
        hosts.remove()


if __name__ == "__main__":
    main()
