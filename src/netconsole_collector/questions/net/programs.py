"""Question `programs`: which XDP program is at a device, and which filters of tc.

`xdp`, `xdp_id`: its name and number; null without one. `filters`, `filter`, `action`: how many filters there are in the
asked direction, what the only one is, and the kind of its first action (gact, police …). `redirects_to`,
`is_end_up`: the device to which that one sends what it takes (mirred). `tcx`: the name of the only program that is
attached there without a filter (since 6.6).
"""

import ctypes
import os
import struct
from typing import Any, List, NamedTuple, Optional, Tuple

from netconsole_collector.kernel.syscalls import MACHINE
from netconsole_collector.primitives.netlink import attributes
from netconsole_collector.questions.known import Json, text
from netconsole_collector.questions.net.rtnetlink import Interface, RouteSocket, number
from netconsole_collector.questions.within import within

_XDP, _XDP_IDS = 43, (4, 5, 6, 7)  # IFLA_XDP; IFLA_XDP_PROG_ID, _DRV_, _SKB_, _HW_PROG_ID
_GET_FILTER = 46
_FILTER = struct.Struct("=BxxxiIII")
_PARENTS = {"ingress": 0xFFFFFFF2, "egress": 0xFFFFFFF3}  # TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS and _EGRESS)
_KIND, _OPTIONS, _BPF_NAME = 1, 2, 7
_ACTIONS = {"basic": 3, "bpf": 1, "cgroup": 1, "flow": 8, "flower": 3, "fw": 4, "matchall": 2, "route": 6, "u32": 7}
"""The attribute with the actions, by the kind of the filter (include/uapi/linux/pkt_cls.h)."""
_ACTION_KIND, _ACTION_OPTIONS = 1, 2
_MIRRED, _TC_MIRRED = 2, struct.Struct("=24xI")  # TCA_MIRRED_PARMS: the index behind tc_gen and eaction
_UP = 1
_SYSCALLS = {"x86_64": 321, "aarch64": 280}
_FD_BY_ID, _INFO_BY_FD = 13, 15
_INFO_BYTES, _NAME_AT, _NAME_BYTES = 256, 64, 16
"""Of struct bpf_prog_info: the name stands behind type, id, tag, four lengths and addresses, time and user."""


_PROG_QUERY, _MOST_PROGRAMS = 16, 16
TCX = {"ingress": 46, "egress": 47}
"""BPF_TCX_INGRESS, BPF_TCX_EGRESS."""


class TcFilter(NamedTuple):
    """``name``: in words, its kind and preference, or of a program its name."""

    name: str
    action: Optional[str]
    to_device: Optional[int] = None
    """To which mirred sends."""


def answer(arguments: Json) -> Any:
    """Of ``device``, in the direction ``hook``: ingress or egress."""
    device, hook = text(arguments, "device"), text(arguments, "hook")
    return within(arguments, lambda: _looked_up(device, hook))


def _looked_up(device: str, hook: str) -> Json:
    with RouteSocket() as routes:
        link = routes.link(device)
        xdp, xdp_id = at_device(link) if link is not None else (None, None)
        there = filters(routes, link.number, hook) if link is not None else []
        only = there[0] if len(there) == 1 else None
        end = routes.link_at(only.to_device) if only is not None and only.to_device else None
        programs = queried(link.number, TCX[hook]) if link is not None and hook in TCX else []
    return {
        "xdp": xdp,
        "xdp_id": xdp_id,
        "tcx": name_of(programs[0]) if len(programs) == 1 and not there else None,
        "filters": len(there),
        "filter": only.name if only is not None else None,
        "action": only.action if only is not None else None,
        "redirects_to": end.name if end is not None else None,
        "is_end_up": bool(end.flags & _UP) if end is not None else None,
    }


def at_device(link: Interface) -> Tuple[Optional[str], Optional[int]]:
    """Name and number of its XDP program; None without one."""
    xdp = dict(attributes(link.values.get(_XDP, b""), 0))
    found = next((known for known in (number(xdp.get(kind)) for kind in _XDP_IDS) if known), None)
    return name_of(found) if found else None, found


def filters(routes: RouteSocket, index: int, hook: str) -> List[TcFilter]:
    """Those of a device (its number) in a direction."""
    found, parent = [], _PARENTS.get(hook, 0)
    try:
        for body in routes.dump(_GET_FILTER, _FILTER.pack(0, index, 0, parent, 0)):
            _, _, handle, _, info = _FILTER.unpack_from(body)
            values = dict(attributes(body, _FILTER.size))
            options = dict(attributes(values.get(_OPTIONS, b""), 0))
            if not handle and not options:
                continue  # it only says that there is a chain of this kind
            kind = _text(values.get(_KIND))
            if kind == "u32" and not handle & 0xFFF:
                continue  # a table of such filters
            name = _text(options.get(_BPF_NAME)) if kind == "bpf" else ""
            first = next(attributes(options.get(_ACTIONS.get(kind, 0), b""), 0), (0, b""))[1]
            values = dict(attributes(first, 0))
            action = _text(values.get(_ACTION_KIND)) or None
            of_mirred = dict(attributes(values.get(_ACTION_OPTIONS, b""), 0)).get(_MIRRED, b"")
            end = _TC_MIRRED.unpack_from(of_mirred)[0] if len(of_mirred) >= _TC_MIRRED.size else None
            found.append(TcFilter("{} {}".format(kind, name or "pref {}".format(info >> 16)), action, end))
    except OSError:
        pass  # the device has no queueing discipline for them
    return found


def _text(value: Optional[bytes]) -> str:
    return (value or b"").rstrip(b"\0").decode("utf-8", "backslashreplace")


def queried(target: int, kind: int, flags: int = 0) -> List[int]:
    """The numbers of the BPF programs at a device (its number) or a control group (a descriptor), if they are told."""
    call = _SYSCALLS.get(MACHINE)
    if call is None:
        return []
    numbers = (ctypes.c_uint32 * _MOST_PROGRAMS)()
    query = struct.pack("=IIIIQI", target, kind, flags, 0, ctypes.addressof(numbers), _MOST_PROGRAMS)
    asked = ctypes.create_string_buffer(query.ljust(128, b"\0"), 128)
    if ctypes.CDLL(None, use_errno=True).syscall(call, _PROG_QUERY, asked, 128):
        return []
    (count,) = struct.unpack_from("=I", asked.raw, 24)
    return [numbers[at] for at in range(min(count, _MOST_PROGRAMS))]


def name_of(program: int) -> Optional[str]:
    """The name of a BPF program by its number; None where the kernel does not tell."""
    call = _SYSCALLS.get(MACHINE)
    if call is None:
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    asked = ctypes.create_string_buffer(struct.pack("=IIII", program, 0, 0, 0).ljust(128, b"\0"), 128)
    descriptor = libc.syscall(call, _FD_BY_ID, asked, 128)
    if descriptor < 0:
        return None
    try:
        info = ctypes.create_string_buffer(_INFO_BYTES)
        asked = ctypes.create_string_buffer(
            struct.pack("=IIQ", descriptor, _INFO_BYTES, ctypes.addressof(info)).ljust(128, b"\0"), 128
        )
        if libc.syscall(call, _INFO_BY_FD, asked, 128):
            return None
        name = info.raw[_NAME_AT : _NAME_AT + _NAME_BYTES].partition(b"\0")[0]
        return name.decode("utf-8", "backslashreplace") or None
    finally:
        os.close(descriptor)
