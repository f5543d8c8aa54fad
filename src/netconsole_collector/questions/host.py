"""Question `host`: its name, kernel, architecture, system, CPUs and boot, as in the first frame."""

from typing import Any

from netconsole_collector.host import host
from netconsole_collector.questions.known import Json


def answer(arguments: Json) -> Any:
    """The `host` of a hello frame."""
    return host()
