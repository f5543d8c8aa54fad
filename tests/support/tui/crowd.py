"""A made-up host of many virtual machines, one queue of which gets stuck: as frames, and as a recording."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from netconsole.findings.incidents import Incidents
from netconsole.probes import catalogue
from netconsole.recording.format import RecordedProbe, RecordedProfile
from netconsole.recording.recorder import Recorder
from netconsole.telemetry import frames
from netconsole.telemetry.frames import AnyFrame
from netconsole.telemetry.state import State
from tests.support.fake_collector import EPOCH_MONO_NS, EPOCH_WALL_NS, INTERVAL_NS, Scenario
from tests.support.recorded import HEADER, LIMIT_S
from tests.support.tui.vhost_scenes import Host

PROBES = ("vhost_queues", "tun_queues", "irq_path", "tx_kick_path", "link_rates", "kernel_drops")
PER_S, PER_BYTE = 1000, 700


@dataclass
class Crowd:
    """Its frames, interval by interval. Every ``every``-th queue moves; from ``stuck_from`` on one is stuck."""

    vms: int = 200
    queues: int = 4
    every: int = 20
    stuck: tuple[int, int] = (137, 2)
    stuck_from: int = 10

    def __post_init__(self) -> None:
        self.host = Host(self.vms, self.queues)
        for probe in PROBES[-2:]:
            self.host.scenario.status(probe)
        self.busy = set(self.host.places[:: self.every]) - {self.stuck}
        self.lost = 0

    def interval(self) -> Scenario:
        """One second."""
        tick = self.host.ticks
        is_stuck = tick >= self.stuck_from
        stuck = {self.stuck: 40 * (tick - self.stuck_from + 1)} if is_stuck else {}
        busy = self.busy if is_stuck else self.busy | {self.stuck}
        made = self.host.interval(busy, stuck=stuck)
        end = made.lines.pop()
        moving = {vm for vm, _ in busy}
        links = [_link(vm, vm in moving, tick + 1) for vm in range(self.vms) if tick == 0 or vm in moving]
        made.table("link_rates", "links", links, full=tick == 0)
        if stuck:
            self.lost += 500
            labels = {"reason": "FULL_RING", "location": "tun_net_xmit", "device": f"vnet{self.stuck[0]}"}
            labels |= {"protocol": "UDP", "class": "suspicious", "provenance": "kernel", "netns": "host"}
            row: dict[str, Any] = {"labels": labels, "counts": {"count": (500, self.lost)}}
            made.counters("kernel_drops", drops=(500, self.lost)).table("kernel_drops", "drops", [row])
        made.lines.append(end)
        return made


def _link(vm: int, moves: bool, seconds: int) -> dict[str, Any]:
    now = PER_S if moves else 0
    counts = {"rx_packets": (now, now * seconds), "rx_bytes": (now * PER_BYTE, now * PER_BYTE * seconds)}
    counts |= {"tx_packets": (now, now * seconds), "qdisc_drops": (0, 0)}
    return {"labels": {"device": f"vnet{vm}", "netns": "host", "qdisc": "fq_codel"}, "counts": counts}


def batches(crowd: Crowd, seconds: int) -> Iterator[list[AnyFrame]]:
    """Its frames as a session gives them to a recorder."""
    number = 0
    for second in range(seconds):
        batch: list[AnyFrame] = []
        for line in crowd.interval().lines:
            if line.get("do") == "end":
                usage = {"cpu_ns": 4_000_000, "rss_kb": 13_000, "pss_kb": 11_000}
                line = {"kind": "cost", "probe": None, "interval_ns": INTERVAL_NS, "usage": usage}
            number += 1
            times = {"mono_ns": EPOCH_MONO_NS + second * INTERVAL_NS, "wall_ns": EPOCH_WALL_NS + second * INTERVAL_NS}
            frame = frames.decode(json.dumps({"v": 1, "seq": number, **times, **line}).encode())
            if isinstance(frame, (frames.Hello, frames.Status)):
                yield [frame]
            else:
                batch.append(frame)
        yield batch


def record(path: Path, seconds: int = 60, crowd: Crowd | None = None) -> None:
    """Write the recording. Raises BadInput where the file exists."""
    crowd = crowd or Crowd()
    profile = RecordedProfile("vhost", {"kernel_cpu_pct": 2.0, "action": "degrade"})
    header = replace(HEADER, profile=profile, probes={name: RecordedProbe(1) for name in PROBES})
    recorder, state = Recorder(path, header), State()
    findings = Incidents(catalogue.load_all())
    recorder.log = findings.saved
    for batch in batches(crowd, seconds):
        recorder.take(state, tuple(batch))
        recorder.flush(LIMIT_S)
        for frame in batch:
            state.apply(frame)
        findings.update(state)
    recorder.close()
