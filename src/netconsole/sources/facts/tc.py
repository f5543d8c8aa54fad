"""Facts of traffic control: the queueing disciplines of every device, with their classes and filters."""

from __future__ import annotations

import re
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from pyroute2.netlink.rtnl.tcmsg import tcmsg

from netconsole.base.fact_keys import key
from netconsole.host.target import NetlinkSocket
from netconsole.sources.facts.nics import links_of
from netconsole.sources.facts.reading import Facts
from netconsole_collector.primitives.netlink import attributes
from netconsole_collector.sources.netlink_messages import whole
from netconsole_collector.sources.qdiscs import RTM_GETQDISC, RTM_GETTCLASS, TCA_OPTIONS, TCA_TBF_RATE64

_TCMSG = struct.Struct("=BxxxiIII")
_GET_FILTER = 46
"""RTM_GETTFILTER. The message that answers a request has a number that is smaller by two."""
# include/uapi/linux/pkt_sched.h, TC_H_*
_INGRESS, _EGRESS = 0xFFFFFFF2, 0xFFFFFFF3
_NAMES = {0xFFFFFFFF: "root", 0xFFFFFFF1: "ingress", _INGRESS: "ingress", _EGRESS: "egress", 0xFFFF0000: "ingress"}
_HOOKS: dict[str, tuple[int, ...]] = {"clsact": (_INGRESS, _EGRESS), "ingress": (0xFFFF0000,), "noqueue": (), "mq": ()}
"""The parents of a queueing discipline's filters, where that is not the discipline itself."""
_ETHERTYPES = {0x0003: "all", 0x0800: "ip", 0x0806: "arp", 0x86DD: "ipv6", 0x8100: "802.1Q"}
_OFFLOADED = "flower"
"""Open vSwitch creates these filters itself, one per flow. They come and go with the traffic."""
_MAX_FILTERS = 64
_NOT_IN_PYROUTE2 = {("tbf", TCA_TBF_RATE64): "rate64", ("tbf", TCA_TBF_RATE64 + 1): "prate64"}
_ATTRIBUTE_NUMBER = 0x3FFF
"""Of an attribute's type: NLA_TYPE_MASK in include/uapi/linux/netlink.h."""
_NOT_OPTIONS = re.compile(r"STATS|_(RTAB|PTAB|CTAB|STAB|PAD)$|DIRECT_QLEN")
_NOT_PARAMETERS = re.compile(r"reserved|cell_|linklayer|^__")
_MAX_OPTION_TEXT = 1024
_DEPTH = 4


def collect(facts: Facts) -> None:
    """Add the facts under ``tc/``: every queueing discipline with its parameters, its classes and its filters."""
    names = {link["index"]: link.get_attr("IFLA_IFNAME") for link in links_of(facts)}
    route = facts.target.netlink(socket.NETLINK_ROUTE)
    try:
        classful: set[int] = set()
        qdiscs = _dumped(route, RTM_GETQDISC)
        facts.target.ahead(route.questions(_filter_dumps(qdiscs)))
        for qdisc in qdiscs:
            name = names.get(qdisc["index"])
            kind = qdisc.get_attr("TCA_KIND")
            if name is None or kind is None:
                continue
            if kind in ("htb", "hfsc", "drr", "qfq", "cbq"):
                classful.add(qdisc["index"])
            where = "root" if qdisc["parent"] == 0xFFFFFFFF else handle(qdisc["parent"])
            text = f"{kind} {_options(qdisc.get_attr('TCA_OPTIONS'))}".strip()
            facts.put(key("tc", name, "qdisc", where), text[:_MAX_OPTION_TEXT], "rtnetlink (RTM_GETQDISC)")
            for parent in _parents(qdisc):
                _filters(facts, route, name, qdisc["index"], parent)
        for index in sorted(classful):
            for entry in _dumped(route, RTM_GETTCLASS, index):
                text = f"{entry.get_attr('TCA_KIND')} {_options(entry.get_attr('TCA_OPTIONS'))}".strip()
                where = handle(entry["handle"])
                facts.put(key("tc", names[index], "class", where), text[:_MAX_OPTION_TEXT], "rtnetlink (RTM_GETTCLASS)")
    finally:
        route.close()


def handle(number: int) -> str:
    """A tc handle as tc writes it: 1:a."""
    return _NAMES.get(number, f"{number >> 16:x}:{number & 0xFFFF:x}")


def _parents(qdisc: Any) -> tuple[int, ...]:
    """Those of its filters."""
    own: tuple[int, ...] = (qdisc["handle"],)
    return _HOOKS.get(qdisc.get_attr("TCA_KIND"), own)


