"""Question `ping_ends`: what a host knows of where packets of its VMs pass it.

It reads neighbour and forwarding tables, and QEMU's command lines and descriptors, and asks Open vSwitch.
"""

import ipaddress
import re
import socket
import struct
from typing import Any, Dict, Iterable, Iterator, List, Tuple

from netconsole_collector.names.fact_keys import parts
from netconsole_collector.primitives.here import HERE, Here
from netconsole_collector.primitives.netlink import attributes
from netconsole_collector.questions.facts import vms
from netconsole_collector.questions.facts.links import NetDevice, devices
from netconsole_collector.questions.facts.reading import Facts
from netconsole_collector.questions.known import Json
from netconsole_collector.sources.ovs.unixctl import Unixctl, UnixctlError, directories, running_vswitchd
from netconsole_collector.sources.ovs.vswitchd import members_in

_RTM_GETADDR, _RTM_GETNEIGH = 22, 30
_AF_BRIDGE = 7
_IFADDRMSG = struct.Struct("=BBBBI")
_NDMSG = struct.Struct("=BxxxiHBB")
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_NDA_DST, _NDA_LLADDR = 1, 2
_FDB_ROW = re.compile(r"^\s*(\S+)\s+\d+\s+([0-9a-f]{2}(?::[0-9a-f]{2}){5})\s", re.MULTILINE)


def answer(arguments: Json) -> Any:
    """HostTables of src/netconsole/sources/ping_ends.py; with ``is_vm`` only the MAC of each own address.

    Raises OSError without links.
    """
    return own_macs() if arguments.get("is_vm") else tables()


def tables(host: Here = HERE) -> Json:
    """All tables. What cannot be read is empty. Raises OSError without links."""
    links = {one.number: one for one in devices(host)}
    facts = Facts(host)
    vms.collect(facts)
    netlink = host.netlink(socket.NETLINK_ROUTE)
    try:
        own = sorted({address for address, _ in addresses(_addresses(netlink))})
        known: Dict[str, str] = {}
        for family in (socket.AF_INET, socket.AF_INET6):
            rows = neighbours(netlink.dump(_RTM_GETNEIGH, _NDMSG.pack(family, 0, 0, 0, 0)))
            known.update({address: mac for address, mac, _ in rows if address})
        forwarding: Dict[str, Tuple[str, str]] = {}
        for _, mac, index in neighbours(netlink.dump(_RTM_GETNEIGH, _NDMSG.pack(_AF_BRIDGE, 0, 0, 0, 0))):
            port = links.get(index)
            if port is not None and port.master and port.mac != mac:
                forwarding[mac] = port.name, "the forwarding table of {}".format(_name(port.master, links))
    finally:
        netlink.close()
    switched, bridge_of = _ovs_forwarding(host)
    forwarding.update(switched)
    return {
        "links": {one.name: _link(one, links, host) for one in links.values()},
        "own": own,
        "neighbours": known,
        "forwarding": forwarding,
        "bridge_of": bridge_of,
        "nics": _nics(facts),
    }


def own_macs(host: Here = HERE) -> Dict[str, str]:
    """The MAC of the device of each own address. Raises OSError."""
    macs = {one.number: one.mac for one in devices(host) if one.mac.strip("0:")}
    netlink = host.netlink(socket.NETLINK_ROUTE)
    try:
        return {address: macs[index] for address, index in addresses(_addresses(netlink)) if index in macs}
    finally:
        netlink.close()


def _addresses(netlink: Any) -> Iterable[memoryview]:
    bodies: Iterable[memoryview] = netlink.dump(_RTM_GETADDR, _IFADDRMSG.pack(0, 0, 0, 0, 0))
    return bodies


def _name(number: int, links: Dict[int, NetDevice]) -> str:
    return links[number].name if number in links else ""


def _link(one: NetDevice, links: Dict[int, NetDevice], host: Here) -> Json:
    return {
        "name": one.name,
        "kind": one.kind,
        "mac": one.mac,
        "master": _name(one.master, links),
        "lower": "" if one.is_lower_elsewhere else _name(one.lower, links),
        "is_physical": not one.kind and host.exists("/sys/class/net/{}/device".format(one.name)),
    }


def _nics(facts: Facts) -> List[Tuple[str, str, str]]:
    """From the facts ``vm/NAME/net/N/tap`` and ``…/mac``: VM, MAC and tap of each of its devices."""
    found: Dict[Tuple[str, str], Dict[str, str]] = {}
    for key, fact in facts.taken().items():
        where = parts(key)
        if len(where) == 5 and (where[0], where[2]) == ("vm", "net") and where[4] in ("tap", "mac"):
            found.setdefault((where[1], where[3]), {})[where[4]] = str(fact.value)
    return [(vm, one.get("mac", "").lower(), one["tap"]) for (vm, _), one in found.items() if "tap" in one]


def addresses(bodies: Iterable[memoryview]) -> Iterator[Tuple[str, int]]:
    """Each own address, and the number of its device."""
    for body in bodies:
        values = dict(attributes(body, _IFADDRMSG.size))
        raw = values.get(_IFA_LOCAL) or values.get(_IFA_ADDRESS)
        if raw is not None and len(raw) in (4, 16):
            yield str(ipaddress.ip_address(bytes(raw))), _IFADDRMSG.unpack_from(body)[-1]


def neighbours(bodies: Iterable[memoryview]) -> Iterator[Tuple[str, str, int]]:
    """Address (empty: none), MAC and device of each row that has a MAC."""
    for body in bodies:
        index = _NDMSG.unpack_from(body)[1]
        values = dict(attributes(body, _NDMSG.size))
        lladdr, destination = values.get(_NDA_LLADDR), values.get(_NDA_DST)
        if lladdr is None or len(lladdr) != 6 or lladdr[0] & 1 or not any(lladdr):  # of many, or of none
            continue
        known = destination is not None and len(destination) in (4, 16)
        address = str(ipaddress.ip_address(bytes(destination))) if known and destination is not None else ""
        yield address, ":".join("{:02x}".format(byte) for byte in lladdr), index


def _ovs_forwarding(host: Here) -> Tuple[Dict[str, Tuple[str, str]], Dict[str, str]]:
    """Port and table by MAC, and the bridge by port. Empty without ovs-vswitchd.

    From `ovs-appctl fdb/show`; its ports are numbers, which `dpif/show` names.
    """
    running = running_vswitchd(directories(), host)
    if running is None:
        return {}, {}
    try:
        unixctl = Unixctl(running.control, host)
    except UnixctlError:
        return {}, {}
    try:
        bridges: Dict[str, Dict[str, str]] = {}
        bridge_of: Dict[str, str] = {}
        for one in members_in(unixctl.ask("dpif/show")):
            bridge_of[one.port] = one.bridge
            bridges.setdefault(one.bridge, {})[one.number] = one.port
        found: Dict[str, Tuple[str, str]] = {}
        for bridge, ports in bridges.items():
            for port, mac in _FDB_ROW.findall(unixctl.ask("fdb/show", bridge)):
                if port in ports:
                    found[mac] = ports[port], "Open vSwitch's forwarding table of {}".format(bridge)
        return found, bridge_of
    except UnixctlError:
        return {}, {}
    finally:
        unixctl.close()
