"""Runs the sources in one thread, once per interval. A source that fails says why, and the others go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import TypeAlias, cast

from netconsole.base.errors import HostLost
from netconsole.base.figure import safe
from netconsole.host.target import Target
from netconsole.profile.scope import RunScope
from netconsole.sources.base import FrameMaker, HasModes, Source
from netconsole.sources.own_cost import OwnCost
from netconsole.telemetry import frames
from netconsole.telemetry.frames import AnyFrame, Mode, ProbeStatus, Status
from netconsole.telemetry.request import ProbeRequest
from netconsole_collector.primitives.here import HERE
from netconsole_collector.sources.base import SourceError

FACTORIES: dict[str, Callable[[Target], Source]] = {
    "self": OwnCost,
}
"""By the name that a manifest gives as its source. All others are read by the collector."""

MAX_WHY = 1000
NAME_EVERY = 10
"""Intervals between two looks at the names of the scope's network namespace."""
Deliver: TypeAlias = Callable[[list[AnyFrame]], None]


class SourceRunner:
    """Reads the sources of these probes in every interval, and delivers the frames of whole intervals."""

    def __init__(
        self,
        requests: Sequence[ProbeRequest],
        interval_s: float,
        deliver: Deliver,
        numbers: Iterator[int],
        target: Target = HERE,
        scope: RunScope | None = None,
        namespace_names: Callable[[int], tuple[set[str], bool]] | None = None,
    ) -> None:
        """``scope`` is told what its network namespace is called, as ``namespace_names`` knows it."""
        self._target = target
        self._scope = scope
        self._namespace_names = namespace_names
        self._name_in = 0
        self._interval_s = interval_s
        self._deliver = deliver
        self._make = FrameMaker(numbers, target)
        self._own = OwnCost()
        self._sources = [(request, self._made(request)) for request in requests if request.source in FACTORIES]
        self._more: SimpleQueue[ProbeRequest] = SimpleQueue()
        self._failing: dict[str, str] = {}
        self._whole: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sources", daemon=True)

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def add(self, request: ProbeRequest) -> None:
        """Read one more source from the next interval on. Its status says whether that worked."""
        self._more.put(request)

    def read_whole(self, then: Callable[[], None]) -> None:
        """Read everything once in the next interval, also what is read less often. ``then``: it was delivered."""
        self._whole.put(then)

    def set_mode(self, name: str, mode: Mode) -> bool:
        """Change the mode of a source from its next reading on, and say so in its status. False: it has only one."""
        for request, source in self._sources:
            if request.name == name and isinstance(source, HasModes):
                source.mode = mode
                return True
        return False

    def close(self) -> None:
        """End the thread. Waits for one reading at most. Idempotent."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(1.0)

    def _run(self) -> None:
        opened = [(request, source) for request, source in self._sources if self._open(request, source)]
        due = time.monotonic()
        try:
            while not self._stop.is_set():
                batch: list[AnyFrame] = []
                asked = [self._whole.get() for _ in range(self._whole.qsize())]
                self._make.is_whole = bool(asked)
                try:
                    if self._target.begin():
                        opened = self._opened_again()
                except OSError as error:
                    batch += self._all_failed(opened, error)
                else:
                    opened += self._opened_since()
                    self._make.tick()
                    try:
                        self._name_scope()
                        for request, source in opened:
                            batch.extend(self._read(request, source))
                    except HostLost as error:
                        batch += self._all_failed(opened, error)
                batch.append(self._make.cost(self._own.usage()))
                self._deliver(batch)
                for then in asked:
                    then()
                # A reading that is late is skipped: the next one is due at the next full interval.
                now = time.monotonic()
                due += self._interval_s * (1 + int((now - due) / self._interval_s))
                self._stop.wait(due - now)
        finally:
            for _, source in opened:
                source.close()

    def _name_scope(self) -> None:
        self._name_in -= 1
        if self._scope is None or self._scope.netns is None or self._namespace_names is None or self._name_in > 0:
            return
        self._name_in = NAME_EVERY
        self._scope.learn(*self._namespace_names(self._scope.netns))

    def _opened_since(self) -> list[tuple[ProbeRequest, Source]]:
        added = []
        while not self._more.empty():
            request = self._more.get()
            added.append((request, self._made(request)))
        self._sources = [*self._sources, *added]  # other threads go through it
        return [(request, source) for request, source in added if self._open(request, source)]

    def _opened_again(self) -> list[tuple[ProbeRequest, Source]]:
        """The line to a far host was lost: all sources are made anew."""
        for _, source in self._sources:
            source.close()
        self._sources = [(request, self._made(request)) for request, _ in self._sources]
        self._failing.clear()
        self._name_in = 0
        return [(request, source) for request, source in self._sources if self._open(request, source)]

    def _all_failed(self, opened: Sequence[tuple[ProbeRequest, Source]], error: OSError) -> list[AnyFrame]:
        """Of each source that read so far: the host cannot be asked."""
        why = SourceError(error.strerror or str(error), "netconsole asks the host again every interval")
        told = [request for request, _ in opened if self._failing.get(request.name) != str(why)]
        self._failing |= {request.name: str(why) for request in told}
        return [self._failed(request, why) for request in told]

    def _open(self, request: ProbeRequest, source: Source) -> bool:
        try:
            source.open()
        except Exception as error:
            self._deliver([self._failed(request, error)])
            return False
        self._deliver([self._make.status(request.name, "attached", request.mode)])
        return True

    def _read(self, request: ProbeRequest, source: Source) -> list[AnyFrame]:
        """Raises HostLost: then the other sources need not wait for an answer.

        Its frames are held to the same bounds as those of a collector: what they say comes from a host, too.
        """
        found: list[AnyFrame] = []
        try:
            refused = _take_within_bounds(source.read(self._make), found)
            if refused is not None:
                raise refused
        except Exception as error:
            cause = error.__context__ if isinstance(error, SourceError) else error
            if isinstance(cause, HostLost):
                raise cause from None
            if self._failing.get(request.name) == str(error):
                return found
            self._failing[request.name] = str(error)
            return [*found, self._failed(request, error)]
        if self._failing.pop(request.name, None) is not None:
            found.insert(0, self._make.status(request.name, "attached", request.mode))
        return found

    def _failed(self, request: ProbeRequest, error: Exception) -> Status:
        """Its status, also for errors that no source expects (an unknown message of the kernel): the others go on."""
        if not isinstance(error, SourceError):
            error = SourceError(f"{type(error).__name__}: {error}")
        return self._make.status(
            request.name, cast(ProbeStatus, error.state), request.mode, safe(error, MAX_WHY), error.help
        )

    def _made(self, request: ProbeRequest) -> Source:
        source = FACTORIES[request.source](self._target)
        if isinstance(source, HasModes):
            source.mode = request.mode
        return source


def _take_within_bounds(sent: Sequence[AnyFrame], taken: list[AnyFrame]) -> Exception | None:
    """Take what a reader of frames would take. Returns why the last of the others is none."""
    refused: Exception | None = None
    for frame in sent:
        try:
            taken.append(frames.decode(frames.encode(frame)))
        except (frames.FrameError, UnicodeEncodeError) as error:
            refused = error
    return refused
