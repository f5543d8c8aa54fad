"""What the samples of one device or flow show: top flows, ports, processes and stacks, as counts and shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from netconsole.profile.escalation_rules import SUFFIX
from netconsole.telemetry.frames import Event, Label, Scalar
from netconsole.telemetry.state import ProbeState
from netconsole.telemetry.tables import RowKey

FOR_S = 30.0
EVENTS_PER_S = 50.0
KERNEL_CPU_PCT = 1.0
"""The budget of what a user investigates, beside the profile's. The kernel itself keeps the last two."""
STACK_FRAMES = 4
"""Innermost frames that tell two stacks apart: those above are the same for most packets."""
MAX_KEYS = 2000
"""Different flows, ports … that are kept of one kind. 50 samples a second in 30 s are 1500."""

SampleGroup = Literal["flow", "port", "process", "location", "stack"]
Fields = Mapping[str, "Scalar | list[str]"]


@dataclass(slots=True)
class Investigation:
    """Details of one row. ``filters`` as people write them; ``why`` it is over, empty while it runs."""

    probe: str
    labels: RowKey
    filters: str
    for_s: float = FOR_S
    began_s: float | None = None
    """On the clock of the frames, when the details were first seen to run."""
    now_s: float = 0.0
    why: str = ""
    samples: int = 0
    """That fit the row."""
    others: int = 0
    """That passed the filters and are of other rows: the kernel does not filter by every label."""
    groups: dict[SampleGroup, Counter[str]] = field(default_factory=dict)
    _taken: int = 0
    """Samples that had arrived before, in all."""

    @property
    def name(self) -> str:
        """The instance of the probe that runs it."""
        return self.probe + SUFFIX

    @property
    def left_s(self) -> float:
        """Time until it ends; all of it while it is not attached."""
        return self.for_s if self.began_s is None else max(0.0, self.for_s - (self.now_s - self.began_s))

    def begin(self, probe: ProbeState | None) -> None:
        """Leave out the samples of an earlier one."""
        self._taken = 0 if probe is None else probe.events_arrived

    def follow(self, probe: ProbeState) -> None:
        """Take the samples that arrived since the last time."""
        if probe.events_arrived < self._taken:
            self._taken = 0  # the probe was loaded anew
        fresh = min(probe.events_arrived - self._taken, len(probe.events))
        self._taken = probe.events_arrived
        self.take(list(probe.events)[len(probe.events) - fresh :] if fresh > 0 else ())

    def take(self, events: Iterable[Event]) -> None:
        """Count the samples that are of this row."""
        wanted = dict(self.labels)
        for event in events:
            if not _is_of(event.fields, wanted):
                self.others += 1
                continue
            self.samples += 1
            for group, text in _parts(event.fields):
                counts = self.groups.setdefault(group, Counter())
                if text in counts or len(counts) < MAX_KEYS:
                    counts[text] += 1


def _is_of(fields: Fields, labels: Mapping[str, Label]) -> bool:
    """Whether no label that the sample has too says another thing."""
    return all(
        str(fields[name]).lower() == str(value).lower()
        for name, value in labels.items()
        if value not in (None, "", *_NONE.get(name, ())) and fields.get(name) not in (None, "")
    )


def _parts(fields: Fields) -> Iterable[tuple[SampleGroup, str]]:
    near, far = ("source", "target") if fields.get("source") else ("address", "peer")
    near_port, far_port = ("source_port", "target_port") if near == "source" else ("port", "peer_port")
    if near == "source" or fields.get(far):
        ends = [_end(fields, near, near_port), _end(fields, far, far_port)]
        yield "flow", " → ".join(reversed(ends) if fields.get("what") in _CAME_IN else ends)
    port = fields.get(far_port if near == "source" else near_port)
    if port:
        yield "port", f"{fields.get('protocol', '')} {port}".strip()
    for group in _SINGLE:
        if fields.get(group):
            yield group, str(fields[group])
    stack = fields.get("stack")
    if isinstance(stack, list) and stack:
        yield "stack", " < ".join(stack[:STACK_FRAMES])


_NONE: Mapping[str, tuple[int, ...]] = dict.fromkeys(("inode", "port", "peer_port", "source_port", "target_port"), (0,))
"""What says of a label that there is none: a socket without a peer has no port of it, a service no inode."""
_CAME_IN = ("udp receive", "queue full", "reset received")
"""What a socket tells (probe socket_drops) of packets from its peer."""
_SINGLE: tuple[SampleGroup, ...] = ("process", "location")


def _end(fields: Fields, address: str, port: str) -> str:
    where = str(fields.get(address) or "?")
    if not fields.get(port):
        return where
    return f"[{where}]:{fields[port]}" if ":" in where else f"{where}:{fields[port]}"
