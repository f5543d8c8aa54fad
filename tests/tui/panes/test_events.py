"""The pane Events: what an interval brought is there when the interval ends, the newest first."""

from __future__ import annotations

from netconsole.probes.catalogue import shipped
from netconsole.telemetry.session import Connection
from netconsole.tui.panes.common import events
from netconsole.tui.scene.scene import Scene
from tests.support.fake_collector import Scenario
from tests.support.tui.played import PROFILE, PlayedSession
from tests.support.tui.running import running

DROPS = "kernel_drops"


def sample(port: int) -> Scenario:
    """An interval with one sample."""
    fields = {
        "reason": "NO_SOCKET",
        "source": "192.0.2.9",
        "source_port": 4,
        "target": "192.0.2.1",
        "target_port": port,
    }
    return Scenario().frame("event", DROPS, name="drop", fields=fields)


def test_each_interval_brings_its_events() -> None:
    session = PlayedSession(Scenario().hello().status(DROPS, mode="details"))
    for port in range(1, 6):
        session.play(sample(port).end())
        rows = events.rows(Scene(session.state, {DROPS: shipped(DROPS)}, PROFILE, Connection("live")))
        assert len(rows) == port and f"192.0.2.1:{port}" in rows[0].cells["what"].text


async def test_the_screen_shows_them_when_the_interval_ends() -> None:
    async with running() as one:
        await one.press("8")
        for port in (1001, 1002, 1003):
            one.session.play(sample(port))
            assert f"192.0.2.1:{port}" in await one.play()
