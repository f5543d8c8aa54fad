"""Every shipped probe compiles for the kernels of the lab, from their BTF alone; nothing of it is loaded here."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from netconsole.base.paths import SYSTEM_PYTHON
from netconsole_collector.compile.compiled import CAST, PLAIN, Compiled
from netconsole_collector.compile.job import CompileJob
from netconsole_collector.kernel import attach, function_hooks
from netconsole_collector.types import btf, copied_types, prototypes
from tests.lab.kernels import stored
from tests.lab.kernels.btf import KernelBtf, btf_files
from tests.lab.kernels.compiled import Load, compile_for, shipped
from tests.lab.kernels.each import COMPILED_FOR, TYPES, USUAL, types_of
from tests.lab.kernels.fetch import fetch, kernel_named
from tests.lab.machine.errors import LabUnavailable

pytestmark = pytest.mark.computing

SHIPPED = shipped()


@pytest.fixture(scope="module")
def types(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> KernelBtf:
    return types_of(request.param, tmp_path_factory.mktemp("types"))


@pytest.mark.parametrize("types", TYPES, indirect=True)
@pytest.mark.parametrize("probe", SHIPPED)
def test_a_shipped_probe_compiles_for_the_lab_s_kernels(probe: str, types: KernelBtf) -> None:
    """With the fewest calls of helpers that the kernel allows: from 6.2 on, none that reads a structure.

    The lab loads what is compiled here, and whoever comes first compiles it.
    """
    command = SHIPPED[probe]
    typed = compiled_for(types, command)
    assert typed.way == CAST if typed.rdonly_cast else typed.way != CAST
    for program in command["spec"]["programs"]:
        has_function = any(one["function"] in typed.functions for one in program["attach"])
        assert has_function or is_left_out(program, typed), program["name"]


@pytest.mark.parametrize("types", TYPES, indirect=True)
def test_the_bit_of_merged_packets_is_where_socket_drops_reads_it(types: KernelBtf) -> None:
    """The fourth one of the byte after encap_type: a bit-field has no name that a probe could read."""
    whole = btf.Btf(str(types.vmlinux), [str(path) for path in types.modules.values()])
    record = whole.record("udp_sock")
    assert record is not None
    places = {member.name: member.bit_offset for member in whole.members(record)}
    assert "udp_flags" in places or places["gro_enabled"] == places["encap_type"] + 8 + 3


@pytest.mark.long
@pytest.mark.parametrize("types", USUAL, indirect=True)
@pytest.mark.parametrize("probe", SHIPPED)
def test_and_without_programs_of_a_type(probe: str, types: KernelBtf) -> None:
    """By helpers alone, for a verifier that refuses the others; for one kernel: all of them are the same source."""
    assert compiled_for(types, SHIPPED[probe], plain=True).way == PLAIN


@pytest.mark.long
@pytest.mark.parametrize("types", COMPILED_FOR, indirect=True)
@pytest.mark.parametrize("probe", SHIPPED)
def test_stored_types_make_the_same_programs_as_whole_ones(
    probe: str, types: KernelBtf, stored_anew: KernelBtf
) -> None:
    """Byte by byte. The checkout's file may be of an earlier package: this one is made of the same."""
    command = SHIPPED[probe]
    assert compiled_for(stored_anew, command) == compiled_for(types, command)


@pytest.fixture(scope="module")
def stored_anew(types: KernelBtf, tmp_path_factory: pytest.TempPathFactory) -> KernelBtf:
    file = tmp_path_factory.mktemp("file") / f"{types.kernel}{stored.SUFFIX}"
    stored.store(types, file)
    return stored.unpacked(file, tmp_path_factory.mktemp("types"))


