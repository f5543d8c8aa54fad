"""Question `sockets`: who is at a port, or which listener of a namespace does not accept.

`process`, `port`, `address`, `peer`, `waiting`, `limit`: of the socket; null where there is none. `others`: how many
more there are. What waits is bytes, or of a listener connections. `is_time_wait`: the last connection of these ends is
in TIME-WAIT. `has_refused`: connections with an older time stamp were refused there, in this namespace; what else comes
for a connection that has ended is thrown away by every host.
"""

import os
import socket
import struct
from collections import Counter
from typing import Any, Iterator, List, NamedTuple, Optional, Tuple

from netconsole_collector.primitives import files
from netconsole_collector.primitives.files import owners
from netconsole_collector.primitives.netlink import Netlink, attributes
from netconsole_collector.questions.known import BadQuestion, Json, text
from netconsole_collector.questions.moving import moving
from netconsole_collector.questions.net import group_programs
from netconsole_collector.questions.net.programs import name_of, queried
from netconsole_collector.questions.net.rtnetlink import MASTER, RouteSocket
from netconsole_collector.questions.within import sysctl, sysctl_numbers, within
from netconsole_collector.sources.net.netlink_messages import (
    NETLINK_SOCK_DIAG,
    SOCK_DIAG_BY_FAMILY,
    TCP_CLOSE,
    TCP_LISTEN,
)
from netconsole_collector.sources.net.overruns import parse_raw

_REQUEST = struct.Struct("=BBBxI48x")
# family, state, ports, addresses, interface, receive and send queue, inode of struct inet_diag_msg
_SOCKET = struct.Struct("=BBxx2s2s16s16sI8x4xII4xI")
_IPV6_ONLY = 11  # INET_DIAG_SKV6ONLY
MAX_SOCKETS = 20000
_TIME_WAIT = socket.IPPROTO_TCP, 1 << 6
_NEW = socket.IPPROTO_TCP, 1 << 3 | 1 << 12  # TCP_SYN_RECV, TCP_NEW_SYN_RECV
_CALLING = socket.IPPROTO_TCP, 1 << 2  # TCP_SYN_SENT
_OPEN = 1 << TCP_CLOSE | 1 << 1 | 1 << 2  # ESTABLISHED, SYN_SENT; a UDP socket without a peer is CLOSE
_UP = 1
_SK_LOOKUP = 36  # BPF_SK_LOOKUP of enum bpf_attach_type
_INFO_DATA, _VXLAN_PORT = 2, 15  # IFLA_INFO_DATA, IFLA_VXLAN_PORT
_VXLAN_PORTS = (4789, 8472)  # RFC 7348; what Linux takes where none is given (drivers/net/vxlan: vxlan_port)
_PROTOCOLS = {"UDP": socket.IPPROTO_UDP, "TCP": socket.IPPROTO_TCP}


_ANY = ("0.0.0.0", "::")  # noqa: S104


class WaitingSocket(NamedTuple):
    """A socket: ``waiting`` is bytes that nobody has read, or of a listener connections that nobody has accepted.

    ``ifindex``: the device that it is bound to; 0 for none.
    """

    state: int
    address: str
    port: int
    peer: str
    waiting: int
    limit: int
    inode: int
    is_ipv6_only: bool = False
    ifindex: int = 0


