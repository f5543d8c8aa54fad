"""The commands: exit codes, one line per error, JSON alone on standard output, and nothing heavy before its time."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import netconsole
from netconsole.base import paths
from netconsole.base.readers import read_toml
from netconsole.cli import main
from netconsole.probes import catalogue

ROOT = Path(__file__).parents[3]
GOOD = ROOT / "tests" / "support" / "data" / "snapshot-version-1.json"
TOO_LONG = "x" * 300
"""A name that no file system takes."""


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main.run(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_the_version_is_that_of_the_project(capsys: pytest.CaptureFixture[str]) -> None:
    project: Any = read_toml(ROOT / "pyproject.toml")["project"]
    assert netconsole.__version__ == project["version"]
    assert run(capsys, "--version") == (0, f"netconsole {project['version']}\n", "")


@pytest.mark.parametrize("arguments", [["probes"], ["probes", "list"], ["profiles"], ["profiles", "list"]])
def test_the_catalogues_are_lists_for_people_and_for_scripts(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, err) == (0, "")
    assert max(len(line) for line in out.splitlines()) <= 80
    code, out, err = run(capsys, *arguments, "--json")
    assert (code, err) == (0, "")
    assert {entry["name"] for entry in json.loads(out)} >= ({"kernel_drops"} if "probes" in arguments else {"summary"})


def test_one_probe_and_one_profile_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["probes", "show", "kernel_drops"], ["profiles", "show", "drops"]):
        code, out, err = run(capsys, *arguments)
        assert (code, err) == (0, "")
        assert max(len(line) for line in out.splitlines()) <= 80
        code, out, _ = run(capsys, *arguments, "--json")
        assert json.loads(out)["name"] == arguments[-1]


def test_every_shipped_probe_can_be_shown_and_checked(capsys: pytest.CaptureFixture[str]) -> None:
    for name, manifest in catalogue.load_all([paths.data("probes")]).items():
        assert run(capsys, "probes", "show", name)[0] == 0
        assert run(capsys, "probes", "check", str(manifest.directory)) == (0, f"{name}: ok\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nonsense"], "nonsense"),
        (["--nonsense"], "--nonsense"),
        (["probes", "show"], "NAME"),
        (["probes", "show", "kernel_drop"], 'did you mean "kernel_drops"'),
        (["probes", "check", "/nonexistent"], "no such file"),
        (["profiles", "show", "sumary"], 'did you mean "summary"'),
        (["profiles", "check", "/nonexistent.toml"], "no such file"),
        (["snapshot", "--duration", "10"], '"10s"'),
        (["snapshot", "--duration", "0s"], "1ms to 24h"),
        (["snapshot", "--duration", "48h"], "1ms to 24h"),
        (["snapshot", "--format", "pdf"], "json"),
        (["snapshot", "-o", "report.pdf"], "json"),
        (["snapshot", "-o", "/nonexistent/x.json"], "no such directory"),
        (["snapshot", "-o", TOO_LONG + ".json"], "too long"),
        (["compare", "a.json", "b.json", "-o", TOO_LONG + "/b.md"], "too long"),
        (["snapshot", "--probe", "softnet", "-o", "/proc/q.json"], "/proc/q.json: cannot write"),
        (["calibrate", "--probe", "kernel_drops", "-o", "/proc/q.json"], "/proc/q.json: cannot write"),
        (["ping", "capture", "--role", "host", "--duration", "1s", "-o", "/proc/q.json"], "/proc/q.json: cannot write"),
        (["ping", "run", "here", "192.0.2.1", "-o", "/proc"], "/proc/breakdown.json: cannot write"),
        (["calibrate", "--probe", "kernel_drops", "-o", TOO_LONG + ".json"], "too long"),
        (["replay", TOO_LONG], "too long"),
        (["profiles", "check", TOO_LONG], "too long"),
        (["--profile", "drops", "snapshot"], "netconsole snapshot --profile"),
        (["--probe", "softnet", "probes"], "netconsole probes"),
        (["probes", "--json", "show", "kernel_drops"], "write it after the command: netconsole probes show --json"),
        (["profiles", "--json", "list"], "write it after the command: netconsole profiles list --json"),
        (["record", "-o", "-", "--probe", "softnet", "--duration", "200ms"], "a recording goes to a file"),
        (["calibrate", "--json", "--format", "md"], "--format: contradicts --json"),
        (["baseline", "list", "--profile", "sumary"], 'did you mean "summary"'),
        (["ping"], "name a command: analyze, capture, run (netconsole ping --help)"),
        (["types"], "name a command: make (netconsole types --help)"),
        (["snapshot", "--profile", "sumary"], 'did you mean "summary"'),
        (["snapshot", "--probe", "kernel_drop"], 'did you mean "kernel_drops"'),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert err.startswith("netconsole: ")
    assert said in err


def test_every_mistake_of_a_profile_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[budget]\naction = "panic"\n[probes.kernel_dorps]\n')
    code, out, err = run(capsys, "profiles", "check", str(path))
    assert (code, out) == (2, "")
    assert [line.partition(": ")[2].partition(" ")[0] for line in err.splitlines()] == [f"{path}:", f"{path}:"]


def test_a_megabyte_of_garbage_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(bytes(range(256)) * 4096)
    code, _, err = run(capsys, "snapshot", "--profile", str(path))
    assert code == 2
    assert len(err.splitlines()) == 1
    assert err.strip().isprintable()


def test_without_a_terminal_the_console_points_to_the_snapshot() -> None:
    command = [sys.executable, "-c", "from netconsole.cli.main import main; main()"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "netconsole snapshot" in done.stderr


def test_the_console_is_shown_where_input_and_output_are_a_terminal(tmp_path: Path) -> None:
    """Standard error may be a file. (The profile that is not there is what it looks for next.)"""
    command = [sys.executable, "-c", "from netconsole.cli.main import main; main()", "--profile", "missing"]
    main, side = pty.openpty()
    try:
        done = subprocess.run(command, stdin=side, stdout=side, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 2 and "missing" in done.stderr
        done = subprocess.run(command, stdin=side, capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "terminal: the console needs one" in done.stderr
    finally:
        os.close(side)
        os.close(main)


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = f"{sys.executable} -c 'from netconsole.cli.main import main; main()' probes --json | head -c 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[", "")


@pytest.mark.parametrize(
    "arguments", ["probes", "probes --json", "ping --help", f"compare {GOOD} {GOOD} --format html"]
)
def test_nor_is_one_that_reads_nothing(arguments: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", "from netconsole.cli.main import main; main()", *arguments.split()]
    try:
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("where", "code", "said"),
    [("> /dev/full", 2, "netconsole: No space left on device\n"), (">&-", 0, ""), ("<&- > /dev/null", 0, "")],
)
@pytest.mark.parametrize("arguments", ["probes --json", "compare --help", f"compare {GOOD} {GOOD}"])
def test_output_that_nobody_can_take_is_one_line(arguments: str, where: str, code: int, said: str) -> None:
    command = f"{sys.executable} -c 'from netconsole.cli.main import main; main()' {arguments} {where}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, said)


@pytest.mark.parametrize(
    "arguments",
    ["snapshot --probe softnet", "ping capture --role host --duration 1s", "ping run here 192.0.2.1 --duration 1s"],
)
def test_nothing_is_measured_for_a_closed_output(arguments: str) -> None:
    command = f"{sys.executable} -c 'from netconsole.cli.main import main; main()' {arguments} >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    said = "netconsole: standard output: it is closed, and the report would be lost; name a file with -o\n"
    assert (done.returncode, done.stderr) == (2, said)


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    code = "import sys; from netconsole.cli import main; main.run(['probes']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"textual", "rich", "pyroute2", "psutil", "pydantic", "ovs", "asyncio", "netconsole.session.live"}
    assert not heavy & set(done.stderr.split())


def test_a_command_imports_no_other_command() -> None:
    code = "import sys; from netconsole.cli import main; main.run(['profiles']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    others = {f"netconsole.cli.{name}" for name in ("calibrate", "compare", "ping", "probes", "record", "vm")}
    only_far = {"netconsole.far.compiling", "netconsole_collector.compile.worker"}
    assert not (others | only_far) & set(done.stderr.split())


def test_the_console_needs_no_heavy_library_but_textual() -> None:
    modules = "netconsole.session.live, netconsole.findings.incidents, netconsole.cli.main"
    code = f"import sys; import {modules}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"textual", "rich", "pyroute2", "pydantic", "ovs"} & set(done.stdout.split())


@pytest.mark.parametrize(
    ("option", "way_out"), [("pcap", "open a console for each"), ("record", "press b or w instead")]
)
def test_one_file_is_not_written_for_several_hosts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: str, way_out: str
) -> None:
    monkeypatch.setattr("netconsole.cli.measure.has_terminal", lambda: True)
    file = tmp_path / "file"
    code, out, err = run(capsys, "--host", "a", "--host", "b", f"--{option}", str(file))
    assert (code, out) == (2, "") and "this option is for one host" in err and way_out in err
    assert not file.exists()
