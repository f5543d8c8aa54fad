"""link_rates: packets, errors, drops, carrier and qdiscs of every interface, in every network namespace.

It reads /proc/net/dev of each namespace, and dumps qdiscs where they may have changed. The kernel itself reports
changes of links. At one reading per second, 100 idle namespaces cost about 0.3 % of a core, and 1000 interfaces (100 of
them busy) about 1 %. Where the qdiscs alone would cost more, they are read less often.
"""

from typing import List, Optional, Tuple

from netconsole_collector.primitives.here import HERE, Here
from netconsole_collector.sources.base import (
    Json,
    KernelSource,
    Pace,
    RowMaker,
    SourceError,
    SourceReading,
    SourceRow,
)
from netconsole_collector.sources.namespaces import MAX_NAMESPACES, OpenNamespace, OpenNamespaces
from netconsole_collector.sources.net.link_state import VethPeers, veth_peers
from netconsole_collector.sources.net.namespace_links import COUNTS, OF_QDISCS, NamespaceLinks
from netconsole_collector.statuses import status

QUEUE_COUNTS = ("packets", "bytes", "drops", "requeues", "overlimits")
MAX_ROWS = 4096


class Links(KernelSource):
    """See the module."""

    def __init__(self, host: Here = HERE, namespaces: "Optional[OpenNamespaces[NamespaceLinks]]" = None) -> None:
        self._host = host
        self._namespaces = namespaces or OpenNamespaces(NamespaceLinks, host)
        self._rows = RowMaker(COUNTS, MAX_ROWS)
        self._queues = RowMaker(QUEUE_COUNTS, MAX_ROWS)
        self._has_children = False
        self._left_out = 0
        self._peers: VethPeers = {}
        self._tables: List[Tuple[str, int]] = []
        """What the peers were found in."""
        self.pace = Pace()
        """Of the qdiscs: there may be very many."""
        self._since_ns = 0
        """Since they were read last, without this interval."""
        self._late_ns = 0
        """The time that their figures of this interval are of, where that is longer; else 0."""

    def open(self) -> None:
        """Raises SourceError when the links of our own namespace cannot be read."""
        try:
            self._namespaces.open()
        except OSError as error:
            raise SourceError(f"links cannot be read: {error.strerror or error}") from None

    def read(self, reading: SourceReading) -> List[Json]:
        """One row per interface, and one per child qdisc and class."""
        with self._namespaces.held() as held:
            readings = self._read(held, reading)
            children = [row for one in held for row in one.thing.queues(one.name)]
        said = self._said()
        if children or self._has_children:
            self._has_children = bool(children)
            of_queues = self._queues.rows(children)
            said.append(reading.table("link_rates", "queues", of_queues))
            for row in of_queues[0] if self._late_ns else ():
                row["interval_ns"] = self._late_ns
        of_links = self._rows.rows(readings)
        for row in of_links[0] if self._late_ns else ():
            for name in OF_QDISCS:
                if row["counts"][name]["delta"]:
                    row["counts"][name]["interval_ns"] = self._late_ns
        return [*said, reading.table("link_rates", "links", of_links)]

    def close(self) -> None:
        """Release all namespaces."""
        self._namespaces.close()

    def _read(self, held: "List[OpenNamespace[NamespaceLinks]]", reading: SourceReading) -> List[SourceRow]:
        with_qdiscs = self.pace.is_due(reading.is_whole)
        qdiscs_s = 0.0
        read: "List[OpenNamespace[NamespaceLinks]]" = []
        for place, one in enumerate(held):
            try:
                one.thing.read()
                if with_qdiscs:
                    began = self._host.cpu_s()
                    one.thing.read_qdiscs(reading.mono_ns)
                    qdiscs_s += self._host.cpu_s() - began
            except OSError as error:
                if place == 0:
                    self._left_out = 0  # the runner says what is wrong, and then that it is attached
                    raise SourceError(f"links cannot be read: {error.strerror or error}") from None
                self._namespaces.drop(one.thing)
                continue
            read.append(one)
        self._find_peers(read)
        readings = [row for one in read for row in one.thing.readings(one.name, reading.mono_ns, self._peers)]
        self._since_ns += reading.interval_ns
        self._late_ns = 0
        if with_qdiscs:
            self.pace.took(qdiscs_s, reading.interval_ns)
            self._late_ns = self._since_ns if self._since_ns > reading.interval_ns else 0
            self._since_ns = 0
        return readings

    def _find_peers(self, read: List[OpenNamespace[NamespaceLinks]]) -> None:
        tables = [(one.name, one.thing.table.changes) for one in read]
        if tables != self._tables:
            self._tables = tables
            self._peers = veth_peers((one.name, one.thing.table.links) for one in read)

    def _said(self) -> List[Json]:
        """A status, when it has changed how many namespaces are left out."""
        left_out = self._namespaces.left_out
        if left_out == self._left_out:
            return []
        self._left_out = left_out
        if not left_out:
            return [status("link_rates", "attached", "summary", {})]
        why = f"links of {left_out} more network namespaces are left out: netconsole reads {MAX_NAMESPACES} at most"
        return [status("link_rates", "degraded", "summary", {}, why)]
