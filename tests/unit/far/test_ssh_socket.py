"""The socket of ssh is where only this user can make files, and has no directory of its own that could stay."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from netconsole.base.errors import Unable
from netconsole.far import ssh


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime directory and a cache with short names: a socket's path is bounded."""
    with tempfile.TemporaryDirectory() as root:
        monkeypatch.setenv("XDG_RUNTIME_DIR", f"{root}/run")
        monkeypatch.setenv("XDG_CACHE_HOME", f"{root}/cache")
        Path(root, "run").mkdir(mode=0o700)
        yield Path(root)


def test_it_is_in_the_runtime_directory(place: Path) -> None:
    path = ssh._socket_path()
    assert path.parent == place / "run" and not path.exists()


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o1777])
def test_where_others_can_write_it_is_not(mode: int, place: Path) -> None:
    (place / "run").chmod(mode)
    assert ssh._socket_path().parent == place / "cache" / "netconsole"


@pytest.mark.parametrize("depth", [(ssh._LONGEST_PATH, False), (ssh._LONGEST_PATH + 1, True)])
def test_a_path_that_a_socket_cannot_have_is_not_taken(
    depth: tuple[int, bool], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, is_refused = depth
    name = f"{ssh._PREFIX}{os.getpid()}-0000"
    long = place / ("x" * (size - len(str(place)) - len(name) - 2))
    long.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    assert (ssh._socket_path().parent != long) is is_refused


def test_no_such_place_is_said(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "_LONGEST_PATH", 0)
    with pytest.raises(Unable, match="set XDG_RUNTIME_DIR"):
        ssh._socket_path()


def test_sockets_of_consoles_that_have_gone_are_removed(place: Path) -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    old, other = place / "run" / f"netconsole-ssh-{gone.pid}-0a.tmp", place / "run" / "netconsole-ssh-notes"
    for path in (old, other):
        path.touch()
    ssh._socket_path()
    assert not old.exists() and other.exists()
