"""What samples of one row found: waiting is said as such, and nothing that the row says already is said again."""

from __future__ import annotations

from netconsole.escalation.investigation import Investigation
from netconsole.profile.profile import Profile
from netconsole.telemetry import frames
from netconsole.telemetry.session import Connection
from netconsole.telemetry.state import State
from netconsole.tui.panes import investigation, row_page
from netconsole.tui.scene.scene import Scene, Subject

LABELS = (("process", "python3"), ("reason", "SOCKET_RCVBUFF"))
SECOND = 1_000_000_000


def said(one: Investigation) -> str:
    scene = Scene(State(), {}, Profile("summary"), Connection("live"), investigation=one)
    found = investigation.lines(scene, Subject("kernel_drops", "table", "drops", LABELS))
    return "\n".join("".join(text for text, _ in line) for line in found)


def sample(number: int, **fields: frames.Scalar | list[str]) -> frames.Event:
    return frames.Event(seq=number, wall_ns=1, mono_ns=1, probe="kernel_drops", name="drop", fields={**fields})


def test_before_the_first_sample_it_waits_and_at_the_end_none_came() -> None:
    one = Investigation("kernel_drops", LABELS, "", began_s=0.0)
    assert "waiting for the first sample" in said(one) and "0 samples" not in said(one)
    one.why = "30 s are over"
    assert "no sample came" in said(one)


def test_a_group_that_repeats_a_label_of_the_row_is_left_out() -> None:
    one = Investigation("kernel_drops", LABELS, "", began_s=0.0)
    row: dict[str, frames.Scalar | list[str]] = {"reason": "SOCKET_RCVBUFF", "process": "python3"}
    one.take([sample(number, **row, source="192.0.2.1", target="192.0.2.2") for number in range(3)])
    text = said(one)
    assert "3 samples, not all that happened" in text and "flows" in text and "192.0.2.1" in text
    assert "processes" not in text and "python3" not in text
    port = Investigation("kernel_drops", (*LABELS, ("port", 53), ("protocol", "UDP")), "", began_s=0.0)
    port.take([sample(5, protocol="UDP", target_port=53, source="192.0.2.1", target="192.0.2.2")])
    scene = Scene(State(), {}, Profile("summary"), Connection("live"), investigation=port)
    found = investigation.lines(scene, Subject("kernel_drops", "table", "drops", port.labels))
    assert not any("ports" in text or "UDP 53" in text for line in found for text, _ in line)
    other = Investigation("kernel_drops", LABELS[1:], "", began_s=0.0)
    other.take([sample(4, **row)])
    scene = Scene(State(), {}, Profile("summary"), Connection("live"), investigation=other)
    found = investigation.lines(scene, Subject("kernel_drops", "table", "drops", LABELS[1:]))
    assert any("python3" in text for line in found for text, _ in line), "a row that does not name it"


def test_what_began_and_ended_in_one_second_was_at_that_second() -> None:
    assert row_page._stretch(10 * SECOND, 10 * SECOND + 5).startswith("at ")
    assert row_page._stretch(10 * SECOND, 12 * SECOND).startswith("from ")
