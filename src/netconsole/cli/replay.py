"""The command `replay`, and the offer to look at a recording where nothing can be measured."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netconsole.base.checker import close
from netconsole.base.errors import bad
from netconsole.base.figure import elapsed, safe
from netconsole.base.readers import stat_of
from netconsole.cli.options import DONE, has_terminal

if TYPE_CHECKING:
    from netconsole.profile.profile import Budget


def replay(
    recording: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE|NAME", help="A recording. Without one: list the recordings that come with netconsole."
        ),
    ] = None,
    speed: Annotated[float, typer.Option(metavar="X", help="Play this many times as fast.")] = 1.0,
) -> int:
    """Show a recording in the console, on any machine and without privileges."""
    from netconsole.recording.replay_session import LEAST_SPEED, MOST_SPEED

    if not LEAST_SPEED <= speed <= MOST_SPEED:
        raise bad("--speed", "", f"expected a number from {LEAST_SPEED:g} to {MOST_SPEED:g}, found {speed:g}")
    if recording is None:
        for name, path in shipped().items():
            print(f"{name:<12} {_summary(path)}")
        return DONE
    return open_replay(find(recording), speed)


def open_replay(path: Path, speed: float = 1.0) -> int:
    """The console on a recording. Raises BadInput when it cannot be read."""
    from netconsole.probes.catalogue import load_all
    from netconsole.profile.profile import Profile
    from netconsole.recording.player import Player
    from netconsole.recording.reader import Damaged, Recording
    from netconsole.recording.replay_session import ReplaySession

    opened = Recording(path)
    if not has_terminal():
        raise bad("netconsole replay", "", "needs a terminal; `zstdcat FILE` prints the frames without one")
    manifests = load_all()
    budget = budget_of(opened.header.profile.budget)
    try:
        player = Player(opened, manifests, budget)
    except Damaged as error:
        raise bad(path, "", f"no part of this recording can be read: {error}") from None
    from netconsole.tui.run import run

    session = ReplaySession(player, speed)
    try:
        return run(session, Profile(opened.header.profile.name, budget=budget), manifests)
    finally:
        session.close()


def find(name: str) -> Path:
    """A recording by path (it holds a / or a dot), or a shipped one by name. Raises BadInput."""
    if "/" in name or "." in name or stat_of(Path(name)) is not None:
        return Path(name)
    known = shipped()
    if name not in known:
        raise bad(name, "", f"no such file, and no shipped recording{close(name, known)}")
    return known[name]


def shipped() -> dict[str, Path]:
    """The recordings that come with the console, by name."""
    from netconsole.base import paths

    return {path.stem: path for path in sorted(paths.data("recordings").glob("*.ncrec"))}


THIS_HOST, NOTHING = "this host", ""
"""What may be chosen besides a recording."""


def offer(why: str, counters: int) -> str | None:
    """Ask on the terminal what to look at, since this host cannot be measured as was asked.

    ``counters``: how many probes can run here all the same. Returns the path of a shipped recording, THIS_HOST or
    NOTHING; None when there is nobody to ask, or nothing to offer.
    """
    recordings = shipped()
    if not (recordings or counters) or not has_terminal():
        return None
    print(f"netconsole: {why}", file=sys.stderr)
    print("netconsole: recordings of other hosts show what the console looks like:")
    lines = [(str(path), f"{name:<12} {_summary(path)}") for name, path in recordings.items()]
    if counters:
        lines.append((THIS_HOST, f"{THIS_HOST:<12} its counters only: {counters} probes run without privileges"))
    for number, (_, line) in enumerate(lines, 1):
        print(f"  {number}  {line}")
    print("netconsole: which? (number; Enter: none) ", end="", flush=True)
    answer = sys.stdin.readline().strip()
    if not answer.isdecimal() or not 1 <= int(answer) <= len(lines):
        return NOTHING
    return lines[int(answer) - 1][0]


def budget_of(recorded: Mapping[str, float | str | None]) -> Budget:
    """The budget of a recording's profile; limits that make no sense are left out."""
    from netconsole.profile.profile import ACTIONS, Budget

    known = Budget().as_dict()
    limits: dict[str, Any] = {
        name: value
        for name, value in recorded.items()
        if name in known and isinstance(value, float | int) and 0 <= value < 1e12
    }
    action = recorded.get("action")
    return Budget(**limits, action=action) if action in ACTIONS else Budget(**limits)


def _summary(path: Path) -> str:
    from netconsole.recording.reader import Recording

    opened = Recording(path)
    opened.close()
    header = opened.header
    length = elapsed((opened.end.mono_ns - opened.begin.mono_ns) / 1e9)
    what = safe(header.note or f"profile {header.profile.name}", 100)
    return f"{what} ({length}, kernel {safe(header.host.kernel, 40)})"
