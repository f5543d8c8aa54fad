"""Makes the load between two network namespaces joined by a veth pair, and computes the figures of each stretch."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any, Literal

from netconsole.base.errors import Unable
from netconsole.base.figure import safe
from netconsole.far import archive
from netconsole.far.host import THIS_HOST, AnyHost
from netconsole.far.program import Gone, ProgramProcess

END = "netconsole_collector.load_end"
MAX_ANSWER_BYTES = 1 << 16
LIMIT_S = 30.0
"""How long to wait for the answer of an end, in addition to the time that it was asked to run."""
_TRIAL_S = 0.05
STREAMS, WRITERS = 4, 100
"""The second as iperf3 -P 100 -l 32 has them."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A kind of traffic. ``unit`` is what is counted: bytes, round trips, or datagrams."""

    name: str
    title: str
    command: Mapping[str, Any]
    unit: Literal["byte", "round trip", "datagram"]
    spread: bool = False
    """True: both ends run on all CPUs. False: each end has one CPU."""
    guest: Literal["", "to", "from"] = ""
    """Packets that a guest behind tap and vhost at the far end receives, or sends."""
    is_over_switch: bool = False
    """Over a bridge of Open vSwitch, instead of from end to end."""


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
    Workload("small_flows", f"64-byte datagrams, {STREAMS} flows", {"do": "datagrams", "dropped": False,
             "flows": STREAMS}, "datagram", spread=True),
    Workload("udp_stream", "UDP, 1 400-byte datagrams", {"do": "stream", "streams": 1, "kind": "udp", "size": 1400},
             "byte"),
    Workload("tcp_writes", f"TCP, {WRITERS} streams of 32-byte writes from one thread", {"do": "stream",
             "streams": WRITERS, "size": 32, "threads": 1}, "byte", spread=True),
)  # fmt: skip
GUEST_WORKLOADS: tuple[Workload, ...] = (
    Workload("to_guest", "to a guest", {"do": "datagrams", "dropped": False, "to": "guest"}, "datagram", guest="to"),
    Workload("from_guest", "from a guest", {"do": "from_guest"}, "datagram", guest="from"),
)
"""Over tap and vhost: for probes of that path."""
_OVER = ", over Open vSwitch"
SWITCH_WORKLOADS: tuple[Workload, ...] = (
    *(
        replace(load, name=f"over_{load.name}", title=load.title + _OVER, command={**load.command, "to": "over"},
                is_over_switch=True)
        for load in WORKLOADS if load.name != "dropped"
    ),
    Workload("upcalls", f"datagrams for an upcall{_OVER}", {"do": "datagrams", "dropped": False, "to": "upcall"},
             "datagram", is_over_switch=True),
    Workload("dropped_by_flow", f"datagrams that a flow drops{_OVER}", {"do": "datagrams", "dropped": False,
             "to": "drop"}, "datagram", is_over_switch=True),
)  # fmt: skip
"""Over a bridge of the kernel's Open vSwitch: for its probes."""
ALL_WORKLOADS = (*WORKLOADS, *GUEST_WORKLOADS, *SWITCH_WORKLOADS)
OF_GUESTS, OF_SWITCHES = frozenset({"vhost_net", "tun", "kvm"}), frozenset({"openvswitch"})
"""The kernel modules whose work these probes watch."""
ROUND_TRIPS = ("min", "mean", "p50", "p90", "p99", "max")


