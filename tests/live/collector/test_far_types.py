"""Types that were carried to the console's machine and must not be used: with --host, too, the file and the way out."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from netconsole.far.about import About
from netconsole.far.compiling import FarCompiler
from netconsole.far.kernels import Kernel
from netconsole.probes import catalogue
from netconsole_collector.types import btf, copied_types, source_names
from tests.support.live.contexts.hooks import ModuleTypes
from tests.support.live.contexts.memory import kernel_types

pytestmark = pytest.mark.computing

RELEASE, MODULE, BUILD_ID = "5.10.0-32-amd64", "openvswitch", "c0ffee"
ABOUT = About(
    python="3.9.2", uid=0, release=RELEASE, machine=os.uname().machine, page=os.sysconf("SC_PAGE_SIZE"), cpus=1,
    modules=[MODULE], files={}, build_ids={MODULE: BUILD_ID}, has_kprobes=True, has_bcc=False, lockdown="",
    sudo="root",
)  # fmt: skip


@pytest.fixture
def vmlinux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The types of the far kernel, which has none of modules. They are this machine's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(copied_types, "DIRECTORY", str(tmp_path / "carried"))
    content = Path(btf.VMLINUX).read_bytes()
    (tmp_path / "vmlinux").write_bytes(content)
    return content


def carry(place: Path, content: bytes) -> Path:
    path = place / "carried" / RELEASE / MODULE
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    path.chmod(0o644)
    return path


def made(vmlinux: bytes, build_id: str = BUILD_ID, *left_out: str) -> bytes:
    about = {"release": RELEASE, "module": MODULE, "build_id": build_id, "vmlinux": hashlib.sha256(vmlinux).hexdigest()}
    return copied_types.sealed(about, left_out, b"types")


def told(place: Path) -> tuple[str, str, str]:
    """What a probe of Open vSwitch is refused with: the state, why, and the way out."""
    manifest = catalogue.shipped("ovs_drops")
    answer = FarCompiler(ABOUT, Kernel(place, "its digest")).prepare(manifest.raw, manifest.code())
    refused = answer["compiled"]
    assert isinstance(refused, dict)
    return refused["state"], refused["why"], refused["help"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (lambda vmlinux: b"text", "netconsole types make did not write this file"),
        (lambda vmlinux: made(vmlinux)[:-1], "this file is damaged or cut off: copy it here again"),
        (lambda vmlinux: made(b"another kernel's"), "this file is for another build of this kernel"),
        (lambda vmlinux: made(vmlinux, "decade"), "this file is for another build of this module"),
        (lambda vmlinux: made(vmlinux, BUILD_ID, "vport"), "this file lacks vport, which netconsole reads now"),
    ],
    ids=["foreign", "cut off", "another kernel", "another build", "stale"],
)
def test_a_file_that_must_not_be_used_is_named_with_the_way_out(
    tmp_path: Path, vmlinux: bytes, content: Callable[[bytes], bytes], why: str
) -> None:
    path = carry(tmp_path, content(vmlinux))
    state, said, help = told(tmp_path)
    assert state == "unsupported"
    assert said.startswith(f"the kernel's types cannot be used: {path}: {why}")
    assert "netconsole types make debug" in help


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, vmlinux: bytes) -> None:
    path = carry(tmp_path, made(vmlinux))
    path.unlink()
    path.mkdir()
    assert told(tmp_path)[1] == f"the kernel's types cannot be used: {path}: this file cannot be read: Is a directory"


def test_a_module_without_types_is_named_with_the_commands(tmp_path: Path, vmlinux: bytes) -> None:
    """A kernel such as 5.10, and nothing was carried."""
    why = "this kernel has no types (BTF) of openvswitch: modules have them from Linux 5.11 on"
    state, said, help = told(tmp_path)
    assert (state, said) == ("unsupported", why)
    assert f"    apt download linux-image-{RELEASE}-dbg\n" in help and "\n    netconsole types make debug\n" in help


@pytest.mark.parametrize(
    ("release", "reason"),
    [
        (RELEASE, "modules have them from Linux 5.11 on"),
        ("6.1.0-56-amd64", "it, or the module, was built without them (CONFIG_DEBUG_INFO_BTF_MODULES)"),
    ],
)
def test_and_where_only_the_compiler_finds_it_out(tmp_path: Path, vmlinux: bytes, release: str, reason: str) -> None:
    """The probe watches no module, but names the types of one."""
    program = {"name": "one", "measures": "it", "attach": [{"point": "raw_tracepoint:kfree_skb", "function": "one"}]}
    spec = {"probe": {"name": "x", "btf_modules": [MODULE]}, "programs": [program]}
    source = "int one(void *ctx) { struct vport_of_nobody *port = ctx; return port->number; }"
    about = structs.replace(ABOUT, release=release)
    answer = FarCompiler(about, Kernel(tmp_path, "its digest")).prepare(spec, source)["compiled"]
    assert isinstance(answer, dict)
    assert answer["why"] == f"this kernel has no types (BTF) of openvswitch: {reason}"
    assert "netconsole types make debug" in answer["help"]


def swapped(place: Path) -> bytes:
    """Split BTF of a module that repeats struct list_head of this kernel, with its two members exchanged."""
    own = ModuleTypes()
    first, second = kernel_types().members(own.kernels("list_head"))
    members = [(first.name, first.type, second.bit_offset), (second.name, second.type, first.bit_offset)]
    own.record("list_head", 16, members)
    return Path(own.write(place)).read_bytes()


def test_a_sealed_file_with_swapped_members_of_what_the_kernel_has_is_refused(tmp_path: Path, vmlinux: bytes) -> None:
    about = {"release": RELEASE, "module": MODULE, "build_id": BUILD_ID, "vmlinux": hashlib.sha256(vmlinux).hexdigest()}
    carry(tmp_path, copied_types.sealed(about, (), swapped(tmp_path / "split")))
    program = {"name": "one", "measures": "it", "attach": [{"point": "raw_tracepoint:kfree_skb", "function": "one"}]}
    spec = {"probe": {"name": "x", "btf_modules": [MODULE]}, "programs": [program]}
    source = "int one(void *ctx) { struct list_head list = {}; return list.next == list.prev; }"
    answer = FarCompiler(ABOUT, Kernel(tmp_path, "its digest")).prepare(spec, source)["compiled"]
    assert isinstance(answer, dict)
    why = f"list_head is there several times, with different members, in the types of vmlinux, {MODULE}"
    assert (answer["state"], answer["why"]) == ("unsupported", f"the kernel's types cannot be used: {why}")


def test_bcc_is_named_where_it_is_what_is_missing(
    tmp_path: Path, vmlinux: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry(tmp_path, made(vmlinux))
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nexec /usr/bin/python3 -S "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("NETCONSOLE_PYTHON", str(python))
    monkeypatch.setattr(source_names, "bcc_libraries", list)
    state, said, help = told(tmp_path)
    assert (state, said.partition(":")[0]) == ("unsupported", "BCC is not installed for /usr/bin/python3")
    assert "python3-bpfcc" in help
