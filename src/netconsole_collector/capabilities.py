"""What this host can do: {name: {"ok", "why"}} of the hello frame. Each is tried where a try is cheap."""

import os
import re
import struct
import sys
from typing import Any, Callable, Dict, Optional, Tuple

from netconsole_collector.kernel import attach, bpf_maps, loading, syscalls
from netconsole_collector.types import btf, real_headers

_CAP_SYS_ADMIN, _CAP_PERFMON, _CAP_BPF = 21, 38, 39
_LOCKDOWN = "/sys/kernel/security/lockdown"
_IMPORT_LIMIT_S = 120.0
"""An import takes a second, and half a minute on an emulated machine or a host at load 100."""
_FIND_BCC = """
import importlib.util
found = importlib.util.find_spec("bcc")
print(found.origin if found else "")
"""
_NO_BCC = "no module named bcc"
_IMPORT_BCC = "import bcc; print(bcc.__version__)"
_VERSION = re.compile(r"[0-9][0-9.]+")

Json = Dict[str, Any]

_RETURN_0 = struct.pack("=BBhi", 0xB7, 0, 0, 0) + struct.pack("=BBhi", 0x95, 0, 0, 0)
"""mov r0, 0; exit"""


def all_of(python: Optional[str], is_thorough: bool = False) -> Json:
    """All capabilities. ``python`` is the interpreter for compile workers. ``is_thorough`` really imports bcc."""
    checks: Dict[str, Callable[[], Json]] = {
        "privileges": _privileges,
        "bcc": lambda: bcc(python, is_thorough),
        "btf": _btf,
        "raw_tracepoint": _raw_tracepoint,
        "kprobe": _kprobe,
        "ring_buffer": _ring_buffer,
        "batch": _batch,
        "statistics": _statistics,
        "tracefs": _tracefs,
        "lockdown": _lockdown,
    }
    return {name: _guarded(check) for name, check in checks.items()}


def has_ring_buffer() -> bool:
    return bool(_guarded(_ring_buffer)["ok"])


def _guarded(check: Callable[[], Json]) -> Json:
    bpf_maps.raise_memlock()  # else kernels before 5.11 refuse each try while another collector runs
    try:
        return check()
    except OSError as error:
        why = "no permission" if isinstance(error, PermissionError) else error.strerror or str(error)
        return {"ok": False, "why": why}


def _result(ok: bool, why: Optional[str] = None) -> Json:
    return {"ok": ok, "why": why}


def _privileges() -> Json:
    with open("/proc/self/status") as file:
        effective = next(int(line.split()[1], 16) for line in file if line.startswith("CapEff:"))
    if effective >> _CAP_SYS_ADMIN & 1:
        return _result(True)
    if effective >> _CAP_BPF & 1 and effective >> _CAP_PERFMON & 1:
        return _result(True, "CAP_BPF and CAP_PERFMON, but not CAP_SYS_ADMIN: the kernel gives no run-time statistics")
    return _result(
        False,
        "netconsole needs root, or CAP_BPF and CAP_PERFMON (CAP_SYS_ADMIN before Linux 5.8): run netconsole with sudo",
    )


def bcc(python: Optional[str], is_thorough: bool) -> Json:
    """Whether that interpreter has bcc. ``is_thorough`` imports it; else it is only looked for."""
    if python is None:
        return _result(True, "not needed: programs are compiled where the console runs")
    try:
        if is_thorough:
            said = _run(python, _IMPORT_BCC)
        else:
            # This interpreter looks by itself: another process would take longer than all other looks together.
            is_this = _whose(python) == _whose(sys.executable)
            said = _version_in(_place_of_bcc() if is_this else _run(python, _FIND_BCC))
    except _NotFound as error:
        return _result(False, "{}: {}; install python3-bpfcc (Debian, Ubuntu) or python3-bcc".format(python, error))
    except TimeoutError:
        return _result(False, "{} did not answer".format(python))
    return _result(True, "{} in {}".format(said, python))


def _whose(python: str) -> Tuple[str, str]:
    """The file of an interpreter, and its directory: an environment has a link to one, and modules of its own."""
    return os.path.realpath(python), os.path.realpath(os.path.dirname(python))


class _NotFound(Exception):
    """There is no bcc. The message is why."""


