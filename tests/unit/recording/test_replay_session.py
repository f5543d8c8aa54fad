"""A replay shows what a live session would have shown at that moment, wherever one jumps, and never hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from netconsole.findings.incident import Incident
from netconsole.findings.incidents import Incidents
from netconsole.probes import catalogue
from netconsole.profile.profile import Budget, Profile
from netconsole.recording.player import HISTORY_S, Player
from netconsole.recording.reader import Recording
from netconsole.recording.recorder import BLOCK_S
from netconsole.recording.replay_session import Position, ReplaySession
from netconsole.snapshot import builder
from netconsole.telemetry import checkpoint, frames
from netconsole.telemetry.session import CommandError, News
from netconsole.telemetry.state import State
from tests.support.recorded import VERSION_1, Batch, Stream, record

LIMIT_S = 300.0
MANIFESTS = catalogue.load_all()


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty minutes, so that a jump to the end does not read everything."""
    path = tmp_path_factory.mktemp("replay") / "a.ncrec"
    record(path, Stream(rows=5).batches(1200))
    return path


def player(path: Path) -> Player:
    return Player(Recording(path), MANIFESTS, Budget())


@pytest.fixture(scope="module")
def live() -> list[tuple[int, bytes, list[Incident]]]:
    """What a live session was like at the end of every interval of the collector."""
    state, findings, known = State(), Incidents(MANIFESTS, Budget()), []
    for batch in Stream(rows=5).batches(1200):
        for frame in batch:
            ended = state.apply(frame)
        if ended and batch[-1].source == "collector":
            known.append((batch[-1].mono_ns, checkpoint.encode(state), list(findings.update(state))))
    return known


Live = list[tuple[int, bytes, list[Incident]]]


def test_played_through_it_is_what_the_live_session_was(long: Path, live: Live) -> None:
    replay = player(long)
    for at_ns, expected, findings in live:
        assert replay.step()
        assert replay.place.at_ns == at_ns and checkpoint.encode(replay.place.state) == expected
        assert list(replay.place.standing) == findings
    assert not replay.step() and replay.at_end and replay.at_s == pytest.approx(replay.length_s, abs=1)


@given(target=st.integers(0, 1199))
@example(0)
@example(int(BLOCK_S) - 1)
@example(int(BLOCK_S))
@example(int(HISTORY_S))
@example(1199)
@settings(max_examples=2, deadline=None)
def test_a_jump_lands_in_what_the_live_session_was(long: Path, live: Live, target: int) -> None:
    replay = player(long)
    at_ns, expected, findings = live[target]
    replay.seek((at_ns - replay.begin_ns) / 1e9)
    assert replay.place.at_ns == at_ns and checkpoint.encode(replay.place.state) == expected
    assert [finding.sentence for finding in replay.place.standing] == [finding.sentence for finding in findings]
    assert replay.step() == (target < 1199)
    if target < 1199:
        assert checkpoint.encode(replay.place.state) == live[target + 1][1]


def test_after_a_jump_histories_are_there_as_far_as_they_go_back(long: Path) -> None:
    through, jumped = player(long), player(long)
    for _ in range(1100):
        through.step()
    jumped.seek(through.at_s)

    def history(one: Player) -> list[float | None]:
        return one.place.state.probes["kernel_drops"].counter_history("drops")

    assert len(history(through)) == HISTORY_S and history(jumped) == history(through)
    assert jumped.place.block > 0, "it did not read everything"


def test_back_is_the_way_that_it_came(long: Path) -> None:
    replay = player(long)
    seen = []
    for _ in range(70):
        replay.step()
        seen.append(checkpoint.encode(replay.place.state))
    for expected in seen[-2::-1]:
        replay.back()
        assert checkpoint.encode(replay.place.state) == expected
    replay.back()
    replay.back()
    assert replay.at_s < 1 and replay.step()


def test_a_lost_collector_is_not_waited_for(tmp_path: Path) -> None:
    stream = Stream()

    def batches() -> Iterator[Batch]:
        yield from stream.batches(5)
        for number in range(30):
            collected, own = stream.interval()
            yield from [own] if 0 < number < 25 else [collected, own]

    path = tmp_path / "a.ncrec"
    record(path, batches())
    replay = player(path)
    steps = 0
    while replay.step():
        steps += 1
    assert steps > 20, "one still steps through the seconds in which it was away"
    replay.seek(15)
    assert 13 < replay.at_s <= 15
    at_s = replay.at_s
    replay.back()
    assert replay.at_s < at_s


@pytest.mark.parametrize("with_frames", [True, False])
def test_what_was_done_to_keep_the_budget_is_told(tmp_path: Path, with_frames: bool) -> None:
    """Of recordings without frames of it as far as the states of probes tell."""
    stream = Stream()

    def action(probe: str | None, what: str, measured: float) -> frames.Action:
        stamp = stream.stamp(probe, "console")
        return frames.Action(**stamp, action=what, because="in-kernel time", measured=measured, limit=2.0)

    def batches() -> Iterator[Batch]:
        yield from stream.begin()
        yield from stream.interval()
        if with_frames:
            yield [action("kernel_drops", "details → summary", 3.5)]
        why = "details → summary: in-kernel time: 3.5, limit 2"
        yield [frames.Status(**stream.stamp("kernel_drops"), state="attached", mode="summary", why=why)]
        yield from stream.interval()
        if with_frames:
            yield [action(None, "over the budget", 2.5)]
            yield [action("kernel_drops", "back to details", 0.1)]
        yield [frames.Status(**stream.stamp("kernel_drops"), state="attached", mode="details")]
        yield from stream.interval()

    record(tmp_path / "a.ncrec", batches())
    replay = player(tmp_path / "a.ncrec")
    while replay.step():
        pass
    told = [(one.probe, one.action, one.measured) for one in replay.place.actions]
    if with_frames:
        first, *rest = told
        assert first == ("kernel_drops", "details → summary", 3.5)
        assert rest == [("", "over the budget", 2.5), ("kernel_drops", "back to details", 0.1)]
    else:
        assert told == [("kernel_drops", "details → summary", None)]


