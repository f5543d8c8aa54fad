"""Measures the collector: memory and CPU with the summary probes on this host, and the cost of statistics windows.

Needs root. Prints figures and ratios; checks nothing.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from netconsole.probes import catalogue as probes
from netconsole.probes.manifest import Manifest
from netconsole.telemetry import frames
from tests.support.live.collector_driver import Driver, call, calls_spec, of

SUMMARY = (
    "kernel_drops", "tx_queue_latency", "softirq_health", "socket_drops",
    "link_rates", "softnet", "protocol_counters", "nic_counters", "socket_groups",
)  # fmt: skip
SECONDS = 20
CALLS = 200_000
ROUNDS = 5
WINDOWS = {"off": (0, 1000), "default: 200 ms of 5 s": (200, 5000), "always on": (1000, 1000)}


def load(driver: Driver, name: str, manifest: Manifest) -> bool:
    """Loads a shipped probe in summary mode."""
    reply = driver.ask(
        command="load",
        probe=name,
        spec=manifest.raw,
        source=manifest.code(),
        mode="summary",
        knobs={},
    )
    if not reply.ok:
        print(f"  {name}: {reply.error}")
    return reply.ok


def footprint() -> None:
    """CPU and memory of the collector at one frame a second."""
    catalogue = probes.load_all()
    started = time.monotonic()
    with Driver() as driver:
        driver.until(frames.Hello)
        print(f"start to hello             {time.monotonic() - started:8.2f} s")
        loaded = [name for name in SUMMARY if load(driver, name, catalogue[name])]
        print(f"{len(loaded)} probes attached           {time.monotonic() - started:8.2f} s")
        driver.until(frames.Cost, lambda cost: cost.probe is None)  # the compiles are in the interval that ends here
        driver.until(frames.Cost, lambda cost: cost.probe is None)
        start = len(driver.seen)
        for _ in range(SECONDS):
            driver.until(frames.Cost, lambda cost: cost.probe is None)
        seen = driver.seen[start:]
        own = [frame for frame in seen if isinstance(frame, frames.Cost) and frame.probe is None]
        cpu_ns = sum(frame.usage.cpu_ns or 0 for frame in own if frame.usage)
        interval_ns = sum(frame.interval_ns for frame in own)
        last = own[-1].usage
        assert last is not None
        print(f"collector CPU              {100 * cpu_ns / interval_ns:8.2f} % of one core")
        print(f"collector PSS              {(last.pss_kb or 0) / 1024:8.1f} MB")
        costs = [one for name in loaded for one in of(frames.Cost, seen, name)[-1:]]  # a source has no maps
        maps_kb = sum(one.maps_kb or 0 for one in costs)
        print(f"maps in the kernel         {maps_kb / 1024:8.1f} MB")
        written = len(b"".join(frames.encode(frame) for frame in seen))
        print(f"frames                     {written / SECONDS / 1024:8.1f} kB/s")


def windows() -> None:
    """Nanoseconds that one counted system call takes, with statistics off, in windows, and always on; paired rounds."""
    spec = calls_spec()
    taken: dict[str, list[float]] = {name: [] for name in WINDOWS}
    with Driver() as driver:
        driver.load(spec=spec, knobs={"pid": os.getpid()})
        for _ in range(ROUNDS):
            for name, (window_ms, every_ms) in WINDOWS.items():
                assert driver.ask(command="statistics", window_ms=window_ms, every_ms=every_ms).ok
                driver.interval()
                started = time.process_time_ns()
                call(1, CALLS)
                taken[name].append((time.process_time_ns() - started) / CALLS)
    base = statistics.median(taken["off"])
    for name, values in taken.items():
        middle = statistics.median(values)
        print(f"statistics {name:24} {middle:8.0f} ns/call {100 * (middle / base - 1):+6.1f} %")


def main() -> int:
    if os.geteuid() != 0:
        print("needs root")
        return 3
    footprint()
    windows()
    return 0


if __name__ == "__main__":
    sys.exit(main())
