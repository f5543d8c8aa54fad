"""Sockets that lose what their program does not read in time: of netlink, raw ones, and packet sockets.

What packet sockets lose, sock_diag tells; of the others /proc/net has a file. Before a packet ring (TPACKET) the kernel
tells the program alone. The own namespace is read in every interval, the others in turn: each reading walks all such
sockets of a namespace, and of netlink all of the host.
"""

import os
import socket
import struct
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from netconsole_collector.names.labels import L4
from netconsole_collector.primitives.here import Here
from netconsole_collector.primitives.netlink import Netlink, attributes
from netconsole_collector.sources.base import Json, RowLabels, RowMaker, SourceReading, SourceRow
from netconsole_collector.sources.net.netlink_messages import (
    NETLINK_SOCK_DIAG,
    SK_MEMINFO_DROPS,
    SOCK_DIAG_BY_FAMILY,
)

NETLINK, RAW, PACKET = "netlink", "raw", "packet"
FILES = (NETLINK, RAW, "raw6", PACKET)
IN_TURN = 3
"""Other namespaces of an interval: 128 of them take three quarters of a minute. Each costs 0.2 ms of CPU."""
MAX_ROWS = 256
_PROTOCOL_AT, _DROPS_AT, _INODE_AT, _COLUMNS = 1, 8, 9, 10
_RAW_LOCAL_AT, _RAW_INODE_AT, _RAW_DROPS_AT = 1, 9, 12
_PACKET_REQUEST = struct.Struct("=BBxxIII4x")
_PACKET_MEMORY, _SHOW_MEMORY = 6, 0x10  # PACKET_DIAG_MEMINFO, PACKET_SHOW_MEMINFO
_PACKET_SOCKET = struct.Struct("=BxHI8x")
"""Family, protocol and inode of struct packet_diag_msg."""
PROTOCOLS = {
    0: "route", 4: "sock_diag", 5: "nflog", 6: "xfrm", 7: "selinux", 9: "audit", 10: "fib_lookup",
    11: "connector", 12: "netfilter", 15: "kobject_uevent", 16: "generic", 20: "rdma",
}  # fmt: skip
_SocketKey = Tuple[int, int]
"""Namespace and inode."""


class LossySocket(NamedTuple):
    """``drops``: messages or packets that found no room since it was made."""

    inode: int
    kind: str
    protocol: str
    drops: int


def parse(content: bytes) -> Iterator[LossySocket]:
    """The netlink sockets of a namespace. Raises ValueError."""
    for line in content.splitlines()[1:]:
        words = line.split()
        if len(words) < _COLUMNS:
            raise ValueError(line[:40])
        protocol, drops, inode = (int(words[at]) for at in (_PROTOCOL_AT, _DROPS_AT, _INODE_AT))
        yield LossySocket(inode, NETLINK, PROTOCOLS.get(protocol, str(protocol)), drops)


def parse_raw(content: bytes) -> Iterator[LossySocket]:
    """The raw sockets of a namespace: /proc/net/raw or raw6. Raises ValueError."""
    for line in content.splitlines()[1:]:
        words = line.split()
        if len(words) <= _RAW_DROPS_AT:
            raise ValueError(line[:40])
        protocol = int(words[_RAW_LOCAL_AT].rpartition(b":")[2], 16)
        drops, inode = int(words[_RAW_DROPS_AT]), int(words[_RAW_INODE_AT])
        yield LossySocket(inode, RAW, L4.get(protocol, "protocol {}".format(protocol)), drops)


def packet_sockets() -> List[LossySocket]:
    """Those of the namespace of the calling thread. Raises OSError: this kernel lists none."""
    netlink = Netlink(NETLINK_SOCK_DIAG)
    try:
        found = []
        request = _PACKET_REQUEST.pack(socket.AF_PACKET, 0, 0, _SHOW_MEMORY, 0)
        for body in netlink.dump(SOCK_DIAG_BY_FAMILY, request):
            _, _, inode = _PACKET_SOCKET.unpack_from(body)
            memory = dict(attributes(bytes(body), _PACKET_SOCKET.size)).get(_PACKET_MEMORY, b"")
            if len(memory) >= 4 * (SK_MEMINFO_DROPS + 1):
                drops = struct.unpack_from("=I", memory, 4 * SK_MEMINFO_DROPS)[0]
                found.append(LossySocket(inode, PACKET, "all", drops))
        return found
    finally:
        netlink.close()


