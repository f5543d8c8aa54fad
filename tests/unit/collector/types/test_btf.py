"""The BTF reader: every kind, split BTF in one id space, both encodings of bit-fields, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole_collector.types import btf as b
from netconsole_collector.types.btf import Btf, BtfError
from tests.support.btf_builder import BtfBuilder


def test_sizes_and_alignments(tmp_path: Path) -> None:
    one = BtfBuilder()
    u8, u32, u64 = one.integer("u8", 1), one.integer("u32", 4), one.integer("u64", 8)
    pointer = one.pointer(u8)
    numbers = one.array(u32, 7)
    plain = one.record("plain", 16, [("a", u8, 0), ("b", u64, 64)])
    packed = one.record("packed", 9, [("a", u8, 0), ("b", u64, 8)])
    alias = one.typedef("alias", one.qualifier(b.CONST, plain))
    types = Btf(one.write(tmp_path / "vmlinux"))
    assert [types.size(t) for t in (u8, pointer, numbers, plain, packed, alias, 0)] == [1, 8, 28, 16, 9, 16, 0]
    assert [types.alignment(t) for t in (u8, pointer, numbers, plain, packed, alias)] == [1, 8, 4, 8, 1, 8]
    assert types.element(numbers) == (u32, 7)
    assert types.strip(alias) == plain
    assert types.kind(types.strip(alias, typedefs=False)) == b.TYPEDEF


def test_bit_fields_in_both_encodings(tmp_path: Path) -> None:
    one = BtfBuilder()
    u8 = one.integer("u8", 1)
    narrow = one.integer("u8", 1, bits=3, offset=2)
    newer = one.bit_record("newer", 1, [("low", u8, 0, 4), ("high", u8, 4, 4)])
    older = one.record("older", 2, [("whole", u8, 0), ("part", narrow, 8)])
    types = Btf(one.write(tmp_path / "vmlinux"))
    assert [(m.name, m.bit_offset, m.bits) for m in types.members(newer)] == [("low", 0, 4), ("high", 4, 4)]
    assert [(m.name, m.bit_offset, m.bits) for m in types.members(older)] == [("whole", 0, 0), ("part", 10, 3)]


def test_enumerators_of_all_widths(tmp_path: Path) -> None:
    one = BtfBuilder()
    unsigned = one.enum("unsigned", [("A", 0), ("B", 0xFFFFFFFF)])
    signed = one.enum("signed", [("C", -1)], signed=True)
    wide = one.enum64("wide", [("D", 1 << 40)])
    types = Btf(one.write(tmp_path / "vmlinux"))
    assert types.enumerators(unsigned) == [("A", 0), ("B", 0xFFFFFFFF)]
    assert types.enumerators(signed) == [("C", -1)]
    assert types.enumerators(wide) == [("D", 1 << 40)]
    assert types.enums_with({"D", "C"}) == [signed, wide]
    assert types.enums_with({"absent"}) == []


def test_modules_share_one_id_space(tmp_path: Path) -> None:
    """Each module's file numbers its types from the end of vmlinux: they must not be taken for each other's."""
    base = BtfBuilder()
    u32 = base.integer("u32", 4)
    first, second = BtfBuilder(base), BtfBuilder(base)
    first_inner = first.record("inner", 4, [("a", u32, 0)])
    first.record("tun_file", 8, [("one", first_inner, 0), ("two", u32, 32)])
    second_inner = second.record("inner", 8, [("b", u32, 0), ("c", u32, 32)])
    second.record("vhost_dev", 8, [("three", second_inner, 0)])
    vmlinux = base.write(tmp_path / "vmlinux")
    types = Btf(vmlinux, [first.write(tmp_path / "tun"), second.write(tmp_path / "vhost")])
    tun, vhost = types.record("tun_file"), types.record("vhost_dev")
    assert tun is not None
    assert vhost is not None
    assert [types.size(member.type) for member in types.members(tun)] == [4, 4]
    assert [member.name for member in types.members(types.members(vhost)[0].type)] == ["b", "c"]
    assert len(types.named("inner", (b.STRUCT,))) == 2
    assert types.vmlinux_id("u32", b.INT) == u32
    assert types.vmlinux_id("tun_file", b.STRUCT) == 0  # the kernel knows it by another number
    # The kernel's own numbers: those of vmlinux, and of each module from the end of vmlinux on.
    assert [types.own_id(one) for one in (u32, tun, vhost)] == [(u32, 0), (u32 + 2, 1), (u32 + 2, 2)]


def test_a_name_of_vmlinux_is_found_in_a_module_that_uses_its_string(tmp_path: Path) -> None:
    base = BtfBuilder()
    u32 = base.integer("shared_name", 4)
    module = BtfBuilder(base)
    module.types += module.types  # nothing of its own yet
    vmlinux = base.write(tmp_path / "vmlinux")
    module.add(8, "", u32)
    offset = base.strings.index(b"shared_name")
    module.types = offset.to_bytes(4, "little") + module.types[4:]
    types = Btf(vmlinux, [module.write(tmp_path / "module")])
    assert [types.kind(found) for found in types.named("shared_name", (b.INT, b.TYPEDEF))] == [b.INT, b.TYPEDEF]


def test_parameters_of_functions_and_pointers_to_them(tmp_path: Path) -> None:
    one = BtfBuilder()
    u32 = one.integer("u32", 4)
    prototype = one.prototype(0, [u32, u32, u32])
    function = one.function("tcp_v4_rcv", prototype)
    pointer = one.typedef("btf_trace_kfree_skb", one.pointer(prototype))
    types = Btf(one.write(tmp_path / "vmlinux"))
    assert types.parameters(function) == 3
    assert types.parameters(pointer) == 3
    assert types.parameters(u32) is None


@pytest.mark.parametrize("raw", [b"", b"\0" * 24, b"ELF" * 20, b"\xeb\x9f" * 12])
def test_what_is_not_btf_is_refused_with_its_path(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "vmlinux"
    path.write_bytes(raw)
    with pytest.raises(BtfError, match=str(path)):
        Btf(str(path))


def test_a_kind_from_the_future_is_refused(tmp_path: Path) -> None:
    one = BtfBuilder()
    one.add(25, "future", 0)
    with pytest.raises(BtfError, match="unknown kind 25"):
        Btf(one.write(tmp_path / "vmlinux"))


def test_the_running_kernel(tmp_path: Path) -> None:
    if not Path(b.VMLINUX).exists():
        pytest.skip("cannot run here: the kernel has no BTF")
    types = Btf()
    header = types.record("iphdr")
    assert header is not None
    assert types.size(header) == 20
    first = {member.name: (member.bit_offset, member.bits) for member in types.members(header)[:2]}
    assert set(first) == {"ihl", "version"}
    assert sorted(first.values()) == [(0, 4), (4, 4)]


@pytest.mark.parametrize(
    "name", ['x; __asm__(".incbin \\"/etc/shadow\\"")', "x\n#include </etc/shadow>\n", "x\x1b[2J", "é"]
)
def test_a_name_that_is_no_name_in_c_is_refused(name: str, tmp_path: Path) -> None:
    """The types of a far host become C that is compiled here."""
    one = BtfBuilder()
    record = one.record("sk_buff", 4, [(name, one.integer("int", 4), 0)])
    types = Btf(one.write(tmp_path / "vmlinux"))
    with pytest.raises(BtfError, match="not one of C") as caught:
        types.members(record)
    assert str(caught.value).isprintable()


def test_typedefs_in_a_circle_are_refused(tmp_path: Path) -> None:
    one = BtfBuilder()
    first = one.typedef("first", 2)
    one.typedef("second", first)
    types = Btf(one.write(tmp_path / "vmlinux"))
    with pytest.raises(BtfError, match="in a circle"):
        types.strip(first)
