"""`baseline` and `compare` on the command line: exit codes, formats, one line per error, whole documents on stdout."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import jsonschema
import msgspec
import pytest

from netconsole.base.output import FORMATS
from netconsole.cli.main import run
from netconsole.report import ticket
from netconsole.snapshot.document import load
from netconsole.snapshot.redact import Redactor
from tests.support import made_up

SCHEMAS = Path(__file__).parents[3] / "docs/reference/schema"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with three runs of a quiet day, one more (same.json), and one of a bad day (bad.json)."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    kinds: dict[str, tuple[int, float]] = {f"run-{n}": (n, 20.0) for n in range(3)} | {"same": (8, 20), "bad": (9, 200)}
    for name, (seed, wait_us) in kinds.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(made_up.document(seed, samples=300, wait_us=wait_us)))
    return tmp_path


def saved(runs: Path) -> str:
    """The name of a baseline of the three."""
    assert run(["baseline", "save", "quiet", *(str(runs / f"run-{n}.json") for n in range(3))]) == 0
    return "quiet"


def test_the_exit_code_is_1_exactly_when_something_is_worse(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = saved(runs)
    assert run(["compare", str(runs / "bad.json"), name]) == 1
    assert run(["compare", str(runs / "same.json"), name]) == 0
    assert "Same: nothing changed beyond chance." in capsys.readouterr().out
    assert run(["compare", str(runs / "bad.json"), str(runs / "run-0.json")]) == 1


def test_json_on_stdout_is_one_document_of_its_schema(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", str(runs / "bad.json"), str(runs / "run-0.json"), "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(json.loads((SCHEMAS / "comparison-1.json").read_text())).validate(document)
    assert document["verdict"] == "regressed"


def test_a_comparison_of_nothing_is_3_and_says_so_in_every_form(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = made_up.document(1, samples=1)
    document["probes"] = {"other": document["probes"]["kernel_drops"]}
    (runs / "other.json").write_text(json.dumps(document))
    why = (
        "kernel_drops: not in the current snapshot; link_rates: not in the current snapshot; other: not in the baselin"
    )
    for form in ("text", "md", "html", "json"):
        assert run(["compare", str(runs / "other.json"), str(runs / "run-0.json"), "--format", form]) == 3
        captured = capsys.readouterr()
        assert captured.err == f"netconsole: nothing could be compared: {why}e; and 1 more\n"
        if form == "json":
            found = json.loads(captured.out)
            schema = json.loads((SCHEMAS / "comparison-1.json").read_text())
            jsonschema.Draft202012Validator(schema).validate(found)
            assert (found["verdict"], found["compared"], len(found["not_comparable"])) == ("unknown", 0, 4)
        else:
            shown = captured.out.replace("\\", "").replace("<wbr>", "")
            assert "Unknown: nothing could be compared." in shown and why in shown and "Same" not in shown
    against = ticket.reference(str(runs / "run-0.json"))
    for form in FORMATS:
        content, code = ticket.render(load(runs / "other.json"), form, {}, against)
        assert code == 3 and (b"nothing could be compared" in content or b'"verdict":"unknown"' in content)


@pytest.mark.parametrize(
    ("ending", "begins"), [("md", "# "), ("html", "<!DOCTYPE"), ("txt", "netconsole "), ("json", "{")]
)
def test_the_form_follows_the_ending(runs: Path, ending: str, begins: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = runs / f"out.{ending}"
    assert run(["compare", str(runs / "bad.json"), str(runs / "run-0.json"), "-o", str(file)]) == 1
    assert file.read_text().startswith(begins)
    assert capsys.readouterr().out == ""


def test_a_dash_is_standard_output(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs)
    assert run(["compare", "bad.json", "run-0.json", "--format", "json", "-o", "-"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "regressed"
    assert not Path("-").exists()


def test_a_file_that_exists_is_replaced_only_when_asked_for(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = runs / "kept.md"
    command = ["compare", str(runs / "bad.json"), str(runs / "run-0.json"), "-o", str(file)]
    file.write_text("mine")
    assert run(command) == 2
    assert (
        "kept.md: this file exists; give another name with -o, or replace the file with --replace"
        in capsys.readouterr().err
    )
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    for answer, code in (("\n", 2), ("n\n", 2), ("yes\n", 1)):
        typed = io.StringIO(answer)
        typed.isatty = lambda: True  # type: ignore[method-assign]
        monkeypatch.setattr("sys.stdin", typed)
        assert file.read_text() == "mine"
        assert run(command) == code
        assert "kept.md exists; replace it? (y/N)" in capsys.readouterr().err
    assert file.read_text().startswith("# ")
    file.write_text("mine")
    assert run([*command, "--replace"]) == 1
    assert file.read_text().startswith("# ")


def test_an_empty_file_is_filled_without_a_question(runs: Path) -> None:
    file = runs / "empty.md"
    file.touch()
    assert run(["compare", str(runs / "bad.json"), str(runs / "run-0.json"), "-o", str(file)]) == 1
    assert file.read_text().startswith("# ")


def test_baselines_are_listed_shown_and_removed(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = saved(runs)
    assert run(["baseline", "list"]) == run(["baseline"]) == run(["baseline", "show", name]) == 0
    shown = capsys.readouterr().out
    assert "the same profile: summary" in shown and "variation known from 3 runs" in shown and "machine busy" in shown
    assert run(["baseline", "list", "--profile", "drops"]) == 0
    assert "another profile than drops: summary" in capsys.readouterr().out
    assert run(["baseline", "remove", name]) == 0
    assert run(["baseline", "list"]) == 0
    assert "No baselines yet" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "{}/missing.json", "{}/run-0.json"], "missing.json: no such file"),
        (["compare", "{}/missing.json", "nosuch"], "missing.json: no such file"),
        (["compare", "{}/bad.json", "nosuch"], "baseline: nosuch: no such file, and no baseline of this name"),
        (["compare", "{}/bad.json", "{}/run-0.json", "-o", "{}/x.pdf"], 'the ending "pdf" names no known format'),
        (["compare", "{}/bad.json", "{}/run-0.json", "--format", "pdf"], "expected text, md, html, json"),
        (["compare", "{}/bad.json", "{}/run-0.json", "-o", "{}/no/x.md"], "no such directory"),
        (["baseline", "save", "../x", "{}/bad.json"], "expected a name of letters"),
        (["baseline", "show", "nosuch"], "no baseline of this name"),
        (["baseline", "save", "x", "/dev/null"], "/dev/null: not a file"),
        (["snapshot", "--baseline", "nosuch"], "no baseline of this name"),
    ],
)
def test_an_error_is_one_line_and_2(
    runs: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([argument.replace("{}", str(runs)) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert len(captured.err.splitlines()) == 1
    assert captured.out == ""


def test_a_baseline_that_is_replaced_is_said_so(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = saved(runs)
    assert capsys.readouterr().err == ""
    assert run(["baseline", "save", name, str(runs / "bad.json")]) == 0
    captured = capsys.readouterr()
    assert re.fullmatch(r"netconsole: replaced quiet of \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n", captured.err)
    assert "variation not known: 1 of 3 runs; save it again from more snapshots" in captured.out


def test_a_ticket_carries_the_comparison_in_every_form(runs: Path) -> None:
    snapshot = load(runs / "bad.json")
    against = ticket.reference(str(runs / "run-0.json"))
    for form in FORMATS:
        content, code = ticket.render(snapshot, form, {}, against)
        assert code == 1
        assert b"tx_queue_latency/histogram/wait/device=vnet3" in content.replace(b"<wbr>", b"")
    document = json.loads(ticket.render(snapshot, "json", {}, against)[0])
    jsonschema.Draft202012Validator(json.loads((SCHEMAS / "snapshot-1.json").read_text())).validate(document)
    assert msgspec.convert(document, type(snapshot)) == snapshot


def test_a_ticket_has_its_summary_before_its_tables(runs: Path) -> None:
    snapshot = load(runs / "bad.json")
    text = ticket.render(snapshot, "md", {}, ticket.reference(str(runs / "run-0.json")))[0].decode()
    headings = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    verdict, changed = (f"Compared with the baseline: {part}" for part in ("verdict", "findings"))
    assert headings[:4] == [verdict, "What stands out", "What watching cost", "Not measured"]
    assert headings[4] == changed


def test_a_redacted_ticket_names_no_host_in_the_comparison_either(runs: Path) -> None:
    snapshot, against = load(runs / "bad.json"), ticket.reference(str(runs / "run-0.json"))
    for form in FORMATS:
        content, code = ticket.render(snapshot, form, {}, against, Redactor(b"k" * 32))
        assert code == 1
        assert b"hv-017" not in content
