"""The same blocks as text, Markdown and HTML, character by character."""

from __future__ import annotations

import re

import pytest

from netconsole.report import Document, to_html, to_markdown, to_text
from netconsole.report.blocks import (
    Bars,
    Curve,
    Heading,
    Note,
    Quoted,
    ReportBlock,
    ScaledBar,
    ScaledPath,
    SummaryLine,
    SummaryLines,
    TextTable,
)
from netconsole.report.formats.to_text import BAR_COLUMNS, bar_text, longest_of, scaled_lines

LINES = SummaryLines([SummaryLine("!!", "it loses", "look", ("ip a", "ip l")), SummaryLine("ok", "fine")])
TABLE = TextTable(["name", "n"], [["a", "10"], ["long_er", "9"]], frozenset({1}), 2)
DRAWN: list[ReportBlock] = [Bars("b", "us", [(0.0, 1.0, 5)]), Curve("c", "per s", [1.0, 2.0])]


def document(*blocks: ReportBlock, behind: tuple[ReportBlock, ...] = ()) -> Document:
    return Document("title", "subtitle", [*blocks], [*behind])


def test_plain_text() -> None:
    shown = document(Heading("Head"), Note("a note"), LINES, TABLE, *DRAWN, behind=(Note("behind"),))
    assert to_text(shown).split("\n") == [
        "title",
        "subtitle",
        "",
        "HEAD",
        "a note",
        "!! it loses",
        "   look",
        "   $ ip a",
        "   $ ip l",
        "ok fine",
        "name      n",
        "a        10",
        "long_er   9",
        "… 2 more rows are in the JSON document",
        "behind",
        "",
    ]
    assert "more rows" not in to_text(document(TextTable(["a"], [["b"]])))
    assert to_text(document(TextTable(["a"], []))) == "title\nsubtitle\na\n"


def test_a_long_cell_is_cut_and_a_long_line_goes_on_below_its_first_word() -> None:
    assert to_text(document(TextTable(["a"], [["x" * 73], ["y" * 72]]))).split("\n")[2:5] == [
        "a",
        "x" * 71 + "…",
        "y" * 72,
    ]
    line = SummaryLines([SummaryLine(word, "one two three four") for word in ("!!", "?", "ok", "odd")])
    note = Note("abcdefghijkl-mnopqrstuvwxyz yes")
    assert to_text(document(note, line), 16).split("\n")[2:] == [
        "abcdefghijkl-mnopqrstuvwxyz",  # a word is never broken
        "yes",
        "!! one two three",
        "   four",
        "?  one two three",
        "   four",
        "ok one two three",
        "   four",
        "odd one two",
        "three four",
        "",
    ]


@pytest.mark.parametrize(
    ("length", "bar"),
    [
        (100.0, "█" * 8),
        (50.0, "█" * 4),
        (49.0, "███▉"),  # 31.36 eighths
        (1.6, "▏"),
        (0.001, "▏"),  # what is not zero is seen
        (0.0, ""),
        (None, "?"),
        (-50.0, "░" * 4),
        (-0.001, "░"),
    ],
)
def test_a_bar_to_scale(length: float | None, bar: str) -> None:
    """Of eight columns for a length of 100."""
    assert bar_text(length, 100.0, 8) == bar


def test_a_way_is_drawn_to_the_scale_of_its_longest_part() -> None:
    assert BAR_COLUMNS == 34
    bars = [
        ScaledBar("A", "vm", 34.0, "34.0", "50 %"),
        ScaledBar("a long name of it", "a place that is long", -68.0, "-68.0", "-9 %", measured=False),
        ScaledBar("C", "", None, "–"),
    ]
    path = ScaledPath("way", "us", bars)
    assert longest_of(path) == 68.0 and longest_of(ScaledPath("", "", bars[2:])) == 0.0
    assert scaled_lines(path) == [
        f"A             vm                  34.0  50 %  {'█' * 17}",
        f"a long name…  a place that …     -68.0  -9 %  {'░' * 34}",
        "C                                    –        ?",
    ]
    assert scaled_lines(ScaledPath("", "", [ScaledBar("A", "x", 0.0, "0")])) == ["A  x         0"]
    assert scaled_lines(ScaledPath("", "", [])) == []
    assert bar_text(5.0, 0.0) == "▏"
    table = to_markdown(document(path)).split("\n")[4:]
    assert table[:3] == [
        "|   | where | us | share | to scale |",
        "|---|---|---:|---:|---|",
        f"| A | vm | 34.0 | 50 % | {'█' * 17} |",
    ]


