"""A kernel without BTF: types that were made for it give the same programs, and they run. Another kernel's do not."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netconsole.base.paths import SYSTEM_PYTHON
from netconsole.probes import catalogue, type_pruning
from netconsole_collector.compile.compiled import PLAIN, Compiled, decode
from netconsole_collector.compile.job import CompileJob
from netconsole_collector.kernel import attach, cpus
from netconsole_collector.types import btf, copied_types, kernel_symbols
from tests.lab.kernels.btf import btf_files, made_kernel
from tests.lab.kernels.compiled import shipped
from tests.lab.kernels.fetch import fetch, kernel_named
from tests.lab.machine.errors import LabUnavailable

PROBES = ("kernel_drops", "softirq_health")
RELEASE = os.uname().release
SHIPPED = shipped()


def answer_of(probe: str, **more: Any) -> dict[str, Any]:
    job = {**SHIPPED[probe], "cpus": cpus.nr_cpu_ids(), "ring": True, **more}
    answer = CompileJob(job, SYSTEM_PYTHON).wait()
    if answer["ok"]:
        for fd in [*answer["maps"].values(), *(one[key] for one in answer["programs"] for key in ("program", "link"))]:
            os.close(fd)
    return answer


def compiled(place: Path, probe: str, **more: Any) -> Compiled:
    answer = answer_of(probe, compile_only=True, keep_in=str(place), **more)
    assert answer["ok"], f"{answer['why']}\n{answer['detail']}"
    (kept,) = place.iterdir()
    return decode(kept.read_bytes().partition(b"\n")[2])


def assert_same(made: Compiled, own: Compiled) -> None:
    """But for what only the kernel itself can number."""
    facts = {name: value for name, value in own.facts.items() if not name.startswith("BTF_ID_")}
    assert (made.types, made.way, made.rdonly_cast) == ("made", PLAIN, 0)
    assert {target.id for target in made.targets.values()} == {0}
    assert made.functions == own.functions
    assert (made.maps, made.facts, made.misfits) == (own.maps, facts, own.misfits)
    assert made.drop_reasons == own.drop_reasons


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """This machine's kernel as if it had no BTF: what a job says of it. Its types are carried here."""
    symbols = kernel_symbols.here()
    if not symbols or not Path(btf.VMLINUX).exists():
        pytest.skip("cannot run here: this kernel has no BTF, or hides its symbols")
    whole = Path(btf.VMLINUX).read_bytes()
    names = type_pruning.names_read(map(catalogue.shipped, PROBES))
    types = type_pruning.pruned(None, whole, names)
    left_out = type_pruning.root_names(None, whole) - type_pruning.root_names(None, types)
    about = {"release": RELEASE, "module": copied_types.KERNEL, "build_id": copied_types.kernel_build_id_here()}
    path = tmp_path / "carried" / RELEASE / copied_types.KERNEL
    path.parent.mkdir(parents=True)
    path.write_bytes(copied_types.sealed({**about, "symbols": symbols}, left_out, types, names))
    path.chmod(0o644)
    yield {
        "btf": str(tmp_path / "none" / "vmlinux"),
        "carried": str(tmp_path / "carried"),
        "release": RELEASE,
        "build_ids": {copied_types.KERNEL: about["build_id"]},
        "symbols": symbols,
        "modules": [],
    }


@pytest.mark.starting
@pytest.mark.parametrize("probe", PROBES)
def test_the_programs_are_the_same_and_the_kernel_takes_them(probe: str, bare: dict[str, Any], tmp_path: Path) -> None:
    made = compiled(tmp_path / "made", probe, **bare)
    assert_same(made, compiled(tmp_path / "own", probe, modules=[], plain=True))
    answer = answer_of(probe, **bare)
    assert answer["ok"], f"{answer['why']}\n{answer['detail']}"
    attached = [attach.parse(one["attach"]).kind for one in answer["programs"]]
    assert answer["types"] == "made" and attached and not set(attached) & set(attach.TYPED)


@pytest.mark.computing
@pytest.mark.parametrize(
    ("there", "why"),
    [
        ({"symbols": "5e7"}, "this file is for another build of this kernel, whose symbols differ"),
        ({"build_ids": {copied_types.KERNEL: "c0ffee"}}, "this file is for another build of this kernel"),
        ({"symbols": ""}, "netconsole cannot tell whether this file is this kernel's"),
    ],
)
def test_types_of_another_kernel_are_refused_with_the_way_out(
    there: dict[str, Any], why: str, bare: dict[str, Any]
) -> None:
    answer = answer_of(PROBES[0], compile_only=True, **{**bare, **there})
    path = Path(bare["carried"]) / RELEASE / copied_types.KERNEL
    assert answer["why"].startswith(f"the kernel's types cannot be used: {path}: {why}")
    assert answer["state"] == "unsupported" and "    netconsole types make debug" in answer["help"]


@pytest.mark.computing
def test_without_any_types_both_ways_out_are_said(tmp_path: Path, bare: dict[str, Any]) -> None:
    release = "4.19.0-27-amd64"
    answer = answer_of(PROBES[0], compile_only=True, **{**bare, "release": release, "headers": None})
    assert answer["why"] == "the kernel has no BTF, and neither types that were made for it nor its headers are here"
    assert f"install its headers: linux-headers-{release} (Debian, Ubuntu), kernel-devel-{release}" in answer["help"]
    assert f"    apt download linux-image-{release}-dbg\n" in answer["help"]


@pytest.mark.long
@pytest.mark.computing
@pytest.mark.parametrize("probe", SHIPPED)
def test_from_the_debug_package_of_5_10_as_from_its_own_types(probe: str, tmp_path: Path) -> None:
    """Offsets, functions and facts are all in the programs. Another pahole made its own types, with the kernel."""
    try:
        tree = fetch(kernel_named("debian-5.10"))
        own, made = btf_files(tree), made_kernel(tree)
    except LabUnavailable as error:
        pytest.skip(f"cannot run here: {error}")
    lines = {path.name: json.loads(path.read_bytes().partition(b"\n")[0][len(btf.SEAL) :]) for path in made.iterdir()}
    there = {
        "btf": str(tmp_path / "none" / "vmlinux"),
        "carried": str(made.parent),
        "build_ids": {name: line["build_id"] for name, line in lines.items()},
        "symbols": lines[copied_types.KERNEL]["symbols"],
    }
    known = {"release": tree.version, "modules": sorted(own.modules)}
    by_own = compiled(tmp_path / "own", probe, btf=str(own.vmlinux), plain=True, **known)
    assert_same(compiled(tmp_path / "made", probe, **there, **known), by_own)
