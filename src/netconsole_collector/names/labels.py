"""Turns raw values of keys and records into labels for people: one function for each `as` kind of a manifest.

The kinds are those of docs/reference/probes.md.
Names that come from the host are plain text. Bytes that are not UTF-8 are shown as \\xNN. A reader that writes labels
to a terminal has to escape them.
"""

import errno
import itertools
import socket
import struct
from typing import Any, Callable, Dict, Iterable, List, Optional, Union

from netconsole_collector.kernel.syscalls import c_string
from netconsole_collector.names.drop_reasons import DropReasons
from netconsole_collector.names.lookups import Lookups
from netconsole_collector.names.namespaces import Namespaces
from netconsole_collector.names.processes import Processes
from netconsole_collector.names.vms import Vms

Label = Union[str, int, None]
Lookup = Union[Vms, Processes, Namespaces]
"""Has ``refresh()``, and ``changes``: how often one of its answers has changed."""

L4 = {
    1: "ICMP",
    2: "IGMP",
    4: "IPIP",
    6: "TCP",
    17: "UDP",
    33: "DCCP",
    41: "IPv6-in-IP",
    47: "GRE",
    50: "ESP",
    51: "AH",
}
L4.update(
    {44: "IPv6-Frag", 58: "ICMPv6", 89: "OSPF", 103: "PIM", 112: "VRRP", 115: "L2TP", 132: "SCTP", 136: "UDP-Lite"}
)
L4.update({0x100: "not IP", 0x101: "unparsed", 0x102: "AF_UNIX"})
"""IP protocol numbers. Above 255: why there is none (NC_L4_ in probes/common/packets.h)."""

ETHERTYPES = {0x0800: "IPv4", 0x0806: "ARP", 0x86DD: "IPv6", 0x8100: "802.1Q", 0x88A8: "802.1ad", 0x8847: "MPLS"}
ETHERTYPES.update({0x8035: "RARP", 0x88CC: "LLDP", 0x8809: "LACP", 0x8863: "PPPoE discovery", 0x8864: "PPPoE"})
ETHERTYPES.update({0x88F7: "PTP", 0x6558: "TEB", 0x8808: "pause", 0x0004: "802.2 LLC", 0x0003: "any"})

SOFTIRQS = ("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU")
"""Order of the enum in include/linux/interrupt.h, unchanged since 4.0."""

XMIT = {0x00: "ok", 0x01: "dropped", 0x02: "congested", 0x10: "busy"}
"""NET_XMIT_* and NETDEV_TX_* of include/linux/netdevice.h. Negative values are error numbers."""

_FIREWALL_HOOKS = ("none", "prerouting", "input", "forward", "output", "postrouting", "prerouting or input")
HOOKS = (*_FIREWALL_HOOKS, "to this host", "to many", "source route", "no SYN")
"""HOOK_* of probes/net/kernel_drops. The last four are no hooks: a packet for this host alone, before it was routed;
one by broadcast or multicast; one whose sender prescribes its way; and one of TCP that begins no connection."""

TRACKED = {0: "established", 1: "related", 2: "new", 3: "established reply", 4: "related reply", 7: "untracked"}
"""enum ip_conntrack_info (uapi/linux/netfilter/nf_conntrack_common.h)."""
TRACKED.update({8: "invalid", 9: "dropped", 10: "tracked before"})
"""Outcomes of probes/net/conntrack that have no number in the kernel."""
TCP_TRACKED = tuple("NONE SYN_SENT SYN_RECV ESTABLISHED FIN_WAIT CLOSE_WAIT LAST_ACK TIME_WAIT CLOSE SYN_SENT2".split())
"""enum tcp_conntrack (uapi/linux/netfilter/nf_conntrack_tcp.h)."""

_OUR_FRAMES = (
    "bpf_prog_",
    "bpf_trace_run",
    "__bpf_trace_",
    "__traceiter_",
    "trace_call_bpf",
    "perf_trace_",
    "bpf_get_stack",
)
MAX_LABEL = 256
"""Characters of a label (docs/reference/frames.md)."""
_MAPPED_IPV4 = bytes(10) + b"\xff\xff"


