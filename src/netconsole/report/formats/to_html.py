"""A report as one HTML file with its charts: no script, nothing external. Readable in print and without colour."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from html import escape as _escape

from netconsole.base import figure
from netconsole.base.figure import safe
from netconsole.probes.polarity import TIME_UNITS
from netconsole.report.blocks import (
    MAX_QUOTED,
    Bars,
    CpuCell,
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

# The browser must load nothing and run nothing, even if a name in the report tries to.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
:root{color-scheme:light dark}
body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:75em;padding:0 1em}
h1{font-size:1.5em;margin-bottom:.2em}
h2{font-size:1.15em;margin:1.8em 0 .5em;border-bottom:1px solid #8888}
nav ul{columns:3;margin:0}
nav li{margin:0;overflow-wrap:normal}
.wide{overflow:auto;max-height:36em}
.wide th{position:sticky;top:0;background:Canvas}
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
li figure,li figure.way{width:min(100%,32em);display:block;margin:.3em 0 .3em 2em}
figcaption{font-size:.92em}
svg{width:100%;height:auto;fill:#4a7ab5;font:11px system-ui,sans-serif}
svg text{fill:currentColor}
svg line{stroke:currentColor;stroke-width:1}
svg .mark{stroke-dasharray:3 2}
svg polyline{fill:none;stroke:#4a7ab5;stroke-width:1.5}
figure.way{width:min(100%,60em)}
svg .rest{fill:none;stroke:#4a7ab5;stroke-width:1;stroke-dasharray:3 2}
svg .below{fill:#c62828}
.cpus>b{display:block}
.cpus span{display:inline-block;min-width:7em;padding:.1em .4em;margin:.1em;border:1px solid #8886}
.cpus .act{border:2px solid #c62828}
.cpus .look{border:2px dashed #9a6000}
.cpus .own{font-weight:bold;text-decoration:underline}
@media print{
body{margin:0;max-width:none;font-size:10px}
tr{break-inside:avoid}
h2{break-after:avoid}
nav{display:none}
.wide{overflow:visible;max-height:none}
.wide table{font-size:8px}
td,td:first-child{min-width:2em}
}
"""
_PART = re.compile(r"([/,=_])(?=\w)")
MAX_WITHOUT_CONTENTS = 3
"""A report with more parts has a list of them."""
_CLASSES = {"!!": "act", "!": "look", "?": "look", "cause?": "look"}


def to_html(document: Document) -> str:
    """The report as a whole HTML document."""
    blocks = [*document.blocks, *document.behind]
    headings = [block.text for block in blocks if isinstance(block, Heading)]
    body = "\n".join(text for text in (_contents(headings), *_parts(blocks)) if text)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{escape(document.title)}</title><style>{_STYLE}</style></head><body>\n"
        f"<h1>{escape(document.title)}</h1><p>{escape(document.subtitle, 1000)}</p>\n{body}\n</body></html>\n"
    )


def _parts(blocks: Iterable[ReportBlock]) -> Iterator[str]:
    part = 0
    for block in blocks:
        part += isinstance(block, Heading)
        yield _block(block, part)


def _contents(headings: list[str]) -> str:
    """A list of links to the parts of a report that has so many that one must look for them."""
    if len(headings) <= MAX_WITHOUT_CONTENTS:
        return ""
    links = (f'<li><a href="#part-{number}">{escape(text)}</a></li>' for number, text in enumerate(headings, 1))
    return f'<nav aria-label="Contents"><ul>{"".join(links)}</ul></nav>'


def escape(text: str, limit: int = 500) -> str:
    """Escapes a text for an element or an attribute."""
    return _escape(safe(text, limit), quote=True)


def _block(block: ReportBlock, part: int) -> str:
    match block:
        case Heading(text):
            return f'<h2 id="part-{part}">{escape(text)}</h2>'
        case Note(text):
            return f"<p>{escape(text, 2000)}</p>"
        case Quoted(lines):
            return "<pre>{}</pre>".format("\n".join(escape(line, MAX_QUOTED) for line in lines))
        case SummaryLines(lines):
            return f"<ul>{''.join(map(_line, lines))}</ul>"
        case TextTable():
            return _table(block)
        case Bars():
            return bars(block)
        case Curve():
            return curve(block)
        case ScaledPath():
            return scaled(block)
        case CpuMap(nodes):
            return "".join(map(_cpu_node, nodes))


