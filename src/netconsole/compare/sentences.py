"""A change as a sentence: what, where, from how much to how much."""

from __future__ import annotations

from collections.abc import Iterable

from netconsole.base import figure
from netconsole.base.figure import safe
from netconsole.compare.document import said
from netconsole.compare.judge import Judged
from netconsole.compare.labels import HOST_NETNS
from netconsole.compare.metrics import Metric
from netconsole.probes.manifest import Manifest
from netconsole.snapshot.document import SnapshotValue

_UNSAID = ("class", "provenance", "ethertype", "meaning")
"""Labels that follow from others, or that no reader asks for."""
_PLACES = {
    "reason": "with reason {}",
    "location": "in {}",
    "process": "of {}",
    "vm": "of VM {}",
    "device": "on {}",
    "netns": "in namespace {}",
}
"""How a label is said, in this order; any other by its name, after them."""


def sentence(one: Judged, manifest: Manifest | None, details: Iterable[str] = ()) -> str:
    """``P99 of wait on vnet3, queue 0 rose from 20 us to 100 us (×5)``; ``details`` follow."""
    subject, shown = _subject(one.metric, manifest, one.stands_for.name), one.stands_for
    before, now = said(shown.baseline, one.unit), said(shown.current, one.unit)
    if shown.name == "shape":
        text = f"{subject} has another distribution, as if all values were ×{figure.number(one.factor)}"
    elif not shown.baseline and shown.current:
        text = f"{subject}: {now}, and none before"
    elif not shown.current and shown.baseline:
        text = f"{subject}: none, and {before} before"
    else:
        verb = "rose" if (shown.current or 0.0) > (shown.baseline or 0.0) else "fell"
        ratio = f" (×{figure.number(shown.ratio)})" if shown.ratio is not None else ""
        text = f"{subject} {verb} from {before} to {now}{ratio}"
    return "; ".join([text, *details])


def figures(one: Judged) -> str:
    """Baseline and current figure, ratio and spread."""
    shown = one.stands_for
    if shown.name == "shape":
        factor = figure.number(one.factor)
        return f"the distribution has another shape, as if all values were ×{factor}; its percentiles did not change"
    name = "" if shown.name in ("rate", "value") else f"{shown.name} "
    text = f"{name}{said(shown.baseline, one.unit)} → {said(shown.current, one.unit)}"
    if shown.ratio is not None:
        text += f" (×{figure.number(shown.ratio)})"
    if shown.spread:
        text += f", the baseline's runs vary by {said(shown.spread, one.unit)}"
    return text


def _subject(metric: Metric, manifest: Manifest | None, statistic: str) -> str:
    name = _name(metric, manifest)
    if metric.kind == "histogram":
        name = name if statistic == "shape" else f"{statistic} of {name}"
    where = _where(dict(metric.labels))
    text = f"{name} {where}".rstrip()
    return text[:1].upper() + text[1:]


def _name(metric: Metric, manifest: Manifest | None) -> str:
    """The title of a histogram, a table, or the name of a counter or column, as words."""
    name, _, column = metric.name.partition(".")
    table = manifest.tables.get(name) if manifest is not None else None
    if metric.kind == "histogram":
        spec = manifest.histograms.get(name) if manifest is not None else None
        return _words(spec.title if spec is not None else name)
    spec_of = next((one for one in table.value if one.name == column), None) if table is not None else None
    if spec_of is not None and spec_of.part and spec_of.unit == "%":
        return f"share of {_words(spec_of.part)}"
    if column and column != "count":
        return _words(column)
    return _words(table.title if table is not None else name)


def _where(labels: dict[str, SnapshotValue]) -> str:
    known = {name: value for name, value in labels.items() if name not in _UNSAID and value not in (None, "")}
    if known.get("netns") == HOST_NETNS:
        del known["netns"]
    places = [form.format(safe(known.pop(name))) for name, form in _PLACES.items() if name in known]
    others = [f"{_words(name)} {safe(value)}" for name, value in known.items()]
    return ", ".join([" ".join(places), *others] if places else others)


def _words(name: str) -> str:
    words = name.replace("_", " ")
    return words if words[:2].isupper() else words[:1].lower() + words[1:]
