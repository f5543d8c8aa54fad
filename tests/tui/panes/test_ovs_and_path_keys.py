"""The panes OVS and Path by keys: filter, sort, details and back, as in every other pane."""

from __future__ import annotations

from pathlib import Path

from netconsole.probes import catalogue
from netconsole.tui.app import ConsoleApp
from netconsole.tui.host_view import WatchedHost
from netconsole.tui.screens.main import MainScreen
from tests.support.tui import switch_scenes as made
from tests.support.tui.played import PROFILE, PlayedSession, screen_text
from tests.support.tui.switch_scenes import DROPS, FLOWS, PATH, UPCALLS

SHIPPED = Path(__file__).parents[3] / "probes"


def console() -> ConsoleApp:
    scenario = made.datapath(made.attached(FLOWS, UPCALLS, DROPS, PATH))
    scenario.table(UPCALLS, "upcalls", [made.port(f"vnet{number}", 10 * number) for number in range(1, 4)])
    made.answered(scenario, "vnet1", 900_000)
    made.answered(scenario, "vnet3", 100_000)
    made.way(scenario, "out", {"lookup": 5_000, "actions": 15_000, "qdisc": 80_000}, count=50)
    made.way(scenario, "in", {"forward": 9_000, "qdisc": 700_000}, count=20)
    return ConsoleApp(WatchedHost(PlayedSession(scenario.end()), PROFILE, catalogue.load_all([SHIPPED])))


def order(app: ConsoleApp, *words: str) -> list[str]:
    """The words in the order in which they are on the screen; those that are not there are left out."""
    text = screen_text(app)
    return sorted((word for word in words if word in text), key=text.index)


async def test_ports_are_sorted_filtered_and_opened() -> None:
    app = console()
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        for key in ("3", "tab"):
            await pilot.press(key)
            await pilot.pause()
        assert order(app, "vnet1 ", "vnet2 ", "vnet3 ") == ["vnet3 ", "vnet2 ", "vnet1 "], "the busiest first"
        screen = app.screen
        assert isinstance(screen, MainScreen)
        table = screen.table()
        assert table is not None
        while table.sort_column != "p99":
            await pilot.press("greater_than_sign")
            await pilot.pause()
        assert order(app, "vnet1 ", "vnet2 ", "vnet3 ") == ["vnet1 ", "vnet3 ", "vnet2 "], "unknown last"
        await pilot.press("slash", *"vnet2", "enter")
        await pilot.pause()
        assert order(app, "vnet1 ", "vnet2 ", "vnet3 ") == ["vnet2 "]
        await pilot.press("enter")
        await pilot.pause()
        title = screen_text(app).splitlines()[1]
        assert "Upcalls by port: " in title and "vnet2" in title
        await pilot.press("escape", "escape")
        await pilot.pause()
        assert "vnet3 " in screen_text(app)


async def test_a_direction_opens_its_stages() -> None:
    app = console()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        await pilot.press("9")
        await pilot.pause()
        both = ("inside → outside all", "outside → inside all")
        assert order(app, *both) == list(both)
        await pilot.press("enter")
        await pilot.pause()
        assert "most of its time in qdisc, 80 %" in screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert "Ways of packets" in screen_text(app)
