"""--doctor refuses what is no list of load commands in one sentence, whatever the bytes."""

from __future__ import annotations

import io

import pytest

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
