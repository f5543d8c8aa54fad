"""Lists the network namespaces: each with its name in `ip netns`, or with a process in it if it has no name.

All these facts are volatile. A comparison uses them to name rows, and to tell a new namespace from an idle one.
"""

from typing import Any, Dict, Optional

from netconsole_collector.names.fact_keys import key
from netconsole_collector.names.netns_labels import is_namespace_inode
from netconsole_collector.questions.facts.reading import Facts, reason

_NAMED, _OF_PROCESSES = "/run/netns", "/proc/*/ns/net"
_MAX_NAMESPACES = 4096
_MAX_SETTINGS = 256
"""Namespaces whose settings are read: each takes about 5 ms."""
_HASHED = {
    "routes": ("/proc/net", "routes"),
    "other_routes": ("rtnetlink (RTM_GETROUTE)", "routes"),
    "rules": ("rtnetlink (RTM_GETRULE)", "rules"),
    "firewall": ("nfnetlink (NFT_MSG_GETRULE)", "rules"),
    "firewall_legacy": ("IPT_SO_GET_ENTRIES", "rules"),
}
"""What is told as a number and a hash: its source, and what is counted. All but ``firewall`` are by family."""


def collect(facts: Facts) -> None:
    """Add ``netns/INODE/name`` or, without a name, ``netns/INODE/process``: its process with the lowest id."""
    host = _host(facts)
    named = _named(facts)
    for inode, name in list(named.items())[:_MAX_NAMESPACES]:
        if inode != host:
            facts.put(key("netns", inode, "name"), name, _NAMED, volatile=True)
    seen = {host, *named}
    first: Dict[int, int] = {}
    for pid, inode in facts.host.inodes("ns/net").items():
        first.setdefault(inode, pid)
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


def settings(facts: Facts) -> None:
    """Add ``namespace/NAME/…``: sysctls of devices, routes and rules of every network namespace.

    Of a device the sysctls that differ from those of ``default``, of ``all`` and ``default`` those that a new namespace
    would not have; of routes and rules how many, and a hash. What has no name is volatile: its inode is of this boot.
    """
    own = facts.inode("/proc/self/ns/net")
    named = _named(facts)
    found = {inode: (name, f"{_NAMED}/{name}") for inode, name in named.items()}
    for pid, inode in facts.host.inodes("ns/net").items():
        found.setdefault(inode, (str(inode), f"/proc/{pid}/ns/net"))
    host = _host(facts)
    if host in found:
        found[host] = "host", found[host][1]
    if own is not None:
        found[own] = found.get(own, (str(own), ""))[0] if own != host else "host", ""
    listed = sorted(found.items())[:_MAX_SETTINGS]
    for inode, (name, path) in listed:
        try:
            _settings(facts, name, facts.host.settings(path, inode), name == "host")
        except OSError as error:
            facts.unknown(key("namespace", name), "setns", reason(error))
    if len(found) > len(listed):
        facts.unknown("namespace", _OF_PROCESSES, f"only the first {_MAX_SETTINGS} namespaces are read")


def _settings(facts: Facts, name: str, told: Any, is_host: bool) -> None:
    for family, read in told["sysctls"].items():
        for device, values in read.get("devices", {}).items():
            if is_host and device in ("all", "default"):
                continue  # the area sysctl has them
            for setting, value in values.items():
                sysctl = f"net.{family}.conf.{device}.{setting}"
                source = f"/proc/sys/net/{family}/conf"
                facts.put(
                    key("namespace", name, "sysctl", sysctl), str(value), source, volatile=is_namespace_inode(name)
                )
    for kind, (source, unit) in _HASHED.items():
        read = {kind: told[kind]} if kind == "firewall" else {f"{kind}_{of}": one for of, one in told[kind].items()}
        for what, one in read.items():
            if "why" in one:
                facts.unknown(key("namespace", name, what), source, str(one["why"]))
            else:
                text = f"{int(one['count'])} {unit}, hash {one['hash']}"
                facts.put(key("namespace", name, what), text, source, volatile=is_namespace_inode(name))


def _named(facts: Facts) -> Dict[int, str]:
    """By inode."""
    found = ((facts.inode(f"{_NAMED}/{name}"), name) for name in facts.entries(_NAMED))
    return {inode: name for inode, name in found if inode is not None}


def _host(facts: Facts) -> Optional[int]:
    return facts.inode("/proc/1/ns/net") or facts.inode("/proc/self/ns/net")  # the first needs root
