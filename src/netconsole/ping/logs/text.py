"""What the readers of logs share: lines, numbers, and a capture made of what was found."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from netconsole.base.errors import bad
from netconsole.ping.capture import SCHEMA, PingCapture, Role

MAX_LINE = 4096
"""Longer lines are cut: no tool writes such."""
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def lines(content: bytes) -> Iterator[str]:
    """The lines of a log. Colours and what is not UTF-8 are taken out."""
    for line in content.splitlines():
        yield _ESCAPE.sub("", line[:MAX_LINE].decode("utf-8", "replace")).rstrip()


def number(text: str | None) -> float | None:
    """A time as the tools print it. None for N/A and for what is no number."""
    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    return value if value is not None and abs(value) < 1e12 else None


def made(file: str, role: Role, source: str, **fields: Any) -> PingCapture:
    """A capture of what a log has. Raises BadInput when a figure is beyond what a capture can hold."""
    document = {"schema": SCHEMA, "role": role, "source": source, "host": "", **fields}
    try:
        return msgspec.convert(document, PingCapture)
    except msgspec.ValidationError as error:
        raise bad(file, source, f"one of the figures cannot be right: {error}") from None
