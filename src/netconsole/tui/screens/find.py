"""Finds an action, a pane, a VM or a row by a part of its name: the best first, one line each."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Input

from netconsole.tui import actions
from netconsole.tui.widgets.columns import Cell, TableColumn, TableRow
from netconsole.tui.widgets.lines import Lines
from netconsole.tui.widgets.linetable import LineTable
from netconsole.tui.widgets.painted import Piece
from netconsole.tui.widgets.table_model import TableModel

MOST = 200
"""Entries that are listed; who wants another one types one more letter."""
COLUMNS = (
    TableColumn("name", "", 20, grow=2, most=48),
    TableColumn("keys", "", 6, most=14, grow=1, spare=2),
    TableColumn("what", "", 10, grow=3, spare=1),
)
_WORDS = re.compile(r"[0-9a-z]+")


class Findable(NamedTuple):
    """One line: its name, its keys if it has some, and what it is or does. Texts have passed figure.safe()."""

    name: str
    keys: str
    what: str
    run: Callable[[], Awaitable[object] | object]
    after: str = ""
    """It is only found after this word, and then first."""


def found(entries: Sequence[Findable], text: str) -> list[Findable]:
    """The entries that have every word of ``text``, the best first: it is a word of the name, begins it, is in it.

    Of two that are equally good that one is first which has fewer words before it, then the shorter name, then the
    one that was given first.
    """
    words = text.lower().split()
    if not words:
        return [entry for entry in entries if not entry.after]
    ranked = []
    for place, entry in enumerate(entries):
        if entry.after and (words[0] != entry.after or not words[1:]):
            continue
        name, what = entry.name.lower(), entry.what.lower()
        if all(word in name or word in what for word in words):
            rank = -1 if entry.after else max(_rank(name, word) for word in words)
            before = max(name.partition(word)[0].count(" ") for word in words)
            ranked.append((rank, before, len(name), place, entry))
    return [entry for *_, entry in sorted(ranked, key=lambda one: one[:4])]


def _rank(name: str, word: str) -> int:
    parts = _WORDS.findall(name)
    if word in parts or name == word:
        return 0
    if name.startswith(word):
        return 1
    if any(part.startswith(word) for part in parts):
        return 2
    return 3 if word in name else 4


class FindScreen(Screen[None]):
    """Type a part of the name. Enter takes the first one, or the one under the cursor; Esc changes nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(one for one in actions.bindings("over") if one.id != "over.back"),
        Binding("escape", "back", show=False),
        Binding("up", "cursor(-1)", show=False),
        Binding("down", "cursor(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
    ]

    def __init__(self, entries: Sequence[Findable]) -> None:
        super().__init__()
        self._entries = entries
        self._listed: list[Findable] = []

    def compose(self) -> ComposeResult:
        yield Input(
            id="find",
            compact=True,
            placeholder="a VM, a device, a pane, an action, a row…; vm NAME, device NAME: this alone",
        )
        yield LineTable(TableModel("found", "", COLUMNS, heads=False, is_led=True), id="found")
        yield Lines(id="over-footer")

    def on_mount(self) -> None:
        self.query_one(LineTable).can_focus = False  # what is typed is always a name
        self.query_one(Input).focus()
        keys = [("Enter", "go there"), ("↑ ↓", "choose"), ("Esc", "back")]
        pieces: list[Piece] = []
        for key, word in keys:
            pieces += [(f" {key}", "key"), (f" {word} ", "dim")]
        self.query_one("#over-footer", Lines).show(pieces)
        self._list("")

    def offer(self, entries: Sequence[Findable]) -> None:
        """Lists these in place of the others; what is typed stays."""
        self._entries = entries
        self._list(self.query_one(Input).value)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        self._list(event.value)

    def _list(self, text: str) -> None:
        matching = found(self._entries, text)
        self._listed = matching[:MOST]
        table = self.query_one(LineTable)
        table.table.rank_anew()
        title = f"{len(matching)} of {len(self._entries)}" if text else "actions, panes, VMs, rows"
        table.show(
            [_row(place, entry) for place, entry in enumerate(self._listed)], 0.0, title, "nothing has this name"
        )

    @on(Input.Submitted)
    def _chosen(self) -> None:
        key = self.query_one(LineTable).table.cursor_key
        if isinstance(key, int):
            entry = self._listed[key]
            self.dismiss()
            self.app.call_later(entry.run)

    def action_back(self) -> None:
        self.dismiss()

    def action_cursor(self, steps: int) -> None:
        self.query_one(LineTable).action_cursor(steps)

    def action_page(self, pages: int) -> None:
        self.query_one(LineTable).action_page(pages)


def _row(place: int, entry: Findable) -> TableRow:
    return TableRow(place, {"name": Cell(entry.name), "keys": Cell(entry.keys, tone="key"), "what": Cell(entry.what)})
