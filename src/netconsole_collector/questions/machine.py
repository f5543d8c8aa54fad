"""Question `machine`: busy time and all time of all CPUs since boot, and packets that the kernel has received."""

from typing import Any, Optional

from netconsole_collector.primitives.here import HERE, Here
from netconsole_collector.questions.known import Json
from netconsole_collector.sources.machine import busy_and_all_ms
from netconsole_collector.sources.net.softnet import SOFTNET, parse_softnet


def answer(arguments: Json) -> Any:
    """``{"busy_ms", "all_ms", "packets"}``; packets are null where that is not known. Raises OSError."""
    busy_ms, all_ms = busy_and_all_ms()
    return {"busy_ms": busy_ms, "all_ms": all_ms, "packets": packets()}


def packets(host: Here = HERE) -> Optional[int]:
    """Packets that the kernel received so far; None where that is not known."""
    try:
        return sum(counts[0] for _, counts in parse_softnet(host.read(SOFTNET).decode("ascii")))
    except (OSError, ValueError):
        return None
