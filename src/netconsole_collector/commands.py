"""Reads commands from standard input (docs/design/collector.md): cuts the lines, and checks the keys."""

import json
from typing import Any, Dict, List, Optional

MAX_BYTES = 16 * 1024 * 1024
MAX_WHY = 1024
MAX_BOUND_PCT = 100000

Json = Dict[str, Any]


class BadCommand(ValueError):
    """A command that is refused. The message goes into its reply."""


class LineSplitter:
    """Cuts what was read into lines. It leaves out a line that is too long."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_left_out = False

    def add(self, data: bytes) -> List[bytes]:
        """The lines that are complete now, without empty ones."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        if lines and self._is_left_out:
            self._is_left_out = False
            del lines[0]
        return [line for line in lines if line.strip()]

    def is_too_long(self) -> bool:
        """Whether the current line has just become too long. The rest of it is left out, too."""
        if len(self._rest) <= MAX_BYTES:
            return False
        self._rest, self._is_left_out = b"", True
        return True


def parsed(line: bytes) -> Json:
    """The command in a line. It always has an ``id``. Raises BadCommand."""
    try:
        command = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):  # ValueError itself: a number of thousands of digits
        raise BadCommand("not a command: the line is not JSON") from None
    if not isinstance(command, dict) or not isinstance(command.get("id", 0), int):
        raise BadCommand("not a command: expected an object with a number as id")
    command.setdefault("id", 0)
    return command


def mode(command: Json) -> str:
    """The mode that a command asks for."""
    return command.get("mode") or "summary"


def why(command: Json) -> Optional[str]:
    """The sentence for the status, if there is one. Raises BadCommand."""
    sentence = command.get("why")
    if sentence is not None and not (isinstance(sentence, str) and len(sentence) <= MAX_WHY):
        raise BadCommand("why: expected a sentence of at most {} characters".format(MAX_WHY))
    return sentence


def bound_pct(command: Json, otherwise: Optional[float] = None) -> float:
    """What details may take, percent of one core. ``otherwise``: when the command does not say. Raises BadCommand."""
    percent = command.get("kernel_cpu_pct")
    if percent is None and otherwise is not None:
        return otherwise
    if isinstance(percent, bool) or not isinstance(percent, (int, float)) or not 0 <= percent <= MAX_BOUND_PCT:
        raise BadCommand("{}: kernel_cpu_pct must be a number from 0 to {}".format(command["command"], MAX_BOUND_PCT))
    return float(percent)


def knobs(command: Json) -> Json:
    """The knobs that a command names. Raises BadCommand."""
    named = command.get("knobs") or {}
    if not isinstance(named, dict):
        raise BadCommand("knobs: expected an object")
    return named


def integer(command: Json, key: str, low: int, high: int) -> int:
    """A whole number of a command. Raises BadCommand."""
    value = command.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise BadCommand("{}: {} must be a whole number from {} to {}".format(command["command"], key, low, high))
    return value
