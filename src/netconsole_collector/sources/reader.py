"""Reads the sources in a thread of their own: one that hangs delays no probe, and does not keep the process alive."""

import queue
import threading
from collections import deque
from typing import Callable, Deque, Dict, List, NamedTuple, Optional, Union

from netconsole_collector.kernel import heap
from netconsole_collector.kernel.clock import mono_ns, wall_ns
from netconsole_collector.kernel.process import WakePipe
from netconsole_collector.sources.base import Json, KernelSource, SourceError, SourceReading
from netconsole_collector.sources.known import APART, KNOWN
from netconsole_collector.statuses import status

MAX_WHY = 1000
SILENT_S = 10.0
"""Of a source whose reading takes so long we say so."""


class Dated(NamedTuple):
    """The body of a frame, and when it was made."""

    body: Json
    mono_ns: int
    wall_ns: int


class _Source(NamedTuple):
    probe: str
    mode: str
    source: KernelSource


class _Start(NamedTuple):
    command: Json
    make: Callable[[], KernelSource]


class _Stop(NamedTuple):
    probe: str


class _Change(NamedTuple):
    probe: str
    mode: str
    why: Optional[str]


class _Due(NamedTuple):
    """A reading is due."""

    is_whole: bool


_Asked = Union[_Start, _Stop, _Change, _Due]


class SourceReader:
    """Of one collector, in whose thread all methods are called. ``fd`` is readable when there is something to take."""

    def __init__(self) -> None:
        self._pipe = WakePipe()
        self.fd = self._pipe.fd
        self.probes: Dict[str, str] = {}
        """The mode of each probe that is read so."""
        self.modes: Dict[str, List[str]] = {}
        """Those that it may have."""
        self._asked: "queue.Queue[_Asked]" = queue.Queue()
        self._told: Deque[Dated] = deque()
        self._figures: Deque[Dated] = deque()
        self._refused: Deque[str] = deque()
        self._failing: Dict[str, str] = {}
        """Why, by probe: each reason is told once."""
        self._asked_ns: Optional[int] = None
        """When the reading was asked for that has not ended."""
        self._thread: Optional[threading.Thread] = None
        # Of the thread alone:
        self._sources: List[_Source] = []
        self._read_ns: Dict[str, int] = {}
        """When the source of each probe was read last, or opened: one after another, so each has its own time."""
        self._current = ""
        """The probe whose source is asked now."""

    @property
    def is_reading(self) -> bool:
        """Whether figures are to come."""
        return self._asked_ns is not None

    def start(self, command: Json) -> None:
        """Reads one more source, by its load command, which is answered when it was opened."""
        spec = command["spec"]["probe"]
        self.probes[command["probe"]] = command.get("mode") or "summary"
        self.modes[command["probe"]] = spec.get("modes", ["summary"])
        self._ask(_Start(command, KNOWN[spec["source"]]))

    def stop(self, probe: str) -> str:
        """Reads it no more. Returns its mode."""
        self._ask(_Stop(probe))
        return self.probes.pop(probe)

    def change(self, probe: str, mode: str, why: Optional[str]) -> None:
        """Reads it in another mode from now on. Its status says so."""
        self.probes[probe] = mode
        self._ask(_Change(probe, mode, why))

    def read(self, now_ns: int, is_whole: bool = False) -> bool:
        """Asks for the figures of this interval. False: the last ones are still to come."""
        if self.is_reading:
            return False
        if self.probes:
            self._asked_ns = now_ns
            self._ask(_Due(is_whole))
        return True

    def told(self, now_ns: int) -> List[Dated]:
        """Answers and changes of state since the last call."""
        self._pipe.drain()
        while self._refused:
            self.probes.pop(self._refused.popleft(), None)
        if self._asked_ns is not None and now_ns - self._asked_ns > SILENT_S * 1e9:
            self._tell_silence()
        return [self._told.popleft() for _ in range(len(self._told))]

    def figures(self) -> List[Dated]:
        """Those that have come since the last call."""
        return [self._figures.popleft() for _ in range(len(self._figures))]

    def _tell_silence(self) -> None:
        """They are read one after another, so one that does not answer keeps all others waiting."""
        for probe, mode in self.probes.items():
            if probe not in self._failing:
                self._failing[probe] = "silent"  # so its next figures say that it is attached
                why = "{} has not answered for {:g} s".format(self._current, SILENT_S)
                self._tell(status(probe, "failed", mode, {}, why))

    def _ask(self, what: "_Asked") -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="sources", daemon=True)
            self._thread.start()
        self._asked.put(what)

    # ---- in the thread ----

    def _run(self) -> None:
        while True:
            asked = self._asked.get()
            if isinstance(asked, _Start):
                self._open(asked)
            elif isinstance(asked, _Stop):
                self._close(asked.probe)
            elif isinstance(asked, _Change):
                self._change(asked)
            else:
                self._read_all(asked.is_whole)
                self._asked_ns = None
            self._pipe.wake()

    def _open(self, asked: _Start) -> None:
        one = _Source(asked.command["probe"], asked.command.get("mode") or "summary", asked.make())
        reply = {"kind": "reply", "id": asked.command["id"], "ok": True, "error": None}
        one.source.mode = one.mode
        self._current = one.probe
        try:
            one.source.open()
        except Exception as error:
            self._refused.append(one.probe)
            self._failed(one, error)
            reply.update(ok=False, error=_sentence(error))
        else:
            self._sources.append(one)
            self._read_ns[one.probe] = mono_ns()
            self._tell(status(one.probe, "attached", one.mode, {}, asked.command.get("why")))
        heap.trim()  # of what its import has taken
        self._tell(reply)

    def _close(self, probe: str) -> None:
        for one in self._sources:
            if one.probe == probe:
                one.source.close()
        self._sources = [one for one in self._sources if one.probe != probe]
        self._failing.pop(probe, None)

    def _change(self, asked: _Change) -> None:
        changed = []
        for one in self._sources:
            if one.probe == asked.probe:
                one.source.mode = asked.mode
                one = one._replace(mode=asked.mode)
                self._tell(status(one.probe, "attached", one.mode, {}, asked.why))
            changed.append(one)
        self._sources = changed

    def _read_all(self, is_whole: bool) -> None:
        for one in self._sources:
            began, wall, before = mono_ns(), wall_ns(), self._read_ns[one.probe]
            reading = SourceReading(max(1, began - before), began, wall, is_whole)
            self._current = one.probe
            try:
                bodies = one.source.read(reading)
            except Exception as error:  # also one that no source expects: the others go on
                if self._failing.get(one.probe) != str(error):
                    self._failing[one.probe] = str(error)
                    self._failed(one, error)
                continue
            if not bodies:
                continue  # nothing is known: its state stays, and its next figures are of this time, too
            if self._failing.pop(one.probe, None) is not None:
                self._tell(status(one.probe, "attached", one.mode, {}))
            # The middle: many namespaces take a while, more when it is busy.
            now = self._read_ns[one.probe] = (began + mono_ns()) // 2
            for body in bodies:
                if "interval_ns" in body:
                    body["interval_ns"] = max(1, now - before)
                self._figures.append(Dated(body, now, wall))

    def _failed(self, one: _Source, error: Exception) -> None:
        state, help = (error.state, error.help) if isinstance(error, SourceError) else ("failed", None)
        self._tell(status(one.probe, state, one.mode, {}, _sentence(error), help))

    def _tell(self, body: Json) -> None:
        self._told.append(Dated(body, mono_ns(), wall_ns()))


