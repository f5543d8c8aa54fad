"""Writes screenshots into the working directory."""

from __future__ import annotations

import re
import time
from pathlib import Path

from netconsole.base import figure
from netconsole.base.errors import BadInput
from netconsole.base.files import write_whole
from netconsole.tui.widgets.look import Tone


def save(kind: str, ending: str, content: bytes) -> tuple[Path | None, str, Tone]:
    """Writes a file named by date and time. Returns its path, a message for the user, and the tone of the message."""
    path = Path(f"netconsole-{time.strftime('%Y%m%d-%H%M%S')}.{ending}")
    try:
        write_whole(path, content)
        path = path.absolute()
    except BadInput as error:
        return None, str(error), "act"
    except OSError as error:  # the working directory is gone
        return None, f"{path}: {error.strerror}", "act"
    return path, f"{kind} written to {figure.place(path, 58)}", "ok"


def picture(svg: str) -> bytes:
    """A screenshot that loads nothing from outside: the viewer chooses the fonts."""
    return _OUTSIDE.sub("", svg).encode()


_OUTSIDE = re.compile(r"<!--.*?-->|@font-face\s*\{.*?\}", re.DOTALL)