def _filter_dumps(qdiscs: Sequence[Any]) -> Iterator[tuple[int, bytes]]:
    for qdisc in qdiscs:
        for parent in _parents(qdisc):
            yield _GET_FILTER, _TCMSG.pack(socket.AF_UNSPEC, qdisc["index"], 0, parent, 0)


def _filters(facts: Facts, route: NetlinkSocket, device: str, index: int, parent: int) -> None:
    """Add kind, protocol, class and actions of each filter. `tc` shows what exactly it matches."""
    source = "rtnetlink (RTM_GETTFILTER)"
    try:
        found = _dumped(route, _GET_FILTER, index, parent)
    except OSError:
        return  # a discipline that takes no filters
    for entry in found[:_MAX_FILTERS]:
        kind, options = entry.get_attr("TCA_KIND"), entry.get_attr("TCA_OPTIONS")
        if options is None or not entry["handle"] or _within(options, "_DIVISOR") is not None:
            continue  # not a filter, but the entry for a preference or a hash table
        preference, protocol = entry["info"] >> 16, socket.ntohs(entry["info"] & 0xFFFF)
        text = f"{kind} protocol={_ETHERTYPES.get(protocol, hex(protocol))}"
        target, actions = _within(options, "_CLASSID"), _within(options, "_ACT")
        text += f" classid={handle(target)}" if isinstance(target, int) else ""
        named = [_within(action, "_KIND") for _, action in (actions or {}).get("attrs", ())]
        text += f" actions={','.join(map(str, named))}" if named else ""
        where = key("tc", device, "filter", handle(parent), preference, f"{entry['handle']:x}")
        facts.put(where, text, source, volatile=kind == _OFFLOADED)
    if len(found) > _MAX_FILTERS:
        facts.unknown(key("tc", device, "filter", handle(parent)), source, f"only the first {_MAX_FILTERS} are listed")


def _dumped(route: NetlinkSocket, kind: int, index: int = 0, parent: int = 0) -> list[Any]:
    """All queueing disciplines, or all classes or filters of a device, as pyroute2 decodes them. Raises OSError."""
    request = _TCMSG.pack(socket.AF_UNSPEC, index, 0, parent, 0)
    entries = []
    for body in route.dump(kind, request):
        entry = tcmsg(whole(kind - 2, body))
        entry.decode()
        _tell_unknown(entry, body)
        entries.append(entry)
    return entries


def _tell_unknown(entry: Any, body: memoryview) -> None:
    """Name the options that pyroute2 does not know: it keeps their type and throws their value away.

    Above 34 Gbit/s the rate of a tbf is in one of them, and the rate that pyroute2 does know stays at its highest.
    """
    options = entry.get_attr("TCA_OPTIONS")
    if not isinstance(options, dict):
        return
    # Those of the message, and within it those of its options: the kernel's own bytes.
    values = dict(attributes(dict(attributes(body, _TCMSG.size))[TCA_OPTIONS], 0))
    told = []
    for name, value in options.get("attrs", ()):
        if name == "UNKNOWN":
            number = value["header"]["type"] & _ATTRIBUTE_NUMBER
            name = _NOT_IN_PYROUTE2.get((entry.get_attr("TCA_KIND"), number), f"attribute_{number}")
            value = _number(values.get(number, memoryview(b"")))
        told.append((name, value))
    options["attrs"] = told


def _number(value: memoryview) -> int | str:
    """A value of one, two, four or eight bytes as a number, any other in hexadecimal digits."""
    return int.from_bytes(value, sys.byteorder) if len(value) in (1, 2, 4, 8) else value.hex()


def _within(options: Any, ending: str) -> Any:
    """An attribute by the end of its name (the name begins with the kind of the filter); None without one."""
    return next((value for name, value in options.get("attrs", ()) if name.endswith(ending)), None)


def _options(options: Any) -> str:
    return " ".join(f"{name}={value}" for name, value in _flat(options, "", _DEPTH))


def _flat(options: Any, prefix: str, depth: int) -> Iterator[tuple[str, str]]:
    """The parameters in a netlink attribute, by name, without statistics and rate tables."""
    if depth == 0 or options is None:
        return
    if isinstance(options, dict):
        for name, value in options.get("attrs", ()):
            if not _NOT_OPTIONS.search(name):
                yield from _flat(value, name.removeprefix("TCA_").lower(), depth - 1)
        for name, value in options.items():
            if name not in ("attrs", "header", "value") and not _NOT_PARAMETERS.search(name) and value:
                yield from _flat(value, f"{prefix}.{name}" if prefix else name, depth - 1)
    elif isinstance(options, (str, int, float)):
        yield (prefix or "value").split("parms.")[-1], str(options)