def test_markdown() -> None:
    shown = document(Heading("Head"), Note("a note"), LINES, TABLE, *DRAWN, behind=(Note("behind"), Note("it")))
    assert to_markdown(shown).split("\n") == [
        "# title",
        "",
        "subtitle",
        "",
        "## Head",
        "",
        "a note",
        "",
        "- **!!** it loses → look `ip a` `ip l`",
        "- **ok** fine",
        "",
        "| name | n |",
        "|---|---:|",
        "| a | 10 |",
        "| long_er | 9 |",
        "",
        "… 2 more rows are in the JSON document.",
        "",
        "<details>",
        "<summary>Everything else: 4 lines</summary>",
        "",
        "behind",
        "",
        "it",
        "",
        "</details>",
        "",
    ]
    assert "<details>" not in to_markdown(document(behind=tuple(DRAWN)))


def test_what_a_program_wrote_stands_as_it_is_and_ends_nothing() -> None:
    shown = document(Quoted(["$ nft list", "  a |b| <i>", "```", "\x1b[2Jx"]))
    assert to_text(shown).split("\n")[2:6] == ["    $ nft list", "      a |b| <i>", "    ```", "    \\x1b[2Jx"]
    markdown = to_markdown(shown).split("\n")
    assert markdown[4:10] == ["````", "$ nft list", "  a |b| <i>", "```", "\\x1b[2Jx", "````"]
    assert "<pre>$ nft list\n  a |b| &lt;i&gt;\n```\n\\x1b[2Jx</pre>" in to_html(shown)


def test_a_line_without_a_word_has_no_empty_bold() -> None:
    assert to_markdown(document(SummaryLines([SummaryLine("", "14.0 of 22.1 us")]))).endswith("\n- 14.0 of 22.1 us\n")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("a", "`a`"),
        ("a `b` c", "``a `b` c``"),
        ("`a`", "`` `a` ``"),
        ("a``", "``` a`` ```"),
        (" a ", "`  a  `"),
        (" a", "` a`"),
        ("", "`  `"),
    ],
)
def test_a_command_is_code_whatever_it_holds(command: str, code: str) -> None:
    shown = to_markdown(document(SummaryLines([SummaryLine("!", "x", "", (command,))])))
    assert shown.endswith(f"- **!** x {code}\n")


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("- a", "\\- a"), ("-a", "-a"), ("--", "\\--"), ("+", "\\+"), ("=", "\\="), ("1. a", "1\\. a"), ("1)", "1\\)"),
        ("1.5", "1.5"), ("1234567890. a", "1234567890. a"), ("123456789. a", "123456789\\. a"), ("# a", "\\# a"),
        ("a_b _c_", "a_b \\_c\\_"), ("a & <b> www.x", "a &amp; &lt;b&gt; www&#46;x"), ("x://y", "x&#58;//y"),
        ("$1 ~a~ [b] `c` *d* \\ |", "\\$1 \\~a\\~ \\[b\\] \\`c\\` \\*d\\* \\\\ \\|"), (" a ", "a"),
    ],
)  # fmt: skip
def test_a_text_is_no_markup(text: str, escaped: str) -> None:
    assert to_markdown(document(Note(text))).split("\n")[4] == escaped


def test_html() -> None:
    shown = to_html(document(Heading("A<b"), Note("a note"), LINES, TABLE, behind=(Note("behind"),)))
    head, _, body = shown.partition("<body>\n")
    assert "<title>title</title>" in head and "default-src &#x27;none&#x27;" not in head
    assert "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'" in head
    assert body.split("\n") == [
        "<h1>title</h1><p>subtitle</p>",
        '<h2 id="part-1">A&lt;b</h2>',
        "<p>a note</p>",
        '<ul><li class="act"><b>!!</b> it loses<span class="more">look</span>'
        '<span class="more"><code>ip a</code></span><span class="more"><code>ip l</code></span></li>'
        '<li class=""><b>ok</b> fine</li></ul>',
        '<div class="wide"><table><thead><tr><th>name</th><th class="n">n</th></tr></thead><tbody>'
        '<tr><td>a</td><td class="n">10</td></tr>',
        '<tr><td>long_<wbr>er</td><td class="n">9</td></tr></tbody></table></div>'
        "<p>… 2 more rows are in the JSON document.</p>",
        "<p>behind</p>",
        "</body></html>",
        "",
    ]


