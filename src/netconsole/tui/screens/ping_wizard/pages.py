"""The pages of the wizard for a ping, as lines: what will be watched, what is seen, what is missing, the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from netconsole.base import figure
from netconsole.base.figure import fit, safe
from netconsole.ping.analysis.merge import CaptureFile
from netconsole.ping.breakdown import Breakdown
from netconsole.ping.capture import EchoTimes, Role
from netconsole.ping.words import us
from netconsole.probes.manifest import Manifest
from netconsole.report import of_ping, to_text
from netconsole.run.ping_plan import PingPlan, command_for, described, ping_command
from netconsole.run.ping_watch import PlaceProgress
from netconsole.tui.widgets.look import Tone
from netconsole.tui.widgets.painted import Line

FOUR: tuple[Role, ...] = ("sender-vm", "sender-host", "receiver-host", "receiver-vm")
"""The vantage points of a ping between two VMs."""
COLUMNS = 80
_PHASE_TONES: dict[str, Tone] = {"failed": "act", "watching": "ok", "ended": "ok"}
_ROLE_COLUMNS = 14


def check_page(plan: PingPlan, manifests: Mapping[str, Manifest]) -> Iterator[Line]:
    """What was found, what will be attached where, and what it costs."""
    for line in described(plan, manifests):
        yield _text(safe(line, 600))
    if plan.left:
        yield []
        yield _text(f"Not reached: {', '.join(plan.left)}. The next steps say what to run there.")
    if plan.sent_at is None:
        yield []
        yield _text("netconsole sends no echoes. When it watches, run this on the machine that pings:")
        yield [("     ", ""), (safe(ping_command(plan), 400), "strong")]


def watch_page(places: Sequence[PlaceProgress], told: str) -> Iterator[Line]:
    """How far each place is, and the last echoes of the first that sees any."""
    if told:
        yield [(f" {fit('echoes', _ROLE_COLUMNS)} ", "strong"), (safe(told, 400), "")]
    for place in places:
        tone = _PHASE_TONES.get(place.phase, "")
        words = ", ".join(f"{figure.count(n)} {name.replace('_', ' ')}" for name, n in sorted(place.outcomes.items()))
        said = place.why if place.phase == "failed" else words or "no echo yet" if place.phase == "watching" else words
        yield [(f" {fit(place.role, _ROLE_COLUMNS)} ", "strong"), (fit(place.phase, 11), tone), (safe(said, 200), "")]
    shown = next((place for place in places if place.last), None)
    if shown is None:
        return
    yield []
    head = "".join(f"{name:>12}" for name in ("seq", "request", "between", "reply", "total us"))
    yield [(f" {head}  {shown.role}", "head")]
    for echo in reversed(shown.last):
        yield [(f" {_echo(echo)}", "" if echo.outcome == "answered" else "look")]


def _echo(echo: EchoTimes) -> str:
    times = (echo.request_us, echo.between_us, echo.reply_us, echo.total_us)
    outcome = "" if echo.outcome == "answered" else f"  {echo.outcome.replace('_', ' ')}"
    return f"{echo.seq:>12}" + "".join(f"{us(time):>12}" for time in times) + outcome


def files_page(plan: PingPlan | None, captures: Sequence[CaptureFile], failed: Mapping[Role, str]) -> Iterator[Line]:
    """Which vantage points there are, and how to get those that are missing."""
    have: dict[str, list[CaptureFile]] = {}
    for one in captures:
        have.setdefault(one.capture.role, []).append(one)
    roles = [*FOUR, *(role for role in have if role not in FOUR)]
    if "host" in have:
        roles = [role for role in roles if not role.startswith("sender")]
    missing: list[Role] = []
    for role in roles:
        if role in have:
            for one in have[role]:
                count = figure.things(len(one.capture.packets), "echoes") if one.capture.packets else "means"
                yield [(" ok ", "ok"), (fit(role, _ROLE_COLUMNS), "strong"), (f" {count}, {safe(one.file, 60)}", "")]
        else:
            missing += [one for one in FOUR if one == role]
            why = f" {safe(failed[role], 200)}" if role in failed else " missing"  # type: ignore[index]
            yield [(" ?  ", "unknown"), (fit(role, _ROLE_COLUMNS), "strong"), (why, "act" if role in failed else "dim")]
    if missing:
        yield []
        yield _text("Without them the answer is coarser. Run these while it pings, and name the files:")
        for role in missing:
            command = command_for(role, plan) if plan else f"netconsole ping capture --role {role} -o {role}.json"
            yield [("   ", ""), (safe(command, 400), "")]


def result_page(breakdown: Breakdown, width: int) -> Iterator[Line]:
    """The report as a text to scroll."""
    for line in to_text(of_ping(breakdown, formulas=True), min(COLUMNS, width)).splitlines():
        tone: Tone = (
            "head" if line.isupper() and line.split(",")[0].isupper() else "look" if line.startswith("!") else ""
        )
        yield [(line, tone)]


def _text(text: str) -> Line:
    return [(f" {text}", "")]
