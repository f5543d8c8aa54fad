"""What the probes promise, by names that a test can say: all that a manifest lists, and the losses that a probe counts.

    counters.drops  tables.drops.count  histograms.wait  histograms.wait.device  events.drop.source  records.echoes.id
    knobs.port  modes.details  ledger.map_full  findings.drops.count.!!.FULL_RING

``collector`` promises what holds for every probe: the losses that the collector itself counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from netconsole.probes import catalogue
from netconsole.probes.manifest import ColumnSpec, FindingSpec, Manifest
from netconsole_collector.probe.reading import ledger

COLLECTOR = "collector"
OF_THE_COLLECTOR = ("missed", "evicted", "shed", "unaccounted", "unseen_ms")
"""Losses that no program counts (RunningProbe._cost)."""

_FUNCTION = re.compile(r"^(?:static inline )?[a-z][\w *]*?\b(\w+)\([^;{]*\)\n\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_WORD = re.compile(r"\w+")


def promises() -> dict[str, set[str]]:
    """Everything that somebody has to prove, by probe."""
    found = {name: set(_of(manifest)) for name, manifest in catalogue.load_all().items()}
    found[COLLECTOR] = {f"ledger.{entry}" for entry in OF_THE_COLLECTOR}
    return found


def _of(manifest: Manifest) -> Iterator[str]:
    yield from (f"counters.{name}" for name in manifest.counters)
    for name, table in manifest.tables.items():
        yield from (f"tables.{name}.{part}" for part in (*table.labels, *_names(table.value)))
        yield from (f"tables.{name}.example.{part}" for part in _names(table.example))
    for name, histogram in manifest.histograms.items():
        yield f"histograms.{name}"
        yield from (f"histograms.{name}.{label}" for label in histogram.labels)
    for name, record in manifest.records.items():
        yield from (f"records.{name}.{part}" for part in (*_names(record.key), *_names(record.value)))
    for name, fields in manifest.events.items():
        yield from (f"events.{name}.{part}" for part in _names(fields))
    yield from (f"knobs.{name}" for name in manifest.knobs)
    yield from (f"modes.{name}" for name in manifest.modes)
    yield from (f"ledger.{entry}" for entry in losses(manifest.code(), _entries(manifest)))
    yield from (name for rule in manifest.findings for name in finding(rule))


def finding(rule: FindingSpec) -> Iterator[str]:
    """A rule's names: what it looks at, how urgent it is, and of its causes and each label that matches the first."""
    value = f"p{rule.percentile:g}" if rule.histogram else rule.value
    matched = "+".join([*rule.kinds[:1], *(values[0] for values in rule.where.values())])
    for level in (rule.level, *(["!!"] if rule.urgent_over is not None else [])):
        yield ".".join(part for part in ("findings", rule.table, value, level, matched) if part)


def losses(code: str, entries: set[str]) -> set[str]:
    """Entries of the ledger that programs count: those that a function names which they call, however indirectly."""
    bodies = {name: set(_WORD.findall(body)) for name, body in _FUNCTION.findall(code)}
    reached: set[str] = set()
    waiting = {name for name in entries if name in bodies}
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting |= {word for word in bodies[name] if word in bodies} - reached
    named = {word for name in reached for word in bodies[name]}
    return {entry for entry in ledger.LOSSES if f"NC_{entry.upper()}" in named}


def _entries(manifest: Manifest) -> set[str]:
    return {place.function for program in manifest.programs for place in program.attach}


def _names(columns: tuple[ColumnSpec, ...]) -> list[str]:
    return [column.name for column in columns if not column.type.startswith("pad[")]


def unproven(proven: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """What nobody proves, by probe."""
    return {probe: rest for probe, names in promises().items() if (rest := names - proven.get(probe, set()))}
