"""The way of a VM's I/Os from the guest's queue to the host's device, by two snapshots of one span: guest and host.

What the guest's disk takes (issue → complete) is the host's stages and a rest. The sums are exact at both ends, so
their means add up where both have counted the same I/Os; no I/O has to be found again at the other end, and no clock is
compared. Percentiles would not add up. The rest is before the guest's kick and after its interrupt: the guest's driver,
its exit to the host, and until one of its CPUs has taken the interrupt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from netconsole.snapshot.document import Snapshot, SnapshotValue, number
from netconsole.snapshot.machine_figures import MachineFigures

BLOCKS, ON_THE_WAY = "block_path", "virtio_blk"
STAGES = ("B1-B2", "B2-B3", "B3-B4", "B4-B5")
DEVICE, EACH = "B3-B4", "all"
"""The device's, of what was alone in flight and of each I/O."""
OPERATIONS = ("read", "write")
_VIRTIO_DISK = re.compile("vd[a-z]+")
_CLOSE = 0.05
"""So much may the two ends differ: the spans are not the same to the last I/O."""

_DeviceUse: TypeAlias = tuple[str, str]
"""A device and an operation."""
_Asked: TypeAlias = dict[_DeviceUse, tuple[int, int]]
"""I/Os and bytes."""


@dataclass(frozen=True, slots=True)
class GuestIo:
    """Of a disk of the guest and an operation; times are means in ns."""

    disk: str
    operation: str
    ios: int
    """Requests of the guest's disk that ended."""
    queue_ns: float | None
    """In the guest's own queue; None: not known of nearly all."""
    whole_ns: float
    """On the guest's disk, from issue to completion."""
    device: str | None = None
    """Of the host; None: it is not known which."""
    host_ios: int | None = None
    stages_ns: Mapping[str, float] = field(default_factory=dict)
    """Of the host: all of STAGES where nearly each I/O was alone in flight, else DEVICE alone; nothing where the ends
    have not counted the same I/Os."""
    device_ns: float | None = None
    """The host's device itself, without its queue and without a limit of the VM's control group."""

    @property
    def rest_ns(self) -> float | None:
        """What the host's stages leave of the whole."""
        return self.whole_ns - sum(self.stages_ns.values()) if self.stages_ns else None

    @property
    def virtualisation_pct(self) -> float | None:
        """The share of the whole that is not the host's device, its queue and its limits."""
        if not self.stages_ns or self.whole_ns <= 0:
            return None
        return 100.0 * (self.whole_ns - self.stages_ns[DEVICE]) / self.whole_ns


def guest_ios(one: MachineFigures, guest: Snapshot) -> list[GuestIo]:
    """Of each virtio disk that the guest has asked, by its name and operation."""
    inside = MachineFigures(guest, "")
    disks = sorted({disk for disk, _ in _asked(inside, BLOCKS, {}) if _VIRTIO_DISK.fullmatch(disk)})
    devices = _devices(one, inside, disks)
    return [
        io
        for disk in disks
        for operation in OPERATIONS
        for io in _way(one, inside, (disk, operation), devices.get(disk))
    ]


def _way(one: MachineFigures, inside: MachineFigures, place: _DeviceUse, device: str | None) -> Iterator[GuestIo]:
    """Nothing where no I/O has ended."""
    disk, operation = place
    labels = {"device": disk, "operation": operation}
    ios, whole_ns = _times(inside, BLOCKS, "times", {**labels, "stage": "device"})
    if not ios:
        return
    queued, queue_ns = _times(inside, BLOCKS, "times", {**labels, "stage": "queue"})
    queue = queue_ns / queued if _is_near(queued, ios) else None
    found = GuestIo(disk, operation, ios, queue, whole_ns / ios)
    if device is not None:
        host_ios = _of_host(one).get((device, operation), (0, 0))[0]
        stages, device_ns = _stages(one, (device, operation), host_ios) if _is_near(host_ios, ios) else ({}, None)
        found = replace(found, device=device, host_ios=host_ios, stages_ns=stages, device_ns=device_ns)
    yield found


def _stages(one: MachineFigures, place: _DeviceUse, ios: int) -> tuple[dict[str, float], float | None]:
    """The host's, and its device's own time."""
    labels: dict[str, SnapshotValue] = {"vm": one.name, "device": place[0], "operation": place[1]}
    own = {stage: _times(one, BLOCKS, "times", {**labels, "stage": stage}) for stage in ("device", "queue", "whole")}
    count, ns = own["device"] if own["device"][0] else own["whole"]
    device_ns = ns / count if _is_near(count, ios) else None
    timed = {stage: _times(one, ON_THE_WAY, "stages", {**labels, "stage": stage}) for stage in STAGES}
    if all(_is_near(count, ios) for count, _ in timed.values()):
        return {stage: ns / count for stage, (count, ns) in timed.items()}, device_ns
    each, each_ns = _times(one, ON_THE_WAY, "stages", {**labels, "stage": EACH})
    if _is_near(each, ios):
        return {DEVICE: each_ns / each}, device_ns
    return ({} if device_ns is None else {DEVICE: device_ns + own["queue"][1] / count}), device_ns


def _devices(one: MachineFigures, inside: MachineFigures, disks: list[str]) -> dict[str, str]:
    """The host's device of each disk: that of which QEMU has asked as many bytes, where no other has that too."""
    host = _of_host(one)
    lies_on = {str(disk.get("on")) for disk in one.facts_of("disk").values()}
    known = {device for device, _ in host}
    known = (known & lies_on) or known
    guest = _asked(inside, BLOCKS, {})
    fitting = {disk: [device for device in known if _fits(guest, disk, host, device)] for disk in disks}
    taken = [devices[0] for devices in fitting.values() if len(devices) == 1]
    return {disk: devices[0] for disk, devices in fitting.items() if len(devices) == 1 and taken.count(devices[0]) == 1}


def _fits(guest: _Asked, disk: str, host: _Asked, device: str) -> bool:
    pairs = [(guest.get((disk, one), (0, 0))[1], host.get((device, one), (0, 0))[1]) for one in OPERATIONS]
    return any(asked for asked, _ in pairs) and all(_is_near(got, asked) for asked, got in pairs)


def _of_host(one: MachineFigures) -> _Asked:
    """What QEMU has asked for; by the blocks' own probe also what lies below that."""
    return _asked(one, ON_THE_WAY if one.has(ON_THE_WAY) else BLOCKS, {"vm": one.name})


def _asked(one: MachineFigures, probe: str, labels: Mapping[str, SnapshotValue]) -> _Asked:
    found: _Asked = {}
    for row in one.rows(probe, "ios"):
        if labels.items() <= row.items():
            place = str(row.get("device")), str(row.get("operation"))
            ios, size = found.get(place, (0, 0))
            found[place] = ios + _whole(row.get("ios")), size + _whole(row.get("bytes"))
    return found


def _times(one: MachineFigures, probe: str, name: str, labels: Mapping[str, SnapshotValue]) -> tuple[int, float]:
    """How many were timed, and the sum in ns."""
    data = one.snapshot.probes.get(probe)
    found = data.histograms.get(name) if data is not None else None
    parts = [part for part in (found.by if found is not None else ()) if labels.items() <= part.labels.items()]
    return sum(part.count for part in parts), sum(part.sum or 0.0 for part in parts)


def _whole(value: object) -> int:
    return int(number(value) or 0)


def _is_near(count: int, other: int) -> bool:
    return count > 0 and abs(count - other) <= _CLOSE * other if other else count == 0
