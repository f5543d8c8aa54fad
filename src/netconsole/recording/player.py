"""Plays a recording into a state: the next interval, the previous one, or any moment. It has no clock and no thread.

A jump restores a checkpoint from before its target, and applies all frames from there. The checkpoint is ten minutes
before the target, or less when that would be too much to read. So the figures are exact at once, and the histories
reach back to the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from netconsole.findings.incident import Incident
from netconsole.findings.incidents import Incidents
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import Budget
from netconsole.recording.reader import Damaged, Recording
from netconsole.snapshot.builder import Totals, totals
from netconsole.telemetry import frames
from netconsole.telemetry.action import BudgetAction
from netconsole.telemetry.frames import AnyFrame
from netconsole.telemetry.series import SAMPLES
from netconsole.telemetry.state import State

HISTORY_S = float(SAMPLES)
"""How far before its target a jump begins, if that is not too much to read: the length of a history."""
HISTORY_BYTES = 4 * 1024 * 1024
"""The most bytes of frames that a jump reads, unless its block has more. Rows of tables alone take 0.3 s to read."""
MAX_ACTIONS = 1000
_MAX_BATCH = 20_000
"""The most frames of a batch, as in a live session."""
MAX_BYTES = 16 * 1024 * 1024
"""The most bytes of frames that wait to be applied. A hundred bytes of a hostile file may be a megabyte of them."""
_SILENT_INTERVALS = 2.5
"""After this many intervals without the leading source, a replay no longer waits for it: its collector was lost."""


@dataclass(slots=True)
class Place:
    """Everything at one moment of the recording. Times are on the monotonic clock of the recorded host.

    ``lead_ns`` is the end of the last interval of the leading source.
    """

    state: State
    findings: Incidents
    standing: Sequence[Incident]
    actions: list[BudgetAction]
    at_ns: int
    lead_ns: int
    wall_ns: int
    block: int
    has_actions: bool = False
    """Whether the recording has action frames. Else actions are read from the status frames of probes."""


class Player:
    """The position of a replay. Moving may take a moment. ``place`` is replaced, or changed by :meth:`apply`."""

    def __init__(self, recording: Recording, manifests: Mapping[str, Manifest], budget: Budget) -> None:
        """Raises Damaged when the beginning cannot be read."""
        self.recording = recording
        self._manifests = manifests
        self._budget = budget
        self.trouble: str | None = None
        """What could not be read, in one line. Reading goes on after it."""
        self.place = self._at(0)
        self._begin = _mark(self.place)
        self.since: Totals = self._begin
        """The totals that a snapshot counts from: at the beginning, or where :meth:`set_since` was called."""
        self._batches: Iterator[Sequence[AnyFrame]] = self._following(0)
        self._next: Sequence[AnyFrame] | None = next(self._batches, None)

    @property
    def begin_ns(self) -> int:
        """Monotonic clock of the recorded host at the beginning."""
        return self.recording.begin.mono_ns

    @property
    def length_s(self) -> float:
        """Seconds from the beginning to the end."""
        return (self.recording.end.mono_ns - self.begin_ns) / 1e9

    @property
    def at_s(self) -> float:
        """Seconds from the beginning to the current place."""
        return max(0.0, (self.place.at_ns - self.begin_ns) / 1e9)

    @property
    def since_s(self) -> float:
        """Seconds from the beginning to the place from which snapshots count."""
        return max(0.0, (self.since.mono_ns - self.begin_ns) / 1e9)

    @property
    def at_end(self) -> bool:
        """Whether there is nothing more to apply."""
        return self._next is None

    @property
    def gap_s(self) -> float | None:
        """Seconds from here to the next batch. None at the end."""
        return None if self._next is None else max(0, self._next[-1].mono_ns - self.place.at_ns) / 1e9

    def apply(self) -> bool:
        """Applies the next batch. Returns whether a step can stop after it."""
        batch = self._next
        if batch is None:
            return False
        stops = self._stops(self.place, batch)
        self._apply(self.place, batch)
        self._next = next(self._batches, None)
        return stops

    def step(self) -> bool:
        """Goes to the end of the next interval. False at the end of the recording."""
        while not self.at_end:
            if self.apply():
                return True
        return False

    def back(self) -> None:
        """Goes to the end of the previous interval."""
        self._seek(min(self.place.lead_ns, self.place.at_ns) - 1)

    def seek(self, at_s: float) -> None:
        """Goes to the end of the last interval that ended within ``at_s`` seconds from the beginning."""
        self._seek(self.begin_ns + round(max(0.0, min(at_s, self.length_s)) * 1e9))

    def _seek(self, target_ns: int) -> None:
        last = max((n for n, block in enumerate(self.recording.blocks) if block.mark.mono_ns <= target_ns), default=0)
        place = self._restored(self._first(last, target_ns), last)
        batches = self._following(place.block)
        held: list[Sequence[AnyFrame]] = []
        begun = self.recording.read_bytes
        for batch in batches:
            held.append(batch)
            if batch[-1].mono_ns > target_ns:
                break
            if self._stops(place, batch) or self.recording.read_bytes - begun > MAX_BYTES:
                for one in held:
                    self._apply(place, one)
                held, begun = [], self.recording.read_bytes
        else:
            for one in held:
                self._apply(place, one)
            held = []
        self._batches = chain(held, batches)
        self._next = next(self._batches, None)
        self.place = place
        if place.at_ns < self.since.mono_ns:
            self.since = self._begin

    def set_since(self) -> None:
        """Lets snapshots count from here, until a jump goes to an earlier place."""
        self.since = _mark(self.place)

    def _first(self, last: int, target_ns: int) -> int:
        """The block with which a jump into block ``last`` begins."""
        blocks = self.recording.blocks
        first, end = last, blocks[last].mark.bytes + blocks[last].bytes
        while first > 0 and blocks[first].mark.mono_ns > target_ns - HISTORY_S * 1e9:
            if end - blocks[first - 1].mark.bytes > HISTORY_BYTES:
                break
            first -= 1
        return first

    def _restored(self, first: int, last: int) -> Place:
        """The beginning of the first block from ``first`` to ``last`` that can be read, else of the recording."""
        for number in range(first, last + 1):
            try:
                return self._at(number)
            except Damaged as error:
                self.trouble = str(error)
        return self._at(0)

    def _at(self, block: int) -> Place:
        begin = self.recording.blocks[block].mark
        state = self.recording.state(block)
        try:
            before = self.recording.log(block)
        except Damaged as error:
            self.trouble, before = str(error), []
        findings = Incidents(self._manifests, self._budget, before)
        return Place(state, findings, (), [], begin.mono_ns, begin.mono_ns, begin.wall_ns, block)

    def _following(self, block: int) -> Iterator[Sequence[AnyFrame]]:
        """All batches from the beginning of a block to the end."""
        batch: list[AnyFrame] = []
        begun = self.recording.read_bytes
        for number in range(block, len(self.recording.blocks)):
            try:
                for frame in self.recording.frames(number):
                    batch.append(frame)
                    is_full = len(batch) >= _MAX_BATCH or self.recording.read_bytes - begun > MAX_BYTES
                    if is_full or _ends_batch(frame):
                        yield batch
                        batch, begun = [], self.recording.read_bytes
            except Damaged as error:
                self.trouble = str(error)
        if batch:
            yield batch

    def _stops(self, place: Place, batch: Sequence[AnyFrame]) -> bool:
        """Whether a step can stop after this batch: it ends an interval of the leading source."""
        if self._leads(batch[-1]):
            return True
        interval_ns = place.state.sources[self.recording.header.leads].interval_ns or 1_000_000_000
        return batch[-1].mono_ns - place.lead_ns > _SILENT_INTERVALS * interval_ns

    def _leads(self, frame: AnyFrame) -> bool:
        return isinstance(frame, frames.Cost) and frame.probe is None and frame.source == self.recording.header.leads

    def _apply(self, place: Place, batch: Sequence[AnyFrame]) -> None:
        for frame in batch:
            if isinstance(frame, frames.Action):
                _note(place, frame)
            elif isinstance(frame, frames.Status) and not place.has_actions:
                _note_status(place, frame)
            place.state.apply(frame)
            if frame.mono_ns > place.at_ns:
                place.at_ns, place.wall_ns = frame.mono_ns, frame.wall_ns
        if self._leads(batch[-1]):
            place.lead_ns = batch[-1].mono_ns
            place.standing = place.findings.update(place.state)


def _mark(place: Place) -> Totals:
    """The totals at a place. A session that has just begun has no figures yet."""
    if place.state.first_mono_ns is None:
        return Totals(place.at_ns, place.wall_ns)
    return totals(place.state)


def _ends_batch(frame: AnyFrame) -> bool:
    return (isinstance(frame, frames.Cost) and frame.probe is None) or isinstance(
        frame, (frames.Hello, frames.Status, frames.Action, frames.Answer, frames.Reply, frames.Bye)
    )


def _note(place: Place, frame: frames.Action) -> None:
    place.has_actions = True
    said = frame.action, frame.because, frame.measured, frame.limit
    place.actions.append(BudgetAction(frame.mono_ns / 1e9, frame.probe or "", *said))
    del place.actions[:-MAX_ACTIONS]


def _note_status(place: Place, frame: frames.Status) -> None:
    """Reads an action from a status frame. Old recordings have no action frames: the action is in ``why``."""
    if frame.why is None or frame.probe is None or frame.state not in ("attached", "off"):
        return
    what, _, because = frame.why.partition(": ")
    place.actions.append(BudgetAction(frame.mono_ns / 1e9, frame.probe, what, because))
    del place.actions[:-MAX_ACTIONS]
