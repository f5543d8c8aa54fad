"""Whether the figures of a probe in two snapshots can be compared at all, or why not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from netconsole.probes.knobs import filters_text
from netconsole.probes.manifest import Manifest
from netconsole.probes.meaning import BY_NAME
from netconsole.profile.scope import RunScope, words
from netconsole.snapshot.document import MEASURED, ProbeData, Snapshot

MIN_DURATION_S = 1.0
_LEAST_S = MIN_DURATION_S / 2
"""A run ends with a whole interval, up to half of one before its time: one of 1 s may have measured only 0.5 s."""
_OF_A_PLACE = ("device", "address", "netns", "mac", "vlan")
"""Filters whose value may be another one: a VM has another tap after its next start."""


def within(snapshot: Snapshot, scope: Mapping[str, str], manifests: Mapping[str, Manifest]) -> Snapshot:
    """A snapshot of the whole host as one of this scope would be: without the rows and facts of other places."""
    if not scope or snapshot.profile.scope:
        return snapshot
    inside = RunScope.of_document(scope, manifests)
    probes = {name: _rows_within(name, probe, inside) for name, probe in snapshot.probes.items()}
    facts = {name: fact for name, fact in snapshot.facts.items() if inside.has_fact(name)}
    return msgspec.structs.replace(snapshot, probes=probes, facts=facts)


def _rows_within(name: str, probe: ProbeData, inside: RunScope) -> ProbeData:
    tables, histories = dict(probe.tables), dict(probe.row_history)
    for table, rows in probe.tables.items():
        labels = probe.columns[table].labels if table in probe.columns else list(BY_NAME)
        known = [{label: row[label] for label in labels if label in row} for row in rows]
        kept = [place for place, row in enumerate(known) if inside.has(name, row)]
        tables[table] = [rows[place] for place in kept]
        for column, series in probe.row_history.items():
            if column.partition(".")[0] == table and len(series) == len(rows):
                histories[column] = [series[place] for place in kept]
    return msgspec.structs.replace(probe, tables=tables, row_history=histories)


def other_scope(now: Mapping[str, str], before: Mapping[str, str]) -> str | None:
    """Why a snapshot of one scope cannot be compared with one of another. None when it can.

    One of the whole host can: :func:`within` narrows it.
    """
    if not before or now.keys() == before.keys():
        return None
    return f"the baseline is of {words(before)} only" + (f", this is of {words(now)}" if now else "")


def probe_differs(now: ProbeData | None, before: ProbeData | None, shorter_s: float) -> str | None:
    """Why the figures of a probe cannot be compared. None when they can. ``shorter_s``: the shorter of both times."""
    if now is None or before is None:
        return f"not in the {'current snapshot' if now is None else 'baseline'}"
    for probe, other, where in ((now, before, "in the current snapshot"), (before, now, "in the baseline")):
        if probe.status not in MEASURED:
            where = "on both sides" if probe.status == other.status else where
            return f"{probe.status} {where}" + (f": {probe.why}" if probe.why else "")
    if now.version != before.version and None not in (now.version, before.version):
        return (
            f"the probe has version {now.version} now and had version {before.version}: its figures mean something else"
        )
    if now.mode != before.mode:
        return f"the probe runs in mode {now.mode} and ran in mode {before.mode}"
    if (why := other_filters(now.filters, before.filters)) is not None:
        return why
    if is_too_short(shorter_s):
        return f"one of the snapshots is shorter than {MIN_DURATION_S:g} s"
    if sorted(now.attach) != sorted(before.attach) and (now.status == "degraded" or before.status == "degraded"):
        return "one of the snapshots lacks an attach point: " + ", ".join(sorted(set(now.attach) ^ set(before.attach)))
    return None


def is_too_short(time_s: float) -> bool:
    """Whether figures of this time are too few to be compared."""
    return time_s < _LEAST_S


def other_filters(now: Mapping[str, Any] | None, before: Mapping[str, Any] | None) -> str | None:
    """Why figures of packets that other filters let pass cannot be compared. None when they can, or nobody knows."""
    if now is None or before is None:
        return None
    kinds = [{name: name in _OF_A_PLACE or value for name, value in one.items()} for one in (now, before)]
    if kinds[0] == kinds[1]:
        return None
    return f"its filters differ: {filters_text(now) or 'none'} now, {filters_text(before) or 'none'} in the baseline"
