"""The catalogue of probes and profiles as text for people and as JSON for scripts."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from netconsole.base import figure
from netconsole.base.figure import safe
from netconsole.budget import forecast
from netconsole.budget.forecast import Forecast
from netconsole.calibrate.result import Calibration, Entry
from netconsole.probes.manifest import Manifest
from netconsole.profile.origins import explain
from netconsole.profile.profile import Profile

if TYPE_CHECKING:
    from netconsole.budget.forecaster import Forecasts

COLUMNS = 80


def probe_list(manifests: Mapping[str, Manifest]) -> str:
    """One paragraph per probe."""
    return "\n".join(
        _entry(manifest.name, f"{manifest.summary} ({manifest.cost}; {', '.join(manifest.modes)})")
        for manifest in manifests.values()
    )


def probe_text(manifest: Manifest, calibration: Calibration | None = None, outlook: Forecasts | None = None) -> str:
    """Everything about one probe that matters before it is switched on; its cost here as far as that was measured."""
    lines = [f"{manifest.name}, version {manifest.version}: {manifest.title}", "", *_wrapped(manifest.summary)]
    if manifest.cannot_see:
        lines += ["", *_wrapped(f"Cannot see: {manifest.cannot_see}")]
    lines += [
        "",
        f"cost      {manifest.cost}",
        f"modes     {', '.join(manifest.modes)}",
        f"source    {manifest.source}",
    ]
    if manifest.source == "bpf":
        lines += ["", *_costs_here(manifest, calibration)]
    if outlook is not None:
        lines += ["", "forecast for now"]
        lines += [line for one in outlook.forecasts for line in _indented(forecast.describe(one))]
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


def probe_json(
    manifest: Manifest, calibration: Calibration | None = None, outlook: Forecasts | None = None
) -> dict[str, Any]:
    """A probe for a script. ``calibrated`` is by mode, empty when nothing was measured on this host and kernel."""
    return {
        "calibrated": {mode: _calibrated_json(entry, manifest) for mode, entry in _entries(manifest, calibration)},
        **({"forecast": [_forecast_json(one) for one in outlook.forecasts]} if outlook is not None else {}),
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


def _entries(manifest: Manifest, calibration: Calibration | None) -> list[tuple[str, Entry]]:
    """By mode, the newest entry of this version of the probe, and of it alone where there is one."""
    found: dict[str, Entry] = {}
    entries = calibration.entries.values() if calibration is not None else ()
    for entry in sorted(entries, key=lambda one: (len(one.probes) == 1, one.created)):
        if entry.versions.get(manifest.name) == manifest.version:
            found[entry.probes[manifest.name]] = entry
    return sorted(found.items())


def _costs_here(manifest: Manifest, calibration: Calibration | None) -> list[str]:
    entries = _entries(manifest, calibration)
    if not entries:
        return [*_wrapped(f"cost here: not calibrated; netconsole calibrate --probe {manifest.name} measures it")]
    lines = ["cost here, by calibration"]
    for mode, entry in entries:
        alone = "" if len(entry.probes) == 1 else f", among the probes of {entry.name}"
        lines.append(f"  in {safe(mode, 20)}, {safe(entry.created, 40)}{safe(alone, 60)}")
        for program in entry.programs:
            if program.probe == manifest.name:
                took = figure.quantity(program.ns_per_run, "ns")
                empty = figure.quantity(program.empty_ns, "ns")
                lines.append(f"    {safe(program.name, 24):24} {took} a run; an empty program {empty}")
        per_count = entry.per_count.get(manifest.name)
        if per_count is not None:
            found = f"{figure.quantity(per_count.ns, 'ns')} for each of {per_count.counter} (by {per_count.basis})"
            lines += _indented(f"{found}: the estimate for a kernel without run-time statistics", 4)
    return lines


def _calibrated_json(entry: Entry, manifest: Manifest) -> dict[str, Any]:
    per_count = entry.per_count.get(manifest.name)
    return {
        "entry": entry.name,
        "created": entry.created,
        "ns_per_run": {one.name: one.ns_per_run for one in entry.programs if one.probe == manifest.name},
        "per_count": None if per_count is None else {"counter": per_count.counter, "ns": per_count.ns},
    }


def _forecast_json(one: Forecast) -> dict[str, Any]:
    return {
        "mode": one.mode,
        "basis": one.times.basis,
        "bound": one.times.bound,
        "runs_per_s": one.runs_per_s,
        "kernel_cpu_pct": one.kernel_cpu_pct,
        "ns_per_packet": one.ns_per_packet,
        "by_cpu": {str(cpu): pct for cpu, pct in sorted(one.by_cpu.items())},
        "missing": list(one.missing),
    }


def profile_list(profiles: Iterable[Profile]) -> str:
    """One paragraph per profile."""
    return "\n".join(_entry(profile.name, profile.description) for profile in profiles)


def profile_checked(profile: Profile, manifests: Mapping[str, Manifest]) -> str:
    """Every value of a profile that is right, with where it comes from and what it means."""
    lines = [f"{profile.name}: ok ({safe(profile.path)})" if profile.path is not None else f"{profile.name}: ok"]
    section = ""
    for one in explain(profile, manifests):
        if one.section != section:
            section = one.section
            lines += ["", f"[{section}]"]
        value = f"{one.key} = {_toml(one.value)}" if one.value is not None else f"{one.key}: none"
        means = f"; {one.means}" if one.means else ""
        lines.append(f"{value:34} # {safe(one.origin, 60)}{safe(means)}")
    return "\n".join([*lines, *_escalations(profile)])


def _escalations(profile: Profile) -> list[str]:
    lines = []
    for rule in profile.escalations:
        pairs = [(name, value) for name, value in rule.as_dict().items() if value != {}]
        lines += ["", "[[escalate]]", *(f"{name} = {_toml(value)}" for name, value in pairs)]
    return lines


def profile_text(profile: Profile, manifests: Mapping[str, Manifest]) -> str:
    """A profile with everything that it inherits, in the words of its file."""
    lines = _wrapped(f"{profile.name}: {profile.description}")
    if profile.path is not None:
        lines.append(f"file      {safe(profile.path)}")
    if profile.inherits:
        lines.append(f"inherits  {', '.join(profile.inherits)}")
    if profile.ttl_s is not None:
        lines.append(f"ttl       {profile.ttl_s:g} s")
    if profile.keep:
        lines.append(f"keep      {', '.join(profile.keep)}")
    lines += ["", "[budget]"]
    for name, value in profile.budget.as_dict().items():
        lines.append(f"{name} = {_toml(value)}" if value is not None else f"# {name}: no limit")
    if profile.filters:
        lines += ["", "[filters]", *(f"{name} = {_toml(value)}" for name, value in profile.filters.items())]
    for probe, choice in profile.probes.items():
        lines += ["", f"[probes.{probe}]", f'mode = "{choice.mode}"']
        lines += ["pin = true"] if choice.pin else []
        lines += [] if choice.kernel_cpu_pct is None else [f"kernel_cpu_pct = {choice.kernel_cpu_pct:g}"]
        filters = {name: value for name, value in profile.filters.items() if name in manifests[probe].knobs}
        knobs = {**manifests[probe].knobs, **filters, **choice.knobs} if choice.mode != "off" else {}
        lines += [f"{knob} = {_toml(value)}" for knob, value in knobs.items()]
    return "\n".join([*lines, *_escalations(profile)])


def profile_json(profile: Profile, manifests: Mapping[str, Manifest] | None = None) -> dict[str, Any]:
    """A profile for a script; with ``manifests`` every value and its origin as well."""
    values = explain(profile, manifests) if manifests is not None else ()
    told = [
        {"section": one.section, "key": one.key, "value": one.value, "origin": one.origin, "means": one.means}
        for one in values
    ]
    return {
        **({"values": told} if manifests is not None else {}),
        "escalations": [rule.as_dict() for rule in profile.escalations],
        "name": profile.name,
        "description": profile.description,
        "file": None if profile.path is None else str(profile.path),
        "inherits": list(profile.inherits),
        "ttl_s": profile.ttl_s,
        "keep": list(profile.keep),
        "budget": profile.budget.as_dict(),
        "filters": dict(profile.filters),
        "probes": {
            name: {
                "mode": choice.mode,
                "pin": choice.pin,
                "kernel_cpu_pct": choice.kernel_cpu_pct,
                "knobs": dict(choice.knobs),
            }
            for name, choice in profile.probes.items()
        },
    }


def _entry(name: str, text: str) -> str:
    return textwrap.fill(safe(text, 1000), COLUMNS, initial_indent=f"{name:18} ", subsequent_indent=" " * 19)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(safe(text, 2000), COLUMNS)


def _indented(text: str, columns: int = 2) -> list[str]:
    indent = " " * columns
    return textwrap.wrap(safe(text, 2000), COLUMNS, initial_indent=indent, subsequent_indent=indent + "  ")


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{safe(name)} = {_toml(one)}" for name, one in value.items()) + " }"
    return f'"{safe(value)}"' if isinstance(value, str) else str(value)
