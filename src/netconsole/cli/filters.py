"""What the options that narrow a run mean: values of knobs, for a profile and the probes of a plan."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from netconsole.base.errors import bad
from netconsole.base.figure import safe

if TYPE_CHECKING:
    from netconsole.probes.manifest import Manifest
    from netconsole.profile.profile import Profile
    from netconsole.run.preflight import RunPlan
    from netconsole.telemetry.frames import Scalar

_NOT_YET = 0
"""The inode of a namespace whose host is not entered yet."""


def narrowed(
    profile: Profile, manifests: Mapping[str, Manifest], filters: Mapping[str, str | int], is_far: bool
) -> Profile:
    """The profile with these filters for every probe that has such a knob, before what it says itself. Raises BadInput.

    ``is_far``: another host is measured; a namespace of it is found by its name when the host is entered
    (:mod:`netconsole.run.namespace_there`).
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
