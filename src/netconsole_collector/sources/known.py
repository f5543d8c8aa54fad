"""The sources by the name that a manifest gives."""

from typing import Any, Callable, Dict

from netconsole_collector.sources.base import KernelSource
from netconsole_collector.sources.links import Links
from netconsole_collector.sources.nic_counters import NicCounters
from netconsole_collector.sources.protocol_counters import ProtocolCounters
from netconsole_collector.sources.sockets import SocketGroups
from netconsole_collector.sources.softnet import Softnet
from netconsole_collector.sources.vm_states import VmStates

KNOWN: Dict[str, Callable[[], KernelSource]] = {
    "links": Links,
    "nic": NicCounters,
    "protocol_counters": ProtocolCounters,
    "sockets": SocketGroups,
    "softnet": Softnet,
    "vms": VmStates,
}


def is_source(spec: Dict[str, Any]) -> bool:
    """Whether a manifest is of a source, and not of BPF programs. Raises nothing, whatever the manifest."""
    probe = spec.get("probe")
    return isinstance(probe, dict) and probe.get("source") in list(KNOWN)
