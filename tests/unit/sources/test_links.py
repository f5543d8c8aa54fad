"""link_rates from made-up messages of the kernel: names, states, carriers, qdiscs, namespaces that come and go."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from netconsole.host.here import Here
from netconsole.host.target import InsideNamespace, Opened, Question
from netconsole.sources import link_state, qdiscs
from netconsole.sources.base import FrameMaker, SourceError
from netconsole.sources.carrier import FLAPS_NS, Carrier
from netconsole.sources.link_state import RTM_DELLINK, RTM_NEWLINK, Link, LinkTable, veth_peers
from netconsole.sources.links import Links
from netconsole.sources.namespace_links import COUNTS, READ_EVERY, parse_devices
from netconsole.sources.namespaces import MAX_NAMESPACES, Closable, OpenNamespaces
from netconsole.sources.qdiscs import Qdisc, rate_text
from netconsole.telemetry.frames import AnyFrame, Row, Status, Table
from netconsole_collector.primitives.netlink import Netlink, Unasked

END_OF_LINE = "\x1c\x1d\x1e\x85\u2028\u2029"
"""What Python takes for one, and the kernel for a letter of an interface's name (dev_valid_name)."""
DEVICES = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo:  1000      10    1    2    0     0          0         0     2000      20    3    4    0     0       0          0
[bold]x:    5       6    7    8    0     0          0         0        9      10   11   12    0     0       0          0
 eth0:1:  50       6    7    8    0     0          0         0        9      10   11   12    0     0       0          0
