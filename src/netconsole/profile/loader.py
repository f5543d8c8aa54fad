"""Finds and reads profiles: TOML files, checked against the manifests. All mistakes are reported at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from netconsole.base import paths
from netconsole.base.checker import Checker, close, shown
from netconsole.base.errors import BadInput, bad
from netconsole.base.figure import parse_duration
from netconsole.base.readers import read_toml
from netconsole.probes.catalogue import Catalogue
from netconsole.probes.knobs import FILTERS, contradictions, refusal, unit_of, without_unit
from netconsole.probes.manifest import Manifest
from netconsole.profile import escalation_rules
from netconsole.profile.escalation_rules import Escalation
from netconsole.profile.profile import ACTIONS, LIMITS, MODES, Budget, Enforcement, ProbeChoice, Profile, ProfileMode
from netconsole.telemetry.frames import Scalar
from netconsole_collector.probe.config import SEEN_PCT

MAX_INHERITED = 8

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def available(directories: Sequence[Path] | None = None) -> dict[str, Path]:
    """Profiles by name. A user's profile hides the host's of that name, and that one a shipped one."""
    found: dict[str, Path] = {}
    for directory in paths.profile_directories() if directories is None else directories:
        try:
            entries = sorted(directory.glob("*.toml"))
        except OSError:
            continue
        for entry in entries:
            found.setdefault(entry.stem, entry)
    return dict(sorted(found.items()))


def find(name: str, directories: Sequence[Path] | None = None) -> Path:
    """The file of a profile, given by name or by path (with a / or the ending .toml). Raises BadInput."""
    if "/" in name or name.endswith(".toml"):
        return Path(name)
    known = available(directories)
    if name not in known:
        raise bad("--profile", name, f"unknown profile{close(name, known)}")
    return known[name]


def load(name: str, manifests: Mapping[str, Manifest], directories: Sequence[Path] | None = None) -> Profile:
    """A profile by name or file, with what it inherits. Raises BadInput with all its mistakes."""
    return _load(find(name, directories), manifests, directories, ())


def load_file(path: Path, manifests: Mapping[str, Manifest]) -> Profile:
    """The profile in this file. Raises BadInput with all its mistakes."""
    return _load(path, manifests, None, ())


def choice(values: Mapping[str, object], manifest: Manifest) -> ProbeChoice:
    """What the user typed for one probe, checked like a section of a profile. Raises BadInput with the given keys."""
    item = Checker("", values)
    found = _choice(item, manifest, ProbeChoice())
    if item.problems:
        raise BadInput(item.problems)
    return found


def _load(
    path: Path, manifests: Mapping[str, Manifest], directories: Sequence[Path] | None, below: tuple[str, ...]
) -> Profile:
    document = read_toml(path)
    root = Checker(str(path), document)
    root.only(("profile", "budget", "filters", "probes", "escalate"), "section")
    head = root.table("profile")
    head.only(("name", "description", "inherits", "ttl", "keep"))
    name = head.text("name", path.stem)
    if _NAME.fullmatch(name) is None or name != path.stem:
        head.wrong("name", f"expected {shown(path.stem)}, the name of the file")
    description = head.text("description", "")
    ttl_s = _ttl(head)
    budget_limits = _budget(root.table("budget"))
    filters = _filters(root.table("filters"))
    base = _inherited(head, path, manifests, directories, (*below, path.stem))
    inherited = base or Profile(name)
    choices = dict(inherited.probes)
    for key, item in _probes(root.table("probes"), manifests):
        choices[key] = _choice(item, manifests[key], inherited.probes.get(key, ProbeChoice()))
    budget = _merged_budget(inherited.budget, budget_limits)
    escalations = _escalations(root, manifests, budget, choices) if root.has("escalate") else inherited.escalations
    keep = _keep(head, manifests, inherited, choices)
    if root.problems:
        raise BadInput(root.problems)
    return Profile(
        name=name,
        description=description,
        path=path,
        inherits=(inherited.name, *inherited.inherits) if base else (),
        base=base,
        ttl_s=ttl_s,
        budget=budget,
        filters={**inherited.filters, **filters},
        probes=choices,
        escalations=escalations,
        keep=keep,
        stated=frozenset(_keys(document)),
    )


def _keys(document: Mapping[str, object], above: str = "") -> Iterator[str]:
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from _keys(value, f"{above}{name}.")
        else:
            yield above + name


def _inherited(
    head: Checker,
    path: Path,
    manifests: Mapping[str, Manifest],
    directories: Sequence[Path] | None,
    below: tuple[str, ...],
) -> Profile | None:
    if not head.has("inherits"):
        return None
    base = head.text("inherits")
    if not isinstance(head.values["inherits"], str):
        return None
    # A user's profile may inherit from a shipped one of the same name. Any other repetition is a circle.
    known = available(directories)
    if base in below and not (base == path.stem and known.get(base) != path):
        head.wrong("inherits", f"{' → '.join((*below, base))}: a profile cannot inherit from itself")
        return None
    if len(below) > MAX_INHERITED:
        head.wrong("inherits", f"more than {MAX_INHERITED} profiles deep")
        return None
    if base not in known:
        head.wrong("inherits", f"unknown profile {shown(base)}{close(base, known)}")
        return None
    try:
        return _load(known[base], manifests, directories, below)
    except BadInput as error:
        head.problems.extend(error.problems)
        return None


def _keep(
    head: Checker, manifests: Mapping[str, Manifest], base: Profile, choices: Mapping[str, ProbeChoice]
) -> tuple[str, ...]:
    """The probes that the profile is for. What it inherits of them and then switches off is left out."""
    running = [name for name, one in choices.items() if one.mode != "off"]
    if not head.has("keep"):
        return tuple(name for name in base.keep if name in running)
    named = head.texts("keep")
    for name in named:
        if name not in manifests:
            head.wrong("keep", f"unknown probe {shown(name)}{close(name, manifests)}")
        elif name not in running:
            head.wrong(
                "keep", f"{name} does not run in this profile: give it a section [probes.{name}], or leave it out"
            )
        elif manifests[name].source != "bpf":
            head.wrong("keep", f"{name} costs nothing in the kernel: the governor never lowers it")
    return tuple(dict.fromkeys(named))


def _ttl(head: Checker) -> float | None:
    if not head.has("ttl"):
        return None
    text = head.text("ttl")
    seconds = parse_duration(text)
    if seconds is None or seconds <= 0:
        if isinstance(head.values["ttl"], str):
            head.wrong("ttl", f'expected a time such as "90s", "5m" or "1h", found {shown(text)}')
        return None
    if not head.has("inherits"):
        head.wrong("ttl", "contradicts the absence of inherits: there is no profile to go back to")
    return seconds


def _budget(section: Checker) -> dict[str, float | str]:
    _unknown(section, (*LIMITS, "action"))
    limits: dict[str, float | str] = {}
    for name, (high, unit) in LIMITS.items():
        value = section.number(name, None, 0, high, unit)
        if value is not None:
            limits[name] = value
    if section.has("action"):
        limits["action"] = section.text("action", "warn", ACTIONS)
    return limits


def _merged_budget(base: Budget, limits: Mapping[str, float | str]) -> Budget:
    values = {**base.as_dict(), **limits}
    action = cast("Enforcement", values.pop("action"))
    return Budget(**cast("dict[str, float | None]", values), action=action)


def _filters(section: Checker) -> dict[str, Scalar]:
    _unknown(section, FILTERS)
    filters = _values(section, dict.fromkeys(FILTERS, ""))
    _contradictions(section, filters)
    return filters


def _escalations(
    root: Checker, manifests: Mapping[str, Manifest], budget: Budget, choices: Mapping[str, ProbeChoice]
) -> list[Escalation]:
    """The rules of a profile. They replace all inherited ones. What they may cost must fit into the budget."""
    items = root.tables("escalate")
    if len(items) > escalation_rules.MAX_RULES:
        root.wrong("escalate", f"more than {escalation_rules.MAX_RULES} rules")
    found = []
    for item in items[: escalation_rules.MAX_RULES]:
        rule = escalation_rules.parse(item, manifests)
        if rule is None:
            continue
        if choices.get(rule.probe, ProbeChoice("off")).mode == "off":
            item.wrong("probe", f"{rule.probe} does not run in this profile: there is no summary to watch")
        for name in ("kernel_cpu_pct", "events_per_s"):
            limit, asked = getattr(budget, name), getattr(rule, name)
            if limit is not None and asked > limit:
                item.wrong(name, f"contradicts budget.{name} = {limit:g}: details may take {asked:g}")
        found.append(rule)
    return found


def _probes(section: Checker, manifests: Mapping[str, Manifest]) -> list[tuple[str, Checker]]:
    if isinstance(manifests, Catalogue):
        section.only(manifests.names, "probe")
        for name in section.values:
            try:
                manifests.require(name)
            except BadInput as error:
                section.problems.extend(error.problems)
    else:
        section.only(manifests, "probe")
    return [(name, item) for name, item in section.each() if name in manifests]


def _choice(item: Checker, manifest: Manifest, inherited: ProbeChoice) -> ProbeChoice:
    _unknown(item, ("mode", "pin", "kernel_cpu_pct", *manifest.knobs))
    mode = cast("ProfileMode", item.text("mode", inherited.mode, MODES))
    if mode != "off" and mode not in manifest.modes:
        item.wrong("mode", f"{manifest.name} has no mode {mode}; its modes are {', '.join(manifest.modes)}")
    pin = item.boolean("pin", inherited.pin)
    own_pct = item.number("kernel_cpu_pct", inherited.kernel_cpu_pct, 0.01, *LIMITS["kernel_cpu_pct"])
    if item.has("kernel_cpu_pct") and SEEN_PCT not in manifest.knobs:
        item.wrong("kernel_cpu_pct", f"{manifest.name} cannot be attached for a share of the time")
    knobs = _values(item, manifest.knobs)
    _contradictions(item, knobs)
    if mode != "off":
        return ProbeChoice(mode, pin, own_pct, {**inherited.knobs, **knobs})
    others = [name for name in ("pin", "kernel_cpu_pct") if item.has(name) and (name != "pin" or pin)]
    for name in (*knobs, *others):
        item.wrong(name, 'contradicts mode "off"')
    return ProbeChoice("off")


def _values(section: Checker, defaults: Mapping[str, Scalar]) -> dict[str, Scalar]:
    values: dict[str, Scalar] = {}
    for name, value in section.values.items():
        if name not in defaults:
            continue
        why = refusal(name, value, defaults[name])
        if why is None:
            values[name] = cast("Scalar", value)
        else:
            section.wrong(name, why)
    return values


def _contradictions(section: Checker, knobs: Mapping[str, Scalar]) -> None:
    for name, why in contradictions(knobs):
        section.wrong(name, why)


def _unknown(section: Checker, known: Sequence[str]) -> None:
    """Add a mistake for every unknown key. If it is a known key with another unit, say so."""
    for name in section.values:
        if name in known:
            continue
        same = [other for other in known if without_unit(other) == without_unit(name) and unit_of(name)]
        if same:
            section.wrong(name, f'wrong unit: expected "{same[0]}", in {unit_of(same[0])}')
        else:
            section.wrong(name, f"unknown key{close(name, known)}")
