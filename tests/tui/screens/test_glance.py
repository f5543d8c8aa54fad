"""A cell for each queue, port, thread and device: all of a full host fit one screen, and keys lead to each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from netconsole.probes import catalogue
from netconsole.telemetry.session import Connection
from netconsole.tui.app import ConsoleApp
from netconsole.tui.host_view import WatchedHost
from netconsole.tui.panes import glance
from netconsole.tui.scene.scene import Scene, Subject
from netconsole.tui.screens.glance import GlanceScreen
from netconsole.tui.widgets.cell_grid import GridCell, GridLine
from tests.support.fake_collector import Scenario
from tests.support.tui.crowd import Crowd
from tests.support.tui.played import PROFILE, PlayedSession
from tests.support.tui.running import Running, running


@asynccontextmanager
async def crowded(size: tuple[int, int], vms: int) -> AsyncIterator[Running]:
    """The console on a host on which queue 2 of VM 7 is stuck."""
    crowd = Crowd(vms, stuck=(7, 2), stuck_from=1)
    session = PlayedSession(crowd.interval())
    app = ConsoleApp(WatchedHost(session, PROFILE, catalogue.load_all()))
    async with app.run_test(size=size) as pilot:
        one = Running(app, pilot, session)
        for _ in range(8):
            session.play(crowd.interval())
            await pilot.pause()
        yield one


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_200_vms_with_four_queues_each_fit_one_screen(size: tuple[int, int]) -> None:
    async with crowded(size, 200) as one:
        text = await one.press("a")
        assert "Queues of VMs · 800 · 1 !!" in text and "vm-000" in text and "····" in text
        assert "vm-007 vnet7 queue 2: !! stuck" in text and "S !! stuck" in text, "the cursor is on the worst"
        assert "it hangs, or does not poll" in " ".join(text.split()), "nothing of what that means is cut"
        screen = one.app.screen
        assert isinstance(screen, GlanceScreen)
        shown = [screen.grid.line(y) for y in range(screen.grid.size.height)]
        letters = [piece for line in shown for piece, tone in line if len(piece) == 1 and tone != "" and piece != " "]
        assert len(letters) == 800, "none is below the edge"


async def test_arrows_go_from_cell_to_cell_and_enter_opens_its_page() -> None:
    async with crowded((80, 24), 40) as one:
        await one.press("a")
        assert "vm-007 vnet7 queue 3: " in await one.press("right")
        assert "vm-008 vnet8 queue 0: " in await one.press("right")
        below = await one.press("down")
        assert "vm-022 vnet22 queue 0: " in below, "14 VMs in a line"
        assert "vm-008 vnet8 queue 0: " in await one.press("up")
        assert "vm-039 vnet39 queue 3: " in await one.press("end")
        assert "vm-000 vnet0 queue 0: " in await one.press("home")
        await one.press("right", "right", "enter")
        assert "vm-000 · vnet0 · queue 2" in one.text()
        assert "All at a glance" in await one.press("escape")
        assert "STANDS OUT" in await one.press("q")


async def test_where_nothing_is_watched_it_says_so() -> None:
    async with running((80, 24)) as one:
        text = await one.press("a")
        assert "No probe here watches queues of VMs, ports, PMD threads or block devices." in text
        assert "Enter on an empty pane (2, 3, d) starts one" in text
        assert "← → ↑ ↓ move" not in text, "there is nothing to move to"


def test_threads_and_devices_have_a_cell_with_the_word_of_their_finding() -> None:
    made = Scenario().hello().status("ovs_pmd").status("block_path")
    threads = [{"labels": {"datapath": "netdev", "numa": 0, "core": core}, "counts": {}} for core in (10, 9)]
    made.table("ovs_pmd", "threads", [{**one, "counts": {"packets": (5, 5)}} for one in threads])
    made.table("block_path", "devices", [{"labels": {"device": "sda"}, "counts": {"started": (0, 0)}}])
    scene = Scene(PlayedSession(made.end()).state, {}, PROFILE, Connection("live"))
    found = glance.places(scene)
    assert [(title, [(one.name, one.letter) for one in some]) for title, some in found] == [
        ("PMD threads", [("core 9", "o"), ("core 10", "o")]),
        ("Block devices", [("device sda", "·")]),
    ]
    lines = list(glance.grid(found, 11))
    first, second, third, *_ = lines
    assert (
        "PMD threads · 2" in first.lead[0][0] and [cell.letter for cell in (*second.cells, *third.cells)] == ["o"] * 2
    )
    assert all(isinstance(line, GridLine) for line in lines)
    assert second.cells[0] == GridCell(
        Subject("ovs_pmd", "table", "threads", found[0][1][0].subject.key), 10, "o", "ok"
    )
