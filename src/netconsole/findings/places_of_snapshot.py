"""Where packets died, as a snapshot has it: the ranked list of all places, from the figures of its whole run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from netconsole.base.fact_keys import FactData
from netconsole.base.figure import ABOUT
from netconsole.findings.drop_places import CountedRow, DropPlace, Senders, of_span, with_incidents
from netconsole.findings.incident import Incident, document, seen_since, sentence_of
from netconsole.findings.match import Level
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import Profile
from netconsole.snapshot import builder
from netconsole.snapshot.document import DropPlaceData, Snapshot, SnapshotValue, seconds
from netconsole.snapshot.mirror_ledger import MirrorLedger
from netconsole.telemetry.action import BudgetAction
from netconsole.telemetry.session import LineState
from netconsole.telemetry.span import Span
from netconsole.telemetry.state import State

MAX_PLACES = 200
"""More are left out of the document, the smallest. The rows that they come from are in it all the same."""


def whole_snapshot(
    state: State,
    manifests: Mapping[str, Manifest],
    profile: Profile,
    since: builder.Totals,
    log: Iterable[Incident],
    facts: Mapping[str, FactData],
    note: str | None = None,
    actions: Iterable[BudgetAction] = (),
    line: LineState | None = None,
) -> Snapshot:
    """The snapshot since then, with the incidents of ``log``, the places and the ledger of a mirror.

    Call it inside ``Session.view``.
    """
    current = seen_since(log, since.wall_ns)
    taken = builder.build(state, manifests, profile, since, facts, note, actions, document(current), line)
    span = builder.span(state, since)
    ledger = MirrorLedger(span, manifests, lambda place: sentence_of(current, *place), _measured(taken))
    return msgspec.structs.replace(with_drop_places(taken, span, manifests), mirror=ledger.document())


def with_drop_places(snapshot: Snapshot, span: Span, manifests: Mapping[str, Manifest]) -> Snapshot:
    """The snapshot of a stretch of time, with the list in it. Call it inside ``Session.view``."""
    found = with_incidents(of_span(span, manifests, _measured(snapshot)), _levels(snapshot))
    senders = Senders(span, by_rate=False)
    return msgspec.structs.replace(snapshot, drop_places=[_document(place, senders) for place in found[:MAX_PLACES]])


def _measured(snapshot: Snapshot) -> dict[str, float | None]:
    """For how long each probe has measured that did so."""
    return {name: seconds(snapshot, name) for name, probe in snapshot.probes.items() if probe.has_measured}


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
