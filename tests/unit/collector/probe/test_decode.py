"""Records of the kernel by the layouts of a manifest."""

from __future__ import annotations

import struct

import pytest

from netconsole_collector.names.drop_reasons import DropReasons
from netconsole_collector.names.labels import Labeller
from netconsole_collector.names.lookups import Lookups
from netconsole_collector.names.symbols import Symbols
from netconsole_collector.probe.reading import decode


def test_a_struct_is_laid_out_as_c_does() -> None:
    columns = [
        {"name": "a", "type": "u8"},
        {"name": "b", "type": "u32"},
        {"name": "c", "type": "char[3]", "as": "text"},
        {"name": "d", "type": "u64"},
        {"name": "e", "type": "u16"},
    ]
    layout = decode.Layout(columns)
    assert layout.size == 32
    raw = struct.pack("@BI3sQH", 1, 2, b"xyz", 3, 4).ljust(32, b"\0")
    assert layout.unpack(raw) == [1, 2, b"xyz", 3, 4]


def test_lists_and_padding() -> None:
    layout = decode.Layout(
        [{"type": "pad[8]"}, {"name": "stack", "type": "u64", "count": 3}, {"name": "n", "type": "s32"}]
    )
    raw = struct.pack("=8xQQQi4x", 1, 2, 3, -5)
    assert layout.size == len(raw)
    assert layout.unpack(raw) == [[1, 2, 3], -5]
    assert [column.name for column in layout.columns] == ["stack", "n"]


@pytest.mark.parametrize("kind", ["u128", "char", "char[x]", "pad[]", "", "u32; system"])
def test_unknown_types_are_refused(kind: str) -> None:
    with pytest.raises(decode.LayoutError, match="column x"):
        decode.Layout([{"name": "x", "type": kind}])


def test_sizes_that_differ_are_named() -> None:
    with pytest.raises(decode.LayoutError, match="key of table t: 4 bytes in the manifest, 8 in the program"):
        decode.Layout([{"name": "x", "type": "u32"}]).check(8, "key of table t")


def test_a_drop_reason_brings_class_and_provenance(symbols: Symbols) -> None:
    reasons = {
        "3": "NO_SOCKET",
        "6": "SOCKET_RCVBUFF",
        "subsystem:2": "openvswitch",
        "131073": "OVS_DROP_EXPLICIT",
    }
    found = Labeller(Lookups(symbols), DropReasons(reasons))
    layout = decode.Layout(
        [{"name": "location", "type": "u64", "as": "symbol"}, {"name": "reason", "type": "u32", "as": "drop_reason"}]
    )

    def labels(reason: int) -> dict[str, object]:
        values = layout.unpack(struct.pack("=QI4x", 0xFFFFFFFF81000110, reason))
        return dict(decode.key_labels(layout.columns, values, found))

    assert labels(3) == {"location": "second", "reason": "NO_SOCKET", "class": "benign", "provenance": "kernel"}
    assert labels(6)["class"] == "suspicious"
    assert labels(131073)["reason"] == "OVS_DROP_EXPLICIT"
    assert labels(131075)["reason"] == "openvswitch reason 3"
    assert labels(9 << 16 | 4)["reason"] == "9 reason 4"
    assert labels(99) == {"location": "second", "reason": "reason 99", "class": "unknown", "provenance": "kernel"}
