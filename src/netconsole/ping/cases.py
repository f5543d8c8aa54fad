"""Reads the files of one measured case: captures, logs of older tools, or a breakdown that was made before.

A file is told by its content, not by its name. ``ROLE=FILE`` says whose capture a file is, where it does not say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from netconsole.base.errors import UNREADABLE, bad
from netconsole.base.figure import safe
from netconsole.base.readers import read_bytes
from netconsole.ping import breakdown as breakdowns
from netconsole.ping import capture as captures
from netconsole.ping.analysis.analyze import analyze
from netconsole.ping.analysis.merge import CaptureFile
from netconsole.ping.breakdown import Breakdown
from netconsole.ping.capture import ROLES, Role
from netconsole.ping.logs import read_log

MAX_FILES = 32


class _Head(msgspec.Struct):
    schema: str | None = None


@dataclass(slots=True)
class PingCase:
    """One measured case. ``files`` are empty when only its breakdown is left."""

    name: str
    breakdown: Breakdown
    files: list[CaptureFile] = field(default_factory=list)


def read_case(files: Sequence[str], name: str = "") -> PingCase:
    """The case of some files: captures and logs of one ping, or one breakdown. Raises BadInput."""
    if not 1 <= len(files) <= MAX_FILES:
        raise bad("netconsole ping analyze", "", f"expected 1 to {MAX_FILES} files, found {len(files)}")
    found: list[CaptureFile] = []
    seen: set[Path] = set()
    for file in files:
        role, path = role_and_path(file)
        if path in seen:
            raise bad(path, "", "the same file is named twice")
        seen.add(path)
        content = read_bytes(path, captures.MAX_BYTES)
        if schema_of(content) == breakdowns.SCHEMA:
            if len(files) > 1:
                raise bad(path, "schema", "a breakdown is a whole case: name the breakdown alone, or name captures")
            return PingCase(name or path.name, breakdowns.parse(content, str(path)))
        found += read_captures(content, str(path), role)
    return case_of(found, name or Path(role_and_path(files[0])[1]).name)


def case_of(files: Sequence[CaptureFile], name: str) -> PingCase:
    """The case of captures that were read before. Raises BadInput when two hold the same times."""
    return PingCase(name, analyze(files), list(files))


def schema_of(content: bytes) -> str | None:
    """What a JSON document says it is. None when it says nothing, or is none."""
    try:
        return msgspec.json.decode(content, type=_Head).schema
    except (*UNREADABLE, ValueError):
        return None


def read_captures(content: bytes, file: str, role: Role | None = None) -> list[CaptureFile]:
    """The captures in one file, a document or a log. ``role`` is what the user said. Raises BadInput."""
    if content.lstrip()[:1] != b"{":
        return [CaptureFile(file, capture) for capture in read_log(content, file, role)]
    capture = captures.parse(content, file)
    if role is not None and capture.role != role:
        raise bad(file, "role", f"this capture is of {capture.role}, not of {role}")
    return [CaptureFile(file, capture)]


def role_and_path(argument: str) -> tuple[Role | None, Path]:
    """Role and path of ``ROLE=FILE``, or of a path alone. A file of such a name is ./ROLE=FILE. Raises BadInput."""
    before, equals, after = argument.partition("=")
    for role in ROLES:
        if equals and before == role:
            if not after:
                raise bad(safe(argument, 60), "", "names no file: write ROLE=FILE")
            return role, Path(after)
    return None, Path(argument)
