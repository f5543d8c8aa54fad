"""What a row advises: of what it proves alone, the most telling hint, and nothing that sends the reader where he is."""

from __future__ import annotations

import re
from array import array
from dataclasses import replace

from netconsole.base.timestamps import clock
from netconsole.findings.incident import Incident
from netconsole.findings.match import Evidence
from netconsole.probes.catalogue import load_all
from netconsole.telemetry import frames
from netconsole.telemetry.example import Example
from netconsole.telemetry.series import SAMPLES
from netconsole.telemetry.session import Connection
from netconsole.telemetry.state import State
from netconsole.telemetry.tables import row_key
from netconsole.tui import actions
from netconsole.tui.panes import advice, catalogue, row_chart, row_page
from netconsole.tui.panes.advice import Advice
from netconsole.tui.scene.scene import Scene, Subject
from tests.support.fake_collector import EPOCH_MONO_NS, Scenario
from tests.support.tui.played import PROFILE, PlayedSession
from tests.support.tui.vhost_scenes import labels
from tests.unit.findings.test_incident import incident
from tests.unit.telemetry.test_state import Stream

MANIFESTS = load_all()
VHOST = "vhost_queues"
KEY = row_key({"device": "eth0"})
LINK, CHILD, SOCKET = (
    Subject(probe, "table", table, KEY)
    for probe, table in (("link_rates", "links"), ("link_rates", "queues"), ("socket_drops", "sockets"))
)


def of(subject: Subject, *hints: str, commands: tuple[str, ...] = ()) -> Incident:
    evidence = (Evidence("table", subject.probe, subject.name, subject.key),)
    return incident(evidence=evidence, next=hints, commands=commands)


def told(subject: Subject, *findings: Incident) -> Advice:
    return advice.advice(Scene(State(), MANIFESTS, PROFILE, Connection("live"), findings=findings), subject)


def test_a_queue_that_is_well_has_no_advice() -> None:
    """It had too few buffers seven times since the start. A rule would speak of more."""
    its = labels(0, 0, direction="rx")
    queue = {"labels": its, "counts": {"packets": (1000, 9000), "starved_runs": (0, 7)}}
    session = PlayedSession(Scenario().hello().status(VHOST).table(VHOST, "queues", [queue]).end())
    scene = Scene(session.state, MANIFESTS, PROFILE, Connection("live"))
    subject = Subject(VHOST, "table", "queues", row_key(its))
    assert advice.row_of(scene, subject) is not None
    assert advice.advice(scene, subject) == Advice()


def test_of_each_finding_the_most_telling_hint_and_all_commands() -> None:
    one = of(LINK, "Raise the rate.", "Look at cable.", commands=("a", "b"))
    other = of(LINK, "Set it up.", commands=("b", "c"))
    assert told(SOCKET, of(SOCKET, "Read.", commands=("a",))) == Advice(("Read.",), ("a",))
    found = told(LINK, one, other)
    assert found.next == ("Raise the rate.", "Set it up.") and found.commands[:3] == ("a", "b", "c")
    assert told(CHILD, one, other).next == ()


def test_a_link_has_commands_without_a_finding_and_the_key_runs_only_what_is_there() -> None:
    key = row_key({"device": "eth0; reboot", "netns": "blue", "qdisc": "noqueue"})
    link = Subject("link_rates", "table", "links", key)
    commands = told(link).commands
    assert commands[1] == "ip netns exec blue ethtool -S 'eth0; reboot'" and " -s link show " in commands[0]
    scene = Scene(State(), MANIFESTS, PROFILE, Connection("live"))
    assert "run" not in advice.vain_keys(scene, link, link.probe)
    assert "run" in advice.vain_keys(scene, SOCKET, SOCKET.probe)


def test_the_chart_of_a_time_says_its_unit() -> None:
    its: dict[str, frames.Label] = {"vm": "web-07", "role": "vCPU 0"}
    row = {"labels": its, "counts": {"waited_ns": (709_000_000, 709_000_000)}}
    session = PlayedSession(Scenario().hello().status("thread_waits").table("thread_waits", "threads", [row]).end())
    subject = Subject("thread_waits", "table", "threads", row_key(its))
    scene = Scene(session.state, MANIFESTS, PROFILE, Connection("live"))
    assert "709 ms" in page_of(scene, subject)
    chart = "\n".join("".join(text for text, _ in line) for line in row_chart.lines(scene, subject, 100, 20))
    assert "peak 709 ms at" in chart and "709M" not in chart and "_ns" not in chart


def test_the_page_of_a_queue_has_what_any_of_its_rows_proves() -> None:
    """Else its state would be bad for no reason that is said."""
    queue, other = (Subject(VHOST, "table", "queues", row_key(labels(0, number, direction="rx"))) for number in (2, 3))
    stage = Subject("tx_kick_path", "histogram", "stages", row_key(labels(0, 2, stage="total")))
    evidence = (Evidence("histogram", stage.probe, stage.name, stage.key),)
    one = incident(evidence=evidence, next=("Give the worker a CPU.",))
    scene = Scene(State(), MANIFESTS, PROFILE, Connection("live"), findings=(one,))
    assert advice.incidents(scene, queue) == [one] and advice.incidents(scene, other) == []
    assert advice.elsewhere(scene, queue) == [stage]
    assert advice.advice(scene, queue).next == ("Give the worker a CPU.",)


