"""A device or a VM that the user wants to see alone, until he takes that back. Everything is measured on."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cached_property
from typing import Literal, TypeAlias

from netconsole.base import figure
from netconsole.findings.incident import Incident
from netconsole.probes.manifest import Manifest
from netconsole.profile.scope import RunScope
from netconsole.tui.scene.scene import Scene, Subject

Kind: TypeAlias = Literal["device", "vm"]
_NO_DEVICE = "/"
"""Of a VM that has none: no device can be called that."""


class LiveScope:
    """What is of the whole host stays: what cannot be narrowed is no evidence of another device."""

    def __init__(self, kind: Kind, name: str, devices: Iterable[str], manifests: Mapping[str, Manifest]) -> None:
        """``devices``: those of the VM, or the device itself."""
        self._name = name
        self._kind = kind
        self._devices = frozenset(devices)
        self._manifests = manifests

    def learn(self, known: Mapping[str, AbstractSet[str]]) -> LiveScope:
        """The same scope with the devices of its VM that are known besides."""
        more = known.get(self._name, frozenset()) if self._kind == "vm" else frozenset()
        return LiveScope(self._kind, self._name, self._devices | more, self._manifests)

    @cached_property
    def _scopes(self) -> list[RunScope]:
        """Made when it is used: hundreds are offered, of which one is chosen."""
        devices = sorted(self._devices) or [_NO_DEVICE]
        return [RunScope({"device": one}, self._manifests, {}) for one in devices]

    @property
    def words(self) -> str:
        """As the header says it: ``vm web-07``."""
        return f"{self._kind} {figure.safe(self._name, 40)}"

    def has(self, key: Hashable) -> bool:
        """Whether the row of this key is of it, or of the whole host."""
        subject = key if isinstance(key, Subject) else getattr(key, "subject", None)
        if not isinstance(subject, Subject):
            return True
        return self.has_labels(subject.probe, dict(subject.key))

    def has_labels(self, probe: str, labels: Mapping[str, object]) -> bool:
        """The same of a row or sample of a probe with these labels. Two VMs may have their disks on one device."""
        if self._kind == "vm" and labels.get("vm"):
            return labels["vm"] == self._name
        return any(scope.has(probe, labels) for scope in self._scopes)

    def has_incident(self, one: Incident) -> bool:
        """Whether any of its proofs is."""
        proofs = [proof for proof in one.evidence if proof.kind != "collector"]
        return not proofs or any(self.has_labels(proof.probe, dict(proof.key)) for proof in proofs)


def of_device(scene: Scene, name: str) -> LiveScope:
    """A device alone."""
    return LiveScope("device", name, [name], scene.manifests)


def of_vms(scene: Scene, known: Mapping[str, AbstractSet[str]]) -> list[LiveScope]:
    """Each VM with its devices. ``known``: those that facts have."""
    devices = {name: set(found) for name, found in known.items()}
    for probe in scene.state.probes.values():
        for table in probe.tables.values():
            for row in table.rows.values():
                vm, device = row.labels.get("vm"), row.labels.get("device")
                if vm:
                    devices.setdefault(str(vm), set()).update([device] if isinstance(device, str) else [])
    return [LiveScope("vm", name, sorted(found), scene.manifests) for name, found in sorted(devices.items())]


def narrowed(scene: Scene, scope: LiveScope | None) -> Scene:
    """The scene with what stands out and was sampled in the scope alone."""
    if scope is None:
        return scene
    findings = [one for one in scene.findings if scope.has_incident(one)]
    log = [one for one in scene.log if scope.has_incident(one)]
    return replace(scene, findings=findings, log=log, only=scope.words, has=scope.has_labels)
