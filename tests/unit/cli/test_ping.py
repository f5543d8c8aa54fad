"""`ping analyze` on the command line: exit codes, forms, baselines, one line per error."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import jsonschema
import pytest

from netconsole.cli.main import run
from netconsole.cli.ping import ping_run
from netconsole.ping import capture
from netconsole.ping.echo_log import Echo
from netconsole.report import of_snapshot, to_html
from netconsole.snapshot import document
from netconsole.snapshot.redact import Redactor
from tests.support.ping import linked

ROOT = Path(__file__).parents[3]
CASE_A = [str(path) for path in sorted((ROOT / "tests/support/data/ping-case-a").glob("*.json"))]
SCHEMA = json.loads((ROOT / "docs/reference/schema/ping-breakdown-1.json").read_text())


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of a slower case; baselines are the test's own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    found = []
    for name, one in linked(200, vm="web-07"):
        (tmp_path / name).write_bytes(capture.encode(one))
        found.append(str(tmp_path / name))
    return found


def test_the_forms(slow: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ping", "analyze", *CASE_A, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    assert round(found["round_trip_us"], 1) == 226.8
    assert run(["ping", "analyze", *slow]) == 0
    text = capsys.readouterr().out
    assert "Most time is in C+J" in text and max(map(len, text.splitlines())) <= 80
    for ending, begins in (("md", "# "), ("html", "<!DOCTYPE"), ("txt", "netconsole "), ("json", "{")):
        file = tmp_path / f"out.{ending}"
        assert run(["ping", "analyze", *slow, "-o", str(file)]) == 0
        assert file.read_text().startswith(begins) and capsys.readouterr().out == ""
    assert run(["ping", "analyze", *CASE_A, "--formulas"]) == 0
    assert "U_sender = sender_host - (A + B + K + L + M)" in " ".join(capsys.readouterr().out.split())


def test_a_slower_case_is_1_and_names_what_is_slower(slow: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    baseline = [word for file in CASE_A for word in ("--baseline", file)]
    assert run(["ping", "analyze", *slow, *baseline, "--format", "json"]) == 1
    comparison = json.loads(capsys.readouterr().out)["comparison"]
    assert comparison["verdict"] == "regressed"
    assert max(comparison["segments"], key=lambda name: comparison["segments"][name].get("share_pct") or 0) == "C+J"
    for kind in ("segments", "layers", "parts"):
        assert sum(one.get("share_pct") or 0 for one in comparison[kind].values()) == pytest.approx(100)
    assert run(["ping", "analyze", *CASE_A, *(word for file in slow for word in ("--baseline", file))]) == 0


def test_a_baseline_holds_a_case_and_a_breakdown_is_one(
    slow: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["baseline", "save", "good", *CASE_A]) == 0
    assert "receiver-vm.json" in capsys.readouterr().out
    assert run(["ping", "analyze", *slow, "--baseline", "good"]) == 1
    first = capsys.readouterr().out
    whole = tmp_path / "good.json"
    assert run(["ping", "analyze", *CASE_A, "-o", str(whole)]) == 0
    assert run(["ping", "analyze", *slow, "--baseline", str(whole)]) == 1
    assert capsys.readouterr().out == first


def test_a_run_makes_its_directory(tmp_path: Path) -> None:
    for _ in range(2):
        ping_run._written([one for _, one in linked(200)], "ping-1", tmp_path / "case")
    assert {"sender-vm.json", "breakdown.json"} <= {path.name for path in (tmp_path / "case").iterdir()}
    assert stat.S_IMODE((tmp_path / "case").stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("file", "/file: this is no directory: -o names one"),
        ("missing/case", "/missing/case: no such directory: "),
    ],
)
def test_a_directory_that_cannot_be_is_one_line(
    tmp_path: Path, place: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert run(["ping", "run", "here", "192.0.2.1", "--duration", "1s", "-o", str(tmp_path / place)]) == 2
    told = capsys.readouterr().err
    assert said in told and len(told.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_echo_of_which_only_both_ends_are_known_is_one_clean_line(capsys: pytest.CaptureFixture[str]) -> None:
    ping_run.EchoLines(1_000_000)(Echo("192.0.2.1", "192.0.2.2", 7, 1, (1_000, None, None, 33_500), 0, 0, 0))
    assert capsys.readouterr().err == "netconsole: id 7 seq 1: in all 32.5 us\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.json"], "nowhere.json: no such file"),
        (["sender-vm="], "sender-vm=: names no file"),
        ([f"sender-vm={CASE_A[0]}"], "role: this capture is of receiver-host, not of sender-vm"),
        ([CASE_A[0], CASE_A[0]], "the same file is named twice"),
        ([CASE_A[0], "--baseline", "nothing"], "nothing: no such file, and no baseline of this name"),
        ([CASE_A[0], "--format", "pdf"], "--format: expected text, md, html, json"),
    ],
)
def test_mistakes_are_one_line(
    words: list[str], said: str, slow: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ping", "analyze", *words]) == 2
    told = capsys.readouterr()
    assert said in told.err and len(told.err.splitlines()) == 1 and told.out == ""


def test_a_snapshot_takes_the_breakdown_shows_it_redacts_it_and_is_a_baseline(
    slow: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "snapshot.json"
    file.write_bytes((ROOT / "tests/support/data/snapshot-version-1.json").read_bytes())
    assert run(["ping", "analyze", *CASE_A, "--into", str(file)]) == 0
    capsys.readouterr()
    taken = document.load(file)
    assert taken.ping is not None and len(taken.probes) > 1
    shown = to_html(of_snapshot(taken))
    assert "A ping between two VMs" in shown and "case-a-host-a" in shown
    hidden = document.encode(Redactor(b"k" * 32).snapshot(taken)).decode()
    assert "case-a-host-a" not in hidden and "case-a-vm-b" not in hidden
    assert run(["ping", "analyze", *slow, "--baseline", str(file)]) == 1
