"""No source reaches a host by itself: what it knows comes through the target, and so is of the measured host."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from netconsole.sources.runner import FACTORIES
from netconsole_collector.primitives.here import HERE

SOURCE = Path(__file__).parents[3] / "src/netconsole"
OF_COLLECTOR = SOURCE.with_name("netconsole_collector") / "sources"
READERS = (
    sorted(SOURCE.glob("sources/**/*.py"))
    + sorted(OF_COLLECTOR.glob("[!r]*.py"))
    + [SOURCE / "host" / name for name in ("identity.py", "machine.py", "privileges.py", "target.py")]
)
OF_THIS_MACHINE = {
    "ctypes.CDLL", "fcntl", "glob", "io", "mmap", "multiprocessing", "open", "pathlib", "platform", "select",
    "socket.AF_NETLINK", "socket.create_connection", "socket.if_indextoname", "socket.if_nametoindex",
    "socket.socket", "subprocess", "time.monotonic_ns", "time.time", "time.time_ns",
}  # fmt: skip
OF_OS = {"os.environ", "os.fsencode", "os.fsdecode", "os.getpid", "os.strerror"}
"""What a source may take of the module os."""
OWN = {"own_cost.py": {"psutil", "time.process_time_ns"}}
"""The console's own cost is of this process, wherever the measured host is."""
LIBRARIES = {
    "pyroute2": ("pyroute2.netlink.rtnl", "pyroute2.netlink.generic.ethtool", "pyroute2.ethtool"),
}
"""Libraries that decode messages, and the modules of them that open nothing when they are only imported."""


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
    names = used(path) - OWN.get(path.name, set())
    modules = {name.split(".")[0] for name in names}
    assert not OF_THIS_MACHINE & (names | modules)
    assert not {name for name in names if name.startswith("os.")} - OF_OS
    assert "psutil" not in modules - OWN.get(path.name, set())
    for library, decoders in LIBRARIES.items():
        assert all(name.startswith(decoders) for name in names if name.split(".")[0] == library)
    assert not {name for name in names if name in ("pyroute2.IPRoute", "pyroute2.Ethtool", "ioctl.IoctlEthtool")}


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


@pytest.mark.parametrize("name", FACTORIES)
def test_every_source_is_of_the_target_that_it_is_given(name: str) -> None:
    class Nothing(Exception):
        """Whoever asks this target is asking the right one."""

    class Silent:
        is_here = False

        def __getattr__(self, method: str) -> object:
            if method in ("begin", "ahead"):
                return lambda *_: None
            raise Nothing(method)

    source = FACTORIES[name](Silent())  # type: ignore[arg-type]
    with pytest.raises(Nothing):
        source.open()
        source.read(None)  # type: ignore[arg-type]
    assert HERE.exists("/proc/self")
