"""What a drawing is made from: the state and what is known beside it. Panes are functions of a scene."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from netconsole.base import figure
from netconsole.compare.live import LiveComparison
from netconsole.findings.incidents import Incident
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import Profile
from netconsole.recording.recorder import Progress
from netconsole.recording.replay_session import Position
from netconsole.session.protocol import Connection
from netconsole.telemetry.action import BudgetAction
from netconsole.telemetry.state import ProbeState, State
from netconsole.telemetry.tables import RowKey
from netconsole.tui.widgets.look import Tone

LOOK_EVERY_S = 0.5
"""How often it is looked whether the picture has grown older than it says."""


class Evidence(NamedTuple):
    """What a row stands for, and what its cursor is bound to."""

    probe: str
    kind: Literal["table", "histogram", "probe", "event", "direction"]
    name: str
    key: RowKey


@dataclass(frozen=True)
class Output:
    """What drawing itself costs: bytes sent to the terminal, frames skipped because it had not taken the last one."""

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
    """How far the terminal's reader may be behind what is drawn now."""
    output: Output = Output()
    findings: Sequence[Incident] = ()
    """What stands out, ranked."""
    actions: Sequence[BudgetAction] = ()
    """What the governor did, oldest first."""
    pinned: frozenset[str] = frozenset()
    """Probes that the governor leaves alone."""
    lowered: Sequence[str] = ()
    """Probes that are not as they were asked for, to keep the budget."""
    against: LiveComparison | None = None
    """What the figures are held against, while there is a baseline."""
    recording: Progress | None = None
    """How the recording of this session stands, if there is one."""
    replay: Position | None = None
    """Where in a recording this moment is, if it is replayed."""
    log: Sequence[Incident] = ()
    """All incidents since the start, the oldest first."""

    @property
    def interval_s(self) -> float:
        """Length of the last interval; a second before the first."""
        return (self.state.collector.interval_ns or 1_000_000_000) / 1e9

    @property
    def data_bound_s(self) -> float | None:
        """No figure is older than this until it is looked again; None before the first.

        The delay counts twice: this picture is on its way so long, and stays until the next one has come so far.
        """
        return None if self.age_s is None else self.age_s + LOOK_EVERY_S + 2 * self.delay_s


STATE_WORDS: dict[str, tuple[str, Tone]] = {
    "compiling": ("compiling…", "look"),
    "attaching": ("attaching…", "look"),
    "attached": ("ok", "ok"),
    "degraded": ("! degraded", "look"),
    "failed": ("!! failed", "act"),
    "unsupported": ("? unsupported", "unknown"),
    "off": ("off", "dim"),
}
"""The state of a probe in words."""


STANDS_STILL = "counters alone: rows do not change"
"""What is said of tables in mode counters."""


def why_silent(scene: Scene, probe: str) -> str:
    """One sentence for a table without rows: what its probe is doing, or why it cannot and what would help."""
    state = scene.state.probes.get(probe)
    if state is None or state.status == "off":
        return f"{probe}: not in profile {figure.safe(scene.profile.name)}; start with --probe {probe}"
    if state.measuring and state.mode == "counters":
        return STANDS_STILL
    if state.measuring:
        return "nothing seen yet" if not state.counters and not state.tables else "nothing so far"
    if not state.settled:
        return f"{probe}: {state.status}; first figures 1 s after it is attached"
    return f"{probe} {state.status}: {reason(state)}"


def reason(state: ProbeState) -> str:
    """Why a probe does not run as it should, and the way out, in one line; empty when it does."""
    parts = [figure.safe(part) for part in (state.why, state.help) if part]
    return "; ".join(parts)
