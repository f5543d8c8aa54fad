"""Links, addresses, routes and neighbours of the namespace of the calling thread.

Layouts: include/uapi/linux/rtnetlink.h, if_link.h, neighbour.h. Values of attributes are in host byte order, addresses
in that of the network.
"""

import errno
import os
import socket
import struct
from typing import Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from netconsole_collector.primitives.netlink import Netlink, attributes
from netconsole_collector.sources.net.link_state import IFLA_CARRIER, IFLA_LINKINFO, kind_of
from netconsole_collector.sources.net.netlink_messages import attribute

MAX_MESSAGES = 20000
"""Of one dump: 0.1 s of CPU. What is behind them is not looked at."""
_GET_LINK, _GET_ADDRESS, _GET_ROUTE, _GET_NEIGHBOUR, _GET_RULE = 18, 22, 26, 30, 34
_GET_NAMESPACE, _NAMESPACE_NUMBER, _NAMESPACE_OPEN = 90, 1, 3  # NETNSA_NSID, NETNSA_FD
_LINK = struct.Struct("=BxHiII")
_ADDRESS = struct.Struct("=BBBBI")
_ROUTE = struct.Struct("=BBBBBBBBI")
_NEIGHBOUR = struct.Struct("=BxxxiHBB")
_DESTINATION, _SOURCE, _FROM_DEVICE, _OUT_DEVICE, _GATEWAY, _PRIORITY, _METRICS, _TABLE, _VIA = (
    1,
    2,
    3,
    4,
    5,
    6,
    8,
    15,
    18,
)
_METRIC_MTU = 2
MASTER = 10  # IFLA_MASTER
_MULTIPATH = 9
_FIB_MATCH = 0x2000
_NEXT_HOP = struct.Struct("=HBBi")
_CLONED = 0x200
ROUTE_TYPES = {
    1: "unicast",
    2: "local",
    3: "broadcast",
    5: "multicast",
    6: "blackhole",
    7: "unreachable",
    8: "prohibit",
}
REFUSING = {"blackhole": errno.EINVAL, "unreachable": errno.EHOSTUNREACH, "prohibit": errno.EACCES}
"""What a lookup says that ends at such a route (net/ipv4/fib_semantics.c)."""
DAD_FAILED, TENTATIVE = 0x08, 0x40
"""Flags of an address (IFA_F_*): another host has it; that is still looked for."""
_RULE_ACTIONS = {6: "blackhole", 7: "unreachable", 8: "prohibit"}
_TO_TABLE = 1  # FR_ACT_TO_TBL
_RULE_PRIORITY = 6
_RULE_ERRORS = {**REFUSING, "unreachable": errno.ENETUNREACH}
"""The same of a rule (net/ipv4/fib_rules.c)."""
NEIGHBOUR_STATES = {
    0x01: "incomplete", 0x02: "reachable", 0x04: "stale", 0x08: "delay", 0x10: "probe", 0x20: "failed",
    0x40: "noarp", 0x80: "permanent",
}  # fmt: skip
_TABLES = {253: "default", 254: "main", 255: "local"}


class Interface(NamedTuple):
    """A network device. ``values``: its attributes by number (IFLA_*)."""

    number: int
    flags: int
    name: str
    values: Dict[int, bytes]

    def whole(self, kind: int) -> Optional[int]:
        """An attribute of 32 bits; None where the device has none."""
        return number(self.values.get(kind))

    @property
    def info(self) -> Dict[int, bytes]:
        """What its kind of device says of itself (IFLA_LINKINFO)."""
        return dict(attributes(self.values.get(IFLA_LINKINFO, b""), 0))

    @property
    def kind(self) -> str:
        """As "vxlan"; empty for one of hardware."""
        return kind_of(self.info)

    @property
    def has_carrier(self) -> bool:
        return bool(self.values.get(IFLA_CARRIER, b"\0")[0])


class Route(NamedTuple):
    """The route that the kernel takes. ``mtu``: its own limit, if it has one."""

    kind: str
    device: int
    gateway: Optional[str]
    table: str
    mtu: Optional[int]


class Neighbour(NamedTuple):
    """An entry of the table of neighbours."""

    address: str
    device: int
    state: str
    mac: str


def number(value: Optional[bytes]) -> Optional[int]:
    """Of an attribute of 32 bits."""
    return struct.unpack("=I", value)[0] if value is not None and len(value) == 4 else None


def mac_text(value: bytes) -> str:
    """As people write it."""
    return ":".join("{:02x}".format(one) for one in value)


