"""--doctor refuses what is no list of load commands in one sentence, whatever the bytes."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest

from netconsole.probes import catalogue
from netconsole_collector import doctor


@pytest.mark.parametrize(
    "raw",
    [b"\xff", b"{}", b"[5]", b"nonsense", b"[" * 100_000, b"[" + b"9" * 5000 + b"]"],
    ids=lambda raw: repr(raw[:9]),
)
def test_what_is_no_list_of_commands_is_refused(raw: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()
    stdin = io.TextIOWrapper(io.BytesIO(raw), "utf-8")
    assert doctor.doctor(stdin, out, "/nonexistent/python3") == doctor.EXIT_WRONG_INPUT
    assert out.getvalue() == ""
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("probe", "types", "names", "says"),
    [
        ("kernel_drops", "btf", {}, doctor.NO_REASONS),
        ("kernel_drops", "headers", {}, doctor.NO_NAMES),
        ("kernel_drops", "btf", {"drop_reason": {"2": "NOT_SPECIFIED"}}, None),
        ("flow_top", "btf", {}, None),
    ],
)
def test_a_kernel_without_drop_reasons_is_told_where_they_are_shown(
    monkeypatch: pytest.MonkeyPatch, probe: str, types: str, names: dict[str, Any], says: str | None
) -> None:
    answer = {
        "ok": True,
        "programs": [],
        "missing": [],
        "maps": {},
        "names": names,
        "types": types,
        "cheaper_refused": None,
    }
    monkeypatch.setattr(doctor, "_answer", lambda *_: answer)
    can = {name: {"ok": True} for name in ("privileges", "bcc", "ring_buffer")}
    command = {"spec": copy.deepcopy(dict(catalogue.shipped(probe).raw)), "source": ""}
    found = doctor._try(command, None, can, None)
    assert (found["state"], found["why"]) == ("attached", says)
    assert found["notes"] == ([says] if says else [])
