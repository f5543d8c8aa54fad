"""What the command palette offers: the actions that can run here and now, each with its keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from textual.screen import Screen

from netconsole.tui import actions, row_keys
from netconsole.tui.host_view import WatchedHost
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.screens.detail import DetailScreen
from netconsole.tui.screens.help import HelpScreen

_BY_KEY_ALONE = frozenset({"palette", "next", "previous"})
"""Actions that mean nothing in a list: it is open already, and Tab is shorter."""


def outside(scopes: Collection[actions.Scope]) -> frozenset[str]:
    """Ids of the actions that this console never has: those of a replay, in a live session."""
    return frozenset(action.id for action in actions.ACTIONS if action.scope == "replay" and "replay" not in scopes)


def impossible(
    watched: WatchedHost, scene: Scene, subject: Subject | None, screen: Screen[object], has_knobs: bool
) -> frozenset[str]:
    """Ids of the actions that would do nothing now. ``subject`` is the row that ``screen``, the one in front, is on.

    The session's state is held for ``scene``: nothing here may ask the session for it again.
    """
    main = watched.main
    found = {*_BY_KEY_ALONE, *main.without}
    if screen is not main and not isinstance(screen, DetailScreen):
        found |= {action.id for action in actions.ACTIONS if action.scope == "main"}
    table = main.table()
    if table is None:
        found |= {"filter", "columns"}
    if table is None or not table.filter:
        found.add("unfilter")
    if len(main.view.blocks) < 2:
        found.add("maximise")
    if subject is None:
        found |= {"investigate", "copy"}
    elif watched.investigator is None or isinstance(row_keys.investigable(scene, subject), str):
        found.add("investigate")
    if watched.read_facts is None:
        found.add("facts")
    if not has_knobs:
        found.add("knobs")
    if watched.pinnable(main.probe()) is None:
        found.add("pin")
    if isinstance(screen, HelpScreen):
        found.add("help")
    return frozenset(found)


def entry(action: actions.Hotkey, keymap: Mapping[str, str]) -> str:
    """The text of an action in the palette: what it does, and its keys."""
    return f"{action.title}  {actions.written(action, keymap)}"
