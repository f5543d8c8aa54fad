"""Defines a session: a stream of frames (live, recorded or remote) that readers see as one State.

:meth:`Session.view` gives a complete state, because all frames of an interval are applied together when it ends.
:meth:`Session.on_news` notifies readers, in a thread of the session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from threading import Event
from typing import Literal, Protocol, runtime_checkable

from netconsole.telemetry.frames import AnyFrame, Mode, Scalar
from netconsole.telemetry.request import CommandOutput, HostQuestion, ProbeRequest
from netconsole.telemetry.state import State

Phase = Literal["starting", "live", "lost", "ended"]
News = Literal["interval", "status"]


class CommandError(Exception):
    """A command was refused or could not be sent. The message is one line for people."""


@dataclass(frozen=True, slots=True)
class LineState:
    """The line to a far host. None is unknown.

    ``round_trip_s`` and ``clock_within_s``: how well its clocks are known here. ``ahead_s``: its wall clock minus ours.
    ``bytes_per_s``: of frames, before ssh compresses them.
    """

    address: str
    round_trip_s: float | None
    clock_within_s: float | None
    ahead_s: float | None
    bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class Connection:
    """The state of the stream. ``why`` and ``retry_in_s`` are set when the collector was lost."""

    phase: Phase
    why: str | None = None
    retry_in_s: float | None = None
    broken_frames: int = 0
    line: LineState | None = None
    """None: the host is this machine."""


@runtime_checkable
class HasCollector(Protocol):
    """A session that runs a collector."""

    def pids(self) -> list[int]:
        """The collector on this machine, while one runs."""

    def kill(self) -> None:
        """Ends the collector at once, with all that it has loaded: for when there is no time left to close."""


class Session(Protocol):
    """A measurement. All methods may be called from any thread, also after :meth:`close`."""

    @property
    def kind(self) -> Literal["live", "recorded", "remote"]:
        """Where the frames come from."""

    def start(self) -> None:
        """Start to deliver frames."""

    def view(self) -> AbstractContextManager[State]:
        """The state at the end of the last interval. It is locked inside the ``with``: leave within milliseconds."""

    def on_news(self, callback: Callable[[News], None]) -> None:
        """Call ``callback`` after every interval and when a probe changed state, in a thread of the session."""

    def connection(self) -> Connection:
        """The state of the stream now."""

    def age_s(self) -> float | None:
        """The age of the figures in the view; None before the first."""

    def settled(self) -> bool:
        """Whether every probe is attached or was refused."""

    def set(
        self,
        probe: str,
        mode: Mode | None = None,
        knobs: Mapping[str, Scalar] | None = None,
        why: str | None = None,
    ) -> Future[None]:
        """Change mode or knobs of the running probe. The future ends with None or a CommandError.

        ``why`` becomes part of the probe's status: for changes that its user did not ask for.
        """

    def reload(
        self,
        probe: str,
        mode: Mode | None = None,
        knobs: Mapping[str, Scalar] | None = None,
        why: str | None = None,
    ) -> Future[None]:
        """Load a probe (again), in another mode or with other knobs. The future ends with None or a CommandError."""

    def unload(self, probe: str, why: str | None = None) -> Future[None]:
        """Detach a probe. The future ends with None or a CommandError."""

    def close(self) -> None:
        """End the measurement. When this returns, every probe is gone. Takes about 2 s at most. Idempotent."""


class Governable(Session, Protocol):
    """A session whose cost can be measured more often, and limited in the kernel."""

    def sample_often(self, is_often: bool) -> None:
        """Switch the kernel's run-time statistics on several times in every interval, or as seldom as at first."""

    def bound(self, kernel_cpu_pct: float | None) -> None:
        """Limit the in-kernel time of each probe's details, percent of one core; None for no limit.

        Above the limit, the kernel itself stops them for a while.
        """

    def say_action(
        self, probe: str, action: str, because: str, measured: float | None = None, limit: float | None = None
    ) -> None:
        """Add a frame for recordings: something was done to a probe, or to all (""), to keep the budget.

        It is applied with the next frames, so this may be called under any lock.
        """


@runtime_checkable
class Answerable(Protocol):
    """A session whose host can be asked why something happens. A recording has no host to ask."""

    def ask_why(self, questions: Iterable[HostQuestion]) -> None:
        """Ask the host, each question once. What it answers is in later frames. May be called under any lock."""

    def run_command(self, netns: str, command: str) -> CommandOutput:
        """Run a command on the host that only reads, in a network namespace. Waits for it.

        Raises OSError, with one sentence: it may change something, or the host does not answer.
        """


class Sink(Protocol):
    """Takes the frames of a session as they come, for example a recorder."""

    def take(self, state: State, batch: Sequence[AnyFrame]) -> None:
        """Take a batch just before it is applied to ``state``. Runs under the session's lock: be short, never fail."""


@runtime_checkable
class ReadsWhole(Protocol):
    """A session with sources of which some are read less often than others."""

    def read_whole(self, at_once: bool = False) -> Event:
        """Read everything once in the next interval. Set when that was delivered.

        ``at_once``: the current interval ends now.
        """


@runtime_checkable
class Recordable(Protocol):
    """A session that passes on its frames."""

    def attach(self, sink: Sink) -> None:
        """Pass every batch from now on to ``sink``, in the order of applying."""

    def detach(self, sink: Sink) -> None:
        """Stop passing batches to ``sink``."""


class Expandable(Governable, Recordable, Protocol):
    """A session that can start more probes."""

    def load(self, request: ProbeRequest, why: str | None = None) -> Future[None]:
        """Start one more probe, under the name of the request. The future ends with None or a CommandError."""
