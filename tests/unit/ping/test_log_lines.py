"""Lines of the older tools' logs, one by one: what each adds to a capture, and what none of them may spoil."""

from __future__ import annotations

import json
from typing import Any

import pytest

from netconsole.base.errors import BadInput
from netconsole.ping.capture import IrqTimes, PingCapture, Role
from netconsole.ping.logs import read_log
from netconsole.ping.logs.text import MAX_LINE, lines, number
from tests.support import ping_logs


def read(*log: str, role: Role | None = None, file: str = "log") -> PingCapture:
    [found] = read_log("\n".join(log).encode(), file, role)
    return found


def refused(*log: str, role: Role | None = None, file: str = "log") -> str:
    with pytest.raises(BadInput) as caught:
        read(*log, role=role, file=file)
    return str(caught.value)


def test_a_line_without_colours_without_its_end_and_no_longer_than_any_tool_writes() -> None:
    assert [*lines(b"\x1b[1;31mred\x1b[0m \r\n\n\xff\n" + b"x" * 5000)] == ["red", "", "\ufffd", "x" * 4096]
    assert MAX_LINE == 4096


@pytest.mark.parametrize(
    ("text", "value"),
    [("13.5", 13.5), ("-4", -4.0), ("0.0", 0.0), ("N/A", None), (None, None), ("1e12", None), ("-1e12", None),
     ("999999999999", 999_999_999_999.0), ("nan", None), ("inf", None)],
)  # fmt: skip
def test_a_figure_is_a_time_or_not_known(text: str | None, value: float | None) -> None:
    assert number(text) == value


HEAD = "=== ICMP Drop Detector ==="
TAP = ["RX Interface(s): vnet3(ifindex=3), tap9", "TX Interface(s): eth0"]


def stage(word: str, id: int = 7, seq: int = 1) -> str:
    return f"2031-02-03 04:05:06.789 [{word}] ID={id} Seq={seq} ReqRX:Y"


def times(request: str = "1.0", between: str = "2.0", reply: str = "3.0", total: str = "6.0") -> str:
    return f"  Latency(us): ReqInternal={request}  External={between}  RepInternal={reply}  Total={total}"


def echoes(capture: PingCapture) -> list[tuple[int | None, int, str]]:
    return [(row.id, row.seq, row.outcome) for row in capture.packets]


def test_both_names_of_the_drop_detector_and_where_their_segments_end() -> None:
    for head, source, boundary in (
        (HEAD, "icmp_drop_detector", "before_driver"),
        ("=== ICMP Path Tracer ===", "icmp_path_tracer", "after_driver"),
    ):
        addresses = ["  Destination IP: 192.0.2.9", "Source IP : 192.0.2.7 "]
        found = read(head, *addresses, *TAP, stage("complete"), times())
        assert (found.source, found.boundary, found.role) == (source, boundary, "sender-host")
        assert found.addresses == ["192.0.2.7", "192.0.2.9"]
        assert (found.inside, found.outside) == (["vnet3", "tap9"], ["eth0"])


def test_the_devices_of_the_receiving_host_are_the_other_way_round() -> None:
    log = [HEAD, "RX Interface: eth0", "TX Interfaces: vnet3", stage("new")]
    found = read(*log)
    assert (found.role, found.inside, found.outside) == ("receiver-host", ["vnet3"], ["eth0"])
    assert read(*log, role="sender-host").inside == ["eth0"]


@pytest.mark.parametrize(
    ("file", "role"),
    [("sender.log", "sender-host"), ("/from/sender/RECEIVER.log", "receiver-host"), ("x/receiver.d/log", None),
     ("sender-receiver.log", None)],
)  # fmt: skip
def test_without_a_tap_the_name_of_the_file_says_which_host_it_is(file: str, role: str | None) -> None:
    """Or with one on both sides. The folders around it say nothing."""
    kick = "tid=9 queue=2 s0=1us s1=2us s2=3us total=6us"
    for log in ([HEAD, *TAP[1:], stage("new")], [HEAD, TAP[0], "TX Interface(s): tap0", stage("new")], [kick]):
        if role is None:
            assert "write sender-host=FILE or receiver-host=FILE" in refused(*log, file=file)
        else:
            assert read(*log, file=file).role == role


def test_how_an_echo_ended_is_the_last_that_was_said_of_it() -> None:
    flow = "Flow: a -> b (ID=7, Seq=2)"
    log = [HEAD, *TAP, stage("new"), stage("update"), stage("new", seq=2), stage("complete"), times()]
    assert echoes(read(*log)) == [(7, 1, "answered"), (7, 2, "unfinished")]
    lost = "Drop Location: Request dropped INTERNALLY"
    assert echoes(read(*log, flow, lost)) == [(7, 1, "answered"), (7, 2, "request_lost_inside")]
    assert echoes(read(*log, "Flow: a -> b (ID=8, Seq=9)")) == [
        (7, 1, "answered"),
        (7, 2, "unfinished"),
        (8, 9, "timeout"),
    ]
    assert echoes(read(HEAD, *TAP, lost, times(), stage("new"))) == [(7, 1, "unfinished")]  # of an echo before the log