"""
SECOND = 1_000_000_000
OWN = 4026531840


# ---- what the kernel says ----


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def number(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=I", value))


def link_message(index: int, name: bytes, is_up: bool = True, carrier: bool = True, *more: bytes) -> memoryview:
    head = struct.pack("=BxHiII", socket.AF_UNSPEC, 1, index, int(is_up), 0)
    return memoryview(head + attribute(3, name + b"\0") + attribute(33, bytes([carrier])) + b"".join(more))


def qdisc_message(
    index: int,
    kind: str,
    options: bytes = b"",
    parent: int = 0xFFFFFFFF,
    drops: int = 0,
    queue: tuple[int, int, int, int] = (1, 2, 4, 5),
) -> memoryview:
    """``queue``: packets and bytes that wait, requeues and overlimits (struct gnet_stats_queue)."""
    head = struct.pack("=BxxxiIII", 0, index, 0x10000, parent, 0)
    told = attribute(3, struct.pack("=IIIII", queue[0], queue[1], drops, *queue[2:]))
    return memoryview(
        head + attribute(1, kind.encode() + b"\0") + attribute(2 | 0x8000, options) + attribute(7 | 0x8000, told)
    )


def rate_spec(bytes_per_s: int) -> bytes:
    return struct.pack("=BBHhHI", 0, 1, 0, -1, 0, bytes_per_s)


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
    assert table.links[3].has_carrier
    table.take(RTM_DELLINK, link_message(3, b"eth0"))
    assert table.links == {}


@pytest.mark.parametrize("cut", range(60))
def test_a_message_that_is_cut_off_is_no_link_or_one_with_less(cut: int) -> None:
    whole = link_message(3, b"eth0", True, True, number(35, 7), number(48, 4))
    link = link_state.parse(whole[: max(16, len(whole) - cut)])
    assert link is None or link.name in ("eth0", "eth", "et", "e", "")


@pytest.mark.parametrize(
    ("message", "shaper", "rate"),
    [
        (qdisc_message(1, "tbf", attribute(1, rate_spec(625_000) + bytes(24))), "tbf of 5 Mbit/s", 5_000_000),
        (
            qdisc_message(1, "tbf", attribute(1, rate_spec(0xFFFFFFFF)) + attribute(4, struct.pack("=Q", 5 * 10**9))),
            "tbf of 40 Gbit/s",
            40 * 10**9,
        ),
        (qdisc_message(1, "tbf", attribute(1, b"short")), "tbf", None),
        (qdisc_message(1, "tbf"), "tbf", None),
        (qdisc_message(1, "fq_codel", attribute(1, rate_spec(625_000))), None, None),
    ],
)
def test_the_rate_of_a_token_bucket_is_told(message: memoryview, shaper: str | None, rate: int | None) -> None:
    qdisc = qdiscs.parse(message)
    assert qdisc is not None and (qdisc.shaper, qdisc.rate_bits) == (shaper, rate)
    assert (qdisc.backlog_packets, qdisc.backlog_bytes, qdisc.requeues, qdisc.overlimits) == (1, 2, 4, 5)


class Answers(Netlink):
    """Answers dumps with what it is given."""

    def __init__(self, *bodies: memoryview) -> None:
        self.bodies = bodies

    def dump(self, kind: int, request: bytes) -> Iterator[memoryview]:
        return iter(self.bodies)

    def ask(self, kind: int, request: bytes) -> memoryview:
        if not self.bodies:
            raise PermissionError
        return self.bodies[0]


def htb_class(parent: int, ceiling: int) -> memoryview:
    return qdisc_message(1, "htb", attribute(1, rate_spec(1) + rate_spec(ceiling) + bytes(20)), parent)


def test_an_htb_is_as_fast_as_the_ceiling_of_its_one_root_class() -> None:
    root, child = htb_class(0xFFFFFFFF, 125_000), htb_class(0x10001, 1)
    assert qdiscs.htb_rate(Answers(root, child), 1) == 1_000_000
    assert qdiscs.htb_rate(Answers(root, root), 1) is None
    assert qdiscs.htb_rate(Answers(), 1) is None


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        (800, "800 bit/s"),
        (64_000, "64 kbit/s"),
        (1_500_000, "1.5 Mbit/s"),
        (10**9, "1 Gbit/s"),
        (4 * 10**11, "400 Gbit/s"),
    ],
)
def test_a_rate_is_written_as_it_was_given(bits: int, text: str) -> None:
    assert rate_text(bits) == text


def test_a_qdisc_that_stands_still_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, real = qdiscs.QdiscReader(), qdiscs.parse
    parsed: list[bytes] = []

    def parse(body: memoryview) -> Qdisc | None:
        parsed.append(bytes(body))
        return real(body)

    monkeypatch.setattr(qdiscs, "parse", parse)
    still, moving = qdisc_message(1, "tbf"), [qdisc_message(2, "tbf", drops=drops) for drops in range(3)]
    for one in moving:
        assert [qdisc.ifindex for qdisc in reader.read(Answers(still, one, htb_class(7, 7)))] == [1, 2]
    assert len(parsed) == 5
    assert reader.read(Answers(moving[0])) == [real(moving[0])]


def child(sent_bytes: int, backlog_bytes: int, handle: int = 0x10010) -> Qdisc:
    return Qdisc(7, "htb class", 0, backlog_bytes, 0, 0, 0, handle=handle, parent=0x10001, sent_bytes=sent_bytes)


def test_the_wait_of_a_queue_is_what_waits_by_the_rate_at_which_it_leaves() -> None:
    waits, other = qdiscs.QueueWaits(), 0x10020
    waits.take([child(10_000, 3_000), child(5, 100, other)], SECOND)
    assert waits.of(child(0, 0)) is None, "after one reading"
    waits.take([child(60_000, 5_000), child(5, 100, other)], 3 * SECOND)
    assert waits.of(child(0, 0)) == 160_000_000, "4000 bytes at 25 kB/s"
    assert waits.of(child(0, 0, other)) is None, "nothing leaves"
    waits.take([child(70_000, 0), child(200, 0, other)], 4 * SECOND)
    assert waits.of(child(0, 0)) == 250_000_000, "2500 at 10 kB/s"
    waits.take([child(80_000, 0), child(7, 9, other)], 5 * SECOND)
    assert waits.of(child(0, 0)) is None, "nothing waits"
    assert waits.of(child(0, 0, other)) is None, "it was made anew"


def class_of(index: int, classid: int, kind: str, sent: tuple[int, int]) -> memoryview:
    message = bytearray(qdisc_message(index, kind, parent=0x10001))
    struct.pack_into("=I", message, 8, classid)
    basic = attribute(7 | 0x8000, attribute(1, struct.pack("=QIxxxx", *sent)) + attribute(3, bytes(20)))
    return memoryview(bytes(message[: message.index(struct.pack("=H", 7 | 0x8000)) - 2]) + basic)


def test_classes_are_read_of_devices_whose_qdisc_has_some() -> None:
    asked: list[tuple[int, bytes]] = []

    class Kernel(Answers):
        def dump(self, kind: int, request: bytes) -> Iterator[memoryview]:
            asked.append((kind, request))
            if kind == qdiscs.RTM_GETQDISC:
                return iter((qdisc_message(1, "tbf"), qdisc_message(2, "htb"), qdisc_message(3, "mq")))
            return iter((class_of(2, 0x10010, "htb", (900, 9)), class_of(2, 0x80001, "fq_codel", (1, 1))))

    reader = qdiscs.QdiscReader()
    assert [one.kind for one in reader.read(Kernel())] == ["tbf", "htb", "mq"]
    (one,) = reader.children
    assert (one.kind, qdiscs.handle_text(one.handle), one.sent_bytes, one.sent_packets) == ("htb class", "1:10", 900, 9)
    assert [kind for kind, _ in asked] == [qdiscs.RTM_GETQDISC, qdiscs.RTM_GETTCLASS]
    assert struct.unpack_from("=i", asked[1][1], 4) == (2,)
    assert reader.class_requests() == asked[1:]


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


# ---- one namespace ----


def rows(frames: Sequence[AnyFrame]) -> dict[tuple[object, ...], Row]:
    """The rows of the table, by device and namespace."""
    (table,) = [frame for frame in frames if isinstance(frame, Table)]
    return {(row.labels["device"], row.labels["netns"]): row for row in table.rows}


@pytest.mark.proves("link_rates", "tables.links.{rx_packets,rx_bytes,rx_errors,rx_drops,tx_bytes,tx_errors,tx_drops}")
def test_interfaces_are_read_whatever_they_are_called() -> None:
    read = dict(parse_devices(DEVICES).values())
    assert read["lo"] == (10, 1000, 1, 2, 20, 2000, 3, 4)
    assert list(read) == ["lo", "[bold]x", "eth0:1"]
    received = {"rx_packets": 10, "rx_bytes": 1000, "rx_errors": 1, "rx_drops": 2}
    sent = {"tx_packets": 20, "tx_bytes": 2000, "tx_errors": 3, "tx_drops": 4}
    assert dict(zip(COUNTS, read["lo"], strict=False)) == received | sent


def test_a_name_cannot_pass_for_another_interface() -> None:
    text = DEVICES + "\n".join(f" x{end}eth0:" + DEVICES.splitlines()[-1].partition(":1:")[2] for end in END_OF_LINE)
    names = [name for name, _ in parse_devices(text).values()]
    assert names[3:] == [f"x{end}eth0" for end in END_OF_LINE]


class Kernel:
    """What the kernel says of the links of one namespace, in place of netlink and /proc."""

    def __init__(self, tmp_path: Path) -> None:
        self.names: dict[int, bytes] = {}
        self.changed: dict[int, Link] = {}
        self.told: list[tuple[int, memoryview]] = []
        self.lost_some = False
        self.kind = "kind{}"
        self.queue = 1, 2, 4, 5
        self.devices = tmp_path / "dev"
        self.devices.write_text(DEVICES)
        kernel = self

        class Talks(Netlink):
            def __init__(self) -> None:
                self.unasked: Unasked | None = None

            def listen(self) -> bool:
                if kernel.lost_some:
                    raise OSError(errno.ENOBUFS, "no room")
                for kind, body in kernel.told:
                    assert self.unasked is not None
                    self.unasked(kind, body)
                return bool(kernel.told)

            def dump(self, kind: int, request: bytes) -> Iterator[memoryview]:
                if kind == link_state.RTM_GETLINK:
                    kernel.fills += 1
                    return (link_message(index, name) for index, name in kernel.names.items())
                queue = kernel.queue
                return (qdisc_message(index, kernel.kind.format(index), queue=queue) for index in kernel.names)

            def close(self) -> None: ...

        self.fills = 0
        self.netlink = Talks()

    def links(self, tmp_path: Path) -> Links:
        """link_rates of this namespace alone."""
        return Links(Alone(tmp_path / "nothing", self))

    def name(self, names: dict[int, bytes]) -> None:
        """The interfaces have these names now, in /proc and in what netlink is asked for."""
        self.names = names
        heading, line = DEVICES.splitlines()[:2], DEVICES.splitlines()[2].partition("lo")[2].encode()
        lines = [*(one.encode() for one in heading), *(b"  " + name + line for name in names.values())]
        self.devices.write_bytes(b"\n".join(lines) + b"\n")


class InKernel:
    """The own namespace of a made-up kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.netlink = kernel.netlink
        self.devices = kernel.devices.read_bytes

    def questions(self, dumps: Iterable[tuple[int, bytes]], /) -> Iterable[Question]:
        return ()

    def close(self) -> None: ...


