"""What this terminal can show: colour, alphabet, dialogue. Decided once, before Textual is imported.

Textual reads NO_COLOR and its own settings when it is imported and turns colours into greys instead of leaving them
out; so the decision is made here, from the environment and the stream's encoding, and written down for Textual.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

PLAIN_TERMS = frozenset({"dumb", "unknown", "vt52", "vt100", "vt102", "vt220"})
"""Terminals without colour that print what they do not understand: they are asked nothing."""
FEW_GLYPHS_TERMS = frozenset({"linux", "cons25"})
"""Colour, but fonts that lack block elements."""

_GLYPHS = {
    "─": "-", "━": "=", "│": "|", "┃": "|", "┌": "+", "┐": "+", "└": "+", "┘": "+", "├": "+", "┤": "+", "┼": "+",
    "╭": "+", "╮": "+", "╰": "+", "╯": "+", "▁": "_", "▂": ".", "▃": ",", "▄": "-", "▅": "=", "▆": "+", "▇": "*",
    "█": "#", "▉": "#", "▊": "#", "▋": "#", "▌": "|", "▍": "|", "▎": "|", "▏": "|", "░": ":", "▒": "%", "▓": "%",
    "▔": "-", "▀": "-", "▲": "^", "▼": "v", "▴": "^", "▾": "v", "▸": ">", "▶": ">", "◂": "<", "●": "*", "○": "o",
    "•": "*", "·": "-", "…": "~", "–": "-", "—": "-", "−": "-", "≥": ">", "≤": "<", "≈": "~", "×": "x", "→": ">",
    "←": "<", "↑": "^", "↓": "v", "↔": "-", "µ": "u", "μ": "u", "σ": "s", "±": "~", "\u202f": " ", "\u2009": " ",
    "\u00a0": " ", "‘": "'", "’": "'", "“": '"', "”": '"',
}  # fmt: skip
"""One cell for one cell: a table keeps its columns whatever the alphabet."""


class NoTerminal(RuntimeError):
    """Standard input or output is not a terminal; the message names the way out in one line."""


@dataclass(frozen=True)
class Terminal:
    """What may be sent to this terminal."""

    colour: bool
    unicode: bool
    plain: bool
    """Ask it no questions (synchronised output, resize reports): it would print them."""


def inspect(environ: Mapping[str, str], encoding: str) -> Terminal:
    """Judge a terminal by its environment and the encoding of the stream that leads to it.

    An empty NO_COLOR counts as absent (no-color.org). NETCONSOLE_ASCII=1 asks for ASCII, =0 for UTF-8, whatever else
    is set. An explicit C or POSIX locale asks for ASCII; no locale at all does not, since Python then speaks UTF-8.
    """
    term = environ.get("TERM", "") or "dumb"
    colour = not environ.get("NO_COLOR") and term not in PLAIN_TERMS
    wish = environ.get("NETCONSOLE_ASCII", "")
    if wish in ("0", "1"):
        unicode = wish == "0"
    else:
        locale = next((environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)), "")
        encodes = encoding.lower().replace("-", "").replace("_", "") == "utf8"
        unicode = encodes and locale not in ("C", "POSIX") and term not in PLAIN_TERMS | FEW_GLYPHS_TERMS
    return Terminal(colour=colour, unicode=unicode, plain=term in PLAIN_TERMS)


def prepare(terminal: Terminal, environ: MutableMapping[str, str]) -> None:
    """Write the decision where Textual will read it. Must come before the first import of Textual."""
    if terminal.colour:
        environ.pop("NO_COLOR", None)
    else:
        environ["NO_COLOR"] = "1"
    environ["TEXTUAL_ANIMATIONS"] = "none"
    environ["TEXTUAL_DISABLE_KITTY_KEY"] = "1"
    environ["TEXTUAL_FPS"] = "15"


def require() -> Terminal:
    """The terminal of this process. Raises NoTerminal when there is none to draw on."""
    for name, stream in (("input", sys.__stdin__), ("output", sys.__stdout__)):
        if stream is None or not stream.isatty():
            raise NoTerminal(
                f"standard {name} is not a terminal: run netconsole in one, or use 'netconsole snapshot' without"
            )
    assert sys.__stdout__ is not None
    return inspect(os.environ, sys.__stdout__.encoding or "ascii")


def to_ascii(text: str) -> str:
    """The same cells in ASCII. A wide character becomes two question marks, a combining one disappears."""
    if text.isascii():
        return text
    return "".join(char if char.isascii() else _ascii_cells(char) for char in text)


def _ascii_cells(char: str) -> str:
    glyph = _GLYPHS.get(char)
    if glyph is not None:
        return glyph
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return ""
    return "??" if unicodedata.east_asian_width(char) in "WF" else "?"
