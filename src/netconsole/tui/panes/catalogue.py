"""Which pane shows which tables, and what is said where there is nothing to show."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from netconsole.base import figure
from netconsole.probes.manifest import Manifest
from netconsole.telemetry.state import ProbeState
from netconsole.tui.panes.common import events
from netconsole.tui.panes.common.tables import Block, histogram_block, table_block
from netconsole.tui.panes.cost import budget
from netconsole.tui.panes.cost import pane as cost
from netconsole.tui.panes.overview import against_baseline, stands_out
from netconsole.tui.panes.ovs import pane as ovs
from netconsole.tui.panes.ovs.datapaths import DROPS, FLOWS, UPCALLS
from netconsole.tui.panes.path import pane as path
from netconsole.tui.panes.path.directions import HOST, LOCAL
from netconsole.tui.panes.vhost import pane as vhost
from netconsole.tui.panes.vhost.queues import RINGS, VHOST
from netconsole.tui.scene.scene import Scene, reason


@dataclass(frozen=True)
class Placed:
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
    rows: tuple[tuple[Placed, ...], ...]
    probes: tuple[str, ...]
    missing: str = ""
    profile: str = ""

    @property
    def blocks(self) -> list[Placed]:
        """All blocks, in reading order."""
        return [placed for row in self.rows for placed in row]


_TABS = {
    "kernel_drops": "Drops",
    "tx_queue_latency": "Queues",
    "softirq_health": "Softirq",
    "socket_drops": "Sockets",
    "link_rates": "Links",
    "socket_groups": "Groups",
    "softnet": "Softnet",
}
_OVERVIEW = (("kernel_drops", "tx_queue_latency"), ("socket_drops", "softirq_health"), ("link_rates",))
"""The topics of every host; what only a hypervisor has stands behind the first two."""
_FULL = {
    "drops": ("kernel_drops", "socket_drops", "socket_groups"),
    "queues": ("tx_queue_latency", "link_rates"),
    "host": ("softirq_health", "softnet", "socket_groups", "link_rates"),
}
_VHOST = ("vhost_queues", "tun_queues", "irq_path", "tx_kick_path", "kvm_irqs", "virtio_guest")
_VHOST_BLOCKS = (
    ("Workers", "vhost_queues", "workers"),
    ("Tap → irq", "irq_path", "stages"),
    ("Kick → host", "tx_kick_path", "stages"),
    ("Lines", "kvm_irqs", "lines"),
    ("vCPUs", "kvm_irqs", "vcpus"),
    ("In this guest", "virtio_guest", "queues"),
)
"""Tab, probe, and table or histogram."""
_OVS = (FLOWS, UPCALLS, DROPS)
_PATH = (HOST, LOCAL)
DOCTOR = "'netconsole doctor' says what can run here, and what would help."
STACKED = 4
"""More tables than this are put side by side in pairs ..."""
PAIRED_COLUMNS = 10
"""... unless they have more columns than this."""

HEALTH_LINES, WAY_LINES = 6, 13
"""Of the tables on top of the panes OVS and Path: a few datapaths; two directions of four stages."""

VHOST_MISSING = "No vhost queues: no probe here watches vhost-net."
OVS_MISSING = "No Open vSwitch figures: no probe here watches its datapath."
PATH_MISSING = "No latency of packets through this host: no probe here times them."


def panes(manifests: Mapping[str, Manifest], running: Collection[str]) -> dict[str, Pane]:
    """All panes by name, in the order of their keys. Full panes have the tables of the probes that are ``running``."""
    here = {name: manifest for name, manifest in manifests.items() if name in running}
    other = [name for name in manifests if name not in {*_TABS, "self_cost", *_VHOST, *_OVS, *_PATH}]
    cost_rows = (
        (Placed("Probes", cost.probes_block()),),
        (Placed("Programs", cost.programs_block()),),
        (Placed("Budget", budget.block(), lines=10), Placed("Processes", cost.processes_block(), lines=10)),
        (Placed("Actions", cost.actions_block(), lines=5),),
    )
    made = [
        _overview(manifests, here),
        _vhost([name for name in _VHOST if name in manifests], here),
        _ovs([name for name in _OVS if name in manifests], here),
        _full("drops", "Drops", _FULL["drops"], here),
        _full("queues", "Queues", _FULL["queues"], here),
        _full("host", "Host", (*_FULL["host"], *other), here),
        Pane("cost", "Cost", cost_rows, ()),
        Pane(
            "events",
            "Events",
            ((Placed("Incidents", stands_out.log_block()),), (Placed("Events", events.events_block()),)),
            (),
        ),
        _path([name for name in _PATH if name in manifests], here),
    ]
    return {pane.name: pane for pane in made}


def left_out(scene: Scene | None, pane: Pane) -> frozenset[str]:
    """Names of the blocks that have nothing to say now: without a baseline, or of what is not on this host."""
    measuring = {name for name, state in scene.state.probes.items() if state.measuring} if scene is not None else set()
    absent = {placed.block.name for placed in pane.blocks if placed.of and not measuring.intersection(placed.of)}
    return frozenset(absent if scene is not None and scene.against is not None else {*absent, against_baseline.NAME})


def missing(scene: Scene, pane: Pane) -> str:
    """What is said in place of a pane's tables: why none of its probes measures here; empty when one does."""
    if not pane.missing:
        return ""
    states = [scene.state.probes[name] for name in pane.probes if name in scene.state.probes]
    if any(state.measuring or not state.settled for state in states):
        return ""
    told = _refusal(states)
    idle = [name for name in pane.probes if name in scene.manifests and name not in scene.state.probes]
    if idle and not told:
        way_in = f"--profile {pane.profile}" if pane.profile else f"--probe {idle[0]}"
        told = f"{pane.title}: not in profile {figure.safe(scene.profile.name)}; start with {way_in}."
    elif idle:
        told += f" Not tried: {', '.join(idle)} (--probe {idle[0]})."
    return f"{told or pane.missing} {DOCTOR}"


