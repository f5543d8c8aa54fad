"""A report as plain text for a terminal or an e-mail: printable characters only, columns aligned."""

from __future__ import annotations

from netconsole.base.figure import fit, safe, width
from netconsole.report.blocks import (
    Bars,
    Curve,
    Document,
    Heading,
    Note,
    ReportBlock,
    SummaryLine,
    SummaryLines,
    TextTable,
)

MAX_COLUMN = 72
"""A wider cell is cut: names of metrics can be longer than a line of a terminal."""


def to_text(document: Document) -> str:
    """The report as text. It ends with a line feed."""
    parts = [safe(document.title), safe(document.subtitle, 1000)]
    for block in document.blocks:
        parts.extend(_block(block))
    return "\n".join(parts) + "\n"


def _block(block: ReportBlock) -> list[str]:
    match block:
        case Heading(text):
            return ["", safe(text).upper()]
        case Note(text):
            return [safe(text, 2000)]
        case SummaryLines(lines):
            return [line for one in lines for line in _line(one)]
        case TextTable():
            return _table(block)
        case Bars() | Curve():
            return []  # the table above has the figures


def _line(line: SummaryLine) -> list[str]:
    first = f"{safe(line.word):<2} {safe(line.text, 1000)}"
    return [first, f"   {safe(line.more, 1000)}"] if line.more else [first]


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
