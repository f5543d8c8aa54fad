"""A probe that is attached to nothing: a test runs its programs itself, on kernel objects of its own.

So what happens, when, on which CPU and how often is exactly what the test says. The programs, their maps and all that
the collector makes of them are the shipped ones. They are loaded as raw tracepoints, which alone the kernel lets be run
like this (BPF_PROG_TEST_RUN). So are programs on functions: the context of fentry and fexit, the arguments and then the
result, is that of a raw tracepoint. For those no kprobes are needed.
"""

from __future__ import annotations

import copy
import os
import select
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from netconsole.probes import catalogue
from netconsole.telemetry import frames
from netconsole_collector.compile import attaching, cache
from netconsole_collector.compile.attaching import _load_program
from netconsole_collector.compile.compiled import AttachTarget, Compiled
from netconsole_collector.compile.job import CompileJob, with_descriptors
from netconsole_collector.compile.worker import Worker
from netconsole_collector.kernel import attach, cpus
from netconsole_collector.kernel import modules as kernel_modules
from netconsole_collector.kernel.bpf_maps import Map
from netconsole_collector.kernel.statistics import StatisticsWindow
from netconsole_collector.names.lookups import Lookups
from netconsole_collector.probe.running import FULL_EVERY, RunningProbe
from netconsole_collector.probe.spec import spec_problem
from tests.support.live.collector_driver import PYTHON
from tests.support.live.contexts import hooks
from tests.support.live.contexts.memory import KernelMemory, prepared

_MADE = catalogue.directories_in(Path(__file__).parent)
"""Probes of the tests alone."""


def _loaded(function: str, code: bytes, kind: str, target: AttachTarget | None, rdonly_cast: int) -> int:
    """A program on a function, too, as that of a raw tracepoint. Its code is that for fentry or fexit by now."""
    if kind in attach.TYPED:
        kind, target = "raw_tracepoint", None
    return _load_program(function, code, kind, target, rdonly_cast)


def _kinds_of(point: attach.Point, _typed: bool = False) -> list[attach.Point]:
    """One kind of program on a function, whichever the manifest names."""
    kinds = {"entry": "fentry", "kprobe": "fentry", "return": "fexit"}
    return [point._replace(kind=kinds.get(point.kind, point.kind))]


def _check(point: attach.Point) -> None:
    if attach.text(point) == hooks.NOWHERE:
        raise attach.CannotAttach("this kernel has no such point")


@contextmanager
def _functions_as_tracepoints() -> Iterator[None]:
    with (
        mock.patch.object(attach, "has_kprobes", lambda: True),
        mock.patch.object(attach, "kinds_of", _kinds_of),
        mock.patch.object(attach, "check", _check),
        mock.patch.object(attaching, "_load_program", _loaded),
        mock.patch.object(kernel_modules, "is_loaded", lambda _: True),
        mock.patch.object(kernel_modules, "text_of", lambda _: (0, 0)),
    ):
        yield


def compiled(
    name: str, kept: Path, functions: hooks.Functions, modules: hooks.Modules, plain: bool
) -> tuple[dict[str, Any], Worker, Compiled]:
    """The probe's programs, compiled or kept from last time."""
    manifest = catalogue.load(_MADE[name]) if name in _MADE else catalogue.shipped(name)
    spec: dict[str, Any] = copy.deepcopy(dict(manifest.raw))
    assert spec_problem(spec) is None
    job = {"spec": spec, "source": manifest.code(), "cpus": cpus.nr_cpu_ids(), "ring": True}
    job.update(plain=plain, by_helpers=plain)
    if modules:
        job.update(btf=hooks.types_with(modules, kept.with_name(f"types of {name}")), modules=sorted(modules))
    worker = Worker(job)
    kept.mkdir(mode=0o700, exist_ok=True)
    folder = cache.open_folder(str(kept))
    file = cache.name_of(job, worker.spec)
    assert folder is not None and file is not None
    try:
        found = cache.find(folder, file)
        if found is None:
            made = CompileJob({**job, "compile_only": True, "keep_in": str(kept)}, PYTHON)
            while not made.advance():
                select.select([made], [], [], 1.0)
            assert made.answer is not None and made.answer["ok"], made.answer
            found = cache.find(folder, file)
        assert found is not None
        worker.spec = hooks.hooked(worker.spec, functions)
        return spec, worker, hooks.bound(found, functions)
    finally:
        os.close(folder)


