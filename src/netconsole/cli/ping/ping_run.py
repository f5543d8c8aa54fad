"""The command `ping run`: measures a ping at all vantage points that can be reached, and says where its time goes."""

from __future__ import annotations

import contextlib
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netconsole.base.errors import bad
from netconsole.base.readers import stat_of
from netconsole.cli.measuring import spread
from netconsole.cli.options import DONE, INTERRUPTED, UNABLE, entered, fail, time_of
from netconsole.cli.ping.ping_capture import PingBetween, duration_of, measured, say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from netconsole.far.host import AnyHost
    from netconsole.ping.capture import PingCapture
    from netconsole.ping.echo_log import Echo
    from netconsole.probes.manifest import Manifest
    from netconsole.run.ping_plan import PingPlan

COLUMNS = 80
_LINES_PER_S = 20
"""Echoes that are shown one by one, each second."""


@spread
def run(
    sender: Annotated[str, typer.Argument(metavar="FROM", help="Who pings: a VM by name or address, a tap, or here.")],
    receiver: Annotated[str, typer.Argument(metavar="TO", help="Who is pinged: a VM by name or address.")],
    where: PingBetween,
    at: Annotated[
        list[str] | None,
        typer.Option("--at", metavar="ROLE=HOST", help="Where a vantage point is: here, or ssh://… Repeatable."),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="ssh://[USER@]HOST", help="Look for both VMs on this host, too. Repeatable."),
    ] = None,
    count: Annotated[
        int, typer.Option("--count", min=1, max=500_000, metavar="N", help="How many echoes to send.")
    ] = 100,
    interval: Annotated[
        str, typer.Option("--interval", metavar="TIME", help="Time from echo to echo, 0.1ms or more.")
    ] = ("100ms"),
    size: Annotated[int, typer.Option("--size", min=16, max=65000, help="Bytes that an echo carries.")] = 56,
    watch: Annotated[bool, typer.Option("--watch", help="Send nothing: watch the ping of somebody else.")] = False,
    duration: Annotated[
        str | None, typer.Option(metavar="TIME", help="End after this time, whatever was seen.")
    ] = None,
    dry: Annotated[bool, typer.Option("--plan", help="Only show what would be measured, where and how.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before it begins.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIRECTORY", help="Write captures and breakdown there.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the files of -o if they exist.")] = False,
) -> int:
    """Measure a ping between two VMs at every vantage point that can be reached, and say where its time goes.

    For those that cannot be reached it prints the command to run there.
    """
    from netconsole.base import output as out
    from netconsole.ping.capture import ROLES
    from netconsole.probes.catalogue import load_all
    from netconsole.run import ping_plan
    from netconsole.run.ping_places import read_places

    duration_s = duration_of(duration)
    traffic = ping_plan.PingTraffic(count, interval_us_of(interval), size)
    between = where.between()
    if output is not None:
        _check_directory(output)
    if output is not None and not replace:
        for one in (*ROLES, "breakdown"):
            out.may_replace(output / f"{one}.json")
    if not dry:
        # Where the directory is not there yet, it can be made where a file can be.
        out.ready(output / "breakdown.json" if output is not None and output.is_dir() else output)
    name = time.strftime("ping-%Y%m%d-%H%M%S", time.gmtime())
    places, manifests = ping_plan.at_of(at or (), ROLES), load_all()
    with contextlib.ExitStack() as stack:
        hosts = EnteredHosts(manifests, stack)
        known = read_places(places, hosts.enter, host or ())
        made = ping_plan.plan((sender, receiver), known, places, between, traffic, name, watch)
        for line in ping_plan.described(made, manifests):
            say(line)
        for role in made.left:
            say(f"{role} was not reached; run there: {ping_plan.command_for(role, made)}")
        if made.sent_at is None:
            say(f"netconsole sends no echoes; run in the machine that pings: {ping_plan.ping_command(made)}")
        if dry:
            return DONE
        if not yes and sys.stdin.isatty() and not typer.confirm("netconsole: start measuring?", default=True, err=True):
            return INTERRUPTED
        captures = _measured(made, manifests, hosts, duration_s or _longest_s(made, between.limit_s))
    if captures is None:
        return INTERRUPTED
    _written(captures, name, output)
    if not any(one.packets for one in captures):
        return fail("no vantage point saw an echo: check the addresses and the devices", UNABLE)
    return DONE


