"""What a host is, for a console on another one: JSON on one line, then the BTF files that the console asks for.

It is sent alone and runs without privileges, so it imports nothing of the package. Its input is one line, the names of
the files that the console lacks. It ends when it hears nothing for a while: then the line is broken.
"""

import hashlib
import importlib.util
import json
import os
import platform
import select
import subprocess
import time
from typing import Any, Dict, List, Optional

_BTF = "/sys/kernel/btf"
_MODULES = "/sys/module"
_NOTE_BYTES = 16
"""Of an ELF note before its content (man 5 elf)."""
_MAX_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 14
_KPROBES = "/sys/bus/event_source/devices/kprobe/type"
_LOCKDOWN = "/sys/kernel/security/lockdown"
_POSSIBLE = "/sys/devices/system/cpu/possible"
_SUDO_S = 20

Json = Dict[str, Any]


class Broken(Exception):
    """Nothing was heard of the console for too long."""


class Console:
    """The other end of standard input and output."""

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._heard_s = time.monotonic()

    def write(self, content: bytes) -> None:
        """Waits as long as the line lives. Raises Broken."""
        for start in range(0, len(content), _CHUNK_BYTES):
            view = memoryview(content)[start : start + _CHUNK_BYTES]
            while view:
                _, writable, _ = self._wait([1])
                if writable:
                    view = view[os.write(1, view) :]

    def line(self) -> str:
        """The first line that is not empty. Raises Broken."""
        text = b""
        while not text.strip() or not text.endswith(b"\n"):
            self._wait([])
            text += self._got
        return text.decode("ascii", "replace").strip()

    def _wait(self, writing: List[int]) -> Any:
        self._got = b""
        found = select.select([0], writing, [], 0.25)
        if found[0]:
            self._got = os.read(0, 4096)
            if not self._got:
                raise Broken()
            self._heard_s = time.monotonic()
        elif time.monotonic() - self._heard_s > self._silence_s:
            raise Broken()
        return found


def main(arguments: List[str]) -> int:
    """Arguments: seconds of silence after which it ends, then the modules whose BTF may be asked for."""
    os.set_blocking(1, False)
    console = Console(float(arguments[0]))
    paths = {name: os.path.join(_BTF, name) for name in ["vmlinux"] + arguments[1:]}
    try:
        console.write(json.dumps(describe(paths)).encode() + b"\n")
        for name in console.line().split():
            if name in paths:
                console.write(_content(paths[name]))
    except (Broken, BrokenPipeError, ConnectionError):
        return 1
    return 0


def describe(paths: Dict[str, str]) -> Json:
    """All that the console has to know before it starts the collector."""
    return {
        "python": platform.python_version(),
        "uid": os.geteuid(),
        "release": os.uname().release,
        "machine": platform.machine(),
        "page": os.sysconf("SC_PAGE_SIZE"),
        "cpus": _cpus(),
        "modules": sorted(_modules()),
        "files": {name: about for name, about in ((name, _file(path)) for name, path in paths.items()) if about},
        "build_ids": {name: id for name, id in ((name, _build_id(name)) for name in paths) if id is not None},
        "has_kprobes": os.path.exists(_KPROBES),
        "has_bcc": importlib.util.find_spec("bcc") is not None,
        "lockdown": _lockdown(),
        "sudo": "root" if os.geteuid() == 0 else _sudo(),
    }


def _file(path: str) -> Optional[Json]:
    content = _content(path)
    return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)} if content else None


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_BYTES)
    except OSError:
        return b""


def _build_id(module: str) -> Optional[str]:
    """Of a loaded module, in hex; empty if it has none. It tells whether types that were made elsewhere are its own."""
    directory = os.path.join(_MODULES, module)
    note = _content(os.path.join(directory, "notes", ".note.gnu.build-id"))
    return note[_NOTE_BYTES:].hex() if note or os.path.isdir(directory) else None


def _cpus() -> int:
    """One more than the highest number that a CPU may have here."""
    try:
        with open(_POSSIBLE) as file:
            return int(file.read().strip().replace(",", "-").split("-")[-1]) + 1
    except (OSError, ValueError):
        return os.cpu_count() or 1


def _modules() -> List[str]:
    """Loaded, and built in."""
    try:
        names = os.listdir(_MODULES)
    except OSError:
        names = []
    try:
        with open("/lib/modules/{}/modules.builtin".format(os.uname().release)) as file:
            names += [os.path.basename(line).split(".")[0].replace("-", "_") for line in file]
    except (OSError, UnicodeDecodeError):
        pass
    return list(set(names))


def _lockdown() -> str:
    try:
        with open(_LOCKDOWN) as file:
            return file.read().partition("[")[2].partition("]")[0]
    except OSError:
        return ""


def _sudo() -> str:
    """``free``: without a password. Else ``password``, ``tty``, ``refused`` or ``none``."""
    try:
        done = subprocess.run(
            ["sudo", "-n", "true"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(os.environ, LC_ALL="C"),
            timeout=_SUDO_S,
        )
    except FileNotFoundError:
        return "none"
    except subprocess.TimeoutExpired:
        return "refused"
    if done.returncode == 0:
        return "free"
    said = done.stdout.decode("utf-8", "replace")
    if "must have a tty" in said:
        return "tty"
    return "password" if "password is required" in said else "refused"
