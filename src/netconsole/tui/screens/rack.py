"""The first screen when several hosts are measured: a line for each, and what stands out on any of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message
from textual.screen import Screen

from netconsole.run.cost_here import CostHere
from netconsole.tui import actions
from netconsole.tui.panes import rack as lines
from netconsole.tui.panes.rack import RackIncident, RackLine
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.screens.pages.text_page import OverScreen, wrap
from netconsole.tui.widgets.lines import Lines
from netconsole.tui.widgets.linetable import LineTable
from netconsole.tui.widgets.look import Tone
from netconsole.tui.widgets.painted import Line, cut
from netconsole.tui.widgets.table_model import TableModel

_KEYS: Line = [
    (" Enter", "key"), (" open host  ", "dim"), ("Tab", "key"), (" next table  ", "dim"), ("< >", "key"),
    (" sort  ", "dim"), ("?", "key"), (" help  ", "dim"), ("S", "key"), (" screenshot  ", "dim"),
    ("q", "key"), (" quit", "dim"),
]  # fmt: skip
SAID_LINES = 2
"""Of the sentence about the host under the cursor."""
_EDGE_LINES = 2 + SAID_LINES
"""Header, sentence and footer."""
_TITLE_AND_HEADS = 2


class RackScreen(Screen[None]):
    """See the module."""

    BINDINGS: ClassVar[list[BindingType]] = [one for one in actions.bindings("main") if one.id in ("next", "previous")]
    AUTO_FOCUS = ""

    class Ready(Message):
        """The screen can be drawn."""

    class Chosen(Message):
        """A host is to be opened, with the page of one of its incidents if there is a subject."""

        def __init__(self, host: str, subject: Subject | None) -> None:
            super().__init__()
            self.host = host
            self.subject = subject

    def __init__(self) -> None:
        super().__init__()
        self.hosts = LineTable(TableModel("hosts", "Hosts", lines.HOSTS), id="hosts")
        self.incidents = LineTable(
            TableModel("incidents", "STANDS OUT", lines.INCIDENTS, heads=False, has_news=True), id="incidents"
        )
        self._lines: Sequence[RackLine] = ()
        self._message: tuple[str, Tone] | None = None

    def compose(self) -> ComposeResult:
        yield Lines(id="rack-header")
        yield self.hosts
        yield Lines(id="rack-said")
        yield self.incidents
        yield Lines(id="rack-footer")

    def on_mount(self) -> None:
        self.set_focus(self.hosts)
        self.post_message(self.Ready())

    def on_resize(self) -> None:
        self.app.call_later(self.app.run_action, "redraw")

    def draw(
        self, found: Sequence[RackLine], profile: str, elapsed_s: float, here: CostHere | None, now_s: float
    ) -> None:
        """Shows the hosts as they are now."""
        self._lines = found
        width, height = self.size
        least = len(lines.incident_rows(found)[:3]) + 1
        self.hosts.styles.height = max(3, min(len(found) + _TITLE_AND_HEADS, height - _EDGE_LINES - least))
        self.query_one("#rack-header", Lines).show(lines.head(profile, elapsed_s, here, width))
        self.hosts.show(lines.host_rows(found), now_s, lines.title(found))
        self.incidents.show(
            lines.incident_rows(found), now_s, lines.incidents_title(found), "nothing on any host that is measured"
        )
        self._tell_chosen()

    def say(self, text: str, tone: Tone = "") -> None:
        """Shows a message instead of the keys. "" shows the keys again."""
        self._message = (text, tone) if text else None
        self._footer()

    def action_next_table(self, _step: int) -> None:
        self.set_focus(self.incidents if self.focused is self.hosts else self.hosts)

    def on_key(self) -> None:
        self.say("")
        self.call_later(self._tell_chosen)

    @on(LineTable.Opened)
    def _opened(self, message: LineTable.Opened) -> None:
        message.stop()
        key = message.key
        if isinstance(key, RackIncident):
            self.post_message(self.Chosen(key.host, key.subject))
        elif isinstance(key, str):
            self.post_message(self.Chosen(key, None))

    def _tell_chosen(self) -> None:
        """The sentence about the host under the cursor, whole: its cell may be too narrow for it."""
        key = self.hosts.table.cursor_key
        line = next((line for line in self._lines if line.name == key), None)
        if line is not None and self.is_mounted:
            self.query_one("#rack-said", Lines).show(*wrap(lines.said_of(line), self.size.width)[:SAID_LINES])
            self._footer()

    def _footer(self) -> None:
        if self.is_mounted:
            line = _KEYS if self._message is None else [(f" {self._message[0]}", self._message[1])]
            self.query_one("#rack-footer", Lines).show(cut(line, self.size.width))


_COLUMNS = (
    ("worst", "the worst incident now; the lower table has all of all hosts. !! act, ! look, ? unknown, ok nothing"),
    ("line", "LIVE with the shortest round trip of the last minute. LINE LOST: it is tried again by itself"),
    ("", "refused: the sentence below the table says why; it is tried again. asks: ssh or sudo has a question"),
    ("drops/s", "packets that the host's stack dropped in the last interval (probe kernel_drops)"),
    ("cost", "of one core there: kernel and our processes. Each host has the whole budget of the profile for itself"),
    ("memory", "of our processes there"),
    ("age", "the figures are not older than this"),
    ("cost here", "this console, its ssh processes, and compilers while they run"),
)
_HELP_KEYS = ("table.open", "next", "table.sort", "table.reverse", "screenshot", "palette", "help", "quit")


class RackHelpScreen(OverScreen):
    """See the module."""

    def __init__(self, keymap: Mapping[str, str]) -> None:
        super().__init__()
        self._keymap = keymap

    def page(self, _scene: Scene, _width: int) -> Sequence[Line]:
        page: list[Line] = [[(" One line for each host. Enter opens its console, Esc comes back here.", "")], []]
        page += [[(f"   {name:<10}", "key"), (what, "")] for name, what in _COLUMNS]
        page += [[], [(" Keys", "head")]]
        for action in map(actions.get, _HELP_KEYS):
            keys = actions.written(action, self._keymap)
            page.append([(f"   {keys:<17}", "key"), (f"{action.title:<22}", ""), (action.help, "dim")])
        return page
