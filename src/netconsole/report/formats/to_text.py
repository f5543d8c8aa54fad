"""A report as plain text for a terminal or an e-mail: printable characters only, columns aligned."""

from __future__ import annotations

import textwrap

from netconsole.base.figure import fit, safe, width
from netconsole.report.blocks import (
    MAX_QUOTED,
    Bars,
    CpuMap,
    CpuNode,
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

MAX_COLUMN = 72
"""A wider cell is cut: names of metrics can be longer than a line of a terminal."""


def to_text(document: Document, columns: int | None = None) -> str:
    """The report as text. It ends with a line feed. ``columns``: sentences are wrapped to so many."""
    parts = [safe(document.title), safe(document.subtitle, 1000)]
    for block in (*document.blocks, *document.behind):
        parts.extend(_block(block))
    if columns is not None:
        parts = [line for part in parts for line in _wrapped(part, columns)]
    return "\n".join(parts) + "\n"


def _wrapped(line: str, columns: int) -> list[str]:
    """Lines of words are wrapped, and go on below their first word. A word is never broken."""
    if width(line) <= columns:
        return [line]
    indent = " " * (3 if line[:3].strip() in ("", "!", "!!", "?", "ok") else 0)
    return textwrap.wrap(
        line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )


def _block(block: ReportBlock) -> list[str]:
    match block:
        case Heading(text):
            return ["", safe(text).upper()]
        case Note(text):
            return [safe(text, 2000)]
        case Quoted(lines):
            return [f"    {safe(line, MAX_QUOTED)}" for line in lines]
        case SummaryLines(lines):
            return [line for one in lines for line in _line(one)]
        case TextTable():
            return _table(block)
        case ScaledPath():
            return scaled_lines(block)
        case CpuMap(nodes):
            return cpu_lines(nodes)
        case Bars() | Curve():
            return []  # the table above has the figures


def _line(line: SummaryLine) -> list[str]:
    first = f"{safe(line.word):<2} {safe(line.text, 1000)}"
    more = [f"   {safe(line.more, 1000)}"] if line.more else []
    return [first, *more, *(f"   $ {safe(command, 1000)}" for command in line.commands)]


def _table(table: TextTable) -> list[str]:
    cells = [[safe(cell, 1000) for cell in row] for row in (table.columns, *table.rows)]
    widths = [min(MAX_COLUMN, max(width(row[column]) for row in cells)) for column in range(len(table.columns))]
    lines = []
    for row in cells:
        fitted = [fit(cell, widths[column], right=column in table.numeric) for column, cell in enumerate(row)]
        lines.append("  ".join(fitted).rstrip())
    if table.omitted:
        lines.append(f"… {table.omitted} more rows are in the JSON document")
    return lines


CPU_COLUMNS = 80


def cpu_lines(nodes: list[CpuNode]) -> list[str]:
    """A grid of at most 80 columns; a node begins on a line of its own."""
    names = max((width(safe(node.name)) for node in nodes), default=0)
    cell = 2 + max((width(one.text) for node in nodes for one in node.cells), default=0)
    a_line = max(1, (CPU_COLUMNS - names) // cell)
    lines = []
    for node in nodes:
        for at in range(0, len(node.cells), a_line):
            name = fit(safe(node.name) if not at else "", names)
            cells = "".join("  " + fit(one.text, cell - 2) for one in node.cells[at : at + a_line])
            lines.append((name + cells).rstrip())
    return lines


BAR_COLUMNS = 34
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def scaled_lines(path: ScaledPath) -> list[str]:
    """A way in at most 80 columns: names, places, lengths, shares, and bars to scale. ░ is below zero."""
    names = max((width(safe(bar.name)) for bar in path.bars), default=0)
    places = max((width(safe(bar.where)) for bar in path.bars), default=0)
    longest = longest_of(path)
    lines = []
    for bar in path.bars:
        head = f"{fit(safe(bar.name), min(names, 12))}  {fit(safe(bar.where), min(places, 14))}"
        figures = f"{fit(safe(bar.text), 9, right=True)} {fit(safe(bar.share), 5, right=True)}"
        lines.append(f"{head} {figures}  {bar_text(bar.length, longest)}".rstrip())
    return lines


def longest_of(path: ScaledPath) -> float:
    """The length that takes all columns."""
    return max((abs(bar.length) for bar in path.bars if bar.length is not None), default=0.0)


def bar_text(length: float | None, longest: float, columns: int = BAR_COLUMNS) -> str:
    """A bar to scale, in eighths of a column. What is not zero has at least one eighth."""
    if length is None:
        return "?"
    eighths = round(8 * columns * abs(length) / longest) if longest > 0 else 0
    if length < 0:
        return "░" * max(1, round(eighths / 8))
    whole, rest = divmod(max(eighths, 1) if length > 0 else 0, 8)
    return "█" * whole + _EIGHTHS[rest].strip()
