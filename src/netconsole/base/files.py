"""Files are written whole or not at all: a temporary file in the same directory, synced, then renamed; mode 0600.

Where the file system can (O_TMPFILE), the temporary file has no name until it is whole and synced, so that kill -9 in
the middle of writing leaves nothing behind. No system call gives it the name of a file that is there: between the two
that do it together (linkat, rename), and there alone, kill -9 leaves the whole new file under its temporary name.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

from netconsole.base.errors import bad

MODE = 0o600


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file, or make it. Raises BadInput in one line; whatever was there is then untouched.

    Something that is no regular file (a terminal, a pipe, /dev/null) is written to as it is.
    """
    try:
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            if path.is_dir():
                raise bad(path, "", "is a directory; name a file in it")
            path.write_bytes(content)
            return
        # A link is followed: its target is replaced, as an editor would.
        replace(path.resolve() if path.is_symlink() else path, partial(_write_all, content))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise bad(path, "", f"cannot write: {why[:1].lower()}{why[1:]}") from None


def replace(path: Path, fill: Callable[[int], None]) -> None:
    """Put what ``fill`` writes to the descriptor it is given in the place of a file. Raises OSError."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    temporary = f".{path.name[:64]}.{os.urandom(6).hex()}"
    named = False
    try:
        try:
            descriptor = os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, MODE, dir_fd=directory)
        except OSError:  # no such thing on this file system
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(temporary, flags, MODE, dir_fd=directory)
            named = True
        try:
            fill(descriptor)
            os.fsync(descriptor)
            if not named:
                unnamed = f"/proc/self/fd/{descriptor}"
                try:
                    os.link(unnamed, path.name, dst_dir_fd=directory, follow_symlinks=True)
                    os.fsync(directory)
                    return
                except FileExistsError:  # linkat(2) never replaces: the whole file gets a name to be renamed from
                    os.link(unnamed, temporary, dst_dir_fd=directory, follow_symlinks=True)
                    named = True
            os.rename(temporary, path.name, src_dir_fd=directory, dst_dir_fd=directory)
            named = False
            os.fsync(directory)
        finally:
            os.close(descriptor)
    finally:
        if named:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
        os.close(directory)


def _write_all(content: bytes, descriptor: int) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
