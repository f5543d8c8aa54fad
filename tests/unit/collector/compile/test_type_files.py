"""Which modules lack types, and the commands that make them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from netconsole_collector.compile import type_files
from netconsole_collector.types import btf, carried

RELEASE = os.uname().release
SPEC = {"probe": {"btf_modules": ["openvswitch", "vhost-net", "bridge"]}, "tables": {}}


@pytest.fixture(autouse=True)
def own_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the kernel's modules only bridge has types."""
    (tmp_path / "btf").mkdir()
    (tmp_path / "btf" / "bridge").touch()
    monkeypatch.setattr(btf, "module_paths", lambda names: [str(tmp_path / "btf" / n) for n in names if n == "bridge"])


def test_a_loaded_module_without_types_lacks_them_until_they_are_carried_here(tmp_path: Path) -> None:
    loaded = ["openvswitch", "vhost-net", "bridge"]
    assert type_files.lacking(SPEC, loaded, str(tmp_path)) == ["openvswitch", "vhost_net"]
    assert type_files.lacking(SPEC, ["openvswitch"], str(tmp_path)) == ["openvswitch"]
    carried_here = tmp_path / RELEASE
    carried_here.mkdir()
    (carried_here / "openvswitch").touch()
    assert type_files.lacking(SPEC, loaded, str(tmp_path)) == ["vhost_net"]


def test_the_commands_are_for_this_kernel_and_these_modules() -> None:
    said = type_files.how_to_make(["openvswitch", "vhost_net"])
    assert f"linux-image-{RELEASE}-dbg" in said
    assert f"netconsole types make --into {carried.DIRECTORY} " in said
    assert "modinfo -n openvswitch" in said
    assert "modinfo -n vhost_net" in said
