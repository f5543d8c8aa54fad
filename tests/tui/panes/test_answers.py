"""STANDS OUT, the log of incidents, and where packets die: what their rows and titles say of given findings."""

from __future__ import annotations

import time
from typing import Any

import pytest

from netconsole.base.timestamps import clock
from netconsole.findings.incident import Incident, urgency
from netconsole.findings.match import Evidence
from netconsole.probes.catalogue import shipped
from netconsole.profile.profile import Profile
from netconsole.telemetry import frames
from netconsole.telemetry.frames import Count, Row
from netconsole.telemetry.session import Connection
from netconsole.telemetry.state import State
from netconsole.telemetry.tables import row_key
from netconsole.tui.panes.drops import places
from netconsole.tui.panes.overview import stands_out
from netconsole.tui.scene.scene import Scene, Subject
from tests.unit.findings.test_incident import incident
from tests.unit.telemetry.test_state import SECOND, Stream

DROPS = shipped("kernel_drops")
WAITS = shipped("tx_queue_latency")
MANIFESTS = {one.name: one for one in (DROPS, WAITS)}
NOON = 1_763_640_000 * SECOND
"""2025-11-20T12:00:00Z"""


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Screens show the local time."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def scene(*findings: Incident, state: State | None = None, log: tuple[Incident, ...] = ()) -> Scene:
    return Scene(state or State(), MANIFESTS, Profile("summary"), Connection("live"), findings=findings, log=log)


def of(probe: str, kind: Any = "table", name: str = "drops", **more: Any) -> Incident:
    return incident(evidence=(Evidence(kind, probe, name),), **more)


ENDED: dict[str, Any] = {"ended_ns": NOON + 22 * SECOND}


def test_a_row_says_what_is_wrong_since_when_and_with_which_trend() -> None:
    history = (1.0, None, 3.0)
    goes_on, over, nobody, itself = stands_out.rows(
        scene(
            of("kernel_drops", level="!!", history=history),
            of("tx_queue_latency", "histogram", "wait", total=7, unit="packets", history=history, **ENDED),
            of("some_probe", number=3),
            of("", "collector", "", level="?"),
        )
    )
    cells = goes_on.cells
    assert [cells[name].text for name in ("level", "topic", "say", "since")] == [
        "!!", DROPS.topic, "eth0 loses", "since 12:00:00",
    ]  # fmt: skip
    assert cells["history"].history is not None and cells["history"].history() == history
    assert (cells["history"].unit, cells["say"].tone) == ("", "")
    cells = over.cells
    assert [cells[name].text for name in ("level", "topic", "say", "since")] == [
        "!", WAITS.topic, "ended: eth0 loses; 7 packets in 22 s", "until 12:00:22",
    ]  # fmt: skip
    assert (cells["history"].unit, cells["say"].tone, cells["history"].tone) == ("ns", "dim", "dim")
    assert [one.cells["topic"].text for one in (nobody, itself)] == ["some probe", "netconsole"]
    assert itself.cells["level"].text == "?"


def test_what_netconsole_does_by_itself_is_no_fault_of_the_network() -> None:
    ours = of("tx_queue_latency", "probe", "", cause="budget-kept")
    (row,) = stands_out.rows(scene(ours))
    assert row.cells["topic"].text == "netconsole"
    assert stands_out._title(scene(ours)) == "STANDS OUT"
    assert stands_out.levels(scene(ours), {"queues": ("tx_queue_latency",)}) == {}
    over, loses = of("p", number=1, **ENDED), of("p", number=2, level="?")
    assert sorted([ours, over, loses], key=urgency) == [loses, over, ours]
    assert [row.last for row in stands_out.rows(scene(loses, over, ours))] == [0, 1, 2]


def test_the_title_counts_what_goes_on_and_what_has_ended() -> None:
    one, over = of("p"), of("p", **ENDED)
    assert stands_out._title(scene()) == "STANDS OUT"
    assert stands_out._title(scene(one, one, over)) == "STANDS OUT · 2 now · 1 ended"
    assert stands_out._title(scene(over)) == "STANDS OUT · 1 ended"


def test_the_log_has_the_newest_first() -> None:
    counted = of("p", number=1, total=21_010, peak=955.0, at_least=True, level="!!", **ENDED)
    blind = of("p", number=2, peak=3.0, blind_since_ns=NOON)
    newest = of("p", number=3, total=0)
    found = stands_out.log_rows(scene(log=(counted, blind, newest)))
    shown = [[row.cells[name].text for name in ("since", "until", "level", "say", "total", "peak")] for row in found]
    assert shown == [
        ["12:00:00", "goes on", "!", "eth0 loses", "0", "–"],
        ["12:00:00", "unknown", "!", "eth0 loses", "", ""],
        ["12:00:00", "12:00:22", "!!", "eth0 loses", "≥21\u202f010", "≥955"],
    ]
    assert [found[2].cells[name].sort for name in ("total", "peak")] == [21_010, 955.0]
    assert stands_out._log_title(scene(log=(counted, blind))) == "Incidents since the start · 2"


def test_a_pane_has_the_worst_level_of_what_goes_on_in_its_probes() -> None:
    panes = {"overview": ("a", "b"), "drops": ("a", "b"), "ovs": ("b",), "cost": ("c",), "path": ("d",)}
    found = [of("a"), of("b", level="!!"), of("b"), of("", "collector"), of("d", level="?"), of("d", **ENDED)]
    assert stands_out.levels(scene(*found), panes) == {"drops": "!!", "ovs": "!!", "cost": "!"}


