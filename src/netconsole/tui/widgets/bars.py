"""Draws histograms as horizontal bars, with marks at the percentiles."""

from __future__ import annotations

from dataclasses import dataclass

from netconsole.base import figure
from netconsole.telemetry.frames import Buckets
from netconsole.telemetry.histogram import bounds, percentile

PERCENTILES = (50.0, 90.0, 99.0)
_EIGHTHS = "▏▎▍▌▋▊▉█"


@dataclass(frozen=True)
class Bar:
    """One line of a histogram: values from ``low`` up to, not including, ``high``."""

    low: int
    high: int
    count: int
    marks: tuple[str, ...]


def bars(buckets: Buckets, lines: int) -> list[Bar]:
    """At most ``lines`` bars, without gaps. Each bar is a bucket, or a group of neighbouring buckets."""
    filled = sorted((index, count) for index, count in buckets.buckets if count)
    if not filled or lines <= 0:
        return []
    first, last = filled[0][0], filled[-1][0]
    size = next((size for size in (1, 2, 4, 8, 16, 32, 64) if last // size - first // size < lines), 128)
    counts = dict.fromkeys(range(first // size, last // size + 1), 0)
    for index, count in filled:
        counts[index // size] += count
    marks: dict[int, list[str]] = {}
    for percent in PERCENTILES:
        value = percentile(buckets, percent)
        if value is not None:
            group = next((g for g in counts if value < bounds(g * size + size - 1)[1]), last // size)
            marks.setdefault(group, []).append(f"p{percent:g}")
    return [
        Bar(bounds(group * size)[0], bounds(group * size + size - 1)[1], count, tuple(marks.get(group, ())))
        for group, count in counts.items()
    ]


def bar(share: float, columns: int) -> str:
    """A bar as long as ``share`` (0 to 1) of ``columns`` cells. A share above zero is always visible."""
    eighths = round(8 * columns * max(0.0, min(1.0, share)))
    if share > 0:
        eighths = max(1, eighths)
    whole, part = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[part - 1] if part else "")


def lines(buckets: Buckets, unit: str, columns: int, most: int) -> list[str]:
    """The histogram as text. Each line has range, bar, count and share, and names the percentiles that fall into it."""
    drawn = bars(buckets, most)
    if not drawn:
        return []
    largest = max(one.count for one in drawn)
    counted = sum(one.count for one in drawn)
    room = max(4, columns - 20 - 1 - 1 - 8 - 1 - 7 - 1 - 12)
    text = []
    for one in drawn:
        span = f"{figure.duration(one.low, unit)} – {figure.duration(one.high, unit)}" if _is_time(unit) else (
            f"{figure.number(one.low)} – {figure.number(one.high)} {unit}"
        )  # fmt: skip
        share = one.count / counted
        text.append(
            f"{figure.fit(span, 20, right=True)} {figure.fit(bar(one.count / largest, room), room)} "
            f"{figure.fit(figure.number(one.count), 8, right=True)} {figure.fit(figure.percent(100 * share), 7, True)} "
            f"{' '.join(one.marks)}".rstrip()
        )
    return text


def summary(buckets: Buckets, unit: str) -> str:
    """Count and percentiles in one line: ``n 412k · min … p50 … p90 … p99 … p99.9 … max``."""
    write = (lambda value: figure.duration(value, unit)) if _is_time(unit) else figure.number
    parts = [f"n {figure.number(buckets.count)}", f"min {write(buckets.min)}"]
    parts += [f"p{percent:g} {write(percentile(buckets, percent))}" for percent in (*PERCENTILES, 99.9)]
    return " · ".join([*parts, f"max {write(buckets.max)}"])


def _is_time(unit: str) -> bool:
    return unit in ("ns", "us", "ms", "s")
