"""The OVS pane: the state of every datapath and port in words, the trap named as what it is, unknown stays unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from netconsole.findings.incidents import Incidents
from netconsole.findings.matches import matches
from netconsole.findings.windows import Windows
from netconsole.probes import catalogue as probes
from netconsole.telemetry.frames import Count
from netconsole.telemetry.session import Connection
from netconsole.tui.panes import catalogue, row_page
from netconsole.tui.panes.common.tables import table_block
from netconsole.tui.panes.ovs import pane as ovs
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.scene.silent import STANDS_STILL
from netconsole.tui.widgets.columns import TableRow, place
from tests.support.fake_collector import Scenario
from tests.support.tui import switch_scenes as made
from tests.support.tui.played import PROFILE, PlayedSession
from tests.support.tui.switch_scenes import DROPS, FLOWS, UPCALLS

NAMES = (FLOWS, UPCALLS, DROPS)


def scene_of(scenario: Scenario, names: tuple[str, ...] = NAMES) -> Scene:
    manifests = {name: probes.shipped(name) for name in names}
    session = PlayedSession(scenario.end(), manifests)
    return Scene(session.state, manifests, PROFILE, Connection("live"), verdicts=session.findings.verdicts)


def texts(rows: list[TableRow]) -> list[dict[str, str]]:
    return [{name: cell.text for name, cell in row.cells.items()} for row in rows]


def page(scene: Scene, subject: object) -> str:
    assert isinstance(subject, Subject)
    return "\n".join("".join(text for text, _ in line) for line in row_page.lines(scene, subject, 100))


def busy() -> Scenario:
    """Two ports that ask and are answered."""
    scenario = made.datapath(made.attached(*NAMES))
    scenario.table(UPCALLS, "upcalls", [made.port("vnet1", 20), made.port("vnet0", 80)])
    made.answered(scenario, "vnet0", 300_000)
    return made.answered(scenario, "vnet1", 100_000)


def test_a_well_switch_is_said_in_words_and_figures() -> None:
    scene = scene_of(busy())
    datapath, process = texts(ovs.health_rows(scene))
    assert (datapath["state"], datapath["kind"], datapath["handlers"]) == ("ok", "kernel", "4")
    assert (datapath["lost"], datapath["hit"], datapath["flows"]) == ("0", "99", "8.41k/200k")
    assert (process["datapath"], process["state"], process["puts"]) == ("ovs-vswitchd", "answers in 2 ms", "31")
    assert process["flows"] == "", "it has none: that is not unknown"
    assert ovs.health_block(FLOWS).title(scene) == "Open vSwitch"


def test_ports_have_rates_and_latencies_the_busiest_first() -> None:
    first, second = texts(ovs.port_rows(scene_of(busy())))
    assert (first["port"], first["upcalls"], first["p99"], first["state"]) == ("vnet0", "80", "300 us", "ok")
    assert (second["port"], second["upcalls"], second["p99"]) == ("vnet1", "20", "100 us")


@pytest.mark.parametrize(
    ("error", "state"),
    [
        ("ENOTCONN", "!! no handler"),
        ("ECONNREFUSED", "!! handler gone"),
        ("EAGAIN", "!! queue full"),
        ("ENOMEM", "! lost: ENOMEM"),
    ],
)
def test_a_port_that_loses_upcalls_says_why_and_comes_first(error: str, state: str) -> None:
    scenario = busy()
    scenario.table(UPCALLS, "upcalls", [made.port("vnet9", 5, failed=5, packets=0, answered=0)])
    scene = scene_of(scenario.table(UPCALLS, "failures", [made.failure("vnet9", error, 5)]))
    first = texts(ovs.port_rows(scene))[0]
    assert (first["port"], first["state"], first["failed"], first["p99"]) == ("vnet9", state, "5", "–")
    assert texts(ovs.health_rows(scene))[0]["state"] == state
    told = page(scene, ovs.port_rows(scene)[0].key)
    assert "Lost, by error" in told
    assert error in told


def test_the_trap_of_no_handler_is_named_before_anything_is_lost() -> None:
    scenario = made.datapath(made.attached(*NAMES), handlers=0, no_handler=1)
    scene = scene_of(scenario)
    assert texts(ovs.health_rows(scene))[0]["state"] == "!! no handler"
    title = ovs.health_block(FLOWS).title(scene)
    assert title == "Open vSwitch · ovs-system: no handler is registered: every new flow is lost"
    findings = Incidents(scene.manifests, PROFILE.budget).update(scene.state, scene.connection)
    told = page(replace(scene, findings=findings), ovs.health_rows(scene)[0].key)
    assert "restart it" in told


def test_the_flows_that_were_put_last_are_told_on_the_page_that_counts_them() -> None:
    scenario = made.datapath(made.attached(FLOWS, mode="details"))
    words = {"datapath": made.DATAPATH, "match": "in_port(vnet0),ipv4", "packets": 0, "bytes": 0}
    for number in range(2):
        scenario.frame("event", FLOWS, name="flow", fields={**words, "actions": f"vnet{number}"})
    scene = scene_of(scenario)
    for row in ovs.health_rows(scene):
        told = page(scene, row.key)
        assert told.index("in_port(vnet0),ipv4") < told.index("→ vnet1") < told.index("→ vnet0")
    told = page(scene_of(made.datapath(made.attached(FLOWS))), ovs.health_rows(scene)[0].key)
    assert "ovs_flows in details mode lists them" in told


def test_a_datapath_that_only_its_upcalls_tell_of_is_listed() -> None:
    scenario = made.attached(UPCALLS)
    scenario.table(UPCALLS, "upcalls", [made.port("va", 30, failed=30)])
    scenario.table(UPCALLS, "failures", [made.failure("va", "ENOTCONN", 30)])
    (row,) = texts(ovs.health_rows(scene_of(scenario)))
    assert (row["state"], row["lost"], row["handlers"], row["flows"]) == ("!! no handler", "30", "–", "–")


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        (made.datapath(made.attached(FLOWS), limit_used_pct=97.0), "! table full"),
        (made.datapath(made.attached(FLOWS), dump_ms=1500), "! slow dumps"),
    ],
)
def test_what_will_go_wrong_next_is_said(scenario: Scenario, words: str) -> None:
    assert texts(ovs.health_rows(scene_of(scenario)))[0]["state"] == words


def test_what_is_wrong_stands_out_the_trap_by_its_name() -> None:
    scenario = made.datapath(made.attached(*NAMES), lost=35, handlers=0, no_handler=1)
    rows = [made.port("vnet9", 5, failed=5), made.port("vnet1", 50, unanswered=10), made.port("vnet0", 50)]
    scenario.table(UPCALLS, "upcalls", rows)
    scenario.table(UPCALLS, "failures", [made.failure("vnet9", "ENOTCONN", 5)])
    scene = scene_of(made.answered(scenario, "vnet0", 20_000_000))
    windows = Windows(scene.manifests)
    windows.update(scene.state)
    found = matches(scene.state, scene.manifests, windows)
    said = {match.sentence(match.labels, match.value, None, False, False, False): match.level for match in found}
    assert said["ovs-system: no handler is registered, so every new flow is lost"] == "!!"
    assert said["vnet9: no handler is registered, all 5 upcalls/s are lost, ovs-system"] == "!!"
    assert said["vnet1: 10 upcalls/s get no answer, ovs-system"] == "!!"
    assert [level for sentence, level in said.items() if "1 upcall in 100 takes over" in sentence] == ["!"]


def test_slow_and_missing_answers_are_told_apart() -> None:
    scenario = made.attached(*NAMES)
    rows = [made.port("vnet0", 50), made.port("vnet1", 50, answered=40, unanswered=10)]
    for _ in range(2):  # a percentile has to be too high twice
        made.answered(made.datapath(scenario.end()).table(UPCALLS, "upcalls", rows), "vnet0", 20_000_000)
    states = {row["port"]: row["state"] for row in texts(ovs.port_rows(scene_of(scenario)))}
    assert states == {"vnet0": "! slow answers", "vnet1": "!! no answer"}


def test_the_hit_ratio_is_never_rounded_up_to_all() -> None:
    scene = scene_of(made.datapath(made.attached(FLOWS), hits=999_999, misses=1))
    assert texts(ovs.health_rows(scene))[0]["hit"] == "99.99"


def test_an_idle_switch_has_an_unknown_hit_ratio() -> None:
    scene = scene_of(made.datapath(made.attached(FLOWS), hits=0, misses=0))
    first = texts(ovs.health_rows(scene))[0]
    assert (first["hit"], first["state"]) == ("–", "idle")


def test_causes_are_flows_with_their_share() -> None:
    scenario = busy()
    flows = []
    for number, count in ((1, 25), (2, 75)):
        labels = {"port": "vnet0", "vm": None, "netns": "host", "ethertype": "IPv4", "protocol": "UDP", "vlan": 7}
        labels |= {"source": f"10.9.0.{number}", "target": "10.9.0.9", "target_port": 53}
        flows.append({"labels": labels, "counts": {"upcalls": (count, count)}})
    scene = scene_of(scenario.table(UPCALLS, "flows", flows))
    first, second = texts(ovs.cause_rows(scene))
    assert (first["flow"], first["share"]) == ("UDP 10.9.0.2 → 10.9.0.9:53 vlan 7", "75")
    assert second["share"] == "25"
    assert "UDP 10.9.0.2 → 10.9.0.9:53" in page(scene, ovs.port_rows(scene)[0].key)


def test_what_counters_alone_do_not_tell_is_unknown_and_said_to_be() -> None:
    """The collector sends no rows in that mode; those that it sent before stay, and nothing is said of them."""
    scenario = busy().end()
    scenario.status(UPCALLS, mode="counters").counters(UPCALLS, upcalls=(8800, 9000))
    scene = scene_of(scenario)
    scene.state.probes[UPCALLS].cost.ledger = {"unlisted": Count(delta=8800, total=8800)}
    first, *_ = texts(ovs.port_rows(scene))
    assert (first["upcalls"], first["state"], first["total"]) == ("–", "? unknown", "≥240"), "rows lack them"
    said, figures = ovs.ports_block().title(scene).split(" · ")[1:]
    assert (said, figures.split(",")[0]) == (STANDS_STILL, "8.80k/s")


def test_a_rate_is_a_lower_bound_only_in_the_interval_that_lacks_something() -> None:
    flow = {"port": "vnet0", "source": "192.0.2.1", "target": "192.0.2.2", "protocol": "UDP", "target_port": 53}
    drop = {"reason": "OVS_DROP_FLOW", "class": "benign", "location": "do_execute_actions", "port": "vnet0"}
    scenario = busy().table(UPCALLS, "flows", [{"labels": flow, "counts": {"upcalls": (5, 50)}}])
    scenario.table(DROPS, "drops", [{"labels": drop, "counts": {"count": (5, 50)}}])
    scenario.counters(UPCALLS, upcalls=(5, 50)).counters(DROPS, drops=(5, 50))
    scene = scene_of(scenario)
    rates = ((ovs.port_rows, "upcalls"), (ovs.cause_rows, "upcalls"), (ovs.drop_rows, "count"))
    for missed, rate_mark in ((2, True), (0, False)):
        for probe in (UPCALLS, DROPS):
            scene.state.probes[probe].cost.ledger = {"missed": Count(delta=missed, total=2)}
        for rows, column in rates:
            first, *_ = texts(rows(scene))
            assert first[column].startswith("≥") == rate_mark and first["total"].startswith("≥"), column
        for title in (ovs.ports_block().title(scene), ovs.drops_block().title(scene)):
            rate, total = title.split(" · ")[1].split(", ")
            assert rate.startswith("≥") == rate_mark and total.startswith("≥"), title


def test_the_bridge_of_a_port_is_ovs_vswitchd_s_word() -> None:
    labels = {"datapath": made.DATAPATH, "port": "vnet0", "type": "system", "bridge": "br-int"}
    scene = scene_of(busy().table(FLOWS, "ports", [{"labels": labels, "counts": {"rx_packets": (5, 5)}}]))
    assert {row["port"]: row["bridge"] for row in texts(ovs.port_rows(scene))} == {"vnet0": "br-int", "vnet1": "–"}


def test_a_port_of_another_datapath_is_not_of_that_bridge() -> None:
    labels = {"datapath": "other", "port": "vnet0", "type": "system", "bridge": "br-other"}
    scene = scene_of(busy().table(FLOWS, "ports", [{"labels": labels, "counts": {"rx_packets": (5, 5)}}]))
    assert {row["bridge"] for row in texts(ovs.port_rows(scene))} == {"–"}


def test_the_bridge_of_each_port_is_shown_where_there_are_80_columns() -> None:
    for columns in (ovs.PORT_COLUMNS, table_block(probes.shipped(FLOWS), "ports").columns):
        assert "bridge" in [placed.column.name for placed in place(columns, 80)]


def test_handlers_have_their_cpu_and_their_wait_for_one() -> None:
    scenario = busy()
    labels = {"handler": "handler3", "tid": 77, "process": "ovs-vswitchd"}
    counts = {"cpu_ns": (50_000_000, 1), "switches": (9, 9), "wakeups": (8, 8), "answered": (100, 100)}
    scenario.table(UPCALLS, "handlers", [{"labels": labels, "counts": counts, "gauges": {"cpu": 2}}])
    made.times(scenario, UPCALLS, "scheduled", {"handler": "handler3", "tid": 77}, 40_000, 10)
    scene = scene_of(scenario)
    (row,) = texts(ovs.handler_rows(scene))
    assert (row["handler"], row["cpu_pct"], row["answered"], row["wait_p99"]) == ("handler3", "5", "100", "40 us")
    assert "5 % of a core" in ovs.handlers_block().title(scene)


def test_a_drop_leads_to_the_flows_that_are_dropped_there() -> None:
    scenario = made.datapath(made.attached(*NAMES))
    labels = {"location": "do_execute_actions", "port": "vnet0", "vm": None, "netns": "host", "class": "benign"}
    labels |= {"reason": "OVS_DROP_LAST_ACTION", "provenance": "kernel"}
    scenario.table(DROPS, "drops", [{"labels": labels, "counts": {"count": (50, 50)}}])
    flow = {**labels, "source": "10.9.0.1", "target": "10.9.0.2", "target_port": 4444, "protocol": "UDP"}
    flow |= {"ethertype": "IPv4", "vlan": 0}
    elsewhere = {**flow, "location": "ovs_ct_execute", "target_port": 5555}
    scenario.table(DROPS, "flows", [{"labels": one, "counts": {"count": (50, 50)}} for one in (flow, elsewhere)])
    scene = scene_of(scenario)
    pane = catalogue.panes(scene.manifests, NAMES)["ovs"]
    (block,) = [placed.block for placed in pane.blocks if placed.tab == "Drops"]
    (row,) = block.rows(scene)
    assert (row.cells["what"].text, row.cells["class"].text, row.cells["count"].text) == (
        "flow without output",
        "ok",
        "50",
    )
    shown = page(scene, row.key)
    assert "UDP 10.9.0.1 → 10.9.0.2:4444" in shown
    assert "5555" not in shown


def test_hostile_names_are_shown_harmless() -> None:
    scenario = made.datapath(made.attached(*NAMES))
    scenario.table(UPCALLS, "upcalls", [made.port("[b]\x1b[31m", 5)])
    scene = scene_of(scenario.table(UPCALLS, "failures", [made.failure("[b]\x1b[31m", "\x1b[2J", 5)]))
    first = texts(ovs.port_rows(scene))[0]
    assert first["port"] == "[b]\\x1b[31m"
    told = [first["state"], ovs.health_block(FLOWS).title(scene), page(scene, ovs.port_rows(scene)[0].key)]
    assert not [text for text in told if "\x1b" in text]


def test_a_host_without_open_vswitch_says_so_in_one_sentence() -> None:
    why = "no Open vSwitch here: the kernel module openvswitch is not loaded"
    scenario = Scenario().hello().status(FLOWS, "failed", why=why)
    for name in (UPCALLS, DROPS):
        scenario.status(name, "unsupported", why="this kernel has no kprobes (CONFIG_KPROBE_EVENTS)")
    scene = scene_of(scenario)
    said = catalogue.missing(scene, catalogue.panes(scene.manifests, NAMES)["ovs"])
    assert said == f"{FLOWS} is failed: {why}. {catalogue.DOCTOR}"


def test_a_profile_without_it_names_the_one_that_has_it() -> None:
    scene = scene_of(Scenario().hello())
    said = catalogue.missing(scene, catalogue.panes(scene.manifests, ())["ovs"])
    assert said == f"Open vSwitch: not in profile summary; profile ovs has it. {catalogue.DOCTOR}"


def test_a_thread_with_few_packets_has_no_ratios_and_its_page_says_why() -> None:
    def thread(core: int, packets: int, **gauges: float | None) -> dict[str, object]:
        labels = {"datapath": "ovs-netdev", "numa": 0, "core": core}
        return {"labels": labels, "counts": {"packets": (packets, packets)}, "gauges": gauges}

    rows = [thread(1, 999, cycles_per_packet=None), thread(2, 5000, cycles_per_packet=250.0)]
    scene = scene_of(made.attached("ovs_pmd").table("ovs_pmd", "threads", rows), ("ovs_pmd",))
    block = table_block(scene.manifests["ovs_pmd"], "threads")
    busy, idle = block.rows(scene)
    assert (busy.cells["core"].text, busy.cells["cycles_per_packet"].text) == ("2", "250")
    assert (idle.cells["core"].text, idle.cells["cycles_per_packet"].text) == ("1", "too few")
    assert "too few packets: fewer than 1000" in page(scene, idle.key)
    assert "too few" not in page(scene, busy.key)
