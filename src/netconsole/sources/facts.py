"""The facts of a host: the collector's package reads them (netconsole_collector/questions/facts), here or there."""

from __future__ import annotations

import base64
import re
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from netconsole.base.fact_keys import FactData, FactValue, key
from netconsole.base.figure import safe
from netconsole.far.host import THIS_HOST, AnyHost
from netconsole.host import door
from netconsole.host.collector_process import Unanswered
from netconsole.sources.tc_message import tcmsg
from netconsole_collector.primitives.netlink import attributes
from netconsole_collector.questions.facts.tc import GET_FILTER, MAX_FILTERS
from netconsole_collector.sources.net.netlink_messages import whole
from netconsole_collector.sources.net.qdiscs import RTM_GETQDISC, RTM_GETTCLASS, TCA_OPTIONS, TCA_TBF_RATE64

_TC = "tc"


class _Told(msgspec.Struct, frozen=True):
    """The answer. A fact: value, source, why, and whether it is volatile."""

    facts: dict[str, tuple[FactValue, str, str | None, bool]]
    tc: TcMessages | None


def collect(host: AnyHost = THIS_HOST) -> dict[str, FactData]:
    """The facts of a host, by key. Never raises: what could not be read is unknown, with the reason."""
    try:
        told = door.ask(host, "facts", None, _Told)
    except Unanswered as error:
        from netconsole_collector.questions.facts import AREAS

        return {area: FactData(None, "netconsole", error.strerror) for area in AREAS}
    found = {name: FactData(*fact) for name, fact in told.facts.items()}
    if told.tc is not None and told.tc.byteorder != sys.byteorder:
        found[_TC] = FactData(None, "rtnetlink", "the host's processors order bytes otherwise than those here")
    elif told.tc is not None:
        try:
            found |= tc_facts(told.tc)
        except (ValueError, LookupError, TypeError, struct.error) as error:  # the answer of another host
            found[_TC] = FactData(None, "rtnetlink", f"netconsole cannot read it: {safe(error, 120)}")
    return dict(sorted(found.items()))


_TCMSG = struct.Struct("=BxxxiIII")


class TcMessages(msgspec.Struct, frozen=True):
    """As the question tells them (netconsole_collector/questions/facts/tc.py): in base64, as the kernel wrote them."""

    byteorder: str
    names: list[tuple[int, str]]
    """Of devices, by number."""
    qdiscs: list[str]
    filters: list[tuple[int, int, list[str]]]
    """Of a device and a parent."""
    classes: list[tuple[int, list[str]]]


# include/uapi/linux/pkt_sched.h, TC_H_*
_INGRESS, _EGRESS = 0xFFFFFFF2, 0xFFFFFFF3
_NAMES = {0xFFFFFFFF: "root", 0xFFFFFFF1: "ingress", _INGRESS: "ingress", _EGRESS: "egress", 0xFFFF0000: "ingress"}
_ETHERTYPES = {0x0003: "all", 0x0800: "ip", 0x0806: "arp", 0x86DD: "ipv6", 0x8100: "802.1Q"}
_OFFLOADED = "flower"
"""Open vSwitch creates these filters itself, one per flow. They come and go with the traffic."""
_NOT_IN_PYROUTE2 = {("tbf", TCA_TBF_RATE64): "rate64", ("tbf", TCA_TBF_RATE64 + 1): "prate64"}
_ATTRIBUTE_NUMBER = 0x3FFF
"""Of an attribute's type: NLA_TYPE_MASK in include/uapi/linux/netlink.h."""
_NOT_OPTIONS = re.compile(r"STATS|_(RTAB|PTAB|CTAB|STAB|PAD)$|DIRECT_QLEN")
_NOT_PARAMETERS = re.compile(r"reserved|cell_|linklayer|^__")
_MAX_OPTION_TEXT = 1024
_MAX_RATE = (1 << 32) - 1
_DEPTH = 4


