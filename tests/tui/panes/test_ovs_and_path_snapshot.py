"""What the panes OVS and Path show is in snapshots as well: as JSON, Markdown, HTML and text."""

from __future__ import annotations

import pytest

from netconsole.probes import catalogue
from netconsole.report import of_snapshot
from netconsole.report.formats import RENDERERS
from netconsole.snapshot import builder
from netconsole.snapshot.document import Snapshot, encode, parse
from tests.support.tui import switch_scenes as made
from tests.support.tui.played import PROFILE, PlayedSession
from tests.support.tui.switch_scenes import DROPS, FLOWS, PATH, UPCALLS

MANIFESTS = {name: catalogue.shipped(name) for name in (FLOWS, UPCALLS, DROPS, PATH)}


@pytest.fixture(scope="module")
def taken() -> Snapshot:
    """A switch without handlers, one port that asks it, and packets on their way."""
    scenario = made.datapath(made.attached(*MANIFESTS), lost=100, handlers=0, no_handler=1)
    scenario.table(UPCALLS, "upcalls", [made.port("vnet9", 30, failed=30), made.port("vnet0", 10)])
    scenario.table(UPCALLS, "failures", [made.failure("vnet9", "ENOTCONN", 30)])
    made.answered(scenario, "vnet0", 860_000)
    drop = {"location": "ovs_vport_send", "port": "vnet0", "netns": "host", "reason": "OVS_TOO_LARGE"}
    drop |= {"class": "suspicious", "provenance": "inferred"}
    scenario.table(DROPS, "drops", [{"labels": drop, "counts": {"count": (50, 50)}}])
    made.way(scenario, "out", {"lookup": 5_000, "actions": 15_000, "qdisc": 4_000_000})
    # A snapshot counts from its first frame: what was there before is not of it.
    session = PlayedSession(scenario.end())
    return builder.build(session.state, MANIFESTS, PROFILE, builder.totals_at_start(session.state))


@pytest.mark.parametrize("form", RENDERERS)
def test_a_report_names_what_stands_out_and_has_the_figures(taken: Snapshot, form: str) -> None:
    said = RENDERERS[form](of_snapshot(taken, MANIFESTS)).replace("<wbr>", "")
    for words in ("no handler is registered", "ENOTCONN", "OVS_TOO_LARGE", "through this host"):
        assert words in said
    for figure in ("vnet9", "860 us", "qdisc", "4.02 ms"):
        assert figure in said


def test_the_document_has_every_row_and_bucket(taken: Snapshot) -> None:
    read = parse(encode(taken), "test")
    assert read.probes[FLOWS].tables["datapaths"][0]["no_handler"] == 1
    assert [row["count"] for row in read.probes[UPCALLS].tables["failures"]] == [30]
    stages = {part.labels["stage"]: part.count for part in read.probes[PATH].histograms["stages"].by}
    assert stages == {"lookup": 100, "actions": 100, "qdisc": 100}