def _check_directory(output: Path) -> None:
    """Of -o. It is made when there is something to write. Raises BadInput."""
    here, above = stat_of(output), stat_of(output.parent)
    if here is not None and not stat.S_ISDIR(here.st_mode):
        raise bad(output, "", "this is no directory: -o names one, for a file of each vantage point")
    if above is None or not stat.S_ISDIR(above.st_mode):
        raise bad(output, "", f"no such directory: {output.parent}")


def interval_us_of(interval: str) -> int:
    """Microseconds between two echoes. Raises BadInput."""
    return round(time_of("--interval", interval, "0.1ms", "60s", "100ms") * 1e6)


def _longest_s(made: PingPlan, limit_s: float) -> float:
    """When somebody else pings, nobody knows how long. A run of our own ends in time, whatever the far ends do."""
    if made.sent_at is None:
        return 24 * 3600.0
    return made.traffic.count * made.traffic.interval_us / 1e6 + limit_s + 30


class EnteredHosts:
    """The machines of a plan: each is entered once, and closed by ``stack``."""

    def __init__(self, manifests: Mapping[str, Manifest], stack: contextlib.ExitStack) -> None:
        self._manifests = manifests
        self._stack = stack
        self._hosts: dict[str, AnyHost] = {}

    def enter(self, place: str) -> AnyHost:
        """The host of "here" or of an ssh:// address. Raises BadInput and Unable."""
        from netconsole.run.ping_places import HERE

        if place not in self._hosts:
            there = entered(None if place == HERE else place, self._manifests)
            self._hosts[place] = self._stack.enter_context(contextlib.closing(there))
        return self._hosts[place]


def _measured(
    made: PingPlan, manifests: Mapping[str, Manifest], hosts: EnteredHosts, duration_s: float
) -> list[PingCapture] | None:
    from netconsole.run.ping_capture import vantage_run
    from netconsole.run.ping_run import EchoSender, Ending

    runs = [vantage_run(point.role, point.between, manifests, hosts.enter(point.host)) for point in made.points]
    runs[0].log.on_echo = EchoLines(made.traffic.interval_us)
    target, traffic = made.receiver.address, made.traffic
    send = None
    if made.sent_at is not None:
        sender = hosts.enter(made.sent_at)
        send = lambda changed: EchoSender(sender, target, traffic, changed)  # noqa: E731
    return measured(runs, Ending(duration_s, traffic.count), send, made.name)


class EchoLines:
    """Shows echoes one by one as they end, where they come slowly enough to be read."""

    def __init__(self, interval_us: int) -> None:
        self._is_readable = interval_us * _LINES_PER_S >= 1_000_000
        self._shown: set[object] = set()

    def __call__(self, echo: Echo) -> None:
        if not self._is_readable or echo.total_ns is None or echo.identity in self._shown:
            return
        self._shown.add(echo.identity)
        times = echo.times("answered")
        parts = {"request": times.request_us, "between": times.between_us, "reply": times.reply_us}
        told = [f"{name} {value:.1f}" for name, value in parts.items() if value is not None]
        say(f"id {echo.id} seq {echo.seq}: {', '.join([*told, f'in all {times.total_us:.1f}'])} us")


def _written(captures: list[PingCapture], name: str, output: Path | None) -> None:
    from netconsole.base import output as out
    from netconsole.ping import breakdown, cases
    from netconsole.ping import capture as documents
    from netconsole.ping.analysis.merge import CaptureFile
    from netconsole.report import of_ping, to_text

    files = [CaptureFile(f"{one.role}.json", one) for one in captures]
    found = cases.case_of(files, name).breakdown
    if output is not None:
        try:
            output.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise bad(output, "", f"this directory cannot be made: {error.strerror}") from None
        for file in files:
            out.write(documents.encode(file.capture), output / file.file)
        out.write(breakdown.encode(found), output / "breakdown.json")
        say(f"written to {output}: {', '.join(file.file for file in files)}, breakdown.json")
    out.write(to_text(of_ping(found, False), COLUMNS).encode(), None)
