"""The options that narrow a run: --device, --netns, --address, --port, --protocol, with the words of the knobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from netconsole.base.errors import bad
from netconsole.base.figure import safe

if TYPE_CHECKING:
    from netconsole.probes.manifest import Manifest
    from netconsole.profile.profile import Profile
    from netconsole.telemetry.frames import Scalar

DeviceOption = Annotated[str | None, typer.Option("--device", metavar="NAME", help="Only this interface.")]
NetnsOption = Annotated[
    str | None, typer.Option("--netns", metavar="NAME|INODE", help="Only this network namespace; host: the host's.")
]
AddressOption = Annotated[
    str | None, typer.Option("--address", metavar="ADDRESS[/N]", help="Only packets from or to this address.")
]
PortOption = Annotated[int | None, typer.Option("--port", metavar="PORT", help="Only packets from or to this port.")]
ProtocolOption = Annotated[
    str | None, typer.Option("--protocol", metavar="L4", help="Only tcp, udp, icmp, icmpv6, sctp or a number.")
]


def given(
    device: str | None, netns: str | None, address: str | None, port: int | None, protocol: str | None
) -> dict[str, str | int]:
    """The filters that were given, by the names of their knobs."""
    values = {"device": device, "netns": netns, "address": address, "port": port, "protocol": protocol}
    return {name: value for name, value in values.items() if value is not None}


def narrowed(
    profile: Profile, manifests: Mapping[str, Manifest], filters: Mapping[str, str | int], is_far: bool
) -> Profile:
    """The profile with these filters for every probe that has such a knob, before what it says itself. Raises BadInput.

    ``is_far``: another host is measured; the names of its namespaces are not known yet.
    """
    from netconsole.probes.knobs import refusal

    wanted: dict[str, Scalar] = {}
    for name, text in filters.items():
        value = _inode(str(text), is_far) if name == "netns" else text
        if (why := refusal(name, value, value)) is not None:
            raise bad(f"--{name}", "", why)
        if not any(name in manifests[probe].knobs for probe in profile.probes):
            raise bad(f"--{name}", "", f"no probe of profile {safe(profile.name, 40)} has this filter")
        wanted[name] = value
    probes = {
        probe: replace(choice, knobs={**choice.knobs, **_of(manifests[probe], wanted)})
        for probe, choice in profile.probes.items()
    }
    return replace(profile, filters={**profile.filters, **wanted}, probes=probes)


def _of(manifest: Manifest, wanted: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {name: value for name, value in wanted.items() if name in manifest.knobs}


def _inode(text: str, is_far: bool) -> int:
    """The inode of a namespace, by number or by its name on this machine."""
    from netconsole.host.identity import namespace_inode

    if text.isdecimal() and len(text) <= 10:
        return int(text)
    found = None if is_far else namespace_inode(text)
    if found is None:
        way_out = "with --host give its inode (ip netns identify, lsns -t net)" if is_far else "see ip netns list"
        raise bad("--netns", "", f'no network namespace is named "{safe(text, 40)}": {way_out}')
    return found
