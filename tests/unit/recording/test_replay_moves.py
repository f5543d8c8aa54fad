"""When a replay session plays, waits and moves: a small recording, played by a clock that the test has.

Nine intervals in three blocks; :mod:`tests.unit.recording.test_replay_session` has long ones, in real time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from netconsole.profile.profile import Budget
from netconsole.recording import replay_session
from netconsole.recording.player import Player
from netconsole.recording.reader import Recording
from netconsole.recording.replay_session import LEAST_SPEED, MAX_GAP_S, MOST_SPEED, SPEEDS, ReplaySession
from netconsole.telemetry.session import CommandError
from tests.support.recorded import HEADER
from tests.unit.recording.test_reader import write

BEGAN_S = 1000.0
LIMIT_S = 20.0
ENDLESS = 10_000
"""Looks at the clock: a replay of nine intervals needs some dozens."""


def opened(path: Path) -> Player:
    return Player(Recording(path), {}, Budget())


class Played:
    """A session whose thread is the test's own: it waits by moving the clock on, and ends when nothing is due."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, speed: float = 1.0) -> None:
        self.now_s = BEGAN_S
        self.waits: list[float] = []
        self.news: list[tuple[float, float]] = []
        """When they came, seconds from the beginning, and the place then."""
        self.heard: Callable[[], None] = lambda: None
        self.asked = 0
        monkeypatch.setattr(replay_session, "time", SimpleNamespace(monotonic=self._monotonic))
        self.player = opened(path)
        self.session = ReplaySession(self.player, speed)
        self._as_any = cast(Any, self.session)
        self._as_any._wake = self
        self.session.on_news(self._news)

    def _monotonic(self) -> float:
        self.asked += 1
        assert self.asked < ENDLESS
        return self.now_s

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def notify(self) -> None:
        """As of a condition."""

    def wait(self, seconds: float | None) -> None:
        """As of a condition."""
        self.asked += 1
        assert self.asked < ENDLESS
        if seconds is None:
            self._as_any._closing = True
            return
        self.waits.append(seconds)
        self.now_s += seconds

    def _news(self, what: str) -> None:
        assert what == "interval"
        self.news.append((self.now_s - BEGAN_S, self.player.at_s))
        self.heard()

    def run(self) -> list[tuple[float, float]]:
        """Until nothing is due any more; the news meanwhile."""
        self.news.clear()
        self._as_any._closing = False
        self._as_any._run()
        return list(self.news)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "a.ncrec")


def gaps_and_places(path: Path) -> tuple[list[float], list[float]]:
    """Of each batch: how long after the one before it came, and the place after it."""
    one, gaps, places = opened(path), [], []
    while (gap_s := one.gap_s) is not None:
        one.apply()
        gaps.append(gap_s)
        places.append(one.at_s)
    return gaps, places


@pytest.mark.parametrize("speed", [1.0, 2.0, 0.25])
def test_each_batch_comes_when_it_came(path: Path, monkeypatch: pytest.MonkeyPatch, speed: float) -> None:
    gaps, places = gaps_and_places(path)
    assert max(gaps) < MAX_GAP_S and len([gap for gap in gaps if gap]) > 9
    one = Played(path, monkeypatch, speed)
    played = one.run()
    assert [at for at, _ in played] == pytest.approx([sum_s / speed for sum_s in accumulate(gaps)])
    assert [place for _, place in played] == places
    assert one.session.position().at_end and one.waits == pytest.approx([gap / speed for gap in gaps if gap])


