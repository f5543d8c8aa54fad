"""The help page of the pane in front."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Input

from netconsole.probes.manifest import Manifest
from netconsole.tui import actions
from netconsole.tui.panes.catalogue import Pane
from netconsole.tui.panes.common import help as help_pane
from netconsole.tui.scene.scene import Scene
from netconsole.tui.screens.pages.text_page import OverScreen
from netconsole.tui.widgets.painted import Line


class HelpScreen(OverScreen):
    """The keys, then what the pane measures, how, and what it cannot see. ``/`` searches in it."""

    BINDINGS: ClassVar[list[BindingType]] = list(actions.bindings("facts"))

    def __init__(
        self,
        pane: Pane,
        manifests: Mapping[str, Manifest],
        probe: str | None,
        keymap: Mapping[str, str],
        without: Collection[str],
        missing: str,
    ) -> None:
        """``without``: ids of the actions that cannot be used in this console; ``missing``: why the pane is empty."""
        super().__init__()
        names = [name for name in pane.probes if name in manifests] if probe is None else [probe]
        self._of = pane.name, missing, [manifests[name] for name in names], keymap
        self._without = without
        self._text = ""

    def compose(self) -> ComposeResult:
        yield from super().compose()
        box = Input(id="filter", compact=True, placeholder="search in this page…")
        box.display = False
        yield box

    def keys(self) -> Line:
        return [(" /", "key"), (" search ", "dim"), *super().keys()]

    def page(self, scene: Scene, width: int) -> Sequence[Line]:
        if self._text:
            return help_pane.found(self._text, *self._of, self._without)
        return help_pane.lines(*self._of, width, self._without)

    def action_filter(self) -> None:
        box = self.query_one("#filter", Input)
        box.display = True
        self.set_focus(box)

    def action_back(self) -> None:
        """Shows all again; when all is shown, closes the page."""
        if self._text:
            self.query_one("#filter", Input).value = ""
        else:
            self.dismiss()

    @on(Input.Changed, "#filter")
    async def _searched(self, event: Input.Changed) -> None:
        self._text = event.value
        self.top()
        await self.app.run_action("redraw")

    @on(Input.Submitted, "#filter")
    def _search_done(self) -> None:
        self.query_one("#filter").display = False
        self.set_focus(self.query_one("#page"))

    def on_key(self, event: events.Key | None = None) -> None:
        if event is not None and event.key == "escape" and isinstance(self.focused, Input):
            event.stop()
            event.prevent_default()
            self.query_one("#filter", Input).value = ""
            self._search_done()
