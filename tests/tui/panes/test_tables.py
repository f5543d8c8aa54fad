"""Rows of any table: a lower bound is one as long as something is missing, and what stands still makes room."""

from __future__ import annotations

from typing import Any

import pytest

from netconsole.base import figure
from netconsole.findings.match import RowName, RowVerdict
from netconsole.probes.catalogue import shipped
from netconsole.profile.profile import Profile
from netconsole.telemetry.session import Connection
from netconsole.tui.panes.common.tables import Block, table_block
from netconsole.tui.panes.drops import places
from netconsole.tui.panes.overview.header import Pause, first_line
from netconsole.tui.scene.scene import Scene
from netconsole.tui.widgets.columns import place
from tests.support.fake_collector import Scenario
from tests.support.tui.played import PROFILE, PlayedSession

DROPS = "kernel_drops"
MANIFESTS = {DROPS: shipped(DROPS)}


def row(device: str, delta: int, total: int) -> dict[str, Any]:
    labels = {"reason": "NO_SOCKET", "location": "udp_rcv", "device": device, "class": "benign", "provenance": "kernel"}
    return {"labels": labels, "counts": {"count": (delta, total)}}


def interval(missed: int, *rows: dict[str, Any]) -> Scenario:
    """An interval in which so many runs were missed; they are ``total`` after the first."""
    made = Scenario().counters(DROPS, drops=(8, 80)).table(DROPS, "drops", list(rows))
    ledger = {"missed": {"delta": missed, "total": 2}}
    return made.frame("cost", DROPS, interval_ns=10**9, ledger=ledger).end()


def shown(session: PlayedSession, block: Block) -> dict[str, tuple[str, str]]:
    """Rate and total by device."""
    scene = Scene(session.state, MANIFESTS, PROFILE, Connection("live"))
    rows = [one.cells for one in block.rows(scene)]
    return {one["device"].text: (one["count"].text, one["total"].text) for one in rows}


def test_a_rate_is_a_lower_bound_only_in_the_interval_that_lacks_something() -> None:
    session, block = PlayedSession(Scenario().hello().status(DROPS)), table_block(MANIFESTS[DROPS], "drops")
    session.play(interval(2, row("eth0", 8, 80)))
    assert shown(session, block) == {"eth0": ("≥8", "≥80")}
    session.play(interval(0, row("eth0", 8, 88)))
    assert shown(session, block) == {"eth0": ("8", "≥88")}
    scene = Scene(session.state, MANIFESTS, PROFILE, Connection("live"))
    assert block.title(scene) == "Drops · 8 packets/s, ≥80 in total"


def test_a_row_that_is_harmless_by_its_place_is_no_trouble_and_stands_below_a_loss() -> None:
    """The kernel gives it the reason of a loss: a new network device tries whether it can make packets."""
    trial, lost = row("veth-b", 90, 90), row("eth0", 1, 1)
    trial["labels"].update({"reason": "NOT_SPECIFIED", "location": "napi_get_frags_check", "class": "suspicious"})
    lost["labels"].update({"reason": "NOT_SPECIFIED", "location": "ip_rcv", "class": "suspicious"})
    session, block = PlayedSession(Scenario().hello().status(DROPS)), table_block(MANIFESTS[DROPS], "drops")
    session.play(interval(0, trial, lost))
    rows = [one.cells for one in block.rows(Scene(session.state, MANIFESTS, PROFILE, Connection("live")))]
    assert [(one["device"].text, one["class"].text) for one in rows] == [("eth0", "!"), ("veth-b", "ok")]


def test_the_title_says_to_what_the_probe_is_narrowed() -> None:
    knobs = {"reason": "not:NO_SOCKET", "netns": 0, "device": "eth0"}
    session = PlayedSession(Scenario().hello().status(DROPS, knobs=knobs))
    session.play(interval(0, row("eth0", 8, 80)))
    scene = Scene(session.state, MANIFESTS, PROFILE, Connection("live"))
    title = table_block(MANIFESTS[DROPS], "drops").title(scene)
    assert title.startswith("Drops · only device=eth0 reason=not:NO_SOCKET · 8 packets/s")


def test_a_title_leaves_out_the_scope_which_the_header_has() -> None:
    session = PlayedSession(Scenario().hello().status(DROPS, knobs={"netns": 7, "device": "eth0"}).status("softnet"))
    session.play(interval(0, row("eth0", 8, 80)))
    profile = Profile("p", filters={"netns": 7}, given={"netns": "web"})
    manifests = {**MANIFESTS, "softnet": shipped("softnet")}
    scene = Scene(session.state, manifests, profile, Connection("live"))
    assert table_block(MANIFESTS[DROPS], "drops").title(scene).startswith("Drops · only device=eth0 · 8 packets/s")
    assert table_block(manifests["softnet"], "cpus").title(scene) == "Backlog by CPU · host-wide"
    header = "".join(text for text, _ in first_line(scene, Pause(), "live", 0.0, 120))
    assert " · profile p · scope netns web " in header


