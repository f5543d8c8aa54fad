"""No source reaches a host by itself: what it knows comes through `Here`, so a made-up host may stand for it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[4] / "src/netconsole_collector"
READERS = sorted({*SOURCE.glob("sources/**/[!r]*.py"), *SOURCE.glob("questions/facts/*.py")})
OF_THIS_MACHINE = {
    "ctypes.CDLL", "fcntl", "glob", "io", "mmap", "multiprocessing", "open", "pathlib", "platform", "select",
    "socket.AF_NETLINK", "socket.create_connection", "socket.if_indextoname", "socket.if_nametoindex",
    "socket.socket", "subprocess", "time.monotonic_ns", "time.time", "time.time_ns",
}  # fmt: skip
OF_OS = {"os.environ", "os.fsencode", "os.fsdecode", "os.getpid", "os.major", "os.minor", "os.strerror"}
"""What a source may take of the module os."""


def used(path: Path) -> set[str]:
    """Modules and their names that a file uses, as dotted words."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found.add(f"{node.value.id}.{node.attr}")
        elif isinstance(node, ast.Name) and node.id == "open":
            found.add(node.id)
    return found


@pytest.mark.parametrize("path", READERS, ids=lambda path: str(path.relative_to(SOURCE.parent)))
def test_a_source_opens_nothing_by_itself(path: Path) -> None:
    names = used(path)
    modules = {name.split(".")[0] for name in names}
    assert not OF_THIS_MACHINE & (names | modules)
    assert not {name for name in names if name.startswith("os.")} - OF_OS
    assert not {"psutil", "pyroute2"} & modules


def test_the_test_sees_what_opens_something(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    for line in (
        "open('/proc/stat')",
        "import os\nos.listdir('/proc')",
        "from pathlib import Path",
        "import socket\nsocket.socket()",
    ):
        bad.write_text(line)
        with pytest.raises(AssertionError):
            test_a_source_opens_nothing_by_itself(bad)
