"""Figures and outside text: three digits and a unit, unknown is unknown, and nothing reaches the terminal but text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netconsole.base import figure

THIN = "\u202f"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (0, "0"),
        (0.0, "0"),
        (7, "7"),
        (999, "999"),
        (999.4, "999"),
        (999.5, "1.00k"),
        (1000, "1.00k"),
        (1234, "1.23k"),
        (45_600, "45.6k"),
        (999_500, "1.00M"),
        (1e9, "1.00G"),
        (9.996, "10.0"),
        (0.5, "0.5"),
        (0.4, "0.4"),
        (0.8381, "0.84"),
        (0.996, "1"),
        (0.000034, "0.000034"),
        (-1234, "-1.23k"),
        (float("inf"), "inf"),
    ],
)
def test_numbers_have_three_significant_digits_and_two_below_one(value: float | None, text: str) -> None:
    assert figure.number(value) == text


def test_what_has_losses_behind_it_is_a_lower_bound() -> None:
    assert figure.number(1234, at_least=True) == "≥1.23k"
    assert figure.count(1234567, at_least=True) == f"≥1{THIN}234{THIN}567"
    assert figure.rate(12.0, "packets", at_least=True) == "≥12 packets/s"


def test_what_is_unknown_has_no_bound_and_no_unit() -> None:
    assert figure.number(None, at_least=True) == "–"
    assert figure.rate(None, "packets") == "–"
    assert figure.percent(None) == "–"
    assert figure.duration(None) == "–"
    assert figure.quantity(None, "us", at_least=True) == "–"
    assert figure.memory(None) == "–"
    assert figure.elapsed(None) == "–"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "ns", "0 ns"),
        (850, "ns", "850 ns"),
        (950, "ns", "950 ns"),
        (999.4, "ns", "999 ns"),
        (999.9, "ns", "1.00 us"),
        (999_400, "us", "999 ms"),
        (85_300, "ns", "85.3 us"),
        (1.9, "ms", "1.90 ms"),
        (2500, "ms", "2.50 s"),
    ],
)
def test_times_take_the_unit_that_reads_best(value: float, unit: str, text: str) -> None:
    assert figure.duration(value, unit) == text
    assert figure.quantity(value, unit) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59, "59 s"), (599, "599 s"), (600, "10 min"), (7199, "120 min"), (7200, "2.0 h"), (12_600, "3.5 h")],
)
def test_how_long_it_lasted_is_rough(seconds: float, text: str) -> None:
    assert figure.lasted(seconds) == text


def test_quantities_carry_their_unit() -> None:
    assert figure.quantity(12, "packets") == "12 packets"
    assert figure.quantity(12, "packets", at_least=True) == "≥12 packets"
    assert figure.quantity(12, "us") == "12 us" and figure.quantity(12, "us", at_least=True) == "≥12 us"
    assert figure.quantity(12, "") == "12" and figure.quantity(2, "%", at_least=True) == "≥2 %"
    assert figure.quantity(1.26, "percent") == "1.26 %"
    assert figure.quantity(2048, "kB") == "2 MB"
    assert figure.quantity(65_530, "index") == "65530" and figure.quantity(float("inf"), "index") == "–"
    assert figure.elapsed(3 * 3600 + 4 * 60 + 5.9) == "03:04:05"


@pytest.mark.parametrize(
    ("value", "two", "three"),
    [
        (None, "–", "–"),
        (0, "0 %", "0 %"),
        (0.004, "< 0.01 %", "< 0.01 %"),
        (0.01, "0.01 %", "0.01 %"),
        (0.3449, "0.34 %", "0.34 %"),
        (1.26, "1.3 %", "1.26 %"),
        (42.77, "43 %", "42.8 %"),
        (99.5, "99 %", "99.5 %"),
        (99.96, "99 %", "99.9 %"),
        (100, "100 %", "100 %"),
        (100.0, "100 %", "100 %"),
        (130.4, "130 %", "130 %"),
        (1234, "1.23k %", "1.23k %"),
        (-3.0, "-3 %", "-3 %"),
    ],
)
def test_percentages_are_never_all_or_nothing_by_rounding(value: float | None, two: str, three: str) -> None:
    assert (figure.percent(value, digits=2), figure.percent(value)) == (two, three)


def test_a_percentage_may_be_a_lower_bound() -> None:
    assert figure.percent(99.96, at_least=True) == "≥99.9 %"
    assert figure.percent(0.004, at_least=True) == "≥0 %"


@pytest.mark.parametrize(
    ("count", "what", "text"),
    [
        (1, "echoes", "1 echo"),
        (2, "echoes", "2 echoes"),
        (1, "packets", "1 packet"),
        (1, "entries", "1 entry"),
        (1, "TCP segments", "1 TCP segment"),
        (1234, "packets", f"1{THIN}234 packets"),
        (0, "packets", "0 packets"),
        (3, "", "3"),
        (None, "packets", "– packets"),
    ],
)
def test_one_of_them_is_no_plural(count: int | None, what: str, text: str) -> None:
    assert figure.things(count, what) == text
    assert figure.things(1, "packets", at_least=True) == "≥1 packet"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("eth0", "eth0"),
        ("[bold]x", "[bold]x"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\tc\r", "a\\x0ab\\x09c\\x0d"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202eevil", "\\u202eevil"),
        ("\u200bx", "\\u200bx"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("\U00010000", "\U00010000"),
        ("\uffff", "\\uffff"),
        ("\U0001bca0", "\\U0001bca0"),
        ("\u0100", "\u0100"),
        ("\xff", "\xff"),
        ("\u0301x", "\\u0301x"),
        ("e\u0301", "e\u0301"),
        ("雪", "雪"),
        (None, "–"),
        (53, "53"),
    ],
)
def test_outside_text_is_made_visible(text: object, shown: str) -> None:
    assert figure.safe(text) == shown


def test_outside_text_is_cut() -> None:
    assert figure.safe("x" * 1000, 10) == "x" * 10 + "…"
    assert figure.safe("x" * 10, 10) == "x" * 10 and figure.safe("é" * 10, 10) == "é" * 10
    assert figure.safe("x" * 257) == "x" * 256 + "…"


@given(st.text(max_size=300))
def test_nothing_unprintable_gets_through(text: str) -> None:
    shown = figure.safe(text)
    assert all(character.isprintable() or character.isspace() for character in shown)
    assert "\x1b" not in shown
    assert "\n" not in shown


@given(st.text(max_size=40), st.integers(0, 50), st.booleans())
def test_a_cell_is_exactly_as_wide_as_its_column(text: str, columns: int, right: bool) -> None:
    assert figure.width(figure.fit(figure.safe(text), columns, right)) == columns


def test_of_a_long_path_the_end_is_kept() -> None:
    assert figure.place("/a/b.json", 20) == "/a/b.json" == figure.place("/a/b.json", 9)
    assert figure.place("/" + "x" * 256) == "…" + "x" * 256
    assert figure.place("/a/long/way/to\x1b/b.json", 8) == "…\\x1b/b.json"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("3ms", 0.003),
        ("10s", 10.0),
        ("1.5m", 90.0),
        ("2h", 7200.0),
        ("10", None),
        ("-1s", None),
        ("1e3s", None),
        ("", None),
    ],
)
def test_times_have_a_unit(text: str, seconds: float | None) -> None:
    assert figure.parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (37, "protocol TcpExtListenOverflows (blue)"),
        (36, "protocol TcpExtListenOverflo… (blue)"),
        (20, "protocol Tcp… (blue)"),
        (14, "protoc… (blue)"),
        (10, "prot… (bl…"),
        (2, "……"),
    ],
)
def test_a_text_of_two_ends_keeps_its_tail(columns: int, expected: str) -> None:
    made = figure.fit_ends("protocol TcpExtListenOverflows", " (blue)", columns)
    assert (made, figure.width(made)) == (expected, columns)


def test_two_ends_that_fit_are_whole() -> None:
    assert figure.fit_ends("qdisc eth0", " (blue)", 40) == "qdisc eth0 (blue)"
    assert figure.fit_ends("q", " (a-very-long-namespace)", 12) == "q (a-very-l…"
