"""socket_groups: sockets that share one local port (SO_REUSEPORT), including idle ones, to show an uneven group.

A BPF probe sees only sockets with traffic. This source also sees those of the group that get no traffic.
"""

import socket
from typing import Dict, Iterable, List, Optional, Set, Tuple

from netconsole_collector.primitives.here import HERE, Here
from netconsole_collector.primitives.netlink import Netlink
from netconsole_collector.sources.base import Json, KernelSource, RowLabels, RowMaker, SourceError, SourceReading
from netconsole_collector.sources.net.netlink_messages import NETLINK_SOCK_DIAG, BoundSocket, bound_sockets

MAX_SOCKETS = 1024
SEARCH_EVERY = 5
"""Intervals between two searches for owners of sockets (about 0.1 s of CPU).

They happen only when a group has a new socket, which is shown afterwards."""
COUNTS = ("drops",)


def groups(sockets: Iterable[BoundSocket]) -> List[BoundSocket]:
    """The sockets that share protocol, family, address, interface and port with another one.

    Sockets of one port on different interfaces (the dnsmasq of every libvirt network) are no group.
    """
    by_port: Dict[Tuple[str, int, bytes, int, int], List[BoundSocket]] = {}
    for one in sockets:
        by_port.setdefault((one.protocol, one.family, one.address, one.ifindex, one.port), []).append(one)
    return [one for group in by_port.values() if len(group) > 1 for one in group]


class SocketGroups(KernelSource):
    """See the module."""

    def __init__(self, host: Here = HERE) -> None:
        self._host = host
        self._rows = RowMaker(COUNTS, MAX_SOCKETS)
        self._netlink: Optional[Netlink] = None
        self._owners: Dict[int, Optional[str]] = {}
        self._search_in = 0

    def open(self) -> None:
        """Raises SourceError when sockets cannot be listed."""
        self._sockets()

    def read(self, reading: SourceReading) -> List[Json]:
        """One row per socket of a group."""
        shared = groups(self._sockets())
        self._find_owners({one.inode for one in shared})
        readings = (
            (self._labels(one), (one.drops or 0,), {"waiting": one.waiting})
            for one in shared
            if one.inode in self._owners
        )
        return [reading.table("socket_groups", "sockets", self._rows.rows(readings))]

    def close(self) -> None:
        """Close the netlink socket."""
        if self._netlink is not None:
            self._netlink.close()
            self._netlink = None

    def _labels(self, one: BoundSocket) -> RowLabels:
        return {
            "protocol": one.protocol,
            "address": socket.inet_ntop(one.family, one.address),
            "port": one.port,
            "inode": one.inode,
            "process": self._owners.get(one.inode),
        }

    def _sockets(self) -> List[BoundSocket]:
        try:
            if self._netlink is None:
                self._netlink = self._host.netlink(NETLINK_SOCK_DIAG)
            return bound_sockets(self._netlink)
        except FileNotFoundError:
            raise SourceError(
                "this kernel lists no sockets by netlink", "modprobe inet_diag udp_diag tcp_diag"
            ) from None
        except OSError as error:
            raise SourceError("sockets cannot be listed: {}".format(error.strerror or error)) from None

    def _find_owners(self, inodes: Set[int]) -> None:
        self._search_in -= 1
        self._owners = {inode: owner for inode, owner in self._owners.items() if inode in inodes}
        wanted = inodes - self._owners.keys()
        if not wanted or self._search_in > 0:
            return
        self._search_in = SEARCH_EVERY
        self._owners.update({**dict.fromkeys(wanted), **self._host.owners(wanted)})
