"""Finds the facts of the host that changed, and the findings that each may explain."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from netconsole.base.fact_keys import FactValue, parts
from netconsole.compare.document import FactChange
from netconsole.compare.metrics import Metric, Metrics
from netconsole.probes.manifest import GovernedSpec, Manifest
from netconsole.probes.polarity import TIME_UNITS

MAX_CHANGES = 500
THERE = "there"
"""The value for a device or VM that exists on one side only. It replaces all its facts."""
_IGNORED = re.compile(r"nic/[^/]*/mac$")
"""Facts that are not compared. A virtual device gets a new MAC each time, and no two hosts have the same."""

TIMES = GovernedSpec(
    ("cpu/*", "mitigation/*", "kernel/*", "numa/*", "memory/*", "module/haltpoll/*", "module/kvm*/*"), ("time",)
)
"""Facts that may move every metric that is a time; what else governs a probe's figures is in its manifest."""


@dataclass(frozen=True, slots=True)
class Change:
    """One changed fact, with the device or VM that it belongs to, if any (``thing``)."""

    fact: str
    baseline: FactValue
    current: FactValue
    thing: str | None

    @property
    def is_setting(self) -> bool:
        """Whether a setting has changed. A device or VM that came or went is not a changed setting."""
        return THERE not in (self.baseline, self.current)

    def with_ranks(self, ranks: list[int]) -> FactChange:
        """The change for the document."""
        return FactChange(self.fact, self.baseline, self.current, ranks)


def changed_facts(now: Metrics, before: Sequence[Metrics]) -> list[Change]:
    """Facts whose value is not in any snapshot of the baseline. A fact that is unknown on one side is left out."""
    current, unknown_now = _values(now)
    past = [_values(one) for one in before]
    if not current or not all(values for values, _ in past):
        return []
    changes = []
    for fact in sorted({*current, *(fact for values, _ in past for fact in values)}):
        if _IGNORED.search(fact):
            continue
        if _covered(fact, unknown_now) or any(_covered(fact, unknown) for _, unknown in past):
            continue
        seen = [values.get(fact) for values, _ in past]
        value = current.get(fact)
        if value not in seen:
            changes.append(Change(fact, seen[-1], value, _thing(fact)))
    return _whole_things(changes, current, [values for values, _ in past])[:MAX_CHANGES]


def explained_by(
    metrics: Sequence[Metric], changes: Sequence[Change], manifests: Mapping[str, Manifest]
) -> list[list[str]]:
    """For each metric, the changed facts that may explain it: of its device or VM, or by GOVERNS."""
    governing = {name: _governing(manifest.governed_by, changes) for name, manifest in manifests.items()}
    times = _governing((TIMES,), changes)
    by_thing: dict[str, list[Change]] = {}
    for change in changes:
        if change.thing is not None:
            by_thing.setdefault(change.thing, []).append(change)
    result = []
    for metric in metrics:
        found = [change.fact for thing in _things(metric) for change in by_thing.get(thing, ())]
        words = metric.key.lower() + (" time" if metric.unit in TIME_UNITS else "")
        said = [*governing.get(metric.probe, ()), *times]
        governs = {fact for fact, figures in said if not figures or any(word in words for word in figures)}
        found += [change.fact for change in changes if change.fact in governs]
        result.append(list(dict.fromkeys(found)))
    return result


def _governing(specs: Sequence[GovernedSpec], changes: Sequence[Change]) -> list[tuple[str, tuple[str, ...]]]:
    """The changed facts that are meant, each with the words of the figures that it governs."""
    return [
        (change.fact, spec.figures)
        for spec in specs
        for change in changes
        if any(fnmatchcase(change.fact, pattern) for pattern in spec.facts)
    ]


def _values(metrics: Metrics) -> tuple[dict[str, FactValue], list[str]]:
    """The known, not volatile facts by key, with each tap named as its VM's device; and the keys of unknown ones."""
    known: dict[str, FactValue] = {}
    unknown = []
    for name, fact in metrics.snapshot.facts.items():
        if fact.volatile:
            continue
        if fact.value is None:
            unknown.append(name)
        else:
            known[metrics.names.fact(name)] = fact.value
    return known, unknown


def _whole_things(
    changes: list[Change], now: Mapping[str, FactValue], past: Sequence[Mapping[str, FactValue]]
) -> list[Change]:
    """Joins the changes of a device or VM that came or went to one change."""
    there_now = {_folder(fact) for fact in now}
    there_before = [{_folder(fact) for fact in values} for values in past]
    result: dict[str, Change] = {}
    for change in changes:
        folder = _folder(change.fact)
        if change.thing is not None and folder not in there_now:
            result[folder] = Change(folder, THERE, None, change.thing)
        elif change.thing is not None and not any(folder in folders for folders in there_before):
            result[folder] = Change(folder, None, THERE, change.thing)
        else:
            result[change.fact] = change
    return list(result.values())


def _folder(fact: str) -> str:
    """The part of a fact's key that names its device or VM: nic/eth0, ovs/port/vnet3."""
    return "/".join(fact.split("/")[: 3 if fact.startswith("ovs/") else 2])


def _covered(fact: str, unknown: Sequence[str]) -> bool:
    """Whether a fact, or the whole area of it, could not be read."""
    return any(fact == name or fact.startswith(f"{name}/") for name in unknown)


def _thing(fact: str) -> str | None:
    where = parts(fact)
    if len(where) >= 3 and where[0] in ("nic", "tc", "vm", "namespace"):
        return where[1]
    if len(where) >= 4 and where[0] == "ovs" and where[1] in ("port", "interface", "bridge"):
        return where[2]
    return None


def _things(metric: Metric) -> list[str]:
    """The devices and VMs that a metric's labels name. `web-07 net0` names both."""
    found = []
    for _, value in metric.labels:
        if isinstance(value, str) and value:
            found.append(value)
            vm = re.fullmatch(r"(.*) (net\d+|vhost\d*|vcpu\d+|qemu)", value, re.DOTALL)
            if vm:
                found.append(vm[1])
    return list(dict.fromkeys(found))
