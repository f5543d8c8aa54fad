"""The path pane: each direction with its stages, shares that add up, flows, and the slow packets one by one."""

from __future__ import annotations

from typing import Any

from netconsole.probes import catalogue as probes
from netconsole.telemetry.session import Connection
from netconsole.tui.panes import catalogue, row_page
from netconsole.tui.panes.path import pane as path
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.widgets.columns import TableRow
from tests.support.fake_collector import Scenario
from tests.support.tui import switch_scenes as made
from tests.support.tui.played import PROFILE, PlayedSession
from tests.support.tui.switch_scenes import PATH

OUT = {"lookup": 5_000, "actions": 15_000, "qdisc": 80_000}


def scene_of(scenario: Scenario, *names: str) -> Scene:
    session = PlayedSession(scenario.end())
    manifests = {name: probes.shipped(name) for name in (names or (PATH,))}
    return Scene(session.state, manifests, PROFILE, Connection("live"))


def texts(rows: list[TableRow]) -> list[dict[str, str]]:
    return [{name: cell.text for name, cell in row.cells.items()} for row in rows]


def slow(number: int, total_ns: int, **stages: int) -> dict[str, Any]:
    fields: dict[str, Any] = {"mono_ns": 0, "from": "vnet0", "to": "eth0", "direction": "out", "total_ns": total_ns}
    fields |= {"source": f"10.0.0.{number}", "target": "10.0.0.9", "source_port": 1, "target_port": 2}
    return {**fields, "protocol": "TCP", **{f"{name}_ns": ns for name, ns in stages.items()}}


def test_a_direction_has_its_percentiles_and_each_stage_its_share() -> None:
    whole, *stages = texts(path.way_rows(scene_of(made.way(made.attached(PATH), "out", OUT))))
    assert (whole["way"], whole["stage"], whole["n"], whole["p99"]) == ("inside → outside", "all", "100", "100 us")
    assert whole["bar"] == "most: qdisc"
    assert [(one["stage"], one["share"]) for one in stages] == [
        ("lookup", "5 %"),
        ("actions", "15 %"),
        ("qdisc", "80 %"),
    ]
    bars = [len(one["bar"]) for one in stages]
    assert bars[0] < bars[1] < bars[2] <= path.BAR_COLUMNS


def test_all_devices_of_a_direction_are_one_way_and_listed_one_by_one() -> None:
    scenario = made.way(made.attached(PATH), "out", OUT, count=10)
    times = {"direction": "out", "from": "vnet0", "to": "eth1"}
    made.times(scenario, PATH, "crossing", times, 900_000, 30)
    scene = scene_of(scenario)
    assert texts(path.way_rows(scene))[0]["n"] == "40"
    first, second = texts(path.device_rows(scene))
    assert (first["to"], first["p99"], second["to"]) == ("eth1", "900 us", "eth0")


def test_the_busier_direction_is_first_and_stages_stay_with_theirs() -> None:
    scenario = made.way(made.attached(PATH), "in", {"forward": 2_000, "qdisc": 1_000}, count=5)
    rows = texts(path.way_rows(scene_of(made.way(scenario, "out", OUT, count=50))))
    assert [row["way"] for row in rows] == ["inside → outside"] * 4 + ["outside → inside"] * 3


def test_flows_have_the_mean_of_the_interval_and_their_worst() -> None:
    labels = {"direction": "out", "source": "fd00::1", "target": "fd00::2", "source_port": 1000, "target_port": 53}
    labels |= {"protocol": "UDP", "vlan": 12}
    counts = {
        "packets": (10, 50),
        "bytes": (1000, 5000),
        "samples": (10, 50),
        "latency_ns": (250_000, 1),
        "slow": (1, 1),
    }
    row = {"labels": labels, "counts": counts, "gauges": {"latency_max_ns": 90_000}}
    scenario = made.attached(PATH).table(PATH, "flows", [row])
    (flow,) = texts(path.flow_rows(scene_of(scenario)))
    assert flow["flow"] == "UDP [fd00::1]:1000 → [fd00::2]:53 vlan 12"
    assert (flow["mean"], flow["max"], flow["slow"]) == ("25 us", "90 us", "1")


