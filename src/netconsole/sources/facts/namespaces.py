"""Lists the network namespaces: each with its name in `ip netns`, or with a process in it if it has no name.

All these facts are volatile. A comparison uses them to name rows, and to tell a new namespace from an idle one.
"""

from __future__ import annotations

from netconsole.base.fact_keys import key
from netconsole.host.target import Question
from netconsole.sources.facts.reading import Facts

_NAMED, _OF_PROCESSES = "/run/netns", "/proc/*/ns/net"
_MAX_NAMESPACES = 4096


def collect(facts: Facts) -> None:
    """Add ``netns/INODE/name`` or, without a name, ``netns/INODE/process``: its process with the lowest id."""
    host = facts.inode("/proc/1/ns/net") or facts.inode("/proc/self/ns/net")  # the first needs root
    names = facts.entries(_NAMED)
    facts.target.ahead(Question("status", (f"{_NAMED}/{name}",)) for name in names)
    named = {inode: name for name in names if (inode := facts.inode(f"{_NAMED}/{name}")) is not None}
    for inode, name in list(named.items())[:_MAX_NAMESPACES]:
        if inode != host:
            facts.put(key("netns", inode, "name"), name, _NAMED, volatile=True)
    seen = {host, *named}
    first: dict[int, int] = {}
    for pid, inode in facts.target.inodes("ns/net").items():
        first.setdefault(inode, pid)
    facts.ahead(f"/proc/{pid}/comm" for inode, pid in first.items() if inode not in seen)
    for inode, pid in first.items():
        if inode in seen:
            continue
        if len(seen) > _MAX_NAMESPACES:
            facts.unknown("netns", _OF_PROCESSES, f"only the first {_MAX_NAMESPACES} namespaces are listed")
            return
        seen.add(inode)
        try:
            facts.put(key("netns", inode, "process"), facts.text(f"/proc/{pid}/comm").strip(), _OF_PROCESSES, True)
        except OSError:
            continue  # the process has just ended
    facts.put("netns_count", len(seen - {host}), f"{_NAMED}, {_OF_PROCESSES}", volatile=True)