def answer(arguments: Json) -> Any:
    """``wanted``: "port" (who is at ``port`` of ``protocol``), "sender" (who sends from ``port``), "raw" (`process`:
    whose raw socket of ``protocol`` has lost packets), "listener" (at which most wait; and of the connection of
    ``peer`` and ``peer_port`` with ``port``) or "half-open" (`half_open`: how many there are at `port`, which has the
    most; `syn_backlog`, `syncookies`: settings).

    `is_elsewhere`, of a port: somebody is there, and nobody at the address ``target``. `is_ipv4_only`, `is_ipv6_only`:
    somebody is there at any address, and of this family alone. `bound_device`: the device to which the first one is
    bound. `is_bound_elsewhere`: all are bound to devices other than ``device``. `group`, `group_program`: a BPF program
    sees what it receives (of a sender: sends), by its control group. `is_calling`: nobody listens, and a connection
    from this port begins, to `peer`. `is_callers`: nobody listens, and the kernel gives the port to who calls (it is in
    ip_local_port_range). `lookup_program`: a BPF program that chooses sockets in this namespace. `tunnel`:
    nobody is there, and a VXLAN device that would be is down; or it is up, and takes `tunnel_port` instead. `vrf`:
    ``device`` is of this VRF, and the first one is outside. `moved`: of the counters that ``counters`` names (with
    spaces between) the one that moves most meanwhile; empty where none does; `is_moving`: else it only has, at some
    time. `is_nobody`, of a listener: none listens at ``port``; only then the counters of ``unheard`` are asked, too:
    else they tell of other ports.
    """
    wanted = text(arguments, "wanted")
    if wanted == "sender":
        protocol, port = _port(arguments)
        found = within(arguments, lambda: _at(_PROTOCOLS[protocol], _OPEN, port))
        document = _document(found)
        _add_program(document, group_programs.EGRESS)
        return document
    if wanted == "port":
        protocol, port = _port(arguments)
        target = str(arguments.get("target", ""))
        states = 1 << TCP_LISTEN if protocol == "TCP" else 1 << TCP_CLOSE | 1 << 1
        found, bound = within(arguments, lambda: _with_devices(_at(_PROTOCOLS[protocol], states, port)))
        is_calling = protocol == "TCP" and not found
        if is_calling:
            found = within(arguments, lambda: _at(*_CALLING, port))
        is_unheard = protocol == "UDP" and not found
        tunnel, tunnel_port = within(arguments, lambda: _tunnel(port)) if is_unheard else (None, None)
    elif wanted == "raw":
        return within(arguments, lambda: _raw(text(arguments, "protocol")))
    elif wanted == "half-open":
        return within(arguments, _half_open)
    elif wanted == "listener":
        ends = arguments.get("port"), "{}:{}".format(arguments.get("peer"), arguments.get("peer_port"))
        everyone, waits, has_refused = within(arguments, lambda: _listening(ends))
        found = [one for one in everyone if one.waiting > one.limit] or everyone[:1]
    else:
        raise BadQuestion("wanted: expected port, sender, raw, half-open or listener")
    document = _document(found)
    names = str(arguments.get("counters", "")).split()
    if wanted == "listener":
        document.update(is_time_wait=waits, has_refused=has_refused)
        document["is_nobody"] = all(one.port != arguments.get("port") for one in everyone)
        names += str(arguments.get("unheard", "")).split() if document["is_nobody"] else []
    if names:
        moved = within(arguments, lambda: moving(names))
        document.update(moved=moved.name, is_moving=moved.is_now)
    if wanted == "port":
        kinds = {(":" in one.address, one.is_ipv6_only) for one in found if one.address in _ANY}
        _add_program(document, group_programs.INGRESS)
        document["is_calling"] = is_calling and bool(found)
        document["is_callers"] = is_calling and port in within(arguments, _callers)
        document["lookup_program"] = within(arguments, _lookup_program)
        document.update(is_ipv4_only=kinds == {(False, False)}, is_ipv6_only=kinds == {(True, True)})
        document.update(tunnel=tunnel, tunnel_port=tunnel_port)
        device = arguments.get("device")
        is_unbound = device is not None and bool(bound) and bound[0] is None
        document["vrf"] = within(arguments, lambda: _outside_of(str(device), protocol)) if is_unbound else None
        document["bound_device"] = bound[0] if bound else None
        document["is_bound_elsewhere"] = bool(bound) and not {None, arguments.get("device")}.intersection(bound)
        document["is_elsewhere"] = bool(found) and all(one.address not in (target, *_ANY) for one in found)
    return document


def _port(arguments: Json) -> Tuple[str, int]:
    protocol, port = text(arguments, "protocol"), arguments.get("port")
    if protocol not in _PROTOCOLS or not isinstance(port, int):
        raise BadQuestion("protocol and port: expected UDP or TCP, and a whole number")
    return protocol, port


def _callers() -> range:
    """The ports that programs get which call and ask for none."""
    ends = sysctl_numbers("ipv4/ip_local_port_range")
    return range(ends[0], ends[1] + 1) if len(ends) == 2 else range(0)


def _add_program(document: Json, direction: int) -> None:
    program = group_programs.of_process(document["process"], direction)
    document.update(group=program.group if program else None, group_program=program.name if program else None)


def _lookup_program() -> Optional[str]:
    """The name of the BPF program that chooses sockets in the namespace of the calling thread (since 5.9)."""
    namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = queried(namespace, _SK_LOOKUP)
    finally:
        os.close(namespace)
    return name_of(found[0]) if found else None


def refused_in(netstat: bytes) -> bool:
    """Whether time stamps were refused, by /proc/net/netstat: there is a line of names and one of values each.

    False from 6.14 on, where such a packet has a counter and a drop reason of its own.
    """
    lines = [line.split() for line in netstat.decode("ascii", "replace").splitlines()]
    counters = {name: value for names, values in zip(lines[::2], lines[1::2]) for name, value in zip(names, values)}
    return "PAWSTimewait" not in counters and counters.get("PAWSEstab", "0") != "0"


def _document(found: List[WaitingSocket]) -> Json:
    if not found:
        nobody: Json = dict.fromkeys(("process", "port", "address", "peer", "waiting", "limit"))
        return {**nobody, "others": 0}
    first = found[0]
    process = owners(b"/proc", {first.inode}).get(first.inode)
    return {
        "process": process,
        "port": first.port,
        "address": first.address,
        "peer": first.peer or None,
        "waiting": first.waiting,
        "limit": first.limit if first.state == TCP_LISTEN else None,
        "others": len(found) - 1,
    }


