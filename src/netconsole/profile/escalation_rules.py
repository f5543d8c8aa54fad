"""Reads a profile's escalation rules: details of one device or flow start when a figure crosses a threshold.

Pure functions. :mod:`netconsole.escalation.escalator` carries the rules out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from netconsole.base.checker import Checker, shown
from netconsole.base.figure import parse_duration
from netconsole.probes.knobs import MAX_EVENTS_PER_S
from netconsole.probes.manifest import Manifest

SUFFIX = ".details"
"""Ends the name of the second instance of a probe: kernel_drops.details."""
MAX_RULES = 16
MAX_FOR_S, MAX_KEEP_S, MAX_PAUSE_S = 600.0, 300.0, 24 * 3600.0

_KEYS = ("probe", "table", "histogram", "value", "percentile", "where", "over")
_BUDGET = ("for", "events_per_s", "kernel_cpu_pct", "keep", "pause")
NARROWING = ("device", "netns", "address", "port")
"""At least one of these filters must be known. Otherwise the details would be those of all traffic."""


@dataclass(frozen=True, slots=True)
class Escalation:
    """One rule. ``over`` is per second; for a histogram it is in its unit. Times are in seconds."""

    probe: str
    figures: str
    """The table or histogram."""
    value: str
    """The value of the table; empty for a histogram."""
    percentile: float | None
    over: float
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By label: a row must have one of these values. A profile names one value."""
    for_s: float = 60.0
    events_per_s: float = 50.0
    kernel_cpu_pct: float = 1.0
    keep_s: float = 30.0
    """How long before the crossing, and after the end of the details, frames are kept."""
    pause_s: float = 600.0
    """How long after the end of the details the same rule cannot start again."""

    def as_dict(self) -> dict[str, object]:
        """The rule as in a profile, with times in seconds."""
        figures = {"histogram": self.figures, "percentile": self.percentile}
        of_table = {"table": self.figures, "value": self.value}
        return {
            "probe": self.probe,
            **(of_table if self.percentile is None else figures),
            "where": {name: values[0] for name, values in self.where.items()},
            "over": self.over,
            "for_s": self.for_s,
            "events_per_s": self.events_per_s,
            "kernel_cpu_pct": self.kernel_cpu_pct,
            "keep_s": self.keep_s,
            "pause_s": self.pause_s,
        }


def parse(item: Checker, manifests: Mapping[str, Manifest]) -> Escalation | None:
    """One rule of a profile; None when it is unusable. Mistakes are added to ``item``."""
    item.only((*_KEYS, *_BUDGET))
    name = item.text("probe", None, manifests)
    over = _required(item, "over", 1e18)
    for_s = _seconds(item, "for", 60.0, MAX_FOR_S)
    events_per_s = item.number("events_per_s", 50.0, 1, MAX_EVENTS_PER_S, "events a second") or 50.0
    kernel_cpu_pct = item.number("kernel_cpu_pct", 1.0, 0.01, 100_000, "percent of one core") or 1.0
    keep_s = _seconds(item, "keep", 30.0, MAX_KEEP_S)
    pause_s = _seconds(item, "pause", 600.0, MAX_PAUSE_S)
    manifest = manifests.get(name)
    if manifest is None:  # everything else in the rule depends on the probe
        return None
    if "details" not in manifest.modes:
        item.wrong("probe", f"{manifest.name} has no details mode")
    figures, value, labels, part = _figures(item, manifest)
    where = item.table("where")
    where.only(labels, "label")
    if not set(labels) & set(NARROWING):
        item.wrong("histogram" if part else "table", "tells no device or flow to which details could be narrowed")
    return Escalation(
        probe=name,
        figures=figures,
        value=value,
        percentile=part,
        over=over,
        where={key: (where.text(key),) for key in where.values},
        for_s=for_s,
        events_per_s=events_per_s,
        kernel_cpu_pct=kernel_cpu_pct,
        keep_s=keep_s,
        pause_s=pause_s,
    )


def _figures(item: Checker, manifest: Manifest) -> tuple[str, str, tuple[str, ...], float | None]:
    """Table or histogram, value, labels and percentile."""
    if item.has("histogram"):
        for key in ("table", "value"):
            if item.has(key):
                item.wrong(key, "contradicts histogram: a rule is of one or the other")
        name = item.text("histogram", None, tuple(manifest.histograms))
        labels = manifest.histograms[name].labels if name in manifest.histograms else ()
        return name, "", labels, item.number("percentile", 99.0, 1.0, 100.0) or 99.0
    if item.has("percentile"):
        item.wrong("percentile", "is of a histogram: name one")
    name = item.text("table", None, tuple(manifest.tables))
    table = manifest.tables.get(name)
    if table is None:
        return name, "", (), None
    counts = tuple(column.name for column in table.value if column.kind != "max")
    return name, item.text("value", None, counts), table.labels, None


def _required(item: Checker, name: str, high: float) -> float:
    if not item.has(name):
        item.wrong(name, "missing: expected a number, a second; of a histogram in its unit")
    return item.number(name, 0.0, 0.0, high) or 0.0


def _seconds(item: Checker, name: str, default_s: float, most_s: float) -> float:
    if not item.has(name):
        return default_s
    text = item.text(name)
    seconds = parse_duration(text)
    if isinstance(item.values[name], str) and (seconds is None or not 1 <= seconds <= most_s):
        item.wrong(name, f'expected a time from "1s" to "{most_s:g}s", found {shown(text)}')
    return seconds or default_s
