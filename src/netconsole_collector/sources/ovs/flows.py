"""ovs_flows: Open vSwitch's datapaths and ports, its flow table, and whether ovs-vswitchd keeps up with it.

The kernel's counters come by netlink. Flow limit, revalidation and datapaths in user space come from ovs-vswitchd.
"""

import time
from typing import Dict, Iterator, List, Optional, Sequence, Set, Tuple, Union

from netconsole_collector.primitives.here import HERE, Here
from netconsole_collector.sources.base import (
    Json,
    KernelSource,
    Pace,
    RowLabels,
    RowMaker,
    SourceError,
    SourceReading,
    SourceRow,
)
from netconsole_collector.sources.ovs.datapaths import KernelDatapath, OvsNetlink
from netconsole_collector.sources.ovs.unixctl import UnixctlError, directories
from netconsole_collector.sources.ovs.vswitchd import (
    EXECUTED,
    FLOW_DELETES,
    FLOW_PUTS,
    MAX_FLOWS_DUMPED,
    NAMELESS,
    Answers,
    Flow,
    Revalidation,
    UserspaceDatapath,
    Vswitchd,
)
from netconsole_collector.statuses import status

MAX_DATAPATHS = 64
MAX_PORTS = 4096
BRIDGES_EVERY = 10
"""Intervals after which ovs-vswitchd is asked again which bridge a port belongs to."""
LOOK_AGAIN = 10
"""Intervals after which a missing kernel module is looked for again."""
DUMP_EVERY_S = 5.0
MAX_NEW_FLOWS = 50
"""New flows that are reported from one dump of the flow table."""
KERNEL, USERSPACE = "kernel", "user space"
LOOKUPS = ("hits", "misses", "lost")
MASKS = ("mask_hits", "cache_hits")
PORT_COUNTS = (
    "rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_drops", "tx_drops",
)  # fmt: skip
VSWITCHD_COUNTS = ("flow_puts", "flow_deletes", "executed")
_MAX_FIELD = 256
_NAME = "ovs_flows"
_NO_DATAPATH = "the kernel module has no datapath any more"

_Gauges = Dict[str, Union[int, float, None]]


