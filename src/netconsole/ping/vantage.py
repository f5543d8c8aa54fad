"""The vantage points of a ping as probes of this host: which one, between which devices, and what its points are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from netconsole.base.errors import bad
from netconsole.ping.capture import Role
from netconsole.probes import knobs
from netconsole.probes.manifest import Manifest
from netconsole.telemetry.frames import Scalar
from netconsole.telemetry.request import ProbeRequest

CROSSING, STACK = "echo_host", "echo_stack"
"""The probes: of echoes that cross a host, and of those that a machine sends or answers itself."""
VHOST = "vhost_net"
KEPT_S = 1.0
"""An echo is followed for so much longer than its time limit: an answer that comes later than that is not seen."""


@dataclass(frozen=True, slots=True)
class VantagePoint:
    """One end of the work: the probe, and on which side of the ping it is."""

    probe: str
    receiver: bool

    @property
    def has_inside(self) -> bool:
        """Whether it lies between two sets of devices."""
        return self.probe == CROSSING


VANTAGE_POINTS: dict[Role, VantagePoint] = {
    "sender-vm": VantagePoint(STACK, False),
    "sender-host": VantagePoint(CROSSING, False),
    "receiver-host": VantagePoint(CROSSING, True),
    "receiver-vm": VantagePoint(STACK, True),
    "host": VantagePoint(STACK, False),
}


@dataclass(frozen=True, slots=True)
class Between:
    """Where a vantage point measures. Devices are names, prefixes or kinds; none is the probe's own choice.

    ``addresses``: one or both ends of the ping; none is all pings. ``netns`` is an inode, 0 is all.
    """

    inside: Sequence[str] = ()
    outside: Sequence[str] = ()
    addresses: Sequence[str] = ()
    netns: int = 0
    limit_s: float = 1.0
    vhost: bool = True
    """Whether the stages of vhost are wanted, whose hooks all packets of all VMs pass."""
    one_host: bool = False
    """Whether the other end is on this host too: ``outside`` is its tap, and no wire lies between."""


def request_of(role: Role, between: Between, manifests: Mapping[str, Manifest]) -> ProbeRequest:
    """The probe of this vantage point. Raises BadInput in words of the command line."""
    point = VANTAGE_POINTS[role]
    manifest = manifests[point.probe]
    wanted: dict[str, Scalar] = {"receiver": point.receiver, "netns": between.netns}
    wanted["keep_ms"] = round((between.limit_s + KEPT_S) * 1000)
    wanted["address"] = between.addresses[0] if between.addresses else ""
    if between.inside and not point.has_inside:
        raise bad("--inside", "", f"{role} has no inside device: a machine that pings itself has its own IP there")
    for option, knob, names in (
        ("--inside", "inside_devices", between.inside),
        ("--outside", "outside_devices" if point.has_inside else "wire_devices", between.outside),
    ):
        if names:
            wanted[knob] = " ".join(names)
            if why := knobs.refusal(knob, wanted[knob], ""):
                raise bad(option, "", why)
    if why := knobs.refusal("address", wanted["address"], ""):
        raise bad("--address", "", why)
    spec = dict(manifest.raw)
    if not between.vhost:
        spec["programs"] = [one for one in programs_of(manifest) if one.get("module") != VHOST]
    return ProbeRequest(manifest.name, "summary", {**manifest.knobs, **wanted}, spec, manifest.code())


def programs_of(manifest: Manifest) -> list[dict[str, object]]:
    """The programs as the collector takes them."""
    programs = manifest.raw.get("programs")
    return [one for one in programs if isinstance(one, dict)] if isinstance(programs, list) else []
