"""The styles of the console. Words and symbols carry the meaning; a style only adds to it.

Styles use only attributes and the 16 colours of the terminal, which its user has chosen. So the console is readable on
light and dark backgrounds, and costs few bytes. With NO_COLOR only the attributes are used.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from rich.style import Style

Tone: TypeAlias = Literal["", "act", "look", "ok", "unknown", "dim", "strong", "head", "key", "here", "trend", "cursor"]
"""The meaning of a piece of text. "" is plain text."""

STYLES: dict[Tone, Style] = {
    "": Style(),
    "act": Style(color="red", bold=True),
    "look": Style(color="yellow", bold=True),
    "ok": Style(color="green"),
    "unknown": Style(color="magenta"),
    "dim": Style(color="bright_black"),
    "strong": Style(bold=True),
    "head": Style(color="cyan"),
    "key": Style(color="cyan", bold=True),
    "here": Style(reverse=True),
    "trend": Style(color="blue"),
    "cursor": Style(reverse=True, bold=False),  # no colours: a reversed colour is hard to read
}

LEVEL_TONES: dict[str, Tone] = {"!!": "act", "!": "look", "ok": "ok", "?": "unknown", "off": "dim"}
"""The tone of a level word."""
