"""The ledger of a mirror on the screen: what came to each stage between the NIC and the workers, and what was lost."""

from __future__ import annotations

from collections.abc import Callable

from netconsole.base import figure
from netconsole.findings.incident import sentence_of
from netconsole.snapshot.mirror_ledger import MIRROR, LedgerCount, MirrorLedger, MirrorStage
from netconsole.telemetry.span import Span
from netconsole.tui.panes.common.tables import Block
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.scene.silent import why_silent
from netconsole.tui.widgets.columns import Cell, TableColumn, TableRow
from netconsole.tui.widgets.look import Tone


def _count(name: str, tone: Tone = "") -> Callable[[MirrorStage], Cell]:
    def made(stage: MirrorStage) -> Cell:
        count: LedgerCount | None = getattr(stage, name)
        if count is None or count.per_s is None:
            return Cell("–" if name == "lost" or count is not None else "", None, "dim")
        return Cell(figure.number(count.per_s, stage.lacks), count.per_s, tone if count.per_s else "")

    return made


def _total(stage: MirrorStage) -> Cell:
    if stage.lost is None or not stage.has_total:
        return Cell("")
    return Cell(figure.count(stage.lost.total, stage.lacks_total), stage.lost.total)


COLUMNS = (
    TableColumn("stage", "stage", 17, value=lambda stage: Cell(stage.name, stage.name)),
    TableColumn("passed", "pkts/s", 8, right=True, value=_count("passed")),
    TableColumn("lost", "lost/s", 8, right=True, value=_count("lost", "act")),
    TableColumn("total", "lost", 9, right=True, spare=2, value=_total),
    TableColumn("where", "where most", 30, grow=1, most=120, spare=1, value=lambda stage: Cell(stage.where)),
)


def block() -> Block:
    """The stages in the order in which a packet passes them."""
    return Block("mirror-ledger", title, COLUMNS, rows, lambda scene: why_silent(scene, MIRROR), MIRROR)


def rows(scene: Scene) -> list[TableRow]:
    """A line for each stage; none before anything was counted."""
    return [
        TableRow(_subject(one), {column.name: column.value(one) for column in COLUMNS}) for one in ledger(scene).stages
    ]


def title(scene: Scene) -> str:
    """The verdict, in words."""
    return " · ".join(part for part in ("Mirror: from NIC to worker", ledger(scene).verdict) if part)


def ledger(scene: Scene) -> MirrorLedger:
    """Made once for each scene."""
    known = scene.made.get(MirrorLedger)
    if isinstance(known, MirrorLedger):
        return known
    found = MirrorLedger(Span(scene.state), scene.manifests, lambda place: sentence_of(scene.findings, *place))
    scene.made[MirrorLedger] = found
    return found


def _subject(stage: MirrorStage) -> Subject:
    if stage.row is None:
        return Subject(stage.probe, "probe", stage.name, ())
    probe, table, key = stage.row
    return Subject(probe, "table", table, key)
