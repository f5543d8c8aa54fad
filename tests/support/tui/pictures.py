"""Compares screens with the text files in tests/tui/pictures. ``NETCONSOLE_PICTURES=write`` writes the files again."""

from __future__ import annotations

import os
from pathlib import Path

from textual.pilot import Pilot

from netconsole.tui.app import ConsoleApp
from tests.support.tui.played import screen_text

DIRECTORY = Path(__file__).parents[2] / "tui" / "pictures"


async def looks_as_it_did(app: ConsoleApp, pilot: Pilot[None], keys: tuple[str, ...], name: str) -> None:
    """Press keys, and compare what is on the screen then with the picture of this name."""
    for key in keys:
        await pilot.press(key)
        await pilot.pause()
    await pilot.pause()
    is_picture(name, screen_text(app) + "\n")


def is_picture(name: str, text: str) -> None:
    """Compare a text with the picture of this name."""
    path = DIRECTORY / f"{name}.txt"
    if os.environ.get("NETCONSOLE_PICTURES") == "write":
        path.write_text(text)
    assert text == path.read_text(), f"{path.name} differs"
