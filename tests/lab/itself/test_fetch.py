"""Fetching kernels: only once, complete, the newest ones, and from the cache when there is no network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.lab.kernels.archive import cache_dir
from tests.lab.kernels.fetch import Kernel, fetch, kernel_named
from tests.lab.machine.errors import LabUnavailable
from tests.lab.machine.hypervisor import CHECKOUT
from tests.lab.machine.initramfs import Archive, load_order

pytestmark = pytest.mark.computing

KERNEL = Kernel("test", "linux-image-9.9.0-*-test", "9p")
OF_A_SUITE = Kernel("later", "linux-image-9.*-later", "9p", suite="newer")

APT_CACHE = """#!/bin/sh
cat "$ARCHIVE/names"
"""
APT_GET = """#!/bin/sh
if [ "$1" = indextargets ]; then echo "http://archive.invalid/debian sid"; exit; fi
while [ "$1" ] && [ "$1" != download ]; do shift; done
[ "$1" ] && shift
for package; do
    echo "$package" >>"$ARCHIVE/downloads"
    cp "$ARCHIVE/$package.deb" . || { echo "E: Unable to locate package $package" >&2; exit 100; }
done
"""


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package archive of two kernels with an apt of its own, and an empty cache."""
    for program in ("dpkg-deb", "depmod"):
        if shutil.which(program, path=os.environ["PATH"] + ":/sbin:/usr/sbin") is None:
            pytest.skip(f"{program} is missing (Debian packages dpkg and kmod)")
    directory = tmp_path / "archive"
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (("apt-cache", APT_CACHE), ("apt-get", APT_GET)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    names = [f"linux-image-9.9.0-{number}-test" for number in (9, 10)]
    directory.mkdir()
    for name in names:
        version = name.removeprefix("linux-image-")
        files = {f"lib/modules/{version}/modules.order": "", f"boot/vmlinuz-{version}": name}
        build(name, files, directory)
    others = ["linux-image-9.9.0-11-test-dbg", "linux-image-9.9.0-12-cloud-test"]
    (directory / "names").write_text("\n".join(names + others) + "\n")
    (directory / "downloads").touch()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("ARCHIVE", str(directory))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return directory


def build(package: str, files: dict[str, str], directory: Path) -> None:
    """A Debian package with these files."""
    content = directory.parent / package
    for name, text in files.items():
        (content / name).parent.mkdir(parents=True, exist_ok=True)
        (content / name).write_text(text)
    (content / "DEBIAN").mkdir(parents=True)
    (content / "DEBIAN" / "control").write_text(
        f"Package: {package}\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@invalid>\nDescription: test\n"
    )
    archived = str(directory / f"{package}.deb")
    subprocess.run(["dpkg-deb", "-b", str(content), archived], check=True, capture_output=True)


def downloads(archive: Path) -> list[str]:
    return (archive / "downloads").read_text().split()


def test_newest_by_number_and_of_the_right_flavour(archive: Path) -> None:
    tree = fetch(KERNEL)
    assert tree.version == "9.9.0-10-test"
    assert tree.image.read_text() == "linux-image-9.9.0-10-test"
    assert (tree.modules / "modules.dep").exists()


def test_a_later_kernel_of_another_suite_comes_in_parts(archive: Path) -> None:
    names = [f"linux-{kind}-9.10.2-later" for kind in ("image", "base", "binary", "modules")]
    build(names[0], {"usr/share/doc/empty": ""}, archive)
    build(names[1], {"usr/lib/modules/9.10.2-later/modules.builtin": ""}, archive)
    build(names[2], {"usr/lib/modules/9.10.2-later/vmlinuz": "an image"}, archive)
    build(names[3], {"usr/lib/modules/9.10.2-later/modules.order": ""}, archive)
    (archive / "names").write_text("\n".join([*names, "linux-image-9.9.20-later"]) + "\n")
    tree = fetch(OF_A_SUITE)
    assert (tree.version, tree.image.read_text()) == ("9.10.2-later", "an image")
    assert (tree.modules / "modules.dep").exists()
    assert "http://archive.invalid/debian newer main" in (cache_dir() / "apt/newer/sources").read_text()
    assert fetch(OF_A_SUITE) == tree
    assert downloads(archive) == names


def test_parallel_runs_download_once(archive: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        trees = list(pool.map(fetch, [KERNEL] * 4))
    assert len(set(trees)) == 1
    assert len(downloads(archive)) == 1


def test_without_network_the_cache_does(archive: Path) -> None:
    (archive / "names").write_text("linux-image-9.9.0-9-test\n")
    old = fetch(KERNEL)
    (archive / "names").write_text("linux-image-9.9.0-10-test\n")
    (archive / "linux-image-9.9.0-10-test.deb").unlink()
    assert fetch(KERNEL) == old
    (archive / "names").write_text("")
    assert fetch(KERNEL) == old


def test_nothing_to_be_had_is_one_sentence(archive: Path) -> None:
    (archive / "names").write_text("")
    with pytest.raises(LabUnavailable, match=r"apt knows no package linux-image-9\.9\.0-\*-test"):
        fetch(KERNEL)
    (archive / "names").write_text("linux-image-9.9.0-77-test\n")
    with pytest.raises(LabUnavailable, match=r"Unable to locate package linux-image-9\.9\.0-77-test"):
        fetch(KERNEL)
    with pytest.raises(LabUnavailable, match=r"no kernel 'nonsense' in kernels\.toml; it has debian-6\.1"):
        kernel_named("nonsense")


def test_rest_of_a_killed_fetch_is_cleared_away(archive: Path) -> None:
    rest = cache_dir() / "kernels" / "unpacking-rest"
    rest.mkdir(parents=True)
    fetch(KERNEL)
    assert not rest.exists()
    assert sorted(path.name for path in rest.parent.iterdir()) == ["linux-image-9.9.0-10-test", "lock"]


@pytest.mark.parametrize(("ci", "outcome"), [("", "1 skipped"), ("true", "1 error")])
def test_without_qemu_the_tests_skip_but_not_in_ci(ci: str, outcome: str, tmp_path: Path) -> None:
    """On a PATH without QEMU the tests name the package; in CI that is a failure."""
    for program in ("apt-cache", "dpkg", "depmod", "busybox"):
        found = shutil.which(program, path=os.environ["PATH"] + ":/sbin:/usr/sbin")
        if found is None:
            pytest.skip(f"{program} is missing")
        (tmp_path / program).symlink_to(found)
    without = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    command = [sys.executable, "-m", "pytest", *without, "tests/lab/itself/test_traffic.py"]
    done = subprocess.run(
        [*command, "-k", "no_upcall"],
        cwd=CHECKOUT,
        env={**os.environ, "PATH": str(tmp_path), "CI": ci, "NETCONSOLE_LAB_KERNEL": "debian-6.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome in done.stdout
    assert "qemu-system-x86_64 is missing (Debian package qemu-system-x86)" in done.stdout


def test_modules_load_after_what_they_need(tmp_path: Path) -> None:
    (tmp_path / "modules.dep").write_text(
        "kernel/net/9p/9pnet_virtio.ko: kernel/net/9p/9pnet.ko kernel/drivers/virtio.ko\n"
        "kernel/net/9p/9pnet.ko:\nkernel/drivers/virtio.ko:\nkernel/fs/9p/9p.ko: kernel/net/9p/9pnet.ko\n"
    )
    (tmp_path / "modules.builtin").write_text("kernel/fs/overlay-fs.ko\n")
    order = load_order(tmp_path, ["9pnet_virtio", "overlay_fs", "9p"])
    assert [path.name for path in order] == ["virtio.ko", "9pnet.ko", "9pnet_virtio.ko", "9p.ko"]
    with pytest.raises(LabUnavailable, match="no module veth"):
        load_order(tmp_path, ["veth"])


def test_archive_is_one_that_others_read(tmp_path: Path) -> None:
    if shutil.which("busybox") is None:
        pytest.skip("busybox is missing (Debian package busybox-static)")
    archive = Archive()
    archive.directory("bin")
    archive.file("bin/tool", b"content", 0o755)
    archive.symlink("bin/sh", "tool")
    subprocess.run(["busybox", "cpio", "-idm"], input=archive.close(), cwd=tmp_path, check=True)
    assert (tmp_path / "bin" / "sh").read_bytes() == b"content"
    assert (tmp_path / "bin" / "tool").stat().st_mode & 0o777 == 0o755
