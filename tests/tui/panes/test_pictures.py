"""What every pane looks like, as text: compared with files beside this one.

After a change that was meant, ``NETCONSOLE_PICTURES=write pytest tests/tui/panes/test_pictures.py`` writes them
anew; look at the difference before you commit it.
"""

from __future__ import annotations

import pytest

from tests.support.fake_collector import Scenario
from tests.support.tui.pictures import looks_as_it_did
from tests.support.tui.played import PlayedSession, console
from tests.support.tui.scenes import host, interval

VIEWS = {
    "overview": (),
    "drops": ("4",),
    "queues": ("5",),
    "host": ("6",),
    "cost": ("7",),
    "events": ("8",),
    "vhost": ("2",),
    "finding": ("enter",),
    "drop": ("4", "enter"),
    "histogram": ("5", "enter"),
    "help": ("4", "question_mark"),
    "help-overview": ("question_mark",),
    "knobs": ("4", "e"),
}
SIZES = {"120x40": (120, 40), "80x24": (80, 24), "40x12": (40, 12)}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("view", VIEWS)
async def test_it_looks_as_it_did(view: str, size: str) -> None:
    session = PlayedSession(host(30))
    app = console(session)
    async with app.run_test(size=SIZES[size]) as pilot:
        await pilot.pause()
        for tick in range(3):
            session.play(interval(Scenario(), 30 + tick, lost=2 if tick == 2 else 0))
            await pilot.pause()
        await looks_as_it_did(app, pilot, VIEWS[view], f"{view}-{size}")
