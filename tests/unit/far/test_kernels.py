"""The types of far kernels: fetched once, kept by their content, refused when they did not arrive whole."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from netconsole.base.errors import BadInput, Unable
from netconsole.far import far_host, kernels
from netconsole.far.about import FileAbout
from netconsole.far.archive import ARRIVED
from netconsole.far.kernels import KernelStore
from tests.support.local_line import host, script


def about(content: bytes) -> FileAbout:
    return FileAbout(hashlib.sha256(content).hexdigest(), len(content))


def files(**contents: bytes) -> dict[str, FileAbout]:
    return {name: about(content) for name, content in contents.items()}


def test_only_what_is_not_there_is_fetched(tmp_path: Path) -> None:
    store = KernelStore(tmp_path / "new")
    first = files(vmlinux=b"kernel")
    assert store.lacking(first) == ["vmlinux"]
    kernel = store.keep(first, {"vmlinux": b"kernel"})
    assert (kernel.directory / "vmlinux").read_bytes() == b"kernel"
    again = files(vmlinux=b"kernel", openvswitch=b"module")  # a module was loaded meanwhile
    assert store.lacking(first) == [] and store.lacking(again) == ["openvswitch"]
    more = store.keep(again, {"openvswitch": b"module"})
    assert more.digest != kernel.digest
    assert sorted(path.name for path in more.directory.iterdir()) == ["openvswitch", "vmlinux"]


def test_nobody_else_can_read_or_write_it(tmp_path: Path) -> None:
    kernel = KernelStore(tmp_path / "new").keep(files(vmlinux=b"kernel"), {"vmlinux": b"kernel"})
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "new").rglob("*"))
    assert kernel.directory.is_relative_to(tmp_path)


def test_the_oldest_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "MAX_KERNELS", 2)
    store = KernelStore(tmp_path)
    for number in range(4):
        content = b"kernel %d" % number
        kernel = store.keep(files(vmlinux=content), {"vmlinux": content})
        os.utime(kernel.directory, (number, number))
    assert [store.lacking(files(vmlinux=b"kernel %d" % number)) for number in range(4)] == [["vmlinux"]] * 2 + [[]] * 2


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="the types of the host's kernel cannot be kept on this machine"):
        KernelStore(tmp_path / "file").keep(files(vmlinux=b"kernel"), {"vmlinux": b"kernel"})


def test_the_kernel_of_a_host_arrives_as_it_is() -> None:
    path = Path("/sys/kernel/btf/vmlinux")
    if not path.exists():
        pytest.skip("cannot run here: the kernel has no BTF")
    found, contents = host().visit([], lambda told: told.files)
    assert list(contents) == ["vmlinux"] and contents["vmlinux"] == path.read_bytes()
    assert found.files["vmlinux"] == about(contents["vmlinux"])


LIES = {
    "another content": (b"kernel", 6, "did not arrive whole"),
    "too little": (b"ker", 6, "sent nothing for 0.5 s"),
    "too much to take": (b"", 33 << 20, "cannot be read"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_kernel_that_is_not_what_it_was_said_to_be_is_refused(
    lie: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(far_host, "ANSWER_S", 0.5)
    content, size, why = LIES[lie]
    told = {"python": "3.11", "uid": 0, "release": "6.1", "machine": "x86_64", "page": 4096, "cpus": 2, "modules": []}
    told |= {"files": {"vmlinux": {"sha256": "0" * 64, "bytes": size}}, "has_kprobes": True, "has_bcc": False}
    told |= {"lockdown": "", "sudo": "root", "build_ids": {}}
    (tmp_path / "said").write_bytes(ARRIVED + b"3.11\n" + json.dumps(told).encode() + b"\n" + content)
    with pytest.raises(Unable, match=why):
        script(f"cat {tmp_path}/said; cat >/dev/null").visit([], lambda found: found.files)
