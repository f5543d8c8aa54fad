"""Attaches a loaded program to an attach point: "raw_tracepoint:kfree_skb", "fentry:tun_net_xmit", "xdp:native:eth0".

A manifest says "entry:FUNCTION" or "return:FUNCTION". There are two kinds of programs for each (:func:`kinds_of`). It
says "xdp:native" or "xdp:generic", and the knob `device` says at which device (:func:`at_device`).

It uses the system calls themselves, and writes nothing to tracefs. An attachment is one descriptor. It ends when the
last copy of the descriptor is closed.
"""

import ctypes
import errno
import fcntl
import functools
import os
import re
import socket
import struct
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from netconsole_collector.kernel import syscalls

_FORM = re.compile(
    r"raw_tracepoint:\w+|tracepoint:\w+:\w+|xdp:(?:native|generic)(?::\S{1,15})?"
    r"|(?:entry|return|fentry|fexit|kprobe|kretprobe):[\w.]+"
)
_TRACEFS = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
_PMU = "/sys/bus/event_source/devices/{}"
_CALLED = r"^{} .*(\n\t.*)*\bdirect(\(jmp\))?-->"
"""Of a function in enabled_functions: the lines after the first begin with a tab (kernel/trace/ftrace.c, t_show)."""

TYPED, BY_KPROBE = ("fentry", "fexit"), ("kprobe", "kretprobe")
_KINDS = {"entry": (TYPED[0], BY_KPROBE[0]), "return": (TYPED[1], BY_KPROBE[1])}
"""Of programs on a function, the cheaper kind first."""
_WRITTEN = {kind: written for written, kinds in _KINDS.items() for kind in kinds}

XDP = "xdp"
_XDP_WAYS = {"generic": 1 << 1, "native": 1 << 2}
"""XDP_FLAGS_SKB_MODE, XDP_FLAGS_DRV_MODE (include/uapi/linux/if_link.h)."""
XDP_POINTS = tuple("{}:{}".format(XDP, way) for way in _XDP_WAYS)
"""As a manifest names them."""
_XDP_REFUSALS = {
    errno.EBUSY: "another XDP program is there already, and netconsole replaces none",
    errno.EEXIST: "another XDP program is there already, and netconsole replaces none",
    errno.EOPNOTSUPP: "the driver of this device has no native XDP",
    errno.EINVAL: "the kernel is older than 5.9, or the driver cannot with these settings (MTU, LRO, queues)",
}
"""The reason is in no errno, only in the tracepoint xdp:bpf_xdp_link_attach_failed."""

_RAW_TRACEPOINT_OPEN, _LINK_CREATE = 17, 28
_LINK_INFO_XDP = 16
"""Offset of xdp.ifindex in struct bpf_link_info."""
_BPF_XDP = 37
"""enum bpf_attach_type."""
_PERF_TYPE_TRACEPOINT = 2
_PERF_EVENT_IOC_SET_BPF = 0x40042408
NO_KPROBES = "this kernel has no kprobes (CONFIG_KPROBE_EVENTS)"
_KRETPROBE = 1
"""config bit 0 of the kprobe PMU (format/retprobe)."""


class CannotAttach(Exception):
    """The attach point does not exist on this kernel, or cannot be used. The message says which, and why."""


class Point(NamedTuple):
    """An attach point. Only a classic tracepoint has a ``category``. Of XDP it is the way, and ``name`` the device."""

    kind: str
    category: str
    name: str


def parse(text: str) -> Point:
    """Raises ValueError; the message has the expected form."""
    if not _FORM.fullmatch(text):
        forms = "raw_tracepoint:NAME, tracepoint:CATEGORY:NAME, entry:FUNCTION, return:…, kprobe:…, xdp:native"
        raise ValueError("attach point {!r}: expected one of {}".format(text, forms))
    words = text.split(":", 2)
    if words[0] == XDP:
        return Point(XDP, words[1], words[2] if len(words) == 3 else "")
    return Point(words[0], words[1] if len(words) == 3 else "", words[-1])


def text(point: Point) -> str:
    """The inverse of :func:`parse`."""
    return ":".join(part for part in point if part)


def kinds_of(point: Point, typed: bool = False) -> List[Point]:
    """The points to try for one of a manifest, the cheapest first. ``typed``: also by fentry and fexit."""
    kinds = _KINDS.get(point.kind)
    if kinds is None:
        return [point]
    return [point._replace(kind=kind) for kind in (kinds if typed else kinds[1:])]


def written(point: str) -> List[str]:
    """How a manifest may have named the point where a program is attached."""
    kind, _, name = point.partition(":")
    if kind == XDP:
        return [point, text(parse(point)._replace(name=""))]
    return [point, "{}:{}".format(_WRITTEN[kind], name)] if kind in _WRITTEN else [point]


