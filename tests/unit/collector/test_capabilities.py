"""What `doctor` says of the types of a kernel without BTF, and how BCC is looked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from netconsole.base import paths
from netconsole_collector import capabilities
from netconsole_collector.types import btf, copied_types, kernel_symbols, real_headers


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where types of this machine's kernel are looked for, as if it had none."""
    monkeypatch.setattr(btf, "VMLINUX", str(tmp_path / "none"))
    monkeypatch.setattr(copied_types, "DIRECTORY", str(tmp_path))
    monkeypatch.setattr(copied_types, "kernel_build_id_here", lambda: "c0ffee")
    monkeypatch.setattr(kernel_symbols, "here", lambda: "5e7")
    monkeypatch.setattr(real_headers, "installed", lambda: None)
    path = tmp_path / os.uname().release / copied_types.KERNEL
    path.parent.mkdir()
    return path


def carry(path: Path, symbols: str) -> None:
    about = {"release": os.uname().release, "module": copied_types.KERNEL, "build_id": "c0ffee", "symbols": symbols}
    path.write_bytes(copied_types.sealed(about, (), b"types"))
    path.chmod(0o644)


def test_types_that_were_made_for_this_kernel_do(made: Path) -> None:
    carry(made, "5e7")
    assert capabilities._btf() == {"ok": True, "why": f"the kernel has no BTF; netconsole uses the types in {made}"}


def test_those_of_another_one_do_not_and_are_named(made: Path) -> None:
    carry(made, "5e8")
    why = f"the kernel has no BTF, and {made}: this file is for another build of this kernel, whose symbols differ"
    assert capabilities._btf() == {"ok": False, "why": why}


def test_without_any(made: Path) -> None:
    assert capabilities._btf()["ok"] is False


def test_this_interpreter_looks_for_bcc_without_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "run", refuse)
    assert capabilities.bcc(sys.executable, is_thorough=False)["why"]
    with pytest.raises(AssertionError, match="a process was started"):
        capabilities.bcc(sys.executable, is_thorough=True)


def test_the_collector_finds_bcc_where_its_workers_do() -> None:
    """It runs without site packages, and what it says decides which probes are offered to be started."""
    look = """
import sys
from netconsole.base import paths
from netconsole_collector import capabilities
print([capabilities.bcc(sys.executable, is_thorough)["ok"] for is_thorough in (False, True)])
"""
    command = paths.program_command("")
    python, options = command[0], command[1 : command.index("-c")]
    code = f"import sys; sys.path.insert(0, {str(paths.collector_package().parent)!r})\n{look}"
    done = subprocess.run([python, *options, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("[True, True]", "[False, False]")