def test_figures_of_a_share_of_the_time_say_so_and_their_totals_are_lower_bounds() -> None:
    session, block = (
        PlayedSession(Scenario().hello().status(DROPS, knobs={"seen_pct": 10})),
        table_block(MANIFESTS[DROPS], "drops"),
    )
    tenth = {"interval_ns": 10**9, "seen_ns": 10**8}
    made = Scenario().frame("counters", DROPS, values={"drops": {"delta": 8, "total": 80}}, **tenth)
    rows = [{"labels": row("eth0", 8, 80)["labels"], "counts": {"count": {"delta": 8, "total": 80}}, "gauges": {}}]
    made = made.frame("table", DROPS, name="drops", full=True, rows=rows, **tenth)
    ledger = {"unseen_ms": {"delta": 900, "total": 900}}
    session.play(made.frame("cost", DROPS, interval_ns=10**9, ledger=ledger).end())
    assert shown(session, block) == {"eth0": ("80", "≥80")}
    scene = Scene(session.state, MANIFESTS, PROFILE, Connection("live"))
    assert block.title(scene) == "Drops · 80 packets/s, ≥80 in total · ≈ seen 10 % of the time"


def test_on_the_overview_rows_that_stand_still_for_a_minute_make_room() -> None:
    session = PlayedSession(Scenario().hello().status(DROPS))
    brief, whole = table_block(MANIFESTS[DROPS], "drops", brief=True), table_block(MANIFESTS[DROPS], "drops")
    session.play(interval(0, row("eth0", 8, 80), row("eth1", 1, 1)))
    for tick in range(61):
        session.play(interval(0, row("eth0", 1, 81 + tick)))
    assert shown(session, brief).keys() == {"eth0"} and shown(session, whole).keys() == {"eth0", "eth1"}
    for _ in range(61):
        session.play(interval(0))
    scene = Scene(session.state, MANIFESTS, PROFILE, Connection("live"))
    assert brief.rows(scene) == [] and brief.note(scene) == "nothing for a minute; 2 quiet rows are in its pane"


def test_a_row_has_the_level_of_its_worst_finding() -> None:
    session, block = PlayedSession(Scenario().hello().status(DROPS)), table_block(MANIFESTS[DROPS], "drops")
    session.play(interval(0, row("eth0", 8, 80), row("eth1", 1, 1)))
    key = next(one for one in session.state.probes[DROPS].tables["drops"].rows if ("device", "eth1") in one)

    def marks(verdicts: dict[RowName, RowVerdict]) -> tuple[list[tuple[str, str]], list[str], str]:
        scene = Scene(session.state, MANIFESTS, PROFILE, Connection("live"), verdicts=verdicts)
        rows, died = [one.cells for one in block.rows(scene)], places.block()
        levels = [one.cells["level"].text for one in died.rows(scene)]
        return [(one["class"].text, one["device"].text) for one in rows], levels, died.title(scene)

    quiet = (
        [("ok", "eth0"), ("ok", "eth1")],
        ["ok", "ok"],
        "Where packets die · 0 packets/s lost, 0 in total, at 0 places",
    )
    assert marks({}) == quiet
    assert marks({(DROPS, "table", "drops", key): RowVerdict("!!", "act", "")}) == (
        [("!!", "eth1"), ("ok", "eth0")], ["!!", "ok"], "Where packets die · 1 packets/s lost, ≥1 in total, at 1 place"
    )  # fmt: skip


@pytest.mark.parametrize(("width", "least"), [(118, ("rx_bytes", "total", "tx_drops")), (78, ("rx_bytes",)), (38, ())])
def test_links_show_what_a_queue_drops_and_in_which_namespace_at_any_width(width: int, least: tuple[str, ...]) -> None:
    block = table_block(shipped("link_rates"), "links")
    shown = {placed.column.name for placed in place(block.columns, width) if placed.width}
    assert {"device", "netns", "qdisc_drops", *least} <= shown


def test_of_a_name_that_has_no_room_the_end_stays() -> None:
    session, block = PlayedSession(Scenario().hello().status(DROPS)), table_block(MANIFESTS[DROPS], "drops")
    session.play(interval(0, row("vnet-of-web-07", 8, 80)))
    [shown_row] = block.rows(Scene(session.state, MANIFESTS, PROFILE, Connection("live")))
    ends = shown_row.cells["device"].ends
    assert ends is not None and figure.fit_ends(*ends, 8) == "vnet…-07"


def test_a_total_of_bytes_says_of_what_it_is() -> None:
    heads = [column.title for column in table_block(shipped("link_rates"), "links").columns]
    assert heads[heads.index("rx B/s") + 1] == "rx B" and "total" not in heads
    assert "total" in [column.title for column in table_block(MANIFESTS[DROPS], "drops").columns]


@pytest.mark.parametrize(("columns", "least"), [(39, 0), (58, 28), (79, 28), (119, 45)])
def test_what_a_counter_means_is_the_last_word_to_shrink_and_its_figure_stays(columns: int, least: int) -> None:
    block = table_block(shipped("protocol_counters"), "counters")
    widths = {at.column.name: at.width for at in place(block.columns, columns)}
    assert widths.get("meaning", 0) >= least and widths["count"] == 7
