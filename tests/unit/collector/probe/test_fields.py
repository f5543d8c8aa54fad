"""Keys and events as labels and fields: stacks, lists, the place of a drop, a tap's VM; records as C lays them out."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from netconsole_collector.probe.reading import decode


class Names:
    """Stands for the labeller: says what it was asked."""

    def __init__(self) -> None:
        self.lookups = SimpleNamespace(
            symbols=SimpleNamespace(function=lambda address: f"function_{address:x}"),
            vms=SimpleNamespace(of_tap=lambda device, netns: f"{device} of {netns}"),
        )
        self.drop_reasons = SimpleNamespace(
            labels=lambda code, where: {"reason": f"R{code}", "class": "benign", "provenance": str(where)}
        )

    def label(self, shown_as: str | None, value: Any) -> Any:
        return value if shown_as is None else f"{shown_as}:{value}"

    def stack(self, value: Any) -> list[str]:
        return [f"frame_{one}" for one in value]


def fields(*columns: tuple[str, str | None, Any]) -> dict[str, Any]:
    kinds = [decode.RecordColumn(name, shown_as, 1, "sum") for name, shown_as, _ in columns]
    return decode.event_fields(kinds, [value for _, _, value in columns], Names())  # type: ignore[arg-type]


def test_a_drop_has_its_class_by_the_first_place_in_its_record() -> None:
    found = fields(("reason", "drop_reason", 7), ("at", "symbol", 0x10), ("from", "symbol", 0x20))
    assert found == {
        "reason": "R7", "class": "benign", "provenance": "function_10", "at": "symbol:16", "from": "symbol:32",
    }  # fmt: skip
    assert fields(("port", None, 1), ("reason", "drop_reason", 7))["provenance"] == "None", "no place in it"


def test_a_tap_brings_its_vm_by_the_namespace_of_the_record() -> None:
    found = fields(("device", "tap", b"vnet3\0\0\0"), ("cpu", "cpu", 9), ("netns", "netns", 4026))
    assert found == {"device": "vnet3", "vm": "vnet3 of 4026", "cpu": "cpu:9", "netns": "netns:4026"}
    assert fields(("device", "tap", b"vnet3\0"))["vm"] == "vnet3 of 0"


def test_stacks_and_lists_of_an_event_are_lists_of_text() -> None:
    found = fields(("stack", "stack", [1, 2]), ("ports", "port", [80, 443]), ("bare", None, [5]), ("n", None, 3))
    assert found == {"stack": ["frame_1", "frame_2"], "ports": ["port:80", "port:443"], "bare": ["5"], "n": 3}


@pytest.mark.parametrize(
    ("types", "size"),
    [
        (("u8",), 1), (("u8", "u8"), 2), (("u16",), 2), (("u8", "u16"), 4), (("u16", "u8"), 4), (("u32", "u8"), 8),
        (("u64", "u8"), 16), (("s32", "s64"), 16), (("addr",), 16), (("u8", "addr"), 24), (("addr", "u32"), 24),
        (("char[3]", "u8"), 4), (("char[3]", "u16"), 6), (("pad[5]",), 5), (("pad[1]", "u64"), 16), (("char[16]",), 16),
    ],
)  # fmt: skip
def test_a_record_has_the_size_that_c_gives_it(types: tuple[str, ...], size: int) -> None:
    layout = decode.Layout([{"name": f"m{number}", "type": kind} for number, kind in enumerate(types)])
    assert layout.size == size
    assert [column.name for column in layout.columns] == [
        f"m{number}" for number, kind in enumerate(types) if not kind.startswith("pad")
    ]


def test_a_record_is_read_where_it_lies() -> None:
    layout = decode.Layout([{"name": "a", "type": "u16"}, {"name": "b", "type": "u32", "count": 2}, {"name": "c"}])
    raw = b"\xff" * 5 + struct.pack("=H2xIIxxxxQ", 1, 2, 3, 4)
    assert layout.unpack(raw, 5) == [1, [2, 3], 4], "u64 is the usual type, at a multiple of 8"
    one = layout.columns[1]
    assert (one.name, one.repeat, one.kind, one.shown_as) == ("b", 2, "sum", None)


def test_the_size_of_the_kernels_record_must_be_that_of_the_manifest() -> None:
    layout = decode.Layout([{"name": "a", "type": "u32"}])
    layout.check(4, "key of t")
    with pytest.raises(decode.LayoutError, match="key of t: 4 bytes in the manifest, 8 in the program"):
        layout.check(8, "key of t")
