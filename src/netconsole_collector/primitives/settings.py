"""Reads how a network namespace is set up: per-device sysctls; routes, policy rules and firewall rules as a hash.

It is of the namespace of the thread that calls it. What counts or ages (packets of a rule) is left out.
"""

import os
import struct
from functools import partial
from typing import Any, Callable, Dict, Tuple

from netconsole_collector.primitives import files, legacy_firewall, policy_routing
from netconsole_collector.primitives.digests import Digest, digest, written
from netconsole_collector.primitives.netlink import Netlink, attributes

SYSCTLS = {
    "ipv4": (
        "forwarding", "rp_filter", "accept_local", "route_localnet", "arp_ignore", "arp_announce", "arp_filter",
        "proxy_arp", "send_redirects", "accept_redirects", "log_martians", "src_valid_mark", "disable_policy",
    ),
    "ipv6": ("forwarding", "disable_ipv6", "accept_ra", "accept_redirects", "proxy_ndp"),
}  # fmt: skip
"""Of each device (Documentation/networking/ip-sysctl.rst): those that decide whether a packet is taken or dropped."""
COMMON = ("all", "default")
_BEGIN_ON = ("send_redirects", "accept_redirects", "accept_ra")
"""Those that are 1 in a new namespace; all others are 0."""
MAX_DEVICES = 2000
_MAX_BYTES = 4 << 20
_NFNETLINK = 12
_GET_CHAIN, _GET_RULE = 0x0A04, 0x0A07
"""NFNL_SUBSYS_NFTABLES << 8, and NFT_MSG_GETCHAIN and NFT_MSG_GETRULE (include/uapi/linux/netfilter)."""
_NFGENMSG = struct.Struct("=BBH")
_CHAIN_TABLE, _CHAIN_NAME, _CHAIN_HOOK, _CHAIN_POLICY, _CHAIN_TYPE = 1, 3, 4, 5, 7
_RULE_TABLE, _RULE_CHAIN, _RULE_EXPRESSIONS = 1, 2, 4
_EXPRESSION, _EXPRESSION_NAME, _EXPRESSION_DATA = 1, 1, 2
_COUNTING = (b"counter", b"quota", b"last", b"limit", b"connlimit")
"""Expressions whose attributes move with the packets."""


def settings() -> Dict[str, Any]:
    """All of them. What cannot be read is the reason, under ``why``."""
    return {
        "sysctls": {family: _tried(partial(_sysctls, family)) for family in sorted(SYSCTLS)},
        "routes": {family: _tried(partial(_routes, family)) for family in sorted(_ROUTES)},
        "firewall": _tried(_firewall),
        "firewall_legacy": {
            family: _tried(partial(legacy_firewall.rules, family)) for family in sorted(legacy_firewall.FAMILIES)
        },
        "rules": {family: _tried(partial(policy_routing.rules, family)) for family in sorted(policy_routing.FAMILIES)},
        "other_routes": {
            family: _tried(partial(policy_routing.routes, family)) for family in sorted(policy_routing.FAMILIES)
        },
    }


def _tried(read: Callable[[], Dict[str, Any]]) -> Dict[str, Any]:
    try:
        return read()
    except OSError as error:
        return {"why": (error.strerror or type(error).__name__).lower()}


def _sysctls(family: str) -> Dict[str, Any]:
    """By device: what a new device would not have; of ``all`` and ``default`` what a new namespace would not have."""
    where = "/proc/sys/net/{}/conf".format(family)
    usual = _settings_of(where, family, "default")
    begins = {name: "1" if name in _BEGIN_ON else "0" for name in SYSCTLS[family]}
    found = {}
    for device in [*COMMON, *sorted(set(os.listdir(where)) - set(COMMON))[:MAX_DEVICES]]:
        known = begins if device in COMMON else usual
        own = {name: value for name, value in _settings_of(where, family, device).items() if known.get(name) != value}
        if own:
            found[device.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")] = own
    return {"devices": found}


def _settings_of(where: str, family: str, device: str) -> Dict[str, str]:
    found = {}
    for name in SYSCTLS[family]:
        try:
            value = files.read(os.fsencode("{}/{}/{}".format(where, device, name)), 64)
        except OSError:
            continue  # this kernel lacks it, or the device has just gone
        found[name] = value.decode("ascii", "replace").strip()
    return found


def _columns(line: bytes, left_out: Tuple[int, ...]) -> bytes:
    return b" ".join(word for at, word in enumerate(line.split()) if at not in left_out)


_ROUTES = {"ipv4": (b"route", (4, 5)), "ipv6": (b"ipv6_route", (6, 7))}
"""The file of /proc/net, and its columns that count: references and uses."""


def _routes(family: str) -> Digest:
    name, left_out = _ROUTES[family]
    lines = files.read(b"/proc/thread-self/net/" + name, _MAX_BYTES).splitlines()
    return digest(_columns(line, left_out) for line in (lines[1:] if family == "ipv4" else lines))


def _firewall() -> Digest:
    """Of nftables, and so of iptables-nft: chains with their policies, and rules in their order."""
    netlink = Netlink(_NFNETLINK)
    try:
        chains = sorted(_chain(bytes(body)) for body in netlink.dump(_GET_CHAIN, _NFGENMSG.pack(0, 0, 0)))
        rules = [_rule(bytes(body)) for body in netlink.dump(_GET_RULE, _NFGENMSG.pack(0, 0, 0))]
    finally:
        netlink.close()
    made = digest([*chains, *rules], in_order=True)
    made["count"] = len(rules)
    return made


def _chain(body: bytes) -> bytes:
    kept = (_CHAIN_TABLE, _CHAIN_NAME, _CHAIN_HOOK, _CHAIN_POLICY, _CHAIN_TYPE)
    return body[:1] + b"".join(written(kind, value) for kind, value in attributes(body, 4) if kind in kept)


def _rule(body: bytes) -> bytes:
    parts = [body[:1]]
    for kind, value in attributes(body, 4):
        if kind in (_RULE_TABLE, _RULE_CHAIN):
            parts.append(written(kind, value))
        elif kind == _RULE_EXPRESSIONS:
            parts += [_expression(one) for of_it, one in attributes(value, 0) if of_it == _EXPRESSION]
    return b"".join(parts)


def _expression(value: bytes) -> bytes:
    found = dict(attributes(value, 0))
    name = found.get(_EXPRESSION_NAME, b"").rstrip(b"\0")
    data = b"" if name in _COUNTING else found.get(_EXPRESSION_DATA, b"")
    return written(_EXPRESSION_NAME, name) + written(_EXPRESSION_DATA, data)
