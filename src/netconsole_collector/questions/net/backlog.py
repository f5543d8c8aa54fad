"""Question `backlog`: how many packets may wait for one CPU.

`limit`: net.core.netdev_max_backlog, which is of the whole host.
"""

from typing import Any

from netconsole_collector.primitives.here import HERE, Here
from netconsole_collector.questions.known import BadQuestion, Json

_LIMIT = "/proc/sys/net/core/netdev_max_backlog"


def answer(_arguments: Json, host: Here = HERE) -> Any:
    """Of this host."""
    text = host.read(_LIMIT).decode("ascii", "replace").strip()
    if not text.isdigit():
        raise BadQuestion("{}: expected a number".format(_LIMIT))
    return {"limit": int(text)}
