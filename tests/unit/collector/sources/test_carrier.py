"""A lost carrier: since when, what was lost for it, flaps, and at which end of a veth it is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from netconsole_collector.sources.net.carrier import FLAPS_NS, Carrier
from netconsole_collector.sources.net.link_state import Link

SECOND = 1_000_000_000


class Watched:
    """A link, reading by reading, one a second."""

    def __init__(self, link: Link, peer: Link | None = None, others: Sequence[Link] = ()) -> None:
        self.link, self.peer = link, peer
        self.asked = 0
        self._links = {one.index: one for one in (link, *others)}
        self._drops = 0
        self._now_ns = 0
        self.carrier = Carrier(link, 0)
        self.read()

    def read(self, drops: int = 0, losses: int = 0, **state: Any) -> tuple[int, int, int]:
        """Whether its carrier is lost, and the packets that were lost for that; to its peer."""
        self._drops += drops
        self._now_ns += SECOND
        if losses or state:
            losses += self.link.carrier_losses
            self.link = self.link._replace(carrier_losses=losses, **state)
        self._links[self.link.index] = self.link
        self.carrier.take(self.link, self._drops, self._links, self._peer, self._now_ns)
        return self.carrier.carrier_lost, self.carrier.lost, self.carrier.lost_to_peer

    def _peer(self, link: Link) -> Link | None:
        self.asked += 1
        return self.peer


def link(kind: str = "", index: int = 5, **state: Any) -> Link:
    fields: dict[str, Any] = {"is_up": True, "has_carrier": True, "carrier_losses": 1, "carrier_changes": 2} | state
    return Link(index, "x", kind, bytes([2, index]), **fields)


def test_a_port_that_was_free_all_the_time_is_no_finding() -> None:
    idle = Watched(link(has_carrier=False))
    assert [idle.read() for _ in range(5)] == [(0, 0, 0)] * 5
    assert idle.read(drops=40) == (0, 40, 0), "but what is sent to it is lost"


def test_a_carrier_that_goes_while_we_look_is_lost_until_it_comes_back() -> None:
    one = Watched(link())
    assert one.read(drops=7) == (0, 0, 0), "dropped for another reason"
    assert one.read(drops=30, losses=1, has_carrier=False) == (1, 30, 0)
    assert one.read(drops=100) == (1, 130, 0)
    assert one.read(drops=20, has_carrier=True) == (0, 150, 0), "the interval in which it came back"
    assert one.read(drops=9) == (0, 150, 0)
    assert one.carrier.flaps == 0, "the loss was told while it lasted"
    one.read(losses=1, has_carrier=False)
    one.read(has_carrier=True)
    assert one.carrier.flaps == 2, "and again"


def test_a_link_that_somebody_sets_down_is_not_without_carrier_and_does_not_flap() -> None:
    one = Watched(link())
    assert one.read(losses=1, is_up=False, has_carrier=False) == (0, 0, 0)
    assert one.read(is_up=True, has_carrier=True) == (0, 0, 0)
    assert one.carrier.flaps == 0


@pytest.mark.proves("link_rates", "tables.links.flaps")
def test_flaps_within_one_interval_are_counted_and_told_for_a_minute() -> None:
    assert FLAPS_NS == 60 * SECOND
    one = Watched(link())
    one.read(losses=3, drops=5)
    assert (one.carrier.flaps, one.carrier.lost) == (3, 5)
    for _ in range(FLAPS_NS // SECOND - 1):
        one.read()
        assert one.carrier.flaps == 3
    one.read()
    assert one.carrier.flaps == 0


def test_the_peer_of_a_veth_is_named_and_asked_for_once() -> None:
    one = Watched(link("veth"), peer=link("veth", 4, is_up=False, has_carrier=False))
    assert one.carrier.peer_down == 0
    assert one.read(drops=3, losses=1, has_carrier=False) == (1, 3, 3)
    for _ in range(5):
        one.read(drops=1)
    assert (one.carrier.peer_down, one.carrier.lost_to_peer, one.asked) == (1, 8, 1)
    one.read(has_carrier=True, drops=1)
    assert (one.carrier.peer_down, one.carrier.lost_to_peer, one.carrier.flaps) == (0, 9, 0)


def test_a_peer_that_cannot_be_told_is_unknown() -> None:
    one = Watched(link("veth", has_carrier=False))
    assert one.carrier.peer_down is None
    assert one.read(drops=3) == (0, 3, 0)


def test_a_veth_that_flaps_is_told_at_one_end() -> None:
    low, high = link("veth", 4), link("veth", 7)
    ends = [Watched(low, high), Watched(high, low)]
    for end in ends:
        end.read(losses=1)
    assert [end.carrier.flaps for end in ends] == [0, 1]


def test_a_carrier_that_is_that_of_others_is_told_at_those() -> None:
    for one in (Watched(link("bridge")), Watched(link("tun")), Watched(link("vlan", lower=2), others=[link("", 2)])):
        assert one.read(drops=3, losses=1, has_carrier=False) == (0, 3, 0)
        assert one.read(has_carrier=True) == (0, 3, 0)
        assert one.carrier.flaps == 0
