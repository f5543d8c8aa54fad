"""Frames on their way out: numbered, within their limit, never waited for; and the code's promise to old Pythons."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netconsole.telemetry import frames
from netconsole_collector import frame_writer
from netconsole_collector.frame_writer import FrameWriter, ReaderGone
from netconsole_collector.probe import spec

SOURCE = Path(__file__).resolve().parents[3] / "src" / "netconsole_collector"


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    yield read_end, write_end
    for fd in (read_end, write_end):
        with contextlib.suppress(OSError):
            os.close(fd)


def table(rows: int) -> dict[str, Any]:
    row = {"labels": {"device": "x" * 100}, "counts": {"count": {"delta": 1, "total": 1}}}
    return {
        "kind": "table",
        "probe": "p",
        "name": "t",
        "interval_ns": 1,
        "full": True,
        "rows": [row] * rows,
        "omitted": 2,
    }


def read_all(fd: int) -> bytes:
    data = b""
    while True:
        try:
            chunk = os.read(fd, 1 << 20)
        except BlockingIOError:
            return data
        if not chunk:
            return data
        data += chunk


def test_frames_are_valid_and_numbered(pipe: tuple[int, int]) -> None:
    out = FrameWriter(pipe[1])
    out.send({"kind": "bye", "why": "test"}, 5, 6)
    out.skip()
    out.send(table(1), 7, 8)
    first, second = (frames.decode(line) for line in read_all(pipe[0]).splitlines())
    assert (first.seq, first.mono_ns, first.wall_ns, first.probe) == (1, 5, 6, None)
    assert (second.seq, second.probe) == (3, "p")


def test_a_reader_that_does_not_read_is_not_waited_for(pipe: tuple[int, int]) -> None:
    out = FrameWriter(pipe[1])
    for _ in range(3):
        out.send(table(1000), 1, 1)
    received, flushes = b"", 0
    while not out.is_idle:
        received += read_all(pipe[0])
        out.flush()
        flushes += 1
    received += read_all(pipe[0])
    assert flushes > 0, "not all of it fits into a pipe"
    assert [frames.decode(line).seq for line in received.splitlines()] == [1, 2, 3]


def test_a_line_that_is_too_long_loses_rows_and_says_how_many(pipe: tuple[int, int]) -> None:
    line = frame_writer._line({"v": 1, "seq": 1, "mono_ns": 1, "wall_ns": 1, **table(60_000)})
    assert len(line) <= frames.MAX_LINE_BYTES == frame_writer.MAX_LINE_BYTES
    decoded = frames.decode(line)
    assert isinstance(decoded, frames.Table)
    assert len(decoded.rows) + decoded.omitted == 60_002


def test_a_reader_that_has_gone_is_noticed(pipe: tuple[int, int]) -> None:
    out = FrameWriter(pipe[1])
    os.close(pipe[0])
    with pytest.raises(ReaderGone):
        out.send({"kind": "bye", "why": ""}, 1, 1)


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"programs": []},
        {"programs": [{}]},
        {"programs": 7},
        {"programs": [{"name": "p", "attach": []}], "probe": {}},
        {"programs": [{"name": "p", "attach": [{"point": 7, "function": "f"}]}], "probe": {}},
        {"programs": [{"name": "p", "attach": [{"point": "raw_tracepoint:x", "function": "f"}]}]},
        {
            "programs": [{"name": "p", "attach": [{"point": "raw_tracepoint:x", "function": "f"}]}],
            "probe": {},
            "tables": {"t": {"key": [{"name": "x", "type": "u33"}], "value": []}},
        },
    ],
)
def test_a_manifest_of_the_wrong_shape_is_a_sentence(shape: dict[str, Any]) -> None:
    problem = spec.spec_problem(shape)
    assert problem
    assert "\n" not in problem


def test_the_package_keeps_to_python_3_6() -> None:
    """Found by its syntax and its imports: the oldest interpreter on a host is what the collector runs on."""
    pytest.importorskip("vermin")
    done = subprocess.run(
        [str(Path(sys.executable).with_name("vermin")), "--violations", "-t=3.6-", "--no-tips", str(SOURCE)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_the_check_for_python_3_6_finds_newer_syntax(tmp_path: Path) -> None:
    (tmp_path / "newer.py").write_text("if (n := 3) > 2:\n    print(f'{n=}')\n")
    done = subprocess.run(
        [str(Path(sys.executable).with_name("vermin")), "--violations", "-t=3.6-", "--no-tips", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0


def test_the_package_uses_the_standard_library_alone() -> None:
    """Nothing but the standard library and itself; bcc in the compiler alone."""
    code = """
import importlib, json, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import netconsole_collector
for module in pkgutil.walk_packages(netconsole_collector.__path__, "netconsole_collector."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})))
"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(SOURCE.parent)], capture_output=True, text=True, check=True
    )
    loaded = set(json.loads(done.stdout)) - {"netconsole_collector", "__main__"}
    assert loaded <= set(sys.stdlib_module_names) | {"__mp_main__"}
    imports_bcc = re.compile(r"^\s*(import|from) bcc\b", re.MULTILINE)
    users = [path.name for path in SOURCE.rglob("*.py") if imports_bcc.search(path.read_text("utf-8"))]
    assert users == ["compiler.py"]
