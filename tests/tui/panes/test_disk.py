"""The disk pane: who asks which device for what, how long each stage takes, and what is not known."""

from __future__ import annotations

from typing import Any

from netconsole.probes import catalogue as probes
from netconsole.telemetry.session import Connection
from netconsole.tui.panes import catalogue
from netconsole.tui.panes.disk import pane as disk
from netconsole.tui.scene.scene import Scene
from netconsole.tui.widgets.columns import TableRow
from tests.support.fake_collector import Scenario
from tests.support.tui import switch_scenes as made
from tests.support.tui.played import PROFILE, PlayedSession

PROBE = "block_path"
QEMU: dict[str, Any] = {"device": "sdb", "operation": "write", "process": "qemu", "pid": 77, "vm": "web-07"}
COPY: dict[str, Any] = {"device": "sda", "operation": "read", "process": "dd", "pid": 78, "vm": None}


def row(labels: dict[str, Any], ios: int, **counts: int) -> dict[str, Any]:
    values = {"ios": ios, "bytes": ios * 4096, "requests": ios, "unqueued": 0, **counts}
    return {
        "labels": labels,
        "counts": {name: (count, count) for name, count in values.items()},
    }


def scene_of(scenario: Scenario) -> Scene:
    session = PlayedSession(scenario.end())
    return Scene(session.state, {PROBE: probes.shipped(PROBE)}, PROFILE, Connection("live"))


def played() -> Scene:
    scenario = made.attached(PROBE).table(PROBE, "ios", [row(COPY, 10), row(QEMU, 500, unqueued=250, errors=2)])
    device = {"labels": {"device": "sdb"}, "counts": {"started": (500, 500)}, "gauges": {"in_flight": 3, "most": 8}}
    scenario.table(PROBE, "devices", [device])
    made.times(scenario, PROBE, "times", {**QEMU, "stage": "queue"}, 3_000_000, 250)
    made.times(scenario, PROBE, "times", {**QEMU, "stage": "device"}, 400_000, 500)
    return scene_of(scenario)


def texts(rows: list[TableRow]) -> list[dict[str, str]]:
    return [{name: cell.text for name, cell in row.cells.items()} for row in rows]


def test_who_asks_most_is_first_with_its_stages() -> None:
    first, second = texts(disk.rows(played(), PROBE))
    names = "who", "device", "operation", "ios", "queue", "device_p50", "device_p99", "in_flight", "errors"
    assert [first[name] for name in names] == [
        "web-07", "sdb", "write", "500", "3 ms", "400 us", "400 us", "3", "2"
    ]  # fmt: skip
    assert (second["who"], second["queue"], second["device_p99"]) == ("dd", "–", "–")


def test_the_page_of_a_row_has_its_stages_and_says_what_is_not_known() -> None:
    scene = played()
    subject = disk.rows(scene, PROBE)[0].key
    lines = ["".join(text for text, _ in line) for line in disk.detail(scene, subject, 100)]  # type: ignore[arg-type]
    assert any("queue" in line and "device" in line for line in lines)
    assert any("Of 50 % of its requests no insert was seen" in line for line in lines)
    assert any("block_path in details mode samples them" in line for line in lines)


def test_the_pane_stands_beside_the_others() -> None:
    pane = catalogue.panes({PROBE: probes.shipped(PROBE)}, [PROBE])["disk"]
    assert [placed.tab for placed in pane.blocks] == ["Disks", "Counts", "In flight", "Times"]