def _at(protocol: int, states: int, port: int) -> List[WaitingSocket]:
    """Those that take packets of anybody first."""
    return sorted((one for one in _sockets(protocol, states) if one.port == port), key=lambda one: bool(one.peer))


def _tunnel(port: int) -> Tuple[Optional[str], Optional[int]]:
    """The VXLAN device of this port that is down: its socket is there while it is up.

    Else, of a port that VXLAN commonly has, one that is up and has another port, and that port.
    """
    other: Tuple[Optional[str], Optional[int]] = (None, None)
    with RouteSocket() as routes:
        for link in routes.links():
            if link.kind != "vxlan":
                continue
            options = dict(attributes(link.info.get(_INFO_DATA, b""), 0))
            own = int.from_bytes(options.get(_VXLAN_PORT, b""), "big")
            if own == port and not link.flags & _UP:
                return link.name, None
            if own != port in _VXLAN_PORTS and link.flags & _UP:
                other = link.name, own
    return other


def _outside_of(device: str, protocol: str) -> Optional[str]:
    """The VRF of this device, if sockets that are not bound to it take nothing of it.

    net/ipv4/udp.c: udp_sk_bound_dev_eq.
    """
    if sysctl("ipv4/{}_l3mdev_accept".format(protocol.lower())) != 0:
        return None
    with RouteSocket() as routes:
        link = routes.link(device)
        master = link.whole(MASTER) if link is not None else None
        both = (link, routes.link_at(master) if master else None)
        return next((one.name for one in both if one is not None and one.kind == "vrf"), None)


def _half_open() -> Json:
    ports = Counter(one.port for one in _sockets(*_NEW))
    port, count = ports.most_common(1)[0] if ports else (None, 0)
    at_port = [one for one in _fullest() if one.port == port]
    return {
        **_document(at_port[:1]),
        "half_open": count,
        "port": port,
        "syn_backlog": sysctl("ipv4/tcp_max_syn_backlog"),
        "syncookies": sysctl("ipv4/tcp_syncookies"),
    }


def _raw(protocol: str) -> Json:
    found = []
    for name in (b"raw", b"raw6"):
        try:
            content = files.read(b"/proc/thread-self/net/" + name, files.MAX_FILE_BYTES)
        except FileNotFoundError:
            continue
        found += [one for one in parse_raw(content) if one.protocol == protocol and one.drops]
    process = owners(b"/proc", {found[0].inode}).get(found[0].inode) if len(found) == 1 else None
    return {"process": process, "others": max(0, len(found) - 1)}


def _with_devices(found: List[WaitingSocket]) -> Tuple[List[WaitingSocket], List[Optional[str]]]:
    """With the names of the devices to which they are bound; None of one that takes what comes in by any."""
    return found, [_device(one.ifindex) if one.ifindex else None for one in found]


def _device(ifindex: int) -> str:
    """A socket may outlive its device."""
    try:
        return socket.if_indextoname(ifindex)
    except OSError:
        return "a device that is gone"


def _listening(ends: Tuple[Any, str]) -> Tuple[List[WaitingSocket], bool, bool]:
    """The fullest listeners; whether the connection of these ends is in TIME-WAIT; whether such were refused."""
    is_waiting = any((one.port, one.peer) == ends for one in _sockets(*_TIME_WAIT))
    return _fullest(), is_waiting, refused_in(files.read(b"/proc/thread-self/net/netstat", 65536))


def _fullest() -> List[WaitingSocket]:
    """The listeners of TCP, the fullest first."""
    return sorted(_sockets(socket.IPPROTO_TCP, 1 << TCP_LISTEN), key=lambda one: -one.waiting)


def _sockets(protocol: int, states: int) -> Iterator[WaitingSocket]:
    netlink = Netlink(NETLINK_SOCK_DIAG)
    try:
        for family in (socket.AF_INET, socket.AF_INET6):
            request = _REQUEST.pack(family, protocol, 0, states)
            for count, body in enumerate(netlink.dump(SOCK_DIAG_BY_FAMILY, request)):
                if count >= MAX_SOCKETS:
                    return
                yield _found(bytes(body))
    finally:
        netlink.close()


def _found(body: bytes) -> WaitingSocket:
    of, state, port, peer_port, address, peer, ifindex, waiting, limit, inode = _SOCKET.unpack_from(body)
    size = 4 if of == socket.AF_INET else 16
    to = int.from_bytes(peer_port, "big")
    other = "{}:{}".format(_text(of, peer[:size]), to) if to else ""
    is_ipv6_only = any(dict(attributes(body, _SOCKET.size)).get(_IPV6_ONLY, b""))
    number = int.from_bytes(port, "big")
    here = _text(of, address[:size])
    return WaitingSocket(state, here, number, other, waiting, limit, inode, is_ipv6_only, ifindex)


def _text(family: int, address: bytes) -> str:
    return socket.inet_ntop(family, address)
