"""Netlink sockets that lose messages because their program does not read them in time: /proc/net/netlink.

The own namespace is read in every interval, the others in turn: each reading walks all netlink sockets of the host.
"""

import os
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from netconsole_collector.primitives.here import Here
from netconsole_collector.sources.base import Json, RowLabels, RowMaker, SourceReading, SourceRow

FILE = "netlink"
IN_TURN = 3
"""Other namespaces of an interval: 128 of them take three quarters of a minute. Each costs 0.2 ms of CPU."""
MAX_ROWS = 256
_PROTOCOL_AT, _DROPS_AT, _INODE_AT, _COLUMNS = 1, 8, 9, 10
PROTOCOLS = {
    0: "route", 4: "sock_diag", 5: "nflog", 6: "xfrm", 7: "selinux", 9: "audit", 10: "fib_lookup",
    11: "connector", 12: "netfilter", 15: "kobject_uevent", 16: "generic", 20: "rdma",
}  # fmt: skip
_SocketKey = Tuple[int, int]
"""Namespace and inode."""


class NetlinkSocket(NamedTuple):
    """``drops``: messages that found no room since it was made."""

    inode: int
    protocol: str
    drops: int


def parse(content: bytes) -> Iterator[NetlinkSocket]:
    """All sockets of a namespace. Raises ValueError."""
    for line in content.splitlines()[1:]:
        words = line.split()
        if len(words) < _COLUMNS:
            raise ValueError(line[:40])
        protocol, drops, inode = (int(words[at]) for at in (_PROTOCOL_AT, _DROPS_AT, _INODE_AT))
        yield NetlinkSocket(inode, PROTOCOLS.get(protocol, str(protocol)), drops)


class NetlinkDrops:
    """Of all namespaces that somebody tells of. Used from one thread."""

    def __init__(self, host: Here) -> None:
        self._host = host
        self._rows = RowMaker(("drops",), MAX_ROWS)
        self._first: Dict[int, Dict[int, int]] = {}
        self._last: Dict[int, Dict[int, NetlinkSocket]] = {}
        """By namespace and inode."""
        self._owners: Dict[int, Optional[str]] = {}
        self._told: Set[_SocketKey] = set()
        self._older: Optional[Set[int]] = None
        """Namespaces that were there at the start: what their sockets had lost before nobody watched."""
        self._read_ns: Dict[int, int] = {}
        self._turn = 0

    def table(
        self, probe: str, reading: SourceReading, own: int, paths: Mapping[int, str], names: Mapping[int, str]
    ) -> List[Json]:
        """A row for each socket that has lost something since it was seen first; before one has: nothing."""
        self._older = set(paths) if self._older is None else self._older
        looked = self._looked(own, paths, reading.is_whole)
        late: Dict[str, int] = {}
        for namespace in looked:
            since_ns = reading.mono_ns - self._read_ns.get(namespace, reading.mono_ns - reading.interval_ns)
            self._read_ns[namespace] = reading.mono_ns
            if namespace != own and since_ns > reading.interval_ns:
                late[names.get(namespace, str(namespace))] = since_ns
        for gone in self._last.keys() - paths.keys():
            del self._last[gone], self._first[gone]
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
        return [reading.table(probe, "netlink", (rows, full, omitted))]

    def _looked(self, own: int, paths: Mapping[int, str], is_whole: bool) -> List[int]:
        """The namespaces that were read."""
        others = sorted(paths.keys() - {own})
        count = len(others) if is_whole else min(IN_TURN, len(others))
        chosen = [others[(self._turn + number) % len(others)] for number in range(count)]
        self._turn += count
        there = [(paths[one], one) for one in chosen]
        contents = dict(zip(chosen, self._host.read_inside(there, (FILE,)) if there else ()))
        contents[own] = self._host.read_each("/proc/net", (FILE,))
        read = []
        for namespace, files in contents.items():
            if isinstance(files, OSError) or FILE not in files:
                continue
            try:
                sockets = list(parse(files[FILE]))
            except ValueError:
                continue  # a kernel with another layout
            read.append(namespace)
            self._take(namespace, sockets)
        return read

    def _take(self, namespace: int, sockets: List[NetlinkSocket]) -> None:
        """Most have lost nothing, and nothing of them is kept."""
        is_new = namespace not in self._read_ns and self._older is not None and namespace in self._older
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
                "protocol": one.protocol,
                "inode": inode,
                "netns": names.get(namespace, str(namespace)),
            }
            if (namespace, inode) not in self._told:
                self._told.add((namespace, inode))
                self._rows.begin(labels, (self._first[namespace][inode],))
            yield labels, (one.drops,), {}