def _metrics() -> Iterator[LoadMetric]:
    for load in ALL_WORKLOADS:
        if load.unit == "byte":
            yield LoadMetric(f"{load.name}.mb_per_s", load.name, f"{load.title}: throughput", "MB/s", "down")
            yield LoadMetric(f"{load.name}.cpu_ns_per_kb", load.name, f"{load.title}: CPU of both ends", "ns/kB", "up")
        elif load.unit == "round trip":
            for name in ROUND_TRIPS:
                yield LoadMetric(f"{load.name}.{name}_us", load.name, f"{load.title}: {name}", "us", "up")
        else:
            yield LoadMetric(f"{load.name}.per_s", load.name, f"{load.title}: rate", "packets/s", "down")
        if load.unit == "datagram" and load.guest != "from":
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

    def __init__(self, host: AnyHost = THIS_HOST) -> None:
        self._host = host
        self._ends: list[_Process] = []
        self._cpus: list[int] = []
        self._spread: bool | None = None

    def __enter__(self) -> LoadEnds:
        try:
            for _ in range(2):
                self._ends.append(_Process(self._host))
            near, far = self._ends
            hello = far.ask({"do": "hello"})
            self._cpus = [int(cpu) for cpu in hello["cpus"]]
            near.ask({"do": "wire", "peer": int(hello["pid"])})
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
        end = far if workload.guest == "from" else near
        before = self._received(workload)
        found = end.ask({**workload.command, "seconds": seconds}, seconds)
        sent = int(found["units"])
        if workload.guest == "to":  # of what it is sent, so much comes, in the warm-up and after it
            came = self._received(workload) - before
            found["units"] = round(came * sent / found["units_in_all"])
            found["units_in_all"] = came
        spent_ns = sum(int(end.ask({"do": "used"})["cpu_ns"]) for end in (near, far)) - sum(used_ns)
        units = int(found["units"])
        if not units:
            raise Unable(f"{workload.title}: no packet came through in {seconds:g} s; this host may be overloaded")
        name = workload.name
        if workload.guest == "from":
            figures = {f"{name}.per_s": units / found["seconds"]}
        elif workload.unit == "byte":
            figures = {
                f"{name}.mb_per_s": units / found["seconds"] / 1e6,
                f"{name}.cpu_ns_per_kb": spent_ns / (found["units_in_all"] / 1e3),
            }
        elif workload.unit == "round trip":
            figures = {f"{name}.{part}_us": found[part] / 1e3 for part in ROUND_TRIPS}
        else:
            figures = {f"{name}.per_s": units / found["seconds"], f"{name}.cpu_ns": found["cpu_ns"] / sent}
        return Stretch(figures, int(found["units_in_all"]))

    def open_guest(self) -> str:
        """Put a guest's side of vhost behind a tap at the far end. Returns why there can be none, or nothing."""
        near, far = self._ends
        try:
            far.ask({"do": "guest"})
            near.ask({"do": "to_guest"})
            self._spread = None  # vhost's worker has to be placed, too
        except Unable as error:
            return str(error)
        return self._tried(GUEST_WORKLOADS)

    def open_switch(self) -> str:
        """Put a bridge of Open vSwitch between the ends, beside the pair. Returns why there can be none, or nothing."""
        near, far = self._ends
        try:
            near.ask({"do": "switch", "peer": int(far.ask({"do": "hello"})["pid"])})
            far.ask({"do": "behind"})
        except Unable as error:
            return str(error)
        return self._tried(SWITCH_WORKLOADS)

    def _tried(self, workloads: Sequence[Workload]) -> str:
        try:
            for one in workloads:
                self.run(one, _TRIAL_S)
        except Unable as error:
            return str(error)
        return ""

    def _received(self, workload: Workload) -> int:
        return int(self._ends[1].ask({"do": "received"})["units"]) if workload.guest == "to" else 0

    def _place(self, spread: bool) -> None:
        """Put each end on a CPU of its own (the first and the last that we may use), or both on all CPUs."""
        if spread == self._spread:
            return
        self._spread = spread
        cpus = self._cpus
        for end, own in zip(self._ends, (cpus[:1], cpus[-1:]), strict=True):
            end.ask({"do": "cpus", "cpus": cpus if spread else own})


class _Process:
    """An end: see netconsole_collector/load_end.py. Raises Unable."""

    def __init__(self, host: AnyHost) -> None:
        # Here the kernel kills it with the thread that starts it: the main one.
        is_here = host.address is None
        self._where = "" if is_here else f"{host.address}: "
        arguments = (str(os.getpid()),) if is_here else ("far", str(archive.SILENCE_S))
        try:
            self._program = ProgramProcess(host.launch_of(END, *arguments), "the load")
        except Gone as error:
            raise Unable(str(error)) from None
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        threading.Thread(target=self._listen, name="load", daemon=True).start()

    def ask(self, command: Mapping[str, Any], seconds: float = 0.0) -> dict[str, Any]:
        """Send a command that may take ``seconds``, and return its answer."""
        with contextlib.suppress(Gone):  # its last line says why
            self._program.send(json.dumps(command).encode() + b"\n")
        try:
            line = self._lines.get(timeout=seconds + LIMIT_S)
        except Empty:
            raise Unable(
                f"{self._where}the process that makes the load does not answer ({command['do']}); this"
                " host may be overloaded"
            ) from None
        if line is None:
            self._lines.put(None)
            why = self._program.why()
            raise Unable(
                why if self._where else f"no load can be made here: the process that makes it has ended ({why})"
            )
        try:
            answer = json.loads(line)
            error = answer.get("error")
        except (ValueError, AttributeError, RecursionError):
            raise Unable(f"{self._where}the answer of the process that makes the load cannot be read") from None
        if error is not None:
            raise Unable(f"{self._where}no load can be made {'there' if self._where else 'here'}: {safe(error, 200)}")
        return dict(answer)

    def close(self) -> None:
        """End it now."""
        self._program.close()

    def _listen(self) -> None:
        rest = b""
        for chunk in self._program.chunks():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._lines.put(line)
            if len(rest) > MAX_ANSWER_BYTES:
                self._program.kill()
        self._lines.put(None)