class UnattachedProbe:
    """One probe and the memory that its programs read. All figures are totals since it was loaded."""

    def __init__(
        self,
        name: str,
        kept: Path,
        room: Mapping[str, int],
        functions: hooks.Functions,
        modules: hooks.Modules,
        plain: bool,
    ) -> None:
        """``room``: maps that have room for so many entries alone. ``functions``, ``modules``: see hooks.py.

        ``plain``: it reads by helpers alone.
        """
        self.memory = KernelMemory()
        with _functions_as_tracepoints():
            spec, worker, programs = compiled(name, kept, functions, modules, plain)
        sizes = {one: like._replace(max_entries=room.get(one, like.max_entries)) for one, like in programs.maps.items()}
        programs = programs._replace(maps=sizes)
        self._attaching = mock.patch.object(attach, "attach", lambda *_, **__: os.open(os.devnull, os.O_RDONLY))
        self._attaching.start()
        try:
            with _functions_as_tracepoints():
                answer = with_descriptors(worker.load(programs), worker.descriptors)
            self._working = {one: os.dup(fd) for one, fd in answer["maps"].items()}
            self.running = RunningProbe(name, spec, answer, Lookups(), time.monotonic_ns())
        except BaseException:
            self._attaching.stop()
            raise
        self._fds = {program.name: program.fd for program in self.running.programs}
        self._statistics = StatisticsWindow(0, 1)
        for fd in self._fds.values():
            self._statistics.add(fd)
        self.bodies: list[dict[str, Any]] = []
        self.set()

    def set(self, mode: str = "summary", /, **knobs: frames.Scalar) -> None:
        """Mode and knobs of the running probe, as the collector changes them; the others get their defaults."""
        self.running.configure(mode, {**self.running.spec.get("knobs", {}), **knobs})

    def rest(self, seen_pct: int = 50) -> None:
        """As the sampler lets it rest: its programs do nothing until :meth:`wake`."""
        self.running.configure(self.running.mode, {"seen_pct": seen_pct})
        for link in self.running.rest():
            link.close()

    def wake(self) -> None:
        """What began before may have ended meanwhile."""
        self.running.wake()

    def run(self, program: str, *arguments: int) -> None:
        """Runs a program once, on the CPU where this thread is."""
        self.prepare(program, *arguments)()

    def prepare(self, program: str, *arguments: int) -> Callable[[], int]:
        """The same as a call, which is quicker where there are many."""
        return prepared(self._fds[program], *arguments)

    def map(self, working_memory: str) -> Map:
        """Of the program's own."""
        return Map(self._working[working_memory])

    def write(self, working_memory: str, value: bytes, number: int = 0) -> None:
        """Into an element of an array of the program's own, on all CPUs."""
        own = self.map(working_memory)
        own.set(struct.pack("=I", number), value.ljust(own.slot_bytes, b"\0") * len(own.cpus))

    def read(self) -> None:
        """Reads everything, as at the end of an interval in which all rows are sent."""
        self.running._readings += -self.running._readings % FULL_EVERY
        self.bodies = self.running.read(self._statistics, time.monotonic_ns(), 0)

    def counters(self) -> dict[str, int]:
        values = next(one["values"] for one in self.bodies if one["kind"] == "counters")
        return {name: value["total"] for name, value in values.items()}

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Rows of the last reading that have counted: labels, totals and gauges in one."""
        (found,) = [one for one in self.bodies if one["kind"] == "table" and one["name"] == table] or [{"rows": []}]
        return [
            {**row["labels"], **{name: one["total"] for name, one in row["counts"].items()}, **row.get("gauges", {})}
            for row in found["rows"]
            if any(one["total"] for one in row["counts"].values())
        ]

    def row(self, table: str) -> dict[str, Any]:
        """The only row."""
        (row,) = self.rows(table)
        return row

    def histograms(self, name: str) -> list[dict[str, Any]]:
        """Labels and totals of the last reading."""
        found = [one for one in self.bodies if one["kind"] == "histogram" and one["name"] == name]
        return [{**one["labels"], **one["total"]} for one in found]

    def events(self) -> list[dict[str, Any]]:
        return [one["fields"] for one in self.bodies if one["kind"] == "event"]

    def records(self, name: str) -> list[dict[str, Any]]:
        """Those of the last reading, which has what is new since the one before."""
        (found,) = [one for one in self.bodies if one["kind"] == "records" and one["name"] == name]
        return [dict(zip(found["columns"], one, strict=True)) for one in found["records"]]

    def ledger(self) -> dict[str, int]:
        """Entries that are not 0, and those of events."""
        cost = self.bodies[-1]
        found = {name: one["total"] for name, one in {**cost["ledger"], **cost["events"]}.items()}
        return {name: total for name, total in found.items() if total}

    def close(self) -> None:
        for fd in self._working.values():
            os.close(fd)
        self._attaching.stop()
        self.running.close()
        self.memory.close()


@contextmanager
def on_cpu(number: int) -> Iterator[None]:
    """This thread, on that CPU alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {number})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
