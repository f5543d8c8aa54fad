"""The Python and BCC of another Debian release, in a directory of their own, on this machine's kernel.

Nothing is installed, and none of a package's scripts is run: a package is unpacked, and so is all that it depends on.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from netconsole.host.collector_process import CollectorProcess
from netconsole_collector.types import copied_types
from tests.lab.kernels import archive
from tests.support.live.collector_driver import SOURCE, START
from tests.support.live.measurement import Measurement

SUITES = ("bullseye", "trixie", "sid")
"""Debian 11 has Python 3.9 and BCC 0.18; Debian 13 has 3.13 and 0.31; unstable had 3.14 and 0.37 in November 2026."""
PACKAGE = "python3-bpfcc"
PYTHON = "/usr/bin/python3"
SHARED = ("/proc", "/sys", "/dev", "/run", "/tmp")
"""Of this machine, seen inside. The kernel's mounts for BPF and tracing are below /sys."""
MERGED = ("bin", "sbin", "lib", "lib64")
"""Since Debian 12 these are links into /usr (the package base-files has them). Older packages land there as well."""


class Userland:
    """A root directory with BCC and its Python, of one Debian suite. Raises LabUnavailable."""

    program = PYTHON

    def __init__(self, suite: str) -> None:
        self.root = unpacked(suite, [PACKAGE])

    def command(self, *arguments: str) -> list[str]:
        """Starts its program in a mount namespace that ends with it, with the collector's source at the same path."""
        places = [*SHARED, str(archive.cache_dir()), str(SOURCE)]
        binds = [f"mkdir -p {inside} && mount --rbind {one} {inside}" for one, inside in map(self._inside, places)]
        source, inside = self._inside(copied_types.DIRECTORY)
        binds.append(f"if [ -d {source} ]; then mkdir -p {inside} && mount --rbind {source} {inside}; fi")
        enter = f'exec chroot {shlex.quote(str(self.root))} {self.program} "$@"'
        script = " && ".join([*binds, enter])
        return ["unshare", "--mount", "--propagation", "slave", "sh", "-c", script, "sh", *arguments]

    def collector(self, *arguments: str) -> list[str]:
        """Starts the collector."""
        return self.command("-I", "-c", START, str(SOURCE), *arguments)

    def python(self, into: Path) -> str:
        """Writes a program that stands for its Python, for who takes a path."""
        program = into / f"python-{self.root.name}"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(self.command())} "$@"\n')
        program.chmod(0o700)
        return str(program)

    def _inside(self, place: str) -> tuple[str, str]:
        return shlex.quote(place), shlex.quote(f"{self.root}{place}")


def unpacked(suite: str, packages: Sequence[str], architecture: str = "") -> Path:
    """A root directory with these packages and all that they depend on. Raises LabUnavailable."""
    root = archive.cache_dir() / "userlands" / (f"{suite}-{architecture}" if architecture else suite)
    root.parent.mkdir(exist_ok=True)
    with archive.locked(root.with_suffix(".lock")):
        if not root.is_dir():
            made = root.with_suffix(".new")
            for name in MERGED:
                (made / "usr" / name).mkdir(parents=True, exist_ok=True)
                if not (made / name).is_symlink():
                    (made / name).symlink_to(f"usr/{name}")
            archive.unpack(archive.download_whole(packages, suite, architecture), made)
            made.rename(root)
    return root


class MeasurementInside(Measurement):
    """A collector that runs with the Python and BCC of another release."""

    def __init__(self, userland: Userland) -> None:
        self._userland = userland
        super().__init__()

    def start(self) -> CollectorProcess:
        return CollectorProcess(self._userland.collector())
