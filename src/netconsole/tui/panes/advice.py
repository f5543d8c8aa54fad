"""What to do about a row: advice and commands of what it proves, where to look next, and what can be copied."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from netconsole.base import figure
from netconsole.findings.incident import Incident, told
from netconsole.findings.rules import filled
from netconsole.profile.escalation_rules import SUFFIX
from netconsole.telemetry.frames import Label
from netconsole.telemetry.tables import HistogramState, RowState
from netconsole.tui.panes.overview import stands_out
from netconsole.tui.panes.vhost import queues
from netconsole.tui.scene.scene import Scene, Subject

_MAX_NAME = 48
_NAMES = (
    ("", "vm"),
    ("", "process"),
    ("", "device"),
    ("port ", "port"),
    ("queue ", "queue"),
    ("CPU ", "cpu"),
    ("", "socket"),
    ("", "reason"),
)
"""Labels that a title says, with the word before each, in this order."""
_SENTENCES = re.compile(r"(?<=\.) (?=[A-Z])")
"""Where one sentence of a hint ends and the next begins."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What to look at next, in sentences, and commands with the names filled in."""

    next: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


def incidents(scene: Scene, subject: Subject) -> list[Incident]:
    """What stands out and is proved by this row, the worst first; else the last that did, while it is in the log.

    All rows that know a queue of a VM share one page and one state: it has what any of them proves.
    """
    queue = queues.queue_of(subject) if subject.name == "queues" else None

    def is_proved(one: Incident) -> bool:
        proofs = stands_out.proofs(one)
        return subject in proofs or (queue is not None and any(queues.queue_of(proof) == queue for proof in proofs))

    found = [one for one in scene.findings if is_proved(one)]
    return found or [one for one in reversed(scene.log) if is_proved(one)][:1]


def advice(scene: Scene, subject: Subject) -> Advice:
    """Of each finding that the row proves the most telling hint, and all commands; then those of its table."""
    found = incidents(scene, subject)
    here = _names_of(scene, subject)
    hints = dict.fromkeys(hint for one in found if (hint := _hint(one, here)))
    manifest = scene.manifests.get(subject.probe)
    table = None if manifest is None or subject.kind != "table" else manifest.tables.get(subject.name)
    of_table = () if table is None else filled(table.commands, dict(subject.key))
    return Advice(tuple(hints), tuple(dict.fromkeys([*(line for one in found for line in one.commands), *of_table])))


def elsewhere(scene: Scene, subject: Subject) -> list[Subject]:
    """Rows of other tables that prove the same, the most telling first."""
    proofs = [proof for one in incidents(scene, subject) for proof in stands_out.proofs(one)]
    return [
        proof
        for proof in dict.fromkeys(proofs)
        if proof.probe and (proof.probe, proof.name) != (subject.probe, subject.name)
    ]


def investigable(scene: Scene, subject: Subject) -> Subject | None:
    """The row to investigate for this one: itself, or one that proves the same; None when no probe of these can.

    Of a queue whose ring is full it is the ring.

    Not in a recording, and not where the probe samples already.
    """
    for one in filter(None, (queues.overflowing(scene, subject), subject, *elsewhere(scene, subject))):
        state, manifest = scene.state.probes.get(one.probe), scene.manifests.get(one.probe)
        if state is None or manifest is None or one.kind not in ("table", "histogram") or scene.replay is not None:
            continue
        if state.measuring and state.mode != "details" and "details" in manifest.modes:
            return one
    return None


def can_look_into(scene: Scene, subject: Subject) -> bool:
    """Whether a row can be investigated, or is."""
    asked = scene.investigation
    is_asked = asked is not None and not asked.why and (asked.probe, asked.labels) == (subject.probe, subject.key)
    return is_asked or investigable(scene, subject) is not None


def vain_keys(scene: Scene, subject: Subject | None, probe: str | None) -> frozenset[str]:
    """Actions that can do nothing at this row, or at the table of this probe: keys that the footer does not offer."""
    vain = set()
    if subject is None or not can_look_into(scene, subject):
        vain.add("investigate")
    if subject is None or not advice(scene, subject).commands:
        vain.add("run")
    manifest = scene.manifests.get(probe) if probe is not None else None
    if manifest is not None and not manifest.can_be_set:
        vain.add("knobs")
    return frozenset(vain)


def copies(scene: Scene, subject: Subject) -> list[tuple[str, str]]:
    """What can be copied of a row, each with a word for it: commands, findings, and the row itself."""
    wanted = [("command", line) for line in advice(scene, subject).commands]
    wanted += [("finding", f"{one.level} {told(one)}") for one in incidents(scene, subject)]
    row = row_of(scene, subject)
    labels = row.labels if row is not None else dict(subject.key)
    words = [f"{figure.safe(name, 24)}={figure.safe(value, 64)}" for name, value in labels.items() if _is_said(value)]
    if isinstance(row, RowState):
        words += [f"{name}={row.total(name)}" for name in row.counts]
    return [*wanted, ("row", " ".join([subject.probe or "collector", *words]))]


def named(scene: Scene, subject: Subject) -> str:
    """The row by the names that people know it by: VM, device, queue, reason. Empty when it has none."""
    labels = dict(subject.key)
    if not labels.get("vm"):
        labels["vm"] = vm_of(scene, labels.get("device"))
    words = [f"{word}{figure.safe(labels[name], _MAX_NAME)}" for word, name in _NAMES if _is_said(labels.get(name))]
    return " · ".join(words)


def vm_of(scene: Scene, device: Label) -> Label:
    """The VM of a tap, as any row that has both says it; None when none does."""
    if not device:
        return None
    for probe in scene.state.probes.values():
        for table in probe.tables.values():
            for row in table.rows.values():
                if row.labels.get("vm") and row.labels.get("device") == device:
                    return row.labels["vm"]
    return None


def row_of(scene: Scene, subject: Subject) -> RowState | HistogramState | None:
    """The row of a table or of a histogram; None for anything else, and when it is gone."""
    if subject.kind == "table":
        return scene.state.row(subject.probe, subject.name, subject.key)
    return scene.state.histogram(subject.probe, subject.name, subject.key) if subject.kind == "histogram" else None


def _hint(one: Incident, here: Collection[str]) -> str:
    """What its most specific finding advises, but for sentences that send the reader to the table where he is."""
    for text in one.next:
        kept = [part for part in _SENTENCES.split(text) if not any(name in part for name in here)]
        if kept:
            return " ".join(kept)
    return ""


def _names_of(scene: Scene, subject: Subject) -> list[str]:
    """How hints name the table of a row: by its tab."""
    manifest = scene.manifests.get(subject.probe.removesuffix(SUFFIX))
    places = manifest.panes if manifest is not None else ()
    return [f"table {place.tab} of" for place in places if place.name in ("", subject.name)]


def _is_said(value: object) -> bool:
    return value not in (None, "")
