"""The wizard for a ping on a made-up host: what it finds there, and echoes that are known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.widgets import Input

from netconsole.ping.capture import PingCapture, Role
from netconsole.probes import catalogue
from netconsole.run.ping_places import PlaceTables
from netconsole.run.ping_plan import PingPlan
from netconsole.run.ping_watch import PlaceProgress
from netconsole.sources.ping_ends import HostTables, PortLink
from netconsole.tui.app import ConsoleApp
from netconsole.tui.screens.ping_wizard import screen as ping
from tests.support.ping import linked
from tests.support.tui.running import Running

DATA = Path(__file__).parents[1] / "data"
CASE_A = {path.stem: str(path) for path in (DATA / "ping-case-a").glob("*.json")}
"""The captures of a case, by role."""
LINKS = [
    PortLink("vnet3", "tun", master="br0"),
    PortLink("br0", "bridge"),
    PortLink("eth0", master="br0", is_physical=True),
]
TABLES = HostTables(
    {link.name: link for link in LINKS},
    neighbours={"192.0.2.7": "52:54:00:00:00:07", "192.0.2.9": "52:54:00:00:00:09"},
    nics=[("web-07", "52:54:00:00:00:07", "vnet3")],
)
MANIFESTS = catalogue.load_all()


class FakeWatch:
    """Measures nothing: its echoes are known. A place over ssh fails. It is over when a test says so."""

    made: list[FakeWatch]

    def __init__(self, plan: PingPlan) -> None:
        self.plan = plan
        self.closed = False
        self.is_over = False
        self.told = "20 sent"
        known = {one.capture.role: one.capture for one in linked(20)}
        self.taken: dict[Role, PingCapture] = {
            point.role: known[point.role] for point in plan.points if point.host == "here"
        }
        FakeWatch.made.append(self)

    def start(self) -> None:
        """Nothing to start."""

    def progress(self) -> list[PlaceProgress]:
        found = []
        for role, place in ((point.role, point.host) for point in self.plan.points):
            if role in self.taken:
                rows = self.taken[role].packets
                outcomes = Counter(row.outcome for row in rows)
                found.append(PlaceProgress(role, place, "watching", "raw_tracepoint:x", outcomes, tuple(rows[-3:])))
            else:
                found.append(PlaceProgress(role, place, "failed", f"{place}: ssh asks for a password"))
        return found

    def finish(self) -> dict[Role, PingCapture]:
        return self.taken

    def close(self) -> None:
        self.closed = True


def make_up_places(patch: pytest.MonkeyPatch) -> None:
    """The wizard finds this host, and watches nothing."""
    FakeWatch.made = []
    made: Callable[[ConsoleApp], Callable[[PingPlan], FakeWatch]] = lambda _: FakeWatch  # noqa: E731
    patch.setattr(ConsoleApp, "watch_ping", property(made))
    patch.setattr(ping, "look_around", lambda *_: PlaceTables({"here": TABLES}))


def fill(one: Running, **values: str) -> None:
    """Put texts into fields; two underscores stand for a dash."""
    for name, value in values.items():
        one.app.screen.query_one(f"#field-{name.replace('__', '-')}", Input).value = value


async def opened(one: Running) -> str:
    """Open the wizard, in a console that has all probes."""
    one.app.watched.manifests = MANIFESTS
    return await one.press("l")
