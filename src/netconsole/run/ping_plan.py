"""Plans a measurement of a ping: which vantage points this host has, which are reached over ssh, and which are left.

A vantage point that cannot be reached gets the command that captures there.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from netconsole.base.errors import bad
from netconsole.ping.capture import Role
from netconsole.ping.vantage import VANTAGE_POINTS, VHOST, Between, programs_of
from netconsole.probes.manifest import Manifest
from netconsole.sources.ping_ends import HostTables, PingEnd, find

HERE = "here"
_WAY: tuple[Role, ...] = ("sender-vm", "sender-host", "receiver-host", "receiver-vm")
_OWN_WAY: tuple[Role, ...] = ("host", "receiver-host", "receiver-vm")


@dataclass(frozen=True, slots=True)
class PlannedPoint:
    """A vantage point that will capture. ``host`` is "here" or an ssh:// address."""

    role: Role
    host: str
    between: Between


@dataclass(frozen=True, slots=True)
class PingTraffic:
    """The echoes: how many, how far apart, and how many bytes each carries."""

    count: int = 100
    interval_us: int = 100_000
    size: int = 56


@dataclass(slots=True)
class PingPlan:
    """Who pings whom, what captures where, and where the echoes are sent. ``sent_at`` None: somebody else pings."""

    sender: PingEnd
    receiver: PingEnd
    name: str
    traffic: PingTraffic
    points: list[PlannedPoint] = field(default_factory=list)
    left: list[Role] = field(default_factory=list)
    sent_at: str | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def addresses(self) -> list[str]:
        """Both ends, as far as they are known."""
        return [end.address for end in (self.sender, self.receiver) if end.address]


def plan(
    asked: tuple[str, str],
    tables: HostTables,
    at: Mapping[Role, str],
    between: Between,
    traffic: PingTraffic,
    name: str,
    watch: bool,
) -> PingPlan:
    """Raises BadInput when there is no vantage point, or no address to ping.

    ``at``: where a vantage point is, "here" or an ssh:// address. ``between``: devices that the user names himself.
    """
    sender = PingEnd(HERE, is_host=True) if asked[0] == HERE else find(asked[0], tables)
    receiver = find(asked[1], tables)
    made = PingPlan(sender, receiver, name, traffic)
    way = _OWN_WAY if sender.is_host else _WAY
    for role in at:
        if role not in way:
            raise bad("--at", role, f"expected one of {', '.join(way)} for a ping from {asked[0]}")
    wanted = replace(between, addresses=made.addresses)
    if sender.is_vm_here and receiver.is_vm_here:
        way = tuple(role for role in way if role != "receiver-host")
        made.notes.append("both VMs are on this host: sender-host sees the whole way between their taps")
    for role in way:
        host = at.get(role) or _found(role, sender, receiver)
        if host is None:
            made.left.append(role)
        else:
            devices = _devices(role, sender, receiver, wanted) if host == HERE else _far(role, wanted)
            made.points.append(PlannedPoint(role, host, devices))
    if not made.points:
        how = "; ".join(made.sender.how + made.receiver.how)
        raise bad(
            "ping run", "", f"no vantage point here ({how}); say where one is with --at ROLE=here or ROLE=ssh://…"
        )
    if not watch:
        made.sent_at = HERE if sender.is_host else at.get("sender-vm")
        if made.sent_at is not None and not receiver.address:
            raise bad("ping run", asked[1], "its address is not known, and echoes need one: name the address")
    return made


def command_for(role: Role, made: PingPlan) -> str:
    """What to run for a vantage point that was not reached: from here over ssh, or on that machine."""
    words = ["netconsole", "ping", "capture", "--role", role, "--host", "ssh://root@HOST", "--run", made.name]
    if made.addresses:
        words += ["--address", ",".join(made.addresses)]
    words += ["--count", str(made.traffic.count), "-o", f"{role}.json"]
    return shlex.join(words)


def ping_command(made: PingPlan) -> str:
    """What to run in the machine that pings, where the echoes cannot be sent from here."""
    traffic = made.traffic
    words = ["ping", "-i", f"{traffic.interval_us / 1e6:g}", "-c", str(traffic.count), "-s", str(traffic.size)]
    return shlex.join([*words, made.receiver.address or "ADDRESS"])


def described(made: PingPlan, manifests: Mapping[str, Manifest]) -> list[str]:
    """The plan in lines: what was found and how, what is attached where, and what it costs."""
    lines = [f"{end.asked}: {how}" for end in (made.sender, made.receiver) for how in end.how]
    lines += made.notes
    for point in made.points:
        manifest = manifests[VANTAGE_POINTS[point.role].probe]
        hooks = ", ".join(dict.fromkeys(_hooks(point, manifest)))
        lines.append(f"{point.role} ({point.host}): {_shown(point, manifest)}; attaches to {hooks}")
    rate = 1e6 / made.traffic.interval_us
    who = f"sent at {made.sent_at}" if made.sent_at else "somebody else pings"
    lines.append(f"echoes: {made.traffic.count}, {rate:g} a second, {made.traffic.size} bytes each; {who}")
    lines.append(COST)
    return lines


COST = "cost: about 0.1 us for each packet, and 6 us in all for each echo at each vantage point"


def _hooks(point: PlannedPoint, manifest: Manifest) -> list[str]:
    """The hooks in words. Those of vhost are many, and attached only where it is loaded: their number is enough."""
    of_vhost = {str(one["name"]) for one in programs_of(manifest) if one.get("module") == VHOST}
    names = [one.attach[0].point.partition(":")[2] for one in manifest.programs if one.name not in of_vhost]
    if of_vhost and point.between.vhost:
        names.append(f"{len(of_vhost)} hooks of vhost")
    return names


def _found(role: Role, sender: PingEnd, receiver: PingEnd) -> str | None:
    is_here = {"host": sender.is_host, "sender-host": sender.is_vm_here, "receiver-host": receiver.is_vm_here}
    return HERE if is_here.get(role) else None


def _devices(role: Role, sender: PingEnd, receiver: PingEnd, between: Between) -> Between:
    """Those that were found, where the user names none. If both VMs are here, the receiver's tap is the wire."""
    if not VANTAGE_POINTS[role].has_inside:
        return replace(between, inside=())
    own, other = (receiver, sender) if role == "receiver-host" else (sender, receiver)
    inside = between.inside or own.taps
    return replace(between, inside=inside, outside=between.outside or other.taps or own.wires)


def _far(role: Role, between: Between) -> Between:
    """Of a far machine nothing was looked up: its probe takes all taps, or all physical devices."""
    return replace(between, inside=(), outside=(), netns=0)


def _shown(point: PlannedPoint, manifest: Manifest) -> str:
    wire = "outside_devices" if VANTAGE_POINTS[point.role].has_inside else "wire_devices"
    outside = " ".join(point.between.outside) or str(manifest.knobs[wire])
    if not VANTAGE_POINTS[point.role].has_inside:
        return f"between its IP and {outside}"
    return f"between {' '.join(point.between.inside) or manifest.knobs['inside_devices']} and {outside}"


def at_of(texts: Sequence[str], roles: Sequence[Role]) -> dict[Role, str]:
    """From the options ``--at ROLE=HOST``. Raises BadInput."""
    found: dict[Role, str] = {}
    for text in texts:
        name, equals, host = text.partition("=")
        role = next((one for one in roles if one == name), None)
        if role is None or not equals or not (host == HERE or host.startswith("ssh://")):
            raise bad(
                "--at", text[:80], f"expected ROLE=here or ROLE=ssh://[USER@]HOST with ROLE of {', '.join(roles)}"
            )
        found[role] = host
    return found
