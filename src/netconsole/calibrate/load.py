"""Makes the load between two network namespaces joined by a veth pair, and computes the figures of each stretch."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, Literal, cast

from netconsole.base import paths
from netconsole.base.errors import Unable

LIMIT_S = 30.0
"""How long to wait for the answer of an end, in addition to the time that it was asked to run."""
STREAMS = 4


@dataclass(frozen=True, slots=True)
class Workload:
    """A kind of traffic. ``unit`` is what is counted: bytes, round trips, or datagrams."""

    name: str
    title: str
    command: Mapping[str, Any]
    unit: Literal["byte", "round trip", "datagram"]
    spread: bool = False
    """True: both ends run on all CPUs. False: each end has one CPU."""


@dataclass(frozen=True, slots=True)
class LoadMetric:
    """One figure of a workload. ``worse`` is the direction in which a host gets slower."""

    name: str
    workload: str
    title: str
    unit: str
    worse: Literal["up", "down"]


WORKLOADS: tuple[Workload, ...] = (
    Workload("tcp_stream", "TCP, one stream", {"do": "stream", "streams": 1}, "byte"),
    Workload("tcp_streams", f"TCP, {STREAMS} streams", {"do": "stream", "streams": STREAMS}, "byte", spread=True),
    Workload("tcp_round_trip", "TCP request and answer", {"do": "round_trips", "kind": "tcp"}, "round trip"),
    Workload("udp_round_trip", "UDP request and answer", {"do": "round_trips", "kind": "udp"}, "round trip"),
    Workload("small", "64-byte datagrams", {"do": "datagrams", "dropped": False}, "datagram"),
    Workload("dropped", "dropped datagrams", {"do": "datagrams", "dropped": True}, "datagram"),
)

IPERF3: tuple[Workload, ...] = (
    Workload("iperf3_stream", "iperf3, one stream", {"do": "iperf3", "streams": 1}, "byte"),
    Workload("iperf3_streams", f"iperf3, {STREAMS} streams", {"do": "iperf3", "streams": STREAMS}, "byte", spread=True),
)
"""Used instead of the streams above on request. iperf3 only runs whole seconds."""


def with_iperf3() -> tuple[Workload, ...]:
    """All workloads, with the streams by iperf3."""
    return (*IPERF3, *(load for load in WORKLOADS if load.unit != "byte"))


def stretch_s(workload: Workload, seconds: float) -> float:
    """How long a stretch of ``seconds`` really takes with this workload."""
    return max(1.0, round(seconds)) if workload in IPERF3 else seconds


def _metrics() -> Iterator[LoadMetric]:
    for load in (*WORKLOADS, *IPERF3):
        if load.unit == "byte":
            yield LoadMetric(f"{load.name}.mb_per_s", load.name, f"{load.title}: throughput", "MB/s", "down")
            yield LoadMetric(f"{load.name}.cpu_ns_per_kb", load.name, f"{load.title}: CPU of both ends", "ns/kB", "up")
        elif load.unit == "round trip":
            for name in ("mean", "p50", "p90", "p99"):
                yield LoadMetric(f"{load.name}.{name}_us", load.name, f"{load.title}: {name}", "us", "up")
        else:
            yield LoadMetric(f"{load.name}.per_s", load.name, f"{load.title}: rate", "packets/s", "down")
            yield LoadMetric(f"{load.name}.cpu_ns", load.name, f"{load.title}: CPU of the sender", "ns/packet", "up")


METRICS: tuple[LoadMetric, ...] = tuple(_metrics())


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of one workload: figures by the name of the metric, and all units sent, including the warm-up."""

    figures: Mapping[str, float]
    units_in_all: int


class LoadEnds:
    """Both ends and the veth pair between them. They are gone when the ``with`` ends, or when this process ends.

    Raises Unable where namespaces or devices cannot be made.
    """

    def __init__(self) -> None:
        self._ends: list[_Process] = []
        self._spread: bool | None = None

    def __enter__(self) -> LoadEnds:
        try:
            self._ends = [_Process(), _Process()]
            near, far = self._ends
            pid = int(far.ask({"do": "hello"})["pid"])
            near.ask({"do": "wire", "peer": pid})
            for side, end in enumerate(self._ends):
                end.ask({"do": "address", "side": side})
            near.ask({"do": "ports", **far.ask({"do": "serve"})})
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for end in self._ends:
            end.close()

    def run(self, workload: Workload, seconds: float) -> Stretch:
        """Run this workload alone."""
        self._place(workload.spread)
        near, far = self._ends
        used_ns = [int(end.ask({"do": "used"})["cpu_ns"]) for end in self._ends]
        seconds = stretch_s(workload, seconds)
        if workload in IPERF3:
            far.ask({"do": "serve_iperf3"})
        found = near.ask({**workload.command, "seconds": seconds}, seconds)
        if workload in IPERF3:
            far.ask({"do": "end_iperf3"})
        spent_ns = sum(int(end.ask({"do": "used"})["cpu_ns"]) for end in (near, far)) - sum(used_ns)
        units = int(found["units"])
        if not units:
            raise Unable(f"{workload.title}: nothing came through in {seconds:g} s; is this host overloaded?")
        name = workload.name
        if workload.unit == "byte":
            figures = {
                f"{name}.mb_per_s": units / found["seconds"] / 1e6,
                f"{name}.cpu_ns_per_kb": spent_ns / (found["units_in_all"] / 1e3),
            }
        elif workload.unit == "round trip":
            figures = {f"{name}.{part}_us": found[part] / 1e3 for part in ("mean", "p50", "p90", "p99")}
        else:
            figures = {f"{name}.per_s": units / found["seconds"], f"{name}.cpu_ns": found["cpu_ns"] / units}
        return Stretch(figures, int(found["units_in_all"]))

    def _place(self, spread: bool) -> None:
        """Put each end on a CPU of its own (the first and the last that we may use), or both on all CPUs."""
        if spread == self._spread:
            return
        self._spread = spread
        cpus = sorted(os.sched_getaffinity(0))
        for end, own in zip(self._ends, (cpus[:1], cpus[-1:]), strict=True):
            end.ask({"do": "cpus", "cpus": cpus if spread else own})


class _Process:
    """A process of :mod:`netconsole.calibrate.end`."""

    def __init__(self) -> None:
        # The kernel kills it with the thread that starts it: the main one.
        words = paths.own_command("netconsole.calibrate.end", str(os.getpid()))
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._in = cast("IO[bytes]", self._process.stdin)
        self._out = cast("IO[bytes]", self._process.stdout)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)

    def ask(self, command: Mapping[str, Any], seconds: float = 0.0) -> dict[str, Any]:
        """Send a command that may take ``seconds``, and return its answer."""
        try:
            self._in.write(json.dumps(command).encode() + b"\n")
            self._in.flush()
        except OSError:
            pass  # the process has ended; its last line says why
        if not self._selector.select(seconds + LIMIT_S):
            raise Unable(f"the load does not answer ({command['do']}); is this host overloaded?")
        line = self._out.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "its process has ended"}
        if "error" in answer:
            raise Unable(f"no load can be made here: {answer['error']}")
        return answer

    def close(self) -> None:
        """End it now."""
        self._selector.close()
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(OSError):  # closing flushes what the process did not read
            self._in.close()
        self._out.close()
