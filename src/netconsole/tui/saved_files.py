"""Pictures of the screen, written at a key into the working directory."""

from __future__ import annotations

import re
import time
from pathlib import Path

from netconsole.base import figure
from netconsole.base.errors import BadInput
from netconsole.base.files import write_whole
from netconsole.tui.widgets.look import Tone


def save(kind: str, ending: str, content: bytes) -> tuple[Path | None, str, Tone]:
    """Write a file named by the time of day. Returns its path, what to tell the user, and the tone of it."""
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
    """An exported screenshot that refers to nothing outside: fonts are left to whoever shows it."""
    return _OUTSIDE.sub("", svg).encode()


_OUTSIDE = re.compile(r"<!--.*?-->|@font-face\s*\{.*?\}", re.DOTALL)