def tc_facts(told: TcMessages) -> dict[str, FactData]:
    """The facts under ``tc/``: every queueing discipline with its parameters, its classes and its filters.

    ``told``: what the collector has read. Raises whatever a message that makes no sense leads to.
    """
    names = dict(told.names)
    found: dict[str, FactData] = {}
    for qdisc in _decoded(RTM_GETQDISC, told.qdiscs):
        name, kind = names.get(qdisc["index"]), qdisc.get_attr("TCA_KIND")
        if name is None or kind is None:
            continue
        where = "root" if qdisc["parent"] == 0xFFFFFFFF else handle(qdisc["parent"])
        text = f"{kind} {_options(qdisc.get_attr('TCA_OPTIONS'))}".strip()
        found[key("tc", name, "qdisc", where)] = FactData(text[:_MAX_OPTION_TEXT], "rtnetlink (RTM_GETQDISC)")
    for index, parent, filters in told.filters:
        if index in names:
            found |= _filters(names[index], parent, filters)
    for index, classes in told.classes:
        for entry in _decoded(RTM_GETTCLASS, classes) if index in names else ():
            text = f"{entry.get_attr('TCA_KIND')} {_options(entry.get_attr('TCA_OPTIONS'))}".strip()
            where = key("tc", names[index], "class", handle(entry["handle"]))
            found[where] = FactData(text[:_MAX_OPTION_TEXT], "rtnetlink (RTM_GETTCLASS)")
    return found


def handle(number: int) -> str:
    """A tc handle as tc writes it: 1:a."""
    return _NAMES.get(number, f"{number >> 16:x}:{number & 0xFFFF:x}")


def _filters(device: str, parent: int, messages: Sequence[str]) -> dict[str, FactData]:
    """Kind, protocol, class and actions of each filter. `tc` shows what exactly it matches."""
    source = "rtnetlink (RTM_GETTFILTER)"
    found: dict[str, FactData] = {}
    for entry in _decoded(GET_FILTER, messages[:MAX_FILTERS]):
        kind, options = entry.get_attr("TCA_KIND"), entry.get_attr("TCA_OPTIONS")
        if options is None or not entry["handle"] or _within(options, "_DIVISOR") is not None:
            continue  # not a filter, but the entry for a preference or a hash table
        preference, protocol = entry["info"] >> 16, socket.ntohs(entry["info"] & 0xFFFF)
        text = f"{kind} protocol={_ETHERTYPES.get(protocol, hex(protocol))}"
        target, actions = _within(options, "_CLASSID"), _within(options, "_ACT")
        text += f" classid={handle(target)}" if isinstance(target, int) else ""
        named = [_within(action, "_KIND") for _, action in (actions or {}).get("attrs", ())]
        text += f" actions={','.join(map(str, named))}" if named else ""
        rates = [rate for _, action in (actions or {}).get("attrs", ()) if (rate := _police_rate(action))]
        text += f" rate={min(rates)}" if rates else ""
        where = key("tc", device, "filter", handle(parent), preference, f"{entry['handle']:x}")
        found[where] = FactData(text, source, volatile=kind == _OFFLOADED)
    if len(messages) > MAX_FILTERS:
        why = f"only the first {MAX_FILTERS} are listed"
        found[key("tc", device, "filter", handle(parent))] = FactData(None, source, why)
    return found


def _police_rate(action: Any) -> int:
    """Of a policer, in bytes per second; 0 of another action, and above 34 Gbit/s, which this attribute cannot say."""
    if _within(action, "_KIND") != "police":
        return 0
    limits = _within(_within(action, "_OPTIONS") or {}, "_TBF")
    rate = limits["rate"] if limits is not None else 0
    return rate if 0 < rate < _MAX_RATE else 0


def _decoded(kind: int, messages: Sequence[str]) -> list[Any]:
    """Queueing disciplines, classes or filters, as pyroute2 decodes them."""
    entries = []
    for message in messages:
        body = memoryview(base64.b64decode(message))
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
