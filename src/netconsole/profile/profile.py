"""A profile: which probes run, in which mode, with which knobs, and what they may cost (docs/use/profiles.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from netconsole.profile.escalation_rules import Escalation
from netconsole.telemetry.frames import Mode, Scalar

ProfileMode: TypeAlias = Mode | Literal["off"]
Enforcement: TypeAlias = Literal["degrade", "warn", "stop"]

MODES: tuple[ProfileMode, ...] = ("counters", "summary", "details", "off")
ACTIONS: tuple[Enforcement, ...] = ("degrade", "warn", "stop")

LIMITS: dict[str, tuple[float, str]] = {
    "kernel_cpu_pct": (100_000, "percent of one core"),
    "ns_per_packet": (1e9, "nanoseconds"),
    "user_cpu_pct": (100_000, "percent of one core"),
    "memory_mb": (1e6, "MB"),
    "events_per_s": (1e9, "events a second"),
    "record_mb_per_min": (1e6, "MB a minute"),
}
"""By limit: the highest allowed value, and its unit."""
LIMIT_MEANS = {
    "kernel_cpu_pct": "percent of one core, all our programs in the kernel",
    "ns_per_packet": "kernel time per received packet",
    "user_cpu_pct": "percent of one core, console and collector",
    "memory_mb": "MB, console and collector",
    "events_per_s": "samples a second, all probes",
    "record_mb_per_min": "MB a minute of a recording",
    "action": "what happens above a limit",
}


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of cost; None is no limit. Percent of one core. ``action``: what happens when a limit is exceeded."""

    kernel_cpu_pct: float | None = None
    ns_per_packet: float | None = None
    user_cpu_pct: float | None = None
    memory_mb: float | None = None
    events_per_s: float | None = None
    record_mb_per_min: float | None = None
    action: Enforcement = "warn"

    def as_dict(self) -> dict[str, float | str | None]:
        """All limits and the action, by their names in a profile."""
        return {**{name: getattr(self, name) for name in LIMITS}, "action": self.action}


@dataclass(frozen=True, slots=True)
class ProbeChoice:
    """The mode of one probe in a profile, and the knobs that the profile sets."""

    mode: ProfileMode = "summary"
    pin: bool = False
    kernel_cpu_pct: float | None = None
    """Above so many percent of one core it is attached for a share of the time; None is no limit of its own."""
    knobs: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile with everything that it inherits."""

    name: str
    description: str = ""
    path: Path | None = None
    inherits: tuple[str, ...] = ()
    """Names of the profiles that it inherits from, nearest first."""
    base: Profile | None = None
    """The profile that it inherits from, to which it returns after ``ttl_s``."""
    ttl_s: float | None = None
    budget: Budget = field(default_factory=Budget)
    filters: Mapping[str, Scalar] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    """Filters of the command line as they were written: a network namespace by its name, the VM of a device."""
    probes: Mapping[str, ProbeChoice] = field(default_factory=dict)
    escalations: Sequence[Escalation] = ()
    keep: tuple[str, ...] = ()
    """The probes that it is for: they give up last, and never what their rows say."""
    stated: frozenset[str] = frozenset()
    """The keys in its own file, dotted: probes.kernel_drops.port."""


def chosen_by(profile: Profile, probe: str) -> str | None:
    """The name of the profile that chose a probe: this one, or the nearest that it inherits from; None without one."""
    one: Profile | None = profile
    while one is not None:
        if any(key.startswith(f"probes.{probe}.") for key in one.stated):
            return one.name
        one = one.base
    return None
