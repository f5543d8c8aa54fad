"""Files are written whole or not at all, private, and a failure is one line that leaves everything as it was."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from netconsole.base.errors import BadInput
from netconsole.base.files import try_whole, write_whole
from netconsole.base.readers import stat_of


def test_a_file_is_private_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for content in (b"first", b"second, longer"):
        write_whole(path, content)
        assert path.read_bytes() == content
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_whole(tmp_path / "link", b"x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"x"


def test_what_is_no_regular_file_is_written_to_as_it_is() -> None:
    write_whole(Path("/dev/null"), b"x")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "is a directory"),
        ("missing/a.json", "no such file or directory"),
        ("x" * 300, "file name too long"),
        ("a\0b", "null"),
        ("file/a.json", "not a directory"),
    ],
)
def test_a_place_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("there")
    with pytest.raises(BadInput, match=message) as caught:
        write_whole(Path(name), b"x")
    assert len(str(caught.value).splitlines()) == 1
    if "\0" not in name:  # no command line can have it
        with pytest.raises(BadInput, match=message):
            try_whole(Path(name))
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("unnamed", [True, False])
def test_trying_changes_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unnamed: bool) -> None:
    if not unnamed:
        monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)
    (tmp_path / "a").write_text("there")
    (tmp_path / "link").symlink_to("b")
    os.mkfifo(tmp_path / "pipe")
    for name in ("a", "new", "link", "pipe"):
        try_whole(tmp_path / name)
    assert (tmp_path / "a").read_text() == "there"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a", "link", "pipe"]


def test_trying_finds_where_nobody_may_make_a_file() -> None:
    with pytest.raises(BadInput, match=r"/proc/q\.json: cannot write: "):
        try_whole(Path("/proc/q.json"))


def test_without_unnamed_files_it_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)  # what a file system without them answers with: an error
    write_whole(tmp_path / "a", b"1")
    write_whole(tmp_path / "a", b"2")
    assert (tmp_path / "a").read_bytes() == b"2"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_full_disk_leaves_the_previous_file_untouched(tiny: Path) -> None:
    write_whole(tiny / "a", b"before")
    with pytest.raises(BadInput, match="no space left on device"):
        write_whole(tiny / "a", bytes(1024 * 1024))
    assert (tiny / "a").read_bytes() == b"before"
    assert [entry.name for entry in tiny.iterdir()] == ["a"]


def test_a_read_only_place_is_one_line(tiny: Path) -> None:
    write_whole(tiny / "a", b"before")
    subprocess.run(["mount", "-o", "remount,ro", str(tiny)], check=True)
    with pytest.raises(BadInput, match="read-only file system"):
        write_whole(tiny / "a", b"after")
    for name in ("a", "b"):
        with pytest.raises(BadInput, match="read-only file system"):
            try_whole(tiny / name)
    assert (tiny / "a").read_bytes() == b"before"


WRITER = """
import os, sys
from collections.abc import Iterator
from pathlib import Path
from netconsole.base import files
write = os.write
def slow(descriptor, view):
    n = write(descriptor, view[:4096])
    write(1, b".")
    return n
os.write = slow
files.write_whole(Path(sys.argv[1]), bytes(64 * 1024 * 1024))
"""


@pytest.mark.parametrize("chunks", [1, 7, 100])
def test_kill_9_while_writing_leaves_the_previous_file_and_no_other(tmp_path: Path, chunks: int) -> None:
    path = tmp_path / "a"
    write_whole(path, b"before")
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert len(writer.stdout.read(chunks)) == chunks
        writer.send_signal(signal.SIGKILL)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_looked_at_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("there")
    assert stat_of(tmp_path / "file") is not None
    assert stat_of(tmp_path / "none") is None and stat_of(tmp_path / "file" / "none") is None
    for name in ("x" * 300, "a\0b"):
        with pytest.raises(BadInput, match=r"too long|null"):
            stat_of(tmp_path / name)
