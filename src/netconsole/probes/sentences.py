"""The texts of a manifest: words for narrow columns, and sentences that name labels in braces."""

from __future__ import annotations

import string
from collections.abc import Sequence

from netconsole.base.checker import Checker, close, shown

MAX_WORD = 24
"""Characters."""


def word(item: Checker, name: str, default: str) -> str:
    """A word or two, for a narrow column."""
    text = item.text(name, default)
    if len(text) > MAX_WORD or not text.isprintable():
        item.wrong(name, f"expected at most {MAX_WORD} printable characters, found {shown(text)}")
        return default
    return text


def texts_by_name(section: Checker) -> dict[str, str]:
    """All texts of a section, by their key."""
    return {name: section.text(name) for name in section.values}


def alternatives(where: Checker, label: str) -> tuple[str, ...]:
    """One value of a label, or a list of them."""
    return tuple(where.texts(label)) if isinstance(where.values.get(label), list) else (where.text(label),)


def check_sentence(item: Checker, key: str, say: str, known: Sequence[str]) -> None:
    """Note what is wrong with a sentence that may name these labels and values."""
    try:
        parts = list(string.Formatter().parse(say))
    except ValueError as error:
        item.wrong(key, f"expected a sentence with {{label}} in braces: {error}")
        return
    for _, name, form, conversion in parts:
        if name is None:
            continue
        if name not in known:
            item.wrong(key, f"{{{name}}} is no column{close(name, known)}")
        if form or conversion:
            item.wrong(key, f"{{{name}}} takes no format")
