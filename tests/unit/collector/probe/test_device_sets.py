"""Sets of devices: what a knob may say, and what the kernel gets to compare names with."""

from __future__ import annotations

import struct

import pytest

from netconsole.probes.knobs import refusal
from netconsole_collector.probe import device_sets
from netconsole_collector.probe.config import KnobError

GOOD = ["", "eth0", "vnet*", "*", "kind:tap", "kind:physical eth0 vnet* a", "fifteen-bytes-x", "ünï"]
BAD = ["a b c d e", "\ud800", "sixteen-bytes-xx", "a*b", "kind:", "**", "kind:*", "nul\0", "üüüüüüüü"]


@pytest.mark.parametrize("text", GOOD)
def test_console_and_collector_take(text: str) -> None:
    assert refusal("inside_devices", text, "") is None
    device_sets.parse("inside_devices", text)


@pytest.mark.parametrize("text", [*BAD, 7, None, ["eth0"]])
def test_console_and_collector_refuse(text: object) -> None:
    assert refusal("inside_devices", text, "") is not None
    with pytest.raises(KnobError, match="inside_devices"):
        device_sets.parse("inside_devices", text)


def matches(text: str, name: str) -> bool:
    """As nc_matches of devices.h compares."""
    raw = name.encode().ljust(16, b"\0")

    def same(value: bytes, mask: bytes) -> bool:
        value, mask = value.ljust(16, b"\0"), mask.ljust(16, b"\0")
        return not any((a ^ b) & m for a, b, m in zip(raw, value, mask, strict=True))

    return any(same(value, mask) for _, value, mask in device_sets.parse("x_devices", text))


def test_a_name_is_compared_whole_and_a_prefix_is_not() -> None:
    assert matches("eth1", "eth1") and not matches("eth1", "eth10") and not matches("eth10", "eth1")
    assert matches("eth1*", "eth10") and matches("eth1*", "eth1") and not matches("eth1*", "eth2")
    assert matches("*", "anything")


def test_sets_lie_where_the_program_looks() -> None:
    raw = device_sets.pack({"events_per_s": 1, "inside_devices": "kind:tap a", "outside_devices": "kind:physical"}, 7)
    one = 16 + 16 + 8
    assert len(raw) == 8 + 2 * 4 * one
    assert struct.unpack_from("=Q", raw)[0] == 7
    kinds = [struct.unpack_from("=I", raw, 8 + n * one + 32)[0] for n in range(8)]
    assert kinds == [2, 1, 0, 0, 3, 0, 0, 0]
    assert raw[8 : 8 + 4] == b"tun\0"


def test_a_third_set_is_refused() -> None:
    with pytest.raises(KnobError, match="sets"):
        device_sets.pack({f"{name}_devices": "" for name in "abc"}, 1)
