"""Which actions can run here and now, and in which order they are listed."""

from __future__ import annotations

from collections.abc import Collection

from textual.screen import Screen

from netconsole.tui import actions, row_keys
from netconsole.tui.host_view import WatchedHost
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.screens.pages.detail import DetailScreen
from netconsole.tui.screens.pages.help import HelpScreen

_BY_KEY_ALONE = frozenset(
    {
        "palette",
        "next",
        "previous",
        *(f"table.{move}" for move in ("up", "down", "page_up", "page_down", "first", "last")),
    }
)
"""Actions that mean nothing in a list: it is open already, and Tab or an arrow is shorter."""
_IN_TIME = frozenset(f"replay.{move}" for move in ("on", "back", "forward", "rewind", "far_forward", "far_rewind"))
_OF_A_ROW = frozenset({"investigate", "run", "vm", "chart", "copy", "filter", "columns"})


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
        found |= {action.id for action in actions.ACTIONS if action.scope in ("main", "table")}
    table = main.table()
    if table is None:
        found |= {"filter", "columns", *(action.id for action in actions.ACTIONS if action.scope == "table")}
    if (table is None or not table.filter) and main.scope is None:
        found.add("unfilter")
    if watched.session.kind != "recorded" and not watched.rewinding.remembers:
        found |= _IN_TIME
    if len(main.view.blocks) < 2:
        found.add("maximise")
    if subject is None:
        found |= {"investigate", "copy", "chart"}
    elif watched.investigator is None or isinstance(row_keys.investigable(scene, subject), str):
        found.add("investigate")
    if subject is None or not row_keys.runnable(scene, subject):
        found.add("run")
    if not main.is_empty:
        found.add("start")
    if watched.read_facts is None:
        found.add("facts")
    if not has_knobs:
        found.add("knobs")
    if watched.pinnable(main.probe()) is None:
        found.add("pin")
    if isinstance(screen, HelpScreen):
        found.add("help")
    return frozenset(found)


def rank(action: actions.Hotkey) -> int:
    """Where an action stands among all: those of the row and its table first, panes last."""
    return 2 if action.id.startswith("pane.") else 0 if action.scope == "table" or action.id in _OF_A_ROW else 1
