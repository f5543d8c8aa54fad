"""What a run is about: one network namespace, or one device. Frames of anything else are left out, for all readers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from netconsole.base.fact_keys import parts
from netconsole.base.figure import safe
from netconsole.probes.manifest import ColumnSpec, Manifest
from netconsole.profile.profile import Profile
from netconsole.telemetry import frames
from netconsole.telemetry.frames import AnyFrame, Scalar

_NETNS: Final = "netns"
_DEVICE: Final = "device"
_VM: Final = "vm"
_SCOPE = (_NETNS, _DEVICE)
_OF_THE_HOST = frozenset({"cpu", "softirq"})
"""Labels that name nothing of a network namespace: rows with these alone are of the whole host."""
_OWN_COST = "self_cost"
_OF_A_NAME = 1
"""In place of the inode of a namespace, where it is told by its name."""
_OWN_FACTS = ("nic", "tc", "ovs", "vm")
"""Areas of facts that are of the console's own network namespace."""


class RunScope:
    """Leaves out what is outside. One thread changes it, others use it.

    ``given``: the filters as they were given, by name. A namespace is told by its inode; :meth:`learn` says its names.
    """

    def __init__(
        self, filters: Mapping[str, Scalar], manifests: Mapping[str, Manifest], given: Mapping[str, str]
    ) -> None:
        self._netns = inode if isinstance(inode := filters.get(_NETNS), int) and inode else None
        self._device = device if isinstance(device := filters.get(_DEVICE), str) and device else None
        self._names: frozenset[str] = frozenset({str(self._netns), *([name] if (name := given.get(_NETNS)) else [])})
        self._is_own = False
        self._vms: frozenset[str] = frozenset({vm} if (vm := given.get(_VM)) else ())
        self._manifests = manifests
        self._devices: dict[str, frozenset[str]] = {}
        """By probe: the labels that name a device."""

    @classmethod
    def of_document(cls, scope: Mapping[str, str], manifests: Mapping[str, Manifest]) -> RunScope:
        """That of a snapshot, which has the name of its namespace alone."""
        made = cls({_NETNS: _OF_A_NAME if _NETNS in scope else 0, _DEVICE: scope.get(_DEVICE)}, manifests, scope)
        made._is_own = scope.get(_NETNS) == "host"
        return made

    def __bool__(self) -> bool:
        return self._netns is not None or self._device is not None

    @property
    def netns(self) -> int | None:
        """The inode of its network namespace; None without one."""
        return self._netns

    def learn(self, names: Iterable[str], is_own: bool) -> None:
        """What its namespace is called in labels, and whether it is the console's own."""
        self._names, self._is_own = frozenset(names), is_own

    def narrowed(self, frame: AnyFrame, knobs: Mapping[str, Scalar]) -> AnyFrame | None:
        """The frame with what is inside; None of one that is outside. ``knobs``: those of its probe."""
        if frame.probe is None or self._is_narrow(knobs):
            return frame
        if isinstance(frame, frames.Table):
            rows = [row for row in frame.rows if self.has(frame.probe, row.labels)]
            return frame if len(rows) == len(frame.rows) else msgspec.structs.replace(frame, rows=rows)
        if isinstance(frame, frames.Histogram):
            return frame if self.has(frame.probe, frame.labels) else None
        if isinstance(frame, frames.Event):
            return frame if self.has(frame.probe, frame.fields) else None
        return frame

    def has(self, probe: str, labels: Mapping[str, object]) -> bool:
        """Whether a row of a probe, or a sample, is of what is inside, or of the whole host."""
        if self._netns is not None:
            if _NETNS in labels:
                if str(labels[_NETNS]) not in self._names:
                    return False
            elif not self._is_own and not labels.keys() <= _OF_THE_HOST:
                return False
        if self._device is None:
            return True
        devices = [labels[name] for name in self._device_labels(probe) if name in labels]
        if devices:
            if self._device not in devices:
                return False
            if isinstance(vm := labels.get(_VM), str) and vm:
                self._vms |= {vm}
            return True
        return _VM not in labels or labels[_VM] in self._vms

    def _device_labels(self, probe: str) -> frozenset[str]:
        if probe not in self._devices:
            manifest = self._manifests.get(probe)
            columns = () if manifest is None else _columns(manifest)
            self._devices[probe] = frozenset(one.name for one in columns if _is_device(one))
        return self._devices[probe]

    def has_fact(self, name: str) -> bool:
        """Whether a fact is of what is inside, or of the whole host."""
        area, *where = parts(name)
        thing = where[1] if area == "ovs" and len(where) > 2 else where[0] if where else ""
        if self._netns is not None:
            if area == "namespace":
                return thing in self._names
            if area == _NETNS:
                return thing == str(self._netns)
            if area in _OWN_FACTS and not self._is_own:
                return False
        if self._device is None:
            return True
        if area in ("nic", "tc") or (area == "ovs" and where[:1] in (["port"], ["interface"])):
            return thing == self._device
        if area == "namespace" and where[1:2] == ["sysctl"]:
            return where[2].split(".conf.")[-1].rpartition(".")[0] in ("all", "default", self._device)
        return area != _VM or thing in self._vms

    def _is_narrow(self, knobs: Mapping[str, Scalar]) -> bool:
        """Whether the probe leaves out by itself what is outside."""
        return self._netns in (None, knobs.get(_NETNS)) and self._device in (None, knobs.get(_DEVICE))


