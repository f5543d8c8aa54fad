"""The pieces that screens are drawn from: pure functions, no terminal."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from textual.geometry import Region

from netconsole.base import figure
from netconsole.telemetry.frames import Buckets
from netconsole.telemetry.histogram import index
from netconsole.tui.panes.common.columns import total_cell
from netconsole.tui.screens.knobs import parse
from netconsole.tui.screens.pages.text_page import wrap
from netconsole.tui.terminal.capabilities import inspect, prepare
from netconsole.tui.widgets.ascii_text import _GLYPHS, SPELLED, to_ascii
from netconsole.tui.widgets.bars import bar, bars
from netconsole.tui.widgets.bars import lines as histogram_lines
from netconsole.tui.widgets.columns import Cell, TableColumn, TableRow, place
from netconsole.tui.widgets.painted import Line, cells, cut, folded, spelled, spread
from netconsole.tui.widgets.spark import chart, condense, labelled, spark
from netconsole.tui.widgets.table_model import HOLD_S, StableOrder, TableModel


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("one", ["one"]),
        ("one two three", ["one two", "three"]),
        ("incomparable at all", ["incomparable", "at all"]),
        ("a 漢字 b", ["a 漢字", "b"]),
    ],
)
def test_a_text_is_folded_at_spaces(text: str, lines: list[str]) -> None:
    assert folded(text, 7) == lines


class TestSpark:
    def test_zero_is_the_base_and_more_than_zero_is_above_it(self) -> None:
        assert spark([0, 1, 1000], 3) == "▁▂█"

    def test_a_missing_sample_is_a_gap_and_not_a_zero(self) -> None:
        assert spark([5, None, 0, 5], 4) == "█ ▁█"

    def test_the_newest_samples_are_at_the_right(self) -> None:
        assert spark([9, 9, 1], 5, top=9) == "  ██▂"

    def test_the_maximum_is_written_beside_it(self) -> None:
        assert labelled([0, 412], 12) == "    ▁█ 412  "

    def test_durations_are_labelled_with_their_unit(self) -> None:
        assert labelled([1000, 2_400_000], 16, "ns").strip().endswith("2.40 ms")

    def test_without_any_sample_it_is_blank(self) -> None:
        assert labelled([None, None], 12) == " " * 12

    def test_it_fills_its_cells_exactly(self) -> None:
        for columns in range(30):
            assert cells([(labelled([1, 2, 3], columns), "")]) == columns

    def test_condensed_samples_keep_the_largest_and_stand_still(self) -> None:
        values = [float(value) for value in range(600)]
        before = condense(values, 60, tick=1000)
        after = condense([*values[1:], 0.0], 60, tick=1001)
        assert max(value for value in before if value is not None) == 599
        assert before[:-1] == after[:-1]

    def test_a_chart_is_as_high_as_its_largest_sample(self) -> None:
        drawn = chart([0, 50, 100, None], 4, 4, 100)
        assert drawn[0] == "  █ "
        assert drawn[-1] == "▁██ "


class TestBars:
    def histogram(self, *values: int) -> Buckets:
        counted: dict[int, int] = {}
        for value in values:
            counted[index(value)] = counted.get(index(value), 0) + 1
        return Buckets(len(values), sum(values), min(values), max(values), sorted(counted.items()))

    def test_bars_cover_all_samples_without_holes(self) -> None:
        drawn = bars(self.histogram(1, 100, 100, 5000), 10)
        assert sum(one.count for one in drawn) == 4
        assert all(one.high == next_one.low for one, next_one in itertools.pairwise(drawn))
        assert len(drawn) <= 10

    def test_percentiles_are_marked_where_they_lie(self) -> None:
        drawn = bars(self.histogram(*([10] * 98), 10_000, 10_000), 12)
        assert drawn[0].marks == ("p50", "p90")
        assert drawn[-1].marks == ("p99",)

    def test_a_single_sample_is_one_full_bar(self) -> None:
        (line,) = histogram_lines(self.histogram(500), "ns", 80, 10)
        assert "█" in line and "100 %" in line and "p50 p90 p99" in line

    def test_no_samples_no_lines(self) -> None:
        assert histogram_lines(Buckets(0, 0, None, None, []), "ns", 80, 10) == []

    def test_anything_above_nothing_shows(self) -> None:
        assert bar(1e-9, 20) == "▏"
        assert bar(0, 20) == ""
        assert bar(1, 20) == "█" * 20


class TestOrder:
    def test_rows_keep_their_place_for_a_while(self) -> None:
        order = StableOrder()
        assert order.arrange(["a", "b"], 0.0) == ["a", "b"]
        assert order.arrange(["b", "a"], HOLD_S - 0.1) == ["a", "b"]
        assert order.arrange(["b", "a"], HOLD_S) == ["b", "a"]

    def test_a_change_begins_a_new_while(self) -> None:
        order = StableOrder()
        order.arrange(["a", "b"], 0.0)
        order.arrange(["b", "a"], 100.0)
        assert order.arrange(["a", "b"], 100.0 + HOLD_S - 1) == ["b", "a"]

    def test_new_rows_come_last_and_gone_ones_leave_at_once(self) -> None:
        order = StableOrder()
        order.arrange(["a", "b"], 0.0)
        assert order.arrange(["new", "b"], 1.0) == ["b", "new"]

    def test_where_news_count_new_rows_come_above_those_that_rank_below(self) -> None:
        order = StableOrder(has_news=True)
        order.arrange(["a", "b"], 0.0)
        assert order.arrange(["worst", "b", "a", "least"], 1.0) == ["worst", "a", "b", "least"]
        assert order.arrange(["worst", "b", "middle", "a"], 2.0) == ["worst", "middle", "a", "b"]
        order.frozen = True
        assert order.arrange(["last", "b"], 3.0) == ["b", "last"]

    def test_a_frozen_order_never_changes(self) -> None:
        order = StableOrder()
        order.arrange(["a", "b"], 0.0)
        order.frozen = True
        assert order.arrange(["b", "a"], 1000.0) == ["a", "b"]

    def test_the_users_own_choice_is_taken_up_at_once(self) -> None:
        order = StableOrder()
        order.arrange(["a", "b"], 0.0)
        order.release()
        assert order.arrange(["b", "a"], 0.1) == ["b", "a"]


class TestLast:
    def test_a_row_that_ends_goes_below_those_that_go_on_at_once(self) -> None:
        table = TableModel("t", "title", [TableColumn("say", "", 10)])

        def shown(*rows: tuple[str, int], now_s: float) -> list[object]:
            table.show([TableRow(key, {"say": Cell(key)}, last) for key, last in rows], now_s)
            return list(table.keys)

        assert shown(("a", 0), ("b", 0), ("own", 2), now_s=0.0) == ["a", "b", "own"]
        assert shown(("b", 0), ("a", 1), ("own", 2), now_s=0.1) == ["b", "a", "own"]
        assert shown(("b", 0), ("a", 1), ("c", 0), ("own", 2), now_s=0.2) == ["b", "c", "a", "own"]
        table.freeze_order(True)
        assert shown(("c", 0), ("a", 1), ("b", 1), ("own", 2), now_s=0.3) == ["b", "c", "a", "own"]


class TestStyleOfAColumn:
    def test_where_one_count_has_no_room_all_that_are_seen_are_short(self) -> None:
        table = TableModel("t", "title", [TableColumn("total", "total", 9, right=True)])
        counts = [11_600_000, 1_931_886, 894]
        rows = [TableRow(n, {"total": total_cell(n, "")}) for n in counts]

        def said(height: int) -> list[str]:
            table.put(Region(0, 0, 12, height))
            table.show(rows[::-1], 0.0)
            return ["".join(text for text, _ in table.line(y, has_focus=True)).strip() for y in range(2, height)]

        assert said(4) == ["894", figure.count(1_931_886)]
        assert said(5) == ["894", "1.93M", "11.6M"]


class TestWholeSentence:
    def test_a_list_wants_lines_for_the_whole_sentence_under_its_cursor(self) -> None:
        table = TableModel("t", "title", [TableColumn("say", "", 10, most=10)], heads=False)
        sentence = ("who", "why " * 20, "how much")
        cells = {"say": Cell(" ".join(sentence), sentence=sentence)}
        table.put(Region(0, 0, 40, 4))
        table.show([TableRow(1, cells), TableRow(2, {"say": Cell("short")})], 0.0)
        lines = table.lines_wanted()
        assert lines == 1 + 2 + 3
        table.put(Region(0, 0, 40, lines))
        said = " ".join(text for y in range(3, lines) for text, _ in table.line(y, has_focus=True))
        assert said.split() == " ".join(sentence).split(), "nothing of it is cut"
        table.move(1)
        assert table.lines_wanted() == 1 + 2, "that of the other row is whole already"

    def test_what_columns_cut_of_the_row_under_the_cursor_stands_in_the_free_lines(self) -> None:
        columns = [TableColumn("a", "place", 6), TableColumn("b", "cause", 4), TableColumn("c", "n", 2, right=True)]
        table = TableModel("t", "title", columns)
        table.put(Region(0, 0, 40, 7))
        cells = {"a": Cell("nft_do_chain"), "b": Cell("rule"), "c": Cell("12345")}
        both = {"a": Cell("nft_do_chain"), "b": Cell("a policy")}
        table.show([TableRow(1, cells), TableRow(2, both), TableRow(3, {"a": Cell("lo")})], 0.0)

        def below(has_focus: bool = True) -> str:
            return "".join(text for y in (5, 6) for text, _ in table.line(y, has_focus)).strip()

        assert below() == "nft_do_chain", "a figure is no word"
        assert below(has_focus=False) == ""
        table.move(1)
        assert below().split() == ["place:", "nft_do_chain", "·", "cause:", "a", "policy"]
        table.move(1)
        assert below() == ""


class TestColumns:
    COLUMNS = (TableColumn("a", "A", 10, grow=1), TableColumn("b", "B", 8, spare=1), TableColumn("c", "C", 8, spare=2))

    def test_what_is_left_over_goes_to_the_column_that_grows(self) -> None:
        assert [(at.column.name, at.x, at.width) for at in place(self.COLUMNS, 40)] == [
            ("a", 0, 22),
            ("b", 23, 8),
            ("c", 32, 8),
        ]

    def test_the_most_dispensable_column_goes_first(self) -> None:
        assert [at.column.name for at in place(self.COLUMNS, 20)] == ["a", "b"]
        assert [at.column.name for at in place(self.COLUMNS, 10)] == ["a"]

    def test_no_column_reaches_over_the_edge(self) -> None:
        for width in range(1, 60):
            assert all(at.x + at.width <= width for at in place(self.COLUMNS, width))


class TestLines:
    def test_what_is_cut_ends_in_an_ellipsis(self) -> None:
        assert cut([("abc", ""), ("defg", "dim")], 5) == [("abc", ""), ("d…", "dim")]

    def test_the_right_end_wins(self) -> None:
        line = spread([("left side", "")], [("right", "")], 12)
        assert "".join(text for text, _ in line) == "left … right"

    def test_a_long_last_piece_goes_on_below_where_it_began(self) -> None:
        first, second = wrap([("  label  ", "dim"), ("some words that are long", "")], 24)
        assert "".join(text for text, _ in first) == "  label  some words that"
        assert "".join(text for text, _ in second) == "         are long"


class TestTerminal:
    def judge(self, encoding: str = "utf-8", **environ: str) -> tuple[bool, bool]:
        found = inspect({"TERM": "xterm-256color", **environ}, encoding)
        return found.colour, found.unicode

    def test_an_ordinary_terminal_has_colour_and_unicode(self) -> None:
        assert self.judge(LANG="en_US.UTF-8") == (True, True)

    def test_no_locale_at_all_is_no_reason_for_ascii(self) -> None:
        assert self.judge() == (True, True)

    @pytest.mark.parametrize("term", ["screen", "tmux-256color", "xterm", "rxvt"])
    def test_common_terminals(self, term: str) -> None:
        assert self.judge(TERM=term) == (True, True)

    def test_no_color_means_no_colour_unless_it_is_empty(self) -> None:
        assert self.judge(NO_COLOR="1")[0] is False
        assert self.judge(NO_COLOR="")[0] is True

    @pytest.mark.parametrize("environ", [{"LC_ALL": "C"}, {"LC_CTYPE": "POSIX"}, {"LANG": "C"}])
    def test_the_c_locale_is_ascii(self, environ: dict[str, str]) -> None:
        assert self.judge(**environ)[1] is False

    def test_c_utf8_is_not_ascii(self) -> None:
        assert self.judge(LC_ALL="C.UTF-8")[1] is True

    def test_an_encoding_without_block_elements_is_ascii(self) -> None:
        assert self.judge(encoding="iso8859-1", LANG="de_DE")[1] is False

    def test_the_user_has_the_last_word(self) -> None:
        assert self.judge(LC_ALL="C", NETCONSOLE_ASCII="0")[1] is True
        assert self.judge(NETCONSOLE_ASCII="1")[1] is False

    @pytest.mark.parametrize("term", ["dumb", "", "vt100"])
    def test_a_plain_terminal_is_asked_nothing(self, term: str) -> None:
        found = inspect({"TERM": term}, "utf-8")
        assert (found.colour, found.unicode, found.plain) == (False, False, True)

    def test_the_decision_is_written_where_textual_reads_it(self) -> None:
        environ = {"NO_COLOR": ""}
        prepare(inspect({"TERM": "xterm", "NO_COLOR": ""}, "utf-8"), environ)
        assert "NO_COLOR" not in environ
        prepare(inspect({"TERM": "vt100"}, "utf-8"), environ)
        assert environ["NO_COLOR"] == "1"
        assert environ["TEXTUAL_ANIMATIONS"] == "none"

    def test_ascii_keeps_every_column(self) -> None:
        same = {char: glyph for char, glyph in _GLYPHS.items() if char not in SPELLED}
        assert all(len(glyph) == 1 and glyph.isascii() and len(char) == 1 for char, glyph in same.items())
        assert to_ascii("a─b 漢字 é") == "a-b ???? ?"

    def test_ascii_means_what_was_meant(self) -> None:
        assert SPELLED == ("≥", "≤")
        assert to_ascii("≥339") == ">=339" and to_ascii("≤2") == "<=2"

    @pytest.mark.parametrize(
        ("line", "text"),
        [
            ([("total   ", "dim"), (" ≥339", "")], "total   >=339"),
            ([("a ≥339", "look"), ("   b", "")], "a >=339  b"),
            ([("a ≥3", ""), (" ", ""), (" b  c", "")], "a >=3 b  c"),
            ([("a≥1≥2   b", "")], "a>=1>=2 b"),
            ([("a ≥1", "")], "a >=1"),
        ],
    )
    def test_a_longer_sign_takes_a_blank_beside_it(self, line: Line, text: str) -> None:
        assert "".join(part for part, _ in spelled(line)) == text
        assert {tone for _, tone in spelled(line)} == {tone for _, tone in line}

    def test_ascii_drops_what_takes_no_cell(self) -> None:
        assert to_ascii("e\u0301") == "e"


class TestKnobForm:
    def test_typed_text_becomes_the_type_of_the_default(self) -> None:
        assert parse(" 80 ", 0) == 80
        assert parse("1.5", 0.0) == 1.5
        assert parse("true", False) is True
        assert parse("eth0", "") == "eth0"

    def test_what_does_not_fit_is_left_for_the_check_to_refuse(self) -> None:
        assert parse("eighty", 0) == "eighty"
        assert parse("1.5", 0) == 1.5


def test_nothing_of_the_session_imports_textual(tmp_path: Path) -> None:
    import subprocess
    import sys

    terminal = "netconsole.tui.terminal.capabilities, netconsole.tui.terminal.lifeline"
    code = f"import sys, netconsole.session.live, netconsole.findings.incidents, {terminal}\n"
    code += "sys.exit(any(name.split('.')[0] in ('textual', 'rich') for name in sys.modules))"
    source = Path(__file__).parents[2] / "src"
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(source)}, cwd=tmp_path, check=False)
    assert done.returncode == 0
