"""The main screen: header, one pane, cost strip and footer. Its layout fits any size of the terminal."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Input

from netconsole.tui import actions
from netconsole.tui.panes.advice import vain_keys
from netconsole.tui.panes.catalogue import Pane
from netconsole.tui.panes.catalogue import missing as missing_text
from netconsole.tui.panes.cost import budget
from netconsole.tui.panes.drops import places
from netconsole.tui.panes.overview import header, stands_out
from netconsole.tui.panes.overview.header import Pause
from netconsole.tui.remembered import Remembered, key_of, pinned
from netconsole.tui.scene.live_scope import LiveScope
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.screens.pane_view import PaneView
from netconsole.tui.widgets.lines import Lines
from netconsole.tui.widgets.linetable import TableKeys
from netconsole.tui.widgets.look import Tone
from netconsole.tui.widgets.painted import Line, Piece, cells, cut, folded
from netconsole.tui.widgets.table_model import TableModel

FULL_COLUMNS, FULL_LINES = 80, 24
"""On a smaller terminal the cost strip is left out, and the last line says what is hidden."""
STRIP_LINES = 3
"""Lines that all costs with their limits need in 80 columns, at most."""
STRIP_HOLD_S = 10.0
"""The strip gives a line back to the tables when it has not needed it for so long."""
OF_A_ROW = frozenset({"table.open", "copy", "table.sort"})
"""What the footer does not offer where the table has no row."""
EDGE_LINES = 3
"""Header of two lines and footer."""


_JOINT: Piece = (" · ", "dim")


class Desk(TableKeys):
    """The pane in front: one widget for all panes, so that another pane is only other lines."""

    def __init__(self, view: PaneView) -> None:
        super().__init__(id="desk")
        self.view = view
        self.told: Sequence[Line] = ()
        """Why the pane has nothing to show, instead of its tables."""
        self._chosen_table: TableModel | None = None

    @property
    def in_front(self) -> TableModel | None:
        """The table with the focus, else the first one on the screen."""
        shown = [table for _, table in self.view.tables_shown()]
        return self._chosen_table if self._chosen_table in shown else next(iter(shown), None)

    @in_front.setter
    def in_front(self, table: TableModel | None) -> None:
        self._chosen_table = table

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Enter is the pane's while it has nothing to show."""
        return action != "open" or not self.told

    def line(self, y: int) -> Line:
        if self.told:
            return self.told[y] if y < len(self.told) else []
        return self.view.line(y, self.in_front if self.has_focus else None)


