"""The ways of packets through the host and to its sockets, joined from the path probes: whole and by stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from netconsole.probes.manifest import Manifest
from netconsole.telemetry.histogram import add
from netconsole.telemetry.state import ProbeState
from netconsole.telemetry.tables import HistogramState
from netconsole.tui.scene.scene import Scene

CROSSING, STAGES, FLOWS = "crossing", "stages", "flows"
"""Histograms and the table that a path probe has; its manifest has the words for directions and stages."""


@dataclass(frozen=True, slots=True)
class Way:
    """One direction of a probe: all its devices together.

    ``parts`` are its histograms between two devices, ``stages`` those of its stages, in order, that ever had a packet.
    """

    probe: str
    direction: str
    words: str
    """From where to where: ``inside → outside``."""
    times: HistogramState
    parts: list[HistogramState]
    stages: dict[str, HistogramState]


def probes(scene: Scene) -> list[ProbeState]:
    """The probes whose ways the pane shows, in its order."""
    found = [
        (place.order, name)
        for name, manifest in scene.manifests.items()
        for place in manifest.panes
        if place.pane == "path" and place.name == "path-ways" and name in scene.state.probes
    ]
    return [scene.state.probes[name] for _, name in sorted(found)]


def direction_words(manifest: Manifest, direction: object) -> str:
    """A direction in words; one that has none as it is (not yet safe to show)."""
    histogram = manifest.histograms.get(CROSSING)
    return histogram.label("direction").words.get(str(direction), str(direction)) if histogram else str(direction)


def stage_words(manifest: Manifest) -> Mapping[str, str]:
    """The stages in the order in which a packet goes through them, and from where to where each is."""
    histogram = manifest.histograms.get(STAGES)
    return histogram.label("stage").words if histogram else {}


def ways(scene: Scene) -> list[Way]:
    """Every direction in which packets went, the busiest first; the probes one after the other."""
    found = []
    for state in probes(scene):
        of_probe = _ways(state, scene.manifests[state.name])
        found += sorted(of_probe, key=lambda way: (-way.times.delta.count, -way.times.total.count))
    return found


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


def _ways(state: ProbeState, manifest: Manifest) -> Iterator[Way]:
    crossing, by_stage = state.histograms.get(CROSSING), state.histograms.get(STAGES)
    known = stage_words(manifest)
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
            words=direction_words(manifest, direction),
            times=HistogramState(
                labels={"direction": direction},
                unit="ns",
                delta=add(one.delta for one in of_devices),
                total=add(one.total for one in of_devices),
                per_s=None if None in rates else sum(rate for rate in rates if rate is not None),
                tick=max(one.tick for one in of_devices),
                last_active_ns=max(one.last_active_ns for one in of_devices),
            ),
            parts=of_devices,
            stages={name: of_stages[name] for name in known if name in of_stages and of_stages[name].total.count},
        )
