"""Facts of the network devices: kind, MTU, queues, bonding, interrupt affinity, NUMA node, ethtool."""

from __future__ import annotations

import contextlib
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from netconsole.base.fact_keys import key
from netconsole.sources.facts.ethtool import Device
from netconsole.sources.facts.reading import Facts

_NET = "/sys/class/net"
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
_BONDING = ("mode", "xmit_hash_policy", "lacp_rate", "miimon", "slaves", "primary", "ad_select")


def collect(facts: Facts) -> None:
    """Add the facts under ``nic/``."""
    device = Device()
    try:
        with IPRoute() as route:
            links = list(route.get_links())
        names = {link["index"]: link.get_attr("IFLA_IFNAME") for link in links}
        for link in links:
            name = link.get_attr("IFLA_IFNAME")
            if name:
                _link(facts, name, link, names)
                if facts.exists(f"{_NET}/{name}/device"):
                    _physical(facts, device, name)
                else:
                    device.offloads(facts, name, fixed=False)
    except NetlinkError as error:
        facts.unknown("nic", "rtnetlink", str(error))
    finally:
        device.close()


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
    for file in ("threaded", "gro_flush_timeout", "napi_defer_hard_irqs"):
        if facts.exists(f"{_NET}/{name}/{file}"):
            facts.file(key("nic", name, file), f"{_NET}/{name}/{file}", int)
    for file in _BONDING:
        if facts.exists(f"{_NET}/{name}/bonding/{file}"):
            facts.file(key("nic", name, "bond", file), f"{_NET}/{name}/bonding/{file}")


def _physical(facts: Facts, device: Device, name: str) -> None:
    for folder in ("device", "device/.."):
        if facts.exists(f"{_NET}/{name}/{folder}/numa_node"):
            facts.file(key("nic", name, "numa_node"), f"{_NET}/{name}/{folder}/numa_node", _node)
            break
    device.all(facts, name)
    for queue in facts.entries(f"{_NET}/{name}/queues"):
        file = "rps_cpus" if queue.startswith("rx") else "xps_cpus"
        where = f"{_NET}/{name}/queues/{queue}/{file}"
        with contextlib.suppress(OSError):  # with one queue the file exists, but cannot be read
            facts.put(key("nic", name, queue, file), facts.text(where).strip(), where)
    # A virtio device's interrupts belong to the PCI device above it.
    for folder in (f"{_NET}/{name}/device/msi_irqs", f"{_NET}/{name}/device/../msi_irqs"):
        for irq in facts.entries(folder):
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
    return (facts.root / path.lstrip("/")).is_dir()


def _node(text: str) -> int | str:
    """The kernel shows -1 for a device that belongs to no node. That is known, so it is not null."""
    return "none" if int(text) < 0 else int(text)
