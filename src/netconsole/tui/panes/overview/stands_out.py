"""STANDS OUT: what is worth looking at, ranked, with where, how much and since when. The answer comes first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from netconsole.base import figure
from netconsole.base.timestamps import clock
from netconsole.findings.incident import Incident, told
from netconsole.findings.match import RANK, Level
from netconsole.findings.matches import looked_at
from netconsole.tui.panes.common.columns import SPARK
from netconsole.tui.panes.common.tables import Block
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.widgets.columns import Cell, TableColumn, TableRow
from netconsole.tui.widgets.look import LEVEL_TONES, Tone

COLLECTOR = "collector"
ENDED = "ended: "
OWN_TOPIC = "netconsole"
"""Of what is no fault of the network."""


@dataclass(frozen=True, slots=True)
class IncidentKey:
    """The key of an incident's row: the cursor stays with the incident, whatever its best evidence is by now."""

    number: int
    subject: Subject = field(compare=False)


def block() -> Block:
    """The block of the findings."""
    columns = (
        TableColumn("level", "", 2),
        TableColumn("topic", "", 10, spare=2),
        TableColumn("say", "", 60, grow=6),
        TableColumn("since", "", 14, spare=1),
        TableColumn("history", "", 16, spare=3, grow=1, most=SPARK),
    )
    return Block("standsout", _title, columns, rows, note, heads=False, has_news=True)


def rows(scene: Scene) -> list[TableRow]:
    """The findings, the worst first; those that ended last."""
    return [_row(finding, _topic(scene, finding), _unit(scene, finding)) for finding in scene.findings]


def log_block() -> Block:
    """The block of all incidents since the start."""
    columns = (
        TableColumn("since", "began", 8),
        TableColumn("until", "ended", 10),
        TableColumn("level", "", 2),
        TableColumn("say", "what", 44, grow=6),
        TableColumn("total", "total", 10, right=True, spare=1),
        TableColumn("peak", "peak/s", 8, right=True, spare=2),
    )
    return Block("log", _log_title, columns, log_rows, lambda _: "no incident since the start", has_news=True)


def _total(one: Incident) -> str:
    if one.total is None:
        return ""
    return figure.duration(one.total) if one.unit == "ns" else figure.count(one.total, one.mark)


def log_rows(scene: Scene) -> list[TableRow]:
    """All incidents since the start, the newest first."""
    return [_logged(one) for one in reversed(scene.log)]


def _log_title(scene: Scene) -> str:
    return f"Incidents since the start · {len(scene.log)}"


def _logged(one: Incident) -> TableRow:
    going_on = "goes on" if one.blind_since_ns is None else "unknown"
    until = going_on if one.ended_ns is None else clock(one.ended_ns)
    cells = {
        "since": Cell(clock(one.since_ns), float(one.since_ns), "dim"),
        "until": Cell(until, float(one.ended_ns or 0), "dim"),
        "level": Cell(one.level, one.level, LEVEL_TONES[one.level]),
        "say": sentence_cell(one.sentence),
        "total": Cell(_total(one), one.total or 0),
        "peak": Cell(figure.amount(one.peak, one.unit, one.mark) if one.is_count else "", one.peak or 0.0),
    }
    return TableRow(IncidentKey(one.number, subject_of(one)), cells)


def note(scene: Scene) -> str:
    """What was looked at when nothing stands out."""
    return looked_at(scene.state, scene.manifests)


def subject_of(finding: Incident) -> Subject:
    """The row, histogram or probe that proves an incident best; the collector itself when no probe is meant."""
    return proofs(finding)[0]


def proofs(incident: Incident) -> list[Subject]:
    """All rows, histograms and probes that prove an incident, the most telling first."""
    return [
        Subject("", "probe", COLLECTOR, ())
        if one.kind == "collector"
        else Subject(one.probe, one.kind, one.name, one.key)
        for one in incident.evidence
    ]


def levels(scene: Scene, panes: Mapping[str, tuple[str, ...]]) -> dict[str, Level]:
    """The worst level of what stands out now, by pane, given the probes of each pane."""
    worst: dict[str, Level] = {}
    for finding in scene.findings:
        if finding.is_ours or finding.ended_ns is not None or finding.level not in ("!!", "!"):
            continue
        for pane, probes in panes.items():
            here = finding.probe in probes if finding.probe else pane == "cost"
            if here and pane != "overview" and RANK[finding.level] < RANK[worst.get(pane, "ok")]:
                worst[pane] = finding.level
    return worst


def since(one: Incident) -> str:
    """When it began, or until when it was."""
    return f"until {clock(one.ended_ns)}" if one.ended_ns is not None else f"since {clock(one.since_ns)}"


def _title(scene: Scene) -> str:
    found = [finding for finding in scene.findings if not finding.is_ours]
    now = sum(finding.ended_ns is None for finding in found)
    ended = len(found) - now
    counts = [f"{now} now"] if now else []
    counts += [f"{ended} ended"] if ended else []
    return " · ".join(["STANDS OUT", *counts])


def _unit(scene: Scene, finding: Incident) -> str:
    """Of its history: a percentile has its histogram's, a time its own; all else is a number per second."""
    if finding.unit == "ns":
        return "ns"
    manifest = scene.manifests.get(finding.probe)
    if manifest is None or finding.evidence[0].kind != "histogram":
        return ""
    spec = manifest.histograms.get(finding.evidence[0].name)
    return spec.unit if spec is not None else ""


def _row(finding: Incident, topic: str, unit: str) -> TableRow:
    ended = finding.ended_ns is not None
    when = since(finding)
    history = finding.history
    text = said(finding)
    cells = {
        "level": Cell(finding.level, finding.level, LEVEL_TONES["off" if ended else finding.level]),
        "topic": Cell(topic, finding.probe, "dim"),
        "say": sentence_cell(text, "dim" if ended else ""),
        "since": Cell(when, float(finding.since_ns), "dim"),
        "history": Cell("", history=lambda: history, tone="dim" if ended else "", unit=unit),
    }
    return TableRow(IncidentKey(finding.number, subject_of(finding)), cells, last=place_of(finding))


def said(one: Incident) -> str:
    """Its sentence in a list, where a dimmed line alone would say that it is over."""
    return told(one) if one.ended_ns is None else f"{ENDED}{told(one)}"


def sentence_cell(text: str, tone: Tone = "") -> Cell:
    """A cell with a sentence, of which names are cut before the cause."""
    mark = ENDED if text.startswith(ENDED) else ""
    who, colon, rest = text.removeprefix(mark).partition(": ")
    why, *how_much = re.split(r"(?=: )", rest, maxsplit=1)
    return Cell(text, text, tone, sentence=(f"{mark}{who}", f"{colon}{why}", "".join(how_much)))


def place_of(one: Incident) -> int:
    """Whether it stands above what has ended, and above what is of netconsole itself: the lower the first."""
    return 2 if one.is_ours else 1 if one.ended_ns is not None else 0


def _topic(scene: Scene, finding: Incident) -> str:
    if finding.is_ours or not finding.probe:
        return OWN_TOPIC
    manifest = scene.manifests.get(finding.probe)
    return manifest.topic if manifest is not None else figure.safe(finding.probe.replace("_", " "), 48)
