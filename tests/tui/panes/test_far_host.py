"""Header and Cost pane say that the host is another machine, how far away, and how well its clocks are known."""

from __future__ import annotations

import pytest

from netconsole.profile.profile import Profile
from netconsole.telemetry import frames
from netconsole.telemetry.session import Connection, LineState
from netconsole.telemetry.state import State
from netconsole.tui.panes.cost import budget
from netconsole.tui.panes.overview.header import Pause, first_line
from netconsole.tui.scene.scene import Scene

HV = frames.Host(name="hv-017", kernel="6.1.0-56-amd64", arch="x86_64", os="", cpus=96, boot_id="")


def scene(connection: Connection) -> Scene:
    state = State()
    state.host = HV
    return Scene(state, {}, Profile("summary"), connection)


def line(ahead_s: float | None = 3.02, round_trip_s: float | None = 0.052) -> LineState:
    within_s = None if round_trip_s is None else round_trip_s / 2
    return LineState("ssh://hv", round_trip_s, within_s, ahead_s, 1234.0)


def header(connection: Connection) -> str:
    return "".join(text for text, _ in first_line(scene(connection), Pause(), "live", 0.0, 140))


def said(connection: Connection) -> tuple[str, str] | None:
    rows = {row.cells["what"].text: row.cells for row in budget.rows(scene(connection))}
    return (rows["line"]["now"].text, rows["line"]["note"].text) if "line" in rows else None


def test_this_machine_has_no_line() -> None:
    assert "ssh" not in header(Connection("live")) and said(Connection("live")) is None


def test_the_header_says_how_far_away_the_host_is() -> None:
    assert "ssh 52 ms · LIVE" in header(Connection("live", line=line()))
    assert "ssh · LIVE" in header(Connection("live", line=line(None, None)))


def test_a_lost_line_is_not_called_a_lost_collector() -> None:
    assert "!! LINE LOST, again in 2 s" in header(Connection("lost", "the line broke", 2.0, line=line()))
    assert "!! COLLECTOR LOST, again in 2 s" in header(Connection("lost", "killed", 2.0))


@pytest.mark.parametrize(
    ("ahead_s", "words"),
    [
        (3.02, "its clock is 3.02 s ahead of this one ±26 ms"),
        (-3.02, "its clock is 3.02 s behind this one ±26 ms"),
        (0.02, "its clock agrees with this one ±26 ms"),
    ],
)
def test_the_cost_pane_says_how_the_clocks_stand(ahead_s: float, words: str) -> None:
    found = said(Connection("live", line=line(ahead_s)))
    assert found == ("1.23k B/s", f"{words}; round trip 52 ms; frames, before ssh compresses them")


def test_before_the_first_answer_nothing_is_said_of_clocks() -> None:
    assert said(Connection("live", line=line(None, None))) == ("1.23k B/s", "frames, before ssh compresses them")
