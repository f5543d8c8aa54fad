"""Reads Open vSwitch's kernel datapaths and their ports by generic netlink (include/uapi/linux/openvswitch.h)."""

import struct
import sys
from typing import List, Mapping, NamedTuple, Optional, Tuple

from netconsole_collector.primitives.here import HERE, Here
from netconsole_collector.primitives.netlink import attributes
from netconsole_collector.sources.net.netlink_messages import NETLINK_GENERIC, families

DATAPATHS, PORTS = "ovs_datapath", "ovs_vport"
_CMD_GET = 3
"""OVS_DP_CMD_GET and OVS_VPORT_CMD_GET."""
_DP_NAME, _DP_STATS, _DP_MEGAFLOW_STATS, _DP_USER_FEATURES, _DP_MASKS_CACHE_SIZE, _DP_PER_CPU_PIDS = 1, 3, 4, 5, 7, 8
_DISPATCH_PER_CPU = 1 << 3
"""OVS_DP_F_DISPATCH_UPCALL_PER_CPU, since 5.15. Before, every port has its own list of handlers."""
_PORT_NUMBER, _PORT_TYPE, _PORT_NAME, _PORT_UPCALL_PID, _PORT_STATS = 1, 2, 3, 5, 6
_TYPES = {1: "netdev", 2: "internal", 3: "gre", 4: "vxlan", 5: "geneve"}

_OVS = struct.Struct("=BBxxi")
"""genlmsghdr and struct ovs_header."""
_STATS = struct.Struct("=QQQQ")
_MASKS = struct.Struct("=QI4xQ")
_PORT_STATS_LAYOUT = struct.Struct("=8Q")


class KernelDatapath(NamedTuple):
    """A datapath of the kernel: its counters since it was created. None: this kernel does not report it.

    ``sockets``: the handlers' sockets, which receive upcalls. A datapath without any loses all upcalls. ``per_cpu``:
    the datapath has one list of them. Otherwise (always before 5.15) every port has its own: see :class:`Vport`.
    """

    ifindex: int
    name: str
    hits: int
    misses: int
    lost: int
    flows: int
    masks: Optional[int]
    mask_hits: Optional[int]
    cache_hits: Optional[int]
    cache_size: Optional[int]
    per_cpu: bool
    sockets: Optional[int]


class Vport(NamedTuple):
    """A port; ``counts`` are rx_packets, tx_packets, rx_bytes, tx_bytes, rx_errors, tx_errors, rx_drops, tx_drops."""

    number: int
    name: str
    type: str
    counts: Tuple[int, ...]
    sockets: int


class OvsNetlink:
    """The netlink families of the kernel module openvswitch."""

    def __init__(self, host: Here = HERE) -> None:
        """Raises OSError; FileNotFoundError when openvswitch is not loaded."""
        self._netlink = host.netlink(NETLINK_GENERIC)
        try:
            found = families(self._netlink)
            self._datapaths, self._ports = found[DATAPATHS], found[PORTS]
        except KeyError:
            self._netlink.close()
            raise FileNotFoundError(2, "the kernel module openvswitch is not loaded") from None
        except OSError:
            self._netlink.close()
            raise

    def datapaths(self) -> List[KernelDatapath]:
        """The datapaths of this network namespace. Raises OSError."""
        request = _OVS.pack(_CMD_GET, 2, 0)
        return [_datapath(body) for body in self._netlink.dump(self._datapaths, request)]

    def ports(self, datapath: KernelDatapath) -> List[Vport]:
        """The ports of a datapath. Raises OSError."""
        request = _OVS.pack(_CMD_GET, 1, datapath.ifindex)
        return [_port(body) for body in self._netlink.dump(self._ports, request)]

    def close(self) -> None:
        """Close the netlink socket."""
        self._netlink.close()


def _datapath(body: memoryview) -> KernelDatapath:
    _, _, index = _OVS.unpack_from(body)
    values = dict(attributes(body, _OVS.size))
    hits, misses, lost, flows = _STATS.unpack_from(values[_DP_STATS])
    masks = mask_hits = cache_hits = None
    if _DP_MEGAFLOW_STATS in values:
        mask_hits, masks, cache_hits = _MASKS.unpack_from(values[_DP_MEGAFLOW_STATS])
    cache_size = _number(values, _DP_MASKS_CACHE_SIZE)
    per_cpu = bool((_number(values, _DP_USER_FEATURES) or 0) & _DISPATCH_PER_CPU)
    # A kernel that does not report the list looks like one with an empty list: unknown.
    sockets = _sockets(values[_DP_PER_CPU_PIDS]) if per_cpu and _DP_PER_CPU_PIDS in values else None
    return KernelDatapath(
        index, _text(values[_DP_NAME]), hits, misses, lost, flows, masks, mask_hits,
        cache_hits if cache_size is not None else None, cache_size, per_cpu, sockets,
    )  # fmt: skip


def _port(body: memoryview) -> Vport:
    values = dict(attributes(body, _OVS.size))
    number = _number(values, _PORT_NUMBER) or 0
    kind = _number(values, _PORT_TYPE) or 0
    counts = _PORT_STATS_LAYOUT.unpack_from(values[_PORT_STATS])
    name = _text(values[_PORT_NAME])
    return Vport(number, name, _TYPES.get(kind, str(kind)), counts, _sockets(values.get(_PORT_UPCALL_PID)))


def _sockets(pids: Optional[memoryview]) -> int:
    """How many different netlink sockets are in a list of port ids; 0 means none."""
    if pids is None:
        return 0
    numbers = {pid for (pid,) in struct.iter_unpack("=I", pids[: len(pids) & ~3])}
    return len(numbers - {0})


def _number(values: Mapping[int, memoryview], attribute: int) -> Optional[int]:
    value = values.get(attribute)
    return None if value is None else int.from_bytes(value[:4], sys.byteorder)


def _text(value: memoryview) -> str:
    return bytes(value).rstrip(b"\0").decode("utf-8", "backslashreplace")
