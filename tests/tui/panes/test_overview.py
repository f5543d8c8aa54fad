"""The overview of a hypervisor: the queues of its guests and its switch stand beside the drops, if there are any."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from netconsole.probes import catalogue
from netconsole.tui.app import ConsoleApp
from netconsole.tui.host_view import WatchedHost
from netconsole.tui.panes.overview import stands_out
from tests.support.fake_collector import Scenario
from tests.support.tui.played import PROFILE, PlayedSession, screen_text
from tests.support.tui.switch_scenes import datapath
from tests.support.tui.vhost_scenes import Host

MANIFESTS = catalogue.load_all([Path(__file__).parents[3] / "probes"])
VHOST, SWITCH = ("vhost_queues", "tun_queues"), ("ovs_flows", "ovs_upcalls")


@asynccontextmanager
async def shown(states: Mapping[str, str], size: tuple[int, int] = (120, 40)) -> AsyncIterator[str]:
    """What is on the screen after three intervals of probes that came to these states."""
    session = PlayedSession()
    asked = Scenario().hello().status("kernel_drops")
    for name in states:
        asked.status(name, "compiling")
    session.play(asked)
    app = ConsoleApp(WatchedHost(session, PROFILE, MANIFESTS))
    async with app.run_test(size=size) as pilot:
        came = Scenario()
        for name, state in states.items():
            came.status(name, state, why=None if state == "attached" else "not loaded; there is nothing of it")
        session.play(came)
        made = Host(3, 2)
        made.scenario = Scenario()  # who is there has been said
        for _ in range(3):
            if states["vhost_queues"] == "attached":
                session.play(made.interval({(0, 1)}))
            session.play(datapath(Scenario()).end() if states["ovs_flows"] == "attached" else Scenario().end())
            await pilot.pause()
        await pilot.pause()
        yield screen_text(app)


async def test_queues_and_switch_stand_beside_the_drops() -> None:
    async with shown(dict.fromkeys((*VHOST, *SWITCH), "attached")) as screen:
        (heads,) = [line for line in screen.splitlines() if "vhost queues, worst first" in line]
        assert "OVS" in heads or "Open vSwitch" in heads
        assert "vm-000" in screen
        assert "ovs-system" in screen
        assert "Drops" in screen


async def test_one_of_them_alone_has_the_row_for_itself() -> None:
    async with shown({**dict.fromkeys(VHOST, "attached"), **dict.fromkeys(SWITCH, "unsupported")}) as screen:
        assert "vm-000" in screen
        assert "Open vSwitch" not in screen
    async with shown({**dict.fromkeys(VHOST, "unsupported"), **dict.fromkeys(SWITCH, "attached")}) as screen:
        assert "ovs-system" in screen
        assert "vhost queues" not in screen


async def test_a_host_without_them_has_no_place_for_them_and_says_so() -> None:
    async with shown(dict.fromkeys((*VHOST, *SWITCH), "unsupported")) as screen:
        assert "vhost queues" not in screen
        assert "here: vhost_queues, tun_queues, ovs_flows, ovs_upcalls (pane Cost says why)" in " ".join(screen.split())


async def test_a_small_screen_has_a_tab_for_each() -> None:
    async with shown(dict.fromkeys((*VHOST, *SWITCH), "attached"), (80, 24)) as screen:
        tabs = next(line for line in screen.splitlines() if "Drops" in line and "vhost" in line)
        assert "OVS" in tabs


def test_the_word_before_a_finding_is_never_cut() -> None:
    (topic,) = [column for column in stands_out.block().columns if column.name == "topic"]
    assert [manifest.name for manifest in MANIFESTS.values() if len(manifest.topic) > topic.width] == []
