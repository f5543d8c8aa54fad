"""Finds figures above the threshold of an escalation rule, and the filters that narrow a probe to such a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from netconsole.base import figure
from netconsole.findings.rules import fits
from netconsole.findings.windows import MIN_SAMPLES
from netconsole.probes.knobs import PROTOCOLS, filters_text, refusal
from netconsole.profile.escalation_rules import NARROWING, Escalation
from netconsole.telemetry.frames import Label, Scalar
from netconsole.telemetry.histogram import percentile
from netconsole.telemetry.state import ProbeState, State
from netconsole.telemetry.tables import RowKey

MAX_VALUE = 48
"""Characters of a value. The longest IPv6 address has 45."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """A figure that is over a rule's threshold in this interval."""

    rule: Escalation
    labels: RowKey
    measured: float
    says: str


def crossings(state: State, rule: Escalation) -> Iterator[Crossing]:
    """Every row or histogram that is over the threshold in the last interval."""
    probe = state.probes.get(rule.probe)
    if probe is None or not probe.measuring:
        return
    yield from _of_histograms(probe, rule) if rule.percentile is not None else _of_tables(probe, rule)


def worst(state: State, rule: Escalation) -> Crossing | None:
    """The row that is farthest over the threshold; None when none is."""
    return max(crossings(state, rule), key=lambda one: one.measured, default=None)


def focus(
    labels: RowKey, knobs: Mapping[str, Scalar], namespace: Callable[[str], int | None]
) -> dict[str, Scalar] | None:
    """The filters that narrow a probe with these knobs to a row; None when none of them names a device or flow.

    ``namespace`` returns the inode of a network namespace that a label names.
    """
    found = narrowing(labels, knobs, namespace)
    return found if set(found) & set(NARROWING) else None


def narrowing(labels: RowKey, knobs: Mapping[str, Scalar], namespace: Callable[[str], int | None]) -> dict[str, Scalar]:
    """All filters that the labels of a row give, as :func:`focus` has them; none when the row names nothing."""
    found: dict[str, Scalar] = {}
    for name, label in labels:
        if name == "reason" and ("provenance", "kernel") not in labels:
            continue  # worked out here: the kernel has another one
        value = _knob(name, label, namespace)
        if name in knobs and value is not None and refusal(name, value, knobs[name]) is None:
            found[name] = value
    return found


def said(filters: Mapping[str, Scalar], labels: RowKey) -> str:
    """As people write them. The kernel knows the inode of a namespace; people know the name that the row has of it."""
    netns = dict(labels).get("netns") or filters.get("netns")
    return filters_text({name: netns if name == "netns" else value for name, value in filters.items()})


def _knob(name: str, label: Label, namespace: Callable[[str], int | None]) -> Scalar:
    """The value of a filter for a label; None when the label is not known."""
    if name == "netns":
        return namespace(label) if isinstance(label, str) else None
    if name == "protocol":
        return label.lower() if isinstance(label, str) and label.lower() in PROTOCOLS else None
    return label if name in (*NARROWING, "reason") and label else None


def _of_tables(probe: ProbeState, rule: Escalation) -> Iterator[Crossing]:
    table = probe.tables.get(rule.figures)
    for row in table.moving() if table is not None else ():
        rate = row.per_s(rule.value)
        if rate is not None and rate > rule.over and fits(rule, row.labels):
            what = "" if rule.value == "count" else f" {rule.value}"
            yield Crossing(rule, row.key, rate, f"{named(row.labels)}: {figure.rate(rate)}{what}")


def _of_histograms(probe: ProbeState, rule: Escalation) -> Iterator[Crossing]:
    group = probe.histograms.get(rule.figures)
    for row in group.rows.values() if group is not None else ():
        part = rule.percentile or 0.0
        found = percentile(row.delta, part) if row.delta.count >= MIN_SAMPLES else None
        if found is not None and found > rule.over and fits(rule, row.labels):
            says = f"{named(row.labels)}: p{part:g} {figure.quantity(found, row.unit)}"
            yield Crossing(rule, row.key, found, says)


def named(labels: Mapping[str, Label]) -> str:
    """A row by device, queue, reason, address and port."""
    known = [("", "device"), ("queue ", "queue"), ("", "reason"), ("", "address"), ("port ", "port")]
    parts = [
        f"{word}{figure.safe(labels[name], MAX_VALUE)}" for word, name in known if labels.get(name) not in (None, "")
    ]
    return " ".join(parts) or "a row without names"
