"""Types of a module, pruned: what probes name stays with all that it needs, at new numbers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from netconsole.base.errors import BadInput, Unable
from netconsole.probes import type_maker, type_pruning
from netconsole_collector.types import btf as b
from netconsole_collector.types import kernel_types
from netconsole_collector.types.btf import Btf
from netconsole_collector.types.prototypes import arguments
from tests.support.btf_builder import BtfBuilder


def split_types(tmp_path: Path) -> tuple[Path, Path]:
    """vmlinux, and a module with a port, what it points to, and much that no probe names."""
    base = BtfBuilder()
    u32 = base.integer("unsigned int", 4)
    device = base.record("net_device", 4, [("ifindex", u32, 0)])
    vmlinux = Path(base.write(tmp_path / "vmlinux"))
    own = BtfBuilder(base)
    own.record("unwanted", 4, [("x", u32, 0)])
    ids = own.array(u32, 3)
    table = own.record("flow_table", 12, [("ids", ids, 0)])
    datapath = own.record("datapath", 8, [("table", own.pointer(table), 0)])
    port = own.record("vport", 16, [("dev", own.pointer(device), 0), ("dp", own.pointer(datapath), 64)])
    own.enum("ovs_drop_reason", [("OVS_DROP_METER", 131077), ("OTHER", 5)])
    own.enum("", [("NOT_NAMED", 1)])
    own.function("ovs_vport_send", own.prototype(0, [own.pointer(port), u32]))
    own.function("another", own.prototype(0, []))
    for tracepoint in ("ovs_dp_upcall", "nobody_asks"):
        told = own.pointer(own.prototype(0, [own.pointer(0), own.pointer(port), u32]))
        own.typedef(f"btf_trace_{tracepoint}", told)
    return vmlinux, Path(own.write(tmp_path / "module"))


def test_what_is_named_stays_with_what_it_needs_and_nothing_else(tmp_path: Path) -> None:
    vmlinux, module = split_types(tmp_path)
    names = {"vport", "ovs_vport_send", "OVS_DROP_METER", "net_device", "ovs_dp_upcall"}
    small = tmp_path / "small"
    small.write_bytes(type_pruning.pruned(vmlinux.read_bytes(), module.read_bytes(), names))
    types = Btf(str(vmlinux), [str(small)])
    port = types.record("vport")
    assert port is not None
    dev, dp = types.members(port)
    assert (types.name(types.target(dev.type)), dp.bit_offset) == ("net_device", 64)
    (table,) = types.members(types.strip(types.target(dp.type)))
    (ids,) = types.members(types.strip(types.target(table.type)))
    assert types.element(ids.type)[1] == 3
    (send,) = types.named("ovs_vport_send", (b.FUNC,))
    assert arguments(types, send) == ["vport *", "unsigned int"]
    assert kernel_types.arguments(types, "ovs_dp_upcall") == 2
    (reasons,) = types.enums_with({"OVS_DROP_METER"})
    assert types.enumerators(reasons) == [("OVS_DROP_METER", 131077), ("OTHER", 5)]
    assert not types.named("unwanted", (b.STRUCT,))
    assert not types.named("another", (b.FUNC,))
    assert not types.enums_with({"NOT_NAMED"})
    assert len(small.read_bytes()) < len(module.read_bytes())
    left_out = type_pruning.root_names(vmlinux.read_bytes(), module.read_bytes())
    left_out -= type_pruning.root_names(vmlinux.read_bytes(), small.read_bytes())
    assert left_out == {"unwanted", "another", "NOT_NAMED", "nobody_asks", "btf_trace_nobody_asks"}


def test_what_is_not_split_btf_is_refused(tmp_path: Path) -> None:
    vmlinux, module = split_types(tmp_path)
    with pytest.raises(ValueError, match="not BTF"):
        type_pruning.pruned(vmlinux.read_bytes(), module.read_bytes()[:-1], {"vport"})


def test_a_file_that_is_no_module_gets_one_line(tmp_path: Path) -> None:
    vmlinux, _ = split_types(tmp_path)
    note = tmp_path / "note.txt"
    no_elf = tmp_path / "openvswitch.ko"
    for path in (note, no_elf):
        path.write_bytes(b"text")
    base = type_maker.base_of(vmlinux)
    with pytest.raises(BadInput, match="expected a module with debug information"):
        type_maker.make_module(note, base, "5.10", set())
    with pytest.raises(BadInput, match="say with --release for which kernel it is"):
        type_maker.make_module(no_elf, base, None, set())
    with pytest.raises(BadInput, match="this file is no module with a build id"):
        type_maker.make_module(no_elf, base, "5.10", set())
    of_another = tmp_path / "lib/modules/5.10.0-38/openvswitch.ko"
    of_another.parent.mkdir(parents=True)
    of_another.write_bytes(b"text")
    with pytest.raises(BadInput, match=r"this is a module of kernel 5\.10\.0-38, and not 5\.10\.0-39"):
        type_maker.make_module(of_another, base, "5.10.0-39", set())
    with pytest.raises(BadInput, match="expected a kernel's BTF, or its vmlinux"):
        type_maker.base_of(note)
    with pytest.raises(BadInput, match="cannot read: No such file"):
        type_maker.base_of(tmp_path / "none")


def test_without_pahole_its_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unable, match="pahole is missing: install dwarves"):
        type_maker.made_btf(tmp_path / "openvswitch.ko", b"")


def test_a_debug_package_has_the_kernel_and_what_probes_name(tmp_path: Path) -> None:
    names = [
        "boot/System.map-5.10.0-32-amd64",
        "boot/vmlinux-5.10.0-32-amd64",
        "lib/modules/5.10/vmlinux-gdb.py",
        "lib/modules/5.10/kernel/drivers/vhost/vhost-net.ko.debug",
        "lib/modules/5.10/kernel/net/openvswitch.ko",
        "lib/modules/5.10/kernel/net/dsa.ko",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "vmlinux").symlink_to("boot/vmlinux-5.10.0-32-amd64")
    found = type_maker.found_in(tmp_path, {"openvswitch", "vhost_net", "tun"})
    assert [str(path.relative_to(tmp_path)) for path in found] == [names[1], names[3], names[4]]
    (tmp_path / "lib/modules/5.10/kernel/openvswitch.ko").hardlink_to(tmp_path / names[4])
    assert len(type_maker.found_in(tmp_path, {"openvswitch"})) == 2, "one file by two names"
    (tmp_path / "boot/vmlinux-5.10.0-33-amd64").write_bytes(b"")
    with pytest.raises(BadInput, match=r"it has vmlinux twice, in .*-32-amd64 and .*-33-amd64: unpack one package"):
        type_maker.found_in(tmp_path, {"openvswitch", "vhost_net", "tun"})
    with pytest.raises(BadInput, match="no vmlinux and no module that a probe names is below this directory"):
        type_maker.found_in(tmp_path / "lib/modules/5.10/kernel/net", {"tun"})


def test_the_vmlinux_of_a_debug_package_has_the_kernel_s_own_types(tmp_path: Path) -> None:
    vmlinux, _ = split_types(tmp_path)
    holder = tmp_path / "holder.s"
    holder.write_text(f'.section .BTF,"a"\n.incbin "{vmlinux}"\n')
    elf = tmp_path / "vmlinux-5.10"
    if shutil.which("as") is None:
        pytest.skip("cannot run here: no assembler (binutils)")
    subprocess.run(["as", "-o", str(elf), str(holder)], check=True, timeout=60)
    assert type_maker.base_of(elf).types == type_maker.base_of(vmlinux).types == vmlinux.read_bytes()
    assert type_maker.base_of(elf).digest == type_maker.base_of(vmlinux).digest
    holder.write_text("nop\n")
    subprocess.run(["as", "-o", str(elf), str(holder)], check=True, timeout=60)
    with pytest.raises(BadInput, match="this vmlinux has no types"):
        type_maker.base_of(elf)
