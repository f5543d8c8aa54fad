"""Files from anywhere: every reader refuses in one line or uses what is there, and every command ends with 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netconsole.cli import main, options
from tests.fuzz.readers import DATA, READERS, seeds

SEEDS = {reader: list(seeds(reader)) for reader in READERS}
NESTED = b"[" * 200_000
HUGE = b'{"schema": "netconsole.snapshot/1", "duration_s": ' + b"9" * 100_000 + b"}"
FILES = {
    "empty": b"",
    "binary": bytes(range(256)),
    "nested": NESTED,
    "huge number": HUGE,
    "half a character": b'{"schema": "\xc3',
    "escapes": b'{"schema": "\\u001b[31m\\u202e"}',
    "half a snapshot": (DATA / "snapshot-version-1.json").read_bytes()[:3000],
    "half a recording": (DATA / "recording-version-1.ncrec").read_bytes()[:300],
}
LIMIT_S = 300
LIMIT_MB = 400


@pytest.mark.parametrize("reader", READERS)
@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_is_refused_in_one_line_or_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str, data: st.DataObject
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    content = bytearray(data.draw(st.sampled_from(SEEDS[reader])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content)))
        content[at : at + data.draw(st.integers(0, 30))] = data.draw(st.binary(max_size=30))
    READERS[reader](bytes(content), tmp_path)


@pytest.mark.parametrize("reader", READERS)
@given(content=st.binary(max_size=200))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_refused_in_one_line_or_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str, content: bytes
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    READERS[reader](content, tmp_path)


def numbers(node: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where a document has a number; of a list its first three members."""
    if isinstance(node, dict):
        for name, member in node.items():
            yield from numbers(member, (*path, name))
    elif isinstance(node, list):
        for place, member in enumerate(node[:3]):
            yield from numbers(member, (*path, place))
    elif isinstance(node, (int, float)) and not isinstance(node, bool):
        yield path


@pytest.mark.parametrize("value", [10**400, -(10**400), -5, 1e308, -1e308, 2**63, 1e-308])
def test_no_number_breaks_a_comparison_or_a_report(value: float, tmp_path: Path) -> None:
    """Below zero, beyond 64 bits, beyond what a float holds: at every place of a snapshot that has a number."""
    document = json.loads((DATA / "snapshot-version-1.json").read_text())
    for path in list(numbers(document)):
        node = document
        for part in path[:-1]:
            node = node[part]
        right, node[path[-1]] = node[path[-1]], value
        READERS["snapshot"](json.dumps(document).encode(), tmp_path)
        node[path[-1]] = right


@pytest.fixture
def good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A snapshot that can be read; baselines are the test's own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return str(DATA / "snapshot-version-1.json")


def commands(file: str, good: str, data: Path) -> list[list[str]]:
    """Every command that reads a file."""
    folder = data / "netconsole/baselines"
    folder.mkdir(parents=True, exist_ok=True)
    if Path(file).is_file():
        (folder / "bad.json").write_bytes(Path(file).read_bytes())
    return [
        ["compare", file, good],
        ["compare", good, file],
        ["compare", good, "bad"],
        ["baseline", "save", "monday", good, file],
        ["ping", "analyze", file],
        ["ping", "analyze", good, "--baseline", file],
        ["baseline", "show", "bad"],
        ["replay", file],
        ["profiles", "check", file],
        ["snapshot", "--profile", file],
        ["snapshot", "--baseline", file],
        ["record", "--profile", file, "-o", "never.ncrec"],
    ]


def assert_refused(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(command) == options.BAD_USAGE, command
    said = capsys.readouterr()
    lines = said.err.splitlines()
    assert said.out == "" and lines and all(line.startswith("netconsole: ") for line in lines), (command, said)
    assert all(line.isprintable() for line in lines), command
    assert len(lines) == 1 or command[0] == "profiles", (command, lines)


@pytest.mark.parametrize("kind", FILES)
def test_every_command_refuses_what_it_cannot_read(
    kind: str, good: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.toml.json"
    file.write_bytes(FILES[kind])
    for command in commands(str(file), good, tmp_path / "data"):
        assert_refused(command, capsys)
    assert not Path("never.ncrec").exists()


@pytest.mark.parametrize("kind", ["directory", "pipe", "missing", "a name of escapes"])
def test_every_command_refuses_what_is_no_file(
    kind: str, good: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / ("x\x1b[31m.json" if kind == "a name of escapes" else "x.json")
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    for command in commands(str(path), good, tmp_path / "data"):
        if "bad" not in command:
            assert_refused(command, capsys)


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]) << 20,) * 2)
from netconsole.cli.main import run
sys.exit(run(sys.argv[2:]))
"""


@pytest.mark.parametrize("kind", ["spaces", "rows", "nested"])
def test_a_large_file_of_nothing_does_not_fill_the_memory(kind: str, good: str, tmp_path: Path) -> None:
    """In a process that may have 400 MB."""
    file = tmp_path / "large.json"
    if kind == "spaces":
        file.write_bytes(b" " * 70_000_000)
    elif kind == "nested":
        file.write_bytes(b'{"a":' * 10_000_000)
    else:
        document = json.loads((DATA / "snapshot-version-1.json").read_text())
        text = json.dumps({**document, "probes": {"p": {"status": "attached", "tables": {"t": ["rows"]}}}})
        file.write_text(text.replace('"rows"', "0" + ",0" * 20_000_000))
    command = [sys.executable, "-c", LIMITED, str(LIMIT_MB), "compare", good, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr[-2000:]
