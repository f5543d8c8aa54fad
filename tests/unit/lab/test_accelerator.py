"""The lab gives each CPU a thread of QEMU's only where QEMU's threads can be trusted with code that changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.machine.accelerator import accelerator, version_of


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright (c) 2003-2022", (7, 2)),
        ("QEMU emulator version 8.1.0\n", (8, 1)),
        ("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)\n", (10, 0)),
        ("QEMU emulator version 9.2.50 (v9.2.0-1234-gabcdef)\n", (9, 2)),
        ("something else", (0, 0)),
    ],
)
def test_versions_are_read(said: str, version: tuple[int, int]) -> None:
    assert version_of(said) == version


@pytest.mark.parametrize(
    ("version", "thread"), [("7.2.22", "single"), ("8.0.5", "single"), ("8.1.0", "multi"), ("10.0.2", "multi")]
)
def test_a_qemu_whose_threads_race_gets_one_thread(tmp_path: Path, version: str, thread: str) -> None:
    qemu = tmp_path / "qemu"
    qemu.write_text(f"#!/bin/sh\necho QEMU emulator version {version}\n")
    qemu.chmod(0o755)
    assert accelerator(str(qemu)) == f"tcg,thread={thread}"
