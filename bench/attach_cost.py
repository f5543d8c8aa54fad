"""Measures what it costs to attach a program to a hook and to detach it, by kind of hook.

An empty program, attached and detached in turns: alone on its hook (after a pause, and at once), and beside another.
Changing a hook changes the kernel's code, which interrupts all CPUs. Prints the time of the caller, its CPU time, and
the function-call interrupts of all CPUs for each change (/proc/interrupts, `CAL`). The first line is of a pause without
any change. Also in the lab: `python -m tests.lab run -- CHECKOUT/.venv/bin/python bench/attach_cost.py`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import struct
import time
from collections.abc import Callable
from pathlib import Path

from netconsole_collector.kernel import attach, loading
from netconsole_collector.types.btf import FUNC, Btf

EMPTY = struct.pack("=BBhiBBhi", 0xB7, 0, 0, 0, 0x95, 0, 0, 0)
"""r0 = 0; exit."""
PAUSE_S = 0.1
"""A tracepoint that was emptied just before makes the next one wait for a grace period of RCU (tracepoint_add_func in
kernel/tracepoint.c, TP_TRANSITION_SYNC_1_0_1). After this time it is over."""
POINTS = {
    "raw_tracepoint:softirq_entry": loading.RAW_TRACEPOINT,
    "tracepoint:irq:softirq_entry": loading.TRACEPOINT,
    "fentry:vfs_read": loading.TRACING,
    "fexit:vfs_read": loading.TRACING,
    "kprobe:vfs_read": loading.KPROBE,
    "kretprobe:vfs_read": loading.KPROBE,
}


def interrupts() -> int:
    """Function-call interrupts of all CPUs since the start. 0 where the kernel does not list them (other than x86)."""
    lines = Path("/proc/interrupts").read_text().splitlines()
    words = next((line.split() for line in lines if line.split()[:1] == ["CAL:"]), [])
    return sum(int(word) for word in words if word.isdecimal())


def timed(change: Callable[[], object], found: list[tuple[float, float, int]]) -> None:
    before, wall, cpu = interrupts(), time.perf_counter_ns(), time.thread_time_ns()
    change()
    took = (time.perf_counter_ns() - wall, time.thread_time_ns() - cpu)
    found.append((took[0] / 1000, took[1] / 1000, interrupts() - before))


def show(what: str, found: list[tuple[float, float, int]]) -> None:
    wall, cpu, calls = zip(*found, strict=True)
    print(
        f"{what:56} {statistics.median(wall):9,.0f} us ({min(wall):,.0f} to {max(wall):,.0f}), "
        f"CPU {statistics.median(cpu):7,.0f} us, interrupts {statistics.mean(calls):5.1f}"
    )


def load(where: attach.Point, kind: int) -> int:
    """The descriptor of an empty program. Raises LoadRefused."""
    if kind != loading.TRACING:
        return loading.load("empty", EMPTY, kind)
    typed = {"fentry": loading.TRACE_FENTRY, "fexit": loading.TRACE_FEXIT}[where.kind]
    return loading.load("empty", EMPTY, kind, typed, Btf().vmlinux_id(where.name, FUNC))


def measure(point: str, kind: int, times: int, beside: bool, pause_s: float) -> None:
    where = attach.parse(point)
    program = load(where, kind)
    links: list[int] = []
    on: list[tuple[float, float, int]] = []
    off: list[tuple[float, float, int]] = []
    other = attach.attach(where, program, kind == loading.TRACING) if beside else None
    for _ in range(times):
        time.sleep(pause_s)
        timed(lambda: links.append(attach.attach(where, program, kind == loading.TRACING)), on)
        timed(lambda: os.close(links.pop()), off)
    if other is not None:
        os.close(other)
    os.close(program)
    name = f"{point}{', beside another' if beside else ''}{f', after {pause_s:g} s' if pause_s else ''}"
    show(f"{name}: attach", on)
    show(f"{name}: detach", off)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=50)
    arguments = parser.parse_args()
    idle: list[tuple[float, float, int]] = []
    for _ in range(arguments.times):
        timed(lambda: time.sleep(0.001), idle)
    show("a pause of 1 ms", idle)
    for point, kind in POINTS.items():
        for beside, pause_s in ((False, PAUSE_S), (False, 0.0), (True, 0.0)):
            try:
                measure(point, kind, arguments.times, beside, pause_s)
            except (attach.CannotAttach, loading.LoadRefused) as error:
                print(f"{point}: {error}")
                break


if __name__ == "__main__":
    main()
