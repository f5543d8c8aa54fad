"""A recording as a session: it feeds the console from a file, at any speed, and can go forward and back."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal

from netconsole.base.fact_keys import FactData
from netconsole.findings.incident import Incident
from netconsole.findings.match import RowName, RowVerdict
from netconsole.recording.player import Player
from netconsole.snapshot.builder import Totals
from netconsole.telemetry.action import BudgetAction
from netconsole.telemetry.frames import Host, Mode, Scalar
from netconsole.telemetry.session import CommandError, Connection, News
from netconsole.telemetry.state import State

SPEEDS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
LEAST_SPEED, MOST_SPEED = 0.01, 1000.0
MAX_GAP_S = 5.0
"""A longer silence in the recording (a lost collector) is shortened to this."""


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a replay. Seconds count from the beginning; the wall clock is that of the recorded host."""

    host: Host
    at_s: float
    length_s: float
    wall_ns: int
    begin_wall_ns: int
    playing: bool
    speed: float
    at_end: bool
    cut: bool
    """Whether the recording was not closed normally, so that it ends with its last complete frame."""
    since_s: float
    """The place from which a snapshot counts."""
    trouble: str | None
    behind_s: float | None = None
    """How long ago it was, where it is of the memory of a live session; None: of a recording."""


class ReplaySession:
    """Plays a recording in its own thread. A move returns at once; the thread makes it, and then sends news.

    What its methods do for others is said in :mod:`netconsole.telemetry.session`.
    """

    kind: Literal["recorded"] = "recorded"

    def __init__(self, player: Player, speed: float = 1.0) -> None:
        self._player = player
        self._lock = threading.Lock()
        self._wake = threading.Condition()
        self._moves: list[Callable[[Player], None]] = []
        self._callbacks: list[Callable[[News], None]] = []
        self._playing = True
        self._speed = speed
        self._closing = False
        self._moved_s = time.monotonic()
        """When the current place was reached. The next batch is due one gap later."""
        self._thread = threading.Thread(target=self._run, name="replay", daemon=True)

    @property
    def facts(self) -> Mapping[str, FactData]:
        """How the host was configured when the recording began; none where that was not recorded."""
        return self._player.recording.header.facts

    def start(self) -> None:
        """Begins to play."""
        self._thread.start()

    @contextlib.contextmanager
    def view(self) -> Iterator[State]:
        with self._lock:
            yield self._player.place.state

    def on_news(self, callback: Callable[[News], None]) -> None:
        self._callbacks.append(callback)

    def connection(self) -> Connection:
        return Connection("live", broken_frames=self._player.recording.broken_frames)

    def age_s(self) -> float | None:
        """None: figures of a recording have a date, but no age."""
        return None

    def settled(self) -> bool:
        with self._lock:
            return all(probe.settled for probe in self._player.place.state.probes.values())

    def set(
        self,
        probe: str,
        mode: Mode | None = None,
        knobs: Mapping[str, Scalar] | None = None,
        why: str | None = None,
    ) -> Future[None]:
        """Refused: nothing in a recording can be changed."""
        return _refused()

    def reload(
        self,
        probe: str,
        mode: Mode | None = None,
        knobs: Mapping[str, Scalar] | None = None,
        why: str | None = None,
    ) -> Future[None]:
        """Refused."""
        return _refused()

    def unload(self, probe: str, why: str | None = None) -> Future[None]:
        """Refused."""
        return _refused()

    def close(self) -> None:
        """Ends the thread and closes the file."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(1.0)
        if not self._thread.is_alive():
            self._player.recording.close()

    # ---- this moment, beside the state ----

    def incidents(self) -> Sequence[Incident]:
        """All incidents up to this moment, the oldest first. Call it inside :meth:`view`.

        After a jump in a recording that has no log, those of what was played since the jump.
        """
        return tuple(self._player.place.findings.log)

    def verdicts(self) -> Mapping[RowName, RowVerdict]:
        """The states of rows of which a finding speaks. Call it inside :meth:`view`."""
        return self._player.place.findings.verdicts

    def standing(self) -> Sequence[Incident]:
        """What stands out at this moment."""
        return self._player.place.standing

    def actions(self) -> Sequence[BudgetAction]:
        """What the governor had done up to this moment, as far as it was played."""
        return tuple(self._player.place.actions)

    def since(self) -> Totals:
        """What a snapshot of this moment counts from."""
        return self._player.since

    def position(self) -> Position:
        """The current position."""
        player = self._player
        place, recording = player.place, player.recording
        return Position(
            host=recording.header.host,
            at_s=player.at_s,
            length_s=player.length_s,
            wall_ns=place.wall_ns,
            begin_wall_ns=recording.begin.wall_ns,
            playing=self._playing,
            speed=self._speed,
            at_end=player.at_end,
            cut=not recording.whole,
            since_s=player.since_s,
            trouble=player.trouble,
        )

    # ---- moves ----

    def toggle(self) -> None:
        """Pauses, or plays again. At the end it plays from the beginning."""
        with self._wake:
            self._playing = not self._playing
            if self._playing and self._player.at_end:
                self._moves.append(lambda player: player.seek(0.0))
            self._wake.notify()

    def pause(self) -> None:
        """Pauses."""
        with self._wake:
            self._playing = False
            self._wake.notify()

    def faster(self, step: int) -> None:
        """Changes to the next higher (1) or lower (-1) speed."""
        with self._wake:
            others = [speed for speed in SPEEDS if (speed > self._speed if step > 0 else speed < self._speed)]
            if others:
                self._speed = others[0] if step > 0 else others[-1]
            self._wake.notify()

    def step(self, count: int) -> None:
        """Goes one interval forward (1) or back (-1), and pauses there."""
        self.pause()
        self._move(lambda player: self._step(player, count))

    def seek(self, at_s: float) -> None:
        """Goes to a time, in seconds from the beginning."""
        self._move(lambda player: player.seek(at_s))

    def seek_by(self, seconds: float) -> None:
        """Goes forward by some seconds, or back by a negative number."""
        self._move(lambda player: player.seek(player.at_s + seconds))

    def set_since(self) -> None:
        """Lets snapshots count from this moment on."""
        self._move(Player.set_since)

    def _move(self, move: Callable[[Player], None]) -> None:
        with self._wake:
            self._moves.append(move)
            self._wake.notify()

    # ---- the thread ----

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._closing and not self._moves and (wait_s := self._wait_s()) != 0:
                    self._wake.wait(wait_s)
                if self._closing:
                    return
                moves, self._moves = self._moves, []
            for move in moves:
                move(self._player)
            if moves:
                self._moved_s = time.monotonic()
            else:
                self._play()
            for callback in self._callbacks:
                callback("interval")

    def _wait_s(self) -> float | None:
        """Seconds until the next batch is due. None when nothing is due."""
        gap_s = self._gap_s() if self._playing else None
        return None if gap_s is None else max(0.0, self._moved_s + gap_s - time.monotonic())

    def _gap_s(self) -> float | None:
        gap_s = self._player.gap_s
        return None if gap_s is None else min(gap_s, MAX_GAP_S) / self._speed

    def _play(self) -> None:
        """Applies the next batch. It stays in time with the recording, unless applying takes longer than the gaps."""
        now_s = time.monotonic()
        self._moved_s = max(self._moved_s + (self._gap_s() or 0.0), now_s - 1.0)
        with self._lock:
            self._player.apply()

    def _step(self, player: Player, count: int) -> None:
        if count < 0:
            player.back()
            return
        with self._lock:
            player.step()


_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?", re.ASCII)
_SPAN = re.compile(r"([+-]?)(\d{1,6}(?:\.\d{1,3})?)(s|m|h|%)", re.ASCII)
_SPAN_S = {"s": 1.0, "m": 60.0, "h": 3600.0}


def parse_time(text: str, position: Position) -> float | None:
    """The seconds from the beginning for a time that a user typed. None when it is not a time in this recording.

    ``12:03`` and ``12:03:30`` are times of day, in this machine's time zone. ``90s``, ``5m``, ``1h`` and ``50%`` count
    from the beginning, ``+30s`` and ``-5m`` from here.
    """
    text = text.strip()
    if match := _SPAN.fullmatch(text):
        sign, number, unit = match.groups()
        value = float(number) * (position.length_s / 100 if unit == "%" else _SPAN_S[unit])
        at_s = position.at_s + (-value if sign == "-" else value) if sign else value
        return min(max(0.0, at_s), position.length_s) if sign or at_s <= position.length_s else None
    match = _CLOCK.fullmatch(text)
    if match is None or int(match[1]) > 23 or int(match[2]) > 59 or int(match[3] or 0) > 59:
        return None
    begin = time.localtime(position.begin_wall_ns / 1e9)
    wanted_s = int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3] or 0)
    began_s = begin.tm_hour * 3600 + begin.tm_min * 60 + begin.tm_sec
    # A time of day before that of the beginning is on the next day.
    at_s = float((wanted_s - began_s) % 86400)
    return at_s if at_s <= position.length_s else None


def _refused() -> Future[None]:
    future: Future[None] = Future()
    future.set_exception(CommandError("this is a replay: a recording cannot be changed"))
    return future
