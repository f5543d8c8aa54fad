"""Follows the carrier of a link: lost, regained, and the packets that were lost meanwhile.

A host has many links that are up and idle without a carrier (free ports of a NIC, a bridge without ports). They are no
fault. A fault is a carrier that was there and is gone, or packets that are lost without it.
"""

from typing import Callable, List, Mapping, Optional, Tuple

from netconsole_collector.sources.net.link_state import VETH, Link

FLAPS_NS = 60000000000
"""How long a carrier that was lost and came back is reported."""
FOLLOWERS = frozenset({"bridge", "tun"})
"""Kinds whose carrier follows their ports, or the process that has them open. Its changes are not reported."""


class Carrier:
    """One link, from the first reading that had it."""

    __slots__ = (
        "_asked_for", "_drops", "_flaps", "_had", "_peer", "_pending", "_restarted", "carrier_lost", "flaps", "link",
        "lost", "lost_to_peer", "peer_down",
    )  # fmt: skip

    def __init__(self, link: Link, drops: int) -> None:
        self.link = link
        self.lost = 0
        """Packets dropped on sending, in intervals in which the carrier was missing at some time."""
        self.lost_to_peer = 0
        """Those of them that were dropped because the peer was down."""
        self.peer_down: Optional[int] = None
        """1 while it has no carrier and its peer is down, 0 while it has a carrier; None is unknown."""
        self.carrier_lost = 0
        """1 while it has no carrier and had one before."""
        self.flaps = 0
        """How often its carrier was lost and came back in the last minute; 0 for one loss that a reading has seen."""
        self._drops = drops
        self._had = link.is_up and link.has_carrier
        self._peer: Optional[Link] = None
        self._asked_for: Optional[Link] = None
        self._pending = 0
        self._restarted = False
        self._flaps: List[Tuple[int, bool]] = []

    def take(
        self, link: Link, drops: int, links: Mapping[int, Link], peer_of: Callable[[Link], Optional[Link]], now_ns: int
    ) -> None:
        """A reading, the first one too: the link and the packets dropped so far; ``links`` are all of its namespace.

        ``peer_of`` finds the other end of a veth, at a price: it is asked when the link has changed.
        """
        previous, self.link = self.link, link
        dropped, self._drops = max(0, drops - self._drops), drops
        if link is self._asked_for and link.has_carrier and not self._flaps:
            return  # nothing has changed, as nearly always
        losses = max(0, link.carrier_losses - previous.carrier_losses)
        if link is not self._asked_for:
            self._asked_for = link
            self._look_at_peer(link, losses, peer_of)
        if dropped and (link.lacks_carrier or previous.lacks_carrier or losses):
            self.lost += dropped
            if self._peer is not None and not self._peer.is_up:
                self.lost_to_peer += dropped
        follows = _follows(link, links)
        self.carrier_lost = int(link.lacks_carrier and self._had and not follows)
        self._count_flaps(link, losses, follows, previous.lacks_carrier, now_ns)
        self._had = self._had or (link.is_up and link.has_carrier)
        if link.has_carrier:
            self._peer = None

    def _look_at_peer(self, link: Link, losses: int, peer_of: Callable[[Link], Optional[Link]]) -> None:
        if link.kind != VETH:
            return
        if link.lacks_carrier or (losses and self._peer is None):
            self._peer = peer_of(link)
        if link.has_carrier:
            self.peer_down = 0
        else:
            self.peer_down = None if self._peer is None or not link.is_up else int(not self._peer.is_up)

    def _count_flaps(self, link: Link, losses: int, follows: bool, was_seen: bool, now_ns: int) -> None:
        self._restarted = self._restarted or not link.is_up
        self._pending += losses if self._had else 0
        if link.has_carrier and self._pending:
            if not follows and self._is_told_here(link):
                self._flaps += [(now_ns, was_seen)] * self._pending
            self._pending = 0
        if link.has_carrier:
            self._restarted = False
        if self._flaps:
            self._flaps = [(at_ns, seen) for at_ns, seen in self._flaps if now_ns - at_ns < FLAPS_NS]
        is_told = len(self._flaps) > 1 or any(not seen for _, seen in self._flaps)
        self.flaps = len(self._flaps) if is_told else 0

    def _is_told_here(self, link: Link) -> bool:
        """Not where somebody set the link down and up again; of a veth at one end, for both ends lose it at once.

        That is the end whose peer was seen down, or else the one with the higher number: on a host its own.
        """
        if self._restarted:
            return False
        if self._peer is None or not self._peer.is_up:
            return True
        return (link.index, link.address) > (self._peer.index, self._peer.address)


def _follows(link: Link, links: Mapping[int, Link]) -> bool:
    """Whether its carrier follows that of other devices, which are reported instead."""
    if link.kind in FOLLOWERS:
        return True
    return link.kind != VETH and link.lower_nsid is None and link.lower != link.index and link.lower in links