class Overruns:
    """Of all namespaces that somebody tells of. Used from one thread."""

    def __init__(self, host: Here) -> None:
        self._host = host
        self._rows = RowMaker(("drops",), MAX_ROWS)
        self._first: Dict[int, Dict[int, int]] = {}
        self._last: Dict[int, Dict[int, LossySocket]] = {}
        """By namespace and inode."""
        self._owners: Dict[int, Optional[str]] = {}
        self._told: Set[_SocketKey] = set()
        self._older: Optional[Set[int]] = None
        """Namespaces that were there at the start: what their sockets had lost before nobody watched."""
        self._read_ns: Dict[int, int] = {}
        """When each was read last, or was first told of."""
        self._turn = 0

    def table(
        self, probe: str, reading: SourceReading, own: int, paths: Mapping[int, str], names: Mapping[int, str]
    ) -> List[Json]:
        """A row for each socket that has lost something since it was seen first; before one has: nothing."""
        self._older = set(paths) if self._older is None else self._older
        for namespace in paths:
            self._read_ns.setdefault(namespace, reading.mono_ns - reading.interval_ns)
        looked = self._looked(own, paths, reading.is_whole)
        late: Dict[str, int] = {}
        for namespace in looked:
            since_ns = reading.mono_ns - self._read_ns.get(namespace, reading.mono_ns - reading.interval_ns)
            self._read_ns[namespace] = reading.mono_ns
            if namespace != own and since_ns > reading.interval_ns:
                late[names.get(namespace, str(namespace))] = since_ns
        for gone in self._last.keys() - paths.keys():
            del self._last[gone], self._first[gone]
        self._read_ns = {one: read_ns for one, read_ns in self._read_ns.items() if one in paths or one == own}
        self._older &= paths.keys()
        lost = {
            (namespace, inode)
            for namespace, sockets in self._last.items()
            for inode, one in sockets.items()
            if one.drops > self._first[namespace][inode]
        }
        if not lost and not self._owners:
            return []
        self._told &= lost
        self._find_owners({inode for _, inode in lost})
        rows, full, omitted = self._rows.rows(self._readings(lost, names))
        for row in rows:
            if row["labels"]["netns"] in late:
                row["interval_ns"] = late[row["labels"]["netns"]]
        return [reading.table(probe, "overruns", (rows, full, omitted))]

    def _looked(self, own: int, paths: Mapping[int, str], is_whole: bool) -> List[int]:
        """The namespaces that were read."""
        others = sorted(paths.keys() - {own})
        count = len(others) if is_whole else min(IN_TURN, len(others))
        chosen = [others[(self._turn + number) % len(others)] for number in range(count)]
        self._turn += count
        there = [(paths[one], one) for one in chosen]
        contents = dict(zip(chosen, self._host.read_inside(there, FILES) if there else ()))
        contents[own] = self._host.read_each("/proc/net", FILES)
        found: Dict[int, List[LossySocket]] = {}
        capturing: List[int] = []
        for namespace, files in contents.items():
            if isinstance(files, OSError) or NETLINK not in files:
                continue
            try:
                found[namespace] = [*parse(files[NETLINK])]
                for name in (RAW, "raw6"):
                    found[namespace] += parse_raw(files.get(name, b""))
            except ValueError:
                found.pop(namespace, None)  # a kernel with another layout
                continue
            if files.get(PACKET, b"").count(b"\n") > 1:  # a line of names, and one for each socket
                capturing.append(namespace)
        looked = [("" if one == own else paths[one], one) for one in capturing]
        for namespace, sockets in zip(capturing, self._host.each_inside(looked, packet_sockets) if looked else ()):
            if not isinstance(sockets, Exception):
                found[namespace] += sockets
        for namespace, sockets in found.items():
            self._take(namespace, sockets)
        return list(found)

    def _take(self, namespace: int, sockets: List[LossySocket]) -> None:
        """Most have lost nothing, and nothing of them is kept."""
        is_new = namespace not in self._first and self._older is not None and namespace in self._older
        before, self._last[namespace] = self._first.get(namespace, {}), {one.inode: one for one in sockets if one.drops}
        lossy = self._last[namespace]
        self._first[namespace] = {inode: before.get(inode, lossy[inode].drops if is_new else 0) for inode in lossy}

    def _find_owners(self, inodes: Set[int]) -> None:
        new = inodes - self._owners.keys()
        self._owners = {inode: process for inode, process in self._owners.items() if inode in inodes}
        if new:
            self._owners.update({**dict.fromkeys(new), **self._host.owners(new)})

    def _readings(self, lost: Set[_SocketKey], names: Mapping[int, str]) -> Iterator[SourceRow]:
        ours = "/{}".format(os.getpid())
        for namespace, inode in sorted(lost):
            one, process = self._last[namespace][inode], self._owners[inode]
            if process is not None and process.endswith(ours):
                continue  # it asks anew what it has lost
            labels: RowLabels = {
                "process": process or "a program",
                "kind": one.kind,
                "protocol": one.protocol,
                "inode": inode,
                "netns": names.get(namespace, str(namespace)),
            }
            if (namespace, inode) not in self._told:
                self._told.add((namespace, inode))
                self._rows.begin(labels, (self._first[namespace][inode],))
            yield labels, (one.drops,), {}
