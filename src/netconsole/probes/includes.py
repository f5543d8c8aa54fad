"""A probe's C as one text: each header stands where the first `#include` names it (docs/reference/probes.md).

Only two forms of `#include` are read, and neither can name a file elsewhere: `"name.h"`, a header beside the file, and
`"../../common/name.h"`, one that several probes share. The shared ones are those of the probe's own tree where it has
any, else those that come with the program, so that a probe may lie anywhere.
"""

from __future__ import annotations

import re
from pathlib import Path

from netconsole.base import paths
from netconsole.base.errors import bad
from netconsole.base.readers import read_bytes

COMMON = "common"
"""The directory beside the families that holds the shared headers; no probe is in it."""

_INCLUDE = re.compile(r"\s*#\s*include\b\s*(.*?)\s*(?:/[/*].*)?")
_NAME = re.compile(rf'"(?P<shared>(?:\.\./){{1,2}}{COMMON}/)?(?P<name>[a-z][a-z0-9_]*\.h)"')


def read(path: Path) -> str:
    """The text of a source file with all that it includes. Raises BadInput."""
    return assembled(_text(path), path)


def assembled(text: str, path: Path) -> str:
    """This text, which is or might be that of the file ``path``, with all that it includes. Raises BadInput."""
    return "\n".join(_lines(text, path, common(path.parent), set()))


def behind_headers(text: str) -> str:
    """The text of a program that no file holds, behind the headers that every probe has. Raises BadInput."""
    common = paths.data("probes") / COMMON
    return assembled(f'#include "netconsole.h"\n{text}', common / "probe.bpf.c")


def _lines(text: str, path: Path, common: Path, seen: set[Path]) -> list[str]:
    """``seen``: the headers that are in the text already; it gets those that are added."""
    lines: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        found = _INCLUDE.fullmatch(line)
        if found is None:
            lines.append(line)
            continue
        header = _header(found.group(1), number, path, common)
        if header in seen:
            lines.append("")
            continue
        seen.add(header)
        # The compiler names file and line of what the author wrote.
        lines += [f'#line 1 "{header.name}"', *_lines(_text(header), header, common, seen)]
        lines.append(f'#line {number + 1} "{path.name}"')
    return lines


def _header(name: str, number: int, path: Path, common: Path) -> Path:
    where = f"line {number}"
    found = _NAME.fullmatch(name)
    if found is None:
        expected = f'expected #include "name.h" or "../../{COMMON}/name.h" (the kernel\'s types need no header)'
        raise bad(path, where, f"{expected}, found {name}")
    header = (common if found["shared"] else path.parent) / found["name"]
    if not header.is_file():
        raise bad(path, where, f"#include {name}: no such file")
    return header


def common(directory: Path) -> Path:
    """The shared headers for a source in this directory: its tree's own, or those that come with the program."""
    trees = (tree / COMMON for tree in directory.absolute().parents[:2])
    return next((found for found in trees if found.is_dir()), paths.data("probes") / COMMON)


def _text(path: Path) -> str:
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError:
        raise bad(path, "", "not UTF-8 text") from None
