"""Replaces labels that change without a meaning (taps, processes, namespaces, ephemeral ports) with stable names.

The manifest of a probe says what a label stands for (:mod:`netconsole.probes.meaning`). The facts of a snapshot say
which tap and which thread belongs to which VM. So two snapshots are compared by VM and role, not by number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TypeAlias

from netconsole.base.fact_keys import FactData, parts
from netconsole.probes.manifest import Manifest
from netconsole.probes.meaning import Meaning, meaning
from netconsole.snapshot.document import SnapshotValue
from netconsole_collector.names.netns_labels import is_namespace_inode

_PROCESS = re.compile(r"(.*?)(?:/(\d+)| \((\d+)\))$", re.DOTALL)
_VHOST = re.compile(r"vhost-(\d+)$")
_EPHEMERAL_DEFAULT = (32768, 60999)
MetricLabels: TypeAlias = tuple[tuple[str, SnapshotValue], ...]
HOST_NETNS, OTHER_NETNS = "host", "other"
"""The host's own network namespace, and any namespace without a name and a known process."""


class Meanings:
    """What the labels of a table or histogram stand for, by its manifest. Without one, by the names of the labels."""

    def __init__(self, manifest: Manifest | None = None, name: str = "") -> None:
        spec = (manifest.tables.get(name) or manifest.histograms.get(name)) if manifest else None
        self._said = {column.name: column.stands_for for column in spec.key} if spec else {}
        self._added = {column.name: column.added for column in spec.key if column.added} if spec else {}

    def of(self, label: str) -> Meaning:
        """What this label stands for."""
        return self._said.get(label) or meaning(label)

    def is_understood(self, label: str, value: SnapshotValue) -> bool:
        """Whether to leave this label out, so that the row matches a row from before the table had the label."""
        return label in self._added and value in (None, self._added[label])

    def first(self, wanted: Meaning, labels: Iterable[str]) -> str | None:
        """The first of the labels that stands for this."""
        return next((label for label in labels if self.of(label) == wanted), None)


class Names:
    """Stable names for the volatile labels of one host, from its facts."""

    def __init__(self, facts: Mapping[str, FactData]) -> None:
        self.taps: dict[str, str] = {}
        self.threads: dict[int, str] = {}
        self.devices: set[str] = set()
        self.namespaces: dict[str, str] = {}
        self._lists_namespaces = False
        self._ports = _EPHEMERAL_DEFAULT
        for name, fact in facts.items():
            self._learn(parts(name), fact)
        # CPUs are left out, because work moves between them. netconsole.compare.metrics keeps the busiest one.
        self._mappers: dict[Meaning, Callable[[SnapshotValue], SnapshotValue]] = {
            "device": self.device,
            "process": self._process,
            "thread": self._thread,
            "port": self._port,
            "netns": self._namespace,
            "cpu": lambda _: None,
            "nothing": lambda _: None,
            "itself": lambda value: value,
        }

    def label(self, of: Meaning, value: SnapshotValue) -> SnapshotValue:
        """The stable name for a label. None when there is none."""
        return self._mappers[of](value)

    def stable(self, meanings: Meanings, labels: Iterable[tuple[str, SnapshotValue]]) -> MetricLabels:
        """The labels by which a row is told again in another snapshot: those that have a stable name."""
        named = [
            (label, self.label(meanings.of(label), value))
            for label, value in labels
            if not meanings.is_understood(label, value)
        ]
        return tuple(pair for pair in named if pair[1] is not None)

    def device(self, value: SnapshotValue) -> SnapshotValue:
        """A tap as its VM's device, any other device by its name."""
        return self.taps.get(value, value) if isinstance(value, str) else value

    @cached_property
    def known_devices(self) -> frozenset[str]:
        """The devices of the host's network namespace, taps as their VM's. Empty when the facts do not have them."""
        return frozenset(self.taps.get(name, name) for name in self.devices)

    @cached_property
    def known_namespaces(self) -> frozenset[str]:
        """The names of all network namespaces. Empty when the facts do not have them."""
        return frozenset({HOST_NETNS, OTHER_NETNS, *self.namespaces.values()} if self._lists_namespaces else ())

    def fact(self, name: str) -> str:
        """The key of a fact with taps as their VM's devices."""
        area, slash, rest = name.partition("/")
        thing, more, property_ = rest.partition("/")
        if area in ("nic", "tc") and thing in self.taps:
            return f"{area}{slash}{self.taps[thing]}{more}{property_}"
        if area == "ovs" and more:
            return "/".join(self.taps.get(part, part) for part in name.split("/"))
        return name

    def _learn(self, where: list[str], fact: FactData) -> None:
        match where:
            case ["vm", vm, "net", number, "tap"] if isinstance(fact.value, str):
                self.taps[fact.value] = f"{vm} net{number}"
            case ["vm", vm, "pid"] if isinstance(fact.value, int):
                self.threads[fact.value] = f"{vm} qemu"
            case ["vm", vm, ("vcpu" | "vhost") as role, number, "tid"] if isinstance(fact.value, int):
                self.threads[fact.value] = f"{vm} {role}{number}"
            case ["netns", inode, "name"] if isinstance(fact.value, str):
                self.namespaces[inode] = fact.value
            case ["netns", inode, "process"] if isinstance(fact.value, str):
                self.namespaces[inode] = f"of {fact.value}"
            case ["netns_count"]:
                self._lists_namespaces = True
            case ["nic", device, "mtu"]:
                self.devices.add(device)
            case ["sysctl", "net.ipv4.ip_local_port_range"] if isinstance(fact.value, str):
                bounds = fact.value.split()
                if len(bounds) == 2 and all(bound.isdigit() and len(bound) < 6 for bound in bounds):
                    self._ports = (int(bounds[0]), int(bounds[1]))
            case _:
                pass

    def _process(self, value: SnapshotValue) -> SnapshotValue:
        if not isinstance(value, str):
            return value
        named = _PROCESS.match(value)
        if named:
            return self.threads.get(int((named[2] or named[3])[:18]), named[1])
        vhost = _VHOST.match(value)
        if vhost:
            owner = self.threads.get(int(vhost[1][:18]), "")
            return f"{owner.removesuffix(' qemu')} vhost" if owner else "vhost"
        return value

    def _thread(self, value: SnapshotValue) -> SnapshotValue:
        return self.threads.get(value) if isinstance(value, int) else None

    def _namespace(self, value: SnapshotValue) -> SnapshotValue:
        """The name of a namespace. Without a name (the label is its inode), the process that runs in it."""
        if not isinstance(value, str) or is_namespace_inode(value):
            return self.namespaces.get(str(value), OTHER_NETNS)
        return value

    def _port(self, value: SnapshotValue) -> SnapshotValue:
        if isinstance(value, int) and self._ports[0] <= value <= self._ports[1]:
            return "ephemeral"
        return value
