"""What was named for a far host and is known once the host is entered: a namespace's inode, the tap of a VM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from netconsole.base.checker import close
from netconsole.base.errors import bad
from netconsole.base.figure import safe
from netconsole.far.host import THIS_HOST, AnyHost
from netconsole.host import door
from netconsole.run.preflight import RunPlan
from netconsole.telemetry.frames import Scalar
from netconsole_collector.names.fact_keys import parts as fact_parts
from netconsole_collector.names.netns_labels import is_namespace_inode

NETNS, VM, DEVICE = "netns", "vm", "device"


def inode_there(name: str, host: AnyHost = THIS_HOST) -> int:
    """Of the namespace with this name on a host. Raises BadInput where none has it."""
    found = door.namespace_inode(host, name)
    if not found:
        way_out = "see ip netns list there" if host.address is not None else "see ip netns list"
        where = f" on {host.address}" if host.address is not None else ""
        raise bad("--netns", "", f'no network namespace is named "{safe(name, 40)}"{where}: {way_out}')
    return found


def only_tap(vm: str, machines: Mapping[str, Sequence[str]]) -> str:
    """The device of a VM, of those with their taps. Raises BadInput where it has none, or several."""
    taps = machines.get(vm)
    if taps is None:
        known = close(vm, sorted(machines)) if machines else "; no VM runs here"
        raise bad("--vm", "", f'no running VM is named "{safe(vm, 40)}"{known}')
    if len(taps) != 1:
        found = f"{len(taps)}: {', '.join(map(safe, taps[:8]))}; give one of them with --device" if taps else "none"
        raise bad("--vm", "", f"VM {safe(vm, 40)} must have one tap, and has {found}")
    return taps[0]


def _taps_there(host: AnyHost) -> Mapping[str, Sequence[str]]:
    """By VM, as the facts of a host have them."""
    from netconsole.sources.facts import collect  # late: its readers take more memory than everything else

    found: dict[str, list[str]] = {}
    for name, fact in collect(host).items():
        area, *rest = fact_parts(name)
        if area == "vm" and len(rest) > 1:
            found.setdefault(rest[0], []).extend([str(fact.value)] if rest[-1] == "tap" else [])
    return found


def located(plan: RunPlan, host: AnyHost) -> RunPlan:
    """The plan narrowed to what was named, as the host has it. Raises BadInput."""
    given = plan.profile.given
    wanted: dict[str, Scalar] = {}
    if host.address is not None and (name := given.get(NETNS)) is not None and not is_namespace_inode(name):
        wanted[NETNS] = inode_there(name, host)
    if host.address is not None and (vm := given.get(VM)) is not None:
        wanted[DEVICE] = only_tap(vm, _taps_there(host))
    return _narrowed(plan, wanted) if wanted else plan


def _narrowed(plan: RunPlan, wanted: Mapping[str, Scalar]) -> RunPlan:
    def of(knobs: Mapping[str, Scalar]) -> dict[str, Scalar]:
        return {**knobs, **{name: value for name, value in wanted.items() if name in knobs}}

    profile = plan.profile
    probes = {probe: replace(choice, knobs=of(choice.knobs)) for probe, choice in profile.probes.items()}
    there = replace(profile, filters={**profile.filters, **wanted}, probes=probes)
    return replace(plan, profile=there, requests=[replace(one, knobs=of(one.knobs)) for one in plan.requests])
