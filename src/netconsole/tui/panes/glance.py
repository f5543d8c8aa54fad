"""All at a glance: one cell for each queue of a VM, port of Open vSwitch, PMD thread and block device, by its state."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from netconsole.base import figure
from netconsole.telemetry.frames import Label
from netconsole.telemetry.words import GOOD, IDLE, LEVELS
from netconsole.tui.panes.common.states import RowStatus, status
from netconsole.tui.panes.ovs import datapaths
from netconsole.tui.panes.vhost import queues
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.widgets.cell_grid import GridCell, GridLine
from netconsole.tui.widgets.look import LEVEL_TONES
from netconsole.tui.widgets.painted import Line, Piece

LEAD_CELLS = 10
"""At the left of each line: the name of its first group."""
_LETTERS = {"off": "·", "ok": "o", "?": "?"}
_TABLES = (("ovs_pmd", "threads", "core", "PMD threads"), ("block_path", "devices", "device", "Block devices"))
"""Probe, table, the label that names a row, title: rows that are one cell each by themselves."""
_NUMBERS = re.compile(r"(\d+)")


class GlancePlace(NamedTuple):
    """What a cell stands for. Cells of one ``group`` stand together."""

    subject: Subject
    group: str
    name: str
    status: RowStatus

    @property
    def letter(self) -> str:
        """Of its state: of a finding, the first letter of its word."""
        word = next((char for char in self.status.word if char.isalpha()), self.status.level[0])
        return _LETTERS.get(self.status.level) or word.upper()

    @property
    def lines(self) -> list[Line]:
        """What it is and its state in words; what that means."""
        said: Piece = (self.status.text(), LEVEL_TONES[self.status.level])
        return [[(f" {f'{self.group} {self.name}'.strip()}: ", "strong"), said], [(f"  {self.status.means}", "")]]


def places(scene: Scene) -> list[tuple[str, list[GlancePlace]]]:
    """The places in the scope by what they are, those of one group side by side, in the order of their names."""
    found = [
        ("Queues of VMs", list(_queues(scene))),
        ("Ports of Open vSwitch", list(_ports(scene))),
        *((title, list(_rows(scene, probe, table, label))) for probe, table, label, title in _TABLES),
    ]
    inside = [
        (title, [one for one in some if scene.has(one.subject.probe, dict(one.subject.key))]) for title, some in found
    ]
    return [(title, sorted(some, key=_order)) for title, some in inside if some]


def grid(found: Sequence[tuple[str, Sequence[GlancePlace]]], width: int) -> Iterator[GridLine]:
    """The lines of cells. A group stays in one line where it fits into one."""
    for title, some in found:
        yield GridLine([(f" {title} · {summary(some)}", "head")], ())
        cells: list[GridCell] = []
        lead, x = "", LEAD_CELLS
        for group, members in groupby(some, key=lambda one: one.group):
            wanted = list(members)
            if cells and x + len(wanted) > width:
                yield _line(lead, cells)
                cells, x = [], LEAD_CELLS
            for one in wanted:
                if x >= width:
                    yield _line(lead, cells)
                    cells, x = [], LEAD_CELLS
                lead = lead if cells else (group or one.name).partition(" ")[0]
                cells.append(GridCell(one.subject, x, one.letter, LEVEL_TONES[one.status.level]))
                x += 1
            x += 1 if group else 0
        yield _line(lead, cells)


def summary(some: Sequence[GlancePlace]) -> str:
    """How many there are, and how many need a look."""
    levels = [one.status.level for one in some]
    parts = [figure.number(len(some))]
    needing = [level for level in LEVELS if level in levels and level not in (GOOD[0], IDLE[0])]
    parts += [f"{levels.count(level)} {level}" for level in needing]
    return " · ".join(parts)


def legend(found: Sequence[tuple[str, Sequence[GlancePlace]]]) -> Line:
    """What the letters that are on the screen mean, the worst first."""
    known = {
        (one.status.urgency, one.letter, one.status.text(), LEVEL_TONES[one.status.level])
        for _, some in found
        for one in some
    }
    pieces: list[Piece] = []
    for _, letter, text, tone in sorted(known):
        pieces += [(f" {letter} ", tone), (f"{text} ", "dim")]
    return pieces


def worst(found: Sequence[tuple[str, Sequence[GlancePlace]]]) -> Subject | None:
    """What the cursor is on at first."""
    first = min((one for _, some in found for one in some), key=lambda one: one.status.urgency, default=None)
    return first.subject if first is not None else None


def _line(lead: str, cells: Sequence[GridCell]) -> GridLine:
    return GridLine([(figure.fit(f" {lead}", LEAD_CELLS - 1), "dim")], tuple(cells))


def _order(one: GlancePlace) -> list[tuple[int, str]]:
    """Names with numbers in the order of the numbers."""
    parts = _NUMBERS.split(f"{one.group} {one.name}")
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _text(value: Label) -> str:
    return figure.safe(value, 32) if value is not None else ""


def _queues(scene: Scene) -> Iterator[GlancePlace]:
    found = queues.found_of(scene)
    for queue in queues.queues(scene):
        name = " ".join(part for part in (_text(queue.vm), _text(queue.device)) if part)
        yield GlancePlace(queue.subject, name, f"queue {_text(queue.number)}", queues.status_of(queue, found))


def _ports(scene: Scene) -> Iterator[GlancePlace]:
    found = datapaths.found_of(scene)
    worst: dict[tuple[Label, Label], GlancePlace] = {}
    for port in datapaths.ports(scene):
        at = datapaths.place_of(port.row)
        subject = Subject(datapaths.UPCALLS, "table", "upcalls", port.row.key)
        one = GlancePlace(subject, "", _text(at[1]), datapaths.port_status(port, found))
        if at not in worst or one.status.urgency < worst[at].status.urgency:
            worst[at] = one
    yield from worst.values()


def _rows(scene: Scene, probe: str, table: str, label: str) -> Iterator[GlancePlace]:
    for row in scene.state.rows(probe, table):
        subject = Subject(probe, "table", table, row.key)
        rates = [row.per_s(name) for name in row.counts]
        named = row.labels.get(label)
        yield GlancePlace(subject, "", f"{label} {_text(named)}", status(scene.verdicts.get(subject), rates))
