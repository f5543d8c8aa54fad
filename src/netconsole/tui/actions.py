"""The list of all actions with their keys. Bindings, command palette, help and keys file are made from it.

Users can change keys in ``$XDG_CONFIG_HOME/netconsole/keys.toml``::

    [keys]
    pause = "space"
    "table.reverse" = "R,ctrl+r"
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from textual.binding import Binding

from netconsole.base import paths
from netconsole.base.checker import close
from netconsole.base.errors import BadInput, Problem, bad
from netconsole.base.readers import read_toml, stat_of

Scope: TypeAlias = Literal["app", "main", "table", "over", "facts", "replay"]
"""Where a key works: everywhere, on the main screen, in a table, on a page above it, in facts and help, in a replay."""


@dataclass(frozen=True)
class Hotkey:
    """An action with its keys. ``keys`` has Textual's names with commas between them. ``call`` is the method call."""

    id: str
    keys: str
    title: str
    help: str
    call: str
    scope: Scope = "app"
    label: str = ""
    """Its text in the footer. Empty: the footer does not have it."""


ACTIONS: tuple[Hotkey, ...] = (
    Hotkey("pane.1", "1", "Overview", "what stands out, then every topic in short", "pane('overview')", "main"),
    Hotkey("pane.2", "2", "vhost", "vhost queues", "pane('vhost')", "main"),
    Hotkey("pane.3", "3", "OVS", "Open vSwitch", "pane('ovs')", "main"),
    Hotkey("pane.4", "4", "Drops", "dropped packets by reason and place; socket drops", "pane('drops')", "main"),
    Hotkey("pane.5", "5", "Queues", "how long packets wait in transmit queues", "pane('queues')", "main"),
    Hotkey("pane.6", "6", "Host", "softirqs, sockets and links", "pane('host')", "main"),
    Hotkey("pane.7", "7", "Cost", "what watching costs, and the state of every probe", "pane('cost')", "main"),
    Hotkey("pane.8", "8", "Events", "all incidents since the start; samples of events", "pane('events')", "main"),
    Hotkey("pane.9", "9", "Path", "how long packets take, by direction, stage and flow", "pane('path')", "main"),
    Hotkey("pane.10", "0", "Flows", "who sends most, by device and direction", "pane('flows')", "main"),
    Hotkey("pane.11", "d", "Disk", "who asks block devices for what, and how long they take", "pane('disk')", "main"),
    Hotkey("next", "tab,right", "Next table", "go to the next table or tab", "next_table(1)", "main"),
    Hotkey("previous", "shift+tab,left", "Previous table", "go to the previous table or tab", "next_table(-1)", "main"),
    Hotkey("filter", "slash", "Filter", "only rows with a text, in all tables; Esc: all", "filter", "main", "/ filter"),
    Hotkey("unfilter", "escape", "Show all", "remove the filter; again: the scope", "unfilter", "main"),
    Hotkey("maximise", "z", "Maximise", "this table alone; again: all of them", "maximise", "main"),
    Hotkey("columns", "c", "Columns", "choose the columns of this table", "columns", "main"),
    Hotkey("hosts", "h,backspace", "Hosts", "back to all hosts; also Esc", "app.hosts", "main", "Esc hosts"),
    Hotkey("knobs", "e", "Edit knobs", "change filters, budget and mode of a probe", "app.knobs", "main", "e knobs"),
    Hotkey("pin", "u", "Undo, pin", "take back what the budget reduced; again: unpin", "app.pin", "main"),
    Hotkey("table.up", "up,k", "Up", "one row up", "cursor(-1)", "table"),
    Hotkey("table.down", "down,j", "Down", "one row down", "cursor(1)", "table"),
    Hotkey("table.page_up", "pageup", "Page up", "one page up", "page(-1)", "table"),
    Hotkey("table.page_down", "pagedown", "Page down", "one page down", "page(1)", "table"),
    Hotkey("table.first", "home,g", "First row", "go to the first row", "edge(-1)", "table"),
    Hotkey("table.last", "end,G", "Last row", "go to the last row", "edge(1)", "table"),
    Hotkey("table.open", "enter", "Details", "history, histogram, losses, advice", "open", "table", "Enter details"),
    Hotkey("start", "enter", "Start", "start the probe of an empty pane for ten minutes", "app.start", "main"),
    Hotkey("table.sort", "greater_than_sign,o", "Sort", "sort by the next column", "sort(1)", "table", "< > sort"),
    Hotkey("table.sort_back", "less_than_sign", "Sort back", "sort by the previous column", "sort(-1)", "table"),
    Hotkey("table.reverse", "r", "Reverse", "reverse the order", "reverse", "table", "r reverse"),
    Hotkey("table.keep", "asterisk", "Keep on top", "this row stays on top; again: no longer", "keep", "table"),
    Hotkey("facts", "f", "Facts", "how the host is configured, and where that was read", "app.facts", "main"),
    Hotkey("baseline", "b", "Baseline", "compare every figure with a baseline", "app.baseline", "main"),
    Hotkey("ping", "l", "Ping", "where the time of a ping between two VMs goes", "app.ping", "main"),
    Hotkey("facts.filter", "slash", "Search", "in facts and help: only what has a text; Esc: all", "filter", "facts"),
    Hotkey("over.back", "escape,backspace,q", "Back", "go back to where you were", "back", "over", "Esc back"),
    Hotkey("investigate", "i", "Investigate", "30 s of samples of this row alone; again: stop", "investigate",
           label="i investigate"),
    Hotkey("run", "x", "Run", "show the commands that a finding advises; again: run them, they only read", "run"),
    Hotkey("chart", "Z", "Chart", "the history of this row over the screen; again: with the row before", "chart"),
    Hotkey("glance", "a", "At a glance", "a cell for each queue of a VM, port, PMD thread and disk", "glance"),
    Hotkey("vm", "v", "VM", "the VM of this row on one page, and what caps it", "vm"),
    Hotkey("copy", "y", "Copy", "a command, the finding or the row (OSC 52); again: the next", "copy", label="y copy"),
    Hotkey("pause", "p,space", "Pause", "hold the order of rows, then the screen", "pause", label="p pause"),
    Hotkey("snapshot", "s", "Snapshot", "measure and write a file for a ticket", "app.snapshot", "main", "s snapshot"),
    Hotkey("screenshot", "S", "Screenshot", "write this screen as SVG to a file", "screenshot"),
    Hotkey("record", "w", "Record", "record to a file from now on; again: stop", "record"),
    Hotkey("replay.on", "full_stop", "Step forward", "one interval forward; live: up to now", "step(1)"),
    Hotkey("replay.back", "comma", "Step back", "one interval back; live: in memory; Esc: now", "step(-1)"),
    Hotkey("replay.forward", "right_square_bracket", "10 s forward", "ten seconds forward", "jump_by(10)"),
    Hotkey("replay.rewind", "left_square_bracket", "10 s back", "ten seconds back", "jump_by(-10)"),
    Hotkey("replay.far_forward", "right_curly_bracket", "1 min forward", "one minute forward", "jump_by(60)"),
    Hotkey("replay.far_rewind", "left_curly_bracket", "1 min back", "one minute back", "jump_by(-60)"),
    Hotkey("replay.faster", "plus,equals_sign", "Faster", "the next speed up", "speed(1)", "replay"),
    Hotkey("replay.slower", "minus", "Slower", "the next speed down", "speed(-1)", "replay"),
    Hotkey("replay.time", "t", "Go to a time", "by time of day, from the beginning or from here", "time", "replay"),
    Hotkey("replay.since", "m", "Mark", "the next snapshot (s) starts at this moment", "since", "replay"),
    Hotkey("help", "question_mark,f1", "Help", "what is measured, how, and what is not seen", "help", label="? help"),
    Hotkey("palette", "colon,ctrl+p", "Find", "go to a VM, a row, a pane or an action by name", "find", label=": find"),
    Hotkey("suspend", "ctrl+z", "Suspend", "back to the shell; probes count on; fg comes back", "suspend_process"),
    Hotkey("quit", "q,ctrl+c", "Quit", "end; every probe is removed. On a page, q goes back", "leave", label="q quit"),
)  # fmt: skip

