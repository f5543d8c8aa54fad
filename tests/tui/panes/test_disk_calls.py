"""The calls on files in the disk pane: who calls how, how long each way takes, and what the samples say."""

from __future__ import annotations

from typing import Any

from netconsole.probes import catalogue as probes
from netconsole.telemetry.session import Connection
from netconsole.tui.panes import catalogue
from netconsole.tui.panes.disk import calls
from netconsole.tui.scene.scene import Scene
from netconsole.tui.widgets.columns import TableRow
from tests.support.fake_collector import Scenario
from tests.support.tui import switch_scenes as made
from tests.support.tui.played import PROFILE, PlayedSession

PROBE = "fs_path"
QEMU: dict[str, Any] = {
    "device": "sdb", "file_system": "xfs", "call": "fsync", "way": "data", "process": "qemu", "pid": 77, "vm": "web-07"
}  # fmt: skip
READS: dict[str, Any] = {**QEMU, "device": "sda", "call": "read", "process": "dd", "pid": 78, "vm": None}
CACHED, ASKED = ({**READS, "way": way} for way in ("cache", "device"))


def row(labels: dict[str, Any], count: int, **counts: int) -> dict[str, Any]:
    values = {"calls": count, "bytes": count * 4096, "errors": 0, "waited": 0, "asked": 0, **counts}
    return {"labels": labels, "counts": {name: (count, count) for name, count in values.items()}}


def played(mode: str = "summary") -> Scene:
    scenario: Scenario = made.attached(PROBE)
    scenario.status(PROBE, mode=mode)
    rows = [row(QEMU, 10, waited=9, bytes=0), row(ASKED, 5, waited=5, asked=20480), row(CACHED, 500)]
    scenario.table(PROBE, "calls", rows)
    made.times(scenario, PROBE, "times", QEMU, 21_000_000, 10)
    made.times(scenario, PROBE, "times", CACHED, 1_000, 500)
    made.times(scenario, PROBE, "times", ASKED, 400_000, 5)
    if mode == "details":
        fields = {**ASKED, "total_ns": 900_000, "bytes": 4096, "asked": 4096, "waited": 1, "file": "web-07.\x1b[31mimg"}
        scenario.frame("event", PROBE, name="call", fields={**fields, "mono_ns": 1})
        scenario.frame("event", PROBE, name="call", fields={**fields, **CACHED, "asked": 0, "waited": 0, "mono_ns": 2})
    session = PlayedSession(scenario.end())
    return Scene(session.state, {PROBE: probes.shipped(PROBE)}, PROFILE, Connection("live"))


def texts(rows: list[TableRow]) -> list[dict[str, str]]:
    return [{name: cell.text for name, cell in row.cells.items()} for row in rows]


def page(scene: Scene, number: int) -> list[str]:
    subject = calls.rows(scene, PROBE)[number].key
    return ["".join(text for text, _ in line) for line in calls.detail(scene, subject, 100)]  # type: ignore[arg-type]


def test_who_calls_most_is_first_with_its_way_and_what_waited() -> None:
    cached, qemu, asked = texts(calls.rows(played(), PROBE))
    names = "who", "call", "way", "device", "file_system", "calls", "bytes", "p50", "p99", "waited", "asked"
    assert [cached[name] for name in names] == [
        "dd", "read", "cache", "sda", "xfs", "500", "2.05M", "1 us", "1 us", "0", "0"
    ]  # fmt: skip
    assert [qemu[name] for name in ("who", "call", "way", "p99", "waited")] == [
        "web-07",
        "fsync",
        "data",
        "21 ms",
        "90",
    ]
    assert (asked["waited"], asked["asked"]) == ("100", "20.5k")


def test_the_page_of_a_row_has_the_ways_of_its_call_side_by_side() -> None:
    lines = page(played(), 0)
    assert any("cache" in line and "device" in line for line in lines)
    assert any("from the page cache" in line and "a device was asked" in line for line in lines)
    assert any("fs_path in details mode samples them" in line for line in lines)
    assert any("100 % of its calls waited" in line for line in page(played(), 2))


def test_a_sample_names_the_file_and_what_was_asked_of_a_device() -> None:
    cached, _, asked = (page(played("details"), number) for number in range(3))
    assert any("900 us" in line and "4.10kB, asked for 4.10kB" in line for line in asked), asked
    assert any("asked no device, did not wait" in line for line in cached), cached
    assert not any("\x1b" in line for line in cached + asked)


def test_the_pane_has_files_beside_disks() -> None:
    manifests = {name: probes.shipped(name) for name in ("block_path", PROBE)}
    tabs = [placed.tab for placed in catalogue.panes(manifests, list(manifests))["disk"].blocks]
    assert tabs.index("Files") == tabs.index("Disks") + 1
