"""Writes a file whole or not at all: to a temporary file in the same directory, synced, then renamed; mode 0600.

Where the file system supports O_TMPFILE, the temporary file has no name until it is complete and synced. So kill -9
while writing leaves nothing behind. Replacing an existing file takes two system calls, linkat and rename. Only kill -9
between the two leaves a file behind: the complete new one, under its temporary name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from netconsole.base.errors import bad

MODE = 0o600


def write_whole(path: Path, content: bytes) -> None:
    """Create or replace a file. Raises BadInput in one line; an existing file is then unchanged.

    What is no regular file (a terminal, a pipe, /dev/null) is not replaced, but written to.
    """
    with _in_one_line(path):
        if _is_special(path):
            path.write_bytes(content)
        else:
            replace(_followed(path), partial(_write_all, content))


def new_file(path: Path, what: str) -> int:
    """A descriptor of a file that did not exist, to append to. Raises BadInput; ``what`` never overwrites one."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags, MODE)
    except FileExistsError:
        raise bad(path, "", f"this file exists already, and {what} never overwrites a file: name another one") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise bad(path, "", f"cannot write: {why[:1].lower()}{why[1:]}") from None


def try_whole(path: Path) -> None:
    """Raises the BadInput of :func:`write_whole` where that could not even begin. It changes and leaves nothing."""
    with _in_one_line(path):
        if not _is_special(path):
            # A real attempt: permissions, mounts and quotas say less than the file system itself.
            with contextlib.suppress(_OnlyTried):
                replace(_followed(path), _only_try)
        elif not os.access(path, os.W_OK):  # opening a pipe would wait for its reader
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def replace(path: Path, fill: Callable[[int], None]) -> None:
    """Create or replace a file with what ``fill`` writes to a descriptor. Raises OSError."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    temporary = f".{path.name[:64]}.{os.urandom(6).hex()}"
    named = False
    try:
        try:
            descriptor = os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, MODE, dir_fd=directory)
        except OSError:  # this file system has no O_TMPFILE
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
                except FileExistsError:  # linkat(2) never replaces a file: link under a temporary name, then rename
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


@contextlib.contextmanager
def _in_one_line(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise bad(path, "", f"cannot write: {why[:1].lower()}{why[1:]}") from None


def _is_special(path: Path) -> bool:
    """Whether it is there and no regular file. Raises BadInput for a directory."""
    if path.is_dir():
        raise bad(path, "", "is a directory; name a file in it")
    return path.exists() and not stat.S_ISREG(path.stat().st_mode)


def _followed(path: Path) -> Path:
    """Follow a symbolic link and replace its target, as an editor does."""
    return path.resolve() if path.is_symlink() else path


class _OnlyTried(Exception):
    """The temporary file could be made; :func:`replace` removes it."""


def _only_try(_: int) -> None:
    raise _OnlyTried


def _write_all(content: bytes, descriptor: int) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
