"""A report as Markdown (CommonMark with tables) for a ticket. Names from outside are escaped: they stay plain text."""

from __future__ import annotations

import re
from collections.abc import Iterable

from netconsole.base.figure import safe
from netconsole.report.blocks import (
    MAX_QUOTED,
    Bars,
    CpuMap,
    Curve,
    Document,
    Heading,
    Note,
    Quoted,
    ReportBlock,
    ScaledPath,
    SummaryLine,
    SummaryLines,
    TextTable,
)
from netconsole.report.formats.to_text import bar_text, cpu_lines, longest_of

_ALWAYS = re.compile(r"[\\`*\[\]|~$#]")
_UNDERSCORE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
"""An underscore that must be escaped. Inside a word (kernel_drops) it has no meaning in Markdown."""
_AT_START = re.compile(r"^(?:[-+=](?=\s|$|[-=])|\d{1,9}(?=[.)](?:\s|$)))")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "://": "&#58;//", "www.": "www&#46;"}
_ENTITY = re.compile("|".join(map(re.escape, _ENTITIES)))


def to_markdown(document: Document) -> str:
    """The report as Markdown. It ends with a line feed."""
    parts = [f"# {escape(document.title)}", "", escape(document.subtitle, 1000), *_blocks(document.blocks)]
    behind = _blocks(document.behind)
    if behind:
        # A viewer that knows no HTML shows it all.
        parts += [
            "",
            "<details>",
            f"<summary>Everything else: {len(behind)} lines</summary>",
            *behind,
            "",
            "</details>",
        ]
    return "\n".join(parts) + "\n"


def _blocks(blocks: Iterable[ReportBlock]) -> list[str]:
    return [line for block in blocks if (lines := _block(block)) for line in ("", *lines)]


def escape(text: str, limit: int = 500) -> str:
    """Escapes a text, so that it is shown as it is: no markup, no link, no mention, no line break."""
    marked = _ALWAYS.sub(lambda found: "\\" + found[0], safe(text, limit).strip())
    marked = _ENTITY.sub(lambda found: _ENTITIES[found[0]], _UNDERSCORE.sub(r"\\_", marked))
    start = _AT_START.match(marked)
    if start is None:
        return marked
    # This would begin a list, a rule or a heading.
    return f"\\{marked}" if not start[0].isdigit() else f"{start[0]}\\{marked[start.end() :]}"


def _block(block: ReportBlock) -> list[str]:
    match block:
        case Heading(text):
            return [f"## {escape(text)}"]
        case Note(text):
            return [escape(text, 2000)]
        case Quoted(lines):
            shown = "\n".join(safe(line, MAX_QUOTED) for line in lines)
            fence = _fence(shown, 3)
            return [fence, *shown.splitlines(), fence]
        case SummaryLines(lines):
            return [_line(line) for line in lines]
        case TextTable():
            return _table(block)
        case ScaledPath():
            return _scaled(block)
        case CpuMap(nodes):
            return ["```", *cpu_lines(nodes), "```"]
        case Bars() | Curve():
            return []  # the table above has the figures


def _line(line: SummaryLine) -> str:
    more = f" → {escape(line.more, 1000)}" if line.more else ""
    commands = "".join(f" {_code(command)}" for command in line.commands)
    word = f"**{escape(line.word)}** " if line.word else ""
    return f"- {word}{escape(line.text, 1000)}{more}{commands}"


def _code(text: str) -> str:
    """A command as code, whatever backticks it holds. A link in it would be none."""
    shown = safe(text, 1000)
    fence = _fence(shown, 1)
    pad = " " if shown[:1] in ("`", "") or shown[-1:] == "`" or (shown[0] == shown[-1] == " ") else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def _fence(text: str, least: int) -> str:
    """More backticks than the text has in a row."""
    return "`" * max(least, 1 + max(map(len, re.findall("`+", text)), default=0))


def _table(table: TextTable) -> list[str]:
    lines = [
        _row(table.columns),
        "|" + "|".join("---:" if column in table.numeric else "---" for column in range(len(table.columns))) + "|",
        *(_row(row) for row in table.rows),
    ]
    if table.omitted:
        lines += ["", f"… {table.omitted} more rows are in the JSON document."]
    return lines


def _scaled(path: ScaledPath) -> list[str]:
    longest = longest_of(path)
    rows = [[bar.name, bar.where, bar.text, bar.share, bar_text(bar.length, longest)] for bar in path.bars]
    return _table(TextTable(["", "where", path.unit, "share", "to scale"], rows, frozenset({2, 3})))


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(escape(cell) or " " for cell in cells) + " |"
