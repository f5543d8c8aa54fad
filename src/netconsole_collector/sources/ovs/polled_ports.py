"""Reads what ports in user space have lost, by cause, and their links, from Open vSwitch's database (RFC 7047).

ovs-vswitchd writes it there every five seconds (other_config:stats-update-interval).
"""

import json
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from netconsole_collector.primitives.here import HERE, Here
from netconsole_collector.sources.base import MOST, Json, RowMaker, SourceRow

READ_EVERY = 5
"""Readings of the source."""
MAX_PORTS = 4096
TIMEOUT_S = 0.25
SOCKET = "db.sock"
TYPES = ("afxdp", "afxdp-nonpmd", "dpdk", "dpdkvhostuser", "dpdkvhostuserclient")
"""Those that PMD threads poll."""
LOSSES: Dict[str, str] = {
    "rx_missed": "rx_missed_errors",
    "rx_no_buffers": "rx_mbuf_allocation_errors",
    "rx_policed": "ovs_rx_qos_drops",
    "tx_full": "ovs_tx_failure_drops",
    "tx_too_large": "ovs_tx_mtu_exceeded_drops",
    "tx_policed": "ovs_tx_qos_drops",
    "tx_refused": "ovs_tx_invalid_hwol_drops",
    "tx_retries": "ovs_tx_retries",
}
"""By our names: those of Interface.statistics. Each type of port has some of them."""
_COLUMNS = ("name", "type", "statistics", "link_state", "status")
_ID = "netconsole"


class PolledPort(NamedTuple):
    """None: not told. ``counts``: those of LOSSES. ``numa``: of the NIC, or of the memory of the guest."""

    name: str
    type: str
    counts: Tuple[Optional[int], ...]
    is_up: Optional[bool]
    numa: Optional[int]

    @property
    def row(self) -> SourceRow:
        """As the table has it."""
        gauges = {"down": None if self.is_up is None else int(not self.is_up), "numa": self.numa}
        return {"port": self.name, "type": self.type}, self.counts, gauges


class PolledPorts:
    """The ports, read less often than the threads."""

    def __init__(self, where: Sequence[str], host: Here = HERE) -> None:
        self._where = where
        self._host = host
        self._rows = RowMaker(tuple(LOSSES), MAX_PORTS)
        self._ports: List[PolledPort] = []
        self._read_in = 0
        self._since_ns = 0
        self.why = ""
        """Why they are not known."""

    def rows(self, interval_ns: int, is_whole: bool) -> Tuple[List[Json], bool, int]:
        """As :class:`RowMaker` gives them. Where they were read, their counts are of the time since the last time."""
        self._since_ns += interval_ns
        self._read_in -= 1
        is_read = self._read_in <= 0 or is_whole
        if is_read:
            self._read()
        rows, full, omitted = self._rows.rows(one.row for one in self._ports)
        if is_read:
            for row in rows:
                row["interval_ns"] = self._since_ns
            self._read_in, self._since_ns = READ_EVERY, 0
        return rows, full, omitted

    def numa(self) -> Dict[str, int]:
        """The node of each port, where it is told."""
        return {one.name: one.numa for one in self._ports if one.numa is not None}

    def _read(self) -> None:
        try:
            self._ports, self.why = ports_in(self._asked()), ""
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            unknown = (None,) * len(LOSSES)
            self._ports = [one._replace(counts=unknown, is_up=None) for one in self._ports]
            why = error.strerror if isinstance(error, OSError) else "it gives no answer that can be read"
            self.why = "what ports lose is not known: Open vSwitch's database: {}".format(why or error)

    def _asked(self) -> Any:
        paths = ["{}/{}".format(directory, SOCKET) for directory in self._where]
        path = next((one for one in paths if self._host.exists(one)), paths[0])
        select = {"op": "select", "table": "Interface", "where": [], "columns": list(_COLUMNS)}
        request = {"method": "transact", "params": ["Open_vSwitch", select], "id": _ID}
        connection = self._host.connect(path, TIMEOUT_S)
        try:
            return json.loads(connection.ask(json.dumps(request).encode(), TIMEOUT_S).decode("utf-8"))
        finally:
            connection.close()


def ports_in(answer: Any) -> List[PolledPort]:
    """The ports of an answer. Raises ValueError, LookupError, TypeError or AttributeError for what is none."""
    if answer.get("id") != _ID:
        raise ValueError("another answer")
    found = []
    for row in answer["result"][0]["rows"]:
        if row["type"] not in TYPES:
            continue
        statistics, status = _map(row["statistics"]), _map(row["status"])
        counts = tuple(_count(statistics.get(name)) for name in LOSSES.values())
        is_up = {"up": True, "down": False}.get(row["link_state"]) if isinstance(row["link_state"], str) else None
        numa = str(status.get("numa_id", ""))
        node = int(numa) if numa.isdigit() and len(numa) < 5 else None
        found.append(PolledPort(str(row["name"])[:64], row["type"], counts, is_up, node))
    return sorted(found)


def _map(value: Any) -> Dict[str, Any]:
    return dict(value[1]) if value[0] == "map" else {}


def _count(value: Any) -> Optional[int]:
    return value if isinstance(value, int) and 0 <= value <= MOST else None