def test_damage_is_told_and_passed_over(long: Path, tmp_path: Path) -> None:
    content = bytearray(long.read_bytes())
    blocks = Recording(long).blocks
    for number in (3, 5):
        content[(blocks[number].offset + blocks[number].end) // 2] ^= 0x55
    path = tmp_path / "damaged.ncrec"
    path.write_bytes(bytes(content))
    replay = player(path)
    while replay.step():
        pass
    assert replay.trouble is not None and "block" in replay.trouble and replay.at_s > 1190
    replay.seek(1000)
    assert 999 <= replay.at_s <= 1000


# ---- snapshots ----


def test_a_snapshot_counts_the_stretch_that_was_chosen(long: Path) -> None:
    replay = player(long)
    replay.seek(100)
    before = replay.place.state.probes["kernel_drops"].counters["drops"].count.total
    replay.set_since()
    replay.seek(160)
    made = builder.build(replay.place.state, MANIFESTS, Profile("summary"), replay.since)
    after = replay.place.state.probes["kernel_drops"].counters["drops"].count.total
    assert made.probes["kernel_drops"].counters["drops"].total == after - before > 0
    assert made.duration_s == pytest.approx(60, abs=1.1) and made.host.name == "hv-017"
    replay.seek(50)
    assert replay.since_s == 0, "a jump behind the mark takes it away"
    made = builder.build(replay.place.state, MANIFESTS, Profile("summary"), replay.since)
    assert made.duration_s == pytest.approx(50, abs=1.1)
    # Not the day it was replayed on.
    assert made.created == "2026-11-21T09:00:49Z"


# ---- as a session ----


class Watch:
    """A replay session, and its news."""

    def __init__(self, path: Path, speed: float = 1.0) -> None:
        self.session = ReplaySession(player(path), speed)
        self.news = threading.Condition()
        self.session.on_news(self._heard)
        self.session.start()

    def _heard(self, _: News) -> None:
        with self.news:
            self.news.notify_all()

    def until(self, true: Callable[[Position], bool]) -> Position:
        with self.news:
            assert self.news.wait_for(lambda: true(self.session.position()), LIMIT_S), self.session.position()
        return self.session.position()


@pytest.fixture
def watch(long: Path) -> Iterator[Callable[..., Watch]]:
    made: list[Watch] = []

    def make(speed: float = 1.0) -> Watch:
        made.append(Watch(long, speed))
        return made[-1]

    yield make
    for one in made:
        one.session.close()


def test_it_plays_faster_than_it_was_and_stops_at_the_end(watch: Callable[..., Watch]) -> None:
    one = watch(speed=1000.0)
    place = one.until(lambda position: position.at_end)
    assert place.at_s == pytest.approx(1200, abs=1) and place.length_s == pytest.approx(1200, abs=1)
    one.session.toggle()
    one.session.toggle()
    assert one.until(lambda position: position.playing and not position.at_end).at_s < 1200


def test_it_pauses_steps_and_jumps(watch: Callable[..., Watch]) -> None:
    one = watch()
    one.session.pause()
    one.session.seek(600)
    assert one.until(lambda position: position.at_s > 590).at_s == pytest.approx(600, abs=1.1)
    one.session.step(1)
    after = one.until(lambda position: position.at_s > 600)
    one.session.step(-1)
    assert one.until(lambda position: position.at_s < after.at_s).at_s == pytest.approx(600, abs=1.1)
    one.session.seek_by(-1e9)
    assert not one.until(lambda position: position.at_s < 2).playing
    one.session.seek_by(1e9)
    one.until(lambda position: position.at_end)
    one.session.set_since()
    assert one.until(lambda position: position.since_s > 1000)


def test_speed_goes_in_steps_and_stays_in_its_bounds(watch: Callable[..., Watch]) -> None:
    session = watch().session
    session.pause()
    seen = []
    for step in [1] * 12 + [-1] * 20:
        session.faster(step)
        seen.append(session.position().speed)
    assert max(seen) == 300 and seen[-1] == 0.25 and seen[0] == 2


def test_nothing_can_be_changed_in_a_recording(watch: Callable[..., Watch]) -> None:
    session = watch().session
    for future in (session.set("kernel_drops"), session.reload("kernel_drops"), session.unload("kernel_drops")):
        with pytest.raises(CommandError, match="recording"):
            future.result(0)


def test_it_closes_from_any_state(long: Path) -> None:
    session = ReplaySession(player(long))
    session.close()
    session.close()
    with session.view() as state:
        assert state is not None


def test_version_1_replays() -> None:
    replay = player(VERSION_1)
    steps = 0
    while replay.step():
        steps += 1
    assert steps == 70 and replay.trouble is None