def test_a_long_silence_is_shortened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To five seconds, by the speed; here to half a second, as the intervals are short."""
    assert MAX_GAP_S == 5.0
    monkeypatch.setattr(replay_session, "MAX_GAP_S", 0.5)
    gaps, _ = gaps_and_places(path)
    assert max(gaps) > 0.5
    played = Played(path, monkeypatch, 2.0).run()
    assert [at for at, _ in played] == pytest.approx(list(accumulate(min(gap, 0.5) / 2.0 for gap in gaps)))


def test_what_was_late_is_caught_up_with_but_for_what_is_more_than_a_second(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaps, _ = gaps_and_places(path)
    due = list(accumulate(gaps))
    for late_s, lost_s in ((0.75, 0.0), (4.0, 3.0)):
        one = Played(path, monkeypatch)

        def once(one: Played = one, late_s: float = late_s) -> None:
            one.heard, one.now_s = (lambda: None), one.now_s + late_s

        one.heard = once
        played = [at for at, _ in one.run()]
        assert played[1] == pytest.approx(max(due[1], due[0] + late_s))
        # Of what it is late it makes good one second; of that the place after the wait is a part.
        assert played[-1] >= due[-1] + lost_s - 1e-6
        assert played[-1] == pytest.approx(due[-1] + lost_s, abs=max(gaps) if lost_s else 1e-6)


def test_a_pause_lasts_until_it_plays_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Played(path, monkeypatch)
    assert one.session.position().playing
    one.session.pause()
    assert one.run() == [] and one.waits == [] and not one.session.position().playing
    one.session.pause()
    assert not one.session.position().playing
    one.session.toggle()
    assert one.session.position().playing
    _gaps, places = gaps_and_places(path)
    assert [place for _, place in one.run()] == places


def test_it_plays_from_the_beginning_only_when_it_was_at_its_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Played(path, monkeypatch)
    _, places = gaps_and_places(path)
    one.session.pause()
    one.session.seek(4.5)
    ((_, at_s),) = one.run()
    assert 3 < at_s <= 4.5
    one.session.toggle()
    assert all(place >= at_s for _, place in one.run())
    one.session.toggle()  # pauses, at the end
    assert one.run() == [] and one.session.position().at_end
    one.session.toggle()
    first, *_, last = one.run()
    assert first[1] == 0.0 and last[1] == places[-1]


def test_moves_are_made_in_their_order_and_the_next_batch_is_a_gap_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Played(path, monkeypatch)
    one.session.pause()
    one.session.seek(6.2)
    one.session.seek_by(-2.0)
    one.session.set_since()
    ((_, at_s),) = one.run()  # one piece of news for all of them
    assert 3.0 < at_s <= 4.2 and one.session.position().since_s == pytest.approx(at_s, abs=1.0)
    one.session.seek_by(2.0)
    ((_, later),) = one.run()
    assert later == pytest.approx(at_s + 2.0, abs=1.0) and later > at_s
    one.now_s += 100.0
    one.session.seek(at_s)
    one.run()
    moved_s, gap_s = one.now_s, one.player.gap_s
    one.session.toggle()
    (first, _), *_ = one.run()
    assert gap_s and BEGAN_S + first == pytest.approx(moved_s + gap_s)


def test_a_step_pauses_at_the_end_of_an_interval(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = Played(path, monkeypatch), opened(path)
    ends = []
    for _ in range(3):
        other.step()
        ends.append(other.at_s)
        one.session.step(1)
        ((_, at_s),) = one.run()
        assert at_s == other.at_s and not one.session.position().playing
    one.session.step(-1)
    ((_, at_s),) = one.run()
    assert at_s == ends[1]


@pytest.mark.parametrize(
    ("speed", "step", "then"),
    [
        (1.0, 1, 2.0), (1.0, -1, 0.5), (0.7, 1, 1.0), (0.7, -1, 0.5), (SPEEDS[-1], 1, SPEEDS[-1]),
        (SPEEDS[0], -1, SPEEDS[0]), (MOST_SPEED, -1, SPEEDS[-1]), (LEAST_SPEED, 1, SPEEDS[0]),
        (MOST_SPEED, 1, MOST_SPEED), (LEAST_SPEED, -1, LEAST_SPEED),
    ],
)  # fmt: skip
def test_the_next_speed(path: Path, monkeypatch: pytest.MonkeyPatch, speed: float, step: int, then: float) -> None:
    session = Played(path, monkeypatch, speed).session
    assert session.position().speed == speed
    session.faster(step)
    assert session.position().speed == then


def test_speeds_on_the_command_line_have_bounds() -> None:
    assert (LEAST_SPEED, MOST_SPEED) == (0.01, 1000.0)
    assert list(SPEEDS) == sorted(SPEEDS) and SPEEDS[0] >= LEAST_SPEED and SPEEDS[-1] <= MOST_SPEED


def test_what_it_says_of_this_moment_is_what_the_player_says(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Played(path, monkeypatch)
    one.session.pause()
    one.session.seek(3.0)
    one.session.set_since()
    one.session.seek(5.0)
    one.run()
    now, recording, place = one.session.position(), one.player.recording, one.player.place
    assert now.host == HEADER.host and (now.at_s, now.length_s) == (one.player.at_s, one.player.length_s)
    assert (now.wall_ns, now.begin_wall_ns) == (place.wall_ns, recording.begin.wall_ns)
    assert (now.at_end, now.cut, now.trouble) == (False, False, None)
    assert 0 < now.since_s == one.player.since_s < now.at_s
    assert one.session.since() is one.player.since and one.session.standing() is place.standing
    assert one.session.incidents() == tuple(place.findings.log) and one.session.actions() == tuple(place.actions)
    assert one.session.age_s() is None and one.session.kind == "recorded"
    with one.session.view() as state:
        assert state is place.state
        settled = [probe.settled for probe in state.probes.values()]
    assert settled and one.session.settled() == all(settled)
    next(iter(place.state.probes.values())).status = "attaching"
    assert not one.session.settled()
    connection = one.session.connection()
    assert (connection.phase, connection.broken_frames) == ("live", recording.broken_frames)


def test_a_recording_that_was_cut_off_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = Played(write(tmp_path / "cut.ncrec", end=False), monkeypatch)
    assert cut.session.position().cut


def test_nothing_can_be_changed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Played(path, monkeypatch).session
    for future in (session.set("a", "details"), session.reload("a", "details"), session.unload("a")):
        with pytest.raises(CommandError, match="a recording cannot be changed"):
            future.result(0)


def closes_file(player: Player, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    closed: list[bool] = []
    monkeypatch.setattr(player.recording, "close", lambda: closed.append(True))
    return closed


def test_it_ends_its_thread_and_then_closes_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    player = opened(path)
    closed = closes_file(player, monkeypatch)
    session = ReplaySession(player)
    session.pause()
    moved = threading.Event()
    session.on_news(lambda _: moved.set())
    session.start()
    session.seek(2.0)
    assert moved.wait(LIMIT_S)
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("replay") == 1
    session.close()
    assert closed == [True] and "replay" not in [thread.name for thread in threading.enumerate()]


def test_what_hears_news_may_close_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot wait for itself, and the file stays open as long as the thread may read it."""
    player = opened(path)
    closed = closes_file(player, monkeypatch)
    session = ReplaySession(player, MOST_SPEED)
    heard: list[tuple[str, threading.Thread]] = []

    def hear(what: str) -> None:
        heard.append((what, threading.current_thread()))
        session.close()

    session.on_news(lambda what: heard.append((what, threading.current_thread())))
    session.on_news(hear)
    session.start()
    cast(Any, session)._thread.join(LIMIT_S)
    assert [what for what, _ in heard] == ["interval", "interval"] and not heard[0][1].is_alive()
    assert closed == []
    session.close()
    assert closed == [True]
