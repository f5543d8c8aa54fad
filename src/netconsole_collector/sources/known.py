"""The sources by the name that a manifest gives. Each is imported when it is started: together they take 1 MB."""

from importlib import import_module
from typing import Any, Callable, Dict

from netconsole_collector.sources.base import KernelSource


def _late(module: str, name: str) -> Callable[[], KernelSource]:
    def made() -> KernelSource:
        source: KernelSource = getattr(import_module("netconsole_collector.sources." + module), name)()
        return source

    return made


KNOWN: Dict[str, Callable[[], KernelSource]] = {
    "self": _late("machine", "MachineLoad"),
    "io_limits": _late("vm.io_limits", "IoLimits"),
    "links": _late("net.links", "Links"),
    "nic": _late("net.nic_counters", "NicCounters"),
    "ovs": _late("ovs.flows", "OvsFlows"),
    "pmd": _late("ovs.pmd", "OvsPmd"),
    "protocol_counters": _late("net.protocol_counters", "ProtocolCounters"),
    "sockets": _late("net.sockets", "SocketGroups"),
    "softnet": _late("net.softnet", "Softnet"),
    "thread_waits": _late("vm.thread_waits", "ThreadWaits"),
    "vms": _late("vm.vm_states", "VmStates"),
}

APART = ("ovs", "pmd")
"""Those that wait for another process: they are read in a thread of their own."""


def is_source(spec: Dict[str, Any]) -> bool:
    """Whether a manifest is of a source, and not of BPF programs. Raises nothing, whatever the manifest."""
    probe = spec.get("probe")
    return isinstance(probe, dict) and probe.get("source") in list(KNOWN)
