"""A network namespace that was named for a far host: its inode is known once the host is entered."""

from __future__ import annotations

from dataclasses import replace

from netconsole.base.errors import bad
from netconsole.base.figure import safe
from netconsole.far.host import THIS_HOST, AnyHost
from netconsole.host import door
from netconsole.run.preflight import RunPlan
from netconsole_collector.names.netns_labels import is_namespace_inode

NETNS = "netns"


def inode_there(name: str, host: AnyHost = THIS_HOST) -> int:
    """Of the namespace with this name on a host. Raises BadInput where none has it."""
    found = door.namespace_inode(host, name)
    if not found:
        way_out = "see ip netns list there" if host.address is not None else "see ip netns list"
        where = f" on {host.address}" if host.address is not None else ""
        raise bad("--netns", "", f'no network namespace is named "{safe(name, 40)}"{where}: {way_out}')
    return found


def located(plan: RunPlan, host: AnyHost) -> RunPlan:
    """The plan narrowed to the namespace that was named, as the host has it. Raises BadInput."""
    profile = plan.profile
    name = profile.given.get(NETNS)
    if name is None or is_namespace_inode(name) or host.address is None:
        return plan
    inode = inode_there(name, host)
    probes = {
        probe: replace(choice, knobs={**choice.knobs, NETNS: inode}) if NETNS in choice.knobs else choice
        for probe, choice in profile.probes.items()
    }
    requests = [replace(one, knobs={**one.knobs, NETNS: inode}) if NETNS in one.knobs else one for one in plan.requests]
    there = replace(profile, filters={**profile.filters, NETNS: inode}, probes=probes)
    return replace(plan, profile=there, requests=requests)
