"""What the wizard for a ping remembers: what was entered, captured and computed. It outlives the screen."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, get_args

from netconsole.base.errors import bad
from netconsole.base.figure import parse_duration, safe
from netconsole.base.readers import read_bytes
from netconsole.ping import capture as documents
from netconsole.ping.analysis.merge import CaptureFile
from netconsole.ping.breakdown import Breakdown
from netconsole.ping.capture import PingCapture, Role
from netconsole.ping.cases import read_captures
from netconsole.run.ping_plan import PingPlan, PingTraffic
from netconsole.run.ping_watch import PlaceProgress

MOST_ECHOES = 500_000
WizardStep = Literal["ends", "check", "watch", "files", "result", "keep"]
STEPS: tuple[WizardStep, ...] = get_args(WizardStep)


class Watching(Protocol):
    """Vantage points that are being watched (:class:`netconsole.run.ping_watch.PingWatch`)."""

    @property
    def told(self) -> str: ...
    @property
    def is_over(self) -> bool: ...
    def start(self) -> None: ...
    def progress(self) -> list[PlaceProgress]: ...
    def finish(self) -> dict[Role, PingCapture]: ...
    def close(self) -> None: ...


@dataclass(slots=True)
class WizardState:
    """What the user entered and what was found. It outlives the screen."""

    step: WizardStep = "ends"
    fields: dict[str, str] = field(default_factory=dict)
    plan: PingPlan | None = None
    """None: only files are joined."""
    run: str = "ping"
    captures: list[CaptureFile] = field(default_factory=list)
    failed: dict[Role, str] = field(default_factory=dict)
    breakdown: Breakdown | None = None

    def take(self, one: CaptureFile) -> None:
        """A capture replaces an earlier one of the same machine and kind; parts that complete each other stay."""
        role, parts = one.capture.role, _parts(one.capture)
        kept = [old for old in self.captures if old.capture.role != role or not parts & _parts(old.capture)]
        self.captures = [*kept, one]
        self.breakdown = None


def read_file(path: Path, role: Role | None) -> list[CaptureFile]:
    return read_captures(read_bytes(path, documents.MAX_BYTES), str(path), role)


def _parts(capture: PingCapture) -> set[str]:
    echoes = {"echoes"} if capture.packets or capture.summary else set()
    return echoes | {part for part in ("vhost_irq", "vhost_kick") if getattr(capture, part) is not None}


def traffic_of(text: str) -> tuple[PingTraffic, bool]:
    """The echoes, and whether somebody else sends them. Raises BadInput."""
    is_watch, (count, _, interval) = text.startswith("watch"), text.removeprefix("watch").strip().partition(" ")
    if is_watch and not count:
        return PingTraffic(), True
    seconds = parse_duration(interval.strip() or "50ms")
    if not count.isdecimal() or not 1 <= int(count[:9]) <= MOST_ECHOES or seconds is None or not 1e-4 <= seconds <= 60:
        expected = 'expected a number and a time such as "100 50ms", or "watch 100"'
        raise bad("echoes", "", f'{expected}, found "{safe(text, 40)}"')
    return PingTraffic(int(count), round(seconds * 1e6)), is_watch