class Alone(Here):
    """A host without any other namespace."""

    def __init__(self, root: Path, kernel: Kernel) -> None:
        super().__init__(root)
        self._kernel = kernel

    def own_namespace(self) -> InsideNamespace:  # type: ignore[override]
        return InKernel(self._kernel)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def kinds(links: Links) -> dict[object, object]:
    """The qdisc of every interface that is sent; that of interface 1 is kind1."""
    return {device: row.labels["qdisc"] for (device, _), row in rows(links.read(FrameMaker())).items()}


def test_a_qdisc_is_shown_at_its_interface_whatever_that_is_called_now(kernel: Kernel, tmp_path: Path) -> None:
    links = kernel.links(tmp_path)
    links.open()
    kernel.name({1: b"eth0", 2: b"tap0"})
    assert kinds(links) == {"eth0": "kind1", "tap0": "kind2"}
    kernel.name({1: b"old", 2: b"eth0"})
    assert kinds(links) == {"old": "kind1", "eth0": "kind2"}
    kernel.name({2: b"eth0", 3: b"\xff"})
    assert kinds(links) == {"\\xff": "kind3"}, "eth0 has not changed"


def test_two_interfaces_that_change_names_are_told_apart(kernel: Kernel, tmp_path: Path) -> None:
    links = kernel.links(tmp_path)
    links.open()
    kernel.name({1: b"a", 2: b"b"})
    kinds(links)
    kernel.name({1: b"b", 2: b"a"})
    kernel.told = [(RTM_NEWLINK, link_message(1, b"b")), (RTM_NEWLINK, link_message(2, b"a"))]
    assert kinds(links) == {"a": "kind2", "b": "kind1"}
    kernel.told = []
    kernel.name({1: b"a", 2: b"b"})  # and nobody tells
    found: dict[object, object] = {}
    for _ in range(READ_EVERY + 1):
        found |= kinds(links)
    assert found == {"a": "kind1", "b": "kind2"}


