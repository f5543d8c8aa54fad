"""The load: two ends in namespaces of their own, joined by a wire, and what a stretch of it comes to."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, Literal, cast

from netconsole.base.errors import Unable

LIMIT_S = 30.0
"""No answer of an end takes so long, beyond the time that it was asked to run for."""
STREAMS = 4


@dataclass(frozen=True, slots=True)
class Workload:
    """A kind of traffic. ``unit`` is what is counted: bytes, round trips, or datagrams."""

    name: str
    title: str
    command: Mapping[str, Any]
    unit: Literal["byte", "round trip", "datagram"]
    spread: bool = False
    """Over all CPUs; otherwise each end has one."""


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
"""Instead of the streams above, for who asks for it. It knows whole seconds only."""


def with_iperf3() -> tuple[Workload, ...]:
    """All kinds, streams by iperf3."""
    return (*IPERF3, *(load for load in WORKLOADS if load.unit != "byte"))


def stretch_s(workload: Workload, seconds: float) -> float:
    """How long a stretch of it takes that was to take so long."""
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
    """What a stretch of one workload came to: figures by the name of the metric, and all units, warming up included."""

    figures: Mapping[str, float]
    units_in_all: int


class Load:
    """Both ends and the wire between them; gone when the ``with`` ends, or when this process does.

    Raises Unable where namespaces or devices cannot be made.
    """

    def __init__(self) -> None:
        self._ends: list[_Process] = []
        self._spread: bool | None = None

    def __enter__(self) -> Load:
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
        """A stretch of traffic of that kind; the other kinds rest meanwhile."""
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
        """Each end on a CPU of its own, the first and the last that we may use, or both on all of them."""
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
        words = [sys.executable, "-I", "-m", "netconsole.calibrate.end", str(os.getpid())]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._in = cast("IO[bytes]", self._process.stdin)
        self._out = cast("IO[bytes]", self._process.stdout)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)

    def ask(self, command: Mapping[str, Any], seconds: float = 0.0) -> dict[str, Any]:
        """The answer to one command, which may take so long."""
        try:
            self._in.write(json.dumps(command).encode() + b"\n")
            self._in.flush()
        except OSError:
            pass  # it has ended: what it said last is why
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
        with contextlib.suppress(OSError):  # what it did not read any more
            self._in.close()
        self._out.close()
