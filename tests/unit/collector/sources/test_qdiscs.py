"""What the kernel says of queueing disciplines and their classes: rates, waits, which ones are read."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from netconsole_collector.sources.net import qdiscs
from netconsole_collector.sources.net.qdiscs import Qdisc, rate_text
from tests.support.rtnetlink import Answers, attribute, qdisc_message, rate_spec

SECOND = 1_000_000_000


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


def htb_class(parent: int, ceiling: int) -> memoryview:
    return qdisc_message(1, "htb", attribute(1, rate_spec(1) + rate_spec(ceiling) + bytes(20)), parent)


class Asked(Answers):
    """Remembers what it was asked."""

    def dump(self, kind: int, request: bytes) -> Iterator[memoryview]:
        self.requests = [(kind, request)]
        return super().dump(kind, request)


def test_an_htb_is_as_fast_as_the_ceiling_of_its_one_root_class() -> None:
    root, child = htb_class(0xFFFFFFFF, 125_000), htb_class(0x10001, 1)
    assert qdiscs.htb_rate(asked := Asked(root, child), 7) == 1_000_000
    assert asked.requests == [(qdiscs.RTM_GETTCLASS, struct.pack("=iiIII", 0, 7, 0, 0, 0))]
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
        (10**12, "1 Tbit/s"),
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
    assert reader.children == []
    assert [one.kind for one in reader.read(Kernel())] == ["tbf", "htb", "mq"]
    (one,) = reader.children
    assert (one.kind, qdiscs.handle_text(one.handle), one.sent_bytes, one.sent_packets) == ("htb class", "1:10", 900, 9)
    assert [kind for kind, _ in asked] == [qdiscs.RTM_GETQDISC, qdiscs.RTM_GETTCLASS]
    assert struct.unpack_from("=i", asked[1][1], 4) == (2,)
    assert reader.class_requests() == asked[1:]


def test_a_qdisc_is_the_same_for_rows_of_a_shaper() -> None:
    assert Qdisc(1, "htb", 0, 0, 0, 0, 0, None).shaper == "htb"
    assert Qdisc(1, "htb", 0, 0, 0, 0, 0, 1000).shaper == "htb of 1 kbit/s"
    assert Qdisc(1, "mq", 0, 0, 0, 0, 0).shaper is None


def test_what_is_no_root_is_a_child_and_what_takes_packets_in_is_neither() -> None:
    parents = {1: qdiscs.TC_H_ROOT, 2: 0x10001, 3: qdiscs.TC_H_INGRESS}
    reader = qdiscs.QdiscReader()
    found = reader.read(Answers(*(qdisc_message(index, "fq_codel", parent=at) for index, at in parents.items())))
    assert ([one.ifindex for one in found], [one.ifindex for one in reader.children]) == ([1], [2])


def test_a_handle_is_written_as_tc_does() -> None:
    handles = (0x10000, 0x1000A, 0xFFFF0010, qdiscs.TC_H_ROOT, Qdisc(1, "mq", 0, 0, 0, 0, 0).handle)
    assert [qdiscs.handle_text(one) for one in handles] == ["1:", "1:a", "ffff:10", "root", "0:"]


def counted(drops: int = 0, packets: int = 0, sent: int = 0, overlimits: int = 0) -> Qdisc:
    return Qdisc(7, "tbf", 0, 0, drops, 0, overlimits, handle=0x10000, sent_packets=packets, sent_bytes=sent)


@pytest.mark.parametrize("sends", [0, 1500])
def test_counters_of_32_bits_go_on_where_they_wrap(sends: int) -> None:
    """Also where the qdisc sends nothing, and its bytes cannot tell."""
    widened, totals = qdiscs.Widened(), []
    for step in range(5):
        drops = (1 << 31) - 10 + step * 1_500_000_000
        told = counted(drops % (1 << 32), drops % (1 << 32), step * sends)
        (one,) = widened.of([told])
        totals.append((one.drops - drops, one.sent_packets - drops))
    assert totals == [(0, 0)] * 5


def test_a_qdisc_that_was_made_again_begins_anew() -> None:
    widened = qdiscs.Widened()
    widened.of([counted(drops=4_000_000_000, sent=10**9)])
    assert widened.of([again := counted(drops=5, sent=100)]) == [again], "its bytes went back"
    widened.of([counted(drops=1000)])
    assert widened.of([again := counted(drops=5)]) == [again], "a thousand is not near the end"


def test_packets_of_64_bits_are_taken_where_the_kernel_sends_them() -> None:
    basic, queue = struct.pack("=QI4x", 9 * 10**12, 705_032_704), bytes(20)
    head = struct.pack("=BxxxiIII", 0, 7, 0x10000, 0xFFFFFFFF, 0) + attribute(1, b"fq\0")
    told = attribute(1, basic) + attribute(3, queue)
    plain, wide = (
        qdiscs.parse(memoryview(head + attribute(7, told + more)))
        for more in (b"", attribute(8, struct.pack("=Q", 5 * 10**9)))
    )
    assert plain is not None and wide is not None
    assert (plain.sent_packets, wide.sent_packets, wide.sent_bytes) == (705_032_704, 5 * 10**9, 9 * 10**12)
    widened = qdiscs.Widened()
    widened.of([counted(packets=(1 << 32) - 5, sent=1)])
    assert widened.of([counted(packets=(1 << 32) + 5, sent=2)])[0].sent_packets == (1 << 32) + 5
