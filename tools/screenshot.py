"""Writes the console's screen to an SVG file, with real figures of this host: for the README, and to look at changes.

sudo .venv/bin/python tools/screenshot.py docs/use/overview.svg --seconds 20 --keys 4,enter
docs/design/lab.md says how docs/design/lab.svg was made, on the lab's hypervisor.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from netconsole.far.host import THIS_HOST
from netconsole.probes import catalogue
from netconsole.profile import loader
from netconsole.profile.plan import plan
from netconsole.session.live import LiveSession
from netconsole.tui.app import ConsoleApp
from netconsole.tui.host_view import WatchedHost
from netconsole.tui.saved_files import picture

POLL_S = 0.2


async def take(arguments: argparse.Namespace) -> None:
    """Run the console without a terminal for a while, press the keys, export."""
    manifests = catalogue.load_all()
    profile = loader.load(arguments.profile, manifests)
    requests = plan(profile, manifests, arguments.probe)
    session = LiveSession(THIS_HOST, requests)
    columns, lines = (int(part) for part in arguments.size.split("x"))
    app = ConsoleApp(WatchedHost(session, profile, manifests))
    session.start()
    try:
        async with app.run_test(size=(columns, lines)) as pilot:
            while not all_settled(session, len(requests)):
                await asyncio.sleep(POLL_S)
            await asyncio.sleep(arguments.seconds)
            for key in filter(None, arguments.keys.split(",")):
                await pilot.press(key)
            await asyncio.sleep(1)
            arguments.file.write_bytes(picture(app.export_screenshot(title="netconsole", simplify=True)))
    finally:
        session.close()


def all_settled(session: LiveSession, expected: int) -> bool:
    """Whether every probe is attached or was refused."""
    with session.view() as state:
        return sum(probe.settled for probe in state.probes.values()) >= expected


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Writes the console's screen as SVG.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--profile", default="summary")
    parser.add_argument("--probe", action="append", default=[], help="only this one of the profile; repeatable")
    parser.add_argument("--seconds", type=float, default=15.0, help="once every probe is attached or refused")
    parser.add_argument("--size", default="120x40", help="COLUMNSxLINES")
    parser.add_argument("--keys", default="", help="names of keys, separated by commas")
    asyncio.run(take(parser.parse_args()))


if __name__ == "__main__":
    main()