class MainScreen(Screen[None]):
    """Header, pane, cost strip and footer."""

    BLANK = True

    BINDINGS: ClassVar[list[BindingType]] = list(actions.bindings("main"))
    AUTO_FOCUS = ""
    header_lines = 2
    without: frozenset[str] = frozenset({"hosts"})
    """Actions that the footer leaves out because they cannot be used here."""

    def __init__(self, panes: Mapping[str, Pane], remembered: Remembered | None = None) -> None:
        """``remembered``: choices of before; None: those of now are kept until the console ends."""
        super().__init__()
        self.panes = panes
        self._remembered = remembered or Remembered(None)
        self._probes_of = {name: pane.probes for name, pane in panes.items()}
        self.current = "overview"
        self.views: dict[str, PaneView] = {}
        self.pause = Pause()
        self.filter = ""
        """Tables show only rows that contain this text, in every pane."""
        self.scope: LiveScope | None = None
        """What is shown alone, in every pane."""
        self._message: tuple[str, Tone] | None = None
        self._strip_lines = 0
        self._strip_needed_s = 0.0
        self._will_redraw = False
        self._vain: frozenset[str] = frozenset()
        """Keys that can do nothing at the row under the cursor."""
        self._is_rewound = False
        """Whether what is shown is not now."""
        self.desk = Desk(self._view(self.current))

    def compose(self) -> ComposeResult:
        yield Lines(id="header")
        yield self.desk
        yield Lines(id="cost")
        yield Lines(id="footer")
        box = Input(id="filter", compact=True, placeholder="show rows that contain…")
        box.display = False
        yield box

    class Ready(Message):
        """The screen can be drawn."""

    def on_mount(self) -> None:
        self.query_one("#header").styles.height = self.header_lines
        self._lay_out()
        self.set_focus(self.desk)
        self.post_message(self.Ready())

    def on_resize(self, _event: events.Resize) -> None:
        self._lay_out()
        self._redraw()

    # ---- contents

    @property
    def view(self) -> PaneView:
        """The pane in front."""
        return self.desk.view

    def table(self) -> TableModel | None:
        """The table with the focus."""
        return self.desk.in_front

    def turn_to(self, table: TableModel | None) -> None:
        """Gives the focus to a table; None: to the first one."""
        self.desk.in_front = table
        self.desk.repaint()
        self._footer()

    def cursor_key(self) -> Hashable | None:
        """The key of the row under the cursor; None without one."""
        table = self.table()
        return table.cursor_key if table is not None else None

    def subject(self) -> Subject | None:
        """What the row under the cursor shows, or has as its proof; None where it shows nothing of a probe."""
        key = self.cursor_key()
        subject = key.subject if isinstance(key, (stands_out.IncidentKey, places.DropPlaceKey)) else key
        return subject if isinstance(subject, Subject) else None

    def probe(self) -> str | None:
        """The probe of the row under the cursor, else of the table in front."""
        table, subject = self.table(), self.subject()
        if subject is not None and subject.probe:
            return subject.probe
        placed = next((p for p in self.view.pane.blocks if table is not None and p.block.name == table.name), None)
        return placed.block.probe if placed is not None else None

    def say(self, text: str, tone: Tone = "") -> None:
        """Shows a message instead of the keys in the footer, until the next key or message. "" shows the keys again."""
        self._message = (text, tone) if text else None
        if self.is_mounted:
            self._footer()

    @property
    def is_empty(self) -> bool:
        """Whether the pane in front has nothing to show, and says why."""
        return bool(self.desk.told)

    def draw(self, scene: Scene, pause: Pause, kind: str, now_s: float, promise: str = "") -> None:
        """Draws the pane in front, and the lines around it. ``promise``: what Enter does, if the pane is empty."""
        self.pause = pause
        width = self.size.width
        first = header.first_line(scene, pause, kind, now_s, width)
        marks = stands_out.levels(scene, self._probes_of)
        reasons = {name: missing_text(scene, pane) for name, pane in self.panes.items()}
        empty = {name for name, why in reasons.items() if why}
        second, has_cost = header.second_line(scene, self.current, marks, width, empty)
        self._is_rewound = scene.replay is not None and scene.replay.behind_s is not None
        third = [] if scene.replay is None or self._is_rewound else [header.replay_line(scene.replay, width)]
        self.query_one("#header", Lines).show(first, second, *third)
        for table in self.view.tables.values():
            table.freeze_order(pause.step != "live")
            table.only = None if self.scope is None else self.scope.has
        nothing_to_say = self.view.without_rows(scene)
        if nothing_to_say != self.view.hidden:
            self.view.hidden = nothing_to_say
            self._lay_out()
        self.view.draw(scene, now_s)
        told = reasons[self.current]
        self.desk.told = [*_wrapped(told, width), *_wrapped(promise if told else "", width)]
        self.desk.repaint()
        self._show_cost(_cost_lines(scene, width, has_cost), now_s)
        self._vain = vain_keys(scene, self.subject(), self.probe())
        self._footer()

    def _show_cost(self, lines: Sequence[Line], now_s: float) -> None:
        """What is said of the cost; the tables give and get lines for it without haste."""
        if len(lines) >= self._strip_lines:
            self._strip_needed_s = now_s
        if len(lines) > self._strip_lines or now_s - self._strip_needed_s > STRIP_HOLD_S:
            self._strip_lines = len(lines)
            self._lay_out()
        self.query_one("#cost", Lines).show(*lines)

    def show_pane(self, name: str) -> None:
        """Brings a pane to the front. It is drawn anew, so that no rows are seen as old as it was there last."""
        self.current = name
        self.desk.view, self.desk.in_front = self.views.get(name) or self._view(name), None
        self._lay_out()

    def renew(self, panes: Mapping[str, Pane]) -> None:
        """Replaces the panes, after a probe was started that has no tables in them."""
        self.panes = panes
        self.views.clear()
        self.show_pane(self.current)
        self._redraw()

    # ---- actions

    async def action_pane(self, name: str) -> None:
        self._message = None
        self.show_pane(name)
        await self.app.run_action("redraw")

    def action_next_table(self, step: int) -> None:
        view = self.view
        visible = [table for _, table in view.tables_shown()]
        at = visible.index(table) if (table := self.table()) in visible else 0
        if not view.one_at_a_time:
            self.turn_to(visible[(at + step) % len(visible)] if visible else None)
            return
        if view.answer_first and at == 0 and step > 0 and len(visible) > 1:
            self.turn_to(visible[1])
        else:
            view.turn(step)
            self._lay_out()
            self.turn_to(next((table for _, table in list(view.tables_shown())[::-1]), None))
        self._redraw()

    def action_maximise(self) -> None:
        """Gives all lines to the table with the focus, or all tables their lines again."""
        table = self.table()
        self.view.maximised = not self.view.maximised
        if table is not None:
            self.view.active = table.name or self.view.active
        self._lay_out()
        self.turn_to(table)
        self._redraw()

    def action_columns(self) -> None:
        """Opens the list of the columns of the table with the focus."""
        from netconsole.tui.screens.columns import ColumnsScreen

        table = self.table()
        if table is not None:
            columns = self._remembered.of(table.name or "").columns
            self.app.push_screen(ColumnsScreen(table, columns), lambda _: self._keep())

    def on_table_keys_chosen(self, message: TableKeys.Chosen) -> None:
        """Another order, or another row on top: the same the next time."""
        table = message.table
        choice = self._remembered.of(table.name or "")
        choice.sort, choice.reverse = table.sort_column, table.reverse
        choice.pinned = pinned(table.on_top)
        self._keep()

    def _keep(self) -> None:
        if why := self._remembered.keep():
            self.say(why, "look")

    def action_filter(self) -> None:
        if self.table() is not None:
            box = self.query_one("#filter", Input)
            box.value = self.filter
            box.display = True
            self.query_one("#footer").display = False
            # At once: the next keys are meant for the box.
            self.set_focus(box)

    async def action_unfilter(self) -> None:
        self.say("")
        if self._is_rewound:
            await self.app.run_action("now")
        elif self.filter:
            self._set_filter("")
            self._redraw()
        elif self.scope is not None:
            self.scope = None
            self._redraw()
        elif "hosts" not in self.without:
            await self.app.run_action("hosts")

    @on(Input.Changed, "#filter")
    def _filter_changed(self, event: Input.Changed) -> None:
        self._set_filter(event.value)

    def _set_filter(self, text: str) -> None:
        self.filter = text
        for view in self.views.values():
            view.set_filter(text)
        self.desk.settle()

    @on(Input.Submitted, "#filter")
    def _filter_done(self) -> None:
        self._close_filter()

    def on_key(self, event: events.Key) -> None:
        if self._message is not None:
            self.say("")  # it was read; the keys come back before this one may say something else
        if event.key == "escape" and isinstance(self.focused, Input):
            event.stop()
            event.prevent_default()
            self._set_filter("")
            self._close_filter()

    def _close_filter(self) -> None:
        self.query_one("#filter").display = False
        self.query_one("#footer").display = True
        self.set_focus(self.desk)
        self._redraw()

    def on_table_keys_moved(self) -> None:
        self._redraw()

    def on_descendant_focus(self) -> None:
        self._footer()

    # ---- inside

    def _view(self, name: str) -> PaneView:
        view = self.views[name] = PaneView(self.panes[name])
        for name, table in view.tables.items():
            choice = self._remembered.of(name)
            table.choice, table.sort_column, table.reverse = choice.columns, choice.sort, choice.reverse
            table.on_top = [key_of(row) for row in choice.pinned]
            table.on_change = self._table_changed
        view.set_filter(self.filter)
        return view

    def _lay_out(self) -> None:
        width, height = self.size
        small = width < FULL_COLUMNS or height < FULL_LINES
        strip = self.query_one("#cost")
        strip.display = not small and self._strip_lines > 0
        strip.styles.height = self._strip_lines
        edge = EDGE_LINES + self.header_lines - 2
        self.view.lay_out(width, height - (edge if small else edge + self._strip_lines))

    def _table_changed(self) -> None:
        if self.is_mounted:
            self.desk.settle()

    def _redraw(self) -> None:
        """Draws anew soon: once, however many ask for it."""
        if not self._will_redraw:
            self._will_redraw = True
            self.app.call_later(self._redraw_now)

    async def _redraw_now(self) -> None:
        self._will_redraw = False
        await self.app.run_action("redraw")

    def _footer(self) -> None:
        width, height = self.size
        line: Line
        if self._message is not None:
            line = [(f" {self._message[0]}", self._message[1])]
        elif width < FULL_COLUMNS or height < FULL_LINES:
            line = self._hidden_line()
        else:
            without = self.without | self._vain
            if self.cursor_key() is None:
                without |= OF_A_ROW
            line = footer_line(width, not self.is_empty, without)
        self.query_one("#footer", Lines).show(cut(line, width))

    def _hidden_line(self) -> Line:
        others = len(self.view.blocks) - len(list(self.view.tables_shown()))
        hidden = f"{others} table{'s' if others > 1 else ''} (Tab), cost (7)" if others else "cost (7)"
        roomy = self.size.width >= 60
        keys: list[Piece] = [(" ?", "key"), (" help " if roomy else " ", "dim"), ("q", "key")]
        return [*keys, (" quit " if roomy else " ", "dim"), (f"hidden: {hidden}", "dim")]