def _run(python: str, code: str) -> str:
    """The last line that an interpreter prints. Raises _NotFound with its last words, and TimeoutError."""
    import subprocess  # 1 MB that others do without

    try:
        done = subprocess.run(
            [python, "-I", "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=_IMPORT_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError() from None
    said = (done.stdout if done.returncode == 0 else done.stderr).decode("utf-8", "backslashreplace").strip()
    last = said.splitlines()[-1] if said else ""
    if done.returncode:
        raise _NotFound(last or "no reason given")
    return last


def _place_of_bcc() -> str:
    """Its first file. The collector runs without site packages (-S), so they are looked through all the same."""
    import site
    from importlib.machinery import PathFinder

    root = os.path.dirname(os.path.dirname(sys.executable))  # of an environment, which only site knows as one
    own = os.path.join(root, "lib", "python{}.{}".format(*sys.version_info[:2]), "site-packages")
    found = PathFinder.find_spec("bcc", [*sys.path, own, *site.getsitepackages()])
    return str(found.origin) if found else ""


def _version_in(origin: str) -> str:
    """The version of the bcc whose first file this is. Raises _NotFound for no file."""
    if not origin:
        raise _NotFound(_NO_BCC)
    try:
        with open(os.path.join(os.path.dirname(origin), "version.py")) as file:
            found = _VERSION.search(file.read())
    except FileNotFoundError:
        found = None
    return found.group() if found else "unknown version"


def _btf() -> Json:
    if os.access(btf.VMLINUX, os.R_OK):
        return _result(True, "vmlinux")
    from netconsole_collector.types import copied_types, kernel_symbols  # 4 MB (OpenSSL) that others do without

    release = os.uname().release
    made = copied_types.kernel_path(release, copied_types.DIRECTORY)
    if os.path.exists(made):
        try:
            copied_types.check_kernel(made, release, copied_types.kernel_build_id_here(), kernel_symbols.here(), set())
        except copied_types.UnusableTypes as error:
            return _result(False, "the kernel has no BTF, and {}".format(error))
        return _result(True, "the kernel has no BTF; netconsole uses the types in {}".format(made))
    headers = real_headers.installed()
    if headers:
        return _result(True, "the kernel has no BTF; netconsole uses the kernel headers in {}".format(headers))
    return _result(False, "the kernel has no BTF (CONFIG_DEBUG_INFO_BTF), and its headers are not installed")


def _raw_tracepoint() -> Json:
    try:
        fd = loading.load("netconsole_try", _RETURN_0, loading.RAW_TRACEPOINT)
    except loading.LoadRefused as refused:
        return _result(False, str(refused))
    try:
        os.close(attach.attach(attach.Point("raw_tracepoint", "", "sys_enter"), fd))
    except attach.CannotAttach as error:
        return _result(False, str(error))
    finally:
        os.close(fd)
    return _result(True)


def _kprobe() -> Json:
    has_kprobes = attach.has_kprobes()
    return _result(has_kprobes, None if has_kprobes else attach.NO_KPROBES)


def _create(kind: int, key: int, value: int, entries: int) -> int:
    return bpf_maps.create_map(bpf_maps.MapInfo(kind, 0, key, value, entries, 0, ""))


def _ring_buffer() -> Json:
    os.close(_create(bpf_maps.MAP_RINGBUF, 0, 0, os.sysconf("SC_PAGE_SIZE")))
    return _result(True)


def _batch() -> Json:
    fd = _create(bpf_maps.MAP_HASH, 4, 8, 2)
    try:
        table = bpf_maps.Map(fd)
        table.set(bytes(4), bytes(8))
        list(table.items())
        return _result(table.batch, None if table.batch else "netconsole reads tables row by row (Linux before 5.6)")
    finally:
        os.close(fd)


def _statistics() -> Json:
    os.close(syscalls.enable_statistics())
    return _result(True)


def _tracefs() -> Json:
    path = attach.tracefs()
    return _result(path is not None, path or "tracefs is not mounted or not readable; only classic tracepoints need it")


def _lockdown() -> Json:
    """Whether BPF may read kernel memory."""
    try:
        with open(_LOCKDOWN) as file:
            modes = file.read()
    except OSError:
        return _result(True, "none")
    active = modes.partition("[")[2].partition("]")[0]
    return _result(active != "confidentiality", active)
