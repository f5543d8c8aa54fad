"""The knobs that probes share, and what a knob may be set to: checked the same in a profile and at the keyboard."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from typing import cast

from netconsole.base.checker import shown
from netconsole.base.figure import safe
from netconsole.telemetry.frames import Scalar
from netconsole_collector.probe import drop_filter, ends
from netconsole_collector.probe.config import MAX_ROWS_ONE_IN, ROWS_ONE_IN

FILTERS = ("device", "address", "port", "protocol", "netns", "vlan", "ethertype", "mac", "reason")
"""Knobs that a profile may set for all probes at once."""
PORTLESS = ("icmp", "icmpv6")
PROTOCOLS = ("tcp", "udp", "icmp", "icmpv6", "sctp")
MAX_DEVICE_BYTES = 15
"""IFNAMSIZ without its final NUL (include/uapi/linux/if.h)."""
DEVICES_SUFFIX = "_devices"
"""A knob that ends so is a set of devices: names, prefixes (vnet*) and kinds (kind:tap), apart by blanks."""
MAX_DEVICE_PATTERNS = 4
"""Of one set: NC_PATTERNS of probes/common/devices.h."""
MAX_FILTER = 120
"""Characters of a value: the longest two IPv6 addresses with their directions have 100."""
MAX_EVENTS_PER_S = 100_000
"""More sampled events than this are not a sample any more: they cost what the aggregates were made to save."""

_INTEGERS = {
    "netns": (0, 2**32 - 1),
    "vlan": (0, 4094),
    "ethertype": (0, 65535),
    "events_per_s": (0, MAX_EVENTS_PER_S),
    "flows_one_in": (1, 65536),
    ROWS_ONE_IN: (1, MAX_ROWS_ONE_IN),
    "seen_pct": (1, 100),
}
_UNITS = {
    "ns": "nanoseconds",
    "us": "microseconds",
    "ms": "milliseconds",
    "s": "seconds",
    "pct": "percent",
    "kb": "kB",
    "bytes": "bytes",
    "packets": "packets",
    "intervals": "intervals",
    "port": "number of a port",
    "pid": "number of a process",
}
_HINTS = {
    "device": "name of an interface; empty: all",
    "address": "A; A,B; from:A,to:B; empty: all",
    "port": "P; P,Q; from:P,to:Q; 0: all",
    "protocol": "tcp, udp, icmp, icmpv6, sctp or a number; empty: all",
    "netns": "name or inode of the network namespace; 0: all",
    "vlan": "id of the outer tag; 0: all",
    "ethertype": "number, after VLAN tags: 2054 is ARP; 0: all",
    "mac": "MAC address of either end, such as 02:00:5e:00:53:01; empty: all",
    "reason": "A,B: only these drop reasons; not:A,B: all others; empty: all",
    "pid": "number of a process, such as a VM's QEMU; 0: all",
    "events_per_s": "budget of sampled events in mode details",
    "flows_one_in": "details of one flow in so many, always the same; rounded up to 2, 4, 8 …",
    "seen_pct": "percent of the time in which the probe is attached; 100: always",
    ROWS_ONE_IN: "rows are made of one count in so many, and scaled (≈); rounded up to 2, 4, 8 …",
    "rows_per_s": "above this rate packets are counted and not listed; 0: all are listed",
    "threshold_us": "only events that take longer, microseconds; counts hold all",
}
_DEVICE_SET = f"at most {MAX_DEVICE_PATTERNS} names, prefixes or kinds of interfaces: vnet* eth0 kind:tap"
_REASONS = f"at most {drop_filter.MAX_REASONS} drop reasons, such as NO_SOCKET,NETFILTER_DROP or not:NO_SOCKET"
_MAX_NUMBER = 2**53
"""Beyond it a JSON number is no longer exact."""


def unit_of(knob: str) -> str | None:
    """The unit that a knob's name ends in, in words; None when it has none."""
    if knob.endswith("_per_s"):
        return "events a second" if knob == "events_per_s" else "a second"
    return _UNITS.get(knob.rpartition("_")[2])


def without_unit(knob: str) -> str:
    """The name without its unit: what two knobs have in common that differ in unit alone."""
    stem, _, unit = knob.rpartition("_")
    return stem if unit in _UNITS else knob


def refusal(knob: str, value: object, default: Scalar) -> str | None:
    """Why this value cannot be given to the knob, as `expected …, found …`; None when it can.

    ``default`` is the value in the manifest: a knob of a probe's own takes values of the type of its default.
    """
    expected = _expected(knob, value, default)
    return None if expected is None else f"expected {expected}, found {shown(value)}"


def contradictions(knobs: Mapping[str, Scalar]) -> Iterator[tuple[str, str]]:
    """The filters that no packet can pass together with the protocol, and why."""
    protocol, port, address = knobs.get("protocol"), knobs.get("port"), knobs.get("address")
    if protocol in PORTLESS and port:
        yield "port", f"contradicts protocol {shown(protocol)}, which has no ports"
    if isinstance(address, str) and address:
        version = 6 if address.replace("from:", "").replace("to:", "").count(":") else 4
        if (protocol == "icmp" and version == 6) or (protocol == "icmpv6" and version == 4):
            yield "address", f"contradicts protocol {shown(protocol)}: this is an IPv{version} address"


