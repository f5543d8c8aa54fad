"""Then and now: where packets died, each place with its rate in the baseline and in the current snapshot; what passed
each stage of a mirror; and what caps each VM."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, TypeAlias

from netconsole.compare.comparable import other_filters
from netconsole.compare.document import MachineChange, MirrorChange, PlaceChange
from netconsole.compare.labels import Names
from netconsole.compare.pseudonyms import differing_names
from netconsole.probes.manifest import Manifest
from netconsole.snapshot.caps import Cap, caps, verdict
from netconsole.snapshot.document import MEASURED, DropPlaceData, Snapshot
from netconsole.snapshot.machine_figures import MachineFigures, machines
from netconsole.snapshot.mirror_ledger import MIRROR

MAX_PLACES, MAX_MACHINES = 50, 200
_PROCESS_ID = re.compile(r"(?:/\d+| \(\d+\))(?= |$)")
_NETNS = re.compile(r"(?<=netns )\S+?(?=\)?$)")

_PlaceKey: TypeAlias = tuple[str, str, str]


class _Seen(NamedTuple):
    """A place of one snapshot, and the probes that saw it."""

    level: str
    per_s: float
    probes: frozenset[str]


def changed_places(
    current: Snapshot, baseline: Sequence[Snapshot], manifests: Mapping[str, Manifest]
) -> list[PlaceChange]:
    """Every place of one of them; what nobody wants first, then by how much more dies there now.

    Without those that only a probe saw whose filters differ.
    """
    narrowed = {name for name in current.probes for one in baseline if _is_narrowed_otherwise(current, one, name)}
    now, *then = [(_seen(one, narrowed), _looking(one) - narrowed) for one in (current, *baseline)]
    names_differ = differing_names(current, baseline, manifests)
    levels: dict[_PlaceKey, str] = {}
    seen_by: dict[_PlaceKey, set[frozenset[str]]] = defaultdict(set)
    for places, _ in (now, *then):
        for key, place in places.items():
            levels.setdefault(key, place.level)
            if not names_differ.within(key[1]):  # the other side may have it by its other name
                seen_by[key].add(place.probes)
    found = []
    for key, level in levels.items():
        rates = [_rate(places.get(key), looking, seen_by[key]) for places, looking in (now, *then)]
        found.append(PlaceChange(*key, level=level, baseline_per_s=_mean(rates[1:]), current_per_s=_mean(rates[:1])))
    found.sort(
        key=lambda one: (
            one.level == "ok",
            (one.baseline_per_s or 0.0) - (one.current_per_s or 0.0),
            one.stage,
            one.where,
        )
    )
    return found[:MAX_PLACES]


def changed_mirror(current: Snapshot, baseline: Sequence[Snapshot]) -> list[MirrorChange] | None:
    """What passed each stage of the mirror and what was lost there. None: it was not measured now.

    What was narrowed by other filters is no baseline of it.
    """
    if current.mirror is None:
        return None
    alike = [one.mirror for one in baseline if not _is_narrowed_otherwise(current, one, MIRROR)]
    then = [{stage.stage: stage for stage in one.stages} for one in alike if one is not None]
    found = []
    for now in current.mirror.stages:
        past = [stages[now.stage] for stages in then if now.stage in stages]
        if now.passed_per_s is not None:
            before = _mean([one.passed_per_s for one in past])
            found.append(MirrorChange(now.stage, False, before, now.passed_per_s, now.where))
        if now.lost_per_s is not None:
            before = _mean([one.lost_per_s for one in past])
            found.append(MirrorChange(now.stage, True, before, now.lost_per_s, now.where))
    return found


def changed_machines(current: Snapshot, baseline: Sequence[Snapshot]) -> list[MachineChange]:
    """The VMs that something else caps than in the newest snapshot of the baseline, those that are capped now first."""
    before = max(baseline, key=lambda one: one.created)
    found = []
    for name in sorted({*machines(current)} & {*machines(before)})[:MAX_MACHINES]:
        then, now = _verdict_of(before, name), _verdict_of(current, name)
        if then.name != now.name:  # of one that nothing caps the name is empty
            found.append(MachineChange(name, now.state == "caps", then.text, now.text))
    return sorted(found, key=lambda one: not one.is_capped)


def _verdict_of(snapshot: Snapshot, name: str) -> Cap:
    return verdict(caps(MachineFigures(snapshot, name)))


def _looking(snapshot: Snapshot) -> set[str]:
    """The probes that would have listed a place: in mode counters none does, and an old snapshot has no list."""
    if snapshot.drop_places is None:
        return set()
    return {name for name, one in snapshot.probes.items() if one.status in MEASURED and one.mode != "counters"}


def _rate(place: _Seen | None, looking: AbstractSet[str], seen_by: AbstractSet[frozenset[str]]) -> float | None:
    """Packets per second in one snapshot, which lists the place or not. None: nobody knows that none died there.

    A coarser probe alone may tell the same packets in other words, so all that saw the place elsewhere have to look.
    """
    if place is not None:
        return place.per_s
    return 0.0 if any(probes <= looking for probes in seen_by) else None


def _mean(rates: Sequence[float | None]) -> float | None:
    known = [one for one in rates if one is not None]
    return round(sum(known) / len(known), 3) if known else None


def _is_narrowed_otherwise(current: Snapshot, other: Snapshot, name: str) -> bool:
    past = other.probes.get(name)
    return past is not None and other_filters(current.probes[name].filters, past.filters) is not None


def _seen(snapshot: Snapshot, without: AbstractSet[str]) -> dict[_PlaceKey, _Seen]:
    """The places of a snapshot, with names that another boot has, too."""
    names = Names(snapshot.facts)
    found: dict[_PlaceKey, _Seen] = {}
    for place in snapshot.drop_places or ():
        if place.probes and without >= set(place.probes):
            continue
        key = (place.stage, stable(place.where, names), place.why)
        known = found.get(key, _Seen(place.level, 0.0, frozenset()))
        probes = known.probes.union(place.probes)
        found[key] = _Seen(known.level, known.per_s + _per_s(place, snapshot), probes)
    return found


def _per_s(place: DropPlaceData, snapshot: Snapshot) -> float:
    if place.per_s is not None:
        return place.per_s
    return place.total / snapshot.duration_s if snapshot.duration_s else 0.0


def stable(where: str, names: Names) -> str:
    """A place with its tap as the VM's device, its process without its number, its namespace by name."""
    named = " ".join(str(names.device(word)) for word in _PROCESS_ID.sub("", where).split(" "))
    return _NETNS.sub(lambda found: str(names.label("netns", found[0])), named)
