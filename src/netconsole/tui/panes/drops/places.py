"""Where packets die: one ranked list over all probes, one line each place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from netconsole.base import figure
from netconsole.base.figure import ABOUT, AT_LEAST
from netconsole.base.timestamps import clock
from netconsole.findings.drop_places import CountedRow, DropPlace, Senders, of_span, unwatched, with_incidents
from netconsole.findings.match import Level
from netconsole.telemetry.span import Span
from netconsole.tui.panes.common.columns import SPARK, TOTAL_COLUMNS, Shown, history, total_cell
from netconsole.tui.panes.common.tables import MAX_ROWS, Block
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.widgets.columns import Cell, TableColumn, TableRow
from netconsole.tui.widgets.look import LEVEL_TONES, Tone

NAME = "drop-places"
_NETNS = " (netns "
COLUMNS = (
    TableColumn("level", "", 2),
    TableColumn("rate", "pkts/s", 7, right=True),
    TableColumn("total", "total", TOTAL_COLUMNS, right=True, spare=1),
    TableColumn("place", "place", 20, grow=3, most=40),
    TableColumn("cause", "cause", 18, grow=4, most=64),
    TableColumn("sender", "first sender", 22, grow=1, most=28, spare=2),
    TableColumn("history", "trend", 10, spare=9, grow=1, most=SPARK),
)


@dataclass(frozen=True, slots=True)
class DropPlaceKey:
    """The key of a place's row: the cursor stays with the place, whichever of its rows is the largest by now."""

    name: tuple[str, str, str]
    subject: Subject = field(compare=False)


class PlacesOfScene:
    """The places of the last scene that was asked for: title and rows are of one."""

    def __init__(self) -> None:
        self._last: tuple[Scene, list[DropPlace]] | None = None

    def of(self, scene: Scene) -> list[DropPlace]:
        """Those that lose most now first; what nobody wanted last."""
        if self._last is None or self._last[0] is not scene:
            places = of_span(Span(scene.state), scene.manifests)
            self._last = (scene, with_incidents(places, partial(_level, scene)))
        return self._last[1]


def _level(scene: Scene, row: CountedRow) -> Level | None:
    known = scene.verdicts.get((row.family.probe, "table", row.family.table, row.key))
    return known.level if known is not None else None


def block() -> Block:
    """The block of the places."""
    known = PlacesOfScene()
    return Block(
        NAME,
        lambda scene: _title(known.of(scene), unwatched(scene.state, scene.manifests)),
        COLUMNS,
        lambda scene: rows(scene, known.of(scene)),
        _note,
    )


def rows(scene: Scene, places: Sequence[DropPlace]) -> list[TableRow]:
    """A row for each place."""
    senders = Senders(Span(scene.state))
    return [_row(scene, senders, place) for place in places[:MAX_ROWS]]


def _row(scene: Scene, senders: Senders, place: DropPlace) -> TableRow:
    best = place.best
    subject = Subject(best.family.probe, "table", best.family.table, best.key)
    return TableRow(DropPlaceKey(place.name, subject), partial(_cells, scene, senders, place))


def _cells(scene: Scene, senders: Senders, place: DropPlace) -> dict[str, Cell]:
    where = f"{place.stage} {place.at}".strip()
    sender = senders.first(place)
    tone: Tone = "" if place.per_s else "dim"
    best = place.best.family
    row = scene.state.row(best.probe, best.table, place.best.key)
    return {
        "level": Cell(place.level, place.level, LEVEL_TONES[place.level]),
        "rate": Cell(figure.number(place.per_s, place.mark_now), place.per_s, tone),
        "total": total_cell(place.total, place.mark),
        "place": Cell(where, where, tone, ends=ends(where)),
        "cause": Cell(place.say, place.say, tone),
        "sender": Cell(sender or figure.UNKNOWN, sender, tone),
        "history": history(best.value)(Shown(scene, best.probe, best.table, row)),
    }


def ends(where: str) -> tuple[str, str] | None:
    """A place with its namespace, which tells it from others of its kind, for a narrow column."""
    head, mark, netns = where.partition(_NETNS)
    return (head, f" ({netns}") if mark else None


def _title(places: Sequence[DropPlace], away: Mapping[str, int | None]) -> str:
    """``away``: who does not watch now. Then 0 is no figure."""
    lost = [place for place in places if place.level != "ok"]
    rates = [(place.per_s or 0.0, place.mark_now) for place in lost]
    totals = [(place.total, place.mark) for place in lost]
    rate, total = (_sum(figures, bool(away)) for figures in (rates, totals))
    where = f"at {figure.things(len(lost), 'places')}" if lost or not away else "nobody knows where"
    parts = ["Where packets die", f"{rate} packets/s lost, {total} in total, {where}", *unwatched_words(away)]
    return " · ".join(parts)


def unwatched_words(away: Mapping[str, int | None]) -> list[str]:
    """Who does not watch now, and since when."""
    return [
        f"{name}: not watched" + ("" if since_ns is None else f" since {clock(since_ns)}")
        for name, since_ns in away.items()
    ]


def _sum(figures: Sequence[tuple[float, str]], is_away: bool) -> str:
    known = sum(value for value, _ in figures)
    if is_away and not known:
        return figure.UNKNOWN
    mark = AT_LEAST if is_away else _worst(mark for _, mark in figures)
    return figure.count(known, mark) if isinstance(known, int) else figure.number(known, mark)


def _worst(marks: Iterable[str]) -> str:
    """That of a sum."""
    found = set(marks)
    return AT_LEAST if AT_LEAST in found else ABOUT if found - {""} else ""


def _note(scene: Scene) -> str:
    measuring = [
        name for name, one in scene.manifests.items()
        if one.drop_places and (state := scene.state.probes.get(name)) is not None and state.measuring
    ]  # fmt: skip
    if not measuring:
        return "nothing is measured now" if unwatched(scene.state, scene.manifests) else "nothing is measured yet"
    return f"nothing has died so far, by {figure.things(len(measuring), 'sources')}"
