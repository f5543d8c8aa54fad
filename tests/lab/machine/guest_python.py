"""A Python for guests that have nothing but busybox: this machine's own, as files of an initramfs."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import netconsole_collector
from tests.lab.machine.initramfs import Archive

PROGRAM = Path("/usr/bin/python3")
SOURCE = Path(netconsole_collector.__file__).parents[1]
# All that our own programs import, and the encodings that every Python starts with: by source, the byte code.
IMPORTED = """
import base64, importlib, json, marshal, pkgutil, sys
from importlib.util import MAGIC_NUMBER
sys.path.insert(0, sys.argv[1])
import encodings.ascii, encodings.idna, encodings.latin_1, encodings.utf_8, netconsole_collector, socket
for found in pkgutil.walk_packages(netconsole_collector.__path__, "netconsole_collector."):
    importlib.import_module(found.name)
files = {}
for path in {getattr(one, "__file__", None) or "" for one in list(sys.modules.values())}:
    code = b""
    if path.endswith(".py"):
        code = MAGIC_NUMBER + bytes(12) + marshal.dumps(compile(open(path, "rb").read(), path, "exec"))
    files[path] = base64.b64encode(code).decode()
print(json.dumps(files))
"""
OPENSSL = "_hashlib."
"""hashlib does without, and libcrypto is as large as all the rest."""
_LIBRARY = re.compile(r"(/\S+\.so\S*) \(0x")


@cache
def files() -> bytes:
    """A cpio archive with the interpreter, its libraries, and as byte code the modules that the collector needs.

    It is small: under two emulations, a guest takes a millisecond for each page of it.
    """
    program = PROGRAM.resolve()
    modules = Path("/usr/lib") / program.name
    command = (PROGRAM, "-I", "-S", "-c", IMPORTED, SOURCE)
    told = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    of_python = {Path(path): code for path, code in told.items() if Path(path).is_relative_to(modules)}
    extensions = [path for path in of_python if path.suffix == ".so" and not path.name.startswith(OPENSSL)]
    programs = [program, *extensions]
    libraries = {path for one in programs for path in _libraries(one)}
    found = {path: path.read_bytes() for path in (*programs, *libraries)}
    for path, code in of_python.items():
        if path.suffix == ".py":
            found[path.with_suffix(".pyc")] = base64.b64decode(code)
    archive = Archive()
    made: set[Path] = set()
    for path, content in sorted(found.items()):
        for parent in reversed(path.parents[:-1]):
            if parent not in made:
                archive.directory(str(parent)[1:])
                made.add(parent)
        archive.file(str(path)[1:], content, 0o755)
    archive.symlink(str(PROGRAM)[1:], program.name)
    return archive.close()


def _libraries(path: Path) -> Iterator[Path]:
    """What the dynamic linker would load for it, under the names that it asks for."""
    listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
    return (Path(name) for name in _LIBRARY.findall(listed))
