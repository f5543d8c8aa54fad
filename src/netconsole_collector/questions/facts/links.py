"""Reads the network devices of the own network namespace as the kernel tells of them (include/uapi/linux/if_link.h)."""

import socket
import struct
import sys
from typing import Dict, List, NamedTuple, Optional

from netconsole_collector.primitives.here import Here
from netconsole_collector.primitives.netlink import attributes
from netconsole_collector.sources.net.link_state import (
    IFLA_ADDRESS,
    IFLA_IFNAME,
    IFLA_INFO_KIND,
    IFLA_LINK,
    IFLA_LINK_NETNSID,
    IFLA_LINKINFO,
    RTM_GETLINK,
)

_IFINFO = struct.Struct("=BxHiII")
_MASTER, _OPERSTATE, _XDP, _XDP_ATTACHED = 10, 16, 43, 2
_NUMBERS = {"mtu": 4, "tx_queue_len": 13, "tx_queues": 31, "rx_queues": 32, "gso_max_size": 41, "gro_max_size": 58}
_QDISC = 6
_STATES = ("UNKNOWN", "NOTPRESENT", "DOWN", "LOWERLAYERDOWN", "TESTING", "DORMANT", "UP")
"""IF_OPER_* (RFC 2863)."""


class NetDevice(NamedTuple):
    """A network device. ``master`` and ``lower`` are numbers of others; 0: none."""

    number: int
    name: str
    kind: str
    mac: str
    master: int
    lower: int
    is_lower_elsewhere: bool
    """The device below it is in another network namespace."""
    has_xdp: bool
    numbers: Dict[str, int]
    words: Dict[str, str]
    """``state`` and ``qdisc``."""


def devices(host: Here) -> List[NetDevice]:
    """All of them, in the kernel's order. Raises OSError."""
    netlink = host.netlink(socket.NETLINK_ROUTE)
    try:
        return [device(body) for body in netlink.dump(RTM_GETLINK, _IFINFO.pack(socket.AF_UNSPEC, 0, 0, 0, 0))]
    finally:
        netlink.close()


def device(body: memoryview) -> NetDevice:
    """A device by the message about it."""
    found = dict(attributes(body, _IFINFO.size))
    info = dict(attributes(found[IFLA_LINKINFO], 0)) if IFLA_LINKINFO in found else {}
    xdp = dict(attributes(found[_XDP], 0)) if _XDP in found else {}
    words = {}
    if _OPERSTATE in found and found[_OPERSTATE][0] < len(_STATES):
        words["state"] = _STATES[found[_OPERSTATE][0]]
    if _QDISC in found:
        words["qdisc"] = _text(found[_QDISC])
    return NetDevice(
        number=_IFINFO.unpack_from(body)[2],
        name=_text(found.get(IFLA_IFNAME)),
        kind=_text(info.get(IFLA_INFO_KIND)),
        mac=":".join("{:02x}".format(byte) for byte in bytes(found.get(IFLA_ADDRESS, b""))),
        master=_number(found.get(_MASTER)),
        lower=_number(found.get(IFLA_LINK)),
        is_lower_elsewhere=IFLA_LINK_NETNSID in found,
        has_xdp=bool(_number(xdp.get(_XDP_ATTACHED))),
        numbers={name: _number(found[number]) for name, number in _NUMBERS.items() if number in found},
        words=words,
    )


def _number(value: Optional[memoryview]) -> int:
    return 0 if value is None else int.from_bytes(value[:4], sys.byteorder)


def _text(value: Optional[memoryview]) -> str:
    return "" if value is None else bytes(value).partition(b"\0")[0].decode("utf-8", "backslashreplace")