def at_device(point: Point, device: str) -> Point:
    """The point at a device, if it is one of XDP that has none yet. Raises CannotAttach without a device."""
    if point.kind != XDP or point.name:
        return point
    if not device:
        raise CannotAttach("an XDP program is of one device: name it (--device, the knob device)")
    return point._replace(name=device)


def tracefs() -> Optional[str]:
    """Where tracefs is mounted and readable; None when it is not. We never mount it ourselves."""
    return next((path for path in _TRACEFS if os.access(os.path.join(path, "events"), os.R_OK | os.X_OK)), None)


def has_kprobes() -> bool:
    return os.path.exists(_PMU.format("kprobe"))


def without_kprobes(programs: Sequence[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """On a kernel without kprobes: the required programs of a manifest that need functions, and why they fail.

    This is known before anything is compiled. It is also a better reason than that types of modules are missing.
    """
    return [] if has_kprobes() else needing_kprobes(programs)


def needing_kprobes(programs: Sequence[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """The required programs on functions alone, with what is to be said of them where there are no kprobes.

    Without kprobes fentry is not tried either: no kernel at hand has the one without the other. Whether a kernel needs
    a program with ``unless`` is only known when the probe is compiled.
    """
    missing = []
    for program in programs:
        points = [kinds_of(parse(alternative["point"]))[-1] for alternative in program["attach"]]
        if (
            program.get("required", True)
            and "unless" not in program
            and all(point.kind in BY_KPROBE for point in points)
        ):
            tried = [{"point": text(point), "why": NO_KPROBES, "detail": ""} for point in points]
            missing.append({"name": program["name"], "measures": program["measures"], "tried": tried})
    return missing


def check(point: Point) -> None:
    """Raises CannotAttach for what can be known without a try. It is cheap, and the reason is better than an errno."""
    if point.kind == "tracepoint":
        _tracepoint_id(point)
    elif point.kind == XDP:
        _index_of(point.name)
    elif point.kind in TYPED:
        if not _in_kallsyms(point.name):
            raise CannotAttach(
                "no function {} in this kernel (inlined, renamed, or its module is not loaded)".format(point.name)
            )
    elif point.kind in BY_KPROBE:
        if not has_kprobes():
            raise CannotAttach(NO_KPROBES)
        if not _in_kallsyms(point.name):
            raise CannotAttach(
                "no function {} in this kernel (inlined, renamed, or its module is not loaded)".format(point.name)
            )
        if not _traceable(point.name):
            raise CannotAttach("{} is in this kernel but cannot be probed (notrace)".format(point.name))


def attach(point: Point, program_fd: int, typed: bool = False) -> int:
    """The descriptor of the attachment. A BTF-``typed`` program was loaded for its point. Raises CannotAttach.

    It is not looked whether the kernel calls the program: see :func:`attach_called`.
    """
    try:
        if typed or point.kind == "raw_tracepoint":
            return _raw_tracepoint("" if typed else point.name, program_fd)
        if point.kind == "tracepoint":
            return _perf_event(_PERF_TYPE_TRACEPOINT, _tracepoint_id(point), None, program_fd)
        if point.kind == XDP:
            return _xdp(point, program_fd)
        kind = int(_read(_PMU.format("kprobe/type")))
        return _perf_event(kind, _KRETPROBE if point.kind == "kretprobe" else 0, point.name, program_fd)
    except OSError as error:
        raise CannotAttach("{}: {}".format(text(point), _reason(point, error))) from None


def check_called(point: Point) -> None:
    """Raises CannotAttach if the kernel has taken a fentry or fexit program, but does not call it (6.12, 7.3).

    tracefs lists the functions that begin with a call. Where it cannot be read the kernel is believed.
    """
    try:
        with open(os.path.join(tracefs() or "", "enabled_functions")) as file:
            listed = file.read()
    except OSError:
        return
    if not re.search(_CALLED.format(re.escape(point.name)), listed, re.MULTILINE):
        raise CannotAttach("{}: this kernel took the program but does not call it".format(text(point)))


def attach_called(point: Point, program_fd: int) -> int:
    """As :func:`attach` for a fentry or fexit program, which the kernel has to call. Raises CannotAttach."""
    link = attach(point, program_fd, typed=True)
    try:
        check_called(point)
    except CannotAttach:
        os.close(link)
        raise
    return link


class ComingBack:
    """Attaches fentry and fexit programs that will be detached and attached again: when a mode changes, after a rest.

    Linux 5.10 to 5.12 do not attach such a program again. The first one tells: it is attached twice.
    """

    def __init__(self) -> None:
        self._is_possible: Optional[bool] = None
        """None before it was tried."""

    def attach(self, point: Point, program_fd: int) -> int:
        """The descriptor of the attachment. Raises CannotAttach."""
        if self._is_possible is None:
            os.close(attach_called(point, program_fd))
            try:
                link = attach(point, program_fd, typed=True)
            except CannotAttach:
                self._is_possible = False
            else:
                self._is_possible = True
                return link
        if not self._is_possible:
            raise CannotAttach("{}: this kernel does not attach a program again that was detached".format(text(point)))
        return attach_called(point, program_fd)


def _reason(point: Point, error: OSError) -> str:
    if point.kind == "raw_tracepoint" and error.errno == 2:
        return "no such tracepoint in this kernel, or its module is not loaded"
    if point.kind == XDP and error.errno in _XDP_REFUSALS:
        return _XDP_REFUSALS[error.errno]
    return "not attachable ({})".format(error.strerror)


def _index_of(device: str) -> int:
    try:
        return socket.if_nametoindex(device)
    except OSError:
        raise CannotAttach("no device {} in the network namespace of the collector".format(device)) from None


def _xdp(point: Point, program_fd: int) -> int:
    """A link, which ends with its last descriptor (BPF_LINK_CREATE for XDP, from 5.9). It replaces no other program."""
    where = struct.pack("=IIII", program_fd, _index_of(point.name), _BPF_XDP, _XDP_WAYS[point.category])
    return syscalls.bpf(_LINK_CREATE, where)


def why_lost(link: int, device: str) -> Optional[str]:
    """Why an XDP link is at its device no more; None: it is. Raises OSError.

    From a device that goes the kernel detaches it. One that gets another name or namespace keeps it, and whoever looks
    for the device by its name would take the figures for those of another one.
    """
    index = struct.unpack_from("=I", syscalls.info(link), _LINK_INFO_XDP)[0]
    if index == 0:
        return "its device is gone"
    try:
        name = socket.if_indextoname(index)
    except OSError:
        name = ""
    return None if name == device else "its device has another name now, or is in another network namespace"


def _raw_tracepoint(name: str, program_fd: int) -> int:
    c_name = ctypes.create_string_buffer(name.encode())
    address = ctypes.addressof(c_name) if name else 0
    return syscalls.bpf(_RAW_TRACEPOINT_OPEN, struct.pack("=QI", address, program_fd))


def _perf_event(kind: int, config: int, symbol: Optional[str], program_fd: int) -> int:
    c_symbol = ctypes.create_string_buffer((symbol or "").encode())
    address = ctypes.addressof(c_symbol) if symbol else 0
    # struct perf_event_attr: type, size, config, sample_period, sample_type, read_format, flags, wakeup_events,
    # bp_type, config1 (here the address of the symbol's name)
    raw = struct.pack("=IIQQQQQIIQ", kind, syscalls.PERF_ATTR_BYTES, config, 1, 0, 0, 0, 1, 0, address)
    # The perf event is on one CPU, but the program runs on all: it belongs to the trace event.
    fd = syscalls.perf_event_open(raw, 0)
    try:
        fcntl.ioctl(fd, _PERF_EVENT_IOC_SET_BPF, program_fd)
        fcntl.ioctl(fd, syscalls.PERF_EVENT_IOC_ENABLE)
    except OSError:
        os.close(fd)
        raise
    return fd


def _tracepoint_id(point: Point) -> int:
    root = tracefs()
    if root is None:
        raise CannotAttach("tracefs is not mounted; run mount -t tracefs tracefs /sys/kernel/tracing")
    path = os.path.join(root, "events", point.category, point.name, "id")
    if not os.path.exists(path):
        raise CannotAttach("no tracepoint {}:{} in this kernel".format(point.category, point.name))
    return int(_read(path))


def _in_kallsyms(symbol: str) -> bool:
    """Also true when kallsyms cannot be read: then the attempt will tell."""
    try:
        listed = _listing("/proc/kallsyms")
    except OSError:
        return True
    name = b" " + symbol.encode()
    return name + b"\n" in listed or name + b"\t" in listed  # after the tab comes the module


def _traceable(symbol: str) -> bool:
    """False only when tracefs lists the functions that can be probed, and this one is not in the list."""
    try:
        listed = _listing(os.path.join(tracefs() or "", "available_filter_functions"))
    except OSError:
        return True
    name = b"\n" + symbol.encode()
    return name + b"\n" in listed or name + b" " in listed  # after the blank comes the module


@functools.lru_cache(maxsize=2)
def _listing(path: str) -> bytes:
    """A list of functions. It is several MB, and the kernel takes a second to write it: a worker reads it once."""
    with open(path, "rb") as file:
        return b"\n" + file.read()


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()
