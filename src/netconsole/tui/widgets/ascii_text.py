"""What a terminal is sent that shows ASCII alone."""

from __future__ import annotations

import unicodedata

_GLYPHS = {
    "─": "-", "━": "=", "│": "|", "┃": "|", "┌": "+", "┐": "+", "└": "+", "┘": "+", "├": "+", "┤": "+", "┼": "+",
    "╭": "+", "╮": "+", "╰": "+", "╯": "+", "▁": "_", "▂": ".", "▃": ",", "▄": "-", "▅": "=", "▆": "+", "▇": "*",
    "█": "#", "▉": "#", "▊": "#", "▋": "#", "▌": "|", "▍": "|", "▎": "|", "▏": "|", "░": ":", "▒": "%", "▓": "%",
    "▔": "-", "▀": "-", "▲": "^", "▼": "v", "▴": "^", "▾": "v", "▸": ">", "▶": ">", "◂": "<", "●": "*", "○": "o",
    "•": "*", "·": "-", "…": "~", "–": "-", "—": "-", "−": "-", "≥": ">=", "≤": "<=", "≈": "~", "×": "x", "→": ">",
    "←": "<", "↑": "^", "↓": "v", "↔": "-", "µ": "u", "μ": "u", "σ": "s", "±": "~", "\u202f": " ", "\u2009": " ",
    "\u00a0": " ", "‘": "'", "’": "'", "“": '"', "”": '"',
}  # fmt: skip
"""ASCII for the characters of the console. Each is one cell wide, so the columns of a table stay where they are.

``≥`` and ``≤`` are not: ``>`` has another meaning. Lines are spelled with them before they are laid out.
"""
SPELLED = tuple(char for char, glyph in _GLYPHS.items() if len(glyph) > 1)


def to_ascii(text: str) -> str:
    """The text in ASCII, equally wide but for SPELLED.

    A wide character becomes two question marks, a combining one is left out.
    """
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
