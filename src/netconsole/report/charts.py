"""Draws histograms and curves as inline SVG, without scripts. No meaning depends on colour alone."""

from __future__ import annotations

import math
from html import escape

from netconsole.base import figure
from netconsole.probes.polarity import TIME_UNITS
from netconsole.report.blocks import Bars, Curve, ScaledPath

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
    parts.append(
        f'<text x="{_LEFT}" y="{_TOP - 8}">largest {escape(figure.number(largest))} {escape(chart.unit)}</text>'
    )
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
        name = escape(figure.safe(f"{bar.name}  {bar.where}"))
        parts.append(f'<text x="0" y="{y + 12}">{name}</text>')
        text = escape(figure.safe(f"{bar.text} {path.unit}  {bar.share}".rstrip()))
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
    title = escape(figure.safe(path.title))
    return (
        f'<figure class="way"><figcaption>{title}</figcaption><svg viewBox="0 0 {width} {bottom + 4}" role="img"'
        f' aria-label="{title}">{"".join(parts)}</svg></figure>'
    )


def _svg(title: str, parts: list[str]) -> str:
    name = escape(figure.safe(title))
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
