"""What a snapshot has of one virtual machine: its threads, queues and links, and what is known of its configuration.

A machine is known by the name that QEMU was given. Its devices are the taps of its process, and the vhost-user ports
whose socket is one of its own (facts ``vm/…``, ``ovs/interface/…``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from netconsole.base import figure
from netconsole.base.fact_keys import FactData
from netconsole.snapshot.document import IncidentData, Snapshot, SnapshotValue, number, seconds
from netconsole_collector.names.fact_keys import key as fact_key
from netconsole_collector.names.fact_keys import parts as fact_parts

SnapshotRow: TypeAlias = Mapping[str, SnapshotValue]

WORKER = "vhost worker"
_ON = ("on", "yes", "true", "True")
_OF_FACTS = re.compile(r"unnamed|.* #\d+", re.DOTALL)
"""Names that only facts have: of a machine without a name, and of the second one of a name."""


class MachineFigures:
    """What a snapshot has of one machine."""

    def __init__(self, snapshot: Snapshot, name: str) -> None:
        self.snapshot, self.name = snapshot, name
        facts = snapshot.facts
        nets = fact_key("vm", name, "net", "")
        own = {key: facts[key].value for key in facts if key.startswith(nets)}
        self._threads = sorted(
            self._of_vm("thread_waits", "threads"), key=lambda row: -(number(row.get("ran_ns")) or 0.0)
        )
        self.taps = sorted({str(value) for key, value in own.items() if key.endswith("/tap")})
        self.taps += sorted(
            {
                str(row["device"])
                for probe in ("tun_queues", "vhost_queues")
                for row in self._of_vm(probe, "queues")
                if row.get("device")
            }
            - set(self.taps)
        )
        of_taps = tuple(fact_key("tc", tap, "") for tap in self.taps)
        self._tc = {name: str(fact.value) for name, fact in facts.items() if of_taps and name.startswith(of_taps)}
        self._queues = {str(value) for key, value in own.items() if key.endswith("/queues")}
        self._by_vhost = any(key.endswith("/vhost") and str(value) in _ON for key, value in own.items())
        sockets = {str(value) for key, value in own.items() if key.endswith("/socket")}
        self.ports = self.taps + [port for path, port in _ports(facts) if path in sockets]

    @property
    def is_configured(self) -> bool:
        """Whether it is known which devices it has. Recordings of earlier versions have no facts."""
        prefix = fact_key("vm", self.name, "")
        return any(name.startswith(prefix) for name in self.snapshot.facts)

    def _of_vm(self, probe: str, table: str) -> Iterator[SnapshotRow]:
        return (row for row in self.rows(probe, table) if row.get("vm") == self.name)

    def rows(self, probe: str, table: str) -> Sequence[SnapshotRow]:
        """All rows of a table of the snapshot."""
        return self.snapshot.probes[probe].tables.get(table, []) if self.has(probe) else []

    def processes(self) -> list[SnapshotRow]:
        """Its QEMU process; several where they have one name."""
        return list(self._of_vm("vm_states", "machines"))

    def memory(self) -> list[SnapshotRow]:
        """How often it comes back from disk, of each of its processes."""
        return list(self._of_vm("vm_states", "memory"))

    def threads(self) -> list[SnapshotRow]:
        """Its threads, the one that ran most first."""
        return self._threads

    def queues(self, probe: str) -> list[SnapshotRow]:
        """Rows of the queues of its taps."""
        return [
            row for row in self.rows(probe, "queues") if row.get("vm") == self.name or row.get("device") in self.taps
        ]

    def polled(self) -> list[SnapshotRow]:
        """Its ports that PMD threads of Open vSwitch poll."""
        return [row for row in self.rows("ovs_pmd", "ports") if row.get("port") in self.ports]

    def links(self) -> list[SnapshotRow]:
        """Its taps as interfaces."""
        return [row for row in self.rows("link_rates", "links") if row.get("device") in self.taps]

    def moves_packets_itself(self) -> bool:
        """Whether packets of its taps pass a thread of QEMU's own and no vhost worker, as its command line says."""
        return bool(self._queues) and not self._by_vhost and not any(role(row) == WORKER for row in self._threads)

    def queues_of(self, tap: str) -> int:
        """How many queues of a tap QEMU has open; 0 where that is not known."""
        nets = self.facts_of("net").values()
        return int(max((number(net.get("queues")) or 0.0 for net in nets if net.get("tap") == tap), default=0))

    def has_single_queues(self) -> bool:
        """Whether each of its taps is known to have one queue."""
        return self._queues == {"1"}

    def per_s(self, probe: str, row: SnapshotRow, column: str) -> float:
        """The rate of a count of a row; 0 where it has none."""
        return (number(row.get(column)) or 0.0) / max(seconds(self.snapshot, probe), 1e-9)

    def has(self, probe: str) -> bool:
        """Whether a probe has measured, for any time at all."""
        data = self.snapshot.probes.get(probe)
        return data is not None and data.has_measured and seconds(self.snapshot, probe) > 0

    def incidents(self) -> list[IncidentData]:
        """What goes wrong with it, the worst first."""
        return [one for one in self.snapshot.incidents or () if self._is_of(one)]

    def _is_of(self, one: IncidentData) -> bool:
        places = [one.where, *(proof.labels for proof in one.evidence), {"port": one.answer.get("in_port")}]
        return any(
            at.get("vm") == self.name or at.get("device") in self.taps or at.get("port") in self.ports for at in places
        )

    def facts_of(self, area: str) -> dict[str, dict[str, SnapshotValue]]:
        """What is known of each of its disks, network devices, or connections of TCP: values by property."""
        prefix = fact_key("vm", self.name, area, "")
        found: dict[str, dict[str, SnapshotValue]] = {}
        for name in self.snapshot.facts:
            if name.startswith(prefix) and len(rest := fact_parts(name)[3:]) == 2:
                found.setdefault(rest[0], {})[rest[1]] = self.fact(name)
        return found

    def of_tc(self, tap: str, *parts: str) -> list[str]:
        """The values of all facts of traffic control whose keys go on so, as text."""
        prefix = fact_key("tc", tap, *parts, "")
        return [value for name, value in self._tc.items() if name.startswith(prefix)]

    def fact(self, name: str) -> SnapshotValue:
        """The value of a fact; None where it is not known."""
        fact = self.snapshot.facts.get(name)
        return fact.value if fact is not None and not isinstance(fact.value, list) else None