@pytest.mark.parametrize("types", COMPILED_FOR, indirect=True)
def test_stored_types_are_all_that_probes_name(types: KernelBtf) -> None:
    """As far as this kernel has them."""
    whole = btf.Btf(str(types.vmlinux), [str(path) for path in types.modules.values()])
    names = stored.names_to_keep()
    missing = {
        kernel.name: lacking
        for kernel in stored.kernels()
        if (lacking := [one for one in names - stored.names_in(stored.file_of(kernel.name)) if is_a_type(whole, one)])
    }
    assert missing == {}, "make them anew: .venv/bin/python -m tests.lab.kernels.stored"


def is_a_type(kernel: btf.Btf, name: str) -> bool:
    """Or a function, tracepoint, or value of an enum."""
    kinds = (btf.STRUCT, btf.UNION, btf.ENUM, btf.ENUM64, btf.TYPEDEF, btf.FUNC)
    return bool(kernel.named(name, kinds) or kernel.named(f"btf_trace_{name}", kinds) or kernel.enums_with({name}))


@pytest.mark.parametrize(
    ("types", "machine", "first"),
    [(stored.file_of("debian-6.12"), "x86_64", 112), (stored.file_of("debian-6.12-arm64"), "aarch64", 0)],
    indirect=["types"],
)
def test_arguments_are_in_the_registers_of_the_kernel_that_is_compiled_for(
    types: KernelBtf, machine: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first instruction loads the first argument: x86's di, or arm64's x0 (struct pt_regs)."""
    code = compiled_for(types, SHIPPED["virtio_guest"]).functions["refilled"]
    monkeypatch.setattr(function_hooks, "MACHINE", machine)
    operation, _, offset, _ = struct.unpack_from("<BBhi", function_hooks.bound(code, "kprobe", 1))
    load = 0x79  # BPF_LDX | BPF_DW | BPF_MEM
    assert (operation, offset) == (load, first)


@pytest.mark.long
def test_types_made_for_probes_that_read_less_are_refused_with_the_commands(tmp_path: Path) -> None:
    """Modules of 5.10 have types only from a file. Its kernel's, but without what the probe reads of a port."""
    try:
        tree = fetch(kernel_named("debian-5.10"))
        types = btf_files(tree)
    except LabUnavailable as error:
        pytest.skip(str(error))
    seal, _, content = types.modules["openvswitch"].read_bytes().partition(b"\n")
    about = json.loads(seal[len(btf.SEAL) :])
    stale = tmp_path / tree.version / "openvswitch"
    stale.parent.mkdir()
    stale.write_bytes(copied_types.sealed(about, ["vport"], content))
    stale.chmod(0o600)
    job = {**SHIPPED["ovs_drops"], "cpus": 1, "ring": True, "compile_only": True, "carried": str(tmp_path)}
    shutil.copy(types.vmlinux, tmp_path)  # no types of modules lie beside it
    job |= {"btf": str(tmp_path / "vmlinux"), "release": tree.version, "modules": ["openvswitch"]}
    job["build_ids"] = {"openvswitch": about["build_id"]}
    answer = CompileJob(job, SYSTEM_PYTHON).wait()
    why = (
        f"the kernel's types cannot be used: {stale}: this file lacks vport, which netconsole reads now:"
        " make the file anew"
    )
    assert (answer["ok"], answer["state"], answer["why"]) == (False, "unsupported", why)
    assert f"    apt download linux-image-{tree.version}-dbg\n" in answer["help"]
    assert "    netconsole types make debug\n" in answer["help"]


def compiled_for(types: KernelBtf, command: Load, *, plain: bool = False) -> Compiled:
    """Skips the test where nothing can be compiled."""
    try:
        return compile_for(types, command, plain=plain).programs
    except LabUnavailable as error:
        pytest.skip(str(error))


def is_left_out(program: dict[str, Any], compiled: Compiled) -> bool:
    """The probe does without it, and this kernel has none of the functions that it would watch."""
    expected = [prototypes.expected(attach.parse(one["point"]).name, one.get("takes", [])) for one in program["attach"]]
    return not program["required"] and all(one in compiled.misfits for one in expected)
