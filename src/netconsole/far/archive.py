"""The collector as one file, and the few lines that run it from memory on a host where nothing is installed.

The command on the far host is short, and the same for every login shell (sh, csh, fish). What it runs comes over its
standard input: one line of Python (BOOTSTRAP), then the archive. That goes to a file without a name in memory
(memfd_create; /dev/shm where there is none), and Python imports from it. So a full disk, a read-only /tmp and noexec do
not matter, and nothing is left, however the program ends.
"""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Sequence

from netconsole.base.paths import collector_package

PACKAGE = "netconsole_collector"
ARRIVED = b"netconsole: here is Python "
"""The far end says so before anything else. What comes before are the words of a login shell."""

OLDEST_PYTHON = (3, 6)

SILENCE_S = 1.5
"""A program on a far host ends by itself when it has heard nothing from here for so long: the line is broken."""

_WHEN = (2020, 1, 1, 0, 0, 0)
"""Of every file in the archive, so that the same source gives the same archive."""
_MODULE = re.compile(r"[a-z_]+(\.[a-z_]+)*")

COMMAND = "-I -OO -c 'import sys,signal;signal.alarm(10);exec(sys.stdin.buffer.raw.readline())' netconsole"
"""What follows the interpreter on the far command line: words that every shell reads in the same way.

Without docstrings it takes 0.4 MB less (-OO). The alarm ends it if the line breaks before anything has arrived. A host
that has much to do needs seconds for that: 2 s were too few once, beside other tests.
"""

_ARRIVAL = r"""
import os, select, signal, sys
signal.alarm(0)
os.write(1, {arrived!r} + ("%d.%d" % sys.version_info[:2]).encode() + b"\n")
if sys.version_info < (3, 6):
    sys.exit(3)
exec({source})
"""

_UNPACK = """
import ctypes
libc = ctypes.CDLL(None)
fd = -1
for flags in (9, 1):  # MFD_CLOEXEC | MFD_NOEXEC_SEAL: some kernels ask for the second, older ones do not know it
    if fd < 0 and hasattr(libc, "memfd_create"):
        fd = libc.memfd_create(b"netconsole", flags)
if fd < 0:
    import tempfile  # only here: it takes 2 MB
    fd = os.dup(tempfile.TemporaryFile(dir="/dev/shm").fileno())
left = {size}
while left:
    part = os.read(0, min(left, 65536)) if select.select([0], [], [], {patience_s})[0] else b""
    if not part:
        sys.exit("the line broke")
    os.write(fd, part)
    left -= len(part)
sys.path.insert(0, "/proc/self/fd/%d" % fd)
from {module} import main
sys.exit(main({arguments!r}))
"""


@functools.cache
def collector_archive() -> bytes:
    """A zip file of the package netconsole_collector."""
    import zipfile  # only here: measuring this machine needs none

    package = collector_package()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(package.rglob("*.py")):
            name = f"{PACKAGE}/{path.relative_to(package)}"
            info = zipfile.ZipInfo(name, _WHEN)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, path.read_bytes())
    return content.getvalue()


def opening(module: str, arguments: Sequence[str]) -> bytes:
    """What the far interpreter reads first, to run ``main(arguments)`` of a module of the collector."""
    assert _MODULE.fullmatch(module)
    archive = collector_archive()
    unpack = _UNPACK.format(size=len(archive), patience_s=SILENCE_S, module=module, arguments=list(arguments))
    return _as_line(unpack) + archive


def opening_alone(module: str, arguments: Sequence[str]) -> bytes:
    """The same for a module that imports nothing of ours: it goes without the archive."""
    assert _MODULE.fullmatch(module)
    source = collector_package().parent.joinpath(*module.split(".")).with_suffix(".py").read_text("utf-8")
    return _as_line(f"{source}\nsys.exit(main({list(arguments)!r}))\n")


def _as_line(source: str) -> bytes:
    """One line that says that it has arrived, and runs these lines, however old the Python."""
    return f"exec({_ARRIVAL.format(arrived=ARRIVED, source=ascii(source))!a})\n".encode("ascii")


def can_run(version: bytes) -> bool:
    """Whether the collector runs with a Python of this version, such as b"3.6"."""
    match = re.fullmatch(rb"([0-9]{1,2})\.([0-9]{1,3})", version)
    return match is not None and (int(match[1]), int(match[2])) >= OLDEST_PYTHON
