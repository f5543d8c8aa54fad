"""The ledger of a mirror is in snapshots, their reports, and comparisons, in the words of the pane."""

from __future__ import annotations

import msgspec

from netconsole.base import figure
from netconsole.compare.compare import compare
from netconsole.findings.places_of_snapshot import whole_snapshot
from netconsole.report import of_comparison, of_snapshot, to_html, to_markdown
from netconsole.snapshot import builder
from netconsole.snapshot.document import MirrorData, MirrorStageData, Snapshot, encode, parse
from netconsole.snapshot.redact import Redactor
from netconsole.telemetry.session import Connection
from netconsole.tui.panes import mirror
from netconsole.tui.scene.scene import Scene
from tests.support.tui.played import PROFILE, PlayedSession
from tests.tui.panes.test_mirror import MANIFESTS, interval

SECOND = 10**9
LOSES = {"arrived": 950, "lost_backlog": 50, "lost_stack": 9, "lost_socket": 41, "queued": 900, "received": 899}


def taken(has_mirror: bool = True, /, **counts: int) -> tuple[Snapshot, Scene]:
    """Of the last two seconds, and what the console shows at their end."""
    state = PlayedSession(interval(True, None, True, **counts)).state
    if not has_mirror:
        state.probes.pop("mirror")
    now = builder.totals(state)
    since = builder.Totals(now.mono_ns - 2 * SECOND, now.wall_ns - 2 * SECOND)
    made = whole_snapshot(state, MANIFESTS, PROFILE, since, [], {})
    return made, Scene(state, MANIFESTS, PROFILE, Connection("live"))


def told(made: Snapshot) -> MirrorData:
    assert made.mirror is not None
    return made.mirror


def test_the_document_says_what_the_pane_says() -> None:
    made, scene = taken(**LOSES)
    assert f"Mirror: from NIC to worker · {told(made).verdict}" == mirror.title(scene)
    assert told(made).verdict.startswith("loses 10 % on this host, most at its backlog · CPU 3: its backlog is full")
    assert [(one.stage, one.where) for one in told(made).stages] == [
        (one.cells["stage"].text, one.cells["where"].text) for one in mirror.rows(scene)
    ]
    socket = next(one for one in told(made).stages if one.stage == "socket")
    assert socket == MirrorStageData(
        "socket", lost=41, lost_per_s=20.5, where="probe (7) port 4789, socket 6: its buffer is full"
    )
    assert parse(encode(made), "it").mirror == made.mirror


def test_rates_are_means_of_the_whole_run() -> None:
    made, _ = taken(**LOSES)
    queued = next(one for one in told(made).stages if one.stage == "queued")
    assert (queued.passed, queued.passed_per_s) == (900, 450.0)


def test_a_host_without_a_mirror_has_no_ledger() -> None:
    made, _ = taken(False)
    assert made.mirror is None
    assert "from NIC to worker" not in to_markdown(of_snapshot(made, MANIFESTS))


def test_reports_have_the_verdict_and_each_stage() -> None:
    made, _ = taken(**LOSES)
    for text in (to_markdown(of_snapshot(made, MANIFESTS)), to_html(of_snapshot(made, MANIFESTS))):
        assert "Mirror: from NIC to worker" in text and "Loses 10 % on this host, most at its backlog" in text
        assert "probe (7) port 4789, socket 6: its buffer is full" in text
    estimated = MirrorStageData("before this host", lost_per_s=50.0, estimated=True)
    low = MirrorStageData("queued", passed=5, passed_per_s=5.0, at_least=True)
    text = to_markdown(of_snapshot(msgspec.structs.replace(made, mirror=MirrorData("whole", [estimated, low]))))
    assert f"{figure.ABOUT}50" in text and f"{figure.AT_LEAST}5" in text


def test_a_comparison_has_each_stage_then_and_now() -> None:
    whole, _ = taken(arrived=950, queued=950, received=950)
    loses, _ = taken(**LOSES)
    compared = compare(loses, [whole, whole], manifests=MANIFESTS)
    found = {(one.stage, one.is_loss): (one.baseline_per_s, one.current_per_s) for one in compared.mirror or []}
    assert found["socket", True] == (0.0, 20.5) and found["received", False] == (475.0, 449.5)
    assert "its buffer is full" in to_markdown(of_comparison(compared))
    without = compare(loses, [taken(False)[0]], manifests=MANIFESTS)
    assert {one.baseline_per_s for one in without.mirror or []} == {None}
    assert compare(taken(False)[0], [loses], manifests=MANIFESTS).mirror is None


def test_a_mirror_of_which_other_filters_let_pass_less_is_no_baseline() -> None:
    """Of one port then, and whole now."""
    loses, _ = taken(**LOSES)
    of_port = msgspec.structs.replace(loses.probes["mirror"], filters={"port": 443})
    narrow = msgspec.structs.replace(loses, probes={**loses.probes, "mirror": of_port})
    for baseline, rate in ([loses], 449.5), ([narrow], None), ([loses, narrow], 449.5):
        compared = compare(loses, baseline, manifests=MANIFESTS)
        assert [one.baseline_per_s for one in compared.mirror or [] if one.stage == "received"] == [rate]


def test_a_redacted_ledger_names_nobody() -> None:
    made, _ = taken(**LOSES)
    assert "probe (7)" in str(made.mirror)
    assert "eth0" not in str(told(Redactor(bytes(32)).snapshot(made, MANIFESTS)))
