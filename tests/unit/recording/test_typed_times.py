"""The times that a user types to go to: of day, from the beginning, and from here."""

from __future__ import annotations

import time

import pytest

from netconsole.recording.replay_session import Position, parse_time
from tests.support.recorded import BEGIN_WALL_NS, HEADER, SECOND


def position(at_s: float = 100.0) -> Position:
    return Position(HEADER.host, at_s, 3600.0, 0, BEGIN_WALL_NS, True, 1.0, False, False, 0.0, None)


@pytest.mark.parametrize(
    ("text", "at_s"),
    [
        ("90s", 90), ("5m", 300), ("1h", 3600), ("50%", 1800), ("+30s", 130), ("-1.5m", 10), ("-5m", 0), ("+2h", 3600),
        ("9:00", 0), ("09:10:05", 605), (" 10:00:00 ", 3600),
        ("2h", None), ("8:59", None), ("25:00", None), ("9:60", None), ("", None), ("x", None), ("-", None),
        ("9", None), ("1e9s", None), ("٣s", None),
    ],
)  # fmt: skip
def test_a_time_that_is_typed(monkeypatch: pytest.MonkeyPatch, text: str, at_s: float | None) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert parse_time(text, position()) == at_s


def test_a_time_after_midnight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    late = Position(HEADER.host, 0, 7200.0, 0, BEGIN_WALL_NS + 14 * 3600 * SECOND, True, 1.0, False, False, 0.0, None)
    assert parse_time("0:30", late) == 5400
    assert parse_time("0:59:59", late) == 7199
    assert [parse_time(text, late) for text in ("24:00", "23:60", "0:59:60", "1:00:01")] == [None] * 4
