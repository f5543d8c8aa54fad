"""`record` and `replay` on the command line: exit codes, one line per error, whole files; without privileges."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from netconsole.base.errors import BadInput
from netconsole.cli import main as cli
from netconsole.cli import options
from netconsole.cli import replay as cli_replay
from netconsole.recording.reader import Recording
from netconsole.telemetry.frames import Table
from tests.support.recorded import Stream, record
from tests.unit.recording.test_shipped import assert_as_published

NETCONSOLE = [sys.executable, "-c", "from netconsole.cli.main import main; main()"]
OWN = ["--probe", "link_rates", "--probe", "softnet"]
"""Probes that need no BPF."""
LIMIT_S = 300


def recording_of(path: Path, *options: str) -> subprocess.Popen[str]:
    command = [*NETCONSOLE, "record", "-o", str(path), *OWN, *options]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def until_recording(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if "recording to" in line:
            return
    raise AssertionError("it never began")


def test_what_it_records_is_whole_and_as_published(tmp_path: Path) -> None:
    path = tmp_path / "a.ncrec"
    with recording_of(path, "--duration", "2s", "--note", "two seconds") as process:
        out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (0, "")
    assert f"in {path}" in err.splitlines()[-1]
    recording = Recording(path)
    assert recording.whole and recording.header.note == "two seconds" and recording.header.leads == "collector"
    assert recording.end.mono_ns > recording.begin.mono_ns
    assert_as_published(path, 4)
    tables = {frame.name for frame in recording.frames(0) if isinstance(frame, Table)}
    assert {"links", "cpus"} <= tables
    state = recording.state(0)
    assert all(probe.measuring for probe in state.probes.values()), "it begins when every probe measures"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_in_order(tmp_path: Path, number: int) -> None:
    path = tmp_path / "a.ncrec"
    with recording_of(path) as process:
        until_recording(process)
        process.send_signal(number)
        process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    assert Recording(path).whole


@pytest.mark.parametrize("command", ["snapshot", "record"])
def test_where_no_probe_measured_it_is_3(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OVS_RUNDIR", str(tmp_path))
    path = tmp_path / "a.json"
    assert cli.run([command, "-o", str(path), "--probe", "ovs_flows", "--duration", "200ms"]) == options.UNABLE
    said = capsys.readouterr().err
    assert "ovs_flows: unsupported: no Open vSwitch here" in said
    assert said.endswith(
        "netconsole: no probe could measure anything; netconsole doctor says why, and what would help\n"
    )
    assert path.exists()


def frames_in(path: Path) -> int:
    """How many whole frames there are by now."""
    try:
        return sum(1 for _ in Recording(path).frames(0))
    except BadInput:
        return 0  # not even a block


def test_kill_9_leaves_what_was_recorded(tmp_path: Path) -> None:
    path = tmp_path / "a.ncrec"
    with recording_of(path) as process:
        until_recording(process)
        while not (seen := frames_in(path)):
            assert process.poll() is None
        process.kill()
    recording = Recording(path)
    assert not recording.whole and len(list(recording.frames(0))) >= seen
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.ncrec"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--duration", "soon"], '--duration: expected a time from 1ms to 720h such as "10m", found "soon"'),
        (["--max-size", "1kB"], "--max-size: expected a size from 1MB"),
        (["--max-time", "1s"], "--max-time: expected a time from 1m"),
        (["--profile", "nothing"], "nothing"),
        (["--probe", "nothing"], "nothing"),
    ],
)
def test_what_cannot_be_is_one_line(
    tmp_path: Path, given: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.ncrec"
    assert cli.run(["record", "-o", str(path), *OWN, *given]) == options.BAD_USAGE
    said = capsys.readouterr().err
    assert told in said and len(said.splitlines()) == 1
    assert not path.exists()


def test_it_never_overwrites(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.ncrec"
    path.write_text("mine")
    assert cli.run(["record", "-o", str(path), *OWN]) == options.BAD_USAGE
    assert "this file exists already" in capsys.readouterr().err and path.read_text() == "mine"


def test_without_a_name_the_shipped_ones_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["replay"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(cli_replay.shipped())
    assert all("kernel 6." in line for line in lines)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["drop"], 'drop: no such file, and no shipped recording; did you mean "drops"?'),
        (["missing.ncrec"], "missing.ncrec: no such file or directory"),
        (["drops"], "needs a terminal"),
        (["drops", "--speed", "0"], "--speed: expected a number from 0.01 to 1000"),
        (["drops", "--speed", "nan"], "--speed: expected a number from 0.01 to 1000"),
    ],
)
def test_what_cannot_be_replayed_is_one_line(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["replay", *words]) == options.BAD_USAGE
    said = capsys.readouterr().err
    assert told in said and len(said.splitlines()) == 1


def asked(answer: bytes, counters: int = 4) -> tuple[str, str]:
    """What is chosen on a terminal where this is answered, and what was shown."""
    script = "from netconsole.cli import replay as cli_replay\n"
    script += f"print(f'chosen <{{cli_replay.offer(\"not root\", {counters})}}>')"
    main, side = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", script], stdin=side, stderr=side, stdout=side)
    os.close(side)
    os.write(main, answer)
    shown = b""
    try:
        while chunk := os.read(main, 4096):
            shown += chunk
    except OSError:  # the other side is gone
        pass
    os.close(main)
    assert process.wait(LIMIT_S) == 0
    return shown.decode().partition("chosen <")[2].partition(">")[0], shown.decode()


def test_who_may_not_measure_is_offered_a_recording_or_the_counters_of_this_host() -> None:
    chosen, shown = asked(b"1\n")
    assert chosen.endswith("/drops.ncrec") and "1  drops" in shown
    assert "netconsole: not root" in shown and "recordings of other hosts" in shown
    (line,) = [line for line in shown.splitlines() if "this host" in line]
    assert line.split()[1:3] == ["this", "host"] and "4 probes run without privileges" in line
    assert asked(f"{line.split()[0]}\n".encode())[0] == cli_replay.THIS_HOST
    assert "this host" not in asked(b"\n", counters=0)[1]


@pytest.mark.parametrize("answer", [b"\n", b"0\n", b"99\n", b"no\n", "²\n".encode()])
def test_who_wants_none_is_told_what_is_missing(answer: bytes) -> None:
    chosen, shown = asked(answer)
    assert chosen == cli_replay.NOTHING and "not root" in shown


def test_without_a_terminal_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", open(os.devnull))  # noqa: SIM115, PTH123
    assert cli_replay.offer("not root", 4) is None


def test_a_recording_that_is_made_is_found_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record(Path("drops"), Stream().batches(1))
    assert cli_replay.find("drops") == Path("drops"), "a file here comes before a shipped one"
