"""Commands are lines: whole ones whatever the pieces in which they come, and none that is longer than may be."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netconsole_collector import commands


@given(st.lists(st.binary().map(lambda line: line.replace(b"\n", b" ")), max_size=20), st.data())
def test_lines_are_whole_whatever_the_pieces(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines) + b"the beginning of one"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    found = commands.LineSplitter()
    pieces = [stream[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert [line for piece in pieces for line in found.add(piece)] == [line for line in lines if line.strip()]
    assert not found.is_too_long()


def test_a_line_that_is_too_long_is_told_of_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "MAX_BYTES", 10)
    lines = commands.LineSplitter()
    told = []
    for piece in (b"first\n12345", b"67890", b"1", b"2345", b"rest of it\nnext\n", b"last\n"):
        told += [*lines.add(piece), *(["too long"] if lines.is_too_long() else [])]
    assert told == [b"first", "too long", b"next", b"last"]


@pytest.mark.parametrize("line", [b"", b"\xff", b"[]", b"7", b'{"id": "x"}', b"9" * 5000, b"[" * 100_000])
def test_what_is_no_command_is_refused(line: bytes) -> None:
    with pytest.raises(commands.BadCommand, match="not a command"):
        commands.parsed(line)


def test_a_command_has_an_id() -> None:
    assert commands.parsed(json.dumps({"command": "stop"}).encode()) == {"command": "stop", "id": 0}
