"""Measures what it costs to call an empty program, by the kind of its hook: in the lab, on a function called in a loop.

The function is vfs_read, by pread(2) of one byte of /dev/zero. The kinds take turns with nothing attached. Of each turn
the run that was disturbed least counts. Prints the median of the turns, in ns per call, less that of nothing, and what
the kernel's statistics say of a run: the budget counts the difference as well (UNSEEN_NS). The lab is an emulated
machine: the order and the ratios carry over to real machines, the times do not.

`--instructions`: the emulated machine's clock counts instructions, and so does all that is printed. Runs then differ
far less.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from netconsole.probes.includes import behind_headers
from netconsole.telemetry import frames
from tests.lab.collector import INTERVAL_MS, InsideMeasurement
from tests.lab.kernels.fetch import kernel_named, kernels
from tests.lab.machine.errors import LabUnavailable
from tests.lab.machine.hypervisor import Hypervisor
from tests.lab.network.testbed import CLOCK_OF_REAL_MACHINES, boot

FUNCTION = "vfs_read"
KINDS = ("fentry", "fexit", "kprobe", "kretprobe")
EMPTY = "int nothing(void *ctx) { return 0; }"
RUNS = 5
CALLS = 20_000
LOOP = """
import os, sys, time
fd = os.open("/dev/zero", os.O_RDONLY)
for line in sys.stdin:
    start = time.thread_time_ns()
    for number in range(int(line)):
        os.pread(fd, 1, 0)
    print(time.thread_time_ns() - start, flush=True)
"""


class Collector(InsideMeasurement):
    """Adds up what the statistics say."""

    def __init__(self, hypervisor: Hypervisor) -> None:
        self.runs = self.time_ns = 0
        super().__init__(hypervisor)
        self.statistics(0)

    def _fold(self, frame: frames.AnyFrame) -> None:
        super()._fold(frame)
        if isinstance(frame, frames.Cost):
            self.runs += sum(one.run_count for one in frame.programs)
            self.time_ns += sum(one.run_time_ns for one in frame.programs)


def spec_of(kind: str) -> dict[str, object]:
    program = {"name": kind, "measures": kind, "attach": [{"point": f"{kind}:{FUNCTION}", "function": "nothing"}]}
    return {"probe": {"name": kind, "version": 1, "modes": ["summary"]}, "programs": [program]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--kernel", default=kernels()[0].name)
    parser.add_argument("--instructions", action="store_true", help="count instructions instead of time")
    options = parser.parse_args()
    clock = {"arguments": CLOCK_OF_REAL_MACHINES, "counts_instructions": True} if options.instructions else {}
    try:
        bed = boot(kernel_named(options.kernel), guests=0, **clock)
    except LabUnavailable as error:
        print(f"cannot run here: {error}")
        return
    with bed:
        collector = Collector(bed.hypervisor)
        loop = bed.hypervisor.start("python3", "-c", LOOP)

        def ns_per_call() -> float:
            found = []
            for _ in range(RUNS):
                loop.write(f"{CALLS}\n".encode())
                found.append(int(loop.wait_for(b"\n")) / CALLS)
            return min(found)

        ns_per_call()  # warms up
        costs: dict[str, list[float]] = {kind: [] for kind in ("nothing", *KINDS)}
        base: list[float] = []
        said: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for _ in range(options.turns):
            for kind in KINDS:
                before = ns_per_call()
                reply = collector.command(command="load", probe=kind, spec=spec_of(kind), source=behind_headers(EMPTY))
                assert reply.ok, reply.error
                during = ns_per_call()
                collector.statistics(INTERVAL_MS)
                collector.settle()
                collector.runs = collector.time_ns = 0
                ns_per_call()
                collector.settle()
                said[kind].append(collector.time_ns / collector.runs)
                collector.statistics(0)
                collector.command(command="unload", probe=kind)
                after = ns_per_call()
                base += [before, after]
                costs[kind].append(during - (before + after) / 2)
                costs["nothing"].append(after - before)
        collector.close()
    unit = "instructions" if options.instructions else "ns"
    print(f"without: {statistics.median(base):,.0f} {unit} per call; kernel {options.kernel}")
    for kind, found in costs.items():
        says = f"; the statistics say {statistics.median(said[kind]):,.0f}" if kind in said else ""
        print(f"{kind:10} {statistics.median(found):+8,.0f} {unit} ({min(found):+,.0f} to {max(found):+,.0f}){says}")


if __name__ == "__main__":
    main()
