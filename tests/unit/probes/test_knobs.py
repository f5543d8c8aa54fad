"""What a knob takes, at its limits and one beyond; and what it is called where people set it."""

from __future__ import annotations

from typing import Any

import pytest

from netconsole.probes.knobs import (
    MAX_DEVICE_BYTES,
    MAX_DEVICE_PATTERNS,
    MAX_EVENTS_PER_S,
    changed,
    filters_set,
    filters_text,
    hint,
    refusal,
    unit_of,
    without_unit,
)


@pytest.mark.parametrize(
    ("knob", "good", "bad"),
    [
        ("netns", [0, 2**32 - 1], [-1, 2**32, True, "7", 1.0, None]),
        ("vlan", [0, 4094], [-1, 4095]),
        ("ethertype", [0, 65535], [65536]),
        ("events_per_s", [0, 100_000], [100_001]),
        ("flows_one_in", [1, 65536], [0, 65537]),
        ("seen_pct", [1, 100], [0, 101]),
        ("device", ["", "eth0", "x" * MAX_DEVICE_BYTES, "é" * (MAX_DEVICE_BYTES // 2)],
         ["x" * (MAX_DEVICE_BYTES + 1), "é" * (MAX_DEVICE_BYTES // 2 + 1), "a\0b", "\udcff", 7]),
        ("address", ["", "192.0.2.7", "192.0.2.0/24", "192.0.2.7,2001:db8::1", "from:192.0.2.7,to:192.0.2.8"],
         ["host", "192.0.2.256", "fe80::1%eth0", "192.0.2.7,b", 7.0, "from:x,to:192.0.2.8"]),
        ("port", [0, 1, 65535, "53,443", "from:1,to:65535", ""],
         [-1, 65536, True, "53", "from:0", "from:65536", "53,100000", "from:٣,to:4", 1.5]),
        ("protocol", ["", "tcp", 0, 255, "0", "255"], [-1, 256, "256", "1000", "TCP", True, "1.5", None]),
        ("mac", ["", "02:00:5e:00:53:01", "AA:bb:CC:dd:EE:ff"],
         ["02:00:5e:00:53", "02-00-5e-00-53-01", "02:00:5e:00:53:01:02", "0g:00:5e:00:53:01", 2]),
        ("reason", ["", "NO_SOCKET", "NO_SOCKET,XDP", "not:XDP"], ["no-socket!", 7]),
        ("inside_devices", ["", "vnet* eth0 kind:tap *", "a b c d"],
         ["a b c d e", "a*b", "**", "kind:", "kind:ta*", "x" * (MAX_DEVICE_BYTES + 1), 7]),
    ],
)  # fmt: skip
def test_a_filter_takes_what_it_says(knob: str, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if refusal(knob, value, "")] == []
    assert [value for value in bad if not refusal(knob, value, "")] == []


@pytest.mark.parametrize(
    ("knob", "default", "good", "bad"),
    [
        ("flag", False, [True, False], [0, 1, "true", None]),
        ("count", 5, [0, 2**53], [-1, 2**53 + 1, 1.5, True, "5", float("nan"), None]),
        ("late_us", 5, [0, 0.5, 2**53], [-0.5, "5", True, float("inf")]),
        ("ratio", 0.5, [0, 0.25, 3], [-1, True]),
        ("name", "x", ["", "y" * 256], ["y" * 257, "a\nb", 7, None]),
    ],
)
def test_a_knob_of_a_probe_takes_values_of_its_type(knob: str, default: Any, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if refusal(knob, value, default)] == []
    assert [value for value in bad if not refusal(knob, value, default)] == []


@pytest.mark.parametrize(
    ("knob", "value", "default", "said"),
    [
        ("vlan", 4095, 0, "expected a whole number from 0 to 4094, found 4095"),
        ("late_us", -1, 5, "expected a number of microseconds (the unit is in the knob's name), found -1"),
        ("rows_per_s", -1, 5, "expected a number of a second (the unit is in the knob's name), found -1"),
        ("count", -1, 5, "expected a whole number up to 9007199254740992, found -1"),
        ("flag", 1, True, "expected true or false, found 1"),
    ],
)
def test_a_refusal_says_what_is_expected(knob: str, value: Any, default: Any, said: str) -> None:
    assert refusal(knob, value, default) == said


def test_limits_and_units() -> None:
    assert (MAX_DEVICE_PATTERNS, MAX_EVENTS_PER_S) == (4, 100_000)
    units = {"late_us": "microseconds", "x_ns": "nanoseconds", "room_kb": "kB", "events_per_s": "events a second"}
    units |= {"rows_per_s": "a second", "seen_pct": "percent", "for_s": "seconds"}
    assert {knob: unit_of(knob) for knob in units} == units and unit_of("device") is None and unit_of("us_late") is None
    assert [without_unit(knob) for knob in ("late_us", "late_time", "device")] == ["late", "late_time", "device"]
    assert hint("vlan", 0) == "id of the outer tag; 0: all"
    assert (hint("late_us", 10), hint("depth", 3)) == ("microseconds; default 10", "default 3")


def test_what_is_set_and_what_keeps_something_out() -> None:
    knobs: dict[str, Any] = {"device": "eth0", "vlan": 0, "late_us": 10, "reason": "XDP", "address": ""}
    assert changed(knobs, {"device": "", "vlan": 0, "late_us": 10, "reason": "XDP"}) == {
        "device": "eth0",
        "address": "",
    }
    assert filters_set(knobs) == {"device": "eth0", "reason": "XDP"} and filters_set(None) == filters_set({}) == {}
    assert filters_text({"device": "eth\x1b0", "vlan": 7}) == "device=eth\\x1b0 vlan=7"
    assert filters_text({"reason": "x" * 121}) == f"reason={'x' * 120}…"
