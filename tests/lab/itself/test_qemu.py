"""Which QEMU the lab uses: this machine's if its threads work correctly, else the backport, else a single thread."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.lab.kernels.archive import cache_dir
from tests.lab.kernels.qemu import PROGRAM, qemu
from tests.lab.machine.accelerator import SLOW, SOUND

pytestmark = pytest.mark.computing

SAYS = "#!/bin/sh\necho QEMU emulator version {}\n"
CONTROL = "Package: {}\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@invalid>\nDescription: test\n"
APT_GET = """#!/bin/sh
while [ "$1" ]; do
    case $1 in
    indextargets) echo "http://archive.invalid/debian sid-updates"; echo "http://archive.invalid/debian sid" ;;
    download)
        shift
        for package; do
            echo "$package" >>"$ARCHIVE/downloads"
            cp "$ARCHIVE/${package%%/*}.deb" . || exit 100
        done ;;
    esac
    shift
done
"""


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive with a backport of QEMU 10, on a machine with QEMU 7.2 and an empty cache."""
    programs, directory = tmp_path / "programs", tmp_path / "archive"
    directory.mkdir()
    executable(programs / "apt-get", APT_GET)
    executable(programs / PROGRAM, SAYS.format("7.2.22"))
    for package in ("qemu-system-x86", "qemu-system-data", "seabios"):
        content = tmp_path / package
        executable(content / "usr" / "share" / package / "file", "")
        if package == "qemu-system-x86":
            executable(content / "usr" / "bin" / PROGRAM, SAYS.format("10.0.2"))
        (content / "DEBIAN").mkdir()
        (content / "DEBIAN" / "control").write_text(CONTROL.format(package))
        archived = str(directory / f"{package}.deb")
        subprocess.run(["dpkg-deb", "-b", str(content), archived], check=True, capture_output=True)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("ARCHIVE", str(directory))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return directory


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def downloads(archive: Path) -> list[str]:
    path = archive / "downloads"
    return path.read_text().split() if path.exists() else []


def test_the_backport_is_fetched_once_where_threads_cannot_be_trusted(archive: Path) -> None:
    for _ in range(2):
        chosen = qemu.__wrapped__()
        assert Path(chosen.program) == cache_dir() / "qemu" / "tree" / "usr" / "bin" / PROGRAM
        assert chosen.accelerator == SOUND
        assert chosen.firmware[:2] == ("-L", str(cache_dir() / "qemu" / "tree" / "usr" / "share" / "qemu"))
    assert downloads(archive) == ["qemu-system-x86", "qemu-system-data", "seabios"]
    assert "http://archive.invalid/debian sid-backports main" in (cache_dir() / "apt/backports/sources").read_text()
    assert sorted(path.name for path in (cache_dir() / "qemu").iterdir()) == ["lock", "tree"]


def test_a_sound_one_is_taken_as_it_is(archive: Path) -> None:
    executable(archive.parent / "programs" / PROGRAM, SAYS.format("9.2.0"))
    chosen = qemu.__wrapped__()
    assert (chosen.program, chosen.firmware, chosen.accelerator) == (PROGRAM, (), SOUND)
    assert downloads(archive) == []


def test_without_a_network_one_thread_does(archive: Path) -> None:
    (archive / "seabios.deb").unlink()
    chosen = qemu.__wrapped__()
    assert (chosen.program, chosen.accelerator) == (PROGRAM, SLOW)
    assert [path.name for path in (cache_dir() / "qemu").iterdir()] == ["lock"]
