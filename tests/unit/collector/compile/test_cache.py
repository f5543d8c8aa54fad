"""Compiled programs are found again only as they were kept, by whom they belong to, and for what they were made."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import netconsole_collector
from netconsole_collector.compile import cache
from netconsole_collector.compile.compiled import CAST, AttachTarget, Compiled, decode, encode, with_maps
from netconsole_collector.compile.worker import Worker
from netconsole_collector.kernel import bpf_maps
from netconsole_collector.types import btf, source_names

NAME = "ab" * 32
LOAD_MAP = bytes([0x18, 0x11, 0, 0, 1, 0, 0, 0]) + bytes(8)
"""r1 = the map whose number is 1."""
LOAD_NUMBER = bytes([0x18, 0x01, 0, 0, 1, 0, 0, 0]) + bytes(8)
"""r1 = 1."""
EXIT = bytes([0x95, 0, 0, 0, 0, 0, 0, 0])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "netconsole" / "compiled"


def keep(directory: Path, name: str, what: Compiled) -> None:
    folder = cache.open_folder(str(directory))
    if folder is not None:
        cache.keep(folder, name, what)
        os.close(folder)


def find(directory: Path, name: str) -> Compiled | None:
    folder = cache.open_folder(str(directory))
    if folder is None:
        return None
    try:
        return cache.find(folder, name)
    finally:
        os.close(folder)


def programs(function: str = "drop") -> Compiled:
    return Compiled(
        functions={function: LOAD_MAP + EXIT},
        maps={
            "nc_config": bpf_maps.MapInfo(2, 7, 4, 64, 1, 0, "nc_config"),
            "drops": bpf_maps.MapInfo(5, 8, 16, 8, 64, 1, "drops"),
        },
        facts={"HAVE_sk_buff": 1},
        drop_reasons={"2": "NOT_SPECIFIED"},
        types="btf",
        way=CAST,
        targets={"raw_tracepoint:kfree_skb": AttachTarget(4711), "entry:tun_net_xmit": AttachTarget(90_000, "tun", 2)},
        misfits={"f(sk_buff *)": "f takes (void) here, expected (sk_buff *)"},
        rdonly_cast=12,
    )


def test_what_is_kept_is_found_whole(directory: Path) -> None:
    assert find(directory, NAME) is None
    keep(directory, NAME, programs())
    assert find(directory, NAME) == programs() == decode(encode(programs()))
    assert find(directory, "cd" * 32) is None


def test_only_their_owner_can_read_or_write_them(directory: Path) -> None:
    keep(directory, NAME, programs())
    assert directory.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in directory.iterdir()] == [0o600]


@pytest.mark.parametrize("cut", [0, 1, 64, 65, 66, 200, -1])
def test_a_cut_file_is_not_used_and_replaced(directory: Path, cut: int) -> None:
    keep(directory, NAME, programs())
    file = directory / NAME
    file.write_bytes(file.read_bytes()[:cut])
    assert find(directory, NAME) is None
    keep(directory, NAME, programs())
    assert find(directory, NAME) == programs()


def test_a_changed_byte_is_noticed(directory: Path) -> None:
    keep(directory, NAME, programs())
    file = directory / NAME
    whole = file.read_bytes()
    for place in range(0, len(whole), 7):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert find(directory, NAME) is None, place


def test_a_file_under_another_s_name_is_not_used(directory: Path) -> None:
    keep(directory, NAME, programs())
    (directory / NAME).rename(directory / ("cd" * 32))
    assert find(directory, "cd" * 32) is None


def foreign_directory(directory: Path) -> None:
    directory.chmod(0o777)


def foreign_file(directory: Path) -> None:
    (directory / NAME).chmod(0o666)


def linked_file(directory: Path) -> None:
    (directory / NAME).rename(directory.parent / NAME)
    (directory / NAME).symlink_to(directory.parent / NAME)


def linked_directory(directory: Path) -> None:
    directory.rename(directory.parent / "elsewhere")
    directory.symlink_to(directory.parent / "elsewhere")


def a_pipe(directory: Path) -> None:
    (directory / NAME).unlink()
    os.mkfifo(directory / NAME, 0o600)


def a_directory(directory: Path) -> None:
    (directory / NAME).unlink()
    (directory / NAME).mkdir(0o700)


@pytest.mark.parametrize(
    "change", [foreign_directory, foreign_file, linked_file, linked_directory, a_pipe, a_directory]
)
def test_what_others_may_write_is_not_used(directory: Path, change: Callable[[Path], None]) -> None:
    keep(directory, NAME, programs())
    change(directory)
    assert find(directory, NAME) is None
    keep(directory, NAME, programs())  # and nothing is raised


def test_only_so_many_are_kept_those_that_were_used_last(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_FILES", 3)
    names = [f"{number:064x}" for number in range(4)]
    for age, name in enumerate(names[:3]):
        keep(directory, name, programs())
        os.utime(directory / name, (1000 + age, 1000 + age))
    assert find(directory, names[0]) is not None  # used now
    keep(directory, names[3], programs())
    assert sorted(path.name for path in directory.iterdir()) == sorted([names[0], names[2], names[3]])


@pytest.fixture
def without_unnamed_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on the file systems that have none."""
    real = os.open

    def refuse(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refuse)


@pytest.mark.usefixtures("without_unnamed_files")
def test_a_file_system_without_unnamed_files_will_do(directory: Path) -> None:
    for what in (programs("old"), programs("new")):
        keep(directory, NAME, what)
        assert find(directory, NAME) == what
    assert [path.name for path in directory.iterdir()] == [NAME]


