"""One attached probe: its configuration, and its readings as the bodies of frames."""

import struct
from typing import Any, Dict, List, Optional, Set, Union

from netconsole_collector.kernel import attach, bpf_maps
from netconsole_collector.kernel.clock import mono_ns
from netconsole_collector.kernel.statistics import StatisticsWindow
from netconsole_collector.names.drop_reasons import DropReasons
from netconsole_collector.names.labels import Labeller
from netconsole_collector.names.lookups import Lookups
from netconsole_collector.probe import checks, config, device_sets, followers
from netconsole_collector.probe.attached_program import AttachedProgram, Released, Unseen
from netconsole_collector.probe.maps import ProbeMaps
from netconsole_collector.probe.reading import examples, ledger, tables
from netconsole_collector.probe.reading.events import EventReader
from netconsole_collector.probe.reading.histograms import CpuHistogramReader, HistogramReader
from netconsole_collector.probe.reading.ranked import RankedReader, SumReader
from netconsole_collector.probe.reading.records import RecordReader
from netconsole_collector.probe.reading.tables import TableReader

RESUMED = "nc_resumed"
"""Map that holds the time when programs were attached again which a mode had left out (docs/reference/probes.md)."""
COUNTERS = "counters"
"""The mode in which rows and histograms stand still."""
FULL_EVERY = 10
"""Every tenth table of a probe is full (docs/reference/frames.md)."""
_MAPS_KB_EVERY = 10
_TAKES, _LITTLE = 3, 100
"""Counters and rows are taken again, so often in all, if more came between than this, and a hundredth of all."""
_NS_PER_MS = 1000000

Json = Dict[str, Any]


