"""ovs_pmd: the threads of ovs-vswitchd that forward packets in user space (DPDK, netdev), and the queues they poll."""

from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from netconsole_collector.primitives.here import HERE, Here
from netconsole_collector.sources.base import (
    Json,
    KernelSource,
    RowLabels,
    RowMaker,
    SourceError,
    SourceReading,
    SourceRow,
)
from netconsole_collector.sources.ovs.pmd_texts import coverage_in, performance_in, rxqs_in, statistics_in
from netconsole_collector.sources.ovs.pmd_threads import PmdDatapath, PmdThreads
from netconsole_collector.sources.ovs.polled_ports import PolledPorts
from netconsole_collector.sources.ovs.scheduled import ThreadSchedule
from netconsole_collector.sources.ovs.trouble import MEANINGS
from netconsole_collector.sources.ovs.unixctl import LateAnswer, Refused, Unixctl, UnixctlError, directories
from netconsole_collector.sources.ovs.vswitchd import USERSPACE, Vswitchd, revalidation_in
from netconsole_collector.statuses import status

MAX_DATAPATHS = 4
MAX_RXQS = 4096
MAX_COUNTERS = 64
ASKED_EVERY_NS = 900000000
"""It is asked once a second, however short the intervals are."""
WINDOW = ("-secs", "5")
"""Of the usage of queues, which pmd-rxq-show takes from 3.1 on. Else it is that of a minute."""
_MINUTE_NS = 60 * 1000000000
_NAME = "ovs_pmd"
_NO_THREAD = "ovs-vswitchd has no PMD thread: it forwards in the kernel, or has no port that is polled"
_WAY_OUT = "OVS_RUNDIR names another directory of ovs-vswitchd's sockets"
_UNKNOWN_COMMAND = "is not a valid command"


class _PmdAnswers(NamedTuple):
    datapaths: Tuple[PmdDatapath, ...]
    coverage: Mapping[str, int]

    @property
    def has_pmd(self) -> bool:
        return any(thread.core is not None for one in self.datapaths for thread in one.threads)


