"""Reads the state of every link from the kernel: set up or down, its carrier, and the device below it.

Layouts: include/uapi/linux/if_link.h, rtnetlink.h.
"""

import socket
import struct
from collections import defaultdict
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from netconsole_collector.primitives.netlink import Body, attributes

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK = 16, 17, 18
IFF_UP = 1
IFLA_ADDRESS = 1
IFLA_IFNAME = 3
IFLA_LINK = 5
IFLA_LINKINFO = 18
IFLA_INFO_KIND = 1
IFLA_EXT_MASK = 29
IFLA_CARRIER = 33
IFLA_CARRIER_CHANGES = 35
IFLA_LINK_NETNSID = 37
IFLA_TARGET_NETNSID = 46
IFLA_CARRIER_DOWN_COUNT = 48
VETH = "veth"
_SKIP_STATS = 8
"""RTEXT_FILTER_SKIP_STATS: without it, the message of a link is twice as long."""
_IFINFO = struct.Struct("=BxHiII")
_NUMBER = struct.Struct("=HHi")
_INT = struct.Struct("=i")
_UINT = struct.Struct("=I")
_EXT_MASK = _NUMBER.pack(_NUMBER.size, IFLA_EXT_MASK, _SKIP_STATS)
LINKS = (RTM_GETLINK, _IFINFO.pack(0, 0, 0, 0, 0) + _EXT_MASK)
"""The request for all links."""


VethPeers = Mapping[Tuple[str, int], Tuple[str, str]]
"""By namespace and index of a veth: name and namespace of its other end."""


class Link(NamedTuple):
    """A link. ``lower`` is the device below it, or the other end of a veth; 0 for none.

    ``lower_nsid`` names the network namespace of that, as its own namespace counts them; None: the same one.
    ``carrier_losses`` and ``carrier_changes`` (losses and gains) are since it was made. ``through_nsid`` is the
    namespace that was asked for it; None of a link of our own.
    """

    index: int  # type: ignore[assignment]
    name: str
    kind: str
    address: bytes
    is_up: bool
    has_carrier: bool
    carrier_losses: int
    carrier_changes: int
    lower: int = 0
    lower_nsid: Optional[int] = None
    through_nsid: Optional[int] = None

    @property
    def lacks_carrier(self) -> bool:
        """Whether it is set up, but cannot send."""
        return self.is_up and not self.has_carrier


class LinkTable:
    """The links of one network namespace. They are read once, and then updated by messages of the kernel."""

    def __init__(self) -> None:
        self.links: Dict[int, Link] = {}
        self.changes = 0
        """How often something was told of a link."""

    def fill(self, netlink: Any) -> None:
        """Read all of them. Raises OSError.

        What is told meanwhile lies between the answers, in the order in which it happened.
        """
        self.links.clear()
        for body in netlink.dump(*LINKS):
            self.take(RTM_NEWLINK, body)

    def take(self, kind: int, body: memoryview) -> None:
        """Apply a message about a link."""
        if kind not in (RTM_NEWLINK, RTM_DELLINK):
            return
        link = parse(body)
        if link is None:
            return
        self.changes += 1
        if kind == RTM_NEWLINK:
            self.links[link.index] = link
        else:
            self.links.pop(link.index, None)


def veth_peers(namespaces: Iterable[Tuple[str, Mapping[int, Link]]]) -> VethPeers:
    """The other end of each veth, of all that are in one of these namespaces.

    Each end names the other's index, which its own namespace counts. Where more than two name each other so, none of
    them is told.
    """
    ends: Dict[Tuple[int, int], List[Tuple[str, Link]]] = defaultdict(list)
    for netns, links in namespaces:
        for link in links.values():
            if link.kind == VETH and link.lower:
                ends[link.index, link.lower].append((netns, link))
    found: Dict[Tuple[str, int], Tuple[str, str]] = {}
    for (index, lower), here in ends.items():
        there = ends.get((lower, index), [])
        for netns, link in here:
            others = [one for one in there if _may_be_a_pair((netns, link), one)]
            if len(others) == 1 and sum(_may_be_a_pair(others[0], one) for one in here) == 1:
                found[netns, index] = others[0][1].name, others[0][0]
    return found


def _may_be_a_pair(one: Tuple[str, Link], other: Tuple[str, Link]) -> bool:
    is_within = one[0] == other[0]
    return all((link.lower_nsid is None) == is_within for _, link in (one, other))


def parse(body: memoryview) -> Optional[Link]:
    """A link from an RTM_NEWLINK message; None of one that says something else (of a bridge's port, of a radio)."""
    family, _, index, flags, _ = _IFINFO.unpack_from(body)
    if family != socket.AF_UNSPEC:
        return None
    found = dict(attributes(body, _IFINFO.size))
    if IFLA_IFNAME not in found or IFLA_CARRIER not in found:
        return None
    has_carrier = bool(found[IFLA_CARRIER][0])
    changes = _number(found, IFLA_CARRIER_CHANGES) or 0
    losses = _number(found, IFLA_CARRIER_DOWN_COUNT)
    return Link(
        index=index,
        name=bytes(found[IFLA_IFNAME]).partition(b"\0")[0].decode("utf-8", "backslashreplace"),
        kind=kind_of(dict(attributes(found[IFLA_LINKINFO], 0)) if IFLA_LINKINFO in found else {}),
        address=bytes(found.get(IFLA_ADDRESS, b"")),
        is_up=bool(flags & IFF_UP),
        has_carrier=has_carrier,
        # Before 4.16 the kernel counts changes alone: each second one, and the last where it has none, is a loss.
        carrier_losses=(changes + (not has_carrier)) // 2 if losses is None else losses,
        carrier_changes=changes,
        lower=_number(found, IFLA_LINK) or 0,
        lower_nsid=_signed(found, IFLA_LINK_NETNSID),
        through_nsid=_signed(found, IFLA_TARGET_NETNSID),
    )


def peer_of(link: Link, netlink: Any, links: Dict[int, Link]) -> Optional[Link]:
    """The other end of a veth, in whatever network namespace it is; None when it cannot be told.

    ``netlink`` and ``links`` are those of the link's own namespace.
    """
    if link.kind != VETH or not link.lower:
        return None
    if link.lower_nsid is None:
        return links.get(link.lower)
    there = _NUMBER.pack(_NUMBER.size, IFLA_TARGET_NETNSID, link.lower_nsid)
    try:
        peer = parse(netlink.ask(RTM_GETLINK, _IFINFO.pack(0, 0, link.lower, 0, 0) + there + _EXT_MASK))
    except OSError:
        return None  # not ours to look into
    # Before 4.15 the kernel does not know the attribute, and answers with a link of our own.
    return peer if peer is not None and peer.through_nsid == link.lower_nsid and peer.lower == link.index else None


def kind_of(info: Mapping[int, Body]) -> str:
    """What IFLA_LINKINFO says of a device, as "vxlan"; empty for one of hardware."""
    return bytes(info.get(IFLA_INFO_KIND, b"")).rstrip(b"\0").decode("ascii", "replace")


def _number(found: Dict[int, memoryview], attribute: int) -> Optional[int]:
    value = found.get(attribute)
    return int(_UINT.unpack_from(value)[0]) if value is not None and len(value) >= _UINT.size else None


def _signed(found: Dict[int, memoryview], attribute: int) -> Optional[int]:
    value = found.get(attribute)
    return int(_INT.unpack_from(value)[0]) if value is not None and len(value) >= _INT.size else None
