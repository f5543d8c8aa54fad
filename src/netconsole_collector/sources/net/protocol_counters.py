"""protocol_counters: what the kernel's protocols count as lost, in every network namespace with a process or a name.

It reads /proc/net/snmp, netstat, snmp6, sctp/snmp, xfrm_stat and stat/nf_conntrack. Which counters mean a loss,
and what each means, says protocol_losses. Counters are named as nstat(8) names them; those of UNANSWERED are made here.
"""

import errno
import os
from typing import Dict, Iterator, List, Optional, Set, Tuple, Union

from netconsole_collector.primitives.here import HERE, HOST_NETNS, NAMED_NETNS, Here
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
from netconsole_collector.sources.net.overruns import Overruns
from netconsole_collector.sources.net.protocol_losses import MEANINGS, UNANSWERED
from netconsole_collector.sources.net.unread import SIGNS, UnreadSockets
from netconsole_collector.statuses import status

PAIRED = ("snmp", "netstat")
"""A line of names and a line of values for each protocol (net/ipv4/proc.c)."""
SINGLE = ("snmp6", "sctp/snmp", "xfrm_stat")
"""A name and a value in each line."""
CONNTRACK = "stat/nf_conntrack"
"""A line of names, and one of hexadecimal values for each CPU (net/netfilter/nf_conntrack_standalone.c)."""
FILES = (*PAIRED, *SINGLE, CONNTRACK)
CONNTRACK_LIMIT = "/proc/sys/net/netfilter/nf_conntrack_max"
"""Of entries, in each namespace; one limit for all of them."""
ENTRIES = "Conntrackentries"
_PROBE = "protocol_counters"
Files = Dict[str, bytes]
"""Those of FILES that a namespace has, by name."""
MAX_NAMESPACES = 128
MAX_ROWS = 32768
SEARCH_EVERY = 10
"""Intervals between two searches for namespaces."""
_NAMES = {name: name for name in (*MEANINGS, *SIGNS, ENTRIES, *(one for pair in UNANSWERED.values() for one in pair))}
"""So there is one copy of each name."""
YOUNG_NS = 2000000000
"""A directory of names that changed this recently is read again."""


def _is_whole(files: Union[Files, OSError]) -> bool:
    return not isinstance(files, OSError) and PAIRED[0] in files


def parse_paired(text: str) -> Iterator[Tuple[str, int]]:
    """``TcpExt: SyncookiesSent …`` and ``TcpExt: 0 …``: TcpExtSyncookiesSent. Raises ValueError."""
    lines = text.splitlines()
    for names, values in zip(lines[::2], [*lines[1::2], ""]):
        (protocol, _, heads), (of_values, _, numbers) = names.partition(":"), values.partition(":")
        if protocol != of_values or len(heads.split()) != len(numbers.split()):
            raise ValueError(names[:40])
        for name, value in zip(heads.split(), numbers.split()):
            yield protocol + name, int(value)


def parse_single(text: str) -> Iterator[Tuple[str, int]]:
    """``Ip6InDiscards 0``. Raises ValueError."""
    for line in text.splitlines():
        name, value = line.split()
        yield name, int(value)


def parse_conntrack(text: str) -> Iterator[Tuple[str, int]]:
    """Sums over the CPUs, named Conntrackdrop. The number of entries is the same in each line. Raises ValueError."""
    heads, *cpus = (line.split() for line in text.splitlines())
    for at, name in enumerate(heads):
        values = [int(line[at], 16) for line in cpus if at < len(line)]
        yield "Conntrack" + name, max(values, default=0) if name == "entries" else sum(values)


