"""The commands `record` and `replay`: thin, like those of :mod:`netconsole.cli.main`, which adds them."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netconsole.base.errors import Unable, bad, close, stat_of
from netconsole.base.figure import elapsed, memory, safe
from netconsole.run import preflight

if TYPE_CHECKING:
    from netconsole.profile.profile import Budget

DONE = 0
BROKEN_BUDGET = 1
BAD_OUTPUT = 2
UNABLE = 3
INTERRUPTED = 130
DEFAULT_PROFILE = "summary"
MOST_S = 720 * 3600.0
MAX_NOTE = 400
MOST_BYTES = 1000 * 1024**3
_SIZE = re.compile(r"([0-9]{1,7})(MB|GB)")
_BYTES = {"MB": 1024**2, "GB": 1024**3}

MaxSize = Annotated[
    str, typer.Option("--max-size", metavar="SIZE", help="Keep the newest part, such as 100MB; at least 1MB.")
]
MaxTime = Annotated[
    str, typer.Option("--max-time", metavar="TIME", help="Keep the newest part, such as 30m, 12h; at least 1m.")
]


def record(
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Where to; never overwritten.")],
    profile: Annotated[str, typer.Option("--profile", metavar="NAME|FILE", help="What to run.")] = DEFAULT_PROFILE,
    probe: Annotated[
        list[str] | None,
        typer.Option("--probe", metavar="NAME", help="Run only this probe of the profile; repeatable."),
    ] = None,
    duration: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long, such as 90s, 10m, 2h. Default: until Ctrl-C.")
    ] = None,
    max_size: MaxSize = "256MB",
    max_time: MaxTime = "24h",
    note: Annotated[
        str | None, typer.Option("--note", metavar="TEXT", help="What there is to see, for whoever replays it.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help=preflight.FORCE_HELP)] = False,
) -> int:
    """Record without a screen: everything that the console would see, for netconsole replay. Progress on stderr."""
    from netconsole.budget.enforcer import Governing
    from netconsole.cli.main import _choose
    from netconsole.escalation.escalator import Escalating
    from netconsole.profile.profile import parse_duration
    from netconsole.recording.recorder import Recorder, describe
    from netconsole.run import headless
    from netconsole.session.live import session_of

    duration_s = None if duration is None else parse_duration(duration)
    if duration is not None and (duration_s is None or not 0 < duration_s <= MOST_S):
        raise bad("--duration", "", f'expected a time from 1ms to 720h such as "10m", found "{safe(duration, 40)}"')
    max_bytes, max_s = bounds(max_size, max_time)
    manifests, chosen, requests = _choose(profile, probe)
    start = preflight.before_start(chosen, manifests, requests, force, named=probe or ())
    requests = start.requests
    header = describe(chosen, {request.name: request.mode for request in requests}, manifests, note and note[:MAX_NOTE])
    recorder = Recorder(output, header, chosen.budget, max_bytes, max_s)
    session = session_of(requests, chosen, manifests)
    governing = Governing(session, chosen, manifests)
    governing.leave_out(start.left_out)
    escalating = Escalating(session, governing, manifests)
    escalating.start()
    try:
        attached = headless.record(session, recorder, duration_s, governing)
    except headless.Interrupted as error:
        kept = f"what was recorded is in {safe(output)}" if recorder.progress.bytes else "nothing recorded"
        print(f"netconsole: interrupted, {kept}: {error}", file=sys.stderr)
        return INTERRUPTED
    finally:
        escalating.close()
    progress = recorder.progress
    if progress.ended is not None:
        print(f"netconsole: {progress.ended}", file=sys.stderr)
        return BROKEN_BUDGET if progress.over_budget else BAD_OUTPUT
    left_out = f", {progress.left_out} frames left out to keep the budget" if progress.left_out else ""
    print(f"netconsole: {memory(progress.bytes / 1024)} in {safe(output)}{left_out}", file=sys.stderr)
    if not attached:
        raise Unable("no BPF probe could be attached; netconsole doctor says why and what would help")
    return DONE


def replay(
    recording: Annotated[
        str | None, typer.Argument(metavar="FILE|NAME", help="A recording; without one, the shipped ones are listed.")
    ] = None,
    speed: Annotated[float, typer.Option(metavar="X", help="So many times as fast as it was.")] = 1.0,
) -> int:
    """Open the console on a recording: on any machine, without privileges."""
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
    from netconsole.recording.format import Damaged, Recording
    from netconsole.recording.player import Player
    from netconsole.recording.replay_session import ReplaySession

    opened = Recording(path)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise bad("netconsole replay", "", "no terminal here to show it on; `zstdcat FILE` prints its frames")
    manifests = load_all()
    budget = budget_of(opened.header.profile.budget)
    try:
        player = Player(opened, manifests, budget)
    except Damaged as error:
        raise bad(path, "", f"nothing in it can be read: {error}") from None
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


def offer(why: str) -> int | None:
    """Ask on the terminal whether to look at a shipped recording, since this host cannot be measured.

    Returns the exit code; None when there is nobody to ask, or nothing to offer.
    """
    recordings = shipped()
    if not recordings or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    print(f"netconsole: {why}", file=sys.stderr)
    print("netconsole: what it looks like can be seen in a recording of another host:", file=sys.stderr)
    for number, (name, path) in enumerate(recordings.items(), 1):
        print(f"  {number}  {name:<12} {_summary(path)}", file=sys.stderr)
    print("netconsole: replay which? (number; Enter: none) ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip()
    if not answer.isdecimal() or not 1 <= int(answer) <= len(recordings):
        return UNABLE
    return open_replay(list(recordings.values())[int(answer) - 1])


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
    from netconsole.recording.format import Recording

    opened = Recording(path)
    opened.close()
    header = opened.header
    length = elapsed((opened.end.mono_ns - opened.begin.mono_ns) / 1e9)
    what = safe(header.note or f"profile {header.profile.name}", 100)
    return f"{what} ({length}, kernel {safe(header.host.kernel, 40)})"


def bounds(size: str, time: str) -> tuple[int, float]:
    """Bytes and seconds of the bounds of a recording. Raises BadInput."""
    from netconsole.profile.profile import parse_duration
    from netconsole.recording.writer import LEAST_BYTES, LEAST_S

    match = _SIZE.fullmatch(size)
    max_bytes = int(match[1]) * _BYTES[match[2]] if match else 0
    if not LEAST_BYTES <= max_bytes <= MOST_BYTES:
        raise bad("--max-size", "", f'expected a size from 1MB to 1000GB such as "100MB", found "{safe(size, 40)}"')
    max_s = parse_duration(time)
    if max_s is None or not LEAST_S <= max_s <= MOST_S:
        raise bad("--max-time", "", f'expected a time from 1m to 720h such as "12h", found "{safe(time, 40)}"')
    return max_bytes, max_s
