"""Finds where a VM's packets pass its host: its tap, the bridge behind it, and the physical devices of that bridge.

It asks neighbour and forwarding tables, Open vSwitch, and QEMU's command lines and descriptors. Each step that found
something is said in words. Nothing is changed, and no packet is sent.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from netconsole.base.fact_keys import parts
from netconsole.host.target import Target
from netconsole.sources.facts import vms
from netconsole.sources.facts.nics import links_of
from netconsole.sources.facts.reading import Facts
from netconsole_collector.primitives.here import HERE, Here
from netconsole_collector.primitives.netlink import attributes
from netconsole_collector.sources.ovs.unixctl import Unixctl, UnixctlError, directories, running_vswitchd
from netconsole_collector.sources.ovs.vswitchd import members_in

MAX_WIRES = 4
"""What a set of devices can hold (probes/common/devices.h)."""
_RTM_GETADDR, _RTM_GETNEIGH = 22, 30
_AF_BRIDGE = 7
_IFADDRMSG = struct.Struct("=BBBBI")
_NDMSG = struct.Struct("=BxxxiHBB")
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_NDA_DST, _NDA_LLADDR = 1, 2
_FDB_ROW = re.compile(r"^\s*(\S+)\s+\d+\s+([0-9a-f]{2}(?::[0-9a-f]{2}){5})\s", re.MULTILINE)
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


def read_tables(target: Target = HERE) -> HostTables:
    """All tables of a host. What cannot be read is empty. Raises OSError without links."""
    facts = Facts(target)
    links = _links(facts)
    vms.collect(facts)
    netlink = target.netlink(socket.NETLINK_ROUTE)
    try:
        by_index = {index: link.name for index, link in links.items()}
        own = frozenset(address for address, _ in _own(netlink.dump(_RTM_GETADDR, _IFADDRMSG.pack(0, 0, 0, 0, 0))))
        neighbours: dict[str, str] = {}
        for family in (socket.AF_INET, socket.AF_INET6):
            rows = _neighbours(netlink.dump(_RTM_GETNEIGH, _NDMSG.pack(family, 0, 0, 0, 0)))
            neighbours.update({address: mac for address, mac, _ in rows if address})
        forwarding: dict[str, tuple[str, str]] = {}
        for _, mac, index in _neighbours(netlink.dump(_RTM_GETNEIGH, _NDMSG.pack(_AF_BRIDGE, 0, 0, 0, 0))):
            port = links.get(index)
            if port is not None and port.master and port.mac != mac:
                forwarding[mac] = (by_index[index], f"the forwarding table of {port.master or by_index[index]}")
    finally:
        netlink.close()
    switched, bridge_of = _ovs_forwarding(target)
    forwarding.update(switched)
    by_name = {link.name: link for link in links.values()}
    return HostTables(by_name, own, neighbours, forwarding, bridge_of, nics=_nics(facts))


def own_macs(target: Target) -> dict[str, str]:
    """The MAC of the device of each address that a VM has itself. Raises OSError."""
    macs = {index: link.mac for index, link in _links(Facts(target)).items() if link.mac.strip("0:")}
    netlink = target.netlink(socket.NETLINK_ROUTE)
    try:
        found = _own(netlink.dump(_RTM_GETADDR, _IFADDRMSG.pack(0, 0, 0, 0, 0)))
        return {address: macs[index] for address, index in found if index in macs}
    finally:
        netlink.close()


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
        end.how.append(f"{end.address} is not in this host's neighbour table: name the VM, or its tap by --inside")
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


def _links(facts: Facts) -> dict[int, PortLink]:
    raw = links_of(facts)
    names = {link["index"]: str(link.get_attr("IFLA_IFNAME") or "") for link in raw}
    found = {}
    for link in raw:
        name = names[link["index"]]
        info = link.get_attr("IFLA_LINKINFO")
        kind = str((info.get_attr("IFLA_INFO_KIND") if info is not None else None) or "")
        is_elsewhere = link.get_attr("IFLA_LINK_NETNSID") is not None
        lower = "" if is_elsewhere else names.get(link.get_attr("IFLA_LINK") or 0, "")
        is_physical = not kind and facts.exists(f"/sys/class/net/{name}/device")
        master = names.get(link.get_attr("IFLA_MASTER") or 0, "")
        mac = str(link.get_attr("IFLA_ADDRESS") or "")
        found[link["index"]] = PortLink(name, kind, mac, master, lower, is_physical)
    return found


def _nics(facts: Facts) -> list[tuple[str, str, str]]:
    """From the facts ``vm/NAME/net/N/tap`` and ``…/mac``."""
    devices: dict[tuple[str, str], dict[str, str]] = {}
    for key, fact in facts.taken().items():
        match parts(key):
            case ["vm", vm, "net", number, ("tap" | "mac") as what] if isinstance(fact.value, str):
                devices.setdefault((vm, number), {})[what] = fact.value.lower() if what == "mac" else fact.value
    return [(vm, one.get("mac", ""), one["tap"]) for (vm, _), one in devices.items() if "tap" in one]


def _own(bodies: Iterable[memoryview]) -> Iterable[tuple[str, int]]:
    """Each address, and the number of its device."""
    for body in bodies:
        values = dict(attributes(body, _IFADDRMSG.size))
        raw = values.get(_IFA_LOCAL) or values.get(_IFA_ADDRESS)
        if raw is not None and len(raw) in (4, 16):
            yield str(ipaddress.ip_address(bytes(raw))), _IFADDRMSG.unpack_from(body)[-1]


def _neighbours(bodies: Iterable[memoryview]) -> Iterable[tuple[str, str, int]]:
    """Address (empty: none), MAC and device of each row that has a MAC."""
    for body in bodies:
        index = _NDMSG.unpack_from(body)[1]
        values = dict(attributes(body, _NDMSG.size))
        lladdr, destination = values.get(_NDA_LLADDR), values.get(_NDA_DST)
        if lladdr is None or len(lladdr) != 6 or lladdr[0] & 1 or not any(lladdr):  # of many, or of none
            continue
        known = destination is not None and len(destination) in (4, 16)
        address = str(ipaddress.ip_address(bytes(destination))) if known and destination is not None else ""
        yield address, bytes(lladdr).hex(":"), index


def _ovs_forwarding(target: Target) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """Port and table by MAC, and the bridge by port. Empty without ovs-vswitchd.

    From `ovs-appctl fdb/show`; its ports are numbers, which `dpif/show` names.
    """
    running = running_vswitchd(directories(), cast(Here, target))
    if running is None:
        return {}, {}
    try:
        unixctl = Unixctl(running.control, cast(Here, target))
    except UnixctlError:
        return {}, {}
    try:
        bridges: dict[str, dict[str, str]] = {}
        bridge_of: dict[str, str] = {}
        for one in members_in(unixctl.ask("dpif/show")):
            bridge_of[one.port] = one.bridge
            bridges.setdefault(one.bridge, {})[one.number] = one.port
        found: dict[str, tuple[str, str]] = {}
        for bridge, ports in bridges.items():
            for port, mac in _FDB_ROW.findall(unixctl.ask("fdb/show", bridge)):
                if port in ports:
                    found[mac] = (ports[port], f"Open vSwitch's forwarding table of {bridge}")
        return found, bridge_of
    except UnixctlError:
        return {}, {}
    finally:
        unixctl.close()


def _address(text: str) -> str | None:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None
