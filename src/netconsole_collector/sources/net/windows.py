"""TCP connections of this host that send, and for how much of that time a window held them back.

The kernel counts it for each connection since it began (tcp_get_info_chrono_stats, net/ipv4/tcp.c): the time in which
it had something to send, and of that the time in which the receiver's window was full, or its own buffer too small.
"""

import socket
import struct
from typing import Collection, List, NamedTuple, Optional

from netconsole_collector.primitives.netlink import Netlink, attributes
from netconsole_collector.sources.net.netlink_messages import SOCK_DIAG_BY_FAMILY

MAX_LISTED = 20000
"""Sockets that are looked at."""
MAX_SENDERS = 32
LEAST_BUSY_US = 1000000
"""Shares of a shorter time say little."""
RECENT_MS = 5000
"""It has sent something so short a time ago."""
_ESTABLISHED = 1 << 1
_REQUEST = struct.Struct("=BBBxI48x")
_SOCKET = struct.Struct("=BBxx2s2s16x16s32x")
"""Family, state, ports and address of the peer of struct inet_diag_msg (linux/inet_diag.h)."""
_INFO = 2  # INET_DIAG_INFO
_TCP_INFO = struct.Struct("=44xI20xI96xQQQ")
"""tcpi_last_data_sent, rtt, busy_time, rwnd_limited, sndbuf_limited (linux/tcp.h): ms, then us. Since Linux 4.10."""


class SendingConnection(NamedTuple):
    """Shares are of the time in which it had something to send, in percent; ``rtt_us``: a round trip."""

    peer: str
    peer_port: int
    port: int
    busy_us: int
    receiver_window_pct: float
    send_buffer_pct: float
    rtt_us: int


def senders(netlink: Netlink, peers: Collection[str]) -> List[SendingConnection]:
    """Those to these addresses of IPv4 that send now, the busiest first. Raises OSError."""
    found: List[SendingConnection] = []
    request = _REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, 1 << (_INFO - 1), _ESTABLISHED)
    for count, body in enumerate(netlink.dump(SOCK_DIAG_BY_FAMILY, request)):
        if count >= MAX_LISTED:
            break
        one = _sender(bytes(body), peers)
        if one is not None:
            found.append(one)
    return sorted(found, key=lambda one: -one.busy_us)[:MAX_SENDERS]


def _sender(body: bytes, peers: Collection[str]) -> Optional[SendingConnection]:
    _, _, port, peer_port, address = _SOCKET.unpack_from(body)
    peer = socket.inet_ntop(socket.AF_INET, address[:4])
    info = dict(attributes(body, _SOCKET.size)).get(_INFO, b"") if peer in peers else b""
    if len(info) < _TCP_INFO.size:
        return None
    last_sent_ms, rtt_us, busy_us, window_us, buffer_us = _TCP_INFO.unpack_from(info)
    if busy_us < LEAST_BUSY_US or last_sent_ms > RECENT_MS:
        return None
    shares = [round(min(100.0, 100.0 * one / busy_us), 1) for one in (window_us, buffer_us)]
    ports = int.from_bytes(peer_port, "big"), int.from_bytes(port, "big")
    return SendingConnection(peer, ports[0], ports[1], busy_us, shares[0], shares[1], rtt_us)
