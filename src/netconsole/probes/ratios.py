"""Ratios of two counts of a row (``part`` and ``whole`` in a manifest), and whether there is enough to say them."""

from __future__ import annotations

from collections.abc import Mapping

from netconsole.probes.manifest import ColumnSpec, TableSpec


def ratio(spec: TableSpec, column: ColumnSpec, counts: Mapping[str, int]) -> float | None:
    """So many of the part for each of the whole, or percent of it; None where it is not known, or says nothing."""
    part, whole = counts.get(column.part), counts.get(column.whole)
    if part is None or not whole or is_too_few(spec, counts):
        return None
    return part / whole * (100 if column.unit == "%" else 1)


def is_too_few(spec: TableSpec, counts: Mapping[str, int | None]) -> bool:
    """Whether a row has counted too little for its ratios."""
    name, least = spec.least
    count = counts.get(name)
    return count is not None and count < least


def too_few(spec: TableSpec) -> str:
    """Says so, and what it takes."""
    name, least = spec.least
    unit = next((column.unit for column in spec.value if column.name == name), name)
    return f"too few {unit}: fewer than {least}"