def footer_line(width: int, in_table: bool, without: frozenset[str] = frozenset({"hosts"})) -> Line:
    """The keys that matter here. Keys that do not fit are left out: help and palette have them."""
    ids = ["hosts", "quit", "help", "palette", "pause", "filter", "knobs", "snapshot"]
    if in_table:
        ids = ["hosts", "table.open", "investigate", "copy", "snapshot", "filter", "pause", "knobs", "table.sort"]
        ids += ["help", "palette", "quit"]
    least = {"hosts", "quit", "help", "table.open", "pause"}
    labels = [(action_id, actions.get(action_id).label) for action_id in ids if action_id not in without]
    while labels and len(" " + "  ".join(label for _, label in labels)) > width:
        droppable = [pair for pair in labels if pair[0] not in least]
        labels.remove((droppable or labels)[-1])
    pieces: list[Piece] = [(" ", "")]
    for _, label in labels:
        keys, _, word = label.rpartition(" ")
        gap = "  " if len(pieces) > 1 else ""
        pieces += [(f"{gap}{keys}", "key"), (f" {word}", "dim")]
    return pieces


def _cost_lines(scene: Scene, width: int, is_said: bool) -> list[Line]:
    """What the header has no room for, and what deserves a word, in as few lines as that needs."""
    groups = [*([] if is_said else [budget.headline(scene)]), *budget.strip(scene)]
    made: list[list[Piece]] = []
    for group in groups:
        if made and cells(made[-1]) + cells([_JOINT, *group]) <= width:
            made[-1] += [_JOINT, *group]
        elif len(made) < STRIP_LINES:
            made.append([(" cost: " if is_said and not made else " ", "dim"), *group])
    return list(made)


def _wrapped(text: str, width: int) -> list[Line]:
    lines: list[Line] = [[(f" {line}", "")] for line in folded(text, width - 2)] if text else []
    return [[], *lines] if lines else []
