"""Explains every value of a profile with its origin: its own file, an inherited file, a filter, or a default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from netconsole.probes.knobs import hint
from netconsole.probes.manifest import Manifest
from netconsole.profile.profile import LIMIT_MEANS, Profile

ProfileValue: TypeAlias = str | int | float | bool | None
OriginKind: TypeAlias = Literal["own", "inherited", "filter", "default"]


@dataclass(frozen=True, slots=True)
class Explained:
    """One value. ``section``: the section of the file. A value None is no limit, or no time to live."""

    section: str
    key: str
    value: ProfileValue
    kind: OriginKind
    origin: str
    means: str = ""


def explain(profile: Profile, manifests: Mapping[str, Manifest]) -> Iterator[Explained]:
    """All values in the order of a file. The escalation rules are one value."""
    yield _own_alone(profile, "description", profile.description, "what the profile is for")
    yield _own_alone(profile, "inherits", profile.inherits[0] if profile.inherits else None, "what it extends")
    back = f"then back to {profile.inherits[0]}" if profile.inherits else "how long it runs"
    yield _own_alone(profile, "ttl", None if profile.ttl_s is None else f"{profile.ttl_s:g}s", back)
    yield _stated(profile, "profile", "keep", ", ".join(profile.keep) or None, "these probes give up last")
    for name, limit in profile.budget.as_dict().items():
        yield _stated(profile, "budget", name, limit, LIMIT_MEANS[name])
    for name, value in profile.filters.items():
        yield _stated(profile, "filters", name, value, "for every probe with a knob of this name")
    for probe, choice in profile.probes.items():
        section = f"probes.{probe}"
        yield _stated(profile, section, "mode", choice.mode, "")
        if choice.mode == "off":
            continue
        yield _stated(profile, section, "pin", choice.pin, "the governor leaves it alone")
        if choice.kernel_cpu_pct is not None:
            yield _stated(profile, section, "kernel_cpu_pct", choice.kernel_cpu_pct, "above it, a share of the time")
        for knob, default in manifests[probe].knobs.items():
            means = hint(knob, default)
            if knob in choice.knobs:
                yield _stated(profile, section, knob, choice.knobs[knob], means)
            elif knob in profile.filters:
                from_filter = _stated(profile, "filters", knob, profile.filters[knob], means)
                yield Explained(section, knob, from_filter.value, "filter", f"filter, {from_filter.origin}", means)
            else:
                yield Explained(section, knob, default, "default", "default of the probe", means)


def _stated(profile: Profile, section: str, key: str, value: ProfileValue, means: str) -> Explained:
    """A value from the nearest file that has it; the default when none has."""
    one: Profile | None = profile
    while one is not None:
        if f"{section}.{key}" in one.stated:
            if one is profile:
                return Explained(section, key, value, "own", "this file", means)
            return Explained(section, key, value, "inherited", f"inherited from {one.name}", means)
        one = one.base
    return Explained(section, key, value, "default", "default", means)


def _own_alone(profile: Profile, key: str, value: ProfileValue, means: str) -> Explained:
    """A key of [profile] that is not inherited."""
    is_own = f"profile.{key}" in profile.stated
    return Explained("profile", key, value, "own" if is_own else "default", "this file" if is_own else "default", means)