_BY_ID = {action.id: action for action in ACTIONS}


def get(action_id: str) -> Hotkey:
    """The action of an id. Raises KeyError."""
    return _BY_ID[action_id]


def bindings(scope: Scope) -> Iterator[Binding]:
    """Textual's bindings of a scope. Their ids allow a keymap to change them."""
    for action in ACTIONS:
        if action.scope == scope:
            yield Binding(action.keys, action.call, action.title, show=False, id=action.id)


def written(action: Hotkey, keymap: Mapping[str, str]) -> str:
    """The keys of an action as people write them: ``p, space``."""
    return ", ".join(
        _NAMES.get(key, key if len(key) == 1 else key.capitalize())
        for key in keymap.get(action.id, action.keys).split(",")
    )


_NAMES = {
    "question_mark": "?",
    "slash": "/",
    "full_stop": ".",
    "comma": ",",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "plus": "+",
    "equals_sign": "=",
    "minus": "-",
    "colon": ":",
    "asterisk": "*",
    "greater_than_sign": ">",
    "less_than_sign": "<",
    "escape": "Esc",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "shift+tab": "Shift-Tab",
    "ctrl+c": "Ctrl-C",
    "ctrl+p": "Ctrl-P",
    "ctrl+z": "Ctrl-Z",
}
"""Keys that people write in another way than Textual. All others get a capital letter."""