class OvsPmd(KernelSource):
    """See the module."""

    def __init__(self, host: Here = HERE, where: Optional[Sequence[str]] = None) -> None:
        where = directories() if where is None else where
        self._vswitchd = Vswitchd(where, host)
        self._ports = PolledPorts(where, host)
        self._why = ""
        self._unknown: Set[Tuple[Optional[int], str]] = set()
        """Commands that a process does not know."""
        self._threads = PmdThreads(ThreadSchedule(host))
        self._set_back = 0
        self._rxq_rows = RowMaker((), MAX_RXQS)
        self._trouble_rows = RowMaker(("count",), MAX_COUNTERS)
        self._troubles: Optional[Set[str]] = None
        self._assigned: Dict[str, Tuple[object, int]] = {}
        """By datapath: which thread polls which queue, and since when."""
        self._asked_ns: Optional[int] = None
        self._is_empty = False

    def open(self) -> None:
        """Raises SourceError where no ovs-vswitchd runs."""
        try:
            self._vswitchd.asked(lambda unixctl: unixctl.ask("upcall/show"))
        except UnixctlError as error:
            if self._vswitchd.pid is None:
                raise SourceError(str(error), _WAY_OUT, "unsupported") from None

    def finds_any(self) -> bool:
        """Whether it has a PMD thread."""
        try:
            return self._vswitchd.asked(self._ask).has_pmd
        except UnixctlError:
            return False

    def read(self, reading: SourceReading) -> List[Json]:
        """Threads, queues, and what went wrong. Raises SourceError where it does not answer, or has no PMD thread."""
        is_early = self._asked_ns is not None and 0 <= reading.mono_ns - self._asked_ns < ASKED_EVERY_NS
        if is_early and not reading.is_whole:
            return []
        try:
            said = self._vswitchd.asked(self._ask)
        except LateAnswer:
            return []  # what has been counted meanwhile is of the next reading
        except UnixctlError as error:
            raise SourceError(str(error)) from None
        if not said.has_pmd and self._is_empty:
            raise SourceError(_NO_THREAD, state="unsupported")
        self._asked_ns = reading.mono_ns
        threads = self._threads.rows(self._vswitchd.pid or 0, said.datapaths)
        ports = self._ports.rows(reading.interval_ns, reading.is_whole)
        frames = [
            *self._status(),
            reading.table(_NAME, "threads", threads),
            reading.table(_NAME, "ports", ports),
            reading.table(_NAME, "rxqs", self._rxq_rows.rows(self._rxqs(said.datapaths, reading.mono_ns))),
            reading.table(_NAME, "trouble", self._trouble_rows.rows(self._trouble(said.coverage))),
        ]
        set_back, self._set_back = self._set_back, self._threads.set_back
        if self._set_back != set_back:
            frames.append(reading.ledger(_NAME, {"set_back": (self._set_back - set_back, self._set_back)}))
        self._is_empty = not said.has_pmd and threads[1]
        return frames

    def close(self) -> None:
        """Close the connection."""
        self._vswitchd.close()

    def _status(self) -> List[Json]:
        if self._ports.why == self._why:
            return []
        self._why = self._ports.why
        return [status(_NAME, "degraded" if self._why else "attached", self.mode, {}, self._why or None)]

    # ---- asking ----

    def _ask(self, unixctl: Unixctl) -> _PmdAnswers:
        names = [name.partition("@") for name in revalidation_in(unixctl.ask("upcall/show"))]
        userspace = [name for kind, _, name in names if kind == USERSPACE][:MAX_DATAPATHS]
        datapaths = tuple(self._datapath(unixctl, name) for name in userspace)
        return _PmdAnswers(datapaths, coverage_in(self._answer(unixctl, "coverage/show")) if datapaths else {})

    def _datapath(self, unixctl: Unixctl, name: str) -> PmdDatapath:
        shown = self._answer(unixctl, "dpif-netdev/pmd-perf-show", name)
        performance = performance_in(shown)
        if shown.strip() and not performance:
            raise UnixctlError("dpif-netdev/pmd-perf-show: this version of netconsole cannot read the answer")
        statistics = statistics_in(self._answer(unixctl, "dpif-netdev/pmd-stats-show", name))
        rxqs = self._answer(unixctl, "dpif-netdev/pmd-rxq-show", *WINDOW, name)
        is_window = bool(rxqs)
        if not is_window:
            rxqs = self._answer(unixctl, "dpif-netdev/pmd-rxq-show", name)
        if rxqs and not is_window:
            self._unknown.add(self._command("dpif-netdev/pmd-rxq-show", *WINDOW))
        return PmdDatapath(name, performance, statistics, rxqs_in(rxqs), is_window)

    def _answer(self, unixctl: Unixctl, command: str, *arguments: str) -> str:
        """Nothing where it refuses. What it does not know is not asked again. Raises UnixctlError."""
        known = self._command(command, *arguments[:-1])
        if known in self._unknown:
            return ""
        try:
            return unixctl.ask(command, *arguments)
        except Refused as error:
            if _UNKNOWN_COMMAND in str(error):
                self._unknown.add(known)
            return ""

    def _command(self, *words: str) -> Tuple[Optional[int], str]:
        return self._vswitchd.pid, " ".join(words)

    # ---- rows ----

    def _rxqs(self, datapaths: Sequence[PmdDatapath], now_ns: int) -> Iterator[SourceRow]:
        numa = self._ports.numa()
        for datapath in datapaths:
            queues = [one for polled in datapath.polled.values() for one in polled.rxqs]
            assigned = {(one.thread, one.port, one.queue) for one in queues}
            known, since_ns = self._assigned.get(datapath.name, (None, now_ns))
            if assigned != known:
                self._assigned[datapath.name], since_ns = (assigned, now_ns), now_ns
            # The minute is divided by 60 s even where it has only begun.
            is_measured = datapath.is_window or now_ns - since_ns >= _MINUTE_NS
            for one in queues:
                yield (
                    {"datapath": datapath.name, "port": one.port, "queue": one.queue},
                    (),
                    {
                        "core": one.thread.core,
                        "numa": one.thread.numa,
                        "usage_pct": one.usage_pct if is_measured else None,
                        "enabled": None if one.enabled is None else int(one.enabled),
                        "isolated": int(one.isolated),
                        "remote": int(numa[one.port] != one.thread.numa) if one.port in numa else None,
                    },
                )

    def _trouble(self, coverage: Mapping[str, int]) -> Iterator[SourceRow]:
        """A counter is told of when it has counted something: one that is new was 0 at the reading before."""
        found = [name for name in MEANINGS if name in coverage]
        for name in found:
            labels: RowLabels = {"counter": name, "meaning": MEANINGS[name]}
            if self._troubles is not None and name not in self._troubles:
                self._trouble_rows.begin(labels, (0,))
            yield labels, (coverage[name],), {}
        self._troubles = set(found)