def test_a_time_is_of_the_echo_before_it_and_a_zero_is_not_known() -> None:
    """An id of more than 16 bits is cut to them, as ICMP has it."""
    one = read(HEAD, *TAP, stage("new", 0x1FFFF), stage("complete", 0x1FFFF), times(reply="0.0", total="N/A")).packets
    [row] = one
    assert (row.id, row.request_us, row.between_us, row.reply_us, row.total_us) == (0xFFFF, 1.0, 2.0, None, None)
    assert echoes(read(HEAD, *TAP, "Flow: a -> b (ID=131071, Seq=2)")) == [(0xFFFF, 2, "timeout")]


def test_a_figure_that_no_capture_can_hold_is_refused() -> None:
    said = refused(HEAD, *TAP, stage("new", seq=10**30))
    assert "icmp_drop_detector: one of the figures cannot be right" in said


def rtt_lines(*, id: int = 7) -> list[str]:
    return [
        "=== ICMP RTT Trace: now (TX (Local -> Remote)) ===",
        f"Session: 192.0.2.7 -> 192.0.2.9 (ID: {id}, Seq: 1)",
        "  Total Path 1: 5.0 us",
    ]


def test_a_trace_of_a_round_trip_line_by_line() -> None:
    found = read("Total Path 1: 9.0 us", *rtt_lines(id=0x1FFFF), "=== ICMP RTT Trace: now (TX (Local -> Remote)) ===")
    assert found.addresses == ["192.0.2.7", "192.0.2.9"] and found.boundary is None
    [row] = found.packets  # the last has no session: its end is not in the log
    assert (row.id, row.seq, row.request_us, row.reply_us) == (0xFFFF, 1, 5.0, None)
    both = [*rtt_lines(), "Stage 1 (net_dev_xmit)", "Stage 1 (dev_queue_xmit)"]
    assert read(*both).boundary is None
    mixed = [*rtt_lines(), "=== ICMP RTT Trace: now (RX (Remote -> Local)) ==="]
    assert "this log has both directions, TX and RX" in refused(*mixed)


def begin(queue: str = "vnet3:q1", type: int = 8, seq: int = 1, id: int = 7) -> str:
    return f"TUN TX INTERRUPT [{queue}] Stage 1 [x]: ICMP a -> b type={type} code=0 id={id} seq={seq}"


def reach(stage: int, delay: str = "0.010", eventfd: str = "0xab", queue: str = "vnet3:q1") -> str:
    told = f" EventFD(vq)={eventfd}" if eventfd else ""
    return f"TUN TX INTERRUPT [{queue}] Stage {stage} [x]:{told} Delay={delay}ms"


def rows(*log: str) -> list[IrqTimes]:
    found = read(*log)
    assert found.vhost_irq is not None
    return found.vhost_irq.packets


def test_a_chain_goes_on_in_its_own_queue_and_in_order() -> None:
    """Stage 4 is 30 us after stage 2; stages 2 and 3 come 10 us after the one before, stage 5 after 4."""
    other = [begin("vnet4:q1", seq=9), reach(2, "9", queue="vnet4:q1")]
    log = [begin(), reach(2), *other, reach(2, "5"), reach(4, "7"), reach(3), reach(4, "0.030"), reach(5), reach(5)]
    first, second = rows(*log)
    expected = {"s1_s2": 10, "s2_s3": 10, "s3_s4": 20, "s4_s5": 10, "total": 50}
    assert {name: round(getattr(first, name), 6) for name in expected} == expected
    assert (second.seq, second.s1_s2, second.s2_s3, second.total) == (9, 9000.0, None, None)


def test_what_no_packet_of_the_ping_began_belongs_to_none() -> None:
    tcp = "TUN TX INTERRUPT [vnet3:q1] Stage 1 [x]: TCP a -> b"
    [row] = rows(begin(), reach(2), tcp, reach(3))
    assert (row.s1_s2, row.s2_s3) == (10, None)
    assert [row.seq for row in rows(begin(seq=1), begin(seq=2), reach(2))] == [2]  # the first got no further
    [row] = rows(begin(id=0x1FFFF), reach(2))
    assert row.id == 0xFFFF


@pytest.mark.parametrize(
    ("second", "third", "fifth", "reached"),
    [
        ("0xab", "0xab", "0xcd", 5),  # stage 5 tells no eventfd of a queue
        ("0xab", "0xcd", "", 2),
        ("0xab", "", "", 5),
        ("", "0xcd", "", 5),
    ],
)
def test_another_eventfd_is_of_another_packet(second: str, third: str, fifth: str, reached: int) -> None:
    [row] = rows(
        begin(), reach(2, eventfd=second), reach(3, eventfd=third), reach(4, "0.02", third), reach(5, "0.01", fifth)
    )
    assert row.total == (pytest.approx(40) if reached == 5 else None)
    assert (row.s2_s3 is None) == (reached == 2)


def test_a_delay_that_is_no_number_ends_the_chain() -> None:
    [row] = rows(begin(), reach(2), reach(3, "1.2.3"), reach(4))
    assert (row.s1_s2, row.s2_s3, row.s3_s4) == (10, None, None)


