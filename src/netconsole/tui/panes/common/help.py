"""What a pane measures, how, and what it cannot see: ten lines, then the keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from netconsole.probes.manifest import Manifest
from netconsole.tui import actions
from netconsole.tui.widgets.painted import Line

_GENERAL: dict[str, str] = {
    "overview": (
        "STANDS OUT ranks what is worth looking at: !! act, ! look. A finding appears after two intervals and "
        "leaves after five quiet ones. Enter opens its evidence. Below it, each topic in short; the number keys "
        "open it in full. Figures are of the last interval; ≥ marks one with losses behind it (Enter says which), "
        "– one that is not known. Sparklines begin at zero, their maximum is written beside them."
    ),
    "cost": (
        "What watching costs: time of every BPF program in the kernel (measured in sampling windows and scaled up, "
        "marked ≈), CPU and memory of our own processes, what went to the terminal, beside the whole machine's CPU. "
        "Percentages are of one core unless they say machine. 'uncounted' are ledger entries that make counts a "
        "lower bound. A probe that cannot run says why, and what would help."
    ),
    "events": (
        "Samples, within a budget of events a second, of what probes in mode details saw; the exact counts are in the "
        "other panes. The title says what share was seen. Press e to set a probe's mode, filters and budget."
    ),
}


def lines(pane: str, missing: str, probes: Sequence[Manifest], keymap: Mapping[str, str]) -> list[Line]:
    """The help page of a pane: its probes first, that of the table in front on top."""
    page: list[Line] = [[(f" {_GENERAL[pane]}", "")]] if pane in _GENERAL else []
    if missing:
        page.append([(f" {missing}", "")])
    for manifest in probes:
        points = dict.fromkeys(one.point for program in manifest.programs for one in program.attach[:1])
        how = ", ".join(points) if points else "read from the kernel's own counters once an interval"
        page += [
            [(f" {manifest.title}  ", "strong"), (f"probe {manifest.name}, costs {manifest.cost}", "dim")],
            [("   measures    ", "dim"), (manifest.summary, "")],
            [("   how         ", "dim"), (how, "")],
            [("   cannot see  ", "dim"), (manifest.cannot_see or "nothing that is known", "")],
        ]
    page += [[], [(" Keys", "head")]]
    for action in actions.ACTIONS:
        keys = actions.written(action, keymap)
        page.append([(f"   {keys:<17}", "key"), (f"{action.title:<22}", ""), (action.help, "dim")])
    page += [[], [("   To change keys: keys.toml, see docs/use/console.md", "dim")]]
    return page