def _refusal(states: Sequence[ProbeState]) -> str:
    """Why the first one that was refused does not measure; of several for that same cause, the cause alone."""
    refused = [(state, reason(state)) for state in states if reason(state)]
    if not refused:
        return ""
    first, why = refused[0]
    cause = why.partition(";")[0]
    names = [state.name for state, its in refused if (state.status, its.partition(";")[0]) == (first.status, cause)]
    return f"{', '.join(names)} {'are' if names[1:] else 'is'} {first.status}: {cause if names[1:] else why}."


def blocks_of(manifest: Manifest) -> list[Block]:
    """Every table and histogram of a probe; histograms of a latency probe say more, so they come first."""
    tables = [table_block(manifest, name) for name in manifest.tables]
    histograms = [histogram_block(manifest, name) for name in manifest.histograms]
    return [*histograms, *tables] if "latency" in manifest.name else [*tables, *histograms]


def _overview(manifests: Mapping[str, Manifest], here: Mapping[str, Manifest]) -> Pane:
    """What stands out, then each topic in short; virtual machines and the switch where there are any."""
    first, *others = (
        [Placed(_TABS[name], blocks_of(manifests[name])[0]) for name in names if name in manifests]
        for names in _OVERVIEW
    )
    queues = [Placed("vhost", vhost.block(), of=(VHOST, RINGS))] if VHOST in here or RINGS in here else []
    switch = [Placed("OVS", ovs.health_block(name), of=(FLOWS, UPCALLS)) for name in (FLOWS, UPCALLS) if name in here]
    ways = [Placed("Path", path.ways_block(name), of=_PATH) for name in _PATH if name in here]
    others[-1] += ways[:1]
    below = [tuple(row) for row in (first, [*queues, *switch[:1]], *others) if row]
    top = (
        (Placed("Stands out", stands_out.block(), lines=8),),
        (Placed("Baseline", against_baseline.block(), lines=7),),
    )
    rows = [*top, *below]
    return Pane("overview", "Overview", tuple(rows), tuple(name for names in _OVERVIEW for name in names))


