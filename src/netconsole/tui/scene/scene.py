"""The input of every drawing: the state, and what else is known at that moment. Panes are functions of a scene."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeVar

from netconsole.base import figure
from netconsole.compare.live import LiveComparison
from netconsole.escalation.investigation import Investigation
from netconsole.findings.incident import Incident
from netconsole.findings.match import RowName, RowVerdict
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import Profile
from netconsole.recording.recorder import Progress
from netconsole.recording.replay_session import Position
from netconsole.snapshot.balance_watch import BalanceWatch
from netconsole.telemetry.action import BudgetAction
from netconsole.telemetry.session import Connection
from netconsole.telemetry.state import ProbeState, State
from netconsole.telemetry.tables import RowKey
from netconsole.telemetry.words import PROBE_STATES, URGENCY, said
from netconsole.tui.widgets.look import LEVEL_TONES, Tone

_Place = TypeVar("_Place")
LOOK_EVERY_S = 0.5
"""How often we check whether the figures on the screen are older than the header says."""


class Subject(NamedTuple):
    """What a row shows: the row of a table, a histogram, a probe … It is the key of the row for the cursor."""

    probe: str
    kind: Literal["table", "histogram", "probe", "event", "direction"]
    name: str
    key: RowKey


@dataclass(frozen=True)
class Output:
    """What drawing costs: bytes sent to the terminal, and updates skipped because it had not read the last one."""

    bytes_per_s: float | None = None
    frames_skipped: int = 0


@dataclass(frozen=True)
class Scene:
    """One moment. ``state`` must not change while panes read it."""

    state: State
    manifests: Mapping[str, Manifest]
    profile: Profile
    connection: Connection
    age_s: float | None = None
    delay_s: float = 0.0
    """How far the terminal may be behind what is drawn now."""
    output: Output = Output()
    findings: Sequence[Incident] = ()
    """What stands out, the worst first."""
    actions: Sequence[BudgetAction] = ()
    """What the governor has done, oldest first."""
    pinned: frozenset[str] = frozenset()
    """Probes that the governor must not change."""
    lowered: Sequence[str] = ()
    """Probes that the governor has lowered to keep the budget."""
    comparison: LiveComparison | None = None
    """The comparison with the baseline, if there is one."""
    recording: Progress | None = None
    """The progress of the recording of this session, if there is one."""
    replay: Position | None = None
    """The position in the recording, in a replay."""
    log: Sequence[Incident] = ()
    """All incidents since the start, the oldest first."""

    investigation: Investigation | None = None
    """What the user investigates, or did last."""

    balance: BalanceWatch | None = None
    """Losses of the kernel's own counters against what probes saw."""
    verdicts: Mapping[RowName, RowVerdict] = field(default_factory=dict)
    """The state of each row of which a finding speaks: the row has at least that, wherever it is shown."""

    only: str = ""
    """The device or VM that is shown alone, in words; empty: all is shown."""

    has: Callable[[str, Mapping[str, object]], bool] = lambda _probe, _labels: True
    """Whether a row or sample of a probe is of what is shown alone, or of the whole host."""

    made: dict[Hashable, object] = field(default_factory=dict)
    """What was made of it already: several parts of a picture need the same."""

    def level(self, usual: str, row: Subject) -> str:
        """The level of a row by itself, or that of its worst finding, if that is worse."""
        known = self.verdicts.get(row)
        return min(usual, known.level if known is not None else usual, key=lambda one: URGENCY[one])

    def worst_by(self, place_of: Callable[[RowName], _Place | None]) -> dict[_Place, RowVerdict]:
        """The worst state of all rows that are of one place; None is of none."""
        worst: dict[_Place, RowVerdict] = {}
        for row, verdict in self.verdicts.items():
            place = place_of(row)
            if place is not None and (place not in worst or verdict.rank < worst[place].rank):
                worst[place] = verdict
        return worst

    @property
    def interval_s(self) -> float:
        """Length of the last interval; 1 s before the first one ends."""
        return (self.state.collector.interval_ns or 1_000_000_000) / 1e9

    @property
    def data_bound_s(self) -> float | None:
        """The highest age of a figure on the screen until the next check. None before the first figure.

        The delay counts twice: this drawing needs it to reach the screen, and stays there until the next one has come.
        """
        return None if self.age_s is None else self.age_s + LOOK_EVERY_S + 2 * self.delay_s


def state_word(state: ProbeState) -> tuple[str, Tone]:
    """The state of a probe in words, with their tone."""
    level, word = PROBE_STATES[state.status]
    return said(level, word), LEVEL_TONES[level] if level else "look"


def reason(state: ProbeState) -> str:
    """Why a probe does not run as it should, and what would help, in one line. Empty when it runs."""
    parts = [figure.safe(part) for part in (state.why, state.help) if part]
    return "; ".join(parts)
