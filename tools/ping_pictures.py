"""Writes the six steps of the wizard for a ping, with made-up figures, to docs/use/ping-1.svg to ping-6.svg.

.venv/bin/python -m tools.ping_pictures
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from netconsole.tui.saved_files import picture
from netconsole.tui.screens.ping_wizard import screen as ping
from netconsole.tui.screens.ping_wizard.screen import PingScreen
from tests.support.tui.ping_wizard import CASE_A, FakeWatch, fill, make_up_places, opened
from tests.support.tui.running import Running, running

PICTURES = Path(__file__).parents[1] / "docs/use"
RUN = "ping-20261122-204500"
STAGES = "THE WAY OF AN ECHO"
MOST_LINES = 200


def write(one: Running, step: int) -> None:
    """One picture."""
    svg = one.app.export_screenshot(title="netconsole", simplify=True)
    (PICTURES / f"ping-{step}.svg").write_bytes(picture(svg))


async def walk(one: Running) -> None:
    """From the first step to the last."""
    await opened(one)
    fill(one, **{"from": "web-07", "to": "192.0.2.9", "receiver-host": "ssh://root@hv2"})
    await one.press()
    write(one, 1)
    await one.press("enter")
    write(one, 2)
    await one.press("enter")
    write(one, 3)
    FakeWatch.made[0].is_over = True
    screen = one.app.screen
    assert isinstance(screen, PingScreen)
    screen._look()
    await one.settled()
    write(one, 4)
    for file in CASE_A.values():
        fill(one, file=file)
        await one.press("enter")
    text = await one.press("enter")
    for _ in range(MOST_LINES):
        if STAGES in "\n".join(text.splitlines()[:12]):
            break
        text = await one.press("down")
    write(one, 5)
    await one.press("enter")
    write(one, 6)


async def main() -> None:
    """In a directory that goes away: the wizard writes captures."""
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("XDG_DATA_HOME", f"{place}/data")
        patch.setattr(ping, "time", SimpleNamespace(strftime=lambda _: RUN))
        make_up_places(patch)
        async with running(size=(80, 24)) as one:
            await walk(one)


if __name__ == "__main__":
    asyncio.run(main())