def test_slow_packets_come_slowest_first_with_the_stage_to_blame() -> None:
    scenario = made.way(made.attached(PATH, mode="details"), "out", OUT)
    scenario.counters(PATH, slow=(40, 40))
    for number, total_ns in ((1, 2_000_000), (2, 9_000_000)):
        fields = slow(number, total_ns, lookup=total_ns // 10, qdisc=total_ns - total_ns // 10, upcall=0)
        scenario.frame("event", PATH, name="slow", fields=fields)
    scene = scene_of(scenario)
    first, second = texts(path.slow_rows(scene))
    assert (first["took"], first["most"], first["flow"]) == ("9 ms", "qdisc 90 %", "TCP 10.0.0.2:1 → 10.0.0.9:2")
    assert first["stages"] == "lookup 900 us, qdisc 8.10 ms", "what a packet did not go through is left out"
    assert second["took"] == "2 ms"
    assert path.slow_block(PATH).title(scene) == "Slow packets · 2 sampled of 40 above the threshold"


def test_without_packets_the_devices_that_are_meant_are_named() -> None:
    knobs = {"inside_devices": "kind:tap", "outside_devices": "kind:physical", "port": 0}
    scenario = Scenario().hello().status(PATH, knobs=knobs).counters(PATH, received=(0, 0))
    note = path.ways_block(PATH).note(scene_of(scenario))
    assert note.endswith("(e changes them): inside_devices kind:tap, outside_devices kind:physical")


def test_mode_summary_says_how_to_see_slow_packets() -> None:
    scene = scene_of(made.way(made.attached(PATH), "out", OUT))
    assert path.slow_rows(scene) == []
    assert "press e and set host_path to mode details" in path.slow_block(PATH).note(scene)


def test_what_has_no_sample_is_in_the_title() -> None:
    scenario = made.way(made.attached(PATH), "out", OUT)
    scenario.counters(PATH, evicted=(3, 3), exchanged=(0, 0), unmatched=(0, 12))
    scene = scene_of(scenario)
    assert path.ways_block(PATH).title(scene) == "Ways of packets · host_path: 3 evicted, 12 unmatched"


def test_the_page_of_a_direction_has_its_stages_side_by_side() -> None:
    scene = scene_of(made.way(made.attached(PATH), "out", OUT))
    key = path.way_rows(scene)[0].key
    assert key == Subject(PATH, "direction", "out", ())
    for width in (80, 120):
        page = ["".join(text for text, _ in line) for line in row_page.lines(scene, key, width)]
        (heads,) = [line for line in page if "lookup" in line and "all" in line]
        assert heads.index("lookup") < heads.index("actions") < heads.index("qdisc") < heads.index("all")
        assert any("80 % of time" in line and "100 % of time" in line for line in page)
        assert all(len(line) <= width for line in page if "p99" in line or "██" in line)
    assert any("vnet0 → eth0" in line for line in page)


def test_a_stage_leads_to_its_histogram() -> None:
    scene = scene_of(made.way(made.attached(PATH), "out", OUT))
    key = path.way_rows(scene)[3].key
    assert isinstance(key, Subject)
    page = "\n".join("".join(text for text, _ in line) for line in row_page.lines(scene, key, 120))
    assert "qdisc" in page
    assert "last interval" in page


def test_local_traffic_is_shown_beside_what_crosses() -> None:
    scenario = made.way(made.attached(PATH, "local_path"), "out", OUT)
    labels = {"direction": "in", "from": "eth0", "to": "socket"}
    made.times(scenario, "local_path", "crossing", labels, 30_000, 7)
    rows = texts(path.way_rows(scene_of(scenario, PATH, "local_path")))
    assert rows[-1]["way"] == "device → socket"
    assert rows[-1]["p99"] == "30 us"


def test_a_profile_without_it_names_the_one_that_has_it() -> None:
    scene = scene_of(Scenario().hello())
    said = catalogue.missing(scene, catalogue.panes(scene.manifests, ())["path"])
    assert said == f"Path: not in profile summary; profile latency has it. {catalogue.DOCTOR}"
