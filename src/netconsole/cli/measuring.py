"""The options that say what is measured, as one object: from the command line to the plan of a run."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netconsole.base.errors import bad
from netconsole.base.figure import safe
from netconsole.cli.options import ForceOption, HostsOption, ProbeOption, ProfileOption, time_of
from netconsole.run.preflight import DEFAULT_PROFILE, RunPlan

if TYPE_CHECKING:
    from netconsole.probes.manifest import Manifest
    from netconsole.profile.profile import Profile
    from netconsole.run.preflight import RunPlan
    from netconsole.telemetry.frames import Scalar
    from netconsole.telemetry.request import ProbeRequest

LEAST_INTERVAL_S = 0.1


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
    pcap: Annotated[
        Path | None,
        typer.Option(
            "--pcap",
            metavar="FILE",
            help="Write the begin of dropped packets that are sampled to this new file, for Wireshark.",
        ),
    ] = None

    def given(self) -> list[str]:
        """The options that were given."""
        own = (one.name for one in fields(self) if one.name != "filters")
        return [name for name in own if getattr(self, name) != getattr(Measuring, name)] + list(self.filters.given())

    def interval_s(self, duration_s: float | None = None) -> float:
        """From one reading to the next; without the option, a run shorter than that has its length. Raises BadInput."""
        if self.interval is None:
            return 1.0 if duration_s is None else min(1.0, max(LEAST_INTERVAL_S, duration_s))
        seconds = time_of("--interval", self.interval, "100ms", "60s", "1s")
        if duration_s is not None and seconds > duration_s:
            expected = f"expected at most {duration_s:g} s, the duration"
            raise bad("--interval", "", f"{expected}: a figure needs a whole interval")
        return seconds

    def plan(self, interval_s: float = 1.0, duration_s: float | None = None, counters_only: bool = False) -> RunPlan:
        """What to run. Raises BadInput and Unable before anything is started.

        ``counters_only``: what needs no BPF program; there may be nothing.
        """
        from netconsole.host.privileges import require
        from netconsole.probes.catalogue import load_all
        from netconsole.profile.loader import load
        from netconsole.profile.plan import plan

        manifests, filters = load_all(), self.filters.given()
        chosen = narrowed(load(self.profile, manifests), manifests, filters, is_far=bool(self.host))
        requests = plan(chosen, manifests, self.probe or ())
        if not requests:
            raise bad("--profile", chosen.name, "all probes of this profile are off: there is nothing to measure")
        if counters_only:
            requests = [request for request in requests if request.source != "bpf"]
        if self.pcap is not None:
            requests = with_packets(requests)
            chosen = with_room_for(chosen, requests)
        made = RunPlan(chosen, manifests, requests, self.probe or (), self.force, interval_s, duration_s, self.pcap)
        if requests:
            check_used(filters, made)
        if not self.host:
            require(requests)
        return made


def with_packets(requests: Sequence[ProbeRequest]) -> list[ProbeRequest]:
    """The same, with samples that have packets where a probe can have them. Raises BadInput where none can."""
    from netconsole.recording.packet_file import KNOB

    if not any(KNOB in one.knobs for one in requests):
        raise bad("--pcap", "", "no probe here samples packets: add --probe kernel_drops or --probe mirror")
    return [
        replace(one, mode="details", knobs={**one.knobs, KNOB: True}) if KNOB in one.knobs else one for one in requests
    ]


_AHEAD = 2.0
"""Samples come in bursts: so many times what the probes may send is within the budget, as in profile drops."""


def with_room_for(profile: Profile, requests: Sequence[ProbeRequest]) -> Profile:
    """The profile, whose budget allows the samples that were asked for."""
    from netconsole.recording.packet_file import KNOB

    asked = sum(float(one.knobs.get("events_per_s") or 0) for one in requests if one.knobs.get(KNOB))
    limit = profile.budget.events_per_s
    if limit is None or limit >= _AHEAD * asked:
        return profile
    return replace(profile, budget=replace(profile.budget, events_per_s=_AHEAD * asked))


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


_NOT_YET = 0
"""The inode of a namespace whose host is not entered yet."""


def narrowed(
    profile: Profile, manifests: Mapping[str, Manifest], filters: Mapping[str, str | int], is_far: bool
) -> Profile:
    """The profile with these filters for every probe that has such a knob, before what it says itself. Raises BadInput.

    ``is_far``: another host is measured; a namespace or VM of it is found by its name when the host is entered
    (:mod:`netconsole.run.named_there`).
    """
    from netconsole.probes.knobs import contradictions, refusal

    if not filters:
        return profile
    wanted: dict[str, Scalar] = {}
    given = {name: str(filters[name]) for name in ("netns", "vm") if name in filters}
    filters = dict(filters)
    if (vm := filters.pop("vm", None)) is not None:
        if "device" in filters:
            raise bad("--vm", "", "give --vm or --device, not both: each names a device")
        filters["device"] = _device_of(str(vm), is_far)
    for name, text in filters.items():
        value: Scalar = _inode(str(text), is_far) if name == "netns" else _number(name, text)
        if (why := refusal(name, value, value)) is not None:
            raise bad(f"--{name}", "", why)
        if name == "reason" and not is_far:
            _check_reasons(str(value))
        wanted[name] = value
    for name, why in contradictions({**profile.filters, **wanted}):
        if name in wanted:
            raise bad(f"--{name}", "", why)
        raise bad(profile.path or profile.name, f"filters.{name}", why)
    probes = {
        probe: replace(choice, knobs={**choice.knobs, **_of(manifests[probe], wanted)})
        for probe, choice in profile.probes.items()
    }
    given = {**profile.given, **given}
    return replace(profile, filters={**profile.filters, **wanted}, given=given, probes=probes)


def check_used(filters: Mapping[str, str | int], plan: RunPlan) -> None:
    """Raises BadInput for a filter that none of the planned probes has."""
    from netconsole.profile.scope import can_narrow

    for name in filters:
        knob = "device" if name == "vm" else name
        if not any(can_narrow(plan.manifests[request.name], knob) for request in plan.requests):
            of = f"--probe has this filter: {', '.join(plan.named)}" if plan.named else ""
            raise bad(f"--{name}", "", f"no probe of {of or f'profile {plan.profile.name} has this filter'}")


def _number(name: str, text: str | int) -> str | int:
    """A port or an EtherType as profiles have it, where the text is a number: 53, 0x0806."""
    if name not in ("port", "ethertype") or not isinstance(text, str):
        return text
    if text.isdecimal() and len(text) <= 5:
        return int(text)
    return int(text, 16) if re.fullmatch("0x[0-9a-fA-F]{1,4}", text) else text


def _check_reasons(text: str) -> None:
    """Raises BadInput where this machine's kernel has no such drop reason; the collector would refuse the probe."""
    from netconsole_collector.names import drop_reasons
    from netconsole_collector.probe import drop_filter
    from netconsole_collector.types import btf

    try:
        known = drop_reasons.from_btf(btf.Btf(modules=btf.module_paths(drop_reasons.MODULES)))
        drop_filter.numbers(drop_filter.parse(text), known)
    except drop_filter.ReasonError as error:
        raise bad("--reason", "", str(error)) from None
    except (btf.BtfError, OSError):  # a kernel without BTF: the collector looks into its headers
        return


def _of(manifest: Manifest, wanted: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {name: value for name, value in wanted.items() if name in manifest.knobs}


def _device_of(vm: str, is_far: bool) -> str:
    """The tap of a VM on this machine; of a far one not yet. Raises BadInput where it has none, or several."""
    from netconsole.run.named_there import only_tap
    from netconsole_collector.names.vms import Vms

    return "" if is_far else only_tap(vm, Vms().taps())


def _inode(text: str, is_far: bool) -> int:
    """The inode of a namespace, by number or by its name on this machine; of a far one by name not yet."""
    from netconsole.host.identity import namespace_inode
    from netconsole_collector.names.netns_labels import is_namespace_inode

    if is_far and not is_namespace_inode(text):
        return _NOT_YET
    found = namespace_inode(text)
    if found is None:
        raise bad("--netns", "", f'no network namespace is named "{safe(text, 40)}": see ip netns list')
    return found
