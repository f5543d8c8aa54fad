"""One attached probe: its descriptors, its readings as the bodies of frames, its knobs, its end."""

import os
import struct
import time
from typing import Any, Dict, List, Optional, Set, Union

from netconsole_collector.kernel import attach, rings, syscalls, usage
from netconsole_collector.kernel.statistics import Statistics
from netconsole_collector.names.drop_reasons import DropReasons
from netconsole_collector.names.labels import Labels
from netconsole_collector.names.lookups import Lookups
from netconsole_collector.probe import checks, config, decode, device_sets, followers
from netconsole_collector.probe.attached_program import AttachedProgram
from netconsole_collector.probe.cpu_histograms import CpuHistograms
from netconsole_collector.probe.tables import Histograms, Table

RESUMED = "nc_resumed"
"""Map of a probe that is told when programs are attached again which a mode had left out (docs/reference/probes.md)."""
COUNTERS = "counters"
"""The mode in which rows and histograms stand still."""
FULL_EVERY = 10
"""Every tenth table of a probe is full (docs/reference/frames.md)."""
MAX_EVENTS = 2000
"""Events of one interval that are sent; the rest counts as shed."""
_MAPS_KB_EVERY = 10

_LEDGER = (
    "seen",
    "submitted",
    "suppressed",
    "lost",
    "map_full",
    "join_missed",
    "parse_failed",
    "stack_failed",
    "breaker",
    "unlisted",
    "unmeasured",
    "unsampled",
)
"""Slots of nc_ledger: enum nc_ledger_slot of probes/common/netconsole.h."""
_EVENTS = _LEDGER[:4]

Json = Dict[str, Any]


