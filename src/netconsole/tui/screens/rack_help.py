"""The help of the rack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from netconsole.tui import actions
from netconsole.tui.scene.scene import Scene
from netconsole.tui.screens.over import OverScreen
from netconsole.tui.widgets.painted import Line

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
_KEYS = ("table.open", "next", "table.sort", "table.reverse", "screenshot", "palette", "help", "quit")


class RackHelpScreen(OverScreen):
    """See the module."""

    def __init__(self, keymap: Mapping[str, str]) -> None:
        super().__init__()
        self._keymap = keymap

    def page(self, _scene: Scene, _width: int) -> Sequence[Line]:
        page: list[Line] = [[(" One line for each host. Enter opens its console, Esc comes back here.", "")], []]
        page += [[(f"   {name:<10}", "key"), (what, "")] for name, what in _COLUMNS]
        page += [[], [(" Keys", "head")]]
        for action in map(actions.get, _KEYS):
            keys = actions.written(action, self._keymap)
            page.append([(f"   {keys:<17}", "key"), (f"{action.title:<22}", ""), (action.help, "dim")])
        return page
