"""Packages from Debian's archive, of this machine's release or another suite. It installs nothing.

Another suite has lists of its own, in the cache: this machine's apt stays as it is. The archive is the one that this
machine installs from.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.lab.machine.errors import LabUnavailable

APT_LIMIT_S = 300
UNPACK_LIMIT_S = 120
LISTS_LAST_S = 24 * 3600.0
"""Lists of another suite are fetched again after this time."""
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
BACKPORTS = "backports"
"""The suite of backports for this machine's own release."""


def cache_dir() -> Path:
    """Where unpacked kernels and what is made from them are kept; shared by all checkouts of one user."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    path = Path(base) / "netconsole" / "lab"
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock; the kernel drops it when the holder dies, however it dies."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def known(prefix: str, suite: str = "", architecture: str = "") -> list[str]:
    """The packages whose name begins so; nothing without apt or a network. Without a suite: of this machine's apt."""
    command = ["apt-cache", *_options(suite, architecture), "pkgnames", prefix]
    names = _said(command)
    if suite or names or os.geteuid() != 0:
        return names
    # A fresh machine has no package lists at all. Of two test runs the second waits for those of the first.
    with locked(cache_dir() / "lists.lock"):
        names = _said(command)
        if not names:
            _said(["apt-get", "-qq", "update"])
            names = _said(command)
    return names


def download(packages: Sequence[str], into: Path, suite: str = "", architecture: str = "") -> list[Path]:
    """The archives of these packages, unpacked nowhere yet. Raises LabUnavailable."""
    run(["apt-get", "-qq", *_options(suite, architecture), "download", *packages], into, APT_LIMIT_S)
    found = sorted(into.glob("*.deb"))
    if len(found) != len(packages):
        raise LabUnavailable(f"apt-get download {' '.join(packages)} left {len(found)} archives")
    return found


def download_whole(packages: Sequence[str], suite: str, architecture: str = "") -> list[Path]:
    """The archives of packages of another suite and of all that they depend on. Raises LabUnavailable."""
    options = _options(suite, architecture)
    place = cache_dir() / "apt" / (f"{suite}-{architecture}" if architecture else suite)
    nothing_installed = place / "status"
    nothing_installed.touch()
    (place / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    options += ["-o", f"Dir::State::status={nothing_installed}", "-o", "APT::Install-Recommends=false"]
    options += ["-o", "Debug::NoLocking=true", "-o", "APT::Keep-Downloaded-Packages=true"]
    with locked(place / "lock"):
        run(["apt-get", "-qq", *options, "--yes", "--download-only", "install", *packages], place, APT_LIMIT_S)
    return sorted((place / "archives").glob("*.deb"))


def unpack(archives: Sequence[Path], tree: Path) -> None:
    """All into one tree. Raises LabUnavailable."""
    for archive in archives:
        run(["dpkg", "-x", str(archive), str(tree)], tree.parent, UNPACK_LIMIT_S)


def run(command: Sequence[str], cwd: Path, limit_s: float) -> None:
    """Runs a command of the package manager; raises LabUnavailable with the last line that it said."""
    try:
        subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=limit_s, check=True)
    except subprocess.CalledProcessError as error:
        last = (error.stderr or error.stdout).strip().splitlines()[-1:] or ["no message"]
        raise LabUnavailable(f"{' '.join(command[:3])}: {last[0]}") from error
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise LabUnavailable(str(error)) from error


def _options(suite: str, architecture: str = "") -> list[str]:
    """Of apt, so that it sees only this suite, of this machine's architecture or another one.

    Its lists are fetched if there are none, or only old ones.
    """
    if not suite:
        return []
    place = cache_dir() / "apt" / (f"{suite}-{architecture}" if architecture else suite)
    settings = [f"APT::Architecture={architecture}", f"APT::Architectures={architecture}"] if architecture else []
    settings += [f"Dir::Etc::sourcelist={place}/sources", "Dir::Etc::sourceparts=/dev/null", f"Dir::Cache={place}"]
    settings += [f"Dir::State::lists={place}/lists", "APT::Sandbox::User=root"]
    options = [word for setting in settings for word in ("-o", setting)]
    (place / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    with locked(place / "lock"):
        fetched = place / "fetched"
        if not fetched.exists() or time.time() - fetched.stat().st_mtime > LISTS_LAST_S:
            site, release = _site()
            name = f"{release}-{BACKPORTS}" if suite == BACKPORTS else suite
            signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
            try:
                (place / "sources").write_text(f"deb {signed}{site} {name} main\n")
                run(["apt-get", "-qq", *options, "update"], place, APT_LIMIT_S)
            except LabUnavailable:
                if not fetched.exists():
                    raise
            else:
                fetched.touch()
    return options


def _site() -> tuple[str, str]:
    """Address and release of the archive that this machine installs from."""
    command = ["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE)", "Created-By: Packages"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=APT_LIMIT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise LabUnavailable(f"apt-get indextargets: {error}") from error
    for line in said.splitlines():
        site, _, release = line.partition(" ")
        if release.isalpha():  # not bookworm-updates
            return site, release
    raise LabUnavailable("apt knows no archive")


def _said(command: Sequence[str]) -> list[str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=APT_LIMIT_S, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return []
    return done.stdout.split() if done.returncode == 0 else []
