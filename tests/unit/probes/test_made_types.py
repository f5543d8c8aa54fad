"""Types of a kernel without any, made from the debug information of a small one: the compiler's own offsets."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from netconsole.base.errors import BadInput
from netconsole.cli.main import run
from netconsole.cli.options import BAD_USAGE
from netconsole.probes import type_maker
from netconsole.probes.type_maker import Elf
from netconsole_collector.types import btf as b
from netconsole_collector.types import kernel_symbols
from netconsole_collector.types.btf import Btf
from netconsole_collector.types.kernel_types import find_member
from netconsole_collector.types.prototypes import arguments
from tests.conftest import CANNOT

RELEASE = "4.18.0-80.el8.x86_64"
TOOLS = ("gcc", "ld", "pahole")
TYPES = """
struct list_head { struct list_head *next, *prev; };
struct net_device { char name[16]; long padding[3] __attribute__((aligned(64))); int ifindex; };
struct sk_buff {
    struct list_head list;
    union { struct net_device *dev; unsigned long dev_scratch; };
    char cb[48] __attribute__((aligned(8)));
    unsigned char cloned:1, nohdr:1;
    unsigned short queue_mapping;
    unsigned int len;
} __attribute__((packed, aligned(4)));
"""
VMLINUX = (
    TYPES
    + f"""
struct nobody_asks {{ int x; }};
const char linux_banner[] = "Linux version {RELEASE} (mock@build) (gcc) #1 SMP";
const unsigned long offsets[] __attribute__((section(".offsets"))) = {{
    __builtin_offsetof(struct sk_buff, dev), __builtin_offsetof(struct sk_buff, cb),
    __builtin_offsetof(struct sk_buff, queue_mapping), __builtin_offsetof(struct sk_buff, len),
    __builtin_offsetof(struct net_device, ifindex), sizeof(struct sk_buff), sizeof(struct net_device),
}};
void _stext(void) {{}}
int netif_rx(struct sk_buff *skb) {{ return skb->len; }}
int other(struct nobody_asks *one) {{ return one->x; }}
void _etext(void) {{}}
"""
)
MODULE = (
    TYPES
    + """
struct flow_table { unsigned int count; };
struct vport { struct net_device *dev; struct flow_table *table; short port_no; };
int ovs_vport_send(struct vport *port, struct sk_buff *skb)
{ return port->dev->ifindex + port->port_no + port->table->count + skb->len; }
"""
)
NAMES = {"sk_buff", "netif_rx", "vport", "ovs_vport_send"}

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, TOOLS)), reason=f"{CANNOT}not all of {', '.join(TOOLS)} are here"
)


def call(*command: str | Path) -> None:
    subprocess.run(command, check=True, timeout=120)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A debug package of a small kernel, unpacked."""
    place = tmp_path_factory.mktemp("debug")
    modules = place / "lib/modules" / RELEASE
    (modules / "kernel/net").mkdir(parents=True)
    objects = []
    for name, source in (("vmlinux", VMLINUX), ("openvswitch", MODULE)):
        (place / f"{name}.c").write_text(source)
        call("gcc", "-g", "-O0", "-fno-pic", "-ffreestanding", "-c", "-o", place / f"{name}.o", place / f"{name}.c")
        objects.append(place / f"{name}.o")
    call("ld", "--build-id", "-e", "_stext", "-Ttext=0xffffffff81000000", "-o", modules / "vmlinux", objects[0])
    call("ld", "-r", "--build-id", "-o", modules / "kernel/net/openvswitch.ko.debug", objects[1])
    return place


