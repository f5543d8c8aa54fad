"""Types that BTF has several times: one in C if they are equal in every member, else of two names."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole_collector.types import btf as b
from netconsole_collector.types import kernel_types, same_type, source_names
from netconsole_collector.types.btf import Btf, BtfError
from netconsole_collector.types.same_type import Twins
from tests.support.btf_builder import BtfBuilder


class Doubled:
    """A port of a switch that points to its switch, which points back; both are there twice."""

    def __init__(self, members: tuple[str, str] = ("dev", "dev"), behind: int = 4) -> None:
        """`members`: names of the ports' members. `behind`: bytes of what the second port points to."""
        one = self.builder = BtfBuilder()
        self.u32 = one.integer("unsigned int", 4)
        self.ports = [self.pair(name, size) for name, size in zip(members, (4, behind), strict=True)]

    def pair(self, member: str, bytes_behind: int) -> int:
        one = self.builder
        device = one.record("net_device", bytes_behind, [("ifindex", self.u32, 0)])
        first = one.next_id
        # first: pointer to the port; then the switch, a pointer to it, a pointer to the device, the port
        one.pointer(first + 4)
        one.record("datapath", 8, [("port", first, 0)])
        one.pointer(first + 1)
        one.pointer(device)
        return one.record("vport", 16, [(member, first + 3, 0), ("dp", first + 2, 64)])

    def types(self, tmp_path: Path) -> Btf:
        return Btf(self.builder.write(tmp_path / "vmlinux"))


def header(types: Btf, source: str) -> str:
    return kernel_types.header(types, source_names.used(source), source_names.defined(source))


def test_equal_types_are_one_and_their_pointers_fit(tmp_path: Path) -> None:
    doubled = Doubled()
    types = doubled.types(tmp_path)
    assert Twins(types).are_same(*doubled.ports)
    text = header(types, "struct vport *v; struct datapath *d; v->dp; d->port; v->dev")
    assert "___2" not in text
    assert [text.count(f"struct {name} {{") for name in ("vport", "datapath", "net_device")] == [1, 1, 1]


def test_another_member_makes_another_type(tmp_path: Path) -> None:
    doubled = Doubled(members=("dev", "moved"))
    assert not Twins(doubled.types(tmp_path)).are_same(*doubled.ports)


def test_what_differs_behind_a_pointer_is_not_the_same(tmp_path: Path) -> None:
    """It would be read at the offsets of the other one."""
    doubled = Doubled(behind=8)
    twins = Twins(doubled.types(tmp_path))
    assert not twins.are_same(*doubled.ports)
    assert not twins.are_same(*doubled.ports)  # nothing of the first comparison was kept


def test_swapped_members_are_another_type(tmp_path: Path) -> None:
    one = BtfBuilder()
    u32 = one.integer("unsigned int", 4)
    ports = [one.record("vport", 8, [(a, u32, 0), (z, u32, 32)]) for a, z in (("no", "flags"), ("flags", "no"))]
    assert not Twins(Btf(one.write(tmp_path / "vmlinux"))).are_same(*ports)


def test_a_declaration_is_the_same_as_any_but_makes_no_two_the_same(tmp_path: Path) -> None:
    one = BtfBuilder()
    u32 = one.integer("unsigned int", 4)
    small, large = (one.record("net", size, [("id", u32, 0)]) for size in (4, 8))
    declared = one.forward("net")
    twins = Twins(Btf(one.write(tmp_path / "vmlinux")))
    assert twins.are_same(small, declared)
    assert twins.are_same(declared, large)
    assert not twins.are_same(small, large)


def test_the_members_of_a_struct_without_a_member_s_name_are_written_in_place(tmp_path: Path) -> None:
    """`struct ns_common { union { struct ns_tree; … }; }` since 6.19 (-fms-extensions)."""
    one = BtfBuilder()
    u32 = one.integer("unsigned int", 4)
    tree = one.record("ns_tree", 4, [("ns_id", u32, 0)])
    either = one.record("", 4, [("", tree, 0), ("rcu", u32, 0)], union=True)
    one.record("ns_common", 8, [("stashed", u32, 0), ("", either, 32)])
    types = Btf(one.write(tmp_path / "vmlinux"))
    text = header(types, "struct ns_common *c; c->ns_id")
    assert "struct { unsigned int ns_id; } __attribute__((packed, aligned(4))) ;" in text
    record = types.record("ns_common")
    assert record is not None
    found = kernel_types.find_member(types, record, "ns_id")
    assert found is not None
    assert (found[0], types.kind(types.strip(found[1].type))) == (32, b.INT)


def split(tmp_path: Path, *ports: list[tuple[str, int]]) -> tuple[Btf, list[str]]:
    """A port of vmlinux, and one of each of two modules: members with their bit offsets. And the files of it."""
    files = []
    base = BtfBuilder()
    base.integer("unsigned int", 4)
    for number, members in enumerate(ports):
        one = BtfBuilder(base) if number else base
        behind = one.record("datapath", 4 * (number + 1), [("id", 1, 0)])
        pointer = one.pointer(behind)
        one.record("vport", 16, [*((name, 1, at) for name, at in members), ("dp", pointer, 64)])
        files.append(one.write(tmp_path / f"file{number}"))
    return Btf(files[0], files[1:]), files


PORT = [("port_no", 0), ("flags", 32)]
SWAPPED = [("flags", 0), ("port_no", 32)]


def test_a_type_that_modules_repeat_is_read_if_its_layout_is_one(tmp_path: Path) -> None:
    """Also if what is behind its pointers is not: pahole leaves such doubles."""
    types, files = split(tmp_path, PORT, PORT, PORT)
    same_type.refuse_doubled(types, {"vport", "no_such_type"}, files)


@pytest.mark.parametrize("ports", [(SWAPPED, PORT), (PORT, SWAPPED), (PORT, PORT, [*PORT[:1], ("flags", 40)])])
def test_a_type_that_a_module_has_in_another_layout_is_refused_by_name(
    ports: tuple[list[tuple[str, int]], ...], tmp_path: Path
) -> None:
    """Whichever comes first: one of them is read at the offsets of the other."""
    types, files = split(tmp_path, *ports)
    where = ", ".join(Path(file).name for file in files)
    why = f"vport is there several times, with different members, in the types of {where}"
    with pytest.raises(BtfError, match=f"^{why}$"):
        same_type.refuse_doubled(types, {"vport"}, files)
    same_type.refuse_doubled(types, {"sk_buff"}, files)


def test_only_what_the_source_calls_a_struct_is_meant() -> None:
    source = "struct own { int x; }; int f(struct vport *p, union key *k) { int dp = p->dp; /* struct not */ }"
    assert source_names.records(source) == {"vport", "key"}
