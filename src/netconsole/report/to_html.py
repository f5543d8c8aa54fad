"""A report as one HTML file with its charts: no script, nothing external. Readable in print and without colour."""

from __future__ import annotations

import re
from html import escape as _escape

from netconsole.base.figure import safe
from netconsole.report import charts
from netconsole.report.blocks import (
    Bars,
    Curve,
    Document,
    Heading,
    Note,
    ReportBlock,
    ScaledPath,
    SummaryLine,
    SummaryLines,
    TextTable,
)

# The browser must load nothing and run nothing, even if a name in the report tries to.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
:root{color-scheme:light dark}
body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:75em;padding:0 1em}
h1{font-size:1.5em;margin-bottom:.2em}
h2{font-size:1.15em;margin:1.8em 0 .5em;border-bottom:1px solid #8888}
.wide{overflow-x:auto}
table{border-collapse:collapse;margin:.5em 0;font-size:.92em}
th,td{padding:.15em .8em .15em 0;text-align:left;vertical-align:top;border-bottom:1px solid #8883}
td{overflow-wrap:break-word;max-width:38em}
td:first-child{min-width:9em}
td.n:first-child{min-width:2em}
th{white-space:nowrap}
td.n,th.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
ul{list-style:none;padding:0}
li{margin:.3em 0;overflow-wrap:anywhere}
p{overflow-wrap:anywhere}
li b{display:inline-block;min-width:1.5em;margin-right:.4em}
.act b{color:#c62828}
.look b{color:#9a6000}
.more{display:block;margin-left:2em;opacity:.8}
figure{display:inline-block;width:min(100%,36em);margin:.5em 1em .5em 0;break-inside:avoid}
figcaption{font-size:.92em}
svg{width:100%;height:auto;fill:#4a7ab5;font:11px system-ui,sans-serif}
svg text{fill:currentColor}
svg line{stroke:currentColor;stroke-width:1}
svg .mark{stroke-dasharray:3 2}
svg polyline{fill:none;stroke:#4a7ab5;stroke-width:1.5}
figure.way{width:min(100%,60em)}
svg .rest{fill:none;stroke:#4a7ab5;stroke-width:1;stroke-dasharray:3 2}
svg .below{fill:#c62828}
@media print{
body{margin:0;max-width:none;font-size:10px}
tr{break-inside:avoid}
h2{break-after:avoid}
.wide{overflow:visible}
.wide table{font-size:8px}
td,td:first-child{min-width:2em}
}
"""
_PART = re.compile(r"([/,=_])(?=\w)")
_CLASSES = {"!!": "act", "!": "look", "?": "look", "cause?": "look"}


def to_html(document: Document) -> str:
    """The report as a whole HTML document."""
    body = "\n".join(text for text in map(_block, (*document.blocks, *document.behind)) if text)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{escape(document.title)}</title><style>{_STYLE}</style></head><body>\n"
        f"<h1>{escape(document.title)}</h1><p>{escape(document.subtitle, 1000)}</p>\n{body}\n</body></html>\n"
    )


def escape(text: str, limit: int = 500) -> str:
    """Escapes a text for an element or an attribute."""
    return _escape(safe(text, limit), quote=True)


def _block(block: ReportBlock) -> str:
    match block:
        case Heading(text):
            return f"<h2>{escape(text)}</h2>"
        case Note(text):
            return f"<p>{escape(text, 2000)}</p>"
        case SummaryLines(lines):
            return f"<ul>{''.join(map(_line, lines))}</ul>"
        case TextTable():
            return _table(block)
        case Bars():
            return charts.bars(block)
        case Curve():
            return charts.curve(block)
        case ScaledPath():
            return charts.scaled(block)


def _line(line: SummaryLine) -> str:
    kind = _CLASSES.get(line.word.split(" ")[0], "")
    more = f'<span class="more">{escape(line.more, 1000)}</span>' if line.more else ""
    run = "".join(f'<span class="more"><code>{escape(command, 1000)}</code></span>' for command in line.commands)
    return f'<li class="{kind}"><b>{escape(line.word)}</b> {escape(line.text, 1000)}{more}{run}</li>'


def _table(table: TextTable) -> str:
    head = "".join(_cell("th", cell, column, table) for column, cell in enumerate(table.columns))
    rows = "\n".join(
        f"<tr>{''.join(_cell('td', cell, column, table) for column, cell in enumerate(row))}</tr>" for row in table.rows
    )
    more = f"<p>… {table.omitted} more rows are in the JSON document.</p>" if table.omitted else ""
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{more}'


def _cell(tag: str, text: str, column: int, table: TextTable) -> str:
    kind = ' class="n"' if column in table.numeric else ""
    return f"<{tag}{kind}>{escape(text) if kind else _breakable(escape(text))}</{tag}>"


def _breakable(escaped: str) -> str:
    """A long key may go on in the next line after one of its parts, and not in the middle of a word."""
    return _PART.sub(r"\1<wbr>", escaped)