class OvsFlows(KernelSource):
    """See the module. In mode details it also reports new flows of the flow table, as text."""

    def __init__(self, host: Here = HERE, where: Optional[Sequence[str]] = None) -> None:
        self._host = host
        self._vswitchd = Vswitchd(directories() if where is None else where, host)
        self._netlink: Optional[OvsNetlink] = None
        self._no_kernel = _NO_DATAPATH
        self._lacks_kernel = False
        self._look_in = 0
        self._kernel_rows = RowMaker((*LOOKUPS, *MASKS), MAX_DATAPATHS)
        self._userspace_rows = RowMaker(LOOKUPS, MAX_DATAPATHS, is_set_back=True)
        self._set_back = 0
        self._port_rows = RowMaker(PORT_COUNTS, MAX_PORTS)
        self._vswitchd_rows = RowMaker(VSWITCHD_COUNTS, 1)
        self._lookups: Dict[str, Tuple[int, int]] = {}
        self._ports: List[SourceRow] = []
        self._port_sockets: Dict[str, int] = {}
        self._bridges: Dict[Tuple[str, str], str] = {}
        self._bridges_in = 0
        self._in_user_space: Tuple[UserspaceDatapath, ...] = ()
        self._said: Optional[Tuple[str, str]] = None
        self._known_flows: Dict[str, Set[str]] = {}
        self._dump_at = 0.0
        self._pace = Pace()
        """Of the ports: there may be very many."""

    def open(self) -> None:
        """Raises SourceError when there is neither the kernel module nor a running ovs-vswitchd."""
        self._look()

    def read(self, reading: SourceReading) -> List[Json]:
        """Datapaths, ports, ovs-vswitchd; in mode details new flows. Raises SourceError when nothing is there."""
        answers, why = self._look()
        if answers:
            self._in_user_space = answers.datapaths
            self._read_bridges()
        try:
            datapaths = self._netlink.datapaths() if self._netlink else []
            self._read_ports(datapaths, answers, reading.interval_ns)
        except OSError as error:
            self._lose_netlink()
            raise SourceError(f"datapaths cannot be read: {error.strerror or error}") from None
        frames = self._status(why)
        revalidation = answers.revalidation if answers else {}
        rows, full, omitted = self._kernel_rows.rows(self._kernel(datapaths, revalidation))
        more, _, _ = self._userspace_rows.rows(self._userspace(answers))
        frames.append(reading.table(_NAME, "datapaths", ([*rows, *more], full, omitted)))
        frames.append(reading.table(_NAME, "ports", self._port_rows.rows(self._ports)))
        set_back = self._userspace_rows.set_back
        if set_back:
            frames.append(reading.ledger(_NAME, {"set_back": (set_back - self._set_back, set_back)}))
            self._set_back = set_back
        if self._vswitchd.pid is not None or self._vswitchd.ended is not None:
            frames.append(reading.table(_NAME, "vswitchd", self._vswitchd_rows.rows([self._process(answers)])))
        if self.mode == "details" and answers:
            frames.extend(self._new_flows(reading, datapaths, answers))
        return frames

    def close(self) -> None:
        """Close the sockets."""
        self._vswitchd.close()
        self._lose_netlink()

    # ---- reading ----

    def _look(self) -> Tuple[Optional[Answers], str]:
        """The answers of ovs-vswitchd, or why there are none. Raises SourceError without a kernel module as well."""
        self._look_in -= 1
        if self._netlink is None and self._look_in <= 0:
            self._look_in = LOOK_AGAIN
            try:
                self._netlink = OvsNetlink(self._host)
            except OSError as error:
                # Not the error itself: it keeps what it went through, 256 kB of it.
                self._no_kernel = error.strerror or str(error)
                self._lacks_kernel = isinstance(error, FileNotFoundError)
        try:
            return self._vswitchd.read(), ""
        except UnixctlError as error:
            if self._netlink is None and self._vswitchd.pid is None and self._vswitchd.ended is None:
                why = "no Open vSwitch here: {}, and {}".format(self._no_kernel, error)
                way_out = "OVS_RUNDIR names another directory of ovs-vswitchd's sockets"
                raise SourceError(why, way_out, "unsupported" if self._lacks_kernel else "failed") from None
            return None, str(error)

    def _lose_netlink(self) -> None:
        if self._netlink is not None:
            self._netlink.close()
            self._netlink = None

    def _status(self, why: str) -> List[Json]:
        told = self.mode, why
        if told == self._said:
            return []
        self._said = told
        if not why:
            return [status(_NAME, "attached", self.mode, {})]
        why = "flow limit, revalidation and flow puts are not known: {}".format(why)
        return [status(_NAME, "degraded", self.mode, {}, why)]

    # ---- rows ----

    def _kernel(
        self, datapaths: Sequence[KernelDatapath], revalidation: Dict[str, Revalidation]
    ) -> Iterator[SourceRow]:
        for one in datapaths:
            sockets = one.sockets if one.per_cpu else self._port_sockets.get(one.name)
            gauges: _Gauges = {
                **_table_gauges(one.flows, revalidation.get(f"system@{one.name}")),
                "masks": one.masks,
                "masks_per_packet": self._masks_per_packet(one),
                "cache_size": one.cache_size,
                "handlers": sockets,
                "no_handler": None if sockets is None else int(sockets == 0),
            }
            counts = (one.hits, one.misses, one.lost, one.mask_hits, one.cache_hits)
            yield {"datapath": one.name, "kind": KERNEL}, counts, gauges

    def _userspace(self, answers: Optional[Answers]) -> Iterator[SourceRow]:
        """As they were last: what ovs-vswitchd does not say now is not known."""
        for one in self._in_user_space:
            labels: RowLabels = {"datapath": one.name, "kind": USERSPACE}
            if answers is None:
                yield labels, (None,) * len(LOOKUPS), _table_gauges(None, None)
                continue
            gauges = _table_gauges(one.flows, answers.revalidation.get(f"netdev@{one.name}"))
            yield labels, (one.hits, one.misses, one.lost), gauges

    def _masks_per_packet(self, one: KernelDatapath) -> Optional[float]:
        """Masks tried per packet, average of the interval (net/openvswitch/flow_table.c)."""
        if one.mask_hits is None:
            return None
        packets = one.hits + one.misses
        last = self._lookups.get(one.name)
        self._lookups[one.name] = packets, one.mask_hits
        if last is None or packets <= last[0] or one.mask_hits < last[1]:
            return None
        return round((one.mask_hits - last[1]) / (packets - last[0]), 2)

    def _read_ports(self, datapaths: Sequence[KernelDatapath], answers: Optional[Answers], interval_ns: int) -> None:
        if not self._pace.is_due():
            return
        began = self._host.cpu_s()
        self._ports = []
        self._port_sockets = {}
        for datapath in datapaths:
            ports = self._netlink.ports(datapath) if self._netlink else []
            self._port_sockets[datapath.name] = max((port.sockets for port in ports), default=0)
            self._ports += [self._port(datapath.name, port.name, port.type, port.counts) for port in ports]
        took = self._host.cpu_s() - began
        for one in self._in_user_space:
            unknown = (None,) * len(PORT_COUNTS)
            self._ports += [
                self._port(one.name, port.name, port.type, unknown if answers is None else port.counts)
                for port in one.ports
            ]
        self._pace.took(took, interval_ns)

    def _port(self, datapath: str, name: str, type: str, counts: Tuple[Optional[int], ...]) -> SourceRow:
        bridge = self._bridges.get((datapath, name))
        labels: RowLabels = {"datapath": datapath, "port": name, "type": type, "bridge": bridge}
        return labels, counts, {}

    def _read_bridges(self) -> None:
        self._bridges_in -= 1
        if self._bridges_in > 0:
            return
        try:
            self._bridges, self._bridges_in = self._vswitchd.bridges(), BRIDGES_EVERY
        except UnixctlError:
            return  # the next reading says so

    def _process(self, answers: Optional[Answers]) -> SourceRow:
        one = self._vswitchd
        threads = one.threads()
        gauges: _Gauges = {
            "handlers": threads.get("handler", 0),
            "revalidators": threads.get("revalidator", 0),
            "answer_ms": round(answers.answer_ms, 2) if answers else None,
            "silent": None if one.is_silent is None else int(one.is_silent),
            "ended": int(one.pid is None),
            "answered_ago_s": None if one.silent_s is None else round(one.silent_s),
        }
        if one.pid is None or threads.get(NAMELESS):  # which of them is what, nobody says
            gauges.update(handlers=None, revalidators=None)
        counters = answers.counters if answers else {}
        counts = tuple(counters.get(name) for name in (FLOW_PUTS, FLOW_DELETES, EXECUTED))
        return {"process": f"ovs-vswitchd/{one.pid or one.ended}"}, counts, gauges

    # ---- flows as text ----

    def _new_flows(
        self, reading: SourceReading, datapaths: Sequence[KernelDatapath], answers: Answers
    ) -> Iterator[Json]:
        if time.monotonic() < self._dump_at:
            return
        self._dump_at = time.monotonic() + DUMP_EVERY_S
        sizes = {f"system@{one.name}": one.flows for one in datapaths}
        sizes.update({f"netdev@{one.name}": one.flows for one in answers.datapaths})
        for full_name, flows in sizes.items():
            if flows > MAX_FLOWS_DUMPED:
                continue
            try:
                found = self._vswitchd.flows(full_name)
            except UnixctlError:
                return  # the next reading says so
            known = self._known_flows.get(full_name)
            self._known_flows[full_name] = {flow.match for flow in found}
            new = [flow for flow in found if known is not None and flow.match not in known]
            for flow in new[:MAX_NEW_FLOWS]:
                yield reading.event(_NAME, "flow", _fields(full_name.partition("@")[2], flow))


def _table_gauges(flows: Optional[int], revalidation: Optional[Revalidation]) -> _Gauges:
    limit = revalidation.flow_limit if revalidation else None
    return {
        "flows": flows,
        "flow_limit": limit,
        "limit_used_pct": round(100 * flows / limit, 1) if limit and flows is not None else None,
        "dump_ms": revalidation.dump_ms if revalidation else None,
    }


def _fields(datapath: str, flow: Flow) -> Json:
    return {
        "datapath": datapath,
        "match": flow.match[:_MAX_FIELD],
        "actions": flow.actions[:_MAX_FIELD],
        "packets": flow.packets,
        "bytes": flow.bytes,
    }
