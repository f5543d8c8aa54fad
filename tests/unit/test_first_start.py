"""The single executable file: it unpacks once, only to what is the user's alone, and says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tools import dist, first_start

LIMIT_S = 60.0
TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}"
PROGRAM = b"""
import sys, one_python
def main():
    print("ran", sys.argv[1:], one_python.WHICH, __file__)
    return 0
"""
NOBODY = 65534


def tree(which: str) -> dict[str, bytes]:
    return {
        "netconsole/__init__.py": b"",
        "netconsole/cli/__init__.py": b"",
        "netconsole/cli/start.py": PROGRAM,
        "one_python.py": f"WHICH = {which!r}\n".encode(),
    }


def made(place: Path, *tags: str) -> Path:
    file = place / "netconsole.pyz"
    trees = {tag: tree(tag) for tag in tags} | {"cp399": tree("another")}
    file.write_bytes(dist.archive(trees, os.uname().machine, "netconsole-9"))
    return file


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    return cache


def start(file: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {"XDG_CACHE_HOME": str(cache), "PATH": "/usr/bin:/bin", "HOME": str(cache / "home")}
    as_in_terminal = ["/usr/bin/env", "--default-signal=INT"]  # a background job of a shell ignores it
    return subprocess.run(
        [*as_in_terminal, sys.executable, str(file), "a", "b"],
        env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip


def unpacked(cache: Path) -> list[str]:
    place = cache / "netconsole/app"
    return sorted(path.name for path in place.iterdir()) if place.exists() else []


def test_it_unpacks_once_what_this_python_needs_and_says_so(tmp_path: Path, cache: Path) -> None:
    file = made(tmp_path, TAG)
    first, second = start(file, cache), start(file, cache)
    (name,) = unpacked(cache)
    assert first.returncode == second.returncode == 0, first.stderr
    assert f"ran ['a', 'b'] {TAG} {cache}/netconsole/app/{name}/netconsole/cli/start.py" in first.stdout
    assert f"unpacking 0 MB to {cache}/netconsole/app/{name} (only once)" in first.stderr and second.stderr == ""
    assert name.startswith("netconsole-9-") and name.endswith(TAG)
    assert sorted(path.name for path in cache.iterdir()) == ["netconsole"]
    for path in (cache / "netconsole").rglob("*"):
        assert path.lstat().st_mode & 0o077 == 0 or "__pycache__" in str(path), path


def test_ctrl_c_prints_no_traceback(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupts = {**tree(TAG), "netconsole/cli/start.py": b"import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"}
    file = tmp_path / "netconsole.pyz"
    file.write_bytes(dist.archive({TAG: interrupts, "cp399": tree("another")}, os.uname().machine, "netconsole-9"))
    done = start(file, cache)
    assert done.returncode == -signal.SIGINT and "Traceback" not in done.stderr
    monkeypatch.setattr(zipfile, "ZipFile", interrupted)
    with pytest.raises(SystemExit) as ended:
        first_start.main()
    assert ended.value.code == 130


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_another_content_has_another_place(tmp_path: Path, cache: Path) -> None:
    start(made(tmp_path, TAG), cache)
    start(made(tmp_path, TAG, "cp398"), cache)
    assert len(unpacked(cache)) == 2


def test_several_starts_at_once_leave_one(tmp_path: Path, cache: Path) -> None:
    file = made(tmp_path, TAG)
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: start(file, cache), range(4)))
    assert [one.returncode for one in done] == [0] * 4, done
    assert len(unpacked(cache)) == 1


def test_a_python_that_it_has_nothing_for_is_told_so(tmp_path: Path, cache: Path) -> None:
    done = start(made(tmp_path), cache)
    assert done.returncode == 3 and "this file is for CPython 3.99, and this is CPython 3." in done.stderr
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(("inner", "mode"), [("", 0o777), ("netconsole", 0o777), ("netconsole/app", 0o770)])
def test_what_others_may_write_is_not_used(tmp_path: Path, cache: Path, inner: str, mode: int) -> None:
    (cache / "netconsole/app").mkdir(mode=0o700, parents=True)
    (cache / inner).chmod(mode)
    refused(start(made(tmp_path, TAG), cache), cache, "can be written by others")


@pytest.mark.parametrize("inner", ["netconsole", "netconsole/app"])
def test_a_link_is_not_followed(tmp_path: Path, cache: Path, inner: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (cache / inner).parent.mkdir(exist_ok=True, mode=0o700)
    (cache / inner).symlink_to(tmp_path / "elsewhere")
    refused(start(made(tmp_path, TAG), cache), cache, "is a link or a file")
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a directory to another user")
def test_what_belongs_to_another_user_is_not_used(tmp_path: Path, cache: Path) -> None:
    for path in (cache / "netconsole", cache / "netconsole/app"):
        path.mkdir(mode=0o755)
        os.chown(path, NOBODY, NOBODY)
    refused(start(made(tmp_path, TAG), cache), cache, "belongs to another user")


def test_a_damaged_file_is_one_line(tmp_path: Path, cache: Path) -> None:
    whole, damaged = zipfile.ZipFile(made(tmp_path, TAG)), tmp_path / "damaged.pyz"
    with zipfile.ZipFile(damaged, "w") as archive:
        for name in whole.namelist():
            archive.writestr(name, b"{" if name == "about.json" else whole.read(name))
    done = start(damaged, cache)
    assert done.returncode == 2 and "damaged" in done.stderr and len(done.stderr.splitlines()) == 1


def refused(done: subprocess.CompletedProcess[str], cache: Path, why: str) -> None:
    """One line says why, and nothing was unpacked."""
    assert done.returncode == 3 and done.stdout == ""
    assert why in done.stderr and "XDG_CACHE_HOME" in done.stderr and len(done.stderr.splitlines()) == 1
    assert unpacked(cache) == []
