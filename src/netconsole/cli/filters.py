"""The options that narrow a run (--device, --netns, --address, --port, --vlan …), with the words of the knobs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from netconsole.base.errors import bad
from netconsole.base.figure import safe

if TYPE_CHECKING:
    from netconsole.probes.manifest import Manifest
    from netconsole.profile.profile import Profile
    from netconsole.telemetry.frames import Scalar
    from netconsole.telemetry.request import ProbeRequest

DeviceOption = Annotated[str | None, typer.Option("--device", metavar="NAME", help="Only this interface.")]
VmOption = Annotated[
    str | None, typer.Option("--vm", metavar="NAME", help="Only the device of this VM, where it has one.")
]
NetnsOption = Annotated[
    str | None, typer.Option("--netns", metavar="NAME|INODE", help="Only this network namespace; host: the host's.")
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="A[/N][,B]",
        help="Only packets from or to A; A,B: between both; from:A, to:B, from:A,to:B: in this direction.",
    ),
]
PortOption = Annotated[
    str | None,
    typer.Option(
        "--port",
        metavar="P[,Q]",
        help="Only packets from or to P, as with --address; two ports stand in the order of two addresses.",
    ),
]
ProtocolOption = Annotated[
    str | None, typer.Option("--protocol", metavar="L4", help="Only tcp, udp, icmp, icmpv6, sctp or a number.")
]
VlanOption = Annotated[int | None, typer.Option("--vlan", metavar="ID", help="Only packets with this outer tag.")]
EthertypeOption = Annotated[
    str | None, typer.Option("--ethertype", metavar="NUMBER", help="Only this kind of frame, such as 0x0806 for ARP.")
]
MacOption = Annotated[
    str | None, typer.Option("--mac", metavar="MAC", help="Only packets from or to this MAC address.")
]

ReasonOption = Annotated[
    str | None,
    typer.Option(
        "--reason", metavar="A[,B]", help="Only drops for these reasons of the kernel; not:A,B: for all others."
    ),
]

_NOT_YET = 0
"""The inode of a namespace whose host is not entered yet."""


def given(
    device: str | None,
    netns: str | None,
    address: str | None,
    port: str | None,
    protocol: str | None,
    vlan: int | None = None,
    ethertype: str | None = None,
    mac: str | None = None,
    vm: str | None = None,
    reason: str | None = None,
) -> dict[str, str | int]:
    """The filters that were given, by the names of their options: those of the knobs, and ``vm``."""
    values: dict[str, str | int | None] = {"device": device, "netns": netns, "address": address, "port": port}
    values |= {"protocol": protocol, "vlan": vlan, "ethertype": ethertype, "mac": mac, "vm": vm}
    values["reason"] = reason
    return {name: value for name, value in values.items() if value is not None}


def narrowed(
    profile: Profile, manifests: Mapping[str, Manifest], filters: Mapping[str, str | int], is_far: bool
) -> Profile:
    """The profile with these filters for every probe that has such a knob, before what it says itself. Raises BadInput.

    ``is_far``: another host is measured; a namespace of it is found by its name when the host is entered
    (:mod:`netconsole.run.namespace_there`).
    """
    from netconsole.probes.knobs import contradictions, refusal

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


def check_used(
    filters: Mapping[str, str | int],
    requests: Sequence[ProbeRequest],
    profile: Profile,
    named: Sequence[str],
    manifests: Mapping[str, Manifest],
) -> None:
    """Raises BadInput for a filter that none of the planned probes has. ``named``: those of --probe."""
    from netconsole.profile.scope import can_narrow

    for name in filters:
        knob = "device" if name == "vm" else name
        if not any(can_narrow(manifests[request.name], knob) for request in requests):
            of = f"--probe has this filter: {', '.join(named)}" if named else f"profile {profile.name} has this filter"
            raise bad(f"--{name}", "", f"no probe of {of}")


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
    """The tap of a VM on this machine. Raises BadInput where it has none, or several."""
    from netconsole.base.checker import close
    from netconsole_collector.names.vms import Vms

    if is_far:
        raise bad("--vm", "", "with --host give --device: netconsole does not know the far host's VMs yet")
    machines = Vms().taps()
    taps = machines.get(vm)
    if taps is None:
        known = close(vm, sorted(machines)) if machines else "; no VM runs here"
        raise bad("--vm", "", f'no running VM is named "{safe(vm, 40)}"{known}')
    if len(taps) != 1:
        found = f"{len(taps)}: {', '.join(map(safe, taps[:8]))}; give one of them with --device" if taps else "none"
        raise bad("--vm", "", f"VM {safe(vm, 40)} must have one tap, and has {found}")
    return taps[0]


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
