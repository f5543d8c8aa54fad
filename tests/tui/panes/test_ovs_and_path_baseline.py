"""The panes OVS and Path against a baseline: each row has its figure held against what it was on a good day."""

from __future__ import annotations

from netconsole.compare.live import LiveComparison
from netconsole.compare.reference import Reference
from netconsole.probes import catalogue
from netconsole.snapshot import builder
from netconsole.telemetry.session import Connection
from netconsole.tui.panes.ovs import pane as ovs
from netconsole.tui.panes.path import pane as path
from netconsole.tui.scene.scene import Scene
from tests.support.tui import switch_scenes as made
from tests.support.tui.played import PROFILE, PlayedSession
from tests.support.tui.switch_scenes import DROPS, FLOWS, PATH, UPCALLS

MANIFESTS = {name: catalogue.shipped(name) for name in (FLOWS, UPCALLS, DROPS, PATH)}


def session(upcalls: int, qdisc_ns: int) -> PlayedSession:
    """A host whose port vnet0 asked so often, and whose packets waited so long."""
    scenario = made.attached(*MANIFESTS).end()
    made.datapath(scenario, misses=upcalls)
    row = made.port("vnet0", upcalls)
    row["counts"] = {name: (delta, delta) for name, (delta, _) in row["counts"].items()}
    scenario.table(UPCALLS, "upcalls", [row])
    made.way(scenario, "out", {"lookup": 5_000, "actions": 15_000, "qdisc": qdisc_ns})
    return PlayedSession(scenario.end())


def scene_of(now: PlayedSession, before: PlayedSession) -> Scene:
    good = builder.build(before.state, MANIFESTS, PROFILE, builder.totals_at_start(before.state))
    comparison = LiveComparison(now, MANIFESTS, lambda: PROFILE, Reference("good", [good] * 5, {}), {})
    return Scene(now.state, MANIFESTS, PROFILE, Connection("live"), comparison=comparison)


def test_slower_stages_and_more_upcalls_are_said() -> None:
    scene = scene_of(session(1000, 800_000), session(100, 80_000))
    assert ovs.port_rows(scene)[0].cells["vs_baseline"].text == "×10 more"
    whole, lookup, _, qdisc = path.way_rows(scene)
    assert lookup.cells["vs_baseline"].text.endswith("same")
    assert "worse" in qdisc.cells["vs_baseline"].text
    assert qdisc.cells["change"].text.startswith("+")
    assert "worse" in whole.cells["vs_baseline"].text
    assert "worse" in path.device_rows(scene)[0].cells["vs_baseline"].text


def test_every_table_has_the_columns_and_every_row_the_cells() -> None:
    scene = scene_of(session(1000, 800_000), session(100, 80_000))
    blocks = [ovs.health_block(FLOWS), ovs.ports_block(), path.ways_block(PATH), path.devices_block(PATH)]
    for block in blocks:
        assert {"vs_baseline", "change"} <= {column.name for column in block.columns_of(scene)}
        rows = [row for row in block.rows(scene) if row.cells.get("kind", row.cells.get("n")) is not None]
        assert all(
            "vs_baseline" in row.cells for row in rows if "process" not in {cell.text for cell in row.cells.values()}
        )
