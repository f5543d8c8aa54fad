"""Back in a live session: what memory has is shown as of then, never taken for now, and written with a recording."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from netconsole.probes import catalogue
from netconsole.recording.player import Player
from netconsole.recording.reader import Recording
from netconsole.telemetry import frames
from netconsole.telemetry.frames import AnyFrame
from netconsole.telemetry.session import Sink
from netconsole.tui import rewinding
from netconsole.tui.app import ConsoleApp
from netconsole.tui.host_view import WatchedHost
from tests.support.fake_collector import Scenario
from tests.support.tui.played import PROFILE, PlayedSession
from tests.support.tui.running import Running, running
from tests.support.tui.scenes import PROBE_DIRECTORY, attached, interval

SECONDS = 40


class Recorded(PlayedSession):
    """A played session that can be recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.sinks: list[Sink] = []

    def attach(self, sink: Sink) -> None:
        self.sinks.append(sink)

    def detach(self, sink: Sink) -> None:
        self.sinks.remove(sink)

    def _frame(self, line: dict[str, Any]) -> None:
        self._seq += 1
        filled = {"v": 1, "seq": self._seq, "mono_ns": self._mono_ns, "wall_ns": self._wall_ns, **line}
        batch: Sequence[AnyFrame] = (frames.decode(json.dumps(filled).encode()),)
        for sink in self.sinks:
            sink.take(self.state, batch)
        self.state.apply(batch[0])


@asynccontextmanager
async def watching(size: tuple[int, int] = (80, 24)) -> AsyncIterator[Running]:
    """The console on a host, after so many seconds, of which it remembers all."""
    session = Recorded()
    app = ConsoleApp(WatchedHost(session, PROFILE, catalogue.load_all([PROBE_DIRECTORY])))
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        one = Running(app, pilot, session)
        session.play(attached(Scenario()))
        for tick in range(SECONDS):
            session.play(interval(Scenario(), tick))
        await one.settled()
        yield one
        app.close_files()


def drops_in_all(text: str) -> str:
    return text.partition("packets/s, ")[2].partition(" in total")[0]


async def test_the_page_of_a_vm_is_as_of_then() -> None:
    async with watching((120, 40)) as one:
        await one.press("left_square_bracket")
        one.app._open_vm("web-07")
        text = await one.settled()
        assert "VM web-07" in text and "T09:00:29Z, 29 s, profile" in text


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_what_was_is_shown_as_of_then_and_never_taken_for_now(size: tuple[int, int]) -> None:
    async with watching(size) as one:
        now = one.text()
        assert "LIVE" in now and "REWOUND" not in now
        back = await one.press("comma")
        assert "LIVE" not in back and "REWOUND 09:00:38, 00:00:01 ago" in back.splitlines()[0]
        assert drops_in_all(back) != drops_in_all(now)
        assert "REWOUND 09:00:28, 00:00:11 ago" in await one.press("left_square_bracket")
        assert "REWOUND 09:00:29, 00:00:10 ago" in await one.press("full_stop")
        await one.play()
        assert "REWOUND 09:00:29, 00:00:11 ago" in one.text(), "time goes on, and the moment stays"
        assert "REWOUND" in await one.press("4"), "in all panes"
        again = await one.press("escape")
        assert "LIVE" in again and "REWOUND" not in again
        assert "STANDS OUT" in await one.press("1")


async def test_forward_past_the_end_is_now() -> None:
    async with watching() as one:
        assert "REWOUND" in await one.press("comma")
        text = await one.press("right_square_bracket")
        assert "REWOUND" not in text and "LIVE" in text and "this is now" in text
        assert "REWOUND" in await one.press("comma")
        assert "LIVE" in await one.press("p"), "p goes back to now, and holds nothing"


async def test_no_snapshot_is_taken_of_what_is_not_now() -> None:
    async with watching() as one:
        await one.press("comma")
        assert "a snapshot is of now" in await one.press("s")


async def test_a_recording_begins_with_what_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with watching() as one:
        assert f"and the {SECONDS - 1} s before" in await one.press("w")
        await one.play(3)
        assert "REWOUND" in await one.press("left_square_bracket"), "it still remembers"
        await one.press("escape", "w")
    (path,) = tmp_path.glob("*.ncrec")
    player = Player(Recording(path), catalogue.load_all([PROBE_DIRECTORY]), PROFILE.budget)
    assert player.recording.whole and player.length_s >= SECONDS + 1
    totals = []
    while player.step():
        totals.append(player.place.state.probes["kernel_drops"].counters["drops"].count.total)
    assert len(totals) >= SECONDS + 2 and totals == sorted(totals)


async def test_what_memory_holds_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewinding, "KEPT_S", 16.0)
    async with watching() as one:
        await one.press("left_curly_bracket", "left_curly_bracket")
        at = one.app.watched.rewinding.position(None)
        assert at is not None and 16 * 5 / 8 - 3 <= at.length_s <= 16


async def test_where_nothing_is_remembered_it_says_so() -> None:
    async with running((80, 24)) as one:
        assert "nothing is remembered to go back to" in await one.press("comma")
