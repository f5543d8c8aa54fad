"""Reads what ovs-vswitchd says of its PMD threads, as versions 2.5 to 4.0 write it (OVS lib/dpif-netdev*.c)."""

import re
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

MAIN = "main"
"""The thread that forwards for ports without a PMD thread."""

_THREAD = re.compile(r"^(?:pmd thread numa_id (-?\d{1,10}) core_id (\d{1,10})|main thread):\s*$")
_DURATION = re.compile(r"^Measurement duration: (\d{1,12}(?:\.\d{1,6})?) s\s*$")
_FIGURE = re.compile(
    r"^\s{1,8}(?:- )?([A-Za-z][A-Za-z. ()]{0,40}?)\s{0,8}:\s{0,40}(\d{1,20})(?:\s{1,8}\((.{0,80})\))?\s{0,8}$"
)
_OF_PERFORMANCE = {
    "Used TSC cycles": "used_cycles",
    "Cycles": "used_cycles",
    "busy iterations": "busy_iterations",
    "busy": "busy_iterations",
    "Sleep time (us)": "sleep_us",
    "Rx packets": "packets",
    "Datapath passes": "passes",
    "PHWOL hits": "phwol_hits",
    "Simple Match hits": "simple_hits",
    "EMC hits": "emc_hits",
    "SMC hits": "smc_hits",
    "Megaflow hits": "megaflow_hits",
    "Upcalls": "upcalls",
    "Lost upcalls": "lost",
    "Tx packets": "tx_packets",
    "Tx batches": "tx_batches",
}
"""Lines of pmd-perf-show, from 2.10 on; two had other names until 2.11."""
_PER_PACKET = tuple(_OF_PERFORMANCE[name] for name in (
    "Datapath passes", "PHWOL hits", "Simple Match hits", "EMC hits", "SMC hits", "Megaflow hits", "Upcalls",
    "Lost upcalls", "Tx batches",
))  # fmt: skip
"""Those that pmd-perf-show leaves out of a thread to which no packet has come: each is 0 there."""
_OF_STATISTICS = {
    "packets received": "packets",
    "packet recirculations": "recirculations",
    "phwol hits": "phwol_hits",
    "simple match hits": "simple_hits",
    "emc hits": "emc_hits",
    "smc hits": "smc_hits",
    "megaflow hits": "megaflow_hits",
    "miss with success upcall": "upcalls",
    "miss": "upcalls",
    "miss with failed upcall": "lost",
    "lost": "lost",
    "idle cycles": "idle_cycles",
    "polling cycles": "idle_cycles",
    "processing cycles": "busy_cycles",
}
"""Lines of pmd-stats-show, whose names changed in 2.8 and 2.9. Of 4.0 it has the text of pmd-perf-show."""
_LOOKUPS = re.compile(r"([\d.]{1,12}) subtbl lookups/hit")
_UPCALL_TIME = re.compile(r"([\d.]{1,12}) us/upcall")
_RXQ = re.compile(
    r"^\s{1,8}port: (?P<port>\S.{0,255}?)\s{1,255}queue-id:\s{0,8}(?P<queues>\d{1,5}(?: \d{1,5}){0,1023})"
    r"(?:\s{1,8}\((?P<state>enabled|disabled)\))?"
    r"(?:\s{1,8}pmd usage:\s{0,8}(?:(?P<usage>\d{1,3}) %|NOT AVAIL))?\s{0,8}$"
)
_OVERHEAD = re.compile(r"^\s{1,8}overhead:\s{0,8}(\d{1,3}) %\s{0,8}$")
_ISOLATED = re.compile(r"^\s{1,8}isolated\s?:\s{0,8}true\s{0,8}$")
_COVERAGE = re.compile(r"^(\w{1,64}) {1,40}[\d.]{1,20}/sec [^\n]{0,200}total: (\d{1,20})$", re.M)


class ThreadName(NamedTuple):
    """A thread that forwards. ``core`` and ``numa`` are None of the main thread."""

    core: Optional[int]
    numa: Optional[int]


class ThreadFigures(NamedTuple):
    """What was counted since the thread began, or since somebody cleared its statistics.

    ``lookups_per_hit``, ``us_per_upcall``: means of that time; None: not measured.
    """

    duration_ms: Optional[int]
    counts: Mapping[str, int]
    lookups_per_hit: Optional[float] = None
    us_per_upcall: Optional[float] = None


