"""The latest packet of a row: when it came, how it is told, and that a row keeps it."""

from __future__ import annotations

from typing import Any

import pytest

from netconsole.telemetry import checkpoint
from netconsole.telemetry.example import Example, ago, example_text, received
from netconsole.telemetry.frames import Count, Labels, Row
from netconsole.telemetry.state import State
from tests.unit.telemetry.test_state import LO, SECOND, Stream

WHOLE = {
    "source": "192.0.2.1", "source_port": 40000, "target": "192.0.2.2", "target_port": 9,
    "source_mac": "02:00:00:00:00:01", "target_mac": "02:00:00:00:00:02", "came_in_by": "vethB", "length_bytes": 98,
}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {**WHOLE, "protocol": "UDP", "ethertype": "IPv4"},
            "UDP 192.0.2.1:40000 → 192.0.2.2:9, from 02:00:00:00:00:01 to 02:00:00:00:00:02, came in by vethB, "
            "98 bytes, now",
        ),
        (
            {"protocol": "TCP", "source": "2001:db8::1", "target": "2001:db8::2", "target_port": 53, "vlan": 7},
            "TCP 2001:db8::1 → [2001:db8::2]:53 vlan 7, now",
        ),
        ({"target_mac": "02:0:2", "protocol": "not IP", "ethertype": "ARP"}, "ARP, to 02:0:2, now"),
        ({"length_bytes": 1, "protocol": "not IP", "ethertype": "none"}, "not IP, 1 byte, now"),
        ({}, ""),
    ],
)
def test_a_packet_is_told_as_far_as_it_is_known(fields: dict[str, Any], told: str) -> None:
    assert example_text(fields, "now") == told


def test_nothing_of_a_packet_reaches_a_terminal_as_it_is() -> None:
    hostile = "\x1b[31m\u202e\n" + 200 * "x"
    told = example_text(dict.fromkeys([*WHOLE, "protocol"], hostile), "now")
    assert told.isprintable() and "\x1b" not in told and "\u202e" not in told
    assert len(told) < 1000


def test_how_long_ago_it_came_is_told_in_whole_units() -> None:
    assert [ago(0, seconds * SECOND) for seconds in (0, 3, 599, 1200)] == [
        "0 s ago",
        "3 s ago",
        "599 s ago",
        "20 min ago",
    ]
    assert ago(5 * SECOND, 0) == "0 s ago"


@pytest.mark.parametrize(
    ("came_ns", "wall_ns"), [(90, 940), (100, 950), (101, 950), (-1, 950), ("soon", 950), (None, 950)]
)
def test_it_came_before_its_frame_was_read_or_with_it(came_ns: Any, wall_ns: int) -> None:
    assert received({"mono_ns": came_ns, "vlan": 3}, 100, 950) == Example(wall_ns, {"vlan": 3})
    assert received({"mono_ns": 0}, 2**63 - 1, 5).wall_ns == 0


def test_a_row_keeps_its_packet_until_it_is_sent_another_and_in_a_recording() -> None:
    stream = Stream(State())
    stream.hello()
    stream.status()
    packets: list[Labels] = [{"mono_ns": 99 * SECOND, "vlan": 1}, {}, {"mono_ns": 102 * SECOND, "vlan": 2}]
    for total, example in enumerate(packets, 1):
        stream.table(Row(labels={"device": "lo"}, counts={"n": Count(delta=1, total=total)}, example=example))
        kept = stream.state.probes["p"].tables["t"].rows[LO].example
        assert kept == (Example(102 * SECOND + 5, {"vlan": 2}) if total == 3 else Example(99 * SECOND + 5, {"vlan": 1}))
        stream.end()
    again = checkpoint.decode(checkpoint.encode(stream.state))
    assert again.probes["p"].tables["t"].rows[LO].example == kept
