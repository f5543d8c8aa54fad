"""What an investigation of a row has found so far: the top flows, ports, processes, places and stacks."""

from __future__ import annotations

from collections.abc import Iterator

from netconsole.base import figure
from netconsole.escalation.investigation import SampleGroup
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.widgets.painted import Line

TOP = 3
_INDENT = "  "
_COUNT_COLUMNS = 8
_TITLES: dict[SampleGroup, str] = {
    "flow": "flows",
    "port": "ports",
    "process": "processes",
    "location": "places",
    "stack": "stacks, innermost function first",
}


def lines(scene: Scene, subject: Subject) -> Iterator[Line]:
    """The section of a row's page; nothing when this row was not investigated."""
    one = scene.investigation
    if one is None or (one.probe, one.labels) != (subject.probe, subject.key):
        return
    if one.why:
        when = f"ended: {figure.safe(one.why, 120)}"
    elif one.began_s is None:
        when = "starting; counting goes on meanwhile"
    else:
        when = f"{one.left_s:.0f} s left"
    of = one.filters or "all that the probe sees"
    yield [(f"{_INDENT}Investigation  ", "head"), (f"{of}; {when}", "ok" if one.why else "look")]
    others = f"; {figure.things(one.others, 'samples')} of other rows passed the filter" if one.others else ""
    told = f"{figure.things(one.samples, 'samples')}, not all that happened"
    if not one.samples:
        told = "no sample came" if one.why else "waiting for the first sample"
    yield [(f"{_INDENT}{told}{others}", "dim")]
    known = {str(value) for _, value in one.labels}
    for group, title in _TITLES.items():
        counts = one.groups.get(group)
        if not counts or (len(counts) == 1 and known.issuperset(next(iter(counts)).split())):
            continue  # what the row says already
        more = f", {TOP} of {len(counts)}" if len(counts) > TOP else ""
        yield [(f"{_INDENT}{title}{more}", "head")]
        for text, count in counts.most_common(TOP):
            share = figure.fit(figure.percent(100 * count / one.samples), _COUNT_COLUMNS, right=True)
            number = figure.fit(figure.count(count), _COUNT_COLUMNS, right=True)
            yield [(f"{_INDENT}{number}{share}  ", "strong"), (figure.safe(text, 200), "")]
    yield []
