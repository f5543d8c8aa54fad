"""The few styles there are: words first, then symbols, then one of the terminal's own colours.

Only attributes and the sixteen colours that the terminal's user chose are used, so that the console is readable on a
light and on a dark background and costs few bytes; under NO_COLOR the attributes remain.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from rich.style import Style

Tone: TypeAlias = Literal["", "act", "look", "ok", "unknown", "dim", "strong", "head", "key", "here", "trend"]
"""What a piece of text means; "" is plain text."""

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
}
CURSOR = Style(reverse=True, bold=False)
"""Of the row under the cursor; without its own colours, since a reversed colour is hard to read."""

LEVEL_TONES: dict[str, Tone] = {"!!": "act", "!": "look", "ok": "ok", "?": "unknown", "off": "dim"}
"""The tone of a level word."""
