"""Question `route`: how this namespace would forward a packet, and which settings of its device decide.

Settings: `forwarding`, `forwarding_all`, `rp_filter`, `route_localnet`, `accept_ra`, `disable_ipv6`,
`disable_ipv6_all`, `drop_unicast` (drop_unicast_in_l2_multicast). `mtu`: of its device; `is_mtu_too_small`: for IPv6.
`has_nat`: rules may translate addresses. `has_no_key`: IPsec has had no key (SA) for something that this namespace
sent. `is_own`, `is_own_source`: whether the target is an address here, and the source; `is_dad_failed`, `is_tentative`:
one that duplicate address detection does not let be used. `refusal`, `prefix`, `table`: a route that refuses it;
`rule_refusal`, `rule`: a rule of policy routing that does, and its preference. `out_device`, `out_gateway`, `out_kind`,
`out_mtu`: the way that it takes; `out_route_mtu`: the route has a bound of its own. `is_way_back`: it leaves where it
came in. `back_device`, `back_kind` and the like: the way to its source. What is not known is null.

Of a tunnel: `remote`, its other end; the way to that; and `room`, how long a packet may be that it sends there uncut.
"""

import errno
import socket
from typing import Any, Dict, Optional, Set, Tuple

from netconsole_collector.primitives import files
from netconsole_collector.primitives.netlink import Netlink, attributes
from netconsole_collector.questions.known import Json, text
from netconsole_collector.questions.net.firewall import NETLINK_NETFILTER, base_chains
from netconsole_collector.questions.net.rtnetlink import (
    DAD_FAILED,
    REFUSING,
    TENTATIVE,
    Interface,
    RouteSocket,
    family_of,
)
from netconsole_collector.questions.within import sysctl, within
from netconsole_collector.sources.net.protocol_counters import parse_single

_IFLA_MTU = 4
_IPV6_MIN_MTU = 1280  # include/uapi/linux/ipv6.h
_INFO_DATA = 2
_IPTUN_REMOTE, _GRE_REMOTE = 3, 7
_TUNNELS: Dict[str, Tuple[int, int]] = {
    "ipip": (_IPTUN_REMOTE, 20),
    "sit": (_IPTUN_REMOTE, 20),
    "ip6tnl": (_IPTUN_REMOTE, 40),
    "gre": (_GRE_REMOTE, 24),
    "gretap": (_GRE_REMOTE, 38),
    "erspan": (_GRE_REMOTE, 46),
    "ip6gre": (_GRE_REMOTE, 44),
    "ip6gretap": (_GRE_REMOTE, 58),
    "ip6erspan": (_GRE_REMOTE, 66),
}
"""By kind: the attribute of its other end (include/uapi/linux/if_tunnel.h), and the bytes of its headers at least."""
_DROP_UNICAST = "drop_unicast_in_l2_multicast"
_XFRM = b"/proc/thread-self/net/xfrm_stat"
_NO_KEY = "XfrmOutNoStates"


def answer(arguments: Json) -> Any:
    """Of a packet from ``source`` to ``target`` that came in by ``device``; without one it is this host's own.

    ``refused``: a route refused it, also where the kernel would now take another: its mark is not known. With
    ``tunnel``, the name of a device, it is about what that sends to its other end.
    """
    if "tunnel" in arguments:
        return within(arguments, lambda: _of_tunnel(text(arguments, "tunnel")))
    target, source = (text(arguments, name) for name in ("target", "source"))
    device = str(arguments.get("device", ""))
    return within(arguments, lambda: _looked_up(device, target, source, arguments.get("refused") is True))


def _looked_up(device: str, target: str, source: str, refused: bool) -> Json:
    family = family_of(target)
    name = "ipv4" if family == socket.AF_INET else "ipv6"
    with RouteSocket() as routes:
        link = routes.link(device)
        found = _settings(name, device) if link is not None else {}
        mtu = link.whole(_IFLA_MTU) if link is not None else None
        found.update(mtu=mtu, is_mtu_too_small=mtu is not None and mtu < _IPV6_MIN_MTU, has_no_key=_has_no_key())
        errors = _errors(routes, target, source, link)
        refusing = routes.refusing_route(target, errors)
        if refusing is None and refused:
            refusing = routes.refusing_route(target, set(REFUSING.values()), routes.tables_of_rules(family))
        found.update(zip(("refusal", "prefix", "table"), refusing or (None, None, None)))
        rule = routes.refusing_rule(family, errors) if refusing is None else None
        found.update(zip(("rule_refusal", "rule"), rule or (None, None)))
        found["has_nat"] = _has_nat()
        own = routes.own_addresses(family)
        found.update(is_own=target in own, is_own_source=source in own)
        flags = routes.unproven(family).get(target, 0) if family == socket.AF_INET6 else 0
        found.update(is_dad_failed=bool(flags & DAD_FAILED), is_tentative=flags & (DAD_FAILED | TENTATIVE) == TENTATIVE)
        found.update(_way(routes, "out_", target, source, link))
        found["is_way_back"] = bool(device) and found["out_device"] == device
        found.update(_way(routes, "back_", source, target, None))
    return found


