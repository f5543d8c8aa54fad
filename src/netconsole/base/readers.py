"""Reads files that a user names: small regular files, and TOML documents. Every failure is a BadInput."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from netconsole.base.errors import bad

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_FILE_BYTES = 256 * 1024
"""A manifest or profile has a few kB. A larger file is something else, and is not parsed."""


def read_bytes(path: Path, limit: int = MAX_FILE_BYTES) -> bytes:
    """The bytes of a small regular file. Raises BadInput in one line for every failure."""
    try:
        if not path.is_file():
            raise bad(path, "", "no such file" if not path.exists() else "not a file")
        with path.open("rb") as stream:
            content = stream.read(limit + 1)
    except (OSError, ValueError) as error:
        raise bad(path, "", getattr(error, "strerror", None) or str(error)) from None
    if len(content) > limit:
        raise bad(path, "", f"longer than {limit // 1024} kB: netconsole writes no such file")
    return content


def stat_of(path: Path) -> os.stat_result | None:
    """The status of a path that a user named; None when it does not exist. Raises BadInput when it cannot be read.

    ``Path.exists`` and ``Path.is_dir`` raise OSError for a name that is too long and for an unreadable directory.
    """
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise bad(path, "", f"{why[:1].lower()}{why[1:]}") from None


def read_toml(path: Path) -> dict[str, object]:
    """A TOML document from an untrusted file. Raises BadInput in one line."""
    content = read_bytes(path)
    try:
        return tomllib.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise bad(path, "", f"not UTF-8 text (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise bad(path, "", f"not TOML: {error}") from None
    except (RecursionError, ValueError, OverflowError):
        raise bad(path, "", "not TOML: nested too deeply, or a number too large") from None
