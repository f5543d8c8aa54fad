"""Question `fragments`: how much memory packets take that wait for their fragments.

`memory`, `limit`: bytes of this namespace, and the setting ipfrag_high_thresh (ip6frag_high_thresh) that bounds them.
`is_full`: nearly all of it is taken, so that new ones are refused. `waiting`: how many packets wait.
"""

import re
from typing import Any, Optional

from netconsole_collector.primitives import files
from netconsole_collector.questions.known import Json
from netconsole_collector.questions.within import sysctl, within

_FILES = {
    "IPv4": (b"/proc/thread-self/net/sockstat", "ipv4/ipfrag_high_thresh"),
    "IPv6": (b"/proc/thread-self/net/sockstat6", "ipv6/ip6frag_high_thresh"),
}
_IN_USE = re.compile(rb"^FRAG6?: inuse (\d+) memory (\d+)$", re.M)
FULL_PCT = 90
"""One more packet is refused only when the limit is passed, and the next fragment may be large."""


def answer(arguments: Json) -> Any:
    """Of ``protocol``: IPv4, or IPv6."""
    path, setting = _FILES["IPv6" if arguments.get("protocol") == "IPv6" else "IPv4"]
    return within(arguments, lambda: _looked_up(path, setting))


def _looked_up(path: bytes, setting: str) -> Json:
    limit: Optional[int] = sysctl(setting)
    found = _IN_USE.search(files.read(path, 65536))
    waiting, memory = (int(found.group(1)), int(found.group(2))) if found else (None, None)
    is_full = None if memory is None or limit is None else 100 * memory >= FULL_PCT * limit
    return {"memory": memory, "limit": limit, "waiting": waiting, "is_full": is_full}
