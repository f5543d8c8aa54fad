"""A collector that runs on the lab's hypervisor while the test that reads its frames runs outside."""

from __future__ import annotations

import copy
import itertools
import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from netconsole.base.paths import collector_command
from netconsole.host.collector_process import CollectorProcess
from netconsole.probes import catalogue
from netconsole.telemetry import frames
from netconsole.telemetry.histogram import add, subtract
from tests.lab.kernels.compiled import KEPT_INSIDE, bring
from tests.lab.kernels.page import NO, cell, references
from tests.lab.machine.errors import LabError
from tests.lab.machine.hypervisor import Hypervisor, on_a_still_checkout
from tests.support.live.measurement import Measurement

INTERVAL_MS = 500
CLOCK_RESOLUTION_NS = 10_000_000
LINE_LIMIT_S = 3600.0
LOSSES = ("missed", "join_missed", "map_full", "parse_failed", "unaccounted")
END_LIMIT_S = 30.0


class InsideProcess:
    """What Measurement and a live session need of a CollectorProcess."""

    broken_frames = received_bytes = 0

    def __init__(self, hypervisor: Hypervisor, command: Sequence[str] = ()) -> None:
        """``command`` is that of the collector as it ships, if none is given."""
        started = command or collector_command("--keep-compiled", KEPT_INSIDE)
        self._process = hypervisor.start(*on_a_still_checkout(*started))

    def send(self, command: Mapping[str, object]) -> None:
        self._process.write(json.dumps(command).encode() + b"\n")

    def frames(self) -> Iterator[frames.AnyFrame]:
        """Until it ends."""
        while True:
            try:
                line = self._process.wait_for(b"\n", LINE_LIMIT_S)
            except LabError:
                return
            self.received_bytes += len(line)
            yield frames.decode(line)

    def why(self) -> str:
        return bytes(self._process.err[-2000:]).decode("utf-8", "replace") or f"exit status {self._process.code}"

    def close(self) -> None:
        self._process.close_input()

    def kill(self) -> None:
        """At once (SIGKILL)."""
        self._process.signal(signal.SIGKILL)


class InsideMeasurement(Measurement):
    """Probes on the hypervisor, by the collector as it ships."""

    kprobes = os.environ.get("NETCONSOLE_LAB_KPROBES") == "1"
    """Whether programs on functions are kprobes, even where the kernel lets them be fentry programs (make test-lab)."""
    limit_s = 400.0  # five probes to compile, on an emulated machine that shares its two cores with two more

    def __init__(self, hypervisor: Hypervisor) -> None:
        self._hypervisor = hypervisor
        super().__init__(INTERVAL_MS)

    def start(self) -> CollectorProcess:
        return cast(
            CollectorProcess, InsideProcess(self._hypervisor, collector_command("--keep-compiled", KEPT_INSIDE))
        )

    def command(self, **command: object) -> frames.Reply:
        if command["command"] == "load":
            command.setdefault("kprobes", self.kprobes)
            self.bring(command)
        return super().command(**command)

    def bring(self, command: Mapping[str, Any]) -> None:
        """Has what a `load` wants compiled outside, where that is quick."""
        bring(self._hypervisor, [command])

    def may_lack(self, name: str) -> bool:
        """What each of the lab's kernels can have was reviewed (tests/lab/console/references).

        Not where its module was absent then: a test that loads the probe has loaded that.
        """
        return cell(references()[self._hypervisor.tree.kernel.name]["probes"][name]) == NO

    def clock_ns(self) -> int:
        return int(self._hypervisor.uptime_s() * 1e9) + CLOCK_RESOLUTION_NS

    def kill(self) -> None:
        """The collector does not end: it is ended."""
        cast(InsideProcess, self._process).kill()

    def close(self) -> None:
        """Also waits for its last frame: the machine may be shut down next."""
        super().close()
        self._thread.join(END_LIMIT_S)

    def need(self, probe: str, mode: str = "summary", /, **knobs: frames.Scalar) -> None:
        """Loads a probe unless it is there."""
        if probe not in self.statuses:
            self.load(probe, mode, **knobs)

    def load_altered(
        self,
        probe: str,
        right: str = "",
        wrong: str = "",
        points: Mapping[str, str] | None = None,
        number: int = 0,
        kprobes: bool = False,
        rows: Mapping[str, int] | None = None,
    ) -> str:
        """Loads a shipped probe with one expression of its source replaced, or with programs (by name) attached to one
        of their `points` alone, or on functions by `kprobes` alone, or with tables of so few `rows`; returns its name,
        which has the `number`."""
        manifest = catalogue.shipped(probe)
        source = manifest.code()
        assert right in source
        spec = copy.deepcopy(dict(manifest.raw))
        for program in spec["programs"]:  # type: ignore[attr-defined]
            if points and program["name"] in points:
                program["attach"] = [one for one in program["attach"] if one["point"] == points[program["name"]]]
        for table, most in (rows or {}).items():
            spec["tables"][table]["max_rows"] = most  # type: ignore[index]
        name = f"{probe}_altered{number}"
        reply = self.command(
            command="load",
            probe=name,
            spec=spec,
            source=source.replace(right, wrong) if right else source,
            kprobes=kprobes,
        )
        assert reply.ok, reply.error
        return name

    def assert_whole(self, *probes: str, but: str = "") -> None:
        """Nothing has escaped these probes since `begin`: no run was skipped, no row or start was missing.

        One entry of the ledger may be left out, for :meth:`assert_counted`.
        """
        for probe in probes:
            lost = {entry: self.ledger(probe, entry) for entry in LOSSES if entry != but}
            assert not any(lost.values()), (probe, lost)

    def assert_counted(self, probe: str, counted: int, true: int) -> None:
        """It has counted all of them, but for runs that the kernel skipped and the ledger has.

        An interrupt that comes while the same program runs on its CPU has its own run skipped. Programs on kicks and
        on interrupts of virtual CPUs run in both, and are slow here.
        """
        missed = self.ledger(probe, "missed")
        assert true - missed <= counted <= true, (probe, counted, true, missed)


class CompiledInside(InsideMeasurement):
    """Where the machine has other types than those that are compiled for outside."""

    def bring(self, command: Mapping[str, Any]) -> None:
        pass


def stages_of(collector: Measurement, probe: str, device: str = "vnet0") -> dict[str, frames.Buckets]:
    """The histograms of a path's stages since the probe was loaded, of queue 0."""
    found = collector.histograms(probe, "stages", device=device, queue=0)
    # A queue gets another histogram when the name of its VM is known.
    by_stage = itertools.groupby(sorted(found, key=_stage_of), _stage_of)
    return {stage: add(one.total for one in ones) for stage, ones in by_stage}


def _stage_of(histogram: frames.Histogram) -> str:
    return str(histogram.labels["stage"])


def between(before: Mapping[str, frames.Buckets], after: Mapping[str, frames.Buckets]) -> dict[str, frames.Buckets]:
    """What each histogram has taken between two readings."""
    return {name: subtract(one, before[name]) if name in before else one for name, one in after.items()}


def means_ns(before: Mapping[str, frames.Buckets], after: Mapping[str, frames.Buckets]) -> dict[str, float]:
    """Mean of each histogram between two readings."""
    return {name: one.sum / one.count for name, one in between(before, after).items()}
