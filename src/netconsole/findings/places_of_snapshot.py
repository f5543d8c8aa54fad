"""Where packets died in a snapshot: the ranked list of all places, from the figures of its whole run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from netconsole.base.figure import ABOUT
from netconsole.findings.drop_places import CountedRow, DropPlace, Senders, drop_places, with_incidents
from netconsole.findings.match import Level
from netconsole.findings.windows import Family
from netconsole.probes.manifest import Manifest
from netconsole.snapshot.document import DropPlaceData, ProbeData, Snapshot, SnapshotValue, seconds
from netconsole.telemetry.frames import Label
from netconsole.telemetry.ledger import LEDGER_COUNTS

MAX_PLACES = 200
"""More are left out of the document, the smallest. The rows that they come from are in it all the same."""


def with_drop_places(snapshot: Snapshot, manifests: Mapping[str, Manifest]) -> Snapshot:
    """The snapshot, with the list in it."""
    return msgspec.structs.replace(snapshot, drop_places=places_of(snapshot, manifests))


def places_of(snapshot: Snapshot, manifests: Mapping[str, Manifest]) -> list[DropPlaceData]:
    """What nobody wants first, then by rate. An old snapshot has no list: it is made from its tables."""
    if snapshot.drop_places is not None:
        return snapshot.drop_places
    senders = Senders(lambda probe: _seen(snapshot.probes.get(probe)))
    found = with_incidents(drop_places(_rows(snapshot, manifests), manifests), _levels(snapshot))
    return [_document(place, senders) for place in found[:MAX_PLACES]]


def _levels(snapshot: Snapshot) -> Callable[[CountedRow], Level | None]:
    """The level of the incident that a row proves."""
    levels: dict[tuple[str, str, frozenset[tuple[str, SnapshotValue]]], Level] = {}
    for incident in reversed(snapshot.incidents or []):  # the worst comes first
        for proof in incident.evidence:
            levels[proof.probe, proof.name, frozenset(proof.labels.items())] = incident.level
    return lambda row: levels.get((row.family.probe, row.family.table, frozenset(row.key)))


def _document(place: DropPlace, senders: Senders) -> DropPlaceData:
    return DropPlaceData(
        level=place.level,
        stage=place.stage,
        where=place.at,
        why=place.say,
        total=place.total,
        per_s=None if place.per_s is None else round(place.per_s, 3),
        at_least=place.at_least,
        scaled=place.mark == ABOUT,
        sender=senders.first(place),
        probes=sorted({row.family.probe for row in place.rows}),
    )


def _rows(snapshot: Snapshot, manifests: Mapping[str, Manifest]) -> Iterator[CountedRow]:
    for name, manifest in manifests.items():
        probe = snapshot.probes.get(name)
        if probe is None or not probe.has_measured:
            continue
        span_s = seconds(snapshot, name)
        at_least = any(probe.ledger.get(entry) for entry in LEDGER_COUNTS)
        for table, value in {(spec.table, spec.value) for spec in manifest.drop_places}:
            wanted = manifest.tables[table].labels
            errors = probe.row_errors.get(f"{table}.{value}")
            for number, row in enumerate(probe.tables.get(table, ())):
                total = row.get(value)
                if isinstance(total, int) and total > 0:
                    labels = _labels(row, wanted)
                    per_s = total / span_s if span_s else None
                    family = Family(name, table, value)
                    error = errors[number] if errors else 0
                    yield CountedRow(family, tuple(labels.items()), labels, total, per_s, at_least, is_scaled=error > 0)


def _labels(row: Mapping[str, SnapshotValue], wanted: Iterable[str]) -> dict[str, Label]:
    known = {name: row.get(name) for name in wanted}
    return {name: value for name, value in known.items() if isinstance(value, (str, int))}


def _seen(probe: ProbeData | None) -> Iterator[Mapping[str, object]]:
    """The flows that the probe counted by itself, the largest first, then its newest samples."""
    if probe is None:
        return
    flows = [row for row in probe.tables.get("flows", ()) if "source" in row]
    yield from sorted(flows, key=lambda row: -_count(row))
    yield from reversed(probe.events)


def _count(row: Mapping[str, SnapshotValue]) -> int:
    count = row.get("count")
    return count if isinstance(count, int) else 0
