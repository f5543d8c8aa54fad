"""tools/setup.sh installs what a purpose needs, and only what is missing. What it runs is made up here."""

from __future__ import annotations

import os
import shutil
import subprocess
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
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in REAL:
        (commands / name).symlink_to(shutil.which(name) or name)
    asked = tmp_path / "asked"
    for name in ("apt-get", "sudo", *(["qemu-system-aarch64"] if has_emulator else [])):
        script(commands / name, f'#!/bin/sh\nfor one; do echo "$one"; done >>{asked}\n')
    script(tmp_path / "python", PYTHON)
    (tmp_path / "tools").mkdir()
    shutil.copy(SETUP, tmp_path / "tools")
    environment = {"PATH": os.fspath(commands), "PYTHON": os.fspath(tmp_path / "python")}
    result = subprocess.run(
        ["sh", "tools/setup.sh", purpose], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    words = asked.read_text("utf-8").split() if asked.exists() else []
    assert ("qemu-system-arm" in words) == is_installed
    assert ("qemu-system-x86" in words) == (purpose != "run")
    ready = {one.name.removeprefix(".ready-") for one in (tmp_path / ".venv").glob(".ready-*")}
    assert ready == {"run": {"run"}, "test": {"run", "test"}, "lab": {"run", "test", "lab"}}[purpose]


def script(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")
    path.chmod(0o755)