def _line(line: SummaryLine) -> str:
    kind = _CLASSES.get(line.word.split(" ")[0], "")
    more = f'<span class="more">{escape(line.more, 1000)}</span>' if line.more else ""
    run = "".join(f'<span class="more"><code>{escape(command, 1000)}</code></span>' for command in line.commands)
    chart = _chart(line.chart) if line.chart is not None else ""
    return f'<li class="{kind}"><b>{escape(line.word)}</b> {escape(line.text, 1000)}{more}{run}{chart}</li>'


def _chart(chart: Curve | ScaledPath) -> str:
    return curve(chart) if isinstance(chart, Curve) else scaled(chart)


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


def _cpu_node(node: CpuNode) -> str:
    return f'<p class="cpus"><b>{escape(node.name)}</b>{"".join(map(_cpu, node.cells))}</p>'


def _cpu(cell: CpuCell) -> str:
    kind = {"waits": "act", "shares": "look", "beside": "look"}.get(cell.word, "")
    own = " own" if cell.mark == ">" else ""
    number = f"{escape(cell.mark)} <b>{cell.cpu}</b>" if cell.mark else f"<b>{cell.cpu}</b>"
    return f'<span class="{kind}{own}">{number} {escape(cell.letters or "·")} {escape(cell.word)}</span>'


def _breakable(escaped: str) -> str:
    """A long key may go on in the next line after one of its parts, and not in the middle of a word."""
    return _PART.sub(r"\1<wbr>", escaped)


_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 640, 174, 8, 34, 46
_LETTER, _LINE = 7.0, 12
"""What a letter of a label takes at most, and a line of them."""
_MAX_TICKS = 6
_SMALLEST = 1e-9
"""Bars that end there are not drawn: a logarithmic axis has no zero."""


def bars(chart: Bars) -> str:
    """A histogram on a logarithmic axis. Heights start at zero. p50, p90 and p99 are marked and named."""
    buckets = [(max(low, high / 2), high, count) for low, high, count in chart.buckets if count and high > _SMALLEST]
    if not buckets:
        return ""
    first, last = buckets[0][0], buckets[-1][1]
    span = math.log(last / first) or 1.0

    def x(value: float) -> float:
        return _LEFT + (_WIDTH - 2 * _LEFT) * math.log(min(max(value, first), last) / first) / span

    # Height is samples divided by the width of the bucket on the axis: wide and narrow buckets can be compared.
    dense = [count / math.log(high / low) for low, high, count in buckets]
    scale = (_HEIGHT - _BOTTOM - _TOP) / max(dense)
    base = _HEIGHT - _BOTTOM
    parts = [
        f'<rect x="{x(low):.1f}" y="{base - scale * height:.1f}" width="{max(1.0, x(high) - x(low) - 0.5):.1f}"'
        f' height="{scale * height:.1f}"/>'
        for (low, high, _), height in zip(buckets, dense, strict=True)
    ]
    parts.append(f'<line x1="{_LEFT}" y1="{base}" x2="{_WIDTH - _LEFT}" y2="{base}"/>')
    for tick in _ticks(first, last):
        text = escape(_quantity(tick, chart.unit))
        parts.append(f'<line x1="{x(tick):.1f}" y1="{base}" x2="{x(tick):.1f}" y2="{base + 4}"/>')
        half = _LETTER * len(text) / 2
        anchor = "start" if x(tick) < half else "end" if x(tick) > _WIDTH - half else "middle"
        parts.append(f'<text x="{x(tick):.1f}" y="{base + 16}" text-anchor="{anchor}">{text}</text>')
    ends: list[float] = []
    for name, value in sorted(chart.marks.items(), key=lambda mark: mark[1]):
        text = escape(f"{name} {_quantity(value, chart.unit)}")
        at = x(value)
        left = min(at + 2, _WIDTH - _LETTER * len(text))
        # The label stands in the lowest line where it has room, and so it is never cut.
        line = next((number for number, end in enumerate(ends) if end <= left), len(ends))
        ends[line : line + 1] = [left + _LETTER * len(text)]
        y = _TOP - 8 - _LINE * line
        parts.append(f'<line class="mark" x1="{at:.1f}" y1="{y + 2}" x2="{at:.1f}" y2="{base}"/>')
        parts.append(f'<text x="{left:.1f}" y="{y}">{text}</text>')
    samples = figure.count(sum(count for _, _, count in chart.buckets))
    parts.append(f'<text x="{_LEFT}" y="{_HEIGHT - 3}">{samples} samples</text>')
    return _svg(chart.title, parts)


