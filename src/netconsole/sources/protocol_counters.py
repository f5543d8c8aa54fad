"""protocol_counters: what the kernel's protocols count as lost, in every network namespace that has a process.

It reads /proc/net/snmp, netstat, snmp6, sctp/snmp, xfrm_stat and stat/nf_conntrack. Which counters mean a loss,
and what each means, says netconsole.base.protocol_losses. Counters are named as nstat(8) names them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from netconsole.base.protocol_losses import meanings
from netconsole.host.here import HERE
from netconsole.host.identity import HOST_NETNS, NAMED_NETNS
from netconsole.host.target import Question, Target
from netconsole.sources.base import FrameMaker, RowMaker, SourceError, SourceRow
from netconsole.telemetry.frames import AnyFrame

PAIRED: Final = ("snmp", "netstat")
"""A line of names and a line of values for each protocol (net/ipv4/proc.c)."""
SINGLE: Final = ("snmp6", "sctp/snmp", "xfrm_stat")
"""A name and a value in each line."""
CONNTRACK: Final = "stat/nf_conntrack"
"""A line of names, and one of hexadecimal values for each CPU (net/netfilter/nf_conntrack_standalone.c)."""
CONNTRACK_LIMIT: Final = "/proc/sys/net/netfilter/nf_conntrack_max"
"""Of entries, in each namespace; one limit for all of them."""
ENTRIES: Final = "Conntrackentries"
MAX_NAMESPACES = 128
MAX_ROWS = 32768
SEARCH_EVERY = 10
"""Intervals between two searches for namespaces."""
MAX_SHARE = 0.01
"""Of one core. Where many namespaces take longer, they are read less often; the own one is read every time."""
MAX_EVERY = 60


def parse_paired(text: str) -> Iterator[tuple[str, int]]:
    """``TcpExt: SyncookiesSent …`` and ``TcpExt: 0 …``: TcpExtSyncookiesSent. Raises ValueError."""
    lines = text.splitlines()
    for names, values in zip(lines[::2], lines[1::2], strict=True):
        protocol, _, rest = names.partition(":")
        if not values.startswith(f"{protocol}:"):
            raise ValueError(names[:40])
        for name, value in zip(rest.split(), values.partition(":")[2].split(), strict=True):
            yield protocol + name, int(value)


def parse_single(text: str) -> Iterator[tuple[str, int]]:
    """``Ip6InDiscards 0``. Raises ValueError."""
    for line in text.splitlines():
        name, value = line.split()
        yield name, int(value)


def parse_conntrack(text: str) -> Iterator[tuple[str, int]]:
    """Sums over the CPUs, named Conntrackdrop. The number of entries is the same in each line. Raises ValueError."""
    heads, *cpus = (line.split() for line in text.splitlines())
    for at, name in enumerate(heads):
        values = [int(line[at], 16) for line in cpus if at < len(line)]
        yield "Conntrack" + name, max(values, default=0) if name == "entries" else sum(values)


class ProtocolCounters:
    """See the module."""

    name: ClassVar[str] = "protocol_counters"

    def __init__(self, target: Target = HERE) -> None:
        self._target = target
        self._rows = RowMaker(("count",), MAX_ROWS)
        self._tracking = RowMaker((), MAX_NAMESPACES + 1)
        self._entries: dict[int, int] = {}
        self._meanings = meanings()
        self._own = 0
        self._pids: dict[int, int] = {}
        self._names: dict[int, str] = {}
        self._search_in = 0
        self._wait = 0
        self._last: dict[int, dict[str, int]] = {}
        self._left_out = 0

    def open(self) -> None:
        """Raises SourceError when the own counters cannot be read."""
        try:
            self._own = self._target.status("/proc/self/ns/net").inode
            self._counters("/proc/net")
        except OSError as error:
            raise SourceError(f"/proc/net: {error.strerror or error}") from None

    def read(self, make: FrameMaker) -> list[AnyFrame]:
        """One row per counter that has moved since the first reading."""
        try:
            self._take(self._own, "/proc/net")
        except OSError as error:
            raise SourceError(f"/proc/net: {error.strerror or error}") from None
        except ValueError:
            raise SourceError("/proc/net: this version of netconsole cannot read its layout") from None
        said = self._search(make)
        self._read_others(make)
        rows, full, omitted = self._rows.rows(self._readings())
        moved = [row for row in rows if row.counts["count"].total]
        tracked, tracked_full, tracked_omitted = self._tracking.rows(self._tables())
        return [
            *said,
            make.table(self.name, "conntrack", tracked, tracked_full, tracked_omitted),
            make.table(self.name, "counters", moved, full, omitted),
        ]

    def close(self) -> None:
        """Nothing to release."""

    def _tables(self) -> Iterator[SourceRow]:
        """How full conntrack is, in each namespace that has had a connection."""
        if not self._entries:
            return
        try:
            limit = int(self._target.read(CONNTRACK_LIMIT))
        except (OSError, ValueError):
            limit = 0
        for inode, entries in self._entries.items():
            full_pct = round(100.0 * entries / limit, 1) if limit else None  # 0: there is no limit
            gauges = {"entries": entries, "limit": limit or None, "full_pct": full_pct}
            yield {"netns": self._names.get(inode, str(inode))}, (), gauges

    def _take(self, inode: int, directory: str) -> None:
        counters = self._last[inode] = self._counters(directory)
        entries = counters.pop(ENTRIES, 0)
        if entries or inode in self._entries:
            self._entries[inode] = entries

    def _readings(self) -> Iterator[SourceRow]:
        for inode, counters in self._last.items():
            netns = self._names.get(inode, str(inode))
            for name, value in counters.items():
                kind, meaning = self._meanings[name]
                yield {"counter": name, "class": kind, "netns": netns, "meaning": meaning}, (value,), {}

    def _read_others(self, make: FrameMaker) -> None:
        self._wait -= 1
        if self._wait > 0 and not make.is_whole:
            return
        began = self._target.cpu_s()
        files = (*PAIRED, *SINGLE, CONNTRACK)
        self._target.ahead(
            Question("read", (f"/proc/{pid}/net/{file}",)) for pid in self._pids.values() for file in files
        )
        for inode, pid in list(self._pids.items()):
            try:
                self._take(inode, f"/proc/{pid}/net")
            except (OSError, ValueError):
                del self._pids[inode]  # the process has just gone; another one may have the namespace
                self._last.pop(inode, None)
                self._entries.pop(inode, None)
                self._search_in = 0
        interval_s = max(make.interval_ns / 1e9, 0.001)
        self._wait = min(MAX_EVERY, 1 + int((self._target.cpu_s() - began) / (MAX_SHARE * interval_s)))

    def _counters(self, directory: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for parse, files in ((parse_paired, PAIRED), (parse_single, SINGLE), (parse_conntrack, (CONNTRACK,))):
            for file in files:
                try:
                    text = self._target.read(f"{directory}/{file}").decode("ascii")
                except FileNotFoundError:
                    if file == PAIRED[0]:
                        raise
                    continue  # this kernel has no such protocol
                known = ((name, value) for name, value in parse(text) if name in self._meanings or name == ENTRIES)
                found.update(known)
        return found

    def _search(self, make: FrameMaker) -> list[AnyFrame]:
        """Finds the namespaces of processes; a status, when it has changed how many are left out."""
        self._search_in -= 1
        if self._search_in > 0:
            return []
        self._search_in = SEARCH_EVERY
        pids: dict[int, int] = {}
        try:
            for pid, inode in sorted(self._target.inodes("ns/net").items()):
                pids.setdefault(inode, pid)
        except OSError:
            return []  # no descriptors left, for now
        pids.pop(self._own, None)
        left_out = max(0, len(pids) - MAX_NAMESPACES)
        self._pids = dict(list(pids.items())[:MAX_NAMESPACES])
        for inode in self._last.keys() - self._pids.keys() - {self._own}:
            del self._last[inode]
            self._entries.pop(inode, None)
        self._names = self._named()
        if left_out == self._left_out:
            return []
        self._left_out = left_out
        why = f"counters of {left_out} more network namespaces are left out: netconsole reads {MAX_NAMESPACES} at most"
        return [make.status(self.name, "degraded" if left_out else "attached", "summary", why if left_out else None)]

    def _named(self) -> dict[int, str]:
        names: dict[int, str] = {}
        try:
            entries = self._target.names(NAMED_NETNS)
            self._target.ahead(Question("status", (f"{NAMED_NETNS}/{entry}",)) for entry in entries)
            for entry in entries:
                names[self._target.status(f"{NAMED_NETNS}/{entry}").inode] = entry.encode(
                    "utf-8", "surrogateescape"
                ).decode("utf-8", "backslashreplace")
        except OSError:
            pass  # there are no names, or one has just gone
        try:
            names[self._target.status(HOST_NETNS).inode] = "host"
        except OSError:
            names[self._own] = "host"
        return names