def hint(name: str, default: Scalar) -> str:
    """What a knob takes, in a few words."""
    if name in _HINTS:
        return _HINTS[name]
    unit = unit_of(name)
    return f"{unit}; default {default}" if unit else f"default {default}"


def changed(knobs: Mapping[str, Scalar], defaults: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The knobs that are not at their defaults: what a header shows as set."""
    return {name: value for name, value in knobs.items() if value != defaults.get(name)}


def filters_set(knobs: Mapping[str, Scalar] | None) -> dict[str, Scalar]:
    """The filters among these knobs that keep something out."""
    return {name: knobs[name] for name in FILTERS if knobs.get(name)} if knobs else {}


def filters_text(filters: Mapping[str, object]) -> str:
    """Filters as people write them. No address is cut: half of one is nobody's, and would not be redacted."""
    return " ".join(f"{name}={safe(value, MAX_FILTER)}" for name, value in filters.items())


def _expected(knob: str, value: object, default: Scalar) -> str | None:
    if knob in _INTEGERS:
        low, high = _INTEGERS[knob]
        fits = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        return None if fits else f"a whole number from {low} to {high}"
    if knob == "device":
        return None if _is_device(value) else f"the name of an interface, at most {MAX_DEVICE_BYTES} bytes"
    if knob == "address":
        return None if _are_ends(value, _is_prefix) else "an address or a prefix, such as 192.0.2.7, A,B or from:A,to:B"
    if knob == "port":
        is_number = isinstance(value, int) and not isinstance(value, bool)
        is_text = isinstance(value, str) and not value.isdecimal()
        is_port = (is_number or is_text) and _are_ends(value, _is_port)
        return None if is_port else "a whole number from 0 to 65535, P,Q or from:P,to:Q"
    if knob == "protocol":
        return None if _is_protocol(value) else f"{', '.join(PROTOCOLS)} or a number from 0 to 255"
    if knob == "mac":
        return None if _is_mac(value) else "a MAC address, such as 02:00:5e:00:53:01"
    if knob == "reason":
        return None if _are_reasons(value) else _REASONS
    if knob.endswith(DEVICES_SUFFIX):
        return None if _is_device_set(value) else _DEVICE_SET
    if isinstance(default, bool):
        return None if isinstance(value, bool) else "true or false"
    if isinstance(default, (int, float)):
        return _number(knob, value, whole=isinstance(default, int) and unit_of(knob) is None)
    if isinstance(value, str) and len(value) <= 256 and value.isprintable():
        return None
    return "a text of at most 256 characters"


def _number(knob: str, value: object, whole: bool) -> str | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and 0 <= cast("float", value) <= _MAX_NUMBER and (isinstance(value, int) or not whole):
        return None
    unit = unit_of(knob)
    return f"a number of {unit} (the unit is in the knob's name)" if unit else f"a whole number up to {_MAX_NUMBER}"


def _is_device(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        raw = value.encode()
    except UnicodeEncodeError:  # bytes of a command line that are no UTF-8: no frame can carry them
        return False
    return len(raw) <= MAX_DEVICE_BYTES and b"\0" not in raw


def _is_device_set(value: object) -> bool:
    """The collector checks the same (netconsole_collector/device_sets.py): it may be older than this console."""
    if not isinstance(value, str):
        return False
    words = value.split()
    return len(words) <= MAX_DEVICE_PATTERNS and all(_is_device_pattern(word) for word in words)


def _is_device_pattern(word: str) -> bool:
    name = word.removeprefix("kind:")
    stem = name if name != word else name.removesuffix("*")
    return "*" not in stem and _is_device(stem) and (bool(stem) or word == "*")


def _are_ends(value: object, is_one: Callable[[str], bool]) -> bool:
    if not isinstance(value, (str, int)) or not str(value).isascii() or (isinstance(value, int) and value < 0):
        return False
    try:
        named = ends.parse(value)
    except ends.EndsError:
        return False
    return all(is_one(text) for text in named[:3] if text)


def _is_port(text: str) -> bool:
    return text.isdecimal() and len(text) <= 5 and 0 < int(text) <= 65535


def _is_prefix(value: str) -> bool:
    try:
        ipaddress.ip_network(value, strict=False)
    except ValueError:
        return False
    return "%" not in value


def _is_mac(value: object) -> bool:
    return isinstance(value, str) and (
        not value or re.fullmatch("[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", value) is not None
    )


def _are_reasons(value: object) -> bool:
    """Whether the kernel has these reasons is the collector's to say: it knows that kernel."""
    try:
        drop_filter.parse(value)
    except drop_filter.ReasonError:
        return False
    return True


def _is_protocol(value: object) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return 0 <= value <= 255
    return isinstance(value, str) and (
        value in ("", *PROTOCOLS) or (re.fullmatch(r"[0-9]{1,3}", value) is not None and int(value) <= 255)
    )