def load_keys(path: Path | None = None) -> dict[str, str]:
    """The keymap of a keys file, by default the user's. Empty without a file. Raises BadInput with all mistakes."""
    path = paths.user_config() / "keys.toml" if path is None else path
    if stat_of(path) is None:
        return {}
    document = read_toml(path)
    table = document.get("keys")
    if not isinstance(table, dict) or set(document) != {"keys"}:
        raise bad(path, "", 'expected one section [keys] of lines such as pause = "p"')
    problems = []
    keymap: dict[str, str] = {}
    for name, keys in _flat(table):
        if name not in _BY_ID:
            problems.append(Problem(str(path), f"keys.{name}", f"unknown action{_near(name)}"))
        elif not isinstance(keys, str) or not all(key.strip() for key in keys.split(",")):
            problems.append(
                Problem(str(path), f"keys.{name}", 'expected a key such as "p", or several as in "p,space"')
            )
        else:
            keymap[name] = ",".join(key.strip() for key in keys.split(","))
    problems += [Problem(str(path), f"keys.{name}", message) for name, message in _clashes(keymap)]
    if problems:
        raise BadInput(problems)
    return keymap


def _near(name: str) -> str:
    """What may be meant: a pane by its name, else an id that is close."""
    panes = {f"pane.{one.title.lower()}": one for one in ACTIONS if one.id.startswith("pane.")}
    found = difflib.get_close_matches(name.lower()[:64], panes, n=1, cutoff=0.7) if name.startswith("pane.") else []
    return f'; did you mean "{panes[found[0]].id}" ({panes[found[0]].title})?' if found else close(name, _BY_ID)


def _flat(table: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Keys by their whole names. TOML reads ``pane.1 = "f2"`` without quotes as a nested table."""
    for name, value in table.items():
        if isinstance(value, dict):
            for rest, inner in _flat(value):
                yield f"{name}.{rest}", inner
        else:
            yield name, value


_NEVER_TOGETHER: tuple[set[Scope], ...] = ({"main", "over"}, {"main", "facts"})
"""Scopes of screens that are never in front at the same time."""

_ONE_MEANING = ({"quit", "over.back"}, {"table.open", "start"})
"""Actions that may share a key: it leaves a page or the console, it opens a row or what a pane without rows lacks."""


def _clashes(keymap: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Keys that belong to two actions that can be active at the same time."""
    taken: dict[str, Hotkey] = {}
    for action in ACTIONS:
        for key in keymap.get(action.id, action.keys).split(","):
            other = taken.setdefault(key, action)
            shared = {other.scope, action.scope} in _NEVER_TOGETHER or {other.id, action.id} in _ONE_MEANING
            if other is not action and not shared:
                yield action.id, f"'{key}' already belongs to '{other.id}'; give one of them another key"