def _sentence(error: Exception) -> str:
    text = str(error) if isinstance(error, SourceError) else "{}: {}".format(type(error).__name__, error)
    return text[:MAX_WHY]


class SourceReaders:
    """Of one collector, in whose thread all methods are called: see SourceReader."""

    def __init__(self) -> None:
        self._readers = (SourceReader(), SourceReader())
        self._awaited: List[SourceReader] = []
        """Those that were asked for this interval; what is late by then is of a later one."""

    @property
    def fds(self) -> List[int]:
        """Each is readable when there is something to take."""
        return [one.fd for one in self._readers]

    @property
    def probes(self) -> Dict[str, str]:
        """The mode of each probe that is read so."""
        return {probe: mode for one in self._readers for probe, mode in one.probes.items()}

    @property
    def is_reading(self) -> bool:
        """Whether figures of this interval are to come."""
        return any(one.is_reading for one in self._awaited)

    @property
    def is_idle(self) -> bool:
        """Whether no figures are to come, of no interval."""
        return not any(one.is_reading for one in self._readers)

    def modes(self, probe: str) -> List[str]:
        """Those that it may have."""
        return self._of(probe).modes[probe]

    def start(self, command: Json) -> None:
        self._readers[command["spec"]["probe"]["source"] in APART].start(command)

    def stop(self, probe: str) -> str:
        return self._of(probe).stop(probe)

    def change(self, probe: str, mode: str, why: Optional[str]) -> None:
        self._of(probe).change(probe, mode, why)

    def read(self, now_ns: int, is_whole: bool = False) -> bool:
        """Asks for the figures of this interval. False: some of the last ones are still to come."""
        self._awaited = [one for one in self._readers if one.read(now_ns, is_whole)]
        return len(self._awaited) == len(self._readers)

    def told(self, now_ns: int) -> List[Dated]:
        return [told for one in self._readers for told in one.told(now_ns)]

    def figures(self) -> List[Dated]:
        return [figures for one in self._readers for figures in one.figures()]

    def _of(self, probe: str) -> SourceReader:
        return next(one for one in self._readers if probe in one.probes)