@pytest.mark.usefixtures("without_unnamed_files")
def test_a_full_disk_leaves_nothing(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, view: memoryview) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    keep(directory, NAME, programs())
    assert list(directory.iterdir()) == []


def test_a_directory_that_cannot_be_made_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert cache.open_folder(str(tmp_path / "file" / "compiled")) is None


def test_a_name_stands_for_all_that_a_compile_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vmlinux, libbcc, package = tmp_path / "vmlinux", tmp_path / "libbcc.so.0", tmp_path / "package"
    vmlinux.write_bytes(b"types")
    libbcc.write_bytes(b"compiler")
    package.mkdir()
    (package / "worker.py").write_text("# code")
    monkeypatch.setattr(btf, "VMLINUX", str(vmlinux))
    monkeypatch.setattr(source_names, "bcc_libraries", lambda: [str(libbcc)])
    monkeypatch.setattr(cache, "_PACKAGE", str(package))
    job: dict[str, Any] = {"source": "int f;", "cpus": 2, "ring": True, "config": "00"}
    spec: dict[str, Any] = {"probe": {"name": "p"}, "programs": []}

    def name() -> str | None:
        return cache.name_of(job, spec)

    names = [name()]
    assert name() == names[0]
    job["config"] = "01"  # what knobs say is written into a map
    assert name() == names[0]
    for change in (
        lambda: job.update(source="int h;"),
        lambda: job.update(cpus=4),
        lambda: job.update(ring=False),
        lambda: job.update(plain=True),
        lambda: spec["programs"].append({"name": "x", "attach": []}),
        lambda: vmlinux.write_bytes(b"other types"),
        lambda: libbcc.write_bytes(b"another compiler"),
        lambda: (package / "worker.py").write_text("# changed"),
        lambda: (package / "new.py").write_text(""),
        lambda: monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "h", "9.9.9", "#1", "x86_64"))),
    ):
        change()
        assert name() not in names
        names.append(name())
    assert None not in names


def test_the_name_changes_with_every_file_of_every_subpackage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a program that an older compiler made would be loaded by a newer collector."""
    real = Path(netconsole_collector.__file__).parent
    files = sorted(path.relative_to(real) for path in real.rglob("*.py"))
    assert {file.parts[0] for file in files if len(file.parts) > 1} >= {"compile", "kernel", "names", "probe", "types"}
    assert sorted(map(Path, cache._package())) == [real / file for file in files]
    package = tmp_path / "package"
    shutil.copytree(real, package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(cache, "_PACKAGE", str(package))
    monkeypatch.setattr(btf, "VMLINUX", __file__)
    monkeypatch.setattr(source_names, "bcc_libraries", lambda: [__file__])
    job: dict[str, Any] = {"source": "", "cpus": 2, "ring": True}
    spec: dict[str, Any] = {"probe": {}, "programs": []}
    names = {cache.name_of(job, spec)}
    for file in files:
        with (package / file).open("a") as changed:
            changed.write("#")
        names.add(cache.name_of(job, spec))
    assert None not in names
    assert len(names) == 1 + len(files)


def test_what_is_compiled_for_another_kernel_has_the_name_that_is_asked_for_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    types = tmp_path / "types"
    types.mkdir()
    for name in ("vmlinux", "tun"):
        (types / name).write_text(f"types of {name}")
    monkeypatch.setattr(source_names, "bcc_libraries", lambda: [__file__])
    job: dict[str, Any] = {"source": "", "cpus": 2, "ring": True}
    spec: dict[str, Any] = {"probe": {"btf_modules": ["tun", "vhost"]}, "programs": []}
    kept = cache.name_of({**job, "btf": str(types / "vmlinux"), "release": "9.9.9"}, spec)
    there = types.rename(tmp_path / "sys")
    monkeypatch.setattr(btf, "VMLINUX", str(there / "vmlinux"))
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "h", "9.9.9", "#1", "x86_64")))
    assert cache.name_of(job, spec) == kept
    (there / "tun").write_text("other types")
    assert cache.name_of(job, spec) != kept


def test_of_another_kernel_those_modules_are_loaded_whose_types_are_given(tmp_path: Path) -> None:
    for name in ("vmlinux", "tun"):
        (tmp_path / name).touch()
    programs = [{"name": "everywhere"}, {"name": "here", "module": "tun"}, {"name": "nowhere", "module": "vhost_net"}]
    job = {"spec": {"programs": programs}, "btf": str(tmp_path / "vmlinux")}
    assert [program["name"] for program in Worker(job).spec["programs"]] == ["everywhere", "here"]


@pytest.mark.parametrize("absent", ["vmlinux", "libbcc"])
def test_where_it_cannot_be_told_what_is_read_nothing_is_kept(
    absent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there"
    there.write_bytes(b"")
    monkeypatch.setattr(btf, "VMLINUX", str(tmp_path / "vmlinux" if absent == "vmlinux" else there))
    monkeypatch.setattr(source_names, "bcc_libraries", lambda: [] if absent == "libbcc" else [str(there)])
    job: dict[str, Any] = {"source": "", "cpus": 2, "ring": True}
    assert cache.name_of(job, {"probe": {}, "programs": []}) is None


def test_maps_get_other_numbers_and_nothing_else_does() -> None:
    assert with_maps(LOAD_MAP + EXIT, {1: 300})[:8] == bytes([0x18, 0x11, 0, 0, 0x2C, 1, 0, 0])
    assert with_maps(with_maps(LOAD_MAP + EXIT, {1: 300}), {300: 1}) == LOAD_MAP + EXIT
    assert with_maps(LOAD_NUMBER + EXIT, {}) == LOAD_NUMBER + EXIT
    with pytest.raises(KeyError):
        with_maps(LOAD_MAP, {})