def machines(snapshot: Snapshot) -> list[str]:
    """The names of all machines that a snapshot knows."""
    found: set[str] = set()
    for probe, table in (("vm_states", "machines"), ("thread_waits", "threads"), ("tun_queues", "queues")):
        data = snapshot.probes.get(probe)
        found |= {str(row["vm"]) for row in (data.tables.get(table, []) if data is not None else []) if row.get("vm")}
    told = {fact_parts(key)[1] for key in snapshot.facts if key.startswith("vm/")}
    # Facts are compared with those of another day: they call a machine otherwise that has no name of its own.
    return sorted(found | {name for name in told if not found or not _OF_FACTS.fullmatch(name)})


def devices_of(facts: Mapping[str, FactData]) -> dict[str, set[str]]:
    """By machine: its taps, its ports of Open vSwitch, and the block devices on which its disks lie."""
    found: dict[str, set[str]] = {}
    ports: dict[str, set[str]] = {}
    for path, port in _ports(facts):
        ports.setdefault(path, set()).add(port)
    for key, fact in facts.items():
        area, name, *rest = [*fact_parts(key), ""]
        if area == "vm" and len(rest) > 1:
            devices = found.setdefault(name, set())
            if rest[-2] in ("tap", "on"):
                devices.add(str(fact.value))
            elif rest[-2] == "socket":
                devices |= ports.get(str(fact.value), set())
    return found


def _ports(facts: Mapping[str, FactData]) -> Iterator[tuple[str, str]]:
    """The socket of each vhost-user port, and its name."""
    for key, fact in facts.items():
        if key.startswith("ovs/interface/") and key.endswith("/vhost-server-path"):
            yield str(fact.value), fact_parts(key)[2]


def role(row: SnapshotRow) -> str:
    """What a thread does."""
    return str(row.get("role") or "thread")


def bits_per_s(per_s: float) -> str:
    """As 112Mbit/s."""
    return f"{figure.number(per_s)}bit/s"