class Rxq(NamedTuple):
    """A receive queue, and the thread that polls it. None: that is not known (now, or by this version)."""

    thread: ThreadName
    port: str
    queue: int
    enabled: Optional[bool]
    usage_pct: Optional[int]
    isolated: bool


class Polled(NamedTuple):
    """The queues of a thread, and what it spends besides them, in percent."""

    rxqs: Tuple[Rxq, ...]
    overhead_pct: Optional[int]

    @property
    def busy_pct(self) -> Optional[int]:
        """All that it spends; None where a part of it is not known."""
        parts = [*(one.usage_pct for one in self.rxqs), self.overhead_pct]
        known = [one for one in parts if one is not None]
        return min(100, sum(known)) if len(known) == len(parts) else None


def _blocks(text: str) -> Iterator[Tuple[ThreadName, Optional[int], List[str]]]:
    """Each thread with its duration in ms, which stands before it, and its lines."""
    name, duration, its = None, None, None  # type: Optional[ThreadName], Optional[int], Optional[int]
    lines: List[str] = []
    for line in text.splitlines():
        heading, measured = _THREAD.match(line), _DURATION.match(line)
        if measured:
            duration = round(float(measured.group(1)) * 1000)
        elif heading:
            if name is not None:
                yield name, its, lines
            core, numa = heading.group(2), heading.group(1)
            name = ThreadName(None, None) if core is None else ThreadName(int(core), int(numa))
            its, duration, lines = duration, None, []
        else:
            lines.append(line)
    if name is not None:
        yield name, its, lines


def performance_in(text: str) -> Dict[ThreadName, ThreadFigures]:
    """``pmd-perf-show``. Histograms and histories behind the figures are passed over."""
    found = {}
    for name, duration, lines in _blocks(text):
        counts: Dict[str, int] = {}
        lookups = upcall_us = None
        for line in lines:
            figure = _FIGURE.match(line)
            if figure is None or figure.group(1) not in _OF_PERFORMANCE:
                continue
            counts.setdefault(_OF_PERFORMANCE[figure.group(1)], int(figure.group(2)))
            more = figure.group(3) or ""
            lookups = _mean(_LOOKUPS, more) if lookups is None else lookups
            upcall_us = _mean(_UPCALL_TIME, more) if upcall_us is None else upcall_us
        if counts.get("packets") == 0:
            counts.update((one, 0) for one in _PER_PACKET if one not in counts)
        if counts:
            found[name] = ThreadFigures(duration, counts, lookups, upcall_us)
    return found


def statistics_in(text: str) -> Dict[ThreadName, Dict[str, int]]:
    """``pmd-stats-show``, which alone has cycles as they are. Empty where it has another text."""
    found = {}
    for name, _, lines in _blocks(text):
        counts: Dict[str, int] = {}
        for line in lines:
            figure = _FIGURE.match(line)
            if figure is not None and figure.group(1) in _OF_STATISTICS:
                counts.setdefault(_OF_STATISTICS[figure.group(1)], int(figure.group(2)))
        if "packets" in counts:
            counts["passes"] = counts["packets"] + counts.pop("recirculations", 0)
        if counts:
            found[name] = counts
    return found


def rxqs_in(text: str) -> Dict[ThreadName, Polled]:
    """``pmd-rxq-show``. Before 2.9 it has all queues of a port in one line, and no usage."""
    found = {}
    for name, _, lines in _blocks(text):
        rxqs: List[Rxq] = []
        overhead = None
        isolated = any(map(_ISOLATED.match, lines))
        for line in lines:
            one, besides = _RXQ.match(line), _OVERHEAD.match(line)
            if besides:
                overhead = int(besides.group(1))
            elif one:
                enabled = None if one["state"] is None else one["state"] == "enabled"
                usage = None if one["usage"] is None else int(one["usage"])
                for queue in one["queues"].split():
                    rxqs.append(Rxq(name, one["port"], int(queue), enabled, usage, isolated))
        found[name] = Polled(tuple(rxqs), overhead)
    return found


def coverage_in(text: str) -> Dict[str, int]:
    """``coverage/show``: the counters that have counted anything."""
    return {name: int(total) for name, total in _COVERAGE.findall(text)}


def _mean(pattern: "re.Pattern[str]", text: str) -> Optional[float]:
    """A mean in the text behind a figure; 0 stands for one that was not measured."""
    known = pattern.search(text)
    try:
        return (float(known.group(1)) or None) if known else None
    except ValueError:
        return None
