"""The ways of packets through the host and to its sockets, joined from the path probes: whole and by stage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from netconsole.telemetry.frames import Buckets
from netconsole.telemetry.histogram import add
from netconsole.telemetry.state import ProbeState
from netconsole.telemetry.tables import HistogramState
from netconsole.tui.scene.scene import Scene

HOST, LOCAL = "host_path", "local_path"
WAYS = {
    (HOST, "out"): "inside → outside",
    (HOST, "in"): "outside → inside",
    (HOST, "within"): "inside → inside",
    (HOST, "through"): "outside → outside",
    (LOCAL, "out"): "socket → device",
    (LOCAL, "in"): "device → socket",
}
"""Probe and direction in words; inside and outside are the sets of devices that are the probe's knobs."""
STAGES = {
    "stack": "made → queued",
    "forward": "received → queued",
    "lookup": "received → OVS acts",
    "upcall": "asked → answered",
    "actions": "OVS acts → queued",
    "ct": "conntrack",
    "devices": "first → last device",
    "qdisc": "queued → driver",
}
"""The stages in the order in which a packet goes through them, and from where to where each is."""


@dataclass(frozen=True, slots=True)
class Way:
    """One direction of a probe: all its devices together, in the last interval (``delta``) and since attached.

    ``parts`` are its histograms between two devices, ``stages`` those of its stages, in order, that ever had a packet.
    """

    probe: str
    direction: str
    delta: Buckets
    total: Buckets
    per_s: float | None
    parts: list[HistogramState]
    stages: dict[str, HistogramState]

    @property
    def words(self) -> str:
        """From where to where: ``inside → outside``."""
        return words_of(self.probe, self.direction)


def words_of(probe: str, direction: object) -> str:
    """A direction in words; one that is not known as it is (not yet safe to show)."""
    return WAYS.get((probe, str(direction)), str(direction))


def ways(scene: Scene) -> list[Way]:
    """Every direction in which packets went, the busiest first; the probes one after the other."""
    found = [way for name in (HOST, LOCAL) if name in scene.state.probes for way in _ways(scene.state.probes[name])]
    return sorted(found, key=lambda way: (way.probe != HOST, -way.delta.count, -way.total.count))


def find(scene: Scene, probe: str, direction: str) -> Way | None:
    """The way of this probe and direction; None when it is not there."""
    return next((way for way in ways(scene) if (way.probe, way.direction) == (probe, direction)), None)


def slowest_stage(way: Way) -> tuple[str, float] | None:
    """The stage that took most of the interval's time, and its share in percent; None without samples."""
    took = {name: one.delta.sum for name, one in way.stages.items()}
    whole = sum(took.values())
    if not whole:
        return None
    stage = max(took, key=lambda name: took[name])
    return stage, 100 * took[stage] / whole


def _ways(state: ProbeState) -> Iterator[Way]:
    crossing, by_stage = state.histograms.get("crossing"), state.histograms.get("stages")
    parts: dict[str, list[HistogramState]] = {}
    for one in crossing.rows.values() if crossing else ():
        parts.setdefault(str(one.labels.get("direction")), []).append(one)
    stages: dict[str, dict[str, HistogramState]] = {}
    for one in by_stage.rows.values() if by_stage else ():
        stages.setdefault(str(one.labels.get("direction")), {})[str(one.labels.get("stage"))] = one
    for direction, of_devices in parts.items():
        of_stages = stages.get(direction, {})
        rates = [one.per_s for one in of_devices]
        yield Way(
            probe=state.name,
            direction=direction,
            delta=add(one.delta for one in of_devices),
            total=add(one.total for one in of_devices),
            per_s=None if None in rates else sum(rate for rate in rates if rate is not None),
            parts=of_devices,
            stages={name: of_stages[name] for name in STAGES if name in of_stages and of_stages[name].total.count},
        )
