"""Makes a wheel, and one executable file with all packages for several Pythons (docs/use/single-file.md).

python -m tools.dist [--machine x86_64|aarch64] [--directory dist]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from uv import find_uv_bin

from tools import first_start

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
"""Those of Ubuntu 22.04, Debian 12, Ubuntu 24.04, Debian 13, and what is newest."""
MACHINES = ("x86_64", "aarch64")
PLATFORM = "manylinux_2_28"
"""Packages for glibc 2.28 (Debian 10, RHEL 8) or later."""
SHEBANG = b"#!/usr/bin/env python3\n"
_WHEN = (2020, 1, 1, 0, 0, 0)
"""Of every file, so that the same packages give the same archive."""
_LEFT_OUT = re.compile(r"(^|/)(__pycache__|bin|tests?)/|\.pyc$|^zstandard/_cffi|(^|/)RECORD$|(^|/)direct_url\.json$")
"""What is not needed to run. zstandard has two back ends; CPython takes the other one."""

Tree = Mapping[str, bytes]
"""Contents by path."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machine", choices=MACHINES, default="x86_64")
    parser.add_argument("--directory", type=Path, default=ROOT / "dist")
    asked = parser.parse_args()
    asked.directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        wheel = built(work)
        print(_kept(wheel, asked.directory))
        trees = {_tag(version): packages(wheel, version, asked.machine, work) for version in PYTHONS}
        file = asked.directory / f"{wheel.name.partition('-py3')[0]}-{asked.machine}.pyz"
        file.write_bytes(archive(trees, asked.machine, wheel.name.partition("-py3")[0]))
        file.chmod(0o755)
        print(f"{file}: {file.stat().st_size / 1e6:.1f} MB, for CPython {', '.join(PYTHONS)}")


def built(work: Path) -> Path:
    """The wheel of this checkout."""
    wheels = work / "wheels"
    _pip("wheel", "--no-deps", "--wheel-dir", str(wheels), str(ROOT))
    return next(wheels.glob("netconsole-*.whl"))


def packages(wheel: Path, version: str, machine: str, work: Path) -> Tree:
    """What is installed for one Python, wheels only: nothing is built or run."""
    target = work / _tag(version)
    constraints = str(ROOT / "constraints.txt")
    # uv, and not pip: pip asks what a package needs on the Python that runs pip.
    _run(
        find_uv_bin(), "pip", "install", "--quiet", "--target", str(target), "--only-binary", ":all:",
        "--python-version", version, "--python-platform", f"{machine}-{PLATFORM}",
        "--find-links", str(wheel.parent), "--constraint", constraints, str(wheel),
    )  # fmt: skip
    return dict(_files(target))


def archive(trees: Mapping[str, Tree], machine: str, name: str) -> bytes:
    """The executable: what is the same for all Pythons once, the rest for each."""
    first, *others = trees.values()
    shared = {path for path, content in first.items() if all(tree.get(path) == content for tree in others)}
    members = {f"{first_start.SHARED}/{path}": first[path] for path in shared}
    for tag, tree in trees.items():
        members |= {f"{tag}/{path}": content for path, content in tree.items() if path not in shared}
    digest = hashlib.sha256()
    for path in sorted(members):
        digest.update(f"{path}\0{len(members[path])}\0".encode() + members[path])
    about = {"name": f"{name}-{digest.hexdigest()[:16]}", "pythons": list(trees), "machine": machine}
    members[first_start.ABOUT] = json.dumps(about).encode()
    members["__main__.py"] = Path(first_start.__file__).read_bytes()
    with tempfile.TemporaryFile() as file:
        file.write(SHEBANG)
        with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED, compresslevel=9) as made:
            for path in sorted(members):
                info = zipfile.ZipInfo(path, _WHEN)
                info.compress_type = zipfile.ZIP_DEFLATED
                made.writestr(info, members[path])
        file.seek(0)
        return file.read()


def _files(target: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(target.rglob("*")):
        name = str(path.relative_to(target))
        if path.is_file() and not _LEFT_OUT.search(name):
            yield name, path.read_bytes()


def _kept(wheel: Path, directory: Path) -> Path:
    return Path(shutil.copy(wheel, directory / wheel.name))


def _tag(version: str) -> str:
    return "cp" + version.replace(".", "")


def _pip(*words: str) -> None:
    _run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *words)


def _run(*words: str) -> None:
    if (status := subprocess.run(words, check=False).returncode) != 0:
        sys.exit(f"dist: {words[0]} ended with status {status}")


if __name__ == "__main__":
    main()
