"""The keys on one screen; below them what a pane measures, how, and what it cannot see."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from netconsole.base import figure
from netconsole.probes.manifest import Manifest
from netconsole.tui import actions
from netconsole.tui.widgets.painted import Line

_KEYS_WIDTH, _TITLE_WIDTH = 17, 19
_KEY_COLUMNS = _KEYS_WIDTH + _TITLE_WIDTH + 2
"""Cells of one column of keys."""
_GENERAL: dict[str, str] = {
    "overview": (
        "STANDS OUT ranks what is worth a look: !! act, ! look. What is large appears at once, a small loss when it "
        "lasts. It has ended after five quiet intervals or more. Enter shows the figures behind it. Below it is each "
        "topic in short; the number keys "
        "open it in full. Figures are of the last interval. ≥ is a lower bound (Enter says what was missed), "
        "– is not known. Trends start at zero; their maximum is written beside them."
    ),
    "cost": (
        "What watching costs: kernel time of every BPF program (≈: measured in short windows and scaled up), CPU "
        "and memory of our own processes, bytes sent to the terminal, and the CPU of the whole machine. Percentages "
        "are of one core unless they say machine. 'uncounted' is how much was missed; counts are then a lower "
        "bound. A probe that cannot run says why, and what would help."
    ),
    "events": (
        "Single events that probes in mode details saw. They are samples, with a budget of events per second; the "
        "title says their share. Exact counts are in the other panes. Press e to set mode, filters and budget."
    ),
}


def lines(
    pane: str, missing: str, probes: Sequence[Manifest], keymap: Mapping[str, str], width: int, without: Collection[str]
) -> list[Line]:
    """The help page of a pane: the keys side by side, then its probes, that of the table in front on top.

    ``without``: ids of the actions that cannot be used in this console.
    """
    return [*_keys(keymap, width, without), *_prose(pane, missing, probes)]


def found(
    text: str, pane: str, missing: str, probes: Sequence[Manifest], keymap: Mapping[str, str], without: Collection[str]
) -> list[Line]:
    """Of the help page what contains ``text`` (plain text, in any case): keys with what each does, then paragraphs."""
    needle = text.lower()
    page: list[Line] = [
        [(f" {figure.fit(actions.written(one, keymap), _KEYS_WIDTH)} ", "key"), (f"{one.title}: {one.help}", "")]
        for one in _here(without)
    ]
    page += _prose(pane, missing, probes)
    return [line for line in page if needle in "".join(part for part, _ in line).lower()] or [
        [(f" nothing here contains '{figure.safe(text, 40)}'; Esc shows all", "look")]
    ]


def _prose(pane: str, missing: str, probes: Sequence[Manifest]) -> list[Line]:
    """What the pane shows; of each probe what it measures, how, and what it cannot see."""
    page: list[Line] = [[(f" {_GENERAL[pane]}", "")], []] if pane in _GENERAL else []
    if missing:
        page += [[(f" {missing}", "")], []]
    for manifest in probes:
        points = dict.fromkeys(one.point for program in manifest.programs for one in program.attach[:1])
        how = ", ".join(points) if points else "reads the kernel's own counters once per interval"
        page += [
            [(f" {manifest.title}  ", "strong"), (f"probe {manifest.name}, costs {manifest.cost}", "dim")],
            [("   measures    ", "dim"), (manifest.summary, "")],
            [("   how         ", "dim"), (how, "")],
            [("   cannot see  ", "dim"), (manifest.cannot_see or "nothing known", "")],
        ]
    return [*page, [], [(" To change keys: keys.toml, see docs/reference/keys.md", "dim")]]


def _here(without: Collection[str]) -> list[actions.Hotkey]:
    return [action for action in actions.ACTIONS if action.id not in without and action.scope != "facts"]


def _keys(keymap: Mapping[str, str], width: int, without: Collection[str]) -> list[Line]:
    """The keys in columns, read downwards. What a key does in full, ``/`` and ``:`` say."""
    here = _here(without)
    shown = [action for action in here if not action.id.startswith("pane.")]
    pieces = [(actions.written(action, keymap), action.title) for action in shown]
    panes = [action for action in here if action.id.startswith("pane.")]
    columns = max(1, width // _KEY_COLUMNS)
    height = -(-len(pieces) // columns)
    page: list[Line] = [[(" Keys", "head"), ("  : says what each does, and finds VMs and rows by name", "dim")]]
    for row in range(height):
        line: Line = []
        for keys, title in pieces[row::height]:
            line = [*line, (f" {figure.fit(keys, _KEYS_WIDTH)} ", "key"), (figure.fit(title, _TITLE_WIDTH), "")]
        page.append(line)
    opened = " ".join(f"{actions.written(action, keymap)} {action.title}" for action in panes)
    return [*page, [(" Panes  ", "head"), (opened, "")], []]