def test_links_are_read_again_where_the_kernel_had_to_leave_something_out(kernel: Kernel, tmp_path: Path) -> None:
    links = kernel.links(tmp_path)
    links.open()
    kernel.name({1: b"a"})
    for _ in range(3):
        kinds(links)
    assert kernel.fills == 1
    kernel.lost_some = True
    kinds(links)
    assert kernel.fills == 2


def test_counters_are_counted_from_the_first_reading(kernel: Kernel, tmp_path: Path) -> None:
    links = kernel.links(tmp_path)
    links.open()
    make = FrameMaker()
    first = rows(links.read(make))
    assert first["lo", "host"].counts["rx_packets"].total == 0
    kernel.devices.write_text(DEVICES.replace("  1000      10 ", "  1500      17 "))
    second = rows(links.read(make))
    assert list(second) == [("lo", "host")]
    counts = second["lo", "host"].counts
    assert (counts["rx_packets"].delta, counts["rx_bytes"].total) == (7, 500)
    links.close()


@pytest.mark.proves(
    "link_rates", "tables.links.{backlog_packets,backlog_bytes,qdisc_requeues,qdisc_overlimits}", "modes.summary"
)
def test_each_figure_of_a_qdisc_is_its_own(kernel: Kernel, tmp_path: Path) -> None:
    links, make = kernel.links(tmp_path), FrameMaker()
    links.open()
    kernel.name({7: b"eth0"})
    links.read(make)
    kernel.queue = 31, 47_000, 4 + 600, 5 + 8_000
    found: list[Row] = []
    while not found:  # qdiscs of a link that stands still are read again now and then
        found = [row for (device, _), row in rows(links.read(make)).items() if device == "eth0"]
    (row,) = found
    assert (row.gauges["backlog_packets"], row.gauges["backlog_bytes"]) == (31, 47_000)
    assert (row.counts["qdisc_requeues"].total, row.counts["qdisc_overlimits"].total) == (600, 8_000)
    links.close()


