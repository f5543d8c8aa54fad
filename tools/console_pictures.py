"""Writes a picture of every screen of the console, with made-up and recorded figures, to docs/use/screens.

.venv/bin/python -m tools.console_pictures
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.app import App

from netconsole.probes import catalogue
from netconsole.telemetry import frames
from netconsole.telemetry.request import CommandOutput
from netconsole.tui import row_keys
from netconsole.tui.app import ConsoleApp
from netconsole.tui.host_view import WatchedHost
from netconsole.tui.saved_files import picture
from tests.support.fake_collector import Scenario
from tests.support.recorded import Stream, record
from tests.support.tui.crowd import Crowd
from tests.support.tui.played import PROFILE, PlayedSession
from tests.support.tui.running import FACTS, Running, running
from tests.tui.panes import test_mirror as mirror
from tests.tui.panes.test_disk import COPY, QEMU, row
from tests.tui.panes.test_ovs_and_path_pictures import recorded
from tests.tui.screens.test_commands import COMMAND, Asked
from tests.tui.screens.test_rack import rack
from tests.tui.test_replay_app import at, replaying
from tests.tui.test_rewinding import watching

PICTURES = Path(__file__).parents[1] / "docs/use/screens"
SIZE = (80, 24)
VMS, VM = 60, 7
SECONDS = 12
OF_HOST: Mapping[str, tuple[str, ...]] = {
    "overview": (),
    "drops": ("4",),
    "queues": ("5",),
    "host": ("6",),
    "cost": ("7",),
    "events": ("8",),
    "empty": ("3",),
    "filter": ("4", "slash", *"vnet"),
    "finding": ("escape", "1", "enter"),
    "chart": ("Z",),
    "help": ("escape", "escape", "question_mark"),
    "find": ("escape", "colon", *"vnet"),
    "knobs": ("escape", "e"),
    "columns": ("escape", "4", "c"),
    "facts": ("escape", "f"),
    "baselines": ("escape", "b"),
    "snapshot": ("escape", "s"),
}
"""Keys from the screen before."""
OF_CROWD: Mapping[str, tuple[str, ...]] = {
    "vhost": ("2",),
    "queue": ("enter",),
    "glance": ("escape", "a"),
    "scope": ("escape", "colon", *f"vm 00{VM}", "enter"),
}
OF_RECORDING = {"ovs": ("upcalls", ("3",)), "path": ("path", ("9",)), "direction": ("path", ("9", "enter"))}


def write(one: Running, name: str) -> None:
    """One picture."""
    save(one.app, name)


def save(app: App[None], name: str) -> None:
    """What an application shows."""
    svg = app.export_screenshot(title="netconsole", simplify=True)
    (PICTURES / f"{name}.svg").write_bytes(picture(svg))


async def walk(one: Running, screens: Mapping[str, tuple[str, ...]]) -> None:
    """A picture of each of the screens that keys lead to."""
    for name, keys in screens.items():
        await one.press(*keys)
        write(one, name)


@asynccontextmanager
async def shown(session: PlayedSession) -> AsyncIterator[Running]:
    """The console on a session of which some frames have come, so that its panes are known."""
    app = ConsoleApp(WatchedHost(session, PROFILE, catalogue.load_all()))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        yield Running(app, pilot, session)


async def crowd() -> None:
    """A host of many VMs, and one of them on its page."""
    host = Crowd(VMS, stuck=(VM, 2), stuck_from=2)
    session = PlayedSession(host.interval())
    async with shown(session) as one:
        for _ in range(SECONDS):
            session.play(host.interval())
            await one.pilot.pause()
        await walk(one, OF_CROWD)
        await one.press("v")
        for _ in range(SECONDS):
            session.play(host.interval())
            await one.pilot.pause()
        await one.settled()
        write(one, "vm")


async def replayed(name: str, recording: str, keys: tuple[str, ...]) -> None:
    """What was recorded of a real run."""
    sent = recorded(recording)
    session = PlayedSession()
    for frame in sent:
        if isinstance(frame, (frames.Hello, frames.Status)):
            session.take(frame)
    async with shown(session) as one:
        for frame in sent:
            session.take(frame)
            if isinstance(frame, frames.Cost) and frame.probe is None:
                await one.pilot.pause()
        await walk(one, {name: keys})


def made_up() -> Callable[[], Scenario]:
    """Seconds of flows, and of what is asked of disks."""
    labels = {"device": "vnet7", "direction": "rx", "vm": "web-07", "protocol": "UDP"}
    flows = [
        {**labels, "source": f"192.0.2.{at}", "source_port": 40_000 + at, "target": "198.51.100.9", "target_port": 53}
        for at in range(1, 7)
    ]
    ticks = iter(range(1, 1000))

    def second() -> Scenario:
        tick = next(ticks)
        made = Scenario()
        if tick == 1:
            made.hello().status("flow_top").status("block_path")
        rates = [900_000 // (at + 1) for at in range(len(flows))]
        counts = [{"packets": (rate, rate * tick), "bytes": (rate * 900, rate * 900 * tick)} for rate in rates]
        made.table(
            "flow_top", "flows", [{"labels": flow, "counts": its} for flow, its in zip(flows, counts, strict=True)]
        )
        return made.table("block_path", "ios", [row(COPY, 10), row(QEMU, 500, unqueued=250, errors=2)]).end()

    return second


async def flows_and_disks() -> None:
    """The panes Flows and Disk."""
    second = made_up()
    session = PlayedSession(second())
    async with shown(session) as one:
        for _ in range(SECONDS):
            session.play(second())
            await one.pilot.pause()
        await walk(one, {"flows": ("0",), "disk": ("d",)})


async def mirrored() -> None:
    """The ledger of a mirror that loses at two places."""
    session = PlayedSession(
        mirror.interval(arrived=90_000, queued=88_000, received=87_900, lost_stack=700, lost_socket=41)
    )
    async with shown(session) as one:
        await walk(one, {"mirror": ("0",)})


async def commanded(patch: pytest.MonkeyPatch) -> None:
    """What the commands of a finding say."""
    host = Asked()
    host.says = CommandOutput(_LINK, 0, 0.004, False)
    patch.setattr(row_keys, "runnable", lambda *_: (COMMAND,))
    async with running(SIZE, FACTS) as one:
        host.stand_behind(one.session)
        await walk(one, {"commands": ("x", "x")})


_LINK = """9: vnet3: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc fq_codel master br0 state UNKNOWN mode DEFAULT
    link/ether fe:54:00:12:34:56 brd ff:ff:ff:ff:ff:ff
    RX:  bytes packets errors dropped  missed   mcast
     918273645  812345      0       0       0       0
    TX:  bytes packets errors dropped carrier collsns
     817263544  723456      0  103212       0       0