class RunningProbe:
    """Takes over the descriptors of a compile job's answer. Raises LayoutError and OSError: nothing is left then."""

    def __init__(self, name: str, spec: Json, answer: Json, lookups: Lookups, began_ns: int) -> None:
        self.name = name
        self.spec = spec
        self.mode = "summary"
        self.note: Optional[str] = None
        """Why it is not as its user asked for; part of its status."""
        self.knobs: Json = {}
        self.bound_pct = 0.0
        """What its details may take before the circuit breaker ends them, percent of one core; 0: no bound."""
        self.has_own_bound = False
        """Whether it was loaded with a bound of its own, and keeps that whatever the others get."""
        entries = {entry["name"]: entry for entry in spec["programs"]}
        self.programs = [
            AttachedProgram(entries[one["name"]], one["attach"], one["program"], one["link"])
            for one in answer["programs"]
        ]
        self._never_ran: List[Json] = answer["missing"]
        self._there = answer["facts"].keys() | {one["name"] for one in answer["programs"]}
        """Attached programs, and what the kernel's types have. What needs anything else is unknown."""
        self._maps = ProbeMaps(answer["maps"])
        self._drop_reasons: Dict[str, str] = answer["names"].get("drop_reason", {})
        self._labels = Labeller(lookups, DropReasons(self._drop_reasons))
        self._tables: List[TableReader] = []
        self._ranked: Dict[str, RankedReader] = {}
        self._wide: List[Union[RankedReader, SumReader]] = []
        self._histograms: List[Union[HistogramReader, CpuHistogramReader]] = []
        self._records: List[RecordReader] = []
        self._events = EventReader(self._labels)
        self._ledger_slots: Optional[bpf_maps.Map] = None
        self._checks: Optional[checks.Checks] = None
        self._totals: Dict[str, int] = {}
        self._taken: Dict[str, int] = {}
        """The counters in the last reading."""
        self._readings = self._configured = 0
        self._maps_kb: Optional[int] = None
        self._read_ns = began_ns
        self._read_mode = ""
        self._is_resting = False
        self._unseen = Unseen()
        self._lost = 0
        try:
            self._open()
        except Exception:
            self.close()
            raise

    def _open(self) -> None:
        for name, spec in self.spec.get("tables", {}).items():
            if "sums" in spec or "most" in spec:
                self._open_ranked(name, spec)
                continue
            kept = self._maps[spec["example"]["map"]] if "example" in spec else None
            near = self._maps[spec["near"]] if "near" in spec else None
            self._tables.append(TableReader(name, spec, self._maps[spec["map"]], self._labels, self._there, kept, near))
        for name, spec in self.spec.get("histograms", {}).items():
            bpf_map = self._maps[spec["map"]]
            is_array = bpf_map.info.type == bpf_maps.MAP_PERCPU_ARRAY
            kind = CpuHistogramReader if is_array else HistogramReader
            self._histograms.append(kind(name, spec, bpf_map, self._labels))
        for name, spec in self.spec.get("records", {}).items():
            self._records.append(RecordReader(name, spec, self._maps[spec["map"]], self._labels))
        for name, spec in self.spec.get("events", {}).items():
            self._events.add(name, spec, self._maps.fd(spec["map"]))
        leaders = {entry["name"] for entry in self.spec["programs"] if entry.get("leads")}
        for program in self.programs:
            if program.name in leaders:
                program.lead(self._maps[followers.MAP])
        if ledger.MAP in self._maps:
            self._ledger_slots = self._maps[ledger.MAP]
        if self.spec.get("checks"):
            self._checks = checks.Checks(self.spec["checks"], self._maps[checks.MAP])

    def _open_ranked(self, name: str, spec: Json) -> None:
        if "sums" in spec:
            of = self.spec["tables"][spec["sums"]]
            self._wide.append(SumReader(name, spec, of, self._ranked[spec["sums"]], self._labels))
            return
        beyond = self._maps[spec["beyond"]] if "beyond" in spec else None
        self._ranked[name] = RankedReader(name, spec, self._maps[spec["map"]], beyond, self._labels)
        self._wide.append(self._ranked[name])

    # ---- configuration ----

    def configure(self, mode: str, changes: Json) -> None:
        """Writes knobs and mode to the running probe. Raises config.KnobError and OSError: then nothing has changed."""
        knobs = config.merged(self.spec.get("knobs", {}), self.knobs, changes)
        modes = self.spec["probe"].get("modes", ["summary"])
        if mode not in modes:
            raise config.KnobError("mode {!r}: this probe has {}".format(mode, " and ".join(modes)))
        raw = config.pack(mode, knobs, self.bound_pct, reasons=self._drop_reasons)
        if self._moves(knobs):
            raise config.KnobError("knob device: it stays at its device; unload the probe, and load it again")
        self._configured += 1
        sets = device_sets.pack(knobs, self._configured)
        if self._is_resting and _may_rest(mode, knobs):
            raw = self._at_rest(knobs)
        else:
            self._attach_for(mode)
        self._maps.write(device_sets.MAP, sets)
        self._maps.write("nc_config", raw)
        if knobs.get("events_per_s") != self.knobs.get("events_per_s"):
            self._maps.write("nc_arrival", config.EMPTY_BUDGET)
        self.mode, self.knobs = mode, knobs
        if self._is_resting and not self.is_sampled:
            self._awake()
        if not self._is_resting:
            self._detach_others(mode)

    def _moves(self, knobs: Json) -> bool:
        """Whether a program is at another device than these knobs want."""
        places = [attach.parse(one.point) for one in self.programs if one.point.startswith(attach.XDP)]
        return any(one.name != knobs.get("device") for one in places)

    def bound(self, percent: float) -> None:
        """Changes what its details may take. Raises OSError."""
        self.bound_pct = percent
        self.configure(self.mode, {})

    def _attach_for(self, mode: str) -> None:
        """Attaches the programs of this mode before the probe knows of the mode: so it sees everything from then on."""
        wanted = self._waiting(mode)
        for program in wanted:
            _attach(program)
        if wanted:
            self._maps.write(RESUMED, struct.pack("=Q", mono_ns()))

    def _waiting(self, mode: str) -> List[AttachedProgram]:
        """Programs that are to be attached in this mode."""
        return [one for one in self.programs if one.is_of(mode) and not (one.runs or one.why_not)]

    def _detach_others(self, mode: str) -> None:
        """Detaches the programs of other modes: each hook costs time. The last one first, as in :meth:`detach`."""
        for program in reversed(self.programs):
            if not program.is_of(mode):
                program.detach()

    # ---- a share of the time (sampler.py) ----

    @property
    def seen_pct(self) -> int:
        """For how many percent of the time its programs are attached."""
        return config.seen_pct(self.knobs)

    @property
    def is_sampled(self) -> bool:
        """Whether it rests now and then."""
        return _may_rest(self.mode, self.knobs)

    @property
    def sampled_fds(self) -> List[int]:
        """The programs that are detached while it rests."""
        return [program.fd for program in self.programs if not self._goes_on(program)]

    def rest(self) -> List[Released]:
        """Ends what its programs do, and gives up their attachments. Closing these detaches them.

        A probe that has the mode counters goes on in it. Raises OSError.
        """
        self._maps.write("nc_config", self._at_rest(self.knobs))
        self._is_resting = True
        self._unseen.begin(mono_ns())
        return [link for one in reversed(self.programs) if not self._goes_on(one) for link in one.release()]

    def attach_next(self) -> bool:
        """Attaches one of them again. It does nothing yet. False: they all are."""
        waiting = self._waiting(self.mode) if self._is_resting else []
        for program in waiting[:1]:
            _attach(program)
        return bool(waiting)

    def wake(self) -> None:
        """From here on, all of its programs see what happens. Raises OSError."""
        if self._is_resting:
            self._maps.write(RESUMED, struct.pack("=Q", mono_ns()))
            raw = config.pack(self.mode, self.knobs, self.bound_pct, reasons=self._drop_reasons)
            self._maps.write("nc_config", raw)
            self._detach_others(self.mode)
            self._awake()

    def _awake(self) -> None:
        self._is_resting = False
        self._unseen.end(mono_ns())

    @property
    def _counts_at_rest(self) -> bool:
        return COUNTERS in self.spec["probe"].get("modes", [])

    def _at_rest(self, knobs: Json) -> bytes:
        """What its programs are told while it rests."""
        return config.pack(COUNTERS, knobs, rests=not self._counts_at_rest, reasons=self._drop_reasons)

    def _goes_on(self, program: AttachedProgram) -> bool:
        """Whether a program stays attached while the probe rests."""
        return program.goes_on or (self._counts_at_rest and program.is_of(COUNTERS))

    # ---- readings ----

    @property
    def program_fds(self) -> List[int]:
        return [program.fd for program in self.programs]

    def read(self, statistics: StatisticsWindow, now_ns: int, since_ns: int, is_whole: bool = False) -> List[Json]:
        """Bodies of all frames of the interval that began at ``since_ns``, or when this probe was read last.

        ``is_whole``: also what is read less often.

        Counters are taken before the tables that they are compared with: only rows may be ahead.
        """
        full = self._readings % FULL_EVERY == 0
        self._readings += 1
        interval_ns = now_ns - max(since_ns, self._read_ns)
        self._read_ns = now_ns
        if self.bound_pct and self.mode == "details":
            self._maps.write("nc_attended", config.attended(now_ns))
        modes = {self.mode, self._read_mode or self.mode}  # a mode that has ended is read once more
        self._read_mode = self.mode
        unseen_ns = self._unseen.take(now_ns)
        seen = {"seen_ns": max(0, interval_ns - unseen_ns)} if unseen_ns else {}
        has_rows = modes != {COUNTERS}
        shown = [one for one in self._tables if has_rows and _is_of(self.spec["tables"][one.name], modes)]
        accounts = self._take([one for one in shown if one.counter is not None])
        bodies = self._counters(interval_ns, modes, seen)
        scatter = self._count("scatter", accounts["scatter"])["delta"]
        for table in shown:
            body = table.read(full)._asdict()
            share = {"one_in": tables.one_in(table.grown, scatter)} if scatter else {}
            bodies.append(dict(body, kind="table", name=table.name, interval_ns=interval_ns, **seen, **share))
            if table.counter is not None:
                counted = self._totals["counter " + table.counter]
                table.conserve(counted, accounts["map_full"] + accounts["unlisted"], accounts["scatter"])
        for ranked in self._ranked.values() if has_rows else []:
            ranked.look(full, now_ns, is_whole)
        for wide in self._wide if has_rows else []:
            bodies.append(dict(wide.read(full)._asdict(), kind="table", name=wide.name, interval_ns=interval_ns))
        self._maps.write(examples.READING, examples.readings(self._readings))
        for histogram in self._histograms if has_rows else []:
            for one in histogram.read(full):
                one.update(kind="histogram", name=histogram.name, interval_ns=interval_ns, unit=histogram.unit, **seen)
                bodies.append(one)
        for record in self._records:
            read = record.read(now_ns, int(self.knobs[record.keep]))
            bodies.append(dict(read, kind="records", name=record.name))
        bodies.extend(self._events.read())
        bodies.append(self._cost(statistics, accounts, interval_ns))
        for body in bodies:
            body["probe"] = self.name
        return bodies

    def _take(self, held: List[TableReader]) -> Dict[str, int]:
        """Takes counters, ledger and the rows that are held against them, close together. Returns the ledger.

        What comes between is in the rows alone. Where it is much, as this process had to wait for a CPU, all are taken
        again. Names for what is in them come later: to find some takes a good part of a second.
        """
        for _ in range(_TAKES):
            self._taken = {name: self._sum_of(name) for name in self.spec.get("counters", {})}
            accounts = ledger.read(self._ledger_slots)
            for table in held:
                table.take()
            if all(self._belongs(str(table.counter)) for table in held):
                break
        return accounts

    def _belongs(self, counter: str) -> bool:
        """Whether little has come since this counter was taken."""
        since = self._taken[counter] - self._totals.get("counter " + counter, 0)
        return self._sum_of(counter) - self._taken[counter] <= max(_LITTLE, since // _LITTLE)

    def _sum_of(self, counter: str) -> int:
        return self._maps["nc_counters"].sum_of(self.spec["counters"][counter]["slot"])

    def _count(self, name: str, total: int) -> Json:
        """{"delta", "total"}: the delta is since the last reading of the same name."""
        delta = total - self._totals.get(name, 0)
        self._totals[name] = total
        return {"delta": delta, "total": total}

    def _counters(self, interval_ns: int, modes: Set[str], seen: Json) -> List[Json]:
        """One body; where the probe has rested a second one, of the counters that did not go on then."""
        specs = {name: spec for name, spec in self.spec.get("counters", {}).items() if _is_of(spec, modes)}
        partial = [name for name, spec in specs.items() if not (self._counts_at_rest and _is_of(spec, {COUNTERS}))]
        if not seen:
            return [self._counters_of(specs, interval_ns)]
        exact = {name: spec for name, spec in specs.items() if name not in partial}
        bodies = [self._counters_of(exact, interval_ns)] if exact else []
        return bodies + [dict(self._counters_of({name: specs[name] for name in partial}, interval_ns), **seen)]

    def _counters_of(self, specs: Json, interval_ns: int) -> Json:
        values = {
            name: self._count("counter " + name, self._taken[name]) for name in specs
        }  # all are read, for tables are held against their counters; what is not known is not told
        values = {name: count for name, count in values.items() if self._there.issuperset(specs[name].get("needs", ()))}
        return {"kind": "counters", "interval_ns": interval_ns, "values": values}

    def _cost(self, statistics: StatisticsWindow, accounts: Dict[str, int], interval_ns: int) -> Json:
        if self._readings % _MAPS_KB_EVERY == 1:
            self._maps_kb = self._maps.memory_kb()
        runs, window_ns = statistics.take(self.program_fds)
        missed = [program.missed() for program in self.programs]
        losses = {name: accounts[name] for name in ledger.LOSSES}
        losses["missed"] = sum(one or 0 for one in missed)
        losses["evicted"] = sum(table.evicted for table in self._tables) + sum(one.evicted for one in self._wide)
        losses["evicted"] += sum(histogram.evicted for histogram in self._histograms)
        losses["shed"] = self._events.shed
        losses["unseen_ms"] = self._unseen.total_ns // _NS_PER_MS
        losses["unaccounted"] = sum(table.unaccounted for table in self._tables)
        events = ledger.EVENTS if self._events else ()
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
            else {
                "window_ns": window_ns,
                "interval_ns": interval_ns,
                "estimated": self.is_sampled or window_ns < interval_ns,
            },
            "events": {name: self._count("events " + name, accounts[name]) for name in events},
            "ledger": {name: self._count("ledger " + name, total) for name, total in losses.items()},
            "maps_kb": self._maps_kb,
        }

    # ---- checks ----

    def detach_failed_checks(self) -> bool:
        """Detaches programs whose check of the kernel's structures has failed. True when there are any.

        Those that are not attached now, as the probe rests or is in another mode, are not attached any more.
        """
        failed = self._checks.newly_failed() if self._checks else []
        for check in failed:
            for program in self.programs:
                if program.name in check["programs"] and program.why_not is None:
                    program.detach()
                    program.why_not = check["says"]
        return bool(failed)

    def has_lost_a_device(self) -> bool:
        """Whether a program has lost its device since the last call; it is detached then. Raises OSError."""
        lost = [(one, why) for one in self.programs for why in [one.why_lost()] if why is not None]
        for program, why in lost:
            program.detach()
            program.why_not = why
        return bool(lost)

    def lost_a_program(self) -> bool:
        """Whether more programs than at the last call could not be attached again."""
        before, self._lost = self._lost, sum(one.why_not is not None for one in self.programs)
        return self._lost > before

    @property
    def missing(self) -> List[Json]:
        """Programs that should run in this mode and do not, with what was tried and why it failed."""
        others = {one["name"] for one in self.spec["programs"] if not _is_of(one, {self.mode})}
        never_ran = [one for one in self._never_ran if one["name"] not in others]
        return never_ran + [
            {
                "name": one.name,
                "measures": one.measures,
                "tried": [{"point": one.point, "why": one.why_not, "detail": ""}],
            }
            for one in self.programs
            if one.why_not and one.is_of(self.mode)
        ]

    @property
    def attached(self) -> List[str]:
        """The attach points of the programs that run."""
        return [one.point for one in self.programs if one.runs or (self._is_resting and self._comes_back(one))]

    def _comes_back(self, program: AttachedProgram) -> bool:
        return program.is_of(self.mode) and not program.why_not

    # ---- end ----

    def detach(self) -> None:
        """Stops the programs, the last one first. Then the counters stand still, and can be read once more."""
        for program in reversed(self.programs):
            program.detach()

    def close(self) -> None:
        """Gives everything back to the kernel."""
        self.detach()
        self._events.close()
        for program in self.programs:
            program.close()
        self._maps.close()
        self.programs = []


def _attach(program: AttachedProgram) -> None:
    try:
        program.attach()
    except attach.CannotAttach as error:
        program.why_not = str(error)


def _may_rest(mode: str, knobs: Json) -> bool:
    return config.seen_pct(knobs) < 100 and mode != COUNTERS


def _is_of(spec: Json, modes: Set[str]) -> bool:
    """Whether a counter, table or program is of one of these modes. One that names no modes is of all."""
    return not modes.isdisjoint(spec.get("modes", modes))
