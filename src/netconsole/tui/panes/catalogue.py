"""Which pane shows which tables, and what is said where there is nothing to show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from netconsole.probes import Manifest
from netconsole.tui.panes import cost, events, standsout
from netconsole.tui.panes.tables import Block, histogram_block, table_block


@dataclass(frozen=True)
class Placed:
    """A block and the short name of its tab. ``lines`` fixes its height; None shares what is left."""

    tab: str
    block: Block
    lines: int | None = None


@dataclass(frozen=True)
class Pane:
    """A pane: rows of blocks, side by side where there is room. ``missing`` stands in for a pane without any."""

    name: str
    title: str
    rows: tuple[tuple[Placed, ...], ...]
    probes: tuple[str, ...]
    missing: str = ""

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
_FULL = {
    "drops": ("kernel_drops", "socket_drops", "socket_groups"),
    "queues": ("tx_queue_latency", "link_rates"),
    "host": ("softirq_health", "softnet", "socket_drops", "socket_groups", "link_rates"),
}
VHOST_MISSING = (
    "No vhost queues are shown: none of this version's probes watches vhost-net. "
    "'netconsole doctor' says what this host can show."
)
OVS_MISSING = (
    "No Open vSwitch figures are shown: none of this version's probes watches its upcalls or flows; its drops "
    "are in pane 4. 'netconsole doctor' says what this host can show."
)


def panes(manifests: Mapping[str, Manifest]) -> dict[str, Pane]:
    """All panes by name, in the order of their keys."""
    vhost = _matching(manifests, "vhost")
    ovs = _matching(manifests, "ovs", "openvswitch")
    other = [name for name in manifests if name not in {*_TABS, "self_cost", *vhost, *ovs}]
    cost_rows = (
        (Placed("Probes", cost.probes_block()),),
        (Placed("Programs", cost.programs_block()), Placed("Processes", cost.processes_block(), None)),
    )
    made = [
        _overview(manifests),
        _full("vhost", "vhost", vhost, manifests, VHOST_MISSING),
        _full("ovs", "Open vSwitch", ovs, manifests, OVS_MISSING),
        _full("drops", "Drops", _FULL["drops"], manifests),
        _full("queues", "Queues", _FULL["queues"], manifests),
        _full("host", "Host", (*_FULL["host"], *other), manifests),
        Pane("cost", "Cost", cost_rows, ()),
        Pane("events", "Events", ((Placed("Events", events.events_block()),),), ()),
    ]
    return {pane.name: pane for pane in made}


def blocks_of(manifest: Manifest) -> list[Block]:
    """Every table and histogram of a probe; histograms of a latency probe say more, so they come first."""
    tables = [table_block(manifest, name) for name in manifest.tables]
    histograms = [histogram_block(manifest, name) for name in manifest.histograms]
    return [*histograms, *tables] if "latency" in manifest.name else [*tables, *histograms]


def _overview(manifests: Mapping[str, Manifest]) -> Pane:
    rows: list[tuple[Placed, ...]] = [(Placed("Stands out", standsout.block(), lines=8),)]
    for names in _OVERVIEW:
        placed = tuple(Placed(_TABS[name], blocks_of(manifests[name])[0]) for name in names if name in manifests)
        if placed:
            rows.append(placed)
    return Pane("overview", "Overview", tuple(rows), tuple(name for names in _OVERVIEW for name in names))


def _full(name: str, title: str, probes: Iterable[str], manifests: Mapping[str, Manifest], missing: str = "") -> Pane:
    present = [probe for probe in probes if probe in manifests]
    found = [(probe, block) for probe in present for block in blocks_of(manifests[probe])]
    rows = tuple((Placed(_tab(probe, block, found), block),) for probe, block in found)
    return Pane(name, title, rows, tuple(present), missing)


def _tab(probe: str, block: Block, found: list[tuple[str, Block]]) -> str:
    short = _TABS.get(probe, probe.replace("_", " "))
    if sum(other == probe for other, _ in found) == 1:
        return short
    return f"{short}: {block.name.removeprefix(probe + '-').replace('_', ' ')}"


def _matching(manifests: Mapping[str, Manifest], *words: str) -> list[str]:
    return [name for name in manifests if any(word in name for word in words)]