def family_of(address: str) -> int:
    """Raises ValueError for what is no address."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, address)
        except OSError:
            continue
        return family
    raise ValueError("no address: {!r}".format(address[:40]))


def packed(address: str) -> bytes:
    """As the kernel writes it. Raises ValueError."""
    return socket.inet_pton(family_of(address), address)


class RouteSocket:
    """Asks the kernel of the namespace in which it was made. A context manager."""

    def __init__(self) -> None:
        self._netlink = Netlink(socket.NETLINK_ROUTE)

    def __enter__(self) -> "RouteSocket":
        return self

    def __exit__(self, *_: object) -> None:
        self._netlink.close()

    def dump(self, kind: int, request: bytes) -> Iterator[bytes]:
        """The bodies of what answers, at most MAX_MESSAGES. Raises OSError."""
        for count, body in enumerate(self._netlink.dump(kind, request)):
            if count >= MAX_MESSAGES:
                self._netlink.close()  # with all that it would still get
                self._netlink = Netlink(socket.NETLINK_ROUTE)
                return
            yield bytes(body)

    def link(self, name: str) -> Optional[Interface]:
        """A device by its name; None where there is none. Raises OSError."""
        try:
            index = socket.if_nametoindex(name)
        except (OSError, ValueError):
            return None
        return self.link_at(index)

    def link_at(self, index: int) -> Optional[Interface]:
        """A device by its number; None where there is none. Raises OSError."""
        try:
            return _link(bytes(self._netlink.ask(_GET_LINK, _LINK.pack(0, 0, index, 0, 0))))
        except OSError:
            return None

    def number_of(self, path: str) -> Optional[int]:
        """The number by which this namespace knows another one (RTM_GETNSID); None where it does not."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            asked = bytes(4) + attribute(_NAMESPACE_OPEN, struct.pack("=I", descriptor))
            body = bytes(self._netlink.ask(_GET_NAMESPACE, asked))
            return number(dict(attributes(body, 4)).get(_NAMESPACE_NUMBER))
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def links(self) -> List[Interface]:
        """All of them. Raises OSError."""
        return [_link(body) for body in self.dump(_GET_LINK, _LINK.pack(0, 0, 0, 0, 0))]

    def own_addresses(self, family: int) -> Dict[str, int]:
        """The addresses of this namespace, with the device of each. Raises OSError."""
        found = {}
        for body in self.dump(_GET_ADDRESS, _ADDRESS.pack(family, 0, 0, 0, 0)):
            of, _, _, _, index = _ADDRESS.unpack_from(body)
            values = dict(attributes(body, _ADDRESS.size))
            address = values.get(2, values.get(1))  # IFA_LOCAL, IFA_ADDRESS
            if of == family and address is not None:
                found[socket.inet_ntop(family, address)] = index
        return found

    def unproven(self, family: int) -> Dict[str, int]:
        """Addresses that duplicate address detection does not let be used, with IFA_F_* flags. Raises OSError."""
        found = {}
        for body in self.dump(_GET_ADDRESS, _ADDRESS.pack(family, 0, 0, 0, 0)):
            of, _, flags, _, _ = _ADDRESS.unpack_from(body)
            address = dict(attributes(body, _ADDRESS.size)).get(1)  # IFA_ADDRESS
            if of == family and address is not None and flags & (DAD_FAILED | TENTATIVE):
                found[socket.inet_ntop(family, address)] = flags
        return found

    def route(self, target: str, source: str = "", from_device: int = 0) -> Route:
        """The route to an address, as for a packet that came in by a device, else for one of this host's own.

        Raises OSError: the kernel has none, or ``source`` is no address here.
        """
        family, to = family_of(target), packed(target)
        wanted = attribute(_DESTINATION, to)
        if source:
            wanted += attribute(_SOURCE, packed(source))
        if from_device:
            wanted += attribute(_FROM_DEVICE, struct.pack("=I", from_device))
        bits = 8 * len(to)
        head = _ROUTE.pack(family, bits, bits if source else 0, 0, 0, 0, 0, 0, 0)
        body = bytes(self._netlink.ask(_GET_ROUTE, head + wanted))
        kind, values = _ROUTE.unpack_from(body)[7], dict(attributes(body, _ROUTE.size))
        mtu = dict(attributes(values.get(_METRICS, b""), 0)).get(_METRIC_MTU)
        return Route(
            ROUTE_TYPES.get(kind, str(kind)),
            number(values.get(_OUT_DEVICE)) or 0,
            _gateway(values),
            _table(body, values),
            number(mtu),
        )

    def routers(self, target: str) -> List[str]:
        """All next hops of the route to an address, where it has several; which one a packet takes, a hash decides.

        None of a route with one. Raises OSError: there is no route.
        """
        family, to = family_of(target), packed(target)
        head = _ROUTE.pack(family, 8 * len(to), 0, 0, 0, 0, 0, 0, _FIB_MATCH)
        body = bytes(self._netlink.ask(_GET_ROUTE, head + attribute(_DESTINATION, to)))
        hops, found = dict(attributes(body, _ROUTE.size)).get(_MULTIPATH, b""), []
        while len(hops) >= _NEXT_HOP.size:
            length = max(_NEXT_HOP.unpack_from(hops)[0], _NEXT_HOP.size)
            gateway = _gateway(dict(attributes(hops[:length], _NEXT_HOP.size)))
            found += [gateway] if gateway else []
            hops = hops[length + 3 & ~3 :]
        return found

    def refusing_route(
        self, target: str, errors: Set[int], tables: Optional[Set[str]] = None
    ) -> Optional[Tuple[str, str, str]]:
        """The route that refuses an address, by the ``errors`` of its lookup: kind, prefix and table.

        None where several tables (of ``tables``) have one: which is looked at, rules decide. Raises OSError.
        """
        if errors.isdisjoint(REFUSING.values()):
            return None  # and a large table need not be read
        family, to = family_of(target), int.from_bytes(packed(target), "big")
        best = {}  # type: Dict[str, Tuple[int, int, str, str]]
        for body in self.dump(_GET_ROUTE, _ROUTE.pack(family, 0, 0, 0, 0, 0, 0, 0, 0)):
            head = _ROUTE.unpack_from(body)
            bits, kind = head[1], ROUTE_TYPES.get(head[7], "")
            if head[8] & _CLONED:
                continue
            values = dict(attributes(body, _ROUTE.size))
            size = 4 if family == socket.AF_INET else 16
            start = values.get(_DESTINATION, bytes(size))
            shift = 8 * size - bits
            if len(start) != size or int.from_bytes(start, "big") >> shift != to >> shift:
                continue
            table, prefix = _table(body, values), "{}/{}".format(socket.inet_ntop(family, start), bits)
            found = -bits, number(values.get(_PRIORITY)) or 0, kind, prefix if bits else "default"
            best[table] = min(best.get(table, found), found)  # the longest prefix, then the smallest metric
        refusing = [
            (kind, prefix, table)
            for table, (_, _, kind, prefix) in best.items()
            if REFUSING.get(kind) in errors and (tables is None or table in tables)
        ]
        return refusing[0] if len(refusing) == 1 else None

    def tables_of_rules(self, family: int) -> Set[str]:
        """The tables at which a rule of policy routing looks. That of a VRF is none of these. Raises OSError."""
        rules = self.dump(_GET_RULE, _ROUTE.pack(family, 0, 0, 0, 0, 0, 0, 0, 0))
        looks = [body for body in rules if _ROUTE.unpack_from(body)[7] == _TO_TABLE]
        return {_table(body, dict(attributes(body, _ROUTE.size))) for body in looks}

    def refusing_rule(self, family: int, errors: Set[int]) -> Optional[Tuple[str, int]]:
        """The only rule of policy routing that may end a lookup with one of these ``errors``: kind and preference."""
        found = []
        for body in self.dump(_GET_RULE, _ROUTE.pack(family, 0, 0, 0, 0, 0, 0, 0, 0)):
            head = _ROUTE.unpack_from(body)
            kind = _RULE_ACTIONS.get(head[7], "")
            if head[0] == family and _RULE_ERRORS.get(kind) in errors:
                found.append((kind, number(dict(attributes(body, _ROUTE.size)).get(_RULE_PRIORITY)) or 0))
        return found[0] if len(found) == 1 else None

    def neighbours(self, family: int) -> List[Neighbour]:
        """All entries of a family. Raises OSError."""
        found = []
        for body in self.dump(_GET_NEIGHBOUR, _NEIGHBOUR.pack(family, 0, 0, 0, 0)):
            of, index, state, _, _ = _NEIGHBOUR.unpack_from(body)
            values = dict(attributes(body, _NEIGHBOUR.size))
            if of == family and 1 in values:  # NDA_DST; NDA_LLADDR is 2
                name = NEIGHBOUR_STATES.get(state, "none")
                address = socket.inet_ntop(family, values[1])
                found.append(Neighbour(address, index, name, mac_text(values.get(2, b""))))
        return found


def _link(body: bytes) -> Interface:
    _, _, index, flags, _ = _LINK.unpack_from(body)
    values = dict(attributes(body, _LINK.size))
    name = values.get(3, b"").rstrip(b"\0").decode("utf-8", "backslashreplace")
    return Interface(index, flags, name, values)


def _gateway(values: Dict[int, bytes]) -> Optional[str]:
    """Of a route or of one of its next hops, also one of another family."""
    address = values.get(_GATEWAY, values.get(_VIA, b"")[2:])
    return socket.inet_ntop(socket.AF_INET if len(address) == 4 else socket.AF_INET6, address) if address else None


def _table(body: bytes, values: Dict[int, bytes]) -> str:
    table = number(values.get(_TABLE)) or _ROUTE.unpack_from(body)[4]
    return _TABLES.get(table, str(table))
