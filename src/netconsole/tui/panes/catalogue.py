"""Which pane shows what, as the probes' manifests say, and what is said where there is nothing to show."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from netconsole.probes.manifest import Manifest, PlaceSpec
from netconsole.telemetry.state import ProbeState
from netconsole.tui.panes import drawn
from netconsole.tui.panes.common import events
from netconsole.tui.panes.common.tables import Block, histogram_block, table_block
from netconsole.tui.panes.cost import budget
from netconsole.tui.panes.cost import pane as cost
from netconsole.tui.panes.drops import balance, places
from netconsole.tui.panes.overview import against_baseline, stands_out
from netconsole.tui.scene.scene import Scene, reason
from netconsole.tui.scene.silent import why_absent, why_no_program


@dataclass(frozen=True)
class PlacedBlock:
    """A block and the short name of its tab. ``lines`` fixes its height; None shares what is left.

    Where none of the probes that it is ``of`` measures, the block is left out; of none: it is always there.
    """

    tab: str
    block: Block
    lines: int | None = None
    of: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pane:
    """A pane: rows of blocks, side by side where there is room.

    ``missing`` is said when no probe of it measures; ``profile`` is one that has its probes.
    """

    name: str
    title: str
    rows: tuple[tuple[PlacedBlock, ...], ...]
    probes: tuple[str, ...]
    missing: str = ""
    profile: str = ""

    @property
    def blocks(self) -> list[PlacedBlock]:
        """All blocks, in reading order."""
        return [placed for row in self.rows for placed in row]


DOCTOR = "'netconsole doctor' says what can run here, and what would help."
STACKED = 4
"""More tables than this are put side by side in pairs ..."""
PAIRED_COLUMNS = 10
"""... unless they have more columns than this."""


def panes(manifests: Mapping[str, Manifest], running: Collection[str]) -> dict[str, Pane]:
    """All panes by name, in the order of their keys. Full panes have the tables of the probes that are ``running``."""
    here = frozenset(running)
    cost_rows = (
        (PlacedBlock("Probes", cost.probes_block()),),
        (PlacedBlock("Programs", cost.programs_block()),),
        (PlacedBlock("Budget", budget.block(), lines=10), PlacedBlock("Processes", cost.processes_block(), lines=10)),
        (PlacedBlock("Actions", cost.actions_block(), lines=5),),
    )
    has_places = any(manifests[name].drop_places for name in here if name in manifests)
    where, against = PlacedBlock("Where", places.block()), PlacedBlock("Balance", balance.block())
    made = [
        _overview(manifests, here),
        _full(
            "vhost",
            "vhost",
            manifests,
            here,
            "No vhost queues: no probe here watches vhost-net.",
            "vhost",
            in_pairs=True,
        ),
        _full(
            "ovs",
            "Open vSwitch",
            manifests,
            here,
            "No Open vSwitch figures: no probe here watches its datapath.",
            "ovs",
        ),
        _full("drops", "Drops", manifests, here, in_pairs=True, first=where, last=against)
        if has_places
        else _full("drops", "Drops", manifests, here),
        _full("queues", "Queues", manifests, here),
        _full("host", "Host", manifests, here),
        Pane("cost", "Cost", cost_rows, ()),
        Pane(
            "events",
            "Events",
            ((PlacedBlock("Incidents", stands_out.log_block()),), (PlacedBlock("Events", events.events_block()),)),
            (),
        ),
        _full(
            "path",
            "Path",
            manifests,
            here,
            "No latency of packets through this host: no probe here times them.",
            "latency",
        ),
        _full("flows", "Flows", manifests, here, "No flows: no probe here lists them.", "flows"),
        _full("disk", "Disk", manifests, here, "No block devices: no probe here watches them.", "disk"),
    ]
    return {pane.name: pane for pane in made}


def left_out(scene: Scene | None, pane: Pane) -> frozenset[str]:
    """Names of the blocks that have nothing to say now: without a baseline, or of what is not on this host."""
    measuring = {name for name, state in scene.state.probes.items() if state.measuring} if scene is not None else set()
    absent = {placed.block.name for placed in pane.blocks if placed.of and not measuring.intersection(placed.of)}
    return frozenset(absent if scene is not None and scene.comparison is not None else {*absent, against_baseline.NAME})


def missing(scene: Scene, pane: Pane) -> str:
    """What is said in place of a pane's tables: why none of its probes fills them; empty when one does.

    Its first probe fills them also while it has seen nothing; of another one that has no row, the pane would be empty.
    """
    if not pane.missing:
        return ""
    states = [scene.state.probes[name] for name in pane.probes if name in scene.state.probes]
    measuring = [state for state in states if state.measuring]
    if any(not state.settled for state in states):
        return ""
    if any(state.name == pane.probes[0] or _has_rows(state) for state in measuring):
        return ""
    told = _refusal([state for state in states if not state.measuring])
    idle = [name for name in pane.probes if name in scene.manifests and name not in scene.state.probes]
    is_live = scene.replay is None
    if idle and not told:
        why = why_no_program(scene, idle[0]) or why_absent(scene, idle[0], pane.profile)
        told = f"{pane.title}: {why}."
    elif idle and is_live:
        told += f" Not tried: {', '.join(idle)}."
    if measuring:
        told += f" {', '.join(state.name for state in measuring)}: nothing so far."
    return f"{told or pane.missing} {DOCTOR}" if is_live else told or pane.missing


def _has_rows(state: ProbeState) -> bool:
    return bool(state.histograms) or any(table.rows for table in state.tables.values())


def _refusal(states: Sequence[ProbeState]) -> str:
    """Why the first one that was refused does not measure; of several for that same cause, the cause alone."""
    refused = [(state, reason(state)) for state in states if reason(state)]
    if not refused:
        return ""
    first, why = refused[0]
    cause = why.partition(";")[0]
    names = [state.name for state, its in refused if (state.status, its.partition(";")[0]) == (first.status, cause)]
    return f"{', '.join(names)} {'are' if names[1:] else 'is'} {first.status}: {cause if names[1:] else why}."


def _overview(manifests: Mapping[str, Manifest], here: Collection[str]) -> Pane:
    """What stands out, then each topic in short; what only some hosts have is left out where nothing measures it."""
    top = (
        (PlacedBlock("Stands out", stands_out.block(), lines=8),),
        (PlacedBlock("Baseline", against_baseline.block(), lines=7),),
    )
    rows, _ = _by_row(_placed(manifests, here, "overview"))
    topics = dict.fromkeys(name for name, place in _places(manifests, "overview") if place.kind != "drawn")
    return Pane("overview", "Overview", (*top, *rows), tuple(topics))


def _full(
    name: str,
    title: str,
    manifests: Mapping[str, Manifest],
    here: Collection[str],
    missing: str = "",
    profile: str = "",
    in_pairs: bool = False,
    first: PlacedBlock | None = None,
    last: PlacedBlock | None = None,
) -> Pane:
    """The rows that manifests number, and below them what they do not: in pairs, if so, or where there is much."""
    top = ((first,),) if first is not None else ()
    rows, below = _by_row(_placed(manifests, here, name))
    below += [last] if last is not None else []
    probes = dict.fromkeys(probe for probe, _ in _places(manifests, name))
    return Pane(
        name, title, (*top, *rows, *(_pairs(below) if in_pairs else _rows(below))), tuple(probes), missing, profile
    )


def _places(manifests: Mapping[str, Manifest], pane: str) -> list[tuple[str, PlaceSpec]]:
    """The places of a pane that manifests name, each with its probe, in order."""
    found = [(name, place) for name, manifest in manifests.items() for place in manifest.panes if place.pane == pane]
    return sorted(found, key=lambda one: (one[1].row or math.inf, one[1].order))


def _placed(
    manifests: Mapping[str, Manifest], here: Collection[str], pane: str
) -> Iterator[tuple[int | None, PlacedBlock]]:
    """The blocks of a pane, each with its row; one that several probes name stands where the first of them has it."""
    places = [(name, place) for name, place in _places(manifests, pane) if name in here or place.always]
    drawn_of: dict[str, list[str]] = {}
    for name, place in places:
        if place.kind == "drawn":
            drawn_of.setdefault(place.name, []).append(name)
    for name, place in places:
        probes = drawn_of[place.name] if place.kind == "drawn" else [name]
        if name == probes[0]:
            of = tuple(probes) if pane == "overview" and not place.always else ()
            for tab, block in _blocks(manifests[name], place, probes):
                yield place.row, PlacedBlock(tab, block, place.lines, of)


def _blocks(manifest: Manifest, place: PlaceSpec, probes: Sequence[str]) -> list[tuple[str, Block]]:
    """What stands in a place, with the tab of each."""
    if place.kind == "drawn":
        return [(place.tab, drawn.BLOCKS[place.name](probes))]
    if place.kind == "table":
        return [(place.tab, table_block(manifest, place.name, brief=place.pane == "overview"))]
    if place.kind == "histogram":
        return [(place.tab, histogram_block(manifest, place.name))]
    names = [(name, table_block) for name in manifest.tables] + [
        (name, histogram_block) for name in manifest.histograms
    ]
    return [
        (f"{place.tab}: {name.replace('_', ' ')}" if names[1:] else place.tab, block(manifest, name))
        for name, block in names
    ]


def _by_row(
    placed: Iterable[tuple[int | None, PlacedBlock]],
) -> tuple[list[tuple[PlacedBlock, ...]], list[PlacedBlock]]:
    """The rows that have a number, and what has none."""
    rows: dict[int, list[PlacedBlock]] = {}
    below = []
    for row, one in placed:
        if row is None:
            below.append(one)
        else:
            rows.setdefault(row, []).append(one)
    return [tuple(row) for row in rows.values()], below


def _rows(placed: Sequence[PlacedBlock]) -> tuple[tuple[PlacedBlock, ...], ...]:
    """One table below the other; in pairs where there are many, but for those of many columns."""
    if len(placed) <= STACKED:
        return tuple((one,) for one in placed)
    narrow = [one for one in placed if len(one.block.columns) <= PAIRED_COLUMNS]
    return (*_pairs(narrow), *((one,) for one in placed if one not in narrow))


def _pairs(placed: Sequence[PlacedBlock]) -> tuple[tuple[PlacedBlock, ...], ...]:
    return tuple(tuple(placed[at : at + 2]) for at in range(0, len(placed), 2))
