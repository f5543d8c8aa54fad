"""Reads what a user names: small regular files, whole, and TOML documents. Whatever is wrong is a BadInput."""

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
"""A manifest or profile is a few kB; a larger file is something else, and is not even parsed."""


def read_bytes(path: Path, limit: int = MAX_FILE_BYTES) -> bytes:
    """The bytes of a small regular file. Raises BadInput in one line, whatever is wrong with it."""
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
    """What is at a path that a user named; None when nothing is. Raises BadInput when it cannot be looked at.

    ``Path.exists`` and ``Path.is_dir`` raise OSError for a name that is too long and a directory that may not be read.
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
