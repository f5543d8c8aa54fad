"""Which modules lack types, and the commands that make them."""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path
from typing import Any

import pytest

from netconsole.cli import main
from netconsole.cli.options import BAD_USAGE
from netconsole_collector.compile import type_files
from netconsole_collector.types import btf, copied_types

RELEASE = "5.10.0-32-amd64"
SPEC = {
    "probe": {"btf_modules": ["openvswitch", "vhost-net", "bridge"]},
    "programs": [{"attach": [{"point": "entry:ovs_execute_actions", "when": "NARGS_ovs_meter_execute"}]}],
    "tables": {},
}
BUILD_IDS = {"openvswitch": "0a", "vhost_net": "0b", "bridge": "0c"}


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """For another kernel, of whose modules only bridge has types."""
    monkeypatch.setattr(copied_types, "DIRECTORY", str(tmp_path / "carried"))
    (tmp_path / "btf").mkdir()
    for name in ("vmlinux", "bridge"):
        (tmp_path / "btf" / name).write_bytes(name.encode())
    vmlinux = tmp_path / "btf" / "vmlinux"
    there = {"release": RELEASE, "modules": [*BUILD_IDS], "build_ids": BUILD_IDS}
    return {"source": "struct vport *port;", "btf": str(vmlinux), **there}


def carry(tmp_path: Path, name: str, build_id: str, *left_out: str) -> Path:
    digest = hashlib.sha256(b"vmlinux").hexdigest()
    path = tmp_path / "carried" / RELEASE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {"release": RELEASE, "module": name, "build_id": build_id, "vmlinux": digest}
    path.write_bytes(copied_types.sealed(about, left_out, b"types"))
    path.chmod(0o600)
    return path


def test_a_loaded_module_without_types_lacks_them_until_they_are_carried_here(
    tmp_path: Path, job: dict[str, Any]
) -> None:
    assert type_files.lacking(SPEC, type_files.of(job, SPEC)) == ["openvswitch", "vhost_net"]
    path = carry(tmp_path, "openvswitch", BUILD_IDS["openvswitch"])
    assert type_files.lacking(SPEC, type_files.of(job, SPEC)) == ["vhost_net"]
    assert type_files.of(job, SPEC)[2:] == [str(path)]


def test_types_of_another_build_of_a_far_module_are_refused(tmp_path: Path, job: dict[str, Any]) -> None:
    carry(tmp_path, "openvswitch", "0f")
    with pytest.raises(btf.BtfError, match="another build of this module"):
        type_files.of(job, SPEC)


@pytest.mark.parametrize("name", ["vport", "ovs_execute_actions", "ovs_meter_execute"])
def test_types_that_lack_what_the_probe_names_are_refused(tmp_path: Path, job: dict[str, Any], name: str) -> None:
    """In its source, as an attach point, or as what has to be there."""
    carry(tmp_path, "openvswitch", BUILD_IDS["openvswitch"], name)
    with pytest.raises(
        copied_types.UnusableTypes, match=f"this file lacks {name}, which netconsole reads now: make the file anew"
    ):
        type_files.of(job, SPEC)


def test_what_is_not_loaded_there_is_absent_and_needs_no_types(tmp_path: Path, job: dict[str, Any]) -> None:
    carry(tmp_path, "vhost_net", "0f")
    there = {"modules": ["bridge", "openvswitch"], "build_ids": {"bridge": "0c", "openvswitch": ""}}
    assert type_files.absent({**job, **there}, SPEC) == ["vhost-net"]
    assert len(type_files.of({**job, **there}, SPEC)) == 2


def test_a_kernel_without_types_has_those_that_were_made_for_it(tmp_path: Path, job: dict[str, Any]) -> None:
    """And its modules are bound to that file."""
    job |= {"btf": str(tmp_path / "none" / "vmlinux"), "symbols": "5e7"}
    job["build_ids"] = {**BUILD_IDS, copied_types.KERNEL: "0d"}
    assert type_files.of(job, SPEC) == []
    kernel = tmp_path / "carried" / RELEASE / copied_types.KERNEL
    kernel.parent.mkdir(parents=True)
    about = {"release": RELEASE, "module": copied_types.KERNEL, "build_id": "0d", "symbols": "5e7"}
    kernel.write_bytes(copied_types.sealed(about, (), b"types"))
    kernel.chmod(0o600)
    module = carry(tmp_path, "openvswitch", BUILD_IDS["openvswitch"])
    with pytest.raises(copied_types.UnusableTypes, match="whose own types differ"):
        type_files.of(job, SPEC)
    its = {"release": RELEASE, "module": "openvswitch", "build_id": BUILD_IDS["openvswitch"]}
    digest = hashlib.sha256(kernel.read_bytes()).hexdigest()
    module.write_bytes(copied_types.sealed({**its, "vmlinux": digest}, (), b"types"))
    files = type_files.of(job, SPEC)
    assert files == [str(kernel), str(module)]
    assert not type_files.are_own(job, files)
    with pytest.raises(copied_types.UnusableTypes, match="whose symbols differ"):
        type_files.of({**job, "symbols": "5e8"}, SPEC)


def test_types_that_were_made_for_a_kernel_do_not_take_the_place_of_its_own(
    tmp_path: Path, job: dict[str, Any]
) -> None:
    carry(tmp_path, copied_types.KERNEL, "0d")
    files = type_files.of(job, SPEC)
    assert files == [job["btf"], str(tmp_path / "btf" / "bridge")] and type_files.are_own(job, files)


def commands(job: dict[str, Any]) -> list[str]:
    lines = type_files.how_to_make(job).splitlines()
    return [line.strip() for line in lines if line.startswith(type_files.COMMAND)]


@pytest.mark.parametrize("release", [RELEASE, "4.18.0-305.el8.x86_64", "5.8.15-301.fc33.x86_64"])
def test_the_command_line_takes_the_command_that_is_said(
    release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It gets as far as looking into the directory, which is empty."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "debug").mkdir()
    (said,) = (line for line in commands({"release": release}) if line.startswith("netconsole "))
    assert main.run(shlex.split(said)[1:]) == BAD_USAGE
    found = "debug: no vmlinux and no module that a probe names is below this directory"
    assert capsys.readouterr().err == f"netconsole: {found}\n"


def test_each_command_is_a_line_of_its_own_for_this_kernel(job: dict[str, Any]) -> None:
    assert commands(job) == [
        f"apt download linux-image-{RELEASE}-dbg",
        f"dpkg -x linux-image-{RELEASE}-dbg_*.deb debug",
        "netconsole types make debug",
        f"sudo install -Dm644 -t {copied_types.DIRECTORY}/{RELEASE} {RELEASE}/*",
    ]
    help = type_files.how_to_make(job)
    assert "pahole 1.22 or newer (Debian 12: package dwarves)" in help and "may be run on the host" in help
    assert f"Carry the directory {RELEASE} to the host, and there:" in help
    assert "to the machine where the console runs, and there:" in type_files.how_to_make({**job, "btf_digest": "x"})


def test_systems_with_dnf_have_commands_of_their_own() -> None:
    release = "4.18.0-305.el8.x86_64"
    fetch = commands({"release": release})[:3]
    assert fetch == [
        f"dnf download --enablerepo='*debug*' kernel-debuginfo-{release}",
        "mkdir debug",
        f"rpm2cpio kernel-debuginfo-{release}.rpm | cpio -idm -D debug",
    ]
    assert "dnf's lines have not been run" in type_files.how_to_make({"release": release})
