"""Each kind of type as it is written in C: pointers, arrays, typedefs, enums, unions, bits and the gaps between."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole_collector.types import kernel_types
from netconsole_collector.types.btf import Btf
from netconsole_collector.types.kernel_types import TypeWriter
from tests.support.btf_builder import BtfBuilder


class Types(BtfBuilder):
    """A builder with the usual integers."""

    def __init__(self) -> None:
        super().__init__()
        self.u8, self.u32 = self.integer("unsigned char", 1), self.integer("unsigned int", 4)
        self.u64 = self.integer("long", 8)

    def lines(self, path: Path, *used: str, taken: set[str] | None = None) -> list[str]:
        """What is written for these names."""
        text = TypeWriter(Btf(self.write(path / "vmlinux")), set(used), taken or set()).text()
        return [line for line in text.splitlines() if line]


@pytest.fixture
def made() -> Types:
    return Types()


def packed(name: str, members: str, alignment: int) -> str:
    return f"struct {name} {{ {members} }} __attribute__((packed, aligned({alignment})));"


def test_pointers_and_arrays_are_written_as_c_has_them(made: Types, tmp_path: Path) -> None:
    call = made.prototype(0, [made.u32])
    row = made.array(made.u32, 3)
    members = [
        ("any", made.pointer(0), 0),
        ("call", made.pointer(call), 64),
        ("row", made.pointer(row), 128),
        ("chain", made.pointer(made.pointer(made.u8)), 192),
        ("grid", made.array(row, 2), 256),
        ("constant", made.qualifier(10, made.u64), 448),
    ]
    made.record("all", 64, members)
    fields = (
        "void *any; void *call; unsigned int (*row)[3]; unsigned char **chain; unsigned int grid[2][3]; long constant;"
    )
    assert made.lines(tmp_path, "all") == [packed("all", fields, 8)]


def test_a_struct_behind_a_pointer_is_declared_and_one_inside_is_written_first(made: Types, tmp_path: Path) -> None:
    inner = made.record("inner", 4, [("n", made.u32, 0)])
    other = made.record("other", 4, [("n", made.u32, 0)])
    far = made.forward("far")
    made.record("outer", 24, [("in", inner, 0), ("out", made.pointer(other), 64), ("far", made.pointer(far), 128)])
    written = packed("outer", "struct inner in; char __pad1[4]; struct other *out; struct far *far;", 8)
    declared = [packed("inner", "unsigned int n;", 4), "struct other;", "struct far;"]
    assert made.lines(tmp_path, "outer") == [*declared, written]
    assert made.lines(tmp_path, "outer", "out")[-1] == packed("other", "unsigned int n;", 4)


def test_a_pointer_is_followed_through_arrays_and_pointers(made: Types, tmp_path: Path) -> None:
    other = made.record("other", 4, [("n", made.u32, 0)])
    queues = made.array(made.pointer(made.pointer(other)), 2)
    made.record("outer", 16, [("queues", queues, 0)])
    assert made.lines(tmp_path, "outer", "queues")[-1] == packed("other", "unsigned int n;", 4)
    assert "struct other {" not in " ".join(made.lines(tmp_path, "outer"))


def test_a_typedef_is_written_once_unless_its_name_is_taken_or_c_has_it(made: Types, tmp_path: Path) -> None:
    count = made.typedef("count_t", made.u32)
    made.record("outer", 16, [("a", count, 0), ("b", count, 32), ("c", made.typedef("bool", made.u8), 64)])
    outer = packed("outer", "count_t a; count_t b; unsigned char c; char __pad1[7];", 4)
    assert made.lines(tmp_path, "outer") == ["typedef unsigned int count_t;", outer]
    assert made.lines(tmp_path, "outer", taken={"count_t"}) == [
        packed("outer", "unsigned int a; unsigned int b; unsigned char c; char __pad1[7];", 4)
    ]


def test_of_two_typedefs_of_one_name_the_first_keeps_it(made: Types, tmp_path: Path) -> None:
    first, second = made.typedef("number", made.u32), made.typedef("number", made.u64)
    made.record("outer", 16, [("a", first, 0), ("b", second, 64)])
    assert made.lines(tmp_path, "outer") == [
        "typedef unsigned int number;",
        packed("outer", "number a; char __pad1[4]; long b;", 8),
    ]


def test_a_typedef_behind_a_pointer_stands_for_its_struct(made: Types, tmp_path: Path) -> None:
    other = made.record("other", 4, [("n", made.u32, 0)])
    call = made.typedef("call_t", made.prototype(0, []))
    made.record("outer", 16, [("o", made.pointer(made.typedef("other_t", other)), 0), ("f", made.pointer(call), 64)])
    assert made.lines(tmp_path, "outer") == ["struct other;", packed("outer", "struct other *o; void *f;", 8)]


def test_enums_have_the_names_that_are_used_and_their_own_size(made: Types, tmp_path: Path) -> None:
    colour = made.enum("colour", [("RED", 1), ("GREEN", 2)])
    wide = made.enum64("wide", [("LARGE", 1 << 40), ("SMALL", 2)])
    small = made.add(6, "small", 1)
    made.record("outer", 32, [("c", colour, 0), ("w", wide, 64), ("s", small, 128), ("x", made.enum("", []), 160)])
    assert made.lines(tmp_path, "outer", "GREEN", "LARGE") == [
        "enum colour { GREEN = 2 };",
        f"enum wide {{ LARGE = {1 << 40}, __wide_wide = {1 << 40} }};",
        "enum small { __small_none } __attribute__((packed));",
        packed(
            "outer",
            "enum colour c; char __pad1[4]; enum wide w; enum small s; char __pad2[3]; unsigned int x; char __pad3[8];",
            8,
        ),
    ]
    taken = made.lines(tmp_path, "outer", taken={"colour", "wide", "small"})
    assert taken == [
        packed(
            "outer",
            "unsigned int c; char __pad1[4]; unsigned long long w; unsigned char s; char __pad2[3]; unsigned int x;"
            " char __pad3[8];",
            8,
        )
    ]


@pytest.mark.parametrize(
    ("value", "written"), [((1 << 31) - 1, "2147483647"), (1 << 31, "2147483648LL"), (1 << 40, "1099511627776LL")]
)
def test_a_constant_that_is_no_int_is_a_long_one(made: Types, tmp_path: Path, value: int, written: str) -> None:
    made.enum64("", [("LIMIT", value), ("OTHER", 1)])
    assert made.lines(tmp_path, "LIMIT") == [f"#define LIMIT {written}"]


def test_unions_are_padded_to_their_size(made: Types, tmp_path: Path) -> None:
    either = made.record("either", 16, [("a", made.u32, 0), ("b", made.u64, 0)], union=True)
    made.record("outer", 16, [("e", either, 0)])
    assert made.lines(tmp_path, "outer") == [
        "union either { unsigned int a; long b; char __pad1[16]; } __attribute__((packed, aligned(8)));",
        packed("outer", "union either e;", 8),
    ]


def test_gaps_between_bits_are_bits_then_bytes_then_bits(made: Types, tmp_path: Path) -> None:
    made.bit_record(
        "flags", 8, [("a", made.u8, 3, 2), ("b", made.u8, 30, 1), ("n", made.u8, 40, 0), ("c", made.u8, 49, 5)]
    )
    fields = (
        "unsigned char :3; unsigned char a:2; unsigned char :3; char __pad1[2]; unsigned char :6; unsigned char b:1; "
        "unsigned char :1; char __pad2[1]; unsigned char n; unsigned char :1; unsigned char c:5; unsigned char :2; "
        "char __pad3[1];"
    )
    assert made.lines(tmp_path, "flags") == [packed("flags", fields, 1)]


def test_a_member_that_overlaps_another_is_left_out(made: Types, tmp_path: Path) -> None:
    made.record("odd", 8, [("a", made.u32, 0), ("over", made.u8, 24), ("b", made.u32, 32)])
    assert made.lines(tmp_path, "odd") == [packed("odd", "unsigned int a; unsigned int b;", 4)]


def test_two_structs_of_one_name_are_told_apart(made: Types, tmp_path: Path) -> None:
    one = made.record("same", 4, [("n", made.u32, 0)])
    two = made.record("same", 8, [("n", made.u64, 0)])
    made.record("outer", 16, [("a", one, 0), ("b", two, 64)])
    assert made.lines(tmp_path, "outer") == [
        packed("same", "unsigned int n;", 4),
        packed("same___2", "long n;", 8),
        packed("outer", "struct same a; char __pad1[4]; struct same___2 b;", 8),
    ]


def test_the_records_that_were_written_are_told_with_their_tags(made: Types, tmp_path: Path) -> None:
    inner = made.record("inner", 4, [("n", made.u32, 0)])
    made.record("outer", 8, [("a", inner, 0), ("c", made.enum("colour", [("RED", 1)]), 32)])
    writer = TypeWriter(Btf(made.write(tmp_path / "vmlinux")), {"outer"}, {"inner"})
    writer.text()
    assert sorted(writer.tag(one) for one in writer.records()) == ["struct inner___2", "struct outer"]


def test_registers_are_always_there(made: Types, tmp_path: Path) -> None:
    made.record("pt_regs", 8, [("ax", made.u64, 0)])
    types = Btf(made.write(tmp_path / "vmlinux"))
    assert packed("pt_regs", "long ax;", 8) in kernel_types.header(types, set(), set())


def test_facts_of_structs_and_their_ids(made: Types, tmp_path: Path) -> None:
    inner = made.record("", 8, [("deep", made.u32, 32)])
    outer = made.record("a_b", 16, [("c_d", made.u32, 0), ("", inner, 64), ("e", made.u32, 0)])
    made.function("plain", made.prototype(0, []))
    types = Btf(made.write(tmp_path / "vmlinux"))
    used = {"HAVE_a_b", "HAVE_a_b_c_d", "HAVE_a_b_c", "HAVE_a", "BTF_ID_a_b", "BTF_ID_a", "NARGS_plain", "OTHER_a_b"}
    assert kernel_types.facts(types, used).splitlines() == [
        f"#define BTF_ID_a_b {outer}",
        "#define HAVE_a_b 1",
        "#define HAVE_a_b_c_d 1",
        "#define NARGS_plain 0",
    ]
    found = kernel_types.find_member(types, outer, "deep")
    assert found is not None and (found[0], found[1].name) == (96, "deep")
    assert kernel_types.find_member(types, outer, "missing") is None
