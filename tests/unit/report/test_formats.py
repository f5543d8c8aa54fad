"""A made-up format: two lines, and each command that writes a report has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from netconsole.base import output
from netconsole.cli.main import run
from netconsole.report import formats

SNAPSHOT = Path(__file__).parents[2] / "support" / "data" / "snapshot-version-1.json"


@pytest.fixture(autouse=True)
def shout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "FORMATS", {**output.FORMATS, "shout": ("shout", "loud")})
    monkeypatch.setattr(formats, "RENDERERS", {**formats.RENDERERS, "shout": lambda one: f"{one.title.upper()}!"})


@pytest.mark.parametrize("options", [["-o", "report.loud"], ["--format", "shout", "-o", "report"]])
def test_a_format_is_declared_once(options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(["compare", str(SNAPSHOT), str(SNAPSHOT), *options])
    assert (tmp_path / options[-1]).read_text().endswith("!")


def test_what_is_no_format_names_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", str(SNAPSHOT), str(SNAPSHOT), "--format", "pdf"]) == 2
    assert "shout" in capsys.readouterr().err
