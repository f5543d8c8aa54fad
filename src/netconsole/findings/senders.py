"""Who sent what died at a place: by the exact rows of flows where a probe keeps them, else by its newest samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from netconsole.base import figure
from netconsole.findings.drop_places import DropPlace
from netconsole.telemetry.frames import Label
from netconsole.telemetry.state import ProbeState, State

FLOWS = "flows"
_PLACE = ("location", "reason", "device", "port", "netns")
"""Labels by which flows and samples are found again in a place."""

Seen: TypeAlias = Callable[[str], Iterable[Mapping[str, object]]]
"""What a probe knows of single flows, by its name: its own counts first, the largest of them; then new samples."""


class Senders:
    """The first sender of each place."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    @classmethod
    def of_state(cls, state: State) -> Senders:
        """Those of a running measurement. Made once for a picture."""
        return cls(lambda name: _seen(state.probes.get(name)))

    def first(self, place: DropPlace) -> str:
        """``10.0.0.1:53`` of the flow that loses most, or of the newest sample; empty when nobody knows."""
        for row in place.rows[:8]:
            wanted = {name: row.labels[name] for name in _PLACE if name in row.labels}
            for fields in self._seen(row.family.probe):
                if _is_of(fields, wanted) and fields.get("source"):
                    return _sender(fields)
        return ""


def _seen(probe: ProbeState | None) -> Iterator[Mapping[str, object]]:
    if probe is not None:
        yield from _flows(probe)
        yield from (event.fields for event in reversed(probe.events))


def _flows(probe: ProbeState) -> Iterator[Mapping[str, Label]]:
    """The labels of the flows that a probe counts by itself, the largest first."""
    table = probe.tables.get(FLOWS)
    rows = [row for row in table.rows.values() if "source" in row.labels] if table is not None else []
    for row in sorted(rows, key=lambda one: (-(one.per_s("count") or 0.0), -(one.total("count") or 0))):
        yield row.labels


def _is_of(fields: Mapping[str, object], wanted: Mapping[str, Label]) -> bool:
    return all(name not in fields or fields[name] == value for name, value in wanted.items())


def _sender(fields: Mapping[str, object]) -> str:
    address, port = figure.safe(fields["source"], 48), fields.get("source_port")
    if not port:
        return address
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
