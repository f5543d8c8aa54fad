"""The command `ping capture`: what one vantage point sees of each echo, as a document."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from netconsole.base.errors import bad
from netconsole.base.figure import safe, things
from netconsole.base.output import print_progress
from netconsole.cli.measuring import spread
from netconsole.cli.options import (
    DONE,
    INTERRUPTED,
    HostsOption,
    OutputOption,
    ReplaceOption,
    entered,
    fail,
    only_one,
    time_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from netconsole.ping.capture import PingCapture, Role
    from netconsole.ping.vantage import Between
    from netconsole.run.ping_capture import VantageRun
    from netconsole.run.ping_run import EchoSender, Ending

_SAY_EVERY_S = 1.0

RoleOption = Annotated[
    str,
    typer.Option("--role", metavar="ROLE", help="sender-vm, sender-host, receiver-host, receiver-vm or host."),
]
EndsOption = Annotated[
    str, typer.Option("--address", metavar="A[,A]", help="Only pings of this address, or between these two.")
]


@dataclass(frozen=True)
class PingBetween:
    """The options that say between which devices is measured, and how long an echo may take."""

    inside: Annotated[
        list[str] | None,
        typer.Option(
            "--inside", metavar="DEVICE", help="On a host: the VM's side. A name, vnet*, kind:tap. Repeatable."
        ),
    ] = None
    outside: Annotated[
        list[str] | None,
        typer.Option(
            "--outside", metavar="DEVICE", help="The side of the wire. A name, eth*, kind:physical. Repeatable."
        ),
    ] = None
    netns: Annotated[
        str | None, typer.Option("--netns", metavar="NAME", help="Only devices of this network namespace.")
    ] = None
    limit: Annotated[str, typer.Option("--limit", metavar="TIME", help="A later answer counts as late.")] = "1s"
    no_vhost: Annotated[
        bool, typer.Option("--no-vhost", help="Do not measure vhost: its hooks see all packets of all VMs.")
    ] = False

    def between(self, address: str = "", host: str | None = None) -> Between:
        """Where to measure. The name of a far namespace is not known yet. Raises BadInput."""
        from netconsole.ping.vantage import Between
        from netconsole.run.named_there import inode_there
        from netconsole_collector.names.netns_labels import is_namespace_inode

        limit_s, netns, inode = time_of("--limit", self.limit, "1ms", "60s", "1s"), self.netns, 0
        if netns is not None:
            inode = int(netns) if is_namespace_inode(netns) else 0 if host is not None else inode_there(netns)
        return Between(self.inside or (), self.outside or (), addresses_of(address), inode, limit_s, not self.no_vhost)


@spread
def capture(
    role: RoleOption,
    where: PingBetween,
    address: EndsOption = "",
    duration: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long to capture, such as 30s. Default: until Ctrl-C.")
    ] = None,
    count: Annotated[int | None, typer.Option("--count", min=1, metavar="N", help="End after so many echoes.")] = None,
    run: Annotated[str, typer.Option("--run", metavar="NAME", help="A name that all captures of one run share.")] = "",
    output: OutputOption = None,
    replace: ReplaceOption = False,
    hosts: HostsOption = None,
) -> int:
    """Watch the pings that pass here, and write when each one came in and went out. Progress goes to standard error.

    It sends nothing. `netconsole ping analyze` puts the captures of several vantage points together.
    """
    from netconsole.base import output as out
    from netconsole.ping import capture as documents
    from netconsole.probes.catalogue import load_all
    from netconsole.run.named_there import inode_there
    from netconsole.run.ping_capture import vantage_run
    from netconsole.run.ping_run import Ending

    host = only_one(hosts, "netconsole ping capture")
    point = role_of(role)
    ending = Ending(duration_of(duration), count)
    between = where.between(address, host)
    out.chosen("json", output, "json", replace)
    out.ready(output)
    manifests = load_all()
    with contextlib.closing(entered(host, manifests)) as there:
        if where.netns is not None and not between.netns:
            between = dataclasses.replace(between, netns=inode_there(where.netns, there))
        taken = measured([vantage_run(point, between, manifests, there)], ending, name=run[:200])
    if taken is None:
        return INTERRUPTED
    out.write(documents.encode(taken[0]), output)
    return DONE


def measured(
    runs: Sequence[VantageRun],
    ending: Ending,
    send: Callable[[Callable[[], None]], EchoSender] | None = None,
    name: str = "",
) -> list[PingCapture] | None:
    """Measure, and say how it goes. A signal ends it; None if one came too early. Raises Unable."""
    from netconsole.run.ping_run import PingRun
    from netconsole.run.stop import Interrupted, Stop, signals

    stop = Stop()
    runs[0].session.on_news(progress(runs[0]))
    try:
        with signals(stop):
            captures = PingRun(runs, ending, stop, say, send, name or None).measure()
    except Interrupted as error:
        fail(f"interrupted, nothing written: {error}", INTERRUPTED)
        return None
    for one in runs:
        say(summary(one))
    return captures


def role_of(role: str) -> Role:
    """A vantage point by its name. Raises BadInput."""
    from netconsole.ping.capture import ROLES

    for known in ROLES:
        if role == known:
            return known
    raise bad("--role", "", f'expected {", ".join(ROLES)}, found "{safe(role, 40)}"')


def duration_of(duration: str | None) -> float | None:
    """Seconds. Raises BadInput."""
    return None if duration is None else time_of("--duration", duration, "1ms", "24h", "30s")


def addresses_of(text: str) -> list[str]:
    """One address or prefix, or two apart by a comma. Raises BadInput."""
    addresses = [one.strip() for one in text.split(",")] if text else []
    for one in addresses:
        try:
            ipaddress.ip_network(one, strict=False)
        except ValueError:
            raise bad("--address", "", f'expected an address or a prefix, found "{safe(one, 60)}"') from None
    if len(addresses) > 2:
        raise bad("--address", "", "expected one or two addresses, the ends of the ping")
    return addresses


def progress(run: VantageRun) -> Callable[[object], None]:
    """Says once a second what there is, when it has changed."""
    said_at, said = time.monotonic(), ""

    def told(_: object) -> None:
        nonlocal said_at, said
        if time.monotonic() - said_at < _SAY_EVERY_S or not len(run.log):
            return
        line = summary(run)
        if line != said:
            said_at, said = time.monotonic(), line
            say(line)

    return told


def summary(run: VantageRun) -> str:
    """How many echoes there are, and what became of them."""
    ends = Counter(outcome for _, outcome in run.outcomes())
    told = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in ends.most_common())
    return f"{run.role}: {things(len(run.log), 'echoes')}{': ' if told else ''}{told}"


def say(line: str) -> None:
    """One line of progress."""
    print_progress(f"netconsole: {safe(line, 400)}")
