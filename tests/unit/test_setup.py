"""tools/setup.sh installs what a purpose needs, and only what is missing. What it runs is made up here."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[2] / "tools" / "setup.sh"
REAL = ("sh", "dirname", "id", "env", "touch", "rm", "mkdir", "cp")
PYTHON = """#!/bin/sh
[ "$2" = venv ] || exit 0
mkdir -p .venv/bin; cp "$0" .venv/bin/python; cp "$0" .venv/bin/pip
"""


@pytest.mark.parametrize(
    ("purpose", "has_emulator", "is_installed"),
    [("run", False, False), ("test", False, False), ("lab", False, True), ("lab", True, False)],
)
def test_the_emulator_of_arm64_is_for_the_lab_alone(
    tmp_path: Path, purpose: str, has_emulator: bool, is_installed: bool
) -> None:
    asked = tmp_path / "asked"
    result = set_up(tmp_path, purpose, ["apt-get", "sudo", *(["qemu-system-aarch64"] if has_emulator else [])], asked)
    assert result.returncode == 0, result.stderr
    words = asked.read_text("utf-8").split() if asked.exists() else []
    assert ("qemu-system-arm" in words) == is_installed
    assert ("qemu-system-x86" in words) == (purpose != "run")
    ready = {one.name.removeprefix(".ready-") for one in (tmp_path / ".venv").glob(".ready-*")}
    assert ready == {"run": {"run"}, "test": {"run", "test"}, "lab": {"run", "test", "lab"}}[purpose]


def test_on_a_system_of_rpm_packages_their_names_are_said_and_nothing_is_installed(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    result = set_up(tmp_path, "test", ["dnf", "sudo"], asked)
    assert result.returncode == 0, result.stderr
    said = result.stdout + result.stderr
    assert "missing: dnf install" in said and not asked.exists()
    assert {"iproute", "openvswitch", "qemu-system-x86", "xz"} <= set(said.split())
    assert not {"iproute2", "openvswitch-switch", "xz-utils"} & set(said.split())


def set_up(root: Path, purpose: str, has: Sequence[str], asked: Path) -> subprocess.CompletedProcess[str]:
    """On a system that has these commands. Whatever is asked of one of them is in the file ``asked``."""
    commands = root / "bin"
    commands.mkdir()
    for name in REAL:
        (commands / name).symlink_to(shutil.which(name) or name)
    for name in has:
        script(commands / name, f'#!/bin/sh\nfor one; do echo "$one"; done >>{asked}\n')
    script(root / "python", PYTHON)
    (root / "tools").mkdir()
    shutil.copy(SETUP, root / "tools")
    environment = {"PATH": os.fspath(commands), "PYTHON": os.fspath(root / "python")}
    return subprocess.run(
        ["sh", "tools/setup.sh", purpose], cwd=root, env=environment, capture_output=True, text=True, check=False
    )


def script(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")
    path.chmod(0o755)
