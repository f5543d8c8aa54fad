"""Packs the knobs of a probe into struct nc_config of probes/common/config.h, the value of the map nc_config."""

import re
import struct
from typing import Any, Dict, List, Optional, Tuple

from netconsole_collector.probe import drop_filter, ends

CONFIG_BYTES = 272
_LAYOUT = struct.Struct("=II16s16s16sHBBHH8sQQQQQQ4Q16s16sH6x16s16sH6x8II4x")
EMPTY_BUDGET = bytes(8)
"""The value of nc_arrival (events.h) that makes a new budget count at once."""

(
    F_DEVICE, F_ADDRESS, F_PORT, F_PROTOCOL, F_NETNS, F_THRESHOLD, F_DETAILS, F_COUNTERS, F_BREAKER,
    F_ENDS, F_ONE_WAY, F_VLAN, F_ETHERTYPE, F_MAC, F_RESTS, F_REASON, F_NOT_REASON,
    F_ROWS_SHARE,
) = (1 << bit for bit in range(18))  # fmt: skip

FILTERS = ("device", "address", "port", "protocol", "netns", "vlan", "ethertype", "mac", "reason")
SEEN_PCT = "seen_pct"
"""The knob that says for which share of the time the probe is attached. Where a probe lacks it: always."""
ROWS_ONE_IN = "rows_one_in"
"""The knob that says of how many counts one makes the rows, and stands for all of them (probes/common/row_share.h)."""
MAX_ROWS_ONE_IN = 1024
COMMON = FILTERS + ("events_per_s", "threshold_us", "rows_per_s", "flows_one_in", SEEN_PCT, ROWS_ONE_IN)
_MAC = re.compile("[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$")
PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17, "icmpv6": 58, "sctp": 132}
MAX_OWN = 4
MAX_FLOWS_ONE_IN = 65536
MODES = ("counters", "summary", "details")

DETAILS_RUNS_PER_S = 20000
"""Circuit breaker: at most so many runs a second, on all CPUs together, do the work of details. Such a run takes 0.1 to
0.2 us longer: 0.4 % of a core at most, in any storm."""
_DEVICE_AT = 8
"""Offset of the device in struct nc_config."""
_WINDOW_SHIFT = 27
"""NC_WINDOW_SHIFT of breaker.h."""
_WINDOW_NS = 1 << _WINDOW_SHIFT
_ATTENDED_S = 3
"""For so long after a reading the programs assume that somebody keeps the budget: an interval of 1 s, and delays."""
_NS_PER_US = 1000
_NS_PER_S = 1000000000
_MAX_BURST_EVENTS = 64
_BURST_SHARE = 4
"""A burst is at most a quarter of the budget of a second. A ring of 256 kB has room for many bursts."""


class KnobError(ValueError):
    """A knob cannot have this value. The message names the knob and the expected form."""


def merged(defaults: Dict[str, Any], current: Dict[str, Any], changes: Dict[str, Any]) -> Dict[str, Any]:
    """The knobs after a change. Raises KnobError for a knob that the probe does not have."""
    for name in changes:
        if name not in defaults:
            known = ", ".join(sorted(defaults)) or "none"
            raise KnobError("knob {}: this probe has no such knob (it has: {})".format(name, known))
    result = dict(defaults)
    result.update(current)
    result.update(changes)
    return result


def seen_pct(knobs: Dict[str, Any]) -> int:
    """For how many percent of the time the programs are attached. Raises KnobError."""
    value = knobs.get(SEEN_PCT, 100)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 100:
        raise KnobError("knob {}: expected a whole number from 1 to 100".format(SEEN_PCT))
    return value


def rows_one_in(knobs: Dict[str, Any]) -> int:
    """Of how many counts one makes the rows. Raises KnobError."""
    return max(1, _number(knobs, ROWS_ONE_IN, MAX_ROWS_ONE_IN))


def own_names(knobs: Dict[str, Any]) -> List[str]:
    """The knobs of a probe alone, in the order of the manifest, in which they lie in the map.

    Without sets of devices, which have a map of their own (device_sets.py).
    """
    return [name for name in knobs if name not in COMMON and not name.endswith("_devices")]


