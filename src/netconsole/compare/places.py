"""Where packets died, then and now: each place with its rate in the baseline and in the current snapshot."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias

from netconsole.compare.comparable import other_filters
from netconsole.compare.document import PlaceChange
from netconsole.compare.labels import Names
from netconsole.findings.places_of_snapshot import places_of
from netconsole.probes.manifest import Manifest
from netconsole.snapshot.document import DropPlaceData, Snapshot

MAX_PLACES = 50
_PROCESS_ID = re.compile(r"(?:/\d+| \(\d+\))(?= |$)")
_NETNS = re.compile(r"(?<=netns )\S+?(?=\)?$)")

_PlaceKey: TypeAlias = tuple[str, str, str]


def changed_places(
    current: Snapshot, baseline: Sequence[Snapshot], manifests: Mapping[str, Manifest]
) -> list[PlaceChange]:
    """Every place of one of them; what nobody wants first, then by how much more dies there now.

    Without those that only a probe saw whose filters differ.
    """
    narrowed = {name for name in current.probes for one in baseline if _is_narrowed_otherwise(current, one, name)}
    now = _rates(current, manifests, narrowed)
    then: dict[_PlaceKey, float] = defaultdict(float)
    levels = {key: level for key, (level, _) in now.items()}
    for snapshot in baseline:
        for key, (level, per_s) in _rates(snapshot, manifests, narrowed).items():
            then[key] += per_s / len(baseline)
            levels.setdefault(key, level)
    found = [
        PlaceChange(*key, level=level, baseline_per_s=round(then.get(key, 0.0), 3), current_per_s=_now(now, key))
        for key, level in levels.items()
    ]
    found.sort(key=lambda one: (one.level == "ok", one.baseline_per_s - one.current_per_s, one.stage, one.where))
    return found[:MAX_PLACES]


def _now(now: Mapping[_PlaceKey, tuple[str, float]], key: _PlaceKey) -> float:
    return round(now[key][1], 3) if key in now else 0.0


def _is_narrowed_otherwise(current: Snapshot, other: Snapshot, name: str) -> bool:
    past = other.probes.get(name)
    return past is not None and other_filters(current.probes[name].filters, past.filters) is not None


def _rates(
    snapshot: Snapshot, manifests: Mapping[str, Manifest], without: AbstractSet[str]
) -> dict[_PlaceKey, tuple[str, float]]:
    """Level and packets per second by place, with names that another boot has, too."""
    names = Names(snapshot.facts)
    found: dict[_PlaceKey, tuple[str, float]] = {}
    for place in places_of(snapshot, manifests):
        if place.probes and without >= set(place.probes):
            continue
        key = (place.stage, stable(place.where, names), place.why)
        level, before = found.get(key, (place.level, 0.0))
        found[key] = (level, before + _per_s(place, snapshot))
    return found


def _per_s(place: DropPlaceData, snapshot: Snapshot) -> float:
    if place.per_s is not None:
        return place.per_s
    return place.total / snapshot.duration_s if snapshot.duration_s else 0.0


def stable(where: str, names: Names) -> str:
    """A place with its tap as the VM's device, its process without its number, its namespace by name."""
    named = " ".join(str(names.device(word)) for word in _PROCESS_ID.sub("", where).split(" "))
    return _NETNS.sub(lambda found: str(names.label("netns", found[0])), named)
