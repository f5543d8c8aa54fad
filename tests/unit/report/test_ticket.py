"""The document for a ticket: in each form, redacted before anything else, and with the verdict first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netconsole.base.errors import BadInput
from netconsole.probes.catalogue import load_all
from netconsole.report import ticket
from netconsole.report.of_snapshot import NOTE
from netconsole.snapshot import document
from netconsole.snapshot.document import Snapshot
from netconsole.snapshot.redact import Redactor
from tests.support import made_up

KEY = b"0123456789abcdef0123456789abcdef"
WORSE: dict[str, Any] = {"wait_us": 200, "samples": 500}


def snapshot(seed: int = 1, note: str = "", **kind: Any) -> Snapshot:
    return msgspec.convert({**made_up.document(seed, **kind), "note": note}, Snapshot)


def against(seed: int = 1) -> ticket.ReferenceSnapshots:
    return [made_up.snapshot(seed, samples=500)], ["monday.json"]


def headings(page: bytes) -> list[str]:
    """Of Markdown, in their order."""
    return [line.lstrip("# ") for line in page.decode().splitlines() if line.startswith("## ")]


def test_as_json_it_is_the_snapshot_itself() -> None:
    one = snapshot(note="slow")
    text, code = ticket.render(one, "json", load_all())
    assert (text, code) == (document.encode(one), 0)


def test_as_json_a_comparison_is_one_more_key(tmp_path: Path) -> None:
    one = snapshot(77, **WORSE)
    text, code = ticket.render(one, "json", load_all(), against())
    assert code == 1 and text.endswith(b"}\n")
    found = json.loads(text)
    comparison = found.pop("comparison")
    assert found == json.loads(document.encode(one))
    assert comparison["verdict"] == "regressed" and comparison["baseline"][0]["name"] == "monday.json"
    (tmp_path / "one.json").write_bytes(text)
    assert document.load(tmp_path / "one.json") == one


@pytest.mark.parametrize(("form", "begins"), [("html", "<!doctype html>"), ("md", "# netconsole ")])
def test_each_form_is_what_it_is_called(form: str, begins: str) -> None:
    text, code = ticket.render(snapshot(), form, load_all())
    assert code == 0 and text.decode().lower().startswith(begins)


@pytest.mark.parametrize("note", ["", "slow since noon"])
def test_the_verdict_stands_after_the_note_and_the_tables_of_the_comparison_behind(note: str) -> None:
    text, code = ticket.render(snapshot(77, note, **WORSE), "md", load_all(), against())
    plain, _ = ticket.render(snapshot(77, note, **WORSE), "md", load_all())
    found, usual = headings(text), headings(plain)
    first = [NOTE] if note else []
    assert code == 1
    verdict = "Compared with the baseline: verdict"
    assert found[: len(first) + 2] == [*first, verdict, "What stands out"]
    assert found[len(first) + 1 :][: len(usual) - len(first)][0] == usual[len(first)]
    behind = [one.removeprefix("Compared with the baseline: ") for one in found[found.index(verdict) + 1 :]]
    assert [one for one in behind if one in ("findings", "changed configuration")] == [
        "findings",
        "changed configuration",
    ]
    told, details, more = text.decode().partition("<details>")
    assert details and "Compared with the baseline: findings" in more and "Regressed" in told
    subtitle = next(line for line in text.decode().splitlines()[1:] if line.strip())
    assert "hv-017" in subtitle and ". current: " in subtitle and "baseline: monday.json, hv-017" in subtitle


def test_what_is_hidden_is_hidden_of_both_sides() -> None:
    hide = Redactor(KEY)
    one, other = snapshot(77, "hv-017 is slow", **WORSE), against()
    text, code = ticket.render(one, "md", load_all(), other, hide)
    assert code == 1 and "hv-017" not in text.decode() and "monday.json" not in text.decode()
    open_text, _ = ticket.render(one, "md", load_all(), other)
    assert "hv-017" in open_text.decode()
    alone, code = ticket.render(one, "json", load_all(), None, Redactor(KEY))
    assert code == 0 and alone == document.encode(Redactor(KEY).snapshot(one, load_all()))


def test_a_redactor_has_the_key_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETCONSOLE_REDACT_KEY", "a key that is long enough")
    assert ticket.redactor(False) is None
    first, second = ticket.redactor(True), ticket.redactor(True)
    assert first is not None and second is not None
    one = snapshot()
    assert first.snapshot(one, load_all()) == second.snapshot(one, load_all()) != one


def test_a_reference_is_read_before_anything_is_measured(tmp_path: Path) -> None:
    assert ticket.reference(None) is None
    file = tmp_path / "monday.json"
    file.write_bytes(document.encode(snapshot(3)))
    found = ticket.reference(str(file))
    assert found is not None and found[0] == [snapshot(3)] and len(found[1]) == 1 and "monday" in found[1][0]
    with pytest.raises(BadInput):
        ticket.reference(str(tmp_path / "tuesday.json"))
