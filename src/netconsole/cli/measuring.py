"""The options that say what is measured, as one object: from the command line to the plan of a run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Annotated, Any

import typer

from netconsole.base.errors import bad
from netconsole.cli.options import ForceOption, HostsOption, ProbeOption, ProfileOption
from netconsole.run.preflight import DEFAULT_PROFILE, RunPlan

LEAST_INTERVAL_S, MOST_INTERVAL_S = 0.1, 60.0


@dataclass(frozen=True)
class Filters:
    """The options that narrow a run; all but ``vm`` have the name of a knob, and its words."""

    device: Annotated[str | None, typer.Option("--device", metavar="NAME", help="Only this interface.")] = None
    vm: Annotated[
        str | None, typer.Option("--vm", metavar="NAME", help="Only the device of this VM, where it has one.")
    ] = None
    netns: Annotated[
        str | None,
        typer.Option("--netns", metavar="NAME|INODE", help="Only this network namespace; host: the host's."),
    ] = None
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            metavar="A[/N][,B]",
            help="Only packets from or to A; A,B: between both; from:A, to:B, from:A,to:B: in this direction.",
        ),
    ] = None
    port: Annotated[
        str | None,
        typer.Option(
            "--port",
            metavar="P[,Q]",
            help="Only packets from or to P, as with --address; two ports stand in the order of two addresses.",
        ),
    ] = None
    protocol: Annotated[
        str | None, typer.Option("--protocol", metavar="L4", help="Only tcp, udp, icmp, icmpv6, sctp or a number.")
    ] = None
    vlan: Annotated[int | None, typer.Option("--vlan", metavar="ID", help="Only packets with this outer tag.")] = None
    ethertype: Annotated[
        str | None,
        typer.Option("--ethertype", metavar="NUMBER", help="Only this kind of frame, such as 0x0806 for ARP."),
    ] = None
    mac: Annotated[
        str | None, typer.Option("--mac", metavar="MAC", help="Only packets from or to this MAC address.")
    ] = None
    reason: Annotated[
        str | None,
        typer.Option(
            "--reason", metavar="A[,B]", help="Only drops for these reasons of the kernel; not:A,B: for all others."
        ),
    ] = None

    def given(self) -> dict[str, str | int]:
        """Those that were given, by name."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class Measuring:
    """What is measured, where, and how often it is read."""

    profile: ProfileOption = DEFAULT_PROFILE
    probe: ProbeOption = None
    filters: Filters = field(default_factory=Filters)
    interval: Annotated[
        str | None,
        typer.Option("--interval", metavar="TIME", help="Time from reading to reading, 100ms to 60s. Default: 1s."),
    ] = None
    force: ForceOption = False
    host: HostsOption = None

    def given(self) -> list[str]:
        """The options that were given."""
        own = (one.name for one in fields(self) if one.name != "filters")
        return [name for name in own if getattr(self, name) != getattr(Measuring, name)] + list(self.filters.given())

    def interval_s(self, duration_s: float | None = None) -> float:
        """From one reading to the next; without the option, a run shorter than that has its length. Raises BadInput."""
        from netconsole.base.figure import parse_duration, safe

        if self.interval is None:
            return 1.0 if duration_s is None else min(1.0, max(LEAST_INTERVAL_S, duration_s))
        seconds = parse_duration(self.interval)
        if seconds is None or not LEAST_INTERVAL_S <= seconds <= MOST_INTERVAL_S:
            expected = 'expected a time from 100ms to 60s such as "1s"'
            raise bad("--interval", "", f'{expected}, found "{safe(self.interval, 40)}"')
        if duration_s is not None and seconds > duration_s:
            expected = f"expected at most {duration_s:g} s, the duration"
            raise bad("--interval", "", f"{expected}: a figure needs a whole interval")
        return seconds

    def plan(self, interval_s: float = 1.0, duration_s: float | None = None) -> RunPlan:
        """What to run. Raises BadInput and Unable before anything is started."""
        from netconsole.cli.filters import check_used, narrowed
        from netconsole.host.privileges import require
        from netconsole.probes.catalogue import load_all
        from netconsole.profile.loader import load
        from netconsole.profile.plan import plan

        manifests, filters = load_all(), self.filters.given()
        chosen = narrowed(load(self.profile, manifests), manifests, filters, is_far=bool(self.host))
        requests = plan(chosen, manifests, self.probe or ())
        if not requests:
            raise bad("--profile", chosen.name, "all probes of this profile are off: there is nothing to measure")
        made = RunPlan(chosen, manifests, requests, self.probe or (), self.force, interval_s, duration_s)
        check_used(filters, made)
        if not self.host:
            require(requests)
        return made


def spread(command: Callable[..., int]) -> Callable[..., int]:
    """Typer knows single options: in the place of a parameter that is a dataclass stand its fields."""
    taken = inspect.signature(command, eval_str=True)

    @functools.wraps(command)
    def spread_command(**given: Any) -> int:
        return command(**{name: _gathered(one, given) for name, one in taken.parameters.items()})

    spread_command.__signature__ = taken.replace(parameters=_singles(taken))  # type: ignore[attr-defined]
    return spread_command


def _singles(signature: inspect.Signature) -> list[inspect.Parameter]:
    found: list[inspect.Parameter] = []
    for one in signature.parameters.values():
        if is_dataclass(one.annotation):
            found += _singles(_fields(one))
        else:
            found.append(one.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    return found


def _gathered(one: inspect.Parameter, given: Mapping[str, Any]) -> Any:
    kind: Any = one.annotation
    if not isinstance(kind, type) or not is_dataclass(kind):
        return given[one.name]
    return kind(**{name: _gathered(part, given) for name, part in _fields(one).parameters.items()})


def _fields(one: inspect.Parameter) -> inspect.Signature:
    return inspect.signature(one.annotation, eval_str=True)