@pytest.mark.parametrize(
    ("word", "kind"), [("!!", "act"), ("!! worse", "act"), ("!", "look"), ("?", "look"), ("cause?", "look"), ("ok", "")]
)
def test_a_line_is_marked_by_its_word(word: str, kind: str) -> None:
    shown = to_html(document(SummaryLines([SummaryLine(word, "x")])))
    assert f'<ul><li class="{kind}"><b>{word}</b> x</li></ul>' in shown


def test_drawings_are_in_html_alone() -> None:
    path = ScaledPath("way", "us", [ScaledBar("A", "x", 1.0, "1")])
    assert to_html(document(*DRAWN, path)).count("<figure") == 3
    assert to_text(document(*DRAWN)) == "title\nsubtitle\n"


@pytest.mark.parametrize(
    ("block", "in_text", "in_markdown", "in_html"),
    [
        (Heading("x" * 5000), 256, 500, 500),
        (Note("x" * 5000), 2000, 2000, 2000),
        (SummaryLines([SummaryLine("!", "x" * 5000)]), 1000, 1000, 1000),
        (SummaryLines([SummaryLine("!", "", "x" * 5000)]), 1000, 1000, 1000),
        (SummaryLines([SummaryLine("!", "", "", ("x" * 5000,))]), 1000, 1000, 1000),
        (TextTable(["a"], [["x" * 5000]]), 71, 500, 500),
    ],
)
def test_a_text_from_outside_has_an_end(block: ReportBlock, in_text: int, in_markdown: int, in_html: int) -> None:
    for page, most in ((to_text, in_text), (to_markdown, in_markdown), (to_html, in_html)):
        shown = page(document(block)).lower()
        assert "x" * most + "…" in shown and "x" * (most + 1) not in shown
    long = Document("title", "y" * 1001, [])
    assert all(
        "y" * 1000 + "…" in page(long) and "y" * 1001 not in page(long) for page in (to_text, to_markdown, to_html)
    )


def test_quotes_are_escaped_in_html() -> None:
    assert "<p>&quot;a&#x27;</p>" in to_html(document(Note("\"a'")))


def test_the_longest_run_of_backticks_counts() -> None:
    shown = to_markdown(document(SummaryLines([SummaryLine("!", "x", "", ("a ``b` c",))])))
    assert shown.endswith("```a ``b` c```\n")
    assert to_markdown(document(SummaryLines([SummaryLine("!", "x", "", ("`a b",))]))).endswith("`` `a b ``\n")


def test_html_lists_the_parts_of_a_long_report() -> None:
    four = to_html(document(*(Heading(f"<{name}>") for name in "abcd")))
    links = re.findall(r'<a href="#part-(\d)">&lt;(\w)&gt;</a>', four)
    assert links == re.findall(r'<h2 id="part-(\d)">&lt;(\w)&gt;</h2>', four) and len(links) == 4
    assert "<nav" not in to_html(document(*(Heading(name) for name in "abc")))


@pytest.mark.parametrize(
    "chart", [Curve("since", "packets/s", [1.0, 2.0]), ScaledPath("m", "", [ScaledBar("now", "", 1.0, "1")])]
)
def test_html_draws_the_chart_of_a_line_and_text_does_not(chart: Curve | ScaledPath) -> None:
    one = document(SummaryLines([SummaryLine("!", "it loses", chart=chart)]))
    assert re.search(r"<li[^>]*>.*<figure.*</figure></li>", to_html(one))
    bare = document(SummaryLines([SummaryLine("!", "it loses")]))
    assert to_text(one) == to_text(bare) and to_markdown(one) == to_markdown(bare)