def scope_of(profile: Profile, manifests: Mapping[str, Manifest]) -> RunScope | None:
    """The scope of a profile; None where it narrows to neither."""
    scope = RunScope(profile.filters, manifests, profile.given)
    return scope if scope else None


def host_wide(profile: Profile, manifests: Mapping[str, Manifest], names: Iterable[str]) -> list[str]:
    """The titles of those probes whose figures are of the whole host, whatever the scope."""
    return [manifests[name].title for name in names if name in manifests and is_host_wide(profile, manifests[name])]


def is_host_wide(profile: Profile, manifest: Manifest) -> bool:
    """Whether figures of a probe are of the whole host, although the profile has a scope."""
    return manifest.name != _OWN_COST and any(_is_wide(manifest, name) for name in said(profile))


def said(profile: Profile) -> dict[str, str]:
    """The scope by the names of its filters, as they were written; empty without one."""
    narrow = {name: str(value) for name in _SCOPE if (value := profile.filters.get(name))}
    return {**narrow, **{name: profile.given[name] for name in narrow if name in profile.given}}


def words(scope: Mapping[str, str]) -> str:
    """What :func:`said` says, as people write it: ``netns uxb``."""
    return " ".join(f"{name} {safe(value, 40)}" for name, value in scope.items())


def can_narrow(manifest: Manifest, name: str) -> bool:
    """Whether a filter narrows figures of a probe: by its knob, or by labels that tell what is inside."""
    return name in manifest.knobs or (name in _SCOPE and any(_tells(manifest, key, name) for key in _keys(manifest)))


def _is_wide(manifest: Manifest, name: str) -> bool:
    """Whether it has figures that it cannot narrow."""
    if name in manifest.knobs:
        return False
    return bool(manifest.counters) or not all(_tells(manifest, key, name) for key in _keys(manifest))


def _tells(manifest: Manifest, key: Iterable[ColumnSpec], name: str) -> bool:
    """Whether rows with this key say what they are of."""
    labels = {column.name for column in key if column.name}
    if name == _NETNS:
        return not labels <= _OF_THE_HOST
    return bool(labels & ({one.name for one in _columns(manifest) if _is_device(one)} | {_VM}))


def _is_device(column: ColumnSpec) -> bool:
    """Whether a label is the name of a device. A port of Open vSwitch is one, a port of UDP is a number."""
    return column.stands_for == _DEVICE or (column.stands_for == "port" and column.type.startswith("char"))


def _keys(manifest: Manifest) -> Iterator[Iterable[ColumnSpec]]:
    yield from (table.key for table in manifest.tables.values())
    yield from (histogram.key for histogram in manifest.histograms.values())


def _columns(manifest: Manifest) -> Iterator[ColumnSpec]:
    for key in (*_keys(manifest), *manifest.events.values()):
        yield from key
