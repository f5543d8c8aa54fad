"""What a row advises: of what it proves alone, the most telling hint, and nothing that sends the reader where he is."""

from __future__ import annotations

import re

from netconsole.findings.incident import Incident
from netconsole.findings.match import Evidence
from netconsole.probes.catalogue import load_all
from netconsole.session.protocol import Connection
from netconsole.telemetry.state import State
from netconsole.telemetry.tables import row_key
from netconsole.tui import actions
from netconsole.tui.panes import advice, catalogue
from netconsole.tui.panes.advice import Advice
from netconsole.tui.scene.scene import Scene, Subject
from tests.support.fake_collector import Scenario
from tests.support.tui.played import PROFILE, PlayedSession
from tests.support.tui.vhost_scenes import labels
from tests.unit.findings.test_incident import incident

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
    assert told(LINK, one, other) == Advice(("Raise the rate.", "Set it up."), ("a", "b", "c"))
    assert told(CHILD, one, other) == Advice()


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
