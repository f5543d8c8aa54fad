"""Finds out what this terminal can do: colours, Unicode, answers to queries. This is done before Textual is imported.

Textual reads NO_COLOR and its own settings when it is imported. With NO_COLOR it shows greys instead of no colours. So
the decision is made here, from the environment and the encoding of the stream, and is then set for Textual.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

PLAIN_TERMS = frozenset({"dumb", "unknown", "vt52", "vt100", "vt102", "vt220"})
"""Terminals without colour. They print what they do not understand, so no query is sent to them."""
FEW_GLYPHS_TERMS = frozenset({"linux", "cons25"})
"""Terminals with colours whose fonts lack block characters."""


class NoTerminal(RuntimeError):
    """Standard input or output is not a terminal. The message says in one line what to do."""


@dataclass(frozen=True)
class Terminal:
    """What can be sent to this terminal."""

    colour: bool
    unicode: bool
    plain: bool
    """Send it no queries (synchronised output, resize reports): it would print them."""


def inspect(environ: Mapping[str, str], encoding: str) -> Terminal:
    """What a terminal can show, by the environment and the encoding of its stream.

    An empty NO_COLOR counts as not set (no-color.org). NETCONSOLE_ASCII=1 means ASCII, =0 means UTF-8, before all other
    settings. A locale of C or POSIX means ASCII. Without any locale Python uses UTF-8, and so does the console.
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
    """Sets the environment variables that Textual reads. Call it before Textual is imported for the first time."""
    if terminal.colour:
        environ.pop("NO_COLOR", None)
    else:
        environ["NO_COLOR"] = "1"
    environ["TEXTUAL_ANIMATIONS"] = "none"
    environ["TEXTUAL_DISABLE_KITTY_KEY"] = "1"
    environ["TEXTUAL_FPS"] = "15"


def require() -> Terminal:
    """The terminal of this process. Raises NoTerminal when there is none."""
    for name, stream in (("input", sys.__stdin__), ("output", sys.__stdout__)):
        if stream is None or not stream.isatty():
            raise NoTerminal(
                f"standard {name} is not a terminal: run netconsole in a terminal, or use 'netconsole snapshot'"
            )
    assert sys.__stdout__ is not None
    return inspect(os.environ, sys.__stdout__.encoding or "ascii")
