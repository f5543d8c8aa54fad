"""Attaches a loaded program to an attach point written as in a manifest: "raw_tracepoint:kfree_skb".

By the system calls themselves: nothing is written to tracefs, an attachment is one descriptor, and it is gone when the
last copy of that is closed.
"""

import ctypes
import fcntl
import functools
import os
import re
import struct
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from netconsole_collector.kernel import syscalls

_FORM = re.compile(r"raw_tracepoint:\w+|tracepoint:\w+:\w+|(?:fentry|fexit|kprobe|kretprobe):[\w.]+")
_TRACEFS = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
_PMU = "/sys/bus/event_source/devices/{}"

_RAW_TRACEPOINT_OPEN = 17
_PERF_TYPE_TRACEPOINT = 2
_PERF_ATTR_BYTES = 112
_PERF_FLAG_FD_CLOEXEC = 8
_PERF_EVENT_IOC_ENABLE = 0x2400
_PERF_EVENT_IOC_SET_BPF = 0x40042408
_NO_KPROBES = "this kernel has no kprobes (CONFIG_KPROBE_EVENTS)"
_KRETPROBE = 1
"""config bit 0 of the kprobe PMU (format/retprobe)."""


class NotHere(Exception):
    """The attach point does not exist on this kernel, or cannot be used; the message says which of both, and why."""


class Point(NamedTuple):
    """An attach point; ``category`` only of a classic tracepoint."""

    kind: str
    category: str
    name: str


def parse(text: str) -> Point:
    """Raises ValueError with the expected form."""
    if not _FORM.fullmatch(text):
        forms = "raw_tracepoint:NAME, tracepoint:CATEGORY:NAME, fentry:FUNCTION, fexit:…, kprobe:SYMBOL, kretprobe:…"
        raise ValueError("attach point {!r}: expected one of {}".format(text, forms))
    words = text.split(":")
    return Point(words[0], words[1] if len(words) == 3 else "", words[-1])


def tracefs() -> Optional[str]:
    """Where tracefs is mounted and readable; None when nowhere. It is never mounted on the host's behalf."""
    return next((path for path in _TRACEFS if os.access(os.path.join(path, "events"), os.R_OK | os.X_OK)), None)


def hopeless(programs: Sequence[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """On a kernel without kprobes: a manifest's required programs that have nothing else, with what to say of each.

    Known before anything is compiled, and a better reason than the types of modules that are not loaded either.
    """
    if os.path.exists(_PMU.format("kprobe")):
        return []
    missing = []
    for program in programs:
        points = [alternative["point"] for alternative in program["attach"]]
        if program.get("required", True) and all(parse(point).kind in ("kprobe", "kretprobe") for point in points):
            tried = [{"point": point, "why": _NO_KPROBES, "detail": ""} for point in points]
            missing.append({"name": program["name"], "measures": program["measures"], "tried": tried})
    return missing


def check(point: Point) -> None:
    """Raises NotHere for what can be known without trying: cheap, and with a better reason than an errno."""
    if point.kind == "tracepoint":
        _tracepoint_id(point)
    elif point.kind in ("fentry", "fexit"):
        if not _in_kallsyms(point.name):
            raise NotHere(
                "no function {} in this kernel (inlined, renamed, or its module is not loaded)".format(point.name)
            )
    elif point.kind in ("kprobe", "kretprobe"):
        if not os.path.exists(_PMU.format("kprobe")):
            raise NotHere(_NO_KPROBES)
        if not _in_kallsyms(point.name):
            raise NotHere(
                "no function {} in this kernel (inlined, renamed, or its module is not loaded)".format(point.name)
            )
        if not _traceable(point.name):
            raise NotHere("{} is in this kernel but cannot be probed (notrace)".format(point.name))


def attach(point: Point, program_fd: int, typed: bool = False) -> int:
    """The descriptor of the attachment. A BTF-``typed`` program knows its place since it was loaded. Raises NotHere."""
    try:
        if typed or point.kind == "raw_tracepoint":
            return _raw_tracepoint("" if typed else point.name, program_fd)
        if point.kind == "tracepoint":
            return _perf_event(_PERF_TYPE_TRACEPOINT, _tracepoint_id(point), None, program_fd)
        kind = int(_read(_PMU.format("kprobe/type")))
        return _perf_event(kind, _KRETPROBE if point.kind == "kretprobe" else 0, point.name, program_fd)
    except OSError as error:
        raise NotHere("{}: {}".format(":".join(part for part in point if part), _reason(point, error))) from None


def _reason(point: Point, error: OSError) -> str:
    if point.kind == "raw_tracepoint" and error.errno == 2:
        return "no such tracepoint in this kernel, or its module is not loaded"
    return "not attachable ({})".format(error.strerror)


def _raw_tracepoint(name: str, program_fd: int) -> int:
    c_name = ctypes.create_string_buffer(name.encode())
    address = ctypes.addressof(c_name) if name else 0
    return syscalls.command(_RAW_TRACEPOINT_OPEN, struct.pack("=QI", address, program_fd))


def _perf_event(kind: int, config: int, symbol: Optional[str], program_fd: int) -> int:
    c_symbol = ctypes.create_string_buffer((symbol or "").encode())
    address = ctypes.addressof(c_symbol) if symbol else 0
    # struct perf_event_attr: type, size, config, sample_period, sample_type, read_format, flags, wakeup_events,
    # bp_type, config1 (here the address of the symbol's name)
    raw = struct.pack("=IIQQQQQIIQ", kind, _PERF_ATTR_BYTES, config, 1, 0, 0, 0, 1, 0, address)
    attributes = ctypes.create_string_buffer(raw.ljust(_PERF_ATTR_BYTES, b"\0"), _PERF_ATTR_BYTES)
    # On one CPU only, yet the program runs on all: it hangs on the trace event, not on the perf event.
    fd = syscalls.syscall(syscalls.NR_PERF_EVENT_OPEN, attributes, -1, 0, -1, _PERF_FLAG_FD_CLOEXEC)
    try:
        fcntl.ioctl(fd, _PERF_EVENT_IOC_SET_BPF, program_fd)
        fcntl.ioctl(fd, _PERF_EVENT_IOC_ENABLE)
    except OSError:
        os.close(fd)
        raise
    return fd


def _tracepoint_id(point: Point) -> int:
    root = tracefs()
    if root is None:
        raise NotHere("tracefs is not mounted; mount -t tracefs tracefs /sys/kernel/tracing")
    path = os.path.join(root, "events", point.category, point.name, "id")
    if not os.path.exists(path):
        raise NotHere("no tracepoint {}:{} in this kernel".format(point.category, point.name))
    return int(_read(path))


def _in_kallsyms(symbol: str) -> bool:
    """True as well when kallsyms cannot be read: then the attempt will tell."""
    try:
        listed = _listing("/proc/kallsyms")
    except OSError:
        return True
    name = b" " + symbol.encode()
    return name + b"\n" in listed or name + b"\t" in listed  # behind the tab is the module


def _traceable(symbol: str) -> bool:
    """False only when tracefs lists the functions that can be probed and this one is not among them."""
    try:
        listed = _listing(os.path.join(tracefs() or "", "available_filter_functions"))
    except OSError:
        return True
    name = b"\n" + symbol.encode()
    return name + b"\n" in listed or name + b" " in listed  # behind the blank is the module


@functools.lru_cache(maxsize=2)
def _listing(path: str) -> bytes:
    """A list of functions, several MB of text that take the kernel a second to write: read once by a worker."""
    with open(path, "rb") as file:
        return b"\n" + file.read()


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()
