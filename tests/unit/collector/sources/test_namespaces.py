"""Network namespaces that come and go: their names, which are entered, and what happens where one fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from netconsole_collector.primitives.here import Here
from netconsole_collector.sources.namespaces import MAX_NAMESPACES, OpenNamespaces

NOTHING: Any = None


class Thing:
    """What is opened in a namespace."""

    def __init__(self, inside: Any) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


class Host(Here):
    """A made-up /run/netns and /proc. Namespaces are files: their inodes are as good as the kernel's."""

    def __init__(self, tmp_path: Path, errors: Sequence[int] = ()) -> None:
        super().__init__(tmp_path)
        self.directory, self.proc = tmp_path / "run/netns", tmp_path / "proc"
        self.directory.mkdir(parents=True)
        self.process("self")
        os.link(self.proc / "self/ns/net", self.proc / "init")
        (self.proc / "1/ns").mkdir(parents=True)
        os.link(self.proc / "init", self.proc / "1/ns/net")
        self.entered: list[str] = []
        self.root = tmp_path
        self.errors = list(errors)
        self.namespaces = OpenNamespaces(Thing, self)
        self.namespaces.open()

    def process(self, pid: str) -> int:
        """A process with a namespace of its own; the inode."""
        path = self.proc / pid / "ns/net"
        path.parent.mkdir(parents=True)
        path.touch()
        return path.stat().st_ino

    def end(self, pid: str) -> None:
        (self.proc / pid / "ns/net").unlink()

    def seen(self) -> list[str]:
        self.namespaces._search_at = 0.0  # as if its time had come
        with self.namespaces.held() as held:
            assert all(one.thing.is_open for one in held)
            return [one.name for one in held]

    def own_namespace(self) -> Any:
        return NOTHING

    def inside(self, namespaces: Sequence[tuple[str, int]]) -> list[Any]:
        made: list[Any] = []
        for path, inode in namespaces:
            self.entered.append(path)
            assert Path(f"{self.root}{path}").stat().st_ino == inode
            made.append(OSError(self.errors.pop(0), "") if self.errors else NOTHING)
        return made


def test_namespaces_are_called_as_ip_netns_calls_them_and_followed(tmp_path: Path) -> None:
    host = Host(tmp_path)
    assert host.seen() == ["host"]
    (host.directory / "blue").touch()
    os.mkfifo(host.directory / "[red]\n", 0o600)  # whatever lies there: the kernel decides
    os.close(os.open(os.fsencode(host.directory) + b"/\xff", os.O_CREAT | os.O_WRONLY))
    inode = host.process("77")
    assert set(host.seen()) == {"host", "blue", "[red]\n", "\\xff", str(inode)}
    (host.directory / "blue").unlink()
    host.end("77")
    assert set(host.seen()) == {"host", "[red]\n", "\\xff"}
    assert len(host.entered) == 4, "each was entered once"
    host.namespaces.close()


def test_a_namespace_that_has_a_name_and_processes_is_one(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.process("77")
    os.link(host.proc / "77/ns/net", host.directory / "blue")
    assert host.seen() == ["host", "blue"]
    (host.directory / "blue").unlink()
    inode = (host.proc / "77/ns/net").stat().st_ino
    assert host.seen() == ["host", str(inode)], "a process has it still"
    host.namespaces.close()


def test_who_may_not_enter_namespaces_does_not_go_on_trying(tmp_path: Path) -> None:
    host = Host(tmp_path, [errno.EPERM] * 9)
    (host.directory / "blue").touch()
    (host.directory / "red").touch()
    for _ in range(3):
        assert host.seen() == ["host"]
    assert len(host.entered) == 2 and host.namespaces.left_out == 0
    host.namespaces.close()


def test_a_namespace_that_cannot_be_opened_does_not_hide_another(tmp_path: Path) -> None:
    host = Host(tmp_path, [errno.EINVAL])
    (host.directory / "blue").touch()
    (host.directory / "red").touch()
    assert len(host.seen()) == 2
    host.namespaces.close()


def test_namespaces_that_are_too_many_are_counted(tmp_path: Path) -> None:
    host = Host(tmp_path)
    for index in range(MAX_NAMESPACES + 2):
        (host.directory / f"n{index}").touch()
    assert len(host.seen()) == MAX_NAMESPACES
    assert host.namespaces.left_out == 3
    host.namespaces.close()


def test_a_namespace_that_fails_is_opened_anew_and_the_others_go_on(tmp_path: Path) -> None:
    host = Host(tmp_path)
    (host.directory / "blue").touch()
    assert host.seen() == ["host", "blue"]
    with host.namespaces.held() as held:
        for one in held:
            host.namespaces.drop(one.thing)
        assert [one.thing.is_open for one in held] == [True, False]
    assert host.seen() == ["host", "blue"]
    assert len(host.entered) == 2
    host.namespaces.close()
