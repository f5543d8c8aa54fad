"""The console on a recording: it says so, moves as the keys say, and takes snapshots of the stretch that was chosen."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from netconsole.probes import catalogue
from netconsole.profile.profile import Budget, Profile
from netconsole.recording.player import Player
from netconsole.recording.reader import Recording
from netconsole.recording.replay_session import Position, ReplaySession
from netconsole.snapshot import document
from netconsole.tui.replay_app import ReplayApp
from netconsole.tui.screens.jump import JumpScreen
from netconsole.tui.screens.snapshot import SnapshotScreen
from tests.support.recorded import Stream, record
from tests.support.tui.pictures import is_picture
from tests.support.tui.played import screen_text

LIMIT_S = 300.0
LENGTH_S = 200
MANIFESTS = catalogue.load_all()


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("replay") / "night.ncrec"
    record(path, Stream(rows=5).batches(LENGTH_S))
    return path


class Replaying:
    """The application on a recording, its pilot and its session."""

    def __init__(self, app: ReplayApp, pilot: Pilot[None], session: ReplaySession) -> None:
        self.app = app
        self.pilot = pilot
        self.session = session

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def until(self, true: Callable[[Position], bool]) -> Position:
        """When the replay has moved there, and the screen shows it."""
        deadline_s = time.monotonic() + LIMIT_S
        while not true(self.session.position()):
            assert time.monotonic() < deadline_s, self.session.position()
            await self.pilot.pause(0.01)
        await self.pilot.pause()
        return self.session.position()

    async def shows(self, *texts: str) -> str:
        """When the screen holds these texts."""
        deadline_s = time.monotonic() + LIMIT_S
        while not all(text in screen_text(self.app) for text in texts):
            assert time.monotonic() < deadline_s, screen_text(self.app)
            await self.pilot.pause(0.01)
        return screen_text(self.app)


@asynccontextmanager
async def replaying(path: Path, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Replaying]:
    """A replay that stands still at its beginning."""
    session = ReplaySession(Player(Recording(path), MANIFESTS, Budget()))
    session.pause()
    app = ReplayApp(session, Profile("summary"), MANIFESTS)
    try:
        async with app.run_test(size=size) as pilot:
            session.start()
            await pilot.pause()
            yield Replaying(app, pilot, session)
    finally:
        session.close()


def at(seconds: float) -> Callable[[Position], bool]:
    """No more than two intervals off: a jump ends with the last whole interval before its target."""
    return lambda position: abs(position.at_s - seconds) <= 2.1


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_it_says_that_it_is_a_recording_and_of_when(recording: Path, size: tuple[int, int]) -> None:
    async with replaying(recording, size) as one:
        await one.press("right_curly_bracket")
        text = await one.shows("RECORDING", "PAUSED", "00:00:59 of 00:03:20")
        assert "LIVE" not in text
        if size[0] >= 80:
            assert "2026-11-21 09:00:59" in text
            assert "hv-017" in text


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_its_header_looks_as_it_did(recording: Path, size: tuple[int, int]) -> None:
    """As in test_pictures.py, where it says how they are written anew; the panes are the same, and pictured there."""
    async with replaying(recording, size) as one:
        await one.press("right_curly_bracket")
        await one.until(at(60))
        await one.press("m")
        await one.press("right_square_bracket")
        await one.until(at(70))
        shown = (await one.shows("00:01:08 of 00:03:20")).splitlines(keepends=True)
    is_picture(f"replay-header-{size[0]}x{size[1]}", "".join(shown[:3]))


async def test_it_plays_and_pauses(recording: Path) -> None:
    async with replaying(recording) as one:
        await one.press("equals_sign", "equals_sign", "equals_sign", "equals_sign")
        await one.press("p")
        await one.shows("PLAYING ×30")
        assert (await one.until(lambda position: position.at_s > 5)).playing
        await one.press("space")
        position = await one.until(lambda position: not position.playing)
        await one.shows("PAUSED")
        assert one.session.position().at_s == position.at_s
        await one.press("minus")
        await one.shows("PAUSED ×10")
        await one.press("right_curly_bracket", "right_curly_bracket", "right_curly_bracket", "right_curly_bracket")
        await one.until(lambda position: position.at_end)
        await one.shows("END")


async def test_it_steps_and_seeks(recording: Path) -> None:
    async with replaying(recording) as one:
        await one.press("right_curly_bracket", "right_square_bracket")
        first = await one.until(at(70))
        await one.press("full_stop")
        second = await one.until(lambda position: position.at_s > first.at_s)
        assert 0.9 < second.at_s - first.at_s < 1.1, "one interval"
        await one.press("comma")
        assert (await one.until(lambda position: position.at_s < second.at_s)).at_s == first.at_s
        await one.press("left_square_bracket")
        await one.until(at(60))
        await one.press("left_curly_bracket")
        await one.until(at(0))


async def test_the_page_of_a_vm_is_of_all_up_to_the_moment_that_is_shown(recording: Path) -> None:
    async with replaying(recording) as one:
        await one.press("right_curly_bracket")
        await one.until(at(60))
        one.app._open_vm("web-07")
        await one.shows("VM web-07", "T09:00:59Z, 59 s, profile summary")
        one.session.step(1)
        await one.shows("T09:01:00Z, 60 s, profile summary")
        one.session.seek_by(-20)
        there = await one.until(at(40))
        await one.shows(f"T09:00:{there.at_s:.0f}Z, {there.at_s:.0f} s, profile summary")


async def test_it_goes_to_a_time_that_is_typed(recording: Path) -> None:
    async with replaying(recording) as one:
        await one.press("t")
        await one.shows("from 09:00:00 to 09:03:20")
        for key in "soon":
            await one.press(key)
        await one.press("enter")
        await one.shows("'soon' is not a time in this recording of 00:03:20")
        one.app.screen.query_one(Input).value = "09:02:30"
        await one.press("enter")
        await one.until(at(150))
        assert not isinstance(one.app.screen, JumpScreen)
        await one.press("t", "escape")
        assert at(150)(one.session.position())


async def write_snapshot(one: Replaying, file: Path) -> document.Snapshot:
    await one.press("s")
    assert isinstance(one.app.screen, SnapshotScreen)
    one.app.screen.query_one("#field-file", Input).value = str(file)
    one.app.screen.query_one("#field-note", Input).value = "as seen at night"
    await one.press("enter")
    await one.shows("snapshot written")
    return document.load(file)


async def test_a_snapshot_is_of_the_stretch_from_the_beginning_or_the_mark(recording: Path, tmp_path: Path) -> None:
    async with replaying(recording) as one:
        await one.press("right_curly_bracket")
        await one.until(at(60))
        await one.press("s")
        text = await one.shows("of the recording, from the beginning to 00:00:59")
        assert " time" not in text.split("note")[0].splitlines()[-1], "nothing is waited for, so no time is asked for"
        await one.press("escape")
        whole = await write_snapshot(one, tmp_path / "whole.json")
        assert whole.duration_s == pytest.approx(59, abs=1.1)
        assert (whole.host.name, whole.note) == ("hv-017", "as seen at night")
        assert whole.facts["vm/web/net/0/tap"].value == "vnet7", "as it was when the recording began"
        assert whole.created.startswith("2026-11-21T09:0"), "when it was recorded, not when it was replayed"
        await one.press("m")
        await one.until(lambda position: position.since_s > 0)
        await one.press("right_square_bracket")
        await one.until(at(70))
        await one.press("s")
        await one.shows("from the mark at 00:00:59 to 00:01:0")
        await one.press("escape")
        part = await write_snapshot(one, tmp_path / "part.json")
        assert part.duration_s == pytest.approx(10, abs=2.1)
        few, many = (taken.probes["kernel_drops"].counters["drops"].total or 0 for taken in (part, whole))
        assert 0 < few < many


async def test_a_snapshot_that_is_asked_for_while_it_plays_stands_still(recording: Path) -> None:
    async with replaying(recording) as one:
        await one.press("p")
        await one.until(lambda position: position.playing and position.at_s > 0.5)
        await one.press("s")
        place = await one.until(lambda position: not position.playing)
        assert place.at_s == one.session.position().at_s


@pytest.mark.parametrize(
    ("key", "said"),
    [("e", "this is a replay: "), ("u", "this is a replay: "), ("w", "this is already a recording")],
)
async def test_nothing_in_it_can_be_changed(recording: Path, key: str, said: str) -> None:
    async with replaying(recording) as one:
        await one.press(key)
        await one.shows(said)
        assert one.app.screen is one.app.main


async def test_the_page_of_a_row_offers_nothing_that_would_change_it(recording: Path) -> None:
    async with replaying(recording) as one:
        await one.press("right_curly_bracket")
        await one.until(at(60))
        await one.press("tab", "enter")
        keys = (await one.shows("Esc q back")).splitlines()[-1]
        assert "y copy" in keys
        assert "investigate" not in keys and "knobs" not in keys


@pytest.mark.parametrize("key", ["question_mark", "f"])
async def test_the_end_that_came_behind_a_page_is_there_when_the_page_goes(recording: Path, key: str) -> None:
    async with replaying(recording) as one:
        await one.press("right_curly_bracket", "p", key)
        await one.until(lambda place: place.playing)
        await one.shows("Esc")
        one.session.seek_by(LENGTH_S)
        await one.until(lambda place: place.at_end)
        await one.press("escape")
        assert "END" in (await one.shows("STANDS OUT", "END")).splitlines()[2]


async def test_the_page_of_a_vm_is_of_what_was_played(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netconsole.tui.row_keys.machine", lambda *_: "web-07")
    async with replaying(recording) as one:
        await one.press("right_curly_bracket")
        await one.until(at(60))
        await one.press("v")
        await one.shows("WHAT MAY CAP IT", "profile summary")