def _of_tunnel(name: str) -> Json:
    with RouteSocket() as routes:
        link = routes.link(name)
        remote, headers = other_end(link) if link is not None else (None, 0)
        if remote is None:
            return {"remote": None}
        way = _way(routes, "out_", remote, "", None)
    return {"remote": remote, "room": way["out_mtu"] - headers if way["out_mtu"] else None, **way}


def other_end(link: Interface) -> Tuple[Optional[str], int]:
    """The address of a tunnel's other end, and how long its headers are at least; None of what has no fixed one."""
    at, headers = _TUNNELS.get(link.kind, (0, 0))
    address = dict(attributes(link.info.get(_INFO_DATA, b""), 0)).get(at, b"")
    family = {4: socket.AF_INET, 16: socket.AF_INET6}.get(len(address))
    return socket.inet_ntop(family, address) if family is not None and any(address) else None, headers


def _has_no_key() -> bool:
    """Whether the counter has ever moved here."""
    try:
        content = files.read(_XFRM, files.MAX_FILE_BYTES)
    except OSError:
        return False  # a kernel without IPsec, or without its counters
    return dict(parse_single(content.decode("ascii", "replace"))).get(_NO_KEY, 0) != 0


def _has_nat() -> bool:
    """Whether a rule may translate addresses."""
    legacy = "/proc/thread-self/net/ip{}_tables_names"
    for family in ("", "6"):
        try:
            with open(legacy.format(family), "rb") as names:
                if b"nat" in names.read().split():
                    return True
        except OSError:
            pass  # nobody has used them
    netlink = Netlink(NETLINK_NETFILTER)
    try:
        return any(one.kind == "nat" for _, one in base_chains(netlink))
    except OSError:
        return False
    finally:
        netlink.close()


def _errors(routes: RouteSocket, target: str, source: str, link: Optional[Interface]) -> Set[int]:
    """What the kernel says of its way, as of a packet that came in, and of one of this host's own."""
    found = set()
    for origin, device in ((source, link.number if link is not None else 0), ("", 0)):
        try:
            routes.route(target, origin, device)
        except OSError as error:
            # What comes in is told the same where forwarding is off.
            if error.errno and (not device or error.errno != errno.EHOSTUNREACH):
                found.add(error.errno)
    return found


def _settings(family: str, device: str) -> Json:
    if "/" in device:
        return {}
    where = "{}/conf/{{}}/{{}}".format(family)
    both = ("forwarding", "rp_filter", "route_localnet", _DROP_UNICAST)
    one = {key: sysctl(where.format(device, key)) for key in (*both, "accept_ra")}
    all_of = {key: sysctl(where.format("all", key)) for key in both}
    return {
        "forwarding": one["forwarding"],
        "forwarding_all": sysctl("ipv4/ip_forward") if family == "ipv4" else all_of["forwarding"],
        "rp_filter": _larger(one["rp_filter"], all_of["rp_filter"]),
        "route_localnet": _larger(one["route_localnet"], all_of["route_localnet"]),
        "drop_unicast": _larger(one[_DROP_UNICAST], all_of[_DROP_UNICAST]),
        "accept_ra": one["accept_ra"],
        "disable_ipv6": sysctl("ipv6/conf/{}/disable_ipv6".format(device)),
        "disable_ipv6_all": sysctl("ipv6/conf/all/disable_ipv6"),
    }


def _larger(*values: Optional[int]) -> Optional[int]:
    """Of a setting that holds where it is set for the device or for all."""
    return max((value for value in values if value is not None), default=None)


def _way(routes: RouteSocket, of: str, target: str, source: str, link: Optional[Interface]) -> Json:
    """The device by which a packet would leave, its next hop and how long it may be."""
    names = [of + name for name in ("device", "gateway", "kind", "mtu", "route_mtu")]
    try:
        route = routes.route(target, source, link.number if link is not None else 0)
    except (OSError, ValueError):
        try:
            route = routes.route(target)  # forwarding may be off: which way would it be?
        except (OSError, ValueError):
            return dict.fromkeys(names)
    out = routes.link_at(route.device)
    mtu = route.mtu or (out.whole(_IFLA_MTU) if out is not None else None)
    return dict(zip(names, (out.name if out is not None else None, route.gateway, route.kind, mtu, route.mtu)))
