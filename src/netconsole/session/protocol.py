"""What every reader of a measurement holds: a stream of frames, live here or later recorded or remote, as one State.

Readers call :meth:`Session.view` and get a picture that is whole: frames of an interval are applied together when the
interval ends. They learn of news through :meth:`Session.on_news`, from a thread of the session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from netconsole.probes.request import ProbeRequest
from netconsole.telemetry.frames import AnyFrame, Mode, Scalar
from netconsole.telemetry.state import State

Phase = Literal["starting", "live", "lost", "ended"]
News = Literal["interval", "status"]


class CommandError(Exception):
    """A command was refused or could not be passed on; the message is one line for people."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How the stream stands. ``why`` and ``retry_in_s`` speak of a collector that was lost."""

    phase: Phase
    why: str | None = None
    retry_in_s: float | None = None
    broken_frames: int = 0


class Session(Protocol):
    """A measurement to look at. All methods may be called from any thread, also after :meth:`close`."""

    @property
    def kind(self) -> Literal["live", "recorded", "remote"]:
        """Where the frames come from."""

    def start(self) -> None:
        """Begin to deliver frames."""

    def view(self) -> AbstractContextManager[State]:
        """The picture at the end of the last interval; nothing changes inside the ``with``. Be short: milliseconds."""

    def on_news(self, callback: Callable[[News], None]) -> None:
        """Call ``callback`` from a thread of the session after every interval, and when a probe changed state."""

    def connection(self) -> Connection:
        """How the stream stands now."""

    def age_s(self) -> float | None:
        """How old the figures of the view are; None before the first."""

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
        """End the measurement; every probe is gone when this returns. Idempotent, at most about 2 s."""


class Governable(Session, Protocol):
    """A session whose costs can be measured more often than usual, and bounded where they arise."""

    def sample_often(self, is_often: bool) -> None:
        """Switch the kernel's run-time statistics on several times in every interval, or as seldom as at first."""

    def bound(self, kernel_cpu_pct: float | None) -> None:
        """What the details of each probe may take, percent of one core, before the kernel itself ends them for a while.

        None: no bound.
        """

    def say_action(
        self, probe: str, action: str, because: str, measured: float | None = None, limit: float | None = None
    ) -> None:
        """Something was done to a probe, or to all (""), to keep the budget: a frame of it, for recordings.

        It comes with the next frames, so that this may be called under any lock.
        """


class Sink(Protocol):
    """Takes the frames of a session as they come: a recorder."""

    def take(self, state: State, batch: Sequence[AnyFrame]) -> None:
        """A batch that is about to be applied to ``state``, under the session's lock. Be short, and never fail."""


@runtime_checkable
class Recordable(Protocol):
    """A session whose frames can be had."""

    def attach(self, sink: Sink) -> None:
        """Hand every batch from now on to ``sink``, in the order in which they are applied."""

    def detach(self, sink: Sink) -> None:
        """No more batches for ``sink``."""


class Expandable(Governable, Recordable, Protocol):
    """A session that can run a probe that it was not started with."""

    def load(self, request: ProbeRequest, why: str | None = None) -> Future[None]:
        """Run one more probe, under the name of the request. The future ends with None or a CommandError."""