"""


async def many_hosts(patch: pytest.MonkeyPatch) -> None:
    """A line for each of several hosts."""
    async with rack(SIZE, patch) as one:
        await one.text()
        save(one.app, "rack")


async def played_again() -> None:
    """A recording that is played, and where it can go."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "night.ncrec"
        record(path, Stream(rows=5).batches(200))
        async with replaying(path, SIZE) as one:
            await one.press("right_curly_bracket")
            await one.until(at(60))
            await one.shows("00:00:59 of 00:03:20")
            save(one.app, "replay")
            await one.press("t")
            await one.pilot.pause()
            save(one.app, "jump")


_OTHERS = ("vm", "flows", "disk", "mirror", "commands", "rack", "rewound", "replay", "jump")
NAMES = (*OF_HOST, *OF_CROWD, *OF_RECORDING, *_OTHERS)
"""All pictures."""


async def all_of_them() -> None:
    """Every picture."""
    async with running(SIZE, FACTS) as one:
        await one.play(SECONDS)
        await walk(one, OF_HOST)
    await crowd()
    for name, (recording, keys) in OF_RECORDING.items():
        await replayed(name, recording, keys)
    await flows_and_disks()
    await mirrored()
    await played_again()
    with pytest.MonkeyPatch.context() as patch:
        await commanded(patch)
        await many_hosts(patch)
    async with watching(SIZE) as one:
        await walk(one, {"rewound": ("left_square_bracket",)})


def main() -> None:
    """The command line."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as nothing:  # no baseline of whoever runs it
        os.environ["XDG_CONFIG_HOME"] = os.environ["XDG_DATA_HOME"] = nothing
        asyncio.run(all_of_them())


if __name__ == "__main__":
    main()