class RunningProbe:
    """Takes over the descriptors of a compile job's answer. Raises LayoutError and OSError: nothing is left then."""

    def __init__(self, name: str, spec: Json, answer: Json, lookups: Lookups, mono_ns: int) -> None:
        self.name = name
        self.spec = spec
        self.answer = answer
        self.mode = "summary"
        self.note: Optional[str] = None
        """Why it is not as its user asked for; part of its status."""
        self.knobs: Json = {}
        self.bound_pct = 0.0
        """What its details may take before the circuit breaker ends them, percent of one core; 0: no bound."""
        self.has_own_bound = False
        """Whether it was loaded with that, and keeps it whatever all others get."""
        self._checks: Optional[checks.Checks] = None
        self._labels = Labels(lookups, DropReasons(answer["names"].get("drop_reason", {})))
        self._never_ran: List[Json] = answer["missing"]
        self._fds: Dict[str, int] = dict(answer["maps"])
        self._maps: Dict[str, syscalls.Map] = {}
        self._tables: List[Table] = []
        self._histograms: List[Union[Histograms, CpuHistograms]] = []
        self._buffers: Dict[str, Any] = {}
        self._layouts: List[Any] = []
        self._totals: Dict[str, int] = {}
        self._unaccounted: Dict[str, int] = {}
        self._shed = self._readings = self._configured = 0
        self._maps_kb: Optional[int] = None
        self._read_ns = mono_ns
        self._read_mode = ""
        entries = {entry["name"]: entry for entry in spec["programs"]}
        self.programs = [
            AttachedProgram(entries[one["name"]], one["attach"], one["program"], one["link"])
            for one in answer["programs"]
        ]
        try:
            self._open(self._labels)
        except Exception:
            self.close()
            raise

    def _open(self, labels: Labels) -> None:
        for name, spec in self.spec.get("tables", {}).items():
            self._tables.append(Table(name, spec, self.map(spec["map"]), labels))
        for name, spec in self.spec.get("histograms", {}).items():
            bpf_map = self.map(spec["map"])
            kind = CpuHistograms if bpf_map.info.type == syscalls.MAP_PERCPU_ARRAY else Histograms
            self._histograms.append(kind(name, spec, bpf_map, labels))
        for name, spec in self.spec.get("events", {}).items():
            map_name = spec["map"]
            if map_name not in self._buffers:
                self._buffers[map_name] = _buffer(self._fd(map_name))
            self._layouts.append((map_name, name, decode.Layout(spec["record"])))
        leaders = {entry["name"] for entry in self.spec["programs"] if entry.get("leads")}
        for program in self.programs:
            if program.name in leaders:
                program.lead(self.map(followers.MAP))
        if self.spec.get("checks"):
            self._checks = checks.Checks(self.spec["checks"], self.map(checks.MAP))

    def _fd(self, name: str) -> int:
        if name not in self._fds:
            raise decode.LayoutError("map {}: named in the manifest, not in the program".format(name))
        return self._fds[name]

    def map(self, name: str) -> syscalls.Map:
        """One of its maps. Raises decode.LayoutError when there is none of that name."""
        if name not in self._maps:
            self._maps[name] = syscalls.Map(self._fd(name))
        return self._maps[name]

    # ---- configuration ----

    def configure(self, mode: str, changes: Json) -> None:
        """Writes knobs and mode to the running probe. Raises config.KnobError, OSError; then all is as before."""
        knobs = config.merged(self.spec.get("knobs", {}), self.knobs, changes)
        modes = self.spec["probe"].get("modes", ["summary"])
        if mode not in modes:
            raise config.KnobError("mode {!r}: this probe has {}".format(mode, " and ".join(modes)))
        raw = config.pack(mode, knobs, len(syscalls.possible()), self.bound_pct)
        self._configured += 1
        sets = device_sets.pack(knobs, self._configured)
        self._attach_for(mode)
        if device_sets.MAP in self._fds:
            self.map(device_sets.MAP).set(bytes(4), sets)
        if "nc_config" in self._fds:
            self.map("nc_config").set(bytes(4), raw)
        if "nc_budget" in self._fds and knobs.get("events_per_s") != self.knobs.get("events_per_s"):
            self.map("nc_budget").set(bytes(4), config.empty_budget(len(syscalls.possible())))
        self.mode, self.knobs = mode, knobs
        self._detach_others(mode)

    def bound(self, percent: float) -> None:
        """Changes what its details may take. Raises OSError."""
        self.bound_pct = percent
        self.configure(self.mode, {})

    def _attach_for(self, mode: str) -> None:
        """Attaches what runs in this mode alone, before that is told: what begins then is seen whole."""
        wanted = [one for one in self.programs if one.modes and mode in one.modes and not (one.runs or one.why_not)]
        for program in wanted:
            try:
                program.attach()
            except attach.NotHere as error:
                program.why_not = str(error)
        if wanted and RESUMED in self._fds:
            self.map(RESUMED).set(bytes(4), struct.pack("=Q", int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e9)))

    def _detach_others(self, mode: str) -> None:
        """What a hook costs is paid when somebody looks. The last one first, as in :meth:`detach`."""
        for program in reversed(self.programs):
            if program.modes and mode not in program.modes:
                program.detach()

    # ---- readings ----

    @property
    def program_fds(self) -> List[int]:
        return [program.fd for program in self.programs]

    def read(self, statistics: Statistics, mono_ns: int, since_ns: int) -> List[Json]:
        """Bodies of all frames of the interval that began at ``since_ns``, or when this probe was read last.

        Counters are read before the tables that they are held against: rows may only be ahead of them.
        """
        full = self._readings % FULL_EVERY == 0
        self._readings += 1
        interval_ns = mono_ns - max(since_ns, self._read_ns)
        self._read_ns = mono_ns
        if self.bound_pct and self.mode == "details" and "nc_attended" in self._fds:
            self.map("nc_attended").set(bytes(4), config.attended(mono_ns))
        modes = {self.mode, self._read_mode or self.mode}  # what ended since the last reading is read once more
        self._read_mode = self.mode
        bodies = [self._counters(interval_ns, modes)]
        ledger = self._ledger()
        has_rows = modes != {COUNTERS}
        for table in self._tables if has_rows else []:
            if not _is_of(self.spec["tables"][table.name], modes):
                continue
            rows = table.read(full)._asdict()
            bodies.append(dict(rows, kind="table", name=table.name, interval_ns=interval_ns))
            self._conserve(table, ledger["map_full"] + ledger["unlisted"])
        for histogram in self._histograms if has_rows else []:
            for one in histogram.read(full):
                one.update(kind="histogram", name=histogram.name, interval_ns=interval_ns, unit=histogram.unit)
                bodies.append(one)
        bodies.extend(self._events())
        bodies.append(self._cost(statistics, ledger, interval_ns, mono_ns))
        for body in bodies:
            body["probe"] = self.name
        return bodies

    def _count(self, name: str, total: int) -> Json:
        """{"delta", "total"} against the last reading of the same name."""
        delta = total - self._totals.get(name, 0)
        self._totals[name] = total
        return {"delta": delta, "total": total}

    def _slot(self, map_name: str, slot: int) -> int:
        value = self.map(map_name).get(struct.pack("=I", slot))
        return sum(struct.unpack("={}Q".format(len(value) // 8), value)) if value else 0

    def _counters(self, interval_ns: int, modes: Set[str]) -> Json:
        values = {
            name: self._count("counter " + name, self._slot("nc_counters", spec["slot"]))
            for name, spec in self.spec.get("counters", {}).items()
            if _is_of(spec, modes)
        }
        return {"kind": "counters", "interval_ns": interval_ns, "values": values}

    def _ledger(self) -> Dict[str, int]:
        if "nc_ledger" not in self._fds:
            return dict.fromkeys(_LEDGER, 0)
        ledger = {name: self._slot("nc_ledger", slot) for slot, name in enumerate(_LEDGER)}
        # What the breaker and the choice of flows keep out is counted once in the kernel, where it has to be cheap.
        for name in ("breaker", "unsampled"):
            ledger["seen"] += ledger[name]
            ledger["suppressed"] += ledger[name]
        return ledger

    def _conserve(self, table: Table, explained: int) -> None:
        """Holds the rows' sum against the counter: what neither is in a row nor known to have found no place in one.

        Packets on their way between the two additions show up too, but not twice: the lower of two readings counts.
        """
        if table.counter is None:
            return
        key = "unaccounted of " + table.name
        short = max(0, self._totals["counter " + table.counter] - table.first_total - explained)
        self._unaccounted[table.name] = max(self._unaccounted.get(table.name, 0), min(short, self._totals.get(key, 0)))
        self._totals[key] = short

    def _events(self) -> List[Json]:
        bodies: List[Json] = []
        for map_name, buffer in self._buffers.items():
            while True:
                records = buffer.read(MAX_EVENTS)
                room = MAX_EVENTS - len(bodies)
                self._shed += max(0, len(records) - room)
                bodies.extend(body for body in (self._event(map_name, raw) for raw in records[:room]) if body)
                if len(records) < MAX_EVENTS:
                    break
        return bodies

    def _event(self, map_name: str, raw: bytes) -> Optional[Json]:
        """The first event of the manifest that has this map and fits: perf records are padded to a multiple of 8."""
        for its_map, name, layout in self._layouts:
            if its_map == map_name and layout.size <= len(raw) < layout.size + 8:
                return {
                    "kind": "event",
                    "name": name,
                    "fields": decode.event_fields(layout.columns, layout.unpack(raw), self._labels),
                }
        self._shed += 1
        return None

    def _cost(self, statistics: Statistics, ledger: Dict[str, int], interval_ns: int, mono_ns: int) -> Json:
        runs, window_ns = statistics.take(self.program_fds, mono_ns)
        missed = [program.missed() for program in self.programs]
        entries = {name: ledger[name] for name in _LEDGER if name not in ("seen", "submitted")}
        entries["missed"] = sum(one or 0 for one in missed)
        entries["evicted"] = sum(table.reader.evicted for table in self._tables)
        entries["evicted"] += sum(histogram.evicted for histogram in self._histograms)
        entries["shed"] = self._shed
        entries["unaccounted"] = sum(self._unaccounted.values())
        if self._readings % _MAPS_KB_EVERY == 1:
            sizes = [usage.map_kb(fd) for fd in self._fds.values()]
            self._maps_kb = None if None in sizes else sum(size or 0 for size in sizes)
        return {
            "kind": "cost",
            "interval_ns": interval_ns,
            "programs": [
                {
                    "name": program.name,
                    "attach": program.place,
                    "run_count": count,
                    "run_time_ns": time_ns,
                    "missed": skipped,
                }
                for program, (count, time_ns), skipped in zip(self.programs, runs, missed)
            ],
            "statistics": None
            if statistics.why_not or not statistics.window_ns
            else {"window_ns": window_ns, "interval_ns": interval_ns, "estimated": window_ns < interval_ns},
            "events": {name: self._count("events " + name, ledger[name]) for name in _EVENTS} if self._buffers else {},
            "ledger": {name: self._count("ledger " + name, total) for name, total in entries.items()},
            "maps_kb": self._maps_kb,
        }

    # ---- checks ----

    def stand_down(self) -> bool:
        """Detaches programs whose check of the kernel's structures has failed; True when there are any."""
        failed = self._checks.newly_failed() if self._checks else []
        for check in failed:
            for program in self.programs:
                if program.name in check["programs"] and program.is_attached:
                    program.detach()
                    program.why_not = check["says"]
        return bool(failed)

    @property
    def missing(self) -> List[Json]:
        """Programs that should run and do not, with what was tried and why it failed."""
        return self._never_ran + [
            {
                "name": one.name,
                "measures": one.measures,
                "tried": [{"point": one.point, "why": one.why_not, "detail": ""}],
            }
            for one in self.programs
            if one.why_not
        ]

    @property
    def attached(self) -> List[str]:
        """The attach points of the programs that run."""
        return [one.point for one in self.programs if one.runs]

    # ---- end ----

    def detach(self) -> None:
        """Stops the programs, the last one first; counters stand still from here on and can be read once more."""
        for program in reversed(self.programs):
            program.detach()

    def close(self) -> None:
        """Gives everything back to the kernel."""
        self.detach()
        for buffer in self._buffers.values():
            buffer.close()
        for program in self.programs:
            program.close()
        for fd in self._fds.values():
            os.close(fd)
        self.programs, self._fds, self._buffers = [], {}, {}


def _is_of(spec: Json, modes: Set[str]) -> bool:
    """Whether a counter or a table is kept in one of these modes; those that name none are kept in all."""
    return not modes.isdisjoint(spec.get("modes", modes))


def _buffer(fd: int) -> Any:
    return rings.RingBuffer(fd) if syscalls.map_info(fd).type == syscalls.MAP_RINGBUF else rings.PerfBuffer(fd)
