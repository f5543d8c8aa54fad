"""Plans a measurement of a ping: which vantage points are here, which are reached over ssh, and which are left.

A vantage point that cannot be reached gets the command that captures there.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from netconsole.base.errors import BadInput, Problem, bad
from netconsole.base.figure import things
from netconsole.ping.capture import Role
from netconsole.ping.vantage import VANTAGE_POINTS, VHOST, Between, programs_of
from netconsole.probes.manifest import Manifest
from netconsole.run.ping_places import HERE, PlaceTables, best, find_everywhere
from netconsole.sources.ping_ends import PingEnd

_WAY: tuple[Role, ...] = ("sender-vm", "sender-host", "receiver-host", "receiver-vm")
_OWN_WAY: tuple[Role, ...] = ("host", "receiver-host", "receiver-vm")


class NoVantagePoint(BadInput):
    """Neither end was found anywhere; ``how`` says where it was looked for."""

    def __init__(self, how: str) -> None:
        way_out = "say where one is with --at ROLE=here or --at ROLE=ssh://…"
        super().__init__([Problem("ping run", "", f"no vantage point was found ({how}); {way_out}")])
        self.how = how


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
    found: list[str] = field(default_factory=list)
    """What was found of both ends, where and how."""
    notes: list[str] = field(default_factory=list)

    @property
    def addresses(self) -> list[str]:
        """Both ends, as far as they are known."""
        return [end.address for end in (self.sender, self.receiver) if end.address]


Ends = Mapping[str, PingEnd]
"""One end of the ping, as each place knows it."""


def plan(
    asked: tuple[str, str],
    places: PlaceTables,
    at: Mapping[Role, str],
    between: Between,
    traffic: PingTraffic,
    name: str,
    watch: bool,
) -> PingPlan:
    """Raises BadInput when there is no vantage point, or no address to ping.

    ``at``: where a vantage point is, "here" or an ssh:// address. ``between``: devices that the user names himself.
    """
    senders, receivers = (find_everywhere(one, places.tables) for one in asked)
    if asked[0] == HERE:
        senders = {**senders, HERE: PingEnd(HERE, is_host=True)}
    own_ping = any(end.is_host for end in senders.values())
    made = PingPlan(senders[HERE] if asked[0] == HERE else best(senders), best(receivers), name, traffic)
    made.found = [*_told(senders), *_told(receivers)]
    way = _OWN_WAY if own_ping else _WAY
    for role in at:
        if role not in way:
            raise bad("--at", role, f"expected one of {', '.join(way)} for a ping from {asked[0]}")
    of_role = {role: at.get(role) or _found(role, senders, receivers) for role in way}
    shared = None if between.outside else _shared_host(of_role, senders, receivers)
    if shared is not None:
        made.notes.append(_of_one_host(shared, senders, receivers))
        if own_ping:  # its stack hands the echo to the bridge: there is no device where a second host would get it
            way = tuple(role for role in way if role != "receiver-host")
    wanted = replace(between, addresses=made.addresses, one_host=shared is not None)
    for role in way:
        place = of_role[role]
        why = places.unreached.get(place or "")
        if place is None or why is not None:
            made.left.append(role)
            made.notes += [f"{role}: {why}"] if why is not None else []
        else:
            made.points.append(PlannedPoint(role, place, _devices(role, place, senders, receivers, wanted)))
    if not made.points:
        how = "; ".join([*made.sender.how, *made.receiver.how, *made.notes])
        raise NoVantagePoint(how)
    if not watch:
        sent_at = (of_role.get("host") or HERE) if own_ping else at.get("sender-vm")
        made.sent_at = None if sent_at in places.unreached else sent_at
        if made.sent_at is not None and not made.receiver.address:
            raise bad(
                "ping run",
                asked[1],
                "the address of this VM is not known, and echoes need one: name the address instead",
            )
    return made


def command_for(role: Role, made: PingPlan) -> str:
    """What to run for a vantage point that was not reached, over ssh; for one that is known, on its devices."""
    words = ["netconsole", "ping", "capture", "--role", role]
    point = next((one for one in made.points if one.role == role), None)
    if point is None or point.host != HERE:
        words += ["--host", "ssh://root@HOST" if point is None else point.host]
    for option, devices in (("--inside", point.between.inside), ("--outside", point.between.outside)) if point else ():
        words += [word for device in devices for word in (option, device)]
    words += ["--run", made.name]
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
    lines = [*made.found, *made.notes]
    for point in made.points:
        manifest = manifests[VANTAGE_POINTS[point.role].probe]
        hooks = ", ".join(dict.fromkeys(_hooks(point, manifest)))
        lines.append(f"{point.role} ({point.host}): {_shown(point, manifest)}; attaches to {hooks}")
    rate = 1e6 / made.traffic.interval_us
    if made.sent_at:
        size = f"{things(made.traffic.size, 'bytes')} each"
        lines.append(f"echoes: {made.traffic.count}, {rate:g} a second, {size}; sent by {made.sent_at}")
    else:
        lines.append(f"echoes: the first {made.traffic.count} that somebody else sends")
    lines.append(COST)
    return lines


COST = "cost at each vantage point: about 0.1 us of CPU for each packet, and 6 us for each echo"


def _hooks(point: PlannedPoint, manifest: Manifest) -> list[str]:
    """The hooks in words. Those of vhost are many, and attached only where it is loaded: their number is enough."""
    of_vhost = {str(one["name"]) for one in programs_of(manifest) if one.get("module") == VHOST}
    names = [one.attach[0].point.partition(":")[2] for one in manifest.programs if one.name not in of_vhost]
    if of_vhost and point.between.vhost:
        names.append(f"{len(of_vhost)} hooks of vhost")
    return names


def _told(ends: Ends) -> list[str]:
    """Step by step what was found of an end. A host that found nothing is told of only where none found more."""
    found = {place: end for place, end in ends.items() if end.taps or end.is_host}
    return [
        f"{end.asked}{'' if place == HERE else f' ({place})'}: {how}"
        for place, end in (found or ends).items()
        for how in end.how
    ]


def _found(role: Role, senders: Ends, receivers: Ends) -> str | None:
    """The place that has the tap, or whose own address pings."""
    if role == "host":
        return next((place for place, end in senders.items() if end.is_host), None)
    ends = {"sender-host": senders, "receiver-host": receivers}.get(role, {})
    return next((place for place, end in ends.items() if end.is_vm_here), None)


def _shared_host(of_role: Mapping[Role, str | None], senders: Ends, receivers: Ends) -> str | None:
    """The place where both ends are: no wire lies between them. None when they are apart, or nobody knows."""
    place = of_role.get("host") or of_role.get("sender-host")
    if place is None or place != of_role.get("receiver-host") or not _end(receivers, place).taps:
        return None
    return place if _end(senders, place).taps or of_role.get("host") else None


def _of_one_host(place: str, senders: Ends, receivers: Ends) -> str:
    sender, receiver = senders[place], receivers[place]
    if sender.is_host:
        return f"the VM is on the host that pings ({place}): measured to its tap, and vhost's stages are not divided"
    said = f"both VMs are on one host ({place}): measured from tap to tap, with no network between hosts"
    if sender.bridge == receiver.bridge:
        return said
    bridges = f"{sender.bridge or 'none'} and {receiver.bridge or 'none'}"
    return f"{said}; their bridges differ ({bridges}): if a router elsewhere lies between, its time is in B and K"


def _end(ends: Ends, place: str) -> PingEnd:
    return ends.get(place) or PingEnd("")


def _devices(role: Role, place: str, senders: Ends, receivers: Ends, between: Between) -> Between:
    """Those that were found, where the user names none; he names those of this host alone.

    Nothing found: the probe takes all taps, or all physical devices. On one host, the other end's tap is the wire.
    """
    if place != HERE:
        between = replace(between, inside=(), outside=(), netns=0)
    if role in ("sender-vm", "receiver-vm"):
        return replace(between, inside=(), one_host=False)
    own, other = _end(senders, place), _end(receivers, place)
    if role == "receiver-host":
        own, other = other, own
    outside = between.outside or (other.taps if between.one_host else own.wires) or ()
    inside = between.inside or own.taps or () if VANTAGE_POINTS[role].has_inside else ()
    return replace(between, inside=inside, outside=outside)


def _shown(point: PlannedPoint, manifest: Manifest) -> str:
    wire = "outside_devices" if VANTAGE_POINTS[point.role].has_inside else "wire_devices"
    outside = " ".join(point.between.outside) or str(manifest.knobs[wire])
    if not VANTAGE_POINTS[point.role].has_inside:
        return f"measures between this machine's IP and {outside}"
    return f"measures between {' '.join(point.between.inside) or manifest.knobs['inside_devices']} and {outside}"


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
