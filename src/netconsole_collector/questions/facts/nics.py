"""Facts of the network devices: kind, MTU, queues, bonding, interrupt affinity, NUMA node, ethtool."""

import contextlib
import stat
from typing import Dict, List, Union

from netconsole_collector.names.fact_keys import FactValue, key
from netconsole_collector.questions.facts.ethtool import Device
from netconsole_collector.questions.facts.links import NetDevice, devices
from netconsole_collector.questions.facts.reading import Facts, reason

_NET = "/sys/class/net"
_DEVICES = ("device", "device/..")
"""A virtio device's interrupts belong to the PCI device above it."""
_NAPI = ("threaded", "gro_flush_timeout", "napi_defer_hard_irqs")
_BONDING = ("mode", "xmit_hash_policy", "lacp_rate", "miimon", "slaves", "primary", "ad_select")


def collect(facts: Facts) -> None:
    """Add the facts under ``nic/``."""
    device = Device(facts.host)
    try:
        links = devices(facts.host)
        names = {link.number: link.name for link in links}
        for link in links:
            if link.name:
                _link(facts, link, names)
                if facts.exists(f"{_NET}/{link.name}/device"):
                    _physical(facts, device, link.name)
                else:
                    device.offloads(facts, link.name, fixed=False)
    except OSError as error:
        facts.unknown("nic", "rtnetlink", reason(error))
    finally:
        device.close()


def hardware(facts: Facts, name: str) -> None:
    """Add those of one device that is hardware: what its driver tells, its queues and interrupts."""
    device = Device(facts.host)
    try:
        _napi(facts, name)
        _physical(facts, device, name)
    finally:
        device.close()


def _link(facts: Facts, link: NetDevice, names: Dict[int, str]) -> None:
    source, name = "rtnetlink (RTM_GETLINK)", link.name
    values: Dict[str, FactValue] = {**link.numbers, **link.words}
    for fact, value in values.items():
        facts.put(key("nic", name, fact), value, source)
    if link.kind:
        facts.put(key("nic", name, "kind"), link.kind, source)
    if link.mac:
        facts.put(key("nic", name, "mac"), link.mac, source, volatile=link.kind == "tun")
    if link.master:
        facts.put(key("nic", name, "master"), names.get(link.master, str(link.master)), source)
    if link.has_xdp:
        facts.put(key("nic", name, "xdp"), "attached", source)
    _napi(facts, name)
    for file in _BONDING:
        if facts.exists(f"{_NET}/{name}/bonding/{file}"):
            facts.file(key("nic", name, "bond", file), f"{_NET}/{name}/bonding/{file}")


def _napi(facts: Facts, name: str) -> None:
    for file in _NAPI:
        if facts.exists(f"{_NET}/{name}/{file}"):
            facts.file(key("nic", name, file), f"{_NET}/{name}/{file}", int)


def _physical(facts: Facts, device: Device, name: str) -> None:
    for folder in _DEVICES:
        if facts.exists(f"{_NET}/{name}/{folder}/numa_node"):
            facts.file(key("nic", name, "numa_node"), f"{_NET}/{name}/{folder}/numa_node", _node)
            break
    device.all(facts, name)
    queues = facts.entries(f"{_NET}/{name}/queues")
    files = [(queue, "rps_cpus" if queue.startswith("rx") else "xps_cpus") for queue in queues]
    for queue, file in files:
        where = f"{_NET}/{name}/queues/{queue}/{file}"
        with contextlib.suppress(OSError):  # with one queue the file exists, but cannot be read
            facts.put(key("nic", name, queue, file), facts.text(where).strip(), where)
    irqs = [irq for folder in _DEVICES for irq in facts.entries(f"{_NET}/{name}/{folder}/msi_irqs")]
    _interrupts(facts, name, irqs)


def _interrupts(facts: Facts, name: str, irqs: List[str]) -> None:
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
        return stat.S_ISDIR(facts.host.status(path).mode)
    except OSError:
        return False


def _node(text: str) -> Union[int, str]:
    """The kernel shows -1 for a device that belongs to no node. That is known, so it is not null."""
    return "none" if int(text) < 0 else int(text)