def pack(
    mode: str,
    knobs: Dict[str, Any],
    bound_pct: float = 0,
    rests: bool = False,
    reasons: Optional[Dict[str, str]] = None,
) -> bytes:
    """The bytes of struct nc_config.

    A budget of 0 events is no details: the exact counts go on. ``bound_pct``: what runs may take in mode details,
    percent of one core; 0: no bound. ``rests``: they do nothing. ``reasons``: drop reasons of the running kernel, as
    drop_reasons.from_btf has them; None: not known yet, and with a filter by reason they do nothing until they are.
    Raises KnobError.
    """
    if mode not in MODES:
        raise KnobError("mode {!r}: expected {}".format(mode, " or ".join(MODES)))
    seen_pct(knobs)
    flags = 0
    device = _device(knobs.get("device"))
    flags |= F_DEVICE if device else 0
    addresses, ports = _ends(knobs, "address"), _ends(knobs, "port")
    flags |= F_ADDRESS if addresses != ends.NO_ENDS else 0
    flags |= F_PORT if ports != ends.NO_ENDS else 0
    flags |= F_ENDS if any((addresses.first, addresses.second, ports.first, ports.second)) else 0
    flags |= F_ONE_WAY if addresses.is_one_way or ports.is_one_way else 0
    protocol = _protocol(knobs.get("protocol"))
    flags |= F_PROTOCOL if protocol is not None else 0
    netns = _number(knobs, "netns", 0xFFFFFFFF)
    flags |= F_NETNS if netns else 0
    vlan, ethertype = _number(knobs, "vlan", 4094), _number(knobs, "ethertype", 65535)
    flags |= (F_VLAN if vlan else 0) | (F_ETHERTYPE if ethertype else 0)
    mac = _mac(knobs.get("mac"))
    flags |= F_MAC if mac else 0
    wanted, numbers = _reasons(knobs.get("reason"), reasons)
    flags |= (F_REASON if wanted.names else 0) | (F_NOT_REASON if wanted.is_without else 0)
    threshold_ns = int(_real(knobs, "threshold_us") * _NS_PER_US)
    flags |= F_THRESHOLD if threshold_ns else 0
    events_per_s = _real(knobs, "events_per_s")
    every_ns = int(_NS_PER_S / events_per_s) if events_per_s else 0
    flags |= F_DETAILS if mode == "details" and events_per_s else 0
    flags |= F_COUNTERS if mode == "counters" else 0
    rows_runs = _runs(_real(knobs, "rows_per_s"))
    flags |= F_RESTS if rests or (wanted.names and reasons is None) else 0
    flags |= F_ROWS_SHARE if ROWS_ONE_IN in knobs else 0
    flags |= F_BREAKER if flags & F_DETAILS or rows_runs else 0
    burst = max(1, min(_MAX_BURST_EVENTS, int(events_per_s / _BURST_SHARE)))
    own = [_own(name, knobs[name]) for name in own_names(knobs)]
    if len(own) > MAX_OWN:
        raise KnobError("more than {} knobs of the probe's own".format(MAX_OWN))
    return _LAYOUT.pack(
        flags,
        netns,
        device,
        *_network(addresses.single),
        _port(ports.single),
        protocol or 0,
        _shift(_number(knobs, "flows_one_in", MAX_FLOWS_ONE_IN)),
        vlan,
        ethertype,
        mac,
        threshold_ns,
        every_ns,
        # The bucket compares "too early by more than burst": the first event of a burst is free.
        every_ns * (burst - 1),
        _runs(DETAILS_RUNS_PER_S) if flags & F_DETAILS else 0,
        rows_runs,
        max(1, int(bound_pct / 100 * _WINDOW_NS)) if flags & F_DETAILS and bound_pct else 0,
        *(own + [0] * (MAX_OWN - len(own))),
        *_network(addresses.first),
        _port(ports.first),
        *_network(addresses.second),
        _port(ports.second),
        *numbers,
        _shift(rows_one_in(knobs)),
    )


def attended(mono_ns: int) -> bytes:
    """The value of nc_attended after a reading at ``mono_ns``."""
    return struct.pack("=Q", (mono_ns + _ATTENDED_S * _NS_PER_S) >> _WINDOW_SHIFT)