# ---- the carrier ----


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

    def read(self, drops: int = 0, losses: int = 0, **state: object) -> tuple[int, int, int]:
        """Whether its carrier is lost, and the packets that were lost for that; to its peer."""
        self._drops += drops
        self._now_ns += SECOND
        if losses or state:
            losses += self.link.carrier_losses
            self.link = replace(self.link, carrier_losses=losses, **state)  # type: ignore[arg-type]
        self._links[self.link.index] = self.link
        self.carrier.take(self.link, self._drops, self._links, self._peer, self._now_ns)
        return self.carrier.carrier_lost, self.carrier.lost, self.carrier.lost_to_peer

    def _peer(self, link: Link) -> Link | None:
        self.asked += 1
        return self.peer


def link(kind: str = "", index: int = 5, **state: object) -> Link:
    fields: dict[str, object] = {"is_up": True, "has_carrier": True, "carrier_losses": 1, "carrier_changes": 2} | state
    return Link(index, "x", kind, bytes([2, index]), **fields)  # type: ignore[arg-type]


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


@pytest.mark.parametrize(("nsid", "lower", "known"), [(2, 5, True), (3, 5, False), (None, 5, False), (2, 6, False)])
def test_an_old_kernel_that_answers_with_a_link_of_our_own_is_not_believed(
    nsid: int | None, lower: int, known: bool
) -> None:
    ours = link("veth", lower=9, lower_nsid=2)
    more = [number(5, lower), *([number(46, nsid)] if nsid is not None else [])]
    answer = Answers(link_message(9, b"peer", False, False, *more))
    found = link_state.peer_of(ours, answer, {})
    assert (found is not None) == known
    assert link_state.peer_of(ours, Answers(), {}) is None
    assert link_state.peer_of(replace(ours, lower_nsid=None), answer, {9: ours}) is ours


# ---- namespaces ----

NOTHING: InsideNamespace = None  # type: ignore[assignment]


class Thing(Closable):
    """What is opened in a namespace."""

    def __init__(self, inside: InsideNamespace) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


class Host(Here):
    """A made-up /run/netns and /proc. Namespaces are files: their inodes are as good as the kernel's."""

    def __init__(self, tmp_path: Path, errors: Sequence[int] = ()) -> None:
        super().__init__(tmp_path)
        self.directory, self.proc = tmp_path / "run/netns", tmp_path / "proc"
        self.directory.mkdir(parents=True)
        self.process("self")
        os.link(self.proc / "self/ns/net", self.proc / "init")
        (self.proc / "1/ns").mkdir(parents=True)
        os.link(self.proc / "init", self.proc / "1/ns/net")
        self.entered: list[str] = []
        self.root = tmp_path
        self.errors = list(errors)
        self.namespaces = OpenNamespaces(Thing, self)
        self.namespaces.open()

    def process(self, pid: str) -> int:
        """A process with a namespace of its own; the inode."""
        path = self.proc / pid / "ns/net"
        path.parent.mkdir(parents=True)
        path.touch()
        return path.stat().st_ino

    def end(self, pid: str) -> None:
        (self.proc / pid / "ns/net").unlink()

    def seen(self) -> list[str]:
        self.namespaces._search_at = 0.0  # as if its time had come
        with self.namespaces.held() as held:
            assert all(one.thing.is_open for one in held)
            return [one.name for one in held]

    def own_namespace(self) -> InsideNamespace:  # type: ignore[override]
        return NOTHING

    def inside(self, namespaces: Sequence[tuple[str, int]], /) -> list[Opened]:
        made: list[Opened] = []
        for path, inode in namespaces:
            self.entered.append(path)
            assert Path(f"{self.root}{path}").stat().st_ino == inode
            made.append(OSError(self.errors.pop(0), "") if self.errors else NOTHING)
        return made


