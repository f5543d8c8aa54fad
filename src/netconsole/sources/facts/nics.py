"""Facts of the network devices: kind, MTU, queues, bonding, interrupt affinity, NUMA node, ethtool."""

from __future__ import annotations

import contextlib
import socket
import stat
import struct
from typing import Any

from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

from netconsole.base.fact_keys import key
from netconsole.host.target import Question
from netconsole.sources.facts.ethtool import Device
from netconsole.sources.facts.reading import Facts, reason
from netconsole_collector.sources.link_state import RTM_GETLINK, RTM_NEWLINK
from netconsole_collector.sources.netlink_messages import whole

_NET = "/sys/class/net"
_DEVICES = ("device", "device/..")
"""A virtio device's interrupts belong to the PCI device above it."""
_IFINFO = struct.Struct("=BxHiII")
_LINK_FIELDS = {
    "IFLA_MTU": "mtu",
    "IFLA_TXQLEN": "tx_queue_len",
    "IFLA_NUM_TX_QUEUES": "tx_queues",
    "IFLA_NUM_RX_QUEUES": "rx_queues",
    "IFLA_OPERSTATE": "state",
    "IFLA_ADDRESS": "mac",
    "IFLA_QDISC": "qdisc",
    "IFLA_GSO_MAX_SIZE": "gso_max_size",
    "IFLA_GRO_MAX_SIZE": "gro_max_size",
}
_NAPI = ("threaded", "gro_flush_timeout", "napi_defer_hard_irqs")
_BONDING = ("mode", "xmit_hash_policy", "lacp_rate", "miimon", "slaves", "primary", "ad_select")
_OF_LINK = (*_NAPI, *(f"bonding/{file}" for file in _BONDING), "device")


def collect(facts: Facts) -> None:
    """Add the facts under ``nic/``."""
    device = Device(facts.target)
    try:
        links = links_of(facts)
        names = {link["index"]: link.get_attr("IFLA_IFNAME") for link in links}
        device.ahead([name for name in names.values() if name])
        facts.ahead(f"{_NET}/{name}/{file}" for name in names.values() if name for file in _OF_LINK)
        for link in links:
            name = link.get_attr("IFLA_IFNAME")
            if name:
                _link(facts, name, link, names)
                if facts.exists(f"{_NET}/{name}/device"):
                    _physical(facts, device, name)
                else:
                    device.offloads(facts, name, fixed=False)
    except OSError as error:
        facts.unknown("nic", "rtnetlink", reason(error))
    finally:
        device.close()


def links_of(facts: Facts) -> list[Any]:
    """All links of the own network namespace, as pyroute2 decodes them. Raises OSError."""
    netlink = facts.target.netlink(socket.NETLINK_ROUTE)
    try:
        bodies = netlink.dump(RTM_GETLINK, _IFINFO.pack(socket.AF_UNSPEC, 0, 0, 0, 0))
        links = [ifinfmsg(whole(RTM_NEWLINK, body)) for body in bodies]
    finally:
        netlink.close()
    for link in links:
        link.decode()
    return links


def _link(facts: Facts, name: str, link: Any, names: dict[int, str]) -> None:
    source = "rtnetlink (RTM_GETLINK)"
    info = link.get_attr("IFLA_LINKINFO")
    kind = info.get_attr("IFLA_INFO_KIND") if info is not None else None
    if kind:
        facts.put(key("nic", name, "kind"), kind, source)
    for attribute, fact in _LINK_FIELDS.items():
        value = link.get_attr(attribute)
        if isinstance(value, (str, int)):
            facts.put(key("nic", name, fact), value, source, volatile=attribute == "IFLA_ADDRESS" and kind == "tun")
    master = link.get_attr("IFLA_MASTER")
    if master:
        facts.put(key("nic", name, "master"), names.get(master, str(master)), source)
    xdp = link.get_attr("IFLA_XDP")
    if xdp is not None and xdp.get_attr("IFLA_XDP_ATTACHED"):
        facts.put(key("nic", name, "xdp"), "attached", source)
    for file in _NAPI:
        if facts.exists(f"{_NET}/{name}/{file}"):
            facts.file(key("nic", name, file), f"{_NET}/{name}/{file}", int)
    for file in _BONDING:
        if facts.exists(f"{_NET}/{name}/bonding/{file}"):
            facts.file(key("nic", name, "bond", file), f"{_NET}/{name}/bonding/{file}")


def _physical(facts: Facts, device: Device, name: str) -> None:
    facts.ahead(f"{_NET}/{name}/{folder}/numa_node" for folder in _DEVICES)
    facts.list_ahead([f"{_NET}/{name}/queues", *(f"{_NET}/{name}/{folder}/msi_irqs" for folder in _DEVICES)])
    for folder in _DEVICES:
        if facts.exists(f"{_NET}/{name}/{folder}/numa_node"):
            facts.file(key("nic", name, "numa_node"), f"{_NET}/{name}/{folder}/numa_node", _node)
            break
    device.all(facts, name)
    queues = facts.entries(f"{_NET}/{name}/queues")
    files = [(queue, "rps_cpus" if queue.startswith("rx") else "xps_cpus") for queue in queues]
    facts.ahead(f"{_NET}/{name}/queues/{queue}/{file}" for queue, file in files)
    for queue, file in files:
        where = f"{_NET}/{name}/queues/{queue}/{file}"
        with contextlib.suppress(OSError):  # with one queue the file exists, but cannot be read
            facts.put(key("nic", name, queue, file), facts.text(where).strip(), where)
    irqs = [irq for folder in _DEVICES for irq in facts.entries(f"{_NET}/{name}/{folder}/msi_irqs")]
    _interrupts(facts, name, irqs)


def _interrupts(facts: Facts, name: str, irqs: list[str]) -> None:
    facts.list_ahead(f"/proc/irq/{irq}" for irq in irqs)
    paths = [f"/proc/irq/{irq}/{entry}" for irq in irqs for entry in facts.entries(f"/proc/irq/{irq}")]
    facts.target.ahead(Question("status", (path,)) for path in paths)
    facts.ahead(f"/proc/irq/{irq}/{file}" for irq in irqs for file in ("smp_affinity_list", "effective_affinity_list"))
    for irq in irqs:
        _interrupt(facts, name, irq)


def _interrupt(facts: Facts, name: str, irq: str) -> None:
    """Add the affinity of an interrupt under the name from its driver, because numbers change with every boot."""
    folder = f"/proc/irq/{irq}"
    action = next((entry for entry in facts.entries(folder) if _is_folder(facts, f"{folder}/{entry}")), None)
    if action is not None:
        facts.file(key("nic", name, "irq", action, "cpus"), f"{folder}/smp_affinity_list")
        effective = f"{folder}/effective_affinity_list"
        if facts.exists(effective):
            facts.file(key("nic", name, "irq", action, "effective_cpus"), effective, volatile=True)


def _is_folder(facts: Facts, path: str) -> bool:
    try:
        return stat.S_ISDIR(facts.target.status(path).mode)
    except OSError:
        return False


def _node(text: str) -> int | str:
    """The kernel shows -1 for a device that belongs to no node. That is known, so it is not null."""
    return "none" if int(text) < 0 else int(text)