class Labeller:
    """Makes the labels of one probe."""

    def __init__(self, lookups: Lookups, drop_reasons: DropReasons) -> None:
        self.lookups = lookups
        self.drop_reasons = drop_reasons
        self._kinds: Dict[str, Callable[[int], Label]] = {
            "symbol": lookups.symbols.function,
            "netns": lookups.namespaces.name,
            "l4": lambda value: L4.get(value, "protocol {}".format(value)),
            "ethertype": lambda value: ETHERTYPES.get(value, "{:#06x}".format(value)) if value else "none",
            "softirq": lambda value: SOFTIRQS[value] if value < len(SOFTIRQS) else "softirq {}".format(value),
            "process": lookups.processes.of_pid,
            "socket": lookups.processes.of_socket,
            "vm": lookups.vms.of_process,
            "hex": "{:#x}".format,
            "xmit": xmit,
            "hook": lambda value: HOOKS[value] if value < len(HOOKS) else "hook {}".format(value),
            "errno": error_name,
            "tc_class": tc_class,
            "carrier": lambda value: "none" if value else "",
            "tracked": lambda value: TRACKED.get(value, "outcome {}".format(value)),
            "tcp_tracked": lambda value: TCP_TRACKED[value] if value < len(TCP_TRACKED) else "state {}".format(value),
        }

    def label(self, kind: Optional[str], value: Any) -> Label:
        """One value. Bytes are an address when their kind says so, else text up to the first NUL."""
        if isinstance(value, bytes):
            if kind == "prefix":
                return prefix(value)
            if kind == "packet":
                return packet(value)
            return address(value) if kind == "address" else mac(value) if kind == "mac" else c_string(value)
        if kind == "stack":
            names = [self.lookups.symbols.function(one) for one in self._frames(value)]
            text = " < ".join(names)
            return text if len(text) <= MAX_LABEL else text[: MAX_LABEL - 2] + " …"
        call = self._kinds.get(kind or "")
        return call(value) if call else int(value)

    def stack(self, addresses: List[int]) -> List[str]:
        """The frames of a stack, innermost first, without those of the measurement itself. The first 0 ends it."""
        return [self.lookups.symbols.frame(one) for one in self._frames(addresses)]

    def _frames(self, addresses: List[int]) -> List[int]:
        end = addresses.index(0) if 0 in addresses else len(addresses)
        function = self.lookups.symbols.function
        return list(itertools.dropwhile(lambda one: str(function(one)).startswith(_OUR_FRAMES), addresses[:end]))

    def changing(self, kinds: Iterable[Optional[str]]) -> List[Lookup]:
        """The look-ups behind labels of these kinds whose answers may change while the host runs."""
        lookups = self.lookups
        by_kind: Dict[Optional[str], Lookup] = {
            "tap": lookups.vms,
            "vm": lookups.vms,
            "socket": lookups.processes,
            "netns": lookups.namespaces,
        }
        return list(dict.fromkeys(by_kind[kind] for kind in kinds if kind in by_kind))


def address(raw: bytes) -> Optional[str]:
    """16 bytes in network order, IPv4 as a mapped address. None for all zeros: there is no address."""
    if raw.startswith(_MAPPED_IPV4):
        return socket.inet_ntop(socket.AF_INET, raw[12:])
    return socket.inet_ntop(socket.AF_INET6, raw) if any(raw) else None


def packet(raw: bytes) -> str:
    """How a packet begins (struct nc_begin): ``LINK:LENGTH:HEX``. Empty: the probe did not take it."""
    captured, link, length = struct.unpack_from("=HHI", raw)
    return "{}:{}:{}".format(link, length, raw[8 : 8 + captured].hex()) if captured else ""


def prefix_of(raw: bytes) -> bytes:
    """An address without its host: /24 of IPv4, /64 of IPv6."""
    return raw[:15] + b"\0" if raw.startswith(_MAPPED_IPV4) else raw[:8] + bytes(8)


def prefix(raw: bytes) -> Optional[str]:
    """What :func:`prefix_of` left, as text. None for all zeros: there is no address."""
    text = address(raw)
    return text and text + ("/24" if raw.startswith(_MAPPED_IPV4) else "/64")


def mac(raw: bytes) -> Optional[str]:
    """02:00:00:00:00:01. None for all zeros: there is no Ethernet header."""
    return ":".join(["{:02x}".format(byte) for byte in raw]) if any(raw) else None


def error_name(value: int) -> str:
    """ENOBUFS for 105 or -105. A number that has no name stays a number."""
    number = abs(_signed(value))
    return errno.errorcode.get(number, str(number)) if number else "none"


def tc_class(value: int) -> str:
    """1:10, as tc writes it; nothing for 0: none is known."""
    return "{:x}:{:x}".format(value >> 16, value & 0xFFFF) if value else ""


def xmit(value: int) -> str:
    """What a driver or qdisc returned for a packet."""
    number = _signed(value)
    return error_name(number) if number < 0 else XMIT.get(number, "code {}".format(number))


def _signed(value: int) -> int:
    """An int that was stored as u32."""
    return int(struct.unpack("=i", struct.pack("=I", value))[0]) if 0 <= value < 1 << 32 else value
