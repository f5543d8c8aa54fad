"""Types of modules that were made elsewhere: those of this kernel and this build of the module, and no others."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path

import pytest

from netconsole_collector.types import btf as b
from netconsole_collector.types import copied_types
from netconsole_collector.types.btf import Btf, BtfError
from tests.support.btf_builder import BtfBuilder

RELEASE, MODULE, BUILD_ID = "5.10.0-32-amd64", "openvswitch", "c0ffee"


def note(kind: int, content: bytes, name: bytes = b"GNU\0") -> bytes:
    """As in an ELF file: padded to four bytes."""
    padding = bytes(-len(content) % 4)
    return struct.pack("=III", len(name), len(content), kind) + name + content + padding


@dataclass
class Host:
    """A kernel without types of modules, one loaded module, and a place for files."""

    path: Path

    def __post_init__(self) -> None:
        base = BtfBuilder()
        base.integer("unsigned int", 4)
        self.vmlinux = base.write(self.path / "vmlinux")
        own = BtfBuilder(base)
        own.record("vport", 8, [("port_no", 1, 0)])
        self.types = Path(own.write(self.path / "split")).read_bytes()
        notes = self.path / "sys" / MODULE / "notes"
        notes.mkdir(parents=True)
        (notes / ".note.gnu.build-id").write_bytes(note(3, bytes.fromhex(BUILD_ID)))
        self.file = self.path / "etc" / RELEASE / MODULE
        self.file.parent.mkdir(parents=True)

    def carry(self, **about: str) -> None:
        digest = hashlib.sha256(Path(self.vmlinux).read_bytes()).hexdigest()
        line = {"release": RELEASE, "module": MODULE, "build_id": BUILD_ID, "vmlinux": digest, **about}
        self.file.write_bytes(copied_types.sealed(line, ["flow_table", "ovs_meter_execute"], self.types))
        self.file.chmod(0o600)

    def found(self, *names: str) -> list[str]:
        """For a probe that uses these names."""
        modules = "openvswitch", "vhost_net"
        build_ids = {name: copied_types.build_id_here(name, str(self.path / "sys")) for name in modules}
        return copied_types.paths(build_ids, self.vmlinux, RELEASE, str(self.path / "etc"), {"vport", *names})


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_carried_file_is_read_as_a_module_s_own_types(host: Host) -> None:
    host.carry()
    types = Btf(host.vmlinux, host.found())
    vport = types.record("vport")
    assert vport is not None
    assert [member.name for member in types.members(vport)] == ["port_no"]
    assert types.named("vport", (b.STRUCT,)) == [vport]


def test_nothing_was_carried_or_the_module_is_not_loaded(host: Host) -> None:
    assert host.found() == []
    host.carry()
    (host.path / "sys" / MODULE).rename(host.path / "sys" / "another")
    assert host.found() == []


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({"release": "5.10.0-31-amd64"}, "this file is for openvswitch of kernel 5.10.0-31-amd64"),
        ({"module": "vhost"}, "this file is for vhost of kernel"),
        ({"vmlinux": "0" * 64}, "this file is for another build of this kernel"),
        ({"build_id": "decade"}, "this file is for another build of this module"),
    ],
)
def test_types_of_another_kernel_or_build_are_refused(host: Host, about: dict[str, str], why: str) -> None:
    host.carry(**about)
    with pytest.raises(BtfError, match=why):
        host.found()


def test_each_shorter_file_is_refused(host: Host) -> None:
    host.carry()
    whole = host.file.read_bytes()
    for length in range(len(whole)):
        host.file.write_bytes(whole[:length])
        with pytest.raises(BtfError, match=r"damaged or cut off|netconsole types make did not write this file"):
            host.found()


def test_swapped_members_are_refused(host: Host) -> None:
    """Bytes were changed behind the seal."""
    host.carry()
    host.file.write_bytes(host.file.read_bytes().replace(b"port_no", b"no_port"))
    with pytest.raises(BtfError, match="damaged"):
        host.found()


def test_types_made_for_probes_that_read_less_are_refused_by_name(host: Host) -> None:
    """Else what was left out would be taken for what this kernel does not have."""
    host.carry()
    assert host.found("port_no", "u32") == [str(host.file)]
    with pytest.raises(
        copied_types.UnusableTypes, match="this file lacks flow_table, which netconsole reads now"
    ) as refused:
        host.found("flow_table")
    assert refused.value.module == MODULE


def test_a_file_of_another_version_is_to_be_made_anew(host: Host) -> None:
    host.carry()
    host.file.write_bytes(host.file.read_bytes().replace(copied_types.FORMAT.encode(), b"netconsole.types/1"))
    with pytest.raises(BtfError, match=r"another version of netconsole wrote this file \(netconsole.types/1\): make"):
        host.found()


def test_a_file_that_others_may_write_is_refused(host: Host) -> None:
    host.carry()
    host.file.chmod(0o666)
    with pytest.raises(BtfError, match="users other than root may write this file"):
        host.found()


def test_what_cannot_be_read_is_refused_by_name(host: Host) -> None:
    host.file.mkdir()
    with pytest.raises(copied_types.UnusableTypes, match=f"{host.file}: this file cannot be read: Is a directory"):
        host.found()


def test_what_is_no_such_file_is_refused(host: Host) -> None:
    for content in (b"", b"\x9f\xeb\x01\x00", b.SEAL + b"[]\n", b.SEAL + b'{"format": 1}\n', b.SEAL + b"[" * 99_999):
        host.file.write_bytes(content)
        host.file.chmod(0o600)
        with pytest.raises(BtfError, match="netconsole types make did not write this file"):
            host.found()


def test_the_build_id_is_found_among_other_notes() -> None:
    notes = note(6, b"linux\0", b"Xen\0") + note(3, b"\1\2\3", b"GNU\0") + note(3, b"x")
    assert copied_types.build_id_in(notes) == "010203"
    assert copied_types.build_id_in(note(3, b"\1", b"Xen\0")) == ""
    assert copied_types.build_id_in(notes[:-1][:20]) == ""


class BareKernel:
    """A kernel without types, and a file with some that were made for it."""

    def __init__(self, path: Path) -> None:
        self.path = path / RELEASE / copied_types.KERNEL
        self.path.parent.mkdir()
        types = BtfBuilder()
        types.record("sk_buff", 8, [("len", types.integer("unsigned int", 4), 32)])
        self.types = Path(types.write(path / "types")).read_bytes()

    def carry(self, **about: str) -> None:
        line = {"release": RELEASE, "module": copied_types.KERNEL, "build_id": BUILD_ID, "symbols": "5e7", **about}
        self.path.write_bytes(copied_types.sealed(line, ["net_device"], self.types))
        self.path.chmod(0o644)

    def check(self, *names: str, symbols: str = "5e7") -> None:
        copied_types.check_kernel(str(self.path), RELEASE, BUILD_ID, symbols, {"sk_buff", *names})


@pytest.fixture
def bare(tmp_path: Path) -> BareKernel:
    return BareKernel(tmp_path)


def test_types_of_a_kernel_are_used_if_they_are_its_own(bare: BareKernel) -> None:
    bare.carry()
    bare.check()
    types = Btf(str(bare.path))
    assert [member.bit_offset for member in types.members(types.record("sk_buff") or 0)] == [32]


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({"release": "5.10.0-31-amd64"}, "this file is for vmlinux of kernel 5.10.0-31-amd64"),
        ({"module": "vhost"}, "this file is for vhost of kernel"),
        ({"build_id": "decade"}, "this file is for another build of this kernel$"),
        ({"symbols": "5e8"}, "this file is for another build of this kernel, whose symbols differ$"),
    ],
)
def test_types_of_another_kernel_are_refused(bare: BareKernel, about: dict[str, str], why: str) -> None:
    bare.carry(**about)
    with pytest.raises(copied_types.UnusableTypes, match=why):
        bare.check()


def test_a_kernel_that_hides_its_symbols_is_not_believed(bare: BareKernel) -> None:
    bare.carry()
    with pytest.raises(copied_types.UnusableTypes, match=r"hides the addresses of its symbols: run sysctl"):
        bare.check(symbols="")


def test_a_kernel_s_file_that_is_cut_off_or_lacks_something_is_refused(bare: BareKernel) -> None:
    bare.carry()
    with pytest.raises(copied_types.UnusableTypes, match="this file lacks net_device, which netconsole reads now"):
        bare.check("net_device")
    bare.path.write_bytes(bare.path.read_bytes()[:-1])
    with pytest.raises(copied_types.UnusableTypes, match="damaged or cut off"):
        bare.check()


def test_what_was_looked_for_when_the_file_was_made_is_not_taken_for_left_out() -> None:
    """Names are kept in a short form, which two may share."""
    left_out = copied_types.sealed({}, ["plumless"], b"", known=["buckeroo"])
    assert copied_types._short("plumless") == copied_types._short("buckeroo")
    assert b'"left_out":[]' in left_out