def _counters(files: Files) -> Dict[str, int]:
    """Raises OSError and ValueError."""
    if PAIRED[0] not in files:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    found: Dict[str, int] = {}
    for parse, names in ((parse_paired, PAIRED), (parse_single, SINGLE), (parse_conntrack, (CONNTRACK,))):
        for name in names:
            if name in files:  # else this kernel has no such protocol
                told = parse(files[name].decode("ascii"))
                found.update((_NAMES[counter], value) for counter, value in told if counter in _NAMES)
    for name, (came, answered) in UNANSWERED.items():
        found[name] = max(0, found.pop(came, 0) - found.pop(answered, 0))
    return found


class ProtocolCounters(KernelSource):
    """See the module."""

    def __init__(self, host: Here = HERE) -> None:
        self._host = host
        self._rows = RowMaker(("count",), MAX_ROWS)
        self._tracking = RowMaker((), MAX_NAMESPACES + 1)
        self._unread = UnreadSockets(host)
        self._overruns = Overruns(host)
        self._entries: Dict[int, int] = {}
        self._own = 0
        self._pids: Dict[int, int] = {}
        """A process of each namespace that is read; of one without, 0: it is read by its name."""
        self._paths: Dict[int, str] = {}
        self._names: Dict[int, str] = {}
        self._called: Dict[int, Set[str]] = {}
        """All names of each namespace that has one."""
        self._changed_ns: Optional[int] = None
        self._known: Optional[Set[int]] = None
        """The namespaces of the last search."""
        self._fresh: Set[int] = set()
        """Namespaces that have just been made: they have counted from 0 since."""
        self._made_ns: Dict[int, int] = {}
        """When they were made at the earliest, by the clock of the readings, until what they have counted is told."""
        self._clock_ns = 0
        """Of the readings: since the first one."""
        self._may_enter = True
        self._found_late = 0
        self._search_in = 0
        self._pace = Pace()
        """Of the other namespaces: the own one is read every time."""
        self._since_ns = 0
        """Since the other namespaces were read last."""
        self._first: Dict[int, Dict[str, int]] = {}
        """The counters of the first reading, by namespace."""
        self._moved: Dict[int, Set[str]] = {}
        self._last: Dict[int, Dict[str, int]] = {}
        self._contents: Dict[int, int] = {}
        """A hash of what the files of a namespace had in them."""
        self._left_out = 0

    def open(self) -> None:
        """Raises SourceError when the own counters cannot be read."""
        try:
            self._own = self._host.status("/proc/self/ns/net").inode
            _counters(self._own_files())
        except OSError as error:
            raise SourceError(f"/proc/net: {error.strerror or error}") from None

    def read(self, reading: SourceReading) -> List[Json]:
        """One row per counter that has moved since the first reading."""
        try:
            self._take(self._own, self._own_files())
        except OSError as error:
            raise SourceError(f"/proc/net: {error.strerror or error}") from None
        except ValueError:
            raise SourceError("/proc/net: this version of netconsole cannot read its layout") from None
        late = self._found_late
        self._clock_ns += reading.interval_ns
        said = self._search(reading)
        if self._found_late:
            said.append(reading.ledger(_PROBE, {"found_late": (self._found_late - late, self._found_late)}))
        late_ns, young_ns = self._read_others(reading)
        rows, full, omitted = self._rows.rows(self._readings())
        moved = [row for row in rows if row["counts"]["count"]["total"]]
        own, ways = self._names.get(self._own, str(self._own)), self._ways()
        for row in moved if late_ns or young_ns else ():
            of_row = young_ns.get(row["labels"]["netns"], late_ns)
            if of_row and row["labels"]["netns"] != own:
                row["interval_ns"] = of_row
        return [
            *said,
            reading.table(_PROBE, "conntrack", self._tracking.rows(self._tables())),
            *self._unread.table(_PROBE, reading, ways, self._names),
            *self._overruns.table(_PROBE, reading, self._own, ways, self._names),
            reading.table(_PROBE, "counters", (moved, full, omitted)),
        ]

    def _tables(self) -> Iterator[SourceRow]:
        """How full conntrack is, in each namespace that has had a connection."""
        if not self._entries:
            return
        try:
            limit = int(self._host.read(CONNTRACK_LIMIT))
        except (OSError, ValueError):
            limit = 0
        for inode, entries in self._entries.items():
            full_pct = round(100.0 * entries / limit, 1) if limit else None  # 0: there is no limit
            gauges = {"entries": entries, "limit": limit or None, "full_pct": full_pct}
            yield {"netns": self._names.get(inode, str(inode))}, (), gauges

    def _take(self, inode: int, files: Files) -> None:
        """Raises OSError and ValueError."""
        contents = hash(tuple(files.values()))
        if files and self._contents.get(inode) == contents:
            return  # they are as they were, as most are
        counters = _counters(files)
        entries = counters.pop(ENTRIES, 0)
        self._unread.counted(inode, [counters.pop(name, 0) for name in SIGNS])
        if inode in self._fresh:  # the next reading has what it has counted since
            self._fresh.discard(inode)
            counters = dict.fromkeys(counters, 0)
        else:
            self._contents[inode] = contents
        before = self._last.get(inode)
        if before:
            for name in UNANSWERED:  # programs that answer pings, too, would make it fall
                counters[name] = max(counters[name], before[name])
        self._last[inode] = before if counters == before else counters  # most stand still: one copy is enough
        self._first.setdefault(inode, self._last[inode])
        if entries or inode in self._entries:
            self._entries[inode] = entries

    def _ways(self) -> Dict[int, str]:
        """What leads to each namespace that is read; "" to the own one."""
        ways = {inode: f"/proc/{pid}/ns/net" if pid else self._paths.get(inode) for inode, pid in self._pids.items()}
        return {self._own: "", **{inode: way for inode, way in ways.items() if way is not None}}

    def _own_files(self) -> Files:
        return self._host.read_each("/proc/net", FILES)

    def _readings(self) -> Iterator[SourceRow]:
        """Of those that have moved: a host with many namespaces has thousands that never do."""
        for inode, counters in self._last.items():
            first, moved = self._first[inode], self._moved.setdefault(inode, set())
            netns = self._names.get(inode, str(inode))
            for name, value in counters.items():
                if name not in moved and value == first.get(name, value):
                    continue
                kind, meaning = MEANINGS[name]
                labels: RowLabels = {"counter": name, "class": kind, "netns": netns, "meaning": meaning}
                if name not in moved:
                    moved.add(name)
                    self._rows.begin(labels, (first[name],))
                yield labels, (value,), {}

    def _read_others(self, reading: SourceReading) -> Tuple[Optional[int], Dict[str, int]]:
        """Returns the time since they were read last, where that is longer than the interval.

        And by name the age of those that have counted since they were made.
        """
        if not self._pace.is_due(reading.is_whole):
            self._since_ns += reading.interval_ns
            return None, {}
        late_ns, self._since_ns = self._since_ns and self._since_ns + reading.interval_ns, 0
        began = self._host.cpu_s()
        found = self._files_of_others()
        young_ns: Dict[str, int] = {}
        for inode, files in found.items():
            try:
                if isinstance(files, OSError):
                    raise files
                if inode in self._made_ns and inode not in self._fresh:
                    young_ns[self._names.get(inode, str(inode))] = self._clock_ns - self._made_ns.pop(inode)
                self._take(inode, files)
            except (OSError, ValueError) as error:
                if self._pids.pop(inode) == 0:
                    self._may_enter = not isinstance(error, PermissionError)
                self._forget(inode)  # the process has just gone; another one may have the namespace
                self._search_in = 0
                if self._known is not None and inode not in self._paths:
                    self._known.discard(inode)  # what it counts until it is found again, nobody reads
        self._pace.took(self._host.cpu_s() - began, reading.interval_ns)
        return late_ns or None, young_ns

    def _files_of_others(self) -> Dict[int, Union[Files, OSError]]:
        """By their processes; of those without one, and of those whose process has just gone, by their names."""
        found: Dict[int, Union[Files, OSError]] = {}
        for inode, pid in self._pids.items():
            if not pid:
                continue
            try:
                found[inode] = self._host.read_each(f"/proc/{pid}/net", FILES)
            except OSError as error:
                found[inode] = error
            if self._may_enter and inode in self._paths and not _is_whole(found[inode]):
                self._pids[inode] = 0
        named = [inode for inode, pid in self._pids.items() if not pid]
        if named:
            read = self._host.read_inside([(self._paths[inode], inode) for inode in named], FILES)
            found.update(zip(named, read))
        return found

    def _forget(self, inode: int) -> None:
        for one in (self._first, self._moved, self._last, self._entries, self._contents):
            one.pop(inode, None)
        self._unread.forget(inode)

    def _search(self, reading: SourceReading) -> List[Json]:
        """Finds the namespaces of processes; a status, when it has changed how many are left out."""
        self._search_in -= 1
        if not self._names_moved(reading) and self._search_in > 0:
            return []
        self._search_in = SEARCH_EVERY
        pids: Dict[int, int] = {}
        try:
            for pid, inode in sorted(self._host.inodes("ns/net").items()):
                pids.setdefault(inode, pid)
        except OSError:
            return []  # no descriptors left, for now
        called = self._called
        self._names = self._named()
        for inode in [one for one, names in called.items() if not names & self._called.get(one, names)]:
            self._forget(inode)  # all its names are gone: it is another namespace, which has got its number
            (self._known or set()).discard(inode)
        if self._may_enter:
            pids = {**dict.fromkeys(self._paths, 0), **pids}
        pids.pop(self._own, None)
        if self._known is not None:
            new = pids.keys() - self._known
            self._fresh |= new & self._paths.keys()
            self._made_ns.update(dict.fromkeys(new & self._paths.keys(), self._clock_ns - reading.interval_ns))
            self._found_late += len(new - self._paths.keys())
        self._known = set(pids)
        left_out = max(0, len(pids) - MAX_NAMESPACES)
        self._pids = dict(list(pids.items())[:MAX_NAMESPACES])
        for inode in self._last.keys() - self._pids.keys() - {self._own}:
            self._forget(inode)
        self._fresh &= self._pids.keys()
        self._made_ns = {inode: at_ns for inode, at_ns in self._made_ns.items() if inode in self._pids}
        if left_out == self._left_out:
            return []
        self._left_out = left_out
        why = f"counters of {left_out} more network namespaces are left out: netconsole reads {MAX_NAMESPACES} at most"
        return [status(_PROBE, "degraded" if left_out else "attached", "summary", {}, why if left_out else None)]

    def _names_moved(self, reading: SourceReading) -> bool:
        """Whether names have come or gone. One is made first, and mounted on its namespace later."""
        try:
            changed_ns = self._host.status(NAMED_NETNS).changed_ns
        except OSError:
            changed_ns = None
        is_young = changed_ns is not None and reading.wall_ns - changed_ns < YOUNG_NS
        moved = changed_ns != self._changed_ns or is_young
        self._changed_ns = changed_ns
        return moved

    def _named(self) -> Dict[int, str]:
        names: Dict[int, str] = {}
        self._paths, self._called = {}, {}
        try:
            device = self._host.status("/proc/self/ns/net").device
            entries = self._host.names(NAMED_NETNS)
            for entry in entries:
                status = self._host.status(f"{NAMED_NETNS}/{entry}")
                if status.device == device:  # else nothing is mounted on it, yet
                    names[status.inode] = entry.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
                    self._paths[status.inode] = f"{NAMED_NETNS}/{entry}"
                    self._called.setdefault(status.inode, set()).add(entry)
        except OSError:
            pass  # there are no names, or one has just gone
        try:
            names[self._host.status(HOST_NETNS).inode] = "host"
        except OSError:
            names[self._own] = "host"
        return names