def _full(name: str, title: str, probes: Sequence[str], manifests: Mapping[str, Manifest], missing: str = "") -> Pane:
    present = [probe for probe in probes if probe in manifests]
    found = [(probe, block) for probe in present for block in blocks_of(manifests[probe])]
    placed = [Placed(_tab(probe, block, found), block) for probe, block in found]
    return Pane(name, title, _rows(placed), tuple(probes), missing)


def _vhost(probes: Sequence[str], manifests: Mapping[str, Manifest]) -> Pane:
    """All queues in one table, and below it what belongs to workers, stages and virtual CPUs."""
    rows: list[tuple[Placed, ...]] = []
    if VHOST in manifests or RINGS in manifests:
        rows.append((Placed("All queues", vhost.block()),))
    more = []
    for tab, probe, name in _VHOST_BLOCKS:
        if probe in manifests:
            manifest = manifests[probe]
            block = table_block if name in manifest.tables else histogram_block
            more.append(Placed(tab, block(manifest, name)))
    rows += [tuple(more[at : at + 2]) for at in range(0, len(more), 2)]
    return Pane("vhost", "vhost", tuple(rows), tuple(probes), VHOST_MISSING, "vhost")


def _ovs(probes: Sequence[str], manifests: Mapping[str, Manifest]) -> Pane:
    """Health on top, upcalls by port, then what is dropped and who asks; last the threads and ports behind it."""
    rows: list[tuple[Placed, ...]] = []
    if FLOWS in manifests or UPCALLS in manifests:
        known = FLOWS if FLOWS in manifests else UPCALLS
        rows.append((Placed("Health", ovs.health_block(known), lines=HEALTH_LINES),))
    drops = [Placed("Drops", ovs.drops_block())] if DROPS in manifests else []
    ports = [Placed("Ports", table_block(manifests[FLOWS], "ports"))] if FLOWS in manifests else []
    if UPCALLS in manifests:
        rows.append((Placed("Upcalls", ovs.ports_block()),))
        rows.append((*drops, Placed("Causes", ovs.causes_block())))
        rows.append((Placed("Handlers", ovs.handlers_block()), *ports))
    else:
        rows += [tuple(placed) for placed in (drops, ports) if placed]
    return Pane("ovs", "Open vSwitch", tuple(rows), tuple(probes), OVS_MISSING, "ovs")


def _path(probes: Sequence[str], manifests: Mapping[str, Manifest]) -> Pane:
    """Directions with their stages on top, then devices, flows and the slow packets of both path probes."""
    running = [name for name in _PATH if name in manifests]
    rows: tuple[tuple[Placed, ...], ...] = ()
    if running:
        blocks = (
            Placed("Devices", path.devices_block(running[0])),
            Placed("Flows", path.flows_block(running[0])),
            Placed("Slow packets", path.slow_block()),
        )
        first = Placed("Ways", path.ways_block(running[0]), lines=WAY_LINES)
        rows = ((first,), *((block,) for block in blocks))
    return Pane("path", "Path", rows, tuple(probes), PATH_MISSING, "latency")


def _rows(placed: Sequence[Placed]) -> tuple[tuple[Placed, ...], ...]:
    """One table below the other; in pairs where there are many, but for those of many columns."""
    if len(placed) <= STACKED:
        return tuple((one,) for one in placed)
    narrow = [one for one in placed if len(one.block.columns) <= PAIRED_COLUMNS]
    pairs = [tuple(narrow[at : at + 2]) for at in range(0, len(narrow), 2)]
    return (*pairs, *((one,) for one in placed if one not in narrow))


def _tab(probe: str, block: Block, found: list[tuple[str, Block]]) -> str:
    short = _TABS.get(probe, probe.replace("_", " "))
    if sum(other == probe for other, _ in found) == 1:
        return short
    return f"{short}: {block.name.removeprefix(probe + '-').replace('_', ' ')}"