def test_no_hint_names_the_table_of_the_row() -> None:
    hint = "Raise the rate (tc). The table Children of the pane Queues says which class drops. Or send less."
    assert told(LINK, of(LINK, hint)).next == (hint,)
    assert told(CHILD, of(CHILD, hint)).next == ("Raise the rate (tc). Or send less.",)
    whole = "See the table Sockets of the pane Drops: it shows which socket does not keep up."
    assert told(SOCKET, of(SOCKET, whole, "Read faster.")).next == ("Read faster.",)
    assert told(SOCKET, of(SOCKET, whole)).next == ()


def test_every_pane_and_table_that_a_hint_names_is_there() -> None:
    keys = {one.title: one.call.split("'")[1] for one in actions.ACTIONS if one.id.startswith("pane.")}
    panes = catalogue.panes(MANIFESTS, MANIFESTS)
    hints = [rule.next for manifest in MANIFESTS.values() for rule in manifest.findings]
    named = {pane for hint in hints for pane in re.findall(r"pane ([A-Z]\w+)", hint)}
    assert {"Queues", "Drops"} <= named <= set(keys)
    tables = {found for hint in hints for found in re.findall(r"table ([A-Z][\w: ]*?) of the pane (\w+)", hint)}
    assert {tab for tab, _ in tables} >= {"Children", "Links", "Sockets", "Queues: wait"}
    for tab, pane in tables:
        assert any(one.tab.startswith(tab) for one in panes[keys[pane]].blocks), (tab, pane)


def test_a_row_that_is_gone_still_shows_what_it_was() -> None:
    """Its chart with begin and end, and how much it was, as long as the incident is in the log."""
    gone = LINK
    one = incident(
        evidence=(Evidence("table", gone.probe, gone.name, gone.key),), total=339, peak=50.0, unit="packets",
        ended_ns=incident().since_ns + 3 * 10**9, history=(0.0, 50.0, 20.0),
    )  # fmt: skip
    stream = Stream(State())
    stream.hello()
    stream.state.apply(frames.Status(**stream.stamp("link_rates"), state="attached", mode="summary"))
    scene = Scene(stream.state, MANIFESTS, PROFILE, Connection("live"), log=(one,))
    page = "\n".join("".join(text for text, _ in line) for line in row_page.lines(scene, gone, 100))
    assert "this row is gone" in page and "339 packets · peak 50/s" in page and "as it was, packets per second" in page
    assert f"begins {clock(one.since_ns)} … ends {clock(one.ended_ns or 0)}" in page
    waited = replace(one, unit="ns", history=(0.0, 861e6, 20e6))
    page = page_of(replace(scene, log=(waited,)), gone)
    assert "861 ms ▁" in page or re.search(r"861 ms +█", page), "a time has its unit"
    end_ns = one.since_ns + 1000 * 10**9
    longer = replace(one, ended_ns=end_ns, kept=array("f", [50.0] * SAMPLES).tobytes())
    scene = Scene(stream.state, MANIFESTS, PROFILE, Connection("live"), log=(longer,))
    page = "\n".join("".join(text for text, _ in line) for line in row_page.lines(scene, gone, 100))
    assert f"{clock(end_ns - 600 * 10**9)} … ends {clock(end_ns)}" in page


def page_of(scene: Scene, subject: Subject) -> str:
    return "\n".join("".join(text for text, _ in line) for line in row_page.lines(scene, subject, 200))


def test_a_row_tells_its_latest_packet_and_how_long_ago_it_came() -> None:
    """Nothing of it reaches the screen as it is."""
    hostile = "\x1b[31m[bold]\u202e"
    example = {"mono_ns": EPOCH_MONO_NS - 3 * 10**9, "protocol": "UDP", "source": "192.0.2.1", "came_in_by": hostile}
    row = {"labels": {"device": "eth0"}, "counts": {"drops": (5, 5)}, "example": example}
    status = Scenario().hello().status("socket_drops")
    session = PlayedSession(status.table("socket_drops", "sockets", [row]).end())
    scene = Scene(session.state, MANIFESTS, PROFILE, Connection("live"), findings=(of_packet(SOCKET),))
    page = page_of(scene, SOCKET)
    assert re.search(r"latest packet +UDP 192\.0\.2\.1, came in by \\x1b\[31m\[bold\]\\u202e, 3 s ago", page)
    assert "\x1b" not in page and "\u202e" not in page
    assert page.count("latest packet") == 1, "the incident's own would be the same again"


def of_packet(subject: Subject) -> Incident:
    return replace(of(subject), example=Example(incident().since_ns, {"protocol": "TCP", "target_port": 9}))


def test_where_a_row_has_no_packet_its_incident_tells_the_one_that_it_has() -> None:
    """Of a row that is gone, or of another probe's."""
    stream = Stream(State())
    stream.hello()
    stream.state.apply(frames.Status(**stream.stamp("link_rates"), state="attached", mode="summary"))
    one = of_packet(LINK)
    page = page_of(Scene(stream.state, MANIFESTS, PROFILE, Connection("live"), log=(one,)), LINK)
    assert f"latest packet TCP, at {clock(one.since_ns)}" in page
    none = replace(one, example=Example(one.since_ns, {}))
    assert "latest packet" not in page_of(
        Scene(stream.state, MANIFESTS, PROFILE, Connection("live"), log=(none,)), LINK
    )
