"""Handles -o FILE and --format: checks both before anything is measured, and writes the document.

A file with content is only replaced if somebody says so: by --replace, or on the terminal.
"""

from __future__ import annotations

import contextlib
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from netconsole.base.errors import bad
from netconsole.base.figure import safe
from netconsole.base.files import try_whole, write_whole
from netconsole.base.readers import stat_of

FORMATS: Mapping[str, tuple[str, ...]] = {
    "text": ("txt", "text"),
    "md": ("md", "markdown"),
    "html": ("html", "htm"),
    "json": ("json",),
}
"""The formats of documents, each with the endings of its files; what is first is what a new file gets."""


def chosen(format: str | None, output: Path | None, default: str, replace: bool = False) -> str:
    """The form: from --format, else from the ending of the file, else ``default``. Raises BadInput.

    ``replace``: the file may be there already. Otherwise the user is asked, where there is a terminal.
    """
    form = form_of(format, output, default)
    if output is not None and not replace:
        may_replace(output)
    return form


def may_replace(output: Path) -> None:
    """Ask on the terminal whether a file may be replaced. Raises BadInput if not, or if nobody can be asked.

    An empty file is replaced without a question. What is no regular file (a pipe, /dev/null) is only written to.
    """
    here = stat_of(output)
    if here is None or not stat.S_ISREG(here.st_mode) or not here.st_size:
        return
    if sys.stdin.isatty() and sys.stderr.isatty():
        print(f"netconsole: {safe(output)} exists; replace it? (y/N)", end=" ", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return
        raise bad(output, "", "this file exists and was left as it is; give another name with -o")
    raise bad(output, "", "this file exists; give another name with -o, or replace the file with --replace")


def form_of(format: str | None, output: Path | None, default: str) -> str:
    """The form as :func:`chosen` finds it; whether the file is there already does not matter, and nobody is asked."""
    if output is not None:
        parent, here = stat_of(output.parent), stat_of(output)
        if parent is None or not stat.S_ISDIR(parent.st_mode):
            raise bad(output, "", f"no such directory: {output.parent}")
        if here is not None and stat.S_ISDIR(here.st_mode):
            raise bad(output, "", "this is a directory; name a file in it")
    if format is not None:
        if format not in FORMATS:
            raise bad("--format", "", f'expected {", ".join(FORMATS)}, found "{safe(format, 40)}"')
        return format
    ending = output.suffix.lstrip(".").lower() if output is not None else ""
    if not ending:
        return default
    named = next((form for form in FORMATS if ending in FORMATS[form]), None)
    if named is None:
        known = "|".join(FORMATS)
        raise bad(output, "", f'the ending "{safe(ending, 40)}" names no known format: add --format {known}')
    return named


def ready(output: Path | None) -> None:
    """Call this before measuring: raises BadInput where :func:`write` would lose what was measured."""
    if output is not None:
        try_whole(output)
    elif sys.__stdout__ is None:  # Python found it closed; cli/main.py has opened /dev/null in its place
        raise bad("standard output", "", "it is closed, and the report would be lost; name a file with -o")


def print_progress(text: str) -> None:
    """To standard error. If nobody reads it any more, what measures goes on all the same."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def write(content: bytes, output: Path | None) -> None:
    """Write a document to a private file (whole or not at all) or to standard output. Raises BadInput."""
    if output is not None:
        replaced = stat_of(output) is not None
        write_whole(output, content)
        if replaced:
            print(f"netconsole: {safe(output)}: replaced the file that was there", file=sys.stderr)
        return
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()