def test_the_cursor_stays_with_an_incident_and_enter_shows_its_best_proof() -> None:
    key = row_key({"device": "eth0"})
    one = incident(evidence=(Evidence("table", "p", "t", key), Evidence("collector", "")))
    assert stands_out.proofs(one) == [Subject("p", "table", "t", key), Subject("", "probe", "collector", ())]
    assert stands_out.subject_of(one) == Subject("p", "table", "t", key)
    other = incident(number=1, evidence=(Evidence("probe", "q"),))
    keys = [row.key for row in stands_out.rows(scene(one, other))]
    assert keys[0] == keys[1], "it is known by its number"


def dropping(*rows: tuple[str, str, int, int], lost: int = 0, one_in: int = 1) -> State:
    """Rows of kernel_drops: device, class, how many in the last second and in all."""
    stream = Stream(State())
    stream.hello()
    stream.state.apply(frames.Status(**stream.stamp("kernel_drops"), state="attached", mode="summary"))
    made = [
        Row(
            {"reason": "NO_ONE", "class": kind, "location": "f", "device": device, "netns": "host", "protocol": "UDP"},
            {"count": Count(delta, total)},
        )
        for device, kind, delta, total in rows
    ]
    table = frames.Table(
        **stream.stamp("kernel_drops"), name="drops", interval_ns=SECOND, full=True, rows=made, one_in=one_in
    )
    stream.state.apply(table)
    ledger = {"missed": Count(lost, lost)} if lost else {}
    stream.state.apply(frames.Cost(**stream.stamp("kernel_drops"), interval_ns=SECOND, ledger=ledger))
    stream.end()
    return stream.state


def listed(state: State) -> tuple[str, list[list[str]]]:
    block, one = places.block(), scene(state=state)
    rows = block.rows(one)
    names = ("level", "rate", "total", "place", "cause", "sender")
    assert callable(block.title)
    return block.title(one), [[row.cells[name].text for name in names] for row in rows]


def test_the_list_of_places_and_its_title() -> None:
    title, rows = listed(
        dropping(("eth0", "suspicious", 3, 1500), ("eth1", "benign", 9, 90), ("eth2", "unknown", 0, 7))
    )
    assert title == "Where packets die · 3 packets/s lost, 1\u202f507 in total, at 2 places"
    assert [row[:3] for row in rows] == [["!", "3", "1\u202f500"], ["?", "0", "7"], ["ok", "9", "90"]]
    assert [row[3].endswith(device) for row, device in zip(rows, ("eth0", "eth2", "eth1"), strict=True)] == [True] * 3
    assert {row[5] for row in rows} == {"–"}
    title, rows = listed(dropping(("eth0", "suspicious", 3, 1500), lost=2))
    assert title == "Where packets die · ≥3 packets/s lost, ≥1\u202f500 in total, at 1 place"
    assert rows[0][1:3] == ["≥3", "≥1\u202f500"]


def test_where_nothing_died_it_is_said_who_looked() -> None:
    assert places._note(scene()) == "nothing is measured yet"
    assert places._note(scene(state=dropping())) == "nothing has died so far, by 1 source"
    title, rows = listed(dropping())
    assert title == "Where packets die · 0 packets/s lost, 0 in total, at 0 places" and rows == []


def test_the_trend_of_a_place_is_that_of_its_largest_row_and_it_dims_when_it_stands_still() -> None:
    state = dropping(("eth0", "suspicious", 3, 1500), ("eth2", "suspicious", 0, 7))
    first, second = places.block().rows(scene(state=state))
    history = first.cells["history"].history
    assert history is not None and [*history()][-1] == 3.0
    assert (first.cells["place"].tone, second.cells["place"].tone) == ("", "dim")


def test_it_is_never_said_that_nothing_dies_where_nobody_watches() -> None:
    """Detached after it has counted; detached before that; a source that rests beside one that watches."""
    state = dropping(("eth0", "suspicious", 3, 1500))
    probe = state.probes["kernel_drops"]
    at_ns = probe.tables["drops"].until_ns
    assert at_ns is not None
    probe.status = "off"
    title, rows = listed(state)
    since = f"kernel_drops: not watched since {clock(at_ns)}"
    assert title == f"Where packets die · ≥3 packets/s lost, ≥1\u202f500 in total, at 1 place · {since}"
    assert len(rows) == 1
    probe.tables["drops"].close(10**6)
    title, rows = listed(state)
    assert title == f"Where packets die · – packets/s lost, ≥1\u202f500 in total, at 1 place · {since}"
    assert rows[0][1] == "–"
    state = dropping()
    state.probes["kernel_drops"].tables.clear()
    state.probes["kernel_drops"].status = "off"
    title, _ = listed(state)
    assert title == ("Where packets die · – packets/s lost, – in total, nobody knows where · kernel_drops: not watched")
    assert places._note(scene(state=state)) == "nothing is measured now"


def test_rows_that_were_scaled_are_marked_in_the_list() -> None:
    state = dropping(("eth0", "suspicious", 160, 1600), one_in=16)
    title, rows = listed(state)
    assert title == "Where packets die · ≈160 packets/s lost, ≈1\u202f600 in total, at 1 place"
    assert rows[0][1:3] == ["≈160", "≈1\u202f600"]


def test_what_is_a_time_is_told_as_one_in_the_trend_and_in_the_log() -> None:
    waits = of("kernel_drops", name="threads", unit="ns", total=2_060_000_000, peak=481e6, history=(481e6,), **ENDED)
    (row,) = stands_out.rows(scene(waits))
    assert row.cells["history"].unit == "ns"
    (logged,) = stands_out.log_rows(scene(log=(waits,)))
    assert [logged.cells[name].text for name in ("total", "peak")] == ["2.06 s", "481 ms"]