def members(types: Btf, record: str, *names: str) -> list[int]:
    identifier = types.record(record)
    assert identifier is not None, record
    found = [find_member(types, identifier, name) for name in names]
    return [place[0] // 8 for place in found if place is not None]


def about(content: bytes) -> dict[str, str]:
    found: dict[str, str] = json.loads(content.partition(b"\n")[0][len(b.SEAL) :])
    return found


def test_offsets_are_those_of_the_compiler(package: Path, tmp_path: Path) -> None:
    vmlinux = package / "lib/modules" / RELEASE / "vmlinux"
    release, content, base = type_maker.make_kernel(vmlinux, None, NAMES)
    elf = Elf.mapped(vmlinux)
    assert release == RELEASE
    assert about(content)["symbols"] == kernel_symbols.digest(elf.functions())
    assert {name for name, _ in elf.functions()} == {"_stext", "netif_rx", "other", "_etext"}
    path = tmp_path / "vmlinux"
    path.write_bytes(content)
    types = Btf(str(path))
    compiled = struct.unpack("<7Q", elf.section(".offsets") or b"")
    found = members(types, "sk_buff", "dev", "cb", "queue_mapping", "len") + members(types, "net_device", "ifindex")
    sizes = [types.size(types.record(name) or 0) for name in ("sk_buff", "net_device")]
    assert tuple(found + sizes) == compiled
    (function,) = types.named("netif_rx", (b.FUNC,))
    assert arguments(types, function) == ["sk_buff *"]
    assert types.record("nobody_asks") is None and not types.named("other", (b.FUNC,))
    assert base.digest == hashlib.sha256(content).hexdigest()


def test_a_module_is_made_on_what_was_kept_of_its_kernel(package: Path, tmp_path: Path) -> None:
    """Its file says of which kernel's file it is a part, and has no second copy of what that has."""
    vmlinux = package / "lib/modules" / RELEASE / "vmlinux"
    _, content, base = type_maker.make_kernel(vmlinux, None, NAMES)
    module = vmlinux.parent / "kernel/net/openvswitch.ko.debug"
    release, name, split = type_maker.make_module(module, base, None, NAMES)
    assert (release, name) == (RELEASE, "openvswitch")
    assert about(split)["vmlinux"] == hashlib.sha256(content).hexdigest()
    kernel, own = tmp_path / "vmlinux", tmp_path / "openvswitch"
    kernel.write_bytes(content)
    own.write_bytes(split)
    types = Btf(str(kernel), [str(own)])
    assert members(types, "vport", "dev", "table", "port_no") == [0, 8, 16]
    dev, table, _ = types.members(types.record("vport") or 0)
    assert (
        types.strip(types.target(dev.type)) == types.record("net_device") == types.named("net_device", (b.STRUCT,))[-1]
    )
    assert members(types, "flow_table", "count") == [0]
    assert types.name(types.target(table.type)) == "flow_table"


def test_the_command_makes_a_package_s_types(package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["types", "make", "--into", str(tmp_path), str(package)]) == 0
    said = capsys.readouterr().out
    assert f"{tmp_path / RELEASE / 'vmlinux'}: " in said and f"{tmp_path / RELEASE / 'openvswitch'}: " in said
    types = Btf(str(tmp_path / RELEASE / "vmlinux"), [str(tmp_path / RELEASE / "openvswitch")])
    assert types.record("sk_buff") and types.record("vport")


def test_what_is_wrong_gets_one_line(package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vmlinux = package / "lib/modules" / RELEASE / "vmlinux"
    with pytest.raises(BadInput, match=f"this is the kernel {RELEASE}, and not 5.10"):
        type_maker.make_kernel(vmlinux, "5.10", NAMES)
    with pytest.raises(BadInput, match="name it among the files, so that they are made"):
        type_maker.base_of(vmlinux)
    stripped = tmp_path / "vmlinux"
    call("strip", "-o", stripped, vmlinux)
    with pytest.raises(BadInput, match="no build id or no symbols: take that of the debug package"):
        type_maker.make_kernel(stripped, None, NAMES)
    cut = tmp_path / "vmlinux-4.18"
    cut.write_bytes(vmlinux.read_bytes()[:-500])
    assert run(["types", "make", "--into", str(tmp_path), str(cut)]) == BAD_USAGE
    assert run(["types", "make", "--base", str(vmlinux), str(vmlinux)]) == BAD_USAGE
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"netconsole: {cut}: expected a kernel's BTF, or its vmlinux with debug information"
    assert lines[1] == f"netconsole: {vmlinux}: name one kernel only: a vmlinux, or --base"
    assert len(lines) == 2
