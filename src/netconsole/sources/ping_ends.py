"""Finds where a VM's packets pass its host: its tap, the bridge behind it, and the physical devices of that bridge.

It asks neighbour and forwarding tables, Open vSwitch, and QEMU's command lines and descriptors. Each step that found
something is said in words. Nothing is changed, and no packet is sent.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from netconsole.far.host import THIS_HOST, AnyHost
from netconsole.host import door

MAX_WIRES = 4
"""What a set of devices can hold (probes/common/devices.h)."""
_MAC = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}")


@dataclass(frozen=True, slots=True)
class PortLink:
    """A network device as far as it matters here. ``master`` and ``lower`` are names; empty: none."""

    name: str
    kind: str = ""
    mac: str = ""
    master: str = ""
    lower: str = ""
    """The device below a VLAN, or the other end of a veth, in the same network namespace."""
    is_physical: bool = False


@dataclass(slots=True)
class PingEnd:
    """One end of a ping as this host knows it. ``how`` says step by step what was found, and where."""

    asked: str
    address: str = ""
    vm: str = ""
    mac: str = ""
    taps: list[str] = field(default_factory=list)
    bridge: str = ""
    wires: list[str] = field(default_factory=list)
    is_host: bool = False
    """The address is this host's own."""
    how: list[str] = field(default_factory=list)

    @property
    def is_vm_here(self) -> bool:
        """Whether its tap is on this host."""
        return bool(self.taps)


@dataclass(slots=True)
class HostTables:
    """What the host knows, by name or address: read at once, so that finding is only looking up."""

    links: Mapping[str, PortLink]
    own: frozenset[str] = frozenset()
    neighbours: Mapping[str, str] = field(default_factory=dict)
    forwarding: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """By MAC: the port, and which table says so."""
    bridge_of: Mapping[str, str] = field(default_factory=dict)
    """By port: its bridge in Open vSwitch. The kernel names the datapath, which is that of several bridges."""
    told: Mapping[str, str] = field(default_factory=dict)
    """What VMs say of themselves: the MAC by address. A bridge without addresses has no neighbours to know them by."""
    nics: list[tuple[str, str, str]] = field(default_factory=list)
    """VM, MAC (empty: not known) and tap of each network device of a VM."""


def read_tables(host: AnyHost = THIS_HOST) -> HostTables:
    """All tables of a host. What cannot be read is empty. Raises Unanswered without links."""
    return door.ask(host, "ping_ends", None, HostTables)


def own_macs(host: AnyHost) -> dict[str, str]:
    """The MAC of the device of each address that a VM has itself. Raises Unanswered."""
    return door.ask(host, "ping_ends", {"is_vm": True}, dict[str, str])


def find(asked: str, tables: HostTables) -> PingEnd:
    """Where packets pass this host: of a VM by its name, its address or its MAC, or of a device. Never raises."""
    end = PingEnd(asked)
    address = _address(asked)
    if address is None and asked in tables.links:
        end.taps = [asked]
        end.how.append(f"{asked} is a device of this host")
    elif address is None and _MAC.fullmatch(asked.lower()):
        end.mac = asked.lower()
        _by_mac(end, tables)
    elif address is None:
        _by_name(end, tables)
    else:
        end.address = address
        if address in tables.own:
            end.is_host = True
            end.how.append(f"{address} is an address of this host")
            return end
        _by_address(end, tables)
    if not end.address and end.mac:
        known = {**tables.told, **tables.neighbours}
        end.address = next((one for one, mac in known.items() if mac == end.mac), "")
    _wires(end, tables)
    return end


def _by_name(end: PingEnd, tables: HostTables) -> None:
    found = [(mac, tap) for vm, mac, tap in tables.nics if vm == end.asked]
    if not found:
        end.how.append(f"no QEMU process of this host has the name {end.asked}")
        return
    end.vm = end.asked
    end.taps = list(dict.fromkeys(tap for _, tap in found))
    end.mac = found[0][0] if len(found) == 1 else ""
    end.how.append(f"VM {end.vm} has {', '.join(end.taps)} (QEMU's command line and descriptors)")


def _by_address(end: PingEnd, tables: HostTables) -> None:
    end.mac = tables.neighbours.get(end.address, "")
    if not end.mac and end.address in tables.told:
        end.mac = tables.told[end.address]
        end.how.append(f"{end.address} is at {end.mac} (the VM says so itself)")
        _by_mac(end, tables)
        return
    if not end.mac:
        end.how.append(f"{end.address} is not in this host's neighbour table: name the VM, or its tap as inside device")
        return
    end.how.append(f"{end.address} is at {end.mac} (neighbour table)")
    _by_mac(end, tables)


def _by_mac(end: PingEnd, tables: HostTables) -> None:
    for vm, mac, tap in tables.nics:
        if mac == end.mac:
            end.vm, end.taps = vm, [tap]
            end.how.append(f"{end.mac} is VM {vm}, device {tap} (QEMU's command line and descriptors)")
            return
    port, table = tables.forwarding.get(end.mac, ("", ""))
    link = tables.links.get(port)
    if link is None:
        end.how.append(
            f"{end.mac} is in no forwarding table of this host, so the VM is not behind a bridge of this host"
        )
        return
    end.how.append(f"{end.mac} is behind {port} ({table})")
    if link.is_physical or link.kind in ("bond", "vlan", "vxlan", "team"):
        end.how.append(f"{port} leads away from this host, so the VM is on another host")
        return
    end.taps = [port]
    end.vm = next((vm for vm, _, tap in tables.nics if tap == port), "")


def _wires(end: PingEnd, tables: HostTables) -> None:
    """The physical devices that can be reached from the tap over bridges, bonds, VLANs and pairs of veth."""
    links = tables.links
    tap = links.get(end.taps[0]) if end.taps else None
    if tap is None:
        return
    end.bridge = tables.bridge_of.get(tap.name, tap.master)
    if not tap.master:
        end.how.append(f"{tap.name} is in no bridge")
        return
    found = sorted(_physical_behind(tap, links))
    if found:
        end.wires = found[:MAX_WIRES]
        end.how.append(f"{tap.name} is in {end.bridge}, which leads to {', '.join(found)}")
    else:
        end.how.append(f"{tap.name} is in {end.bridge}, and no physical device was found behind it")


def _physical_behind(tap: PortLink, links: Mapping[str, PortLink]) -> set[str]:
    found, seen, waiting = set(), {tap.name}, [tap.master]
    while waiting:
        name = waiting.pop()
        link = links.get(name)
        if link is None or name in seen:
            continue
        seen.add(name)
        if link.is_physical:
            found.add(name)
            continue
        # Ports of a bridge, members of a bond. A tunnel and another tap lead to no device of their own.
        waiting += [one.name for one in links.values() if one.master == name and one.kind not in ("tun", "vxlan")]
        if link.kind == "vlan":
            waiting.append(link.lower)
        elif link.kind == "veth" and link.lower in links:
            seen.add(link.lower)
            waiting.append(links[link.lower].master)
    return found


def _address(text: str) -> str | None:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None