def test_the_printed_totals_are_held_against_those_computed_anew() -> None:
    """Of whole chains: 40 us, where the tool prints 50."""
    whole = [reach(2), reach(3), reach(4, "0.020"), reach(5)]
    printed = "  -> Total(S1->S5): 0.050ms"
    found = read(
        printed, begin(), *whole, printed, begin(seq=2), *whole[:3], "  -> Total(S1->S5): 9ms", begin(seq=3), *whole
    )
    assert found.vhost_irq is not None and [row.total for row in found.vhost_irq.packets][1] is None
    [note] = found.notes
    assert note.endswith("(printed 50.0 us, computed 40.0 us)")
    without = read(begin(), *whole)
    assert without.notes == [note.partition(" (printed")[0]]
    short = read(begin(), *whole[:3])
    assert len(short.notes) == 2 and "no stage S5" in short.notes[1]
    assert short.vhost_irq is not None and short.vhost_irq.packets[0].total == pytest.approx(30)


def test_requests_and_replies_of_one_log_are_of_two_roles() -> None:
    log = "\n".join([begin(), reach(2), begin(type=0, seq=5), reach(2), begin(type=3), reach(2)]).encode()
    found = read_log(log, "log")
    assert [one.role for one in found] == ["receiver-host", "sender-host"]
    [own] = read_log(log, "log", "sender-host")
    assert own.vhost_irq is not None and [row.seq for row in own.vhost_irq.packets] == [5]
    assert "has no echo that goes to a guest of sender-host" in refused(begin(), reach(2), role="sender-host")
    assert "has no echo with more than its first stage" in refused("TUN TX QUEUE INTERRUPT TRACING")


def event(stage: int, at_us: int, **more: Any) -> dict[str, Any]:
    of_first = {"icmp_type": 8, "icmp_id": 0x0700, "icmp_seq": 0x0201} if stage == 1 else {}
    return {"stage": stage, "timestamp": 1000 * at_us, "queue_key": "q", **of_first, **more}


def of_json(*events: dict[str, Any]) -> list[IrqTimes]:
    return rows(json.dumps(events))


def test_events_of_the_json_are_put_in_order_and_their_numbers_swapped() -> None:
    [row] = of_json(
        event(3, 130, eventfd_ctx=5), event(1, 100), event(2, 110, eventfd_ctx=5), event(4, 160), event(5, 161)
    )
    assert (row.id, row.seq, row.at_ns) == (7, 0x0102, 100_000)
    assert [row.s1_s2, row.s2_s3, row.s3_s4, row.s4_s5, row.total] == [10, 20, 30, 1, 61]


def test_events_of_others_are_in_no_chain() -> None:
    [row] = of_json(
        event(2, 90), event(1, 100), event(2, 110, queue_key="other"), event(2, 120, eventfd_ctx=5),
        event(3, 130, eventfd_ctx=6), event(4, 140),
    )  # fmt: skip
    assert (row.s1_s2, row.s2_s3, row.s3_s4) == (20, None, None)
    for begun in ({"protocol": 6}, {"icmp_type": 3}):
        [row] = of_json(event(1, 100), event(2, 110), event(1, 120, **begun), event(2, 130), event(3, 140))
        assert (row.s1_s2, row.s2_s3) == (10, None)
    [row] = of_json(event(1, 100, icmp_type=0), event(2, 110))
    assert read(json.dumps([event(1, 100, icmp_type=0), event(2, 110)])).role == "sender-host" and row.at_ns == 100_000


def test_a_kick_is_known_where_all_its_stages_are() -> None:
    """A total of 0 says that one is not. The mean of 1, 2 and 3 us, and of 3, 4 and 5."""
    log = [f"tid=9 queue=2 s0={s0}us s1={s0 + 1}us s2={s0 + 2}us total={total}us" for s0, total in
           ((1, 6), (3, 1), (50, 0))]  # fmt: skip
    found = read(*log, role="receiver-host")
    assert found.vhost_kick is not None and found.vhost_kick.summary is not None and len(found.notes) == 1
    summary = found.vhost_kick.summary
    parts = [summary.k1_k2, summary.k2_k3, summary.k3_k4, summary.total]
    assert [part and (part.mean, part.n) for part in parts] == [(2, 2), (3, 2), (4, 2), (9, 2)]
    assert "no packet with all its stages" in refused(log[-1], role="receiver-host")


def test_a_tool_is_told_by_the_begin_of_its_log() -> None:
    kick = "tid=9 queue=2 s0=1us s1=2us s2=3us total=6us"
    assert read("x" * 262_000, kick, role="sender-host").vhost_kick is not None
    assert "no log of a known tool" in refused("x" * 262_144, kick, role="sender-host")
    for word in ("ReqInternal=", "ReqRX:", "ICMP Drop Detect", "ICMP Path Tracer"):
        assert read(f"… {word}", *TAP, stage("new")).role == "sender-host"
    assert read("ICMP RTT Tracer", *rtt_lines()).role == "sender-vm"
    assert read(" \n" + ping_logs.irq_json(8, [(1, 2, 3, 4)])).role == "receiver-host"