def curve(chart: Curve) -> str:
    """A figure over time. The axis starts at zero, a gap stays a gap, and the largest value is written above."""
    known = [value for value in chart.values if value is not None]
    if not known:
        return ""
    largest = max(known)
    base = _HEIGHT - _BOTTOM
    step = (_WIDTH - 2 * _LEFT) / max(1, len(chart.values) - 1)
    scale = (base - _TOP) / largest if largest > 0 else 0.0
    parts = []
    run: list[str] = []
    for position, value in enumerate([*chart.values, None]):
        if value is not None:
            run.append(f"{_LEFT + position * step:.1f},{base - scale * value:.1f}")
        elif run:
            points = run if len(run) > 1 else [run[0], run[0]]
            parts.append(f'<polyline points="{" ".join(points)}"/>')
            run = []
    parts.append(f'<line x1="{_LEFT}" y1="{base}" x2="{_WIDTH - _LEFT}" y2="{base}"/>')
    unit, slash, per = chart.unit.partition("/")
    is_time = unit in TIME_UNITS
    text = figure.duration(largest, unit) + slash + per if is_time else f"{figure.number(largest)} {chart.unit}"
    parts.append(f'<text x="{_LEFT}" y="{_TOP - 8}">largest {escape(text)}</text>')
    parts.append(f'<text x="{_LEFT}" y="{base + 16}">{len(chart.values)} intervals, from 0</text>')
    return _svg(chart.title, parts)


_ROW, _NAMES = 20, 250


def scaled(path: ScaledPath) -> str:
    """A way from top to bottom, all stretches to one scale. A remainder is dashed; what is below zero goes left."""
    known = [bar.length for bar in path.bars if bar.length is not None]
    if not known:
        return ""
    lowest, highest = min(0.0, *known), max(0.0, *known)
    width = 900
    scale = (width - _NAMES - 110) / ((highest - lowest) or 1.0)
    zero = _NAMES - scale * lowest
    parts = []
    for row, bar in enumerate(path.bars):
        y = 6 + row * _ROW
        name = escape(f"{bar.name}  {bar.where}")
        parts.append(f'<text x="0" y="{y + 12}">{name}</text>')
        text = escape(f"{bar.text} {path.unit}  {bar.share}".rstrip())
        if bar.length is None:
            parts.append(f'<text x="{zero + 4:.1f}" y="{y + 12}">not known</text>')
            continue
        kind = "below" if bar.length < 0 else "rest" if not bar.measured else ""
        left, size = zero + scale * min(bar.length, 0.0), max(0.5, scale * abs(bar.length))
        style = f' class="{kind}"' if kind else ""
        parts.append(f'<rect{style} x="{left:.1f}" y="{y}" width="{size:.1f}" height="{_ROW - 5}"/>')
        parts.append(f'<text x="{zero + scale * max(bar.length, 0.0) + 4:.1f}" y="{y + 12}">{text}</text>')
    bottom = 6 + len(path.bars) * _ROW
    parts.append(f'<line x1="{zero:.1f}" y1="0" x2="{zero:.1f}" y2="{bottom}"/>')
    title = escape(path.title)
    return (
        f'<figure class="way"><figcaption>{title}</figcaption><svg viewBox="0 0 {width} {bottom + 4}" role="img"'
        f' aria-label="{title}">{"".join(parts)}</svg></figure>'
    )


def _svg(title: str, parts: list[str]) -> str:
    name = escape(title)
    return (
        f'<figure><figcaption>{name}</figcaption><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{name}">'
        f"{''.join(parts)}</svg></figure>"
    )


def _ticks(first: float, last: float) -> list[float]:
    """Powers of ten on the axis, else powers of two; at most _MAX_TICKS."""
    for base, logarithm in ((10, math.log10), (2, math.log2)):
        low, high = math.ceil(logarithm(first)), math.floor(logarithm(last))
        powers = [float(base) ** power for power in range(low, high + 1)]
        if len(powers) >= 2:
            return powers[:: math.ceil(len(powers) / _MAX_TICKS)]
    return [first, last] if last > first else [first]


def _quantity(value: float, unit: str) -> str:
    return figure.duration(value, unit) if unit in TIME_UNITS else figure.quantity(value, unit)
