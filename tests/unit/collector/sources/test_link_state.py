"""What the kernel says of a link: its state, its carrier, the other end of a veth."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from netconsole_collector.sources.net import link_state
from netconsole_collector.sources.net.link_state import RTM_DELLINK, RTM_NEWLINK, Link, LinkTable, veth_peers
from tests.support.rtnetlink import Answers, attribute, link_message, number


def test_a_link_is_read_with_its_state_and_what_it_hangs_on() -> None:
    info = attribute(18 | 0x8000, attribute(1, b"veth\0"))
    numbers = (number(35, 7), number(48, 4), number(47, 3), number(5, 9), number(37, 2))
    link = link_state.parse(link_message(3, b"uxva", True, False, info, attribute(1, b"\x02" * 6), *numbers))
    assert link == Link(3, "uxva", "veth", b"\x02" * 6, True, False, 4, 7, lower=9, lower_nsid=2)
    assert link.lacks_carrier
    down = link_state.parse(link_message(3, b"uxva", False, False))
    assert down is not None and not down.lacks_carrier and down.lower_nsid is None


@pytest.mark.parametrize(
    ("changes", "has_carrier", "losses"), [(0, False, 0), (1, True, 0), (2, False, 1), (3, True, 1), (1, False, 1)]
)
def test_a_kernel_that_counts_changes_alone_tells_losses_too(changes: int, has_carrier: bool, losses: int) -> None:
    link = link_state.parse(link_message(3, b"eth0", True, has_carrier, number(35, changes)))
    assert link is not None and link.carrier_losses == losses


def test_what_is_told_of_a_bridges_port_or_a_radio_is_no_state_of_a_link() -> None:
    table = LinkTable()
    table.take(RTM_NEWLINK, link_message(3, b"eth0"))
    bridge = bytearray(link_message(3, b"eth0", False, False))
    bridge[0] = socket.AF_BRIDGE
    table.take(RTM_DELLINK, memoryview(bridge))
    table.take(RTM_NEWLINK, memoryview(struct.pack("=BxHiII", 0, 1, 3, 0, 0) + attribute(3, b"eth0\0")))
    assert table.links[3].has_carrier and table.changes == 1
    table.take(RTM_DELLINK, link_message(3, b"eth0"))
    assert table.links == {} and table.changes == 2
    table.take(link_state.RTM_GETLINK, link_message(3, b"eth0"))
    assert table.links == {} and table.changes == 2, "no news"


@pytest.mark.parametrize("cut", range(60))
def test_a_message_that_is_cut_off_is_no_link_or_one_with_less(cut: int) -> None:
    whole = link_message(3, b"eth0", True, True, number(35, 7), number(48, 4))
    link = link_state.parse(whole[: max(16, len(whole) - cut)])
    assert link is None or link.name in ("eth0", "eth", "et", "e", "")


def veth(index: int, lower: int, name: str, nsid: int | None = None) -> Link:
    return Link(index, name, "veth", b"", True, True, 0, 0, lower=lower, lower_nsid=nsid)


def test_each_end_of_a_veth_knows_the_other_one() -> None:
    host = [veth(10, 2, "uxa", 0), veth(11, 2, "uxb", 1), veth(12, 13, "p"), veth(13, 12, "q"), veth(14, 9, "gone", 7)]
    other_kind = Link(10, "eth9", "macvlan", b"", True, True, 0, 0, lower=2, lower_nsid=0)
    blue, green = [veth(2, 10, "eth0", 0), veth(3, 5, "x", 4)], [veth(2, 11, "eth0", 0), veth(3, 5, "x", 4)]
    red, own = [veth(5, 3, "y", 4), veth(6, 8, "z", 2)], [veth(5, 3, "y", 4), other_kind, veth(8, 6, "z")]
    places = {"host": host, "blue": blue, "green": green, "red": red, "own": own}
    assert veth_peers((netns, {one.index: one for one in links}) for netns, links in places.items()) == {
        ("host", 10): ("eth0", "blue"),
        ("blue", 2): ("uxa", "host"),
        ("host", 11): ("eth0", "green"),
        ("green", 2): ("uxb", "host"),
        ("host", 12): ("q", "host"),
        ("host", 13): ("p", "host"),
    }, "of two pairs with the same indices it cannot be told which ends belong together"


@pytest.mark.parametrize(("nsid", "lower", "known"), [(2, 5, True), (3, 5, False), (None, 5, False), (2, 6, False)])
def test_an_old_kernel_that_answers_with_a_link_of_our_own_is_not_believed(
    nsid: int | None, lower: int, known: bool
) -> None:
    ours = veth(5, 9, "x", 2)
    more = [number(5, lower), *([number(46, nsid)] if nsid is not None else [])]
    answer = Answers(link_message(9, b"peer", False, False, *more))
    found = link_state.peer_of(ours, answer, {})
    assert (found is not None) == known
    assert link_state.peer_of(ours, Answers(), {}) is None
    assert link_state.peer_of(ours._replace(lower_nsid=None), answer, {9: ours}) is ours
    assert link_state.peer_of(ours._replace(kind="macvlan"), answer, {9: ours}) is None
    assert link_state.peer_of(ours._replace(lower=0, lower_nsid=None), answer, {0: ours}) is None


def test_all_links_are_asked_for_without_their_statistics_and_a_peer_by_its_namespace() -> None:
    asked: list[tuple[int, bytes]] = []

    class Kernel(Answers):
        def dump(self, kind: int, request: bytes) -> Iterator[memoryview]:
            asked.append((kind, request))
            return super().dump(kind, request)

        def ask(self, kind: int, request: bytes) -> memoryview:
            asked.append((kind, request))
            return super().ask(kind, request)

    table, kernel = LinkTable(), Kernel(link_message(9, b"peer", False, False, number(5, 5), number(46, 2)))
    table.links[4] = veth(4, 1, "of before")
    table.fill(kernel)
    assert [one.name for one in table.links.values()] == ["peer"]
    assert link_state.peer_of(veth(5, 9, "x", 2), kernel, {}) == table.links[9]
    without = number(29, 8)
    assert asked == [
        (link_state.RTM_GETLINK, struct.pack("=BxHiII", 0, 0, 0, 0, 0) + without),
        (link_state.RTM_GETLINK, struct.pack("=BxHiII", 0, 0, 9, 0, 0) + number(46, 2) + without),
    ]
