"""A collector that runs on the lab's hypervisor while the test that reads its frames runs outside."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import cast

from tests.live.measurement import CHECKOUT, PYTHON, Measurement

from netconsole import frames, probes
from netconsole.collector_process import CollectorProcess

from .errors import LabError
from .hypervisor import Hypervisor

INTERVAL_MS = 500
CLOCK_RESOLUTION_NS = 10_000_000
LINE_LIMIT_S = 3600.0
LOSSES = ("missed", "join_missed", "map_full", "parse_failed", "unaccounted")
END_LIMIT_S = 30.0


class InsideProcess:
    """What Measurement needs of a CollectorProcess."""

    def __init__(self, hypervisor: Hypervisor) -> None:
        self._process = hypervisor.start(
            *(PYTHON, "-m", "netconsole_collector"), env={"PYTHONPATH": str(CHECKOUT / "src")}, cwd=CHECKOUT
        )

    def send(self, command: Mapping[str, object]) -> None:
        self._process.write(json.dumps(command).encode() + b"\n")

    def frames(self) -> Iterator[frames.AnyFrame]:
        """Until it ends."""
        while True:
            try:
                line = self._process.wait_for(b"\n", LINE_LIMIT_S)
            except LabError:
                return
            yield frames.decode(line)

    def why(self) -> str:
        return bytes(self._process.err[-2000:]).decode("utf-8", "replace") or f"exit status {self._process.code}"

    def close(self) -> None:
        self._process.close_input()


class InsideMeasurement(Measurement):
    """Probes on the hypervisor, by the collector as it ships."""

    def __init__(self, hypervisor: Hypervisor) -> None:
        self._hypervisor = hypervisor
        super().__init__(INTERVAL_MS)

    def start(self) -> CollectorProcess:
        return cast(CollectorProcess, InsideProcess(self._hypervisor))

    def clock_ns(self) -> int:
        return int(self._hypervisor.uptime_s() * 1e9) + CLOCK_RESOLUTION_NS

    def close(self) -> None:
        """Also waits for its last frame: the machine may be shut down next."""
        super().close()
        self._thread.join(END_LIMIT_S)

    def need(self, probe: str, mode: str = "summary", /, **knobs: frames.Scalar) -> None:
        """Loads a probe unless it is there."""
        if probe not in self.statuses:
            self.load(probe, mode, **knobs)

    def load_altered(self, probe: str, right: str, wrong: str) -> str:
        """Loads a shipped probe with one expression of its source replaced; returns the name that it goes by."""
        manifest = probes.load(CHECKOUT / "probes" / probe)
        source = manifest.code()
        assert right in source
        name = f"{probe}_altered"
        reply = self.command(
            command="load",
            probe=name,
            spec=manifest.raw,
            source=source.replace(right, wrong),
            common=manifest.common_code(),
        )
        assert reply.ok, reply.error
        return name

    def assert_whole(self, *probes: str) -> None:
        """Nothing has escaped these probes since `begin`: no run was skipped, no row or start was missing."""
        for probe in probes:
            lost = {entry: self.ledger(probe, entry) for entry in LOSSES}
            assert not any(lost.values()), (probe, lost)


def stages_of(collector: Measurement, probe: str, device: str = "vnet0") -> dict[str, frames.Buckets]:
    """The histograms of a path's stages since the probe was loaded, of queue 0."""
    found = collector.histograms(probe, "stages", device=device, queue=0)
    return {str(one.labels["stage"]): one.total for one in found}


def means_ns(before: Mapping[str, frames.Buckets], after: Mapping[str, frames.Buckets]) -> dict[str, float]:
    """Mean of each histogram between two readings."""
    means = {}
    for name, histogram in after.items():
        earlier = before.get(name)
        count = histogram.count - (earlier.count if earlier else 0)
        means[name] = (histogram.sum - (earlier.sum if earlier else 0)) / count
    return means