def device_of(packed: bytes) -> str:
    """The device in the bytes of :func:`pack`; empty: any."""
    return packed[_DEVICE_AT : _DEVICE_AT + 16].rstrip(b"\0").decode("utf-8", "surrogateescape")


def _runs(per_s: float) -> int:
    """Runs in one window of the circuit breaker. 0 means no bound, so a bound is at least 1."""
    return max(1, int(per_s * _WINDOW_NS / _NS_PER_S)) if per_s else 0


def _shift(one_in: int) -> int:
    """The binary logarithm of one in 1, 2, 4 ..., rounded up; 0: one in 1."""
    return (max(1, one_in) - 1).bit_length()


def _device(value: Any) -> bytes:
    try:
        raw = (value or "").encode("utf-8", "surrogateescape")
    except (AttributeError, UnicodeEncodeError):
        raw = None
    if raw is None or len(raw) > 15 or b"\0" in raw:
        raise KnobError("knob device: expected the name of an interface, at most 15 bytes")
    return raw


def _mac(value: Any) -> bytes:
    """Six bytes; none: every packet passes."""
    if not value:
        return b""
    if not isinstance(value, str) or not _MAC.match(value):
        raise KnobError("knob mac: expected six bytes such as 02:00:5e:00:53:01")
    return bytes.fromhex(value.replace(":", ""))


def _ends(knobs: Dict[str, Any], name: str) -> ends.FlowEnds:
    value = knobs.get(name)
    if name == "port" and isinstance(value, str) and value.isdecimal():
        raise KnobError("knob port: expected a whole number from 0 to 65535, P,Q or from:P,to:Q")
    try:
        return ends.parse(value)
    except ends.EndsError:
        raise KnobError("knob {}: expected one, A,B or from:A,to:B".format(name)) from None


def _reasons(value: Any, known: Optional[Dict[str, str]]) -> Tuple[drop_filter.ReasonFilter, List[int]]:
    """The filter, and as many numbers as there is room for: the first one again and again. Zeros: none, or unknown."""
    try:
        wanted = drop_filter.parse(value or "")
        found = drop_filter.numbers(wanted, known) if known is not None else []
    except drop_filter.ReasonError as error:
        raise KnobError("knob reason: {}".format(error)) from None
    found = found or [0]
    return wanted, found + found[:1] * (drop_filter.MAX_REASONS - len(found))


def _network(value: str) -> List[bytes]:
    """Address and mask; none: of zeros, which every address passes. IPv4 is written as ::ffff:a.b.c.d."""
    if not value:
        return [b"", b""]
    import ipaddress  # only here: most runs have no such filter

    try:
        network = ipaddress.ip_network(value, strict=False)
    except ValueError:
        raise KnobError("knob address: expected an address or a prefix, such as 192.0.2.7 or 2001:db8::/32") from None
    packed, mask = network.network_address.packed, network.netmask.packed
    if network.version == 4:
        return [bytes(10) + b"\xff\xff" + packed, b"\xff" * 12 + mask]
    return [packed, mask]


def _port(value: str) -> int:
    """A port; 0: any."""
    if value and not (value.isdecimal() and len(value) <= 5 and int(value) <= 65535):
        raise KnobError("knob port: expected a whole number from 0 to 65535")
    return int(value or 0)


def _protocol(value: Any) -> Optional[int]:
    if value is None or value == "":
        return None
    text = str(value).lower()
    if text in PROTOCOLS:
        return PROTOCOLS[text]
    if not isinstance(value, bool) and text.isdecimal() and int(text) <= 255:
        return int(text)
    raise KnobError("knob protocol: expected {} or a number from 0 to 255".format(", ".join(sorted(PROTOCOLS))))


def _number(knobs: Dict[str, Any], name: str, highest: int) -> int:
    value = knobs.get(name) or 0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= highest:
        raise KnobError("knob {}: expected a whole number from 0 to {}".format(name, highest))
    return value


def _real(knobs: Dict[str, Any], name: str) -> float:
    value = knobs.get(name) or 0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1e9:
        raise KnobError("knob {}: expected a number from 0 to 1e9".format(name))
    return value


def _own(name: str, value: Any) -> int:
    if not isinstance(value, (bool, int, float)) or not 0 <= value < 1 << 63:
        raise KnobError("knob {}: expected true, false or a number of at least 0".format(name))
    return int(value)