def test_namespaces_are_called_as_ip_netns_calls_them_and_followed(tmp_path: Path) -> None:
    host = Host(tmp_path)
    assert host.seen() == ["host"]
    (host.directory / "blue").touch()
    os.mkfifo(host.directory / "[red]\n", 0o600)  # whatever lies there: the kernel decides
    os.close(os.open(os.fsencode(host.directory) + b"/\xff", os.O_CREAT | os.O_WRONLY))
    inode = host.process("77")
    assert set(host.seen()) == {"host", "blue", "[red]\n", "\\xff", str(inode)}
    (host.directory / "blue").unlink()
    host.end("77")
    assert set(host.seen()) == {"host", "[red]\n", "\\xff"}
    assert len(host.entered) == 4, "each was entered once"
    host.namespaces.close()


def test_a_namespace_that_has_a_name_and_processes_is_one(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.process("77")
    os.link(host.proc / "77/ns/net", host.directory / "blue")
    assert host.seen() == ["host", "blue"]
    (host.directory / "blue").unlink()
    inode = (host.proc / "77/ns/net").stat().st_ino
    assert host.seen() == ["host", str(inode)], "a process has it still"
    host.namespaces.close()


def test_who_may_not_enter_namespaces_does_not_go_on_trying(tmp_path: Path) -> None:
    host = Host(tmp_path, [errno.EPERM] * 9)
    (host.directory / "blue").touch()
    (host.directory / "red").touch()
    for _ in range(3):
        assert host.seen() == ["host"]
    assert len(host.entered) == 2 and host.namespaces.left_out == 0
    host.namespaces.close()


def test_a_namespace_that_cannot_be_opened_does_not_hide_another(tmp_path: Path) -> None:
    host = Host(tmp_path, [errno.EINVAL])
    (host.directory / "blue").touch()
    (host.directory / "red").touch()
    assert len(host.seen()) == 2
    host.namespaces.close()


def test_more_namespaces_than_are_read_are_said(tmp_path: Path, kernel: Kernel) -> None:
    host = Host(tmp_path)
    for index in range(MAX_NAMESPACES + 2):
        (host.directory / f"n{index}").touch()
    assert len(host.seen()) == MAX_NAMESPACES
    assert host.namespaces.left_out == 3
    host.namespaces.close()

    links = kernel.links(tmp_path)
    links.open()
    said: list[tuple[str, str | None]] = []
    for left_out in (0, 3, 3, 0):
        links._namespaces.left_out, links._namespaces._may_enter = left_out, False
        said += [(one.state, one.why) for one in links.read(FrameMaker()) if isinstance(one, Status)]
    why = f"links of 3 more network namespaces are left out: netconsole reads {MAX_NAMESPACES} at most"
    assert said == [("degraded", why), ("attached", None)]


def test_links_that_cannot_be_read_are_said(tmp_path: Path) -> None:
    class Nowhere(Here):
        def own_namespace(self) -> InsideNamespace:  # type: ignore[override]
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    with pytest.raises(SourceError, match="No such file"):
        Links(Nowhere(tmp_path)).open()


def test_a_namespace_that_fails_is_opened_anew_and_the_others_go_on(tmp_path: Path) -> None:
    host = Host(tmp_path)
    (host.directory / "blue").touch()
    assert host.seen() == ["host", "blue"]
    with host.namespaces.held() as held:
        for one in held:
            host.namespaces.drop(one.thing)
        assert [one.thing.is_open for one in held] == [True, False]
    assert host.seen() == ["host", "blue"]
    assert len(host.entered) == 2
    host.namespaces.close()


def test_a_qdisc_is_the_same_for_rows_of_a_shaper() -> None:
    assert Qdisc(1, "htb", 0, 0, 0, 0, 0, None).shaper == "htb"
    assert Qdisc(1, "htb", 0, 0, 0, 0, 0, 1000).shaper == "htb of 1 kbit/s"
    assert Qdisc(1, "mq", 0, 0, 0, 0, 0).shaper is None
