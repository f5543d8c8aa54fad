"""The catalogue of probes and profiles as text for people and as JSON for scripts."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from netconsole.figure import safe
from netconsole.probes import Manifest
from netconsole.profiles import Profile

COLUMNS = 80


def probe_list(manifests: Mapping[str, Manifest]) -> str:
    """One paragraph per probe."""
    return "\n".join(
        _entry(manifest.name, f"{manifest.summary} ({manifest.cost}; {', '.join(manifest.modes)})")
        for manifest in manifests.values()
    )


def probe_text(manifest: Manifest) -> str:
    """Everything about one probe that matters before it is switched on."""
    lines = [f"{manifest.name}, version {manifest.version}: {manifest.title}", "", *_wrapped(manifest.summary)]
    if manifest.cannot_see:
        lines += ["", *_wrapped(f"Cannot see: {manifest.cannot_see}")]
    lines += [
        "",
        f"cost      {manifest.cost}",
        f"modes     {', '.join(manifest.modes)}",
        f"source    {manifest.source}",
    ]
    if manifest.knobs:
        lines += ["", "knobs, with their defaults"]
        lines += [f"  {name} = {_toml(value)}" for name, value in manifest.knobs.items()]
    for program in manifest.programs:
        must = "required" if program.required else "optional"
        lines += ["", *_wrapped(f"program {program.name} ({must}): {program.measures}")]
        lines += [f"  {attach.point}" for attach in program.attach]
    for name, counter in manifest.counters.items():
        lines += ["", *_wrapped(f"counter {name} ({counter.unit}): {counter.help}")]
    for name, table in manifest.tables.items():
        columns = [*table.labels, *(f"{c.name} ({c.unit})" if c.unit else c.name for c in table.value)]
        lines += ["", *_wrapped(f"table {name}: {', '.join(columns)}; at most {table.max_rows} rows")]
    for name, one in manifest.histograms.items():
        lines += ["", *_wrapped(f"histogram {name} ({one.unit}) by {', '.join(one.labels) or 'nothing'}")]
    return "\n".join(lines)


def probe_json(manifest: Manifest) -> dict[str, Any]:
    """A probe for a script."""
    return {
        "name": manifest.name,
        "version": manifest.version,
        "title": manifest.title,
        "summary": manifest.summary,
        "cannot_see": manifest.cannot_see,
        "cost": manifest.cost,
        "modes": list(manifest.modes),
        "source": manifest.source,
        "knobs": dict(manifest.knobs),
        "programs": [
            {
                "name": program.name,
                "required": program.required,
                "measures": program.measures,
                "attach": [attach.point for attach in program.attach],
            }
            for program in manifest.programs
        ],
        "counters": {name: {"unit": one.unit, "help": one.help} for name, one in manifest.counters.items()},
        "tables": {
            name: {
                "labels": list(table.labels),
                "values": {column.name: {"unit": column.unit, "kind": column.kind} for column in table.value},
                "max_rows": table.max_rows,
            }
            for name, table in manifest.tables.items()
        },
        "histograms": {
            name: {"unit": one.unit, "labels": list(one.labels)} for name, one in manifest.histograms.items()
        },
    }


def profile_list(profiles: Iterable[Profile]) -> str:
    """One paragraph per profile."""
    return "\n".join(_entry(profile.name, profile.description) for profile in profiles)


def profile_text(profile: Profile) -> str:
    """A profile with everything that it inherits, in the words of its file."""
    lines = [f"{profile.name}: {profile.description}"]
    if profile.path is not None:
        lines.append(f"file      {safe(profile.path)}")
    if profile.inherits:
        lines.append(f"inherits  {', '.join(profile.inherits)}")
    if profile.ttl_s is not None:
        lines.append(f"ttl       {profile.ttl_s:g} s")
    lines += ["", "[budget]"]
    lines += [f"{name} = {_toml(value)}" for name, value in profile.budget.as_dict().items() if value is not None]
    if profile.filters:
        lines += ["", "[filters]", *(f"{name} = {_toml(value)}" for name, value in profile.filters.items())]
    for name, choice in profile.probes.items():
        lines += ["", f"[probes.{name}]", f'mode = "{choice.mode}"']
        lines += ["pin = true"] if choice.pin else []
        lines += [f"{knob} = {_toml(value)}" for knob, value in choice.knobs.items()]
    return "\n".join(lines)


def profile_json(profile: Profile) -> dict[str, Any]:
    """A profile for a script."""
    return {
        "name": profile.name,
        "description": profile.description,
        "file": None if profile.path is None else str(profile.path),
        "inherits": list(profile.inherits),
        "ttl_s": profile.ttl_s,
        "budget": profile.budget.as_dict(),
        "filters": dict(profile.filters),
        "probes": {
            name: {"mode": choice.mode, "pin": choice.pin, "knobs": dict(choice.knobs)}
            for name, choice in profile.probes.items()
        },
    }


def _entry(name: str, text: str) -> str:
    return textwrap.fill(safe(text, 1000), COLUMNS, initial_indent=f"{name:18} ", subsequent_indent=" " * 19)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(safe(text, 2000), COLUMNS)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{safe(value)}"' if isinstance(value, str) else str(value)
