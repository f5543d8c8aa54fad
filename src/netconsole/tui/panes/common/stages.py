"""Stages of a way: each one's share of the whole, and their histograms side by side."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping

from netconsole.base import figure
from netconsole.telemetry.frames import Buckets
from netconsole.telemetry.histogram import percentile
from netconsole.tui.widgets.bars import bar, bars
from netconsole.tui.widgets.painted import Line

LINES = 10
LEAST_COLUMNS, MOST_COLUMNS = 15, 25
SPAN_COLUMNS = 9


def share(part: float, whole: float) -> str:
    """In whole percent: more would tell two neighbouring stages apart by their noise."""
    percent = 100 * part / whole if whole else None
    return "< 1 %" if percent is not None and 0 < percent < 1 else figure.percent(percent and round(percent))


def side_by_side(
    found: Mapping[str, Buckets], whole: Buckets | None, unit: str, words: Mapping[str, str], width: int
) -> Iterator[Line]:
    """One histogram beside the other, with what each adds to ``whole``; ``words`` say what a stage is."""
    columns = max(LEAST_COLUMNS, min(MOST_COLUMNS, (width - 2) // max(1, len(found))))

    def beside(texts: Iterable[str]) -> str:
        return "  " + "".join(figure.fit(figure.fit(text, columns - 1), columns) for text in texts).rstrip()

    sum_of_all = whole.sum if whole is not None else 0
    yield [(beside(found), "strong")]
    yield [(beside(words.get(stage, "") for stage in found), "dim")]
    for percent in (50.0, 99.0):
        values = [figure.duration(percentile(one, percent), unit) for one in found.values()]
        yield [(beside(f"p{percent:g} {value}" for value in values), "")]
    yield [(beside(f"{share(one.sum, sum_of_all)} of time" for one in found.values()), "")]
    drawn = [_bars(one, unit, columns - 1) for one in found.values()]
    for line in itertools.zip_longest(*drawn, fillvalue=""):
        yield [(beside(line), "")]
    yield []


def _bars(one: Buckets, unit: str, columns: int) -> list[str]:
    lines = bars(one, LINES)
    largest = max((line.count for line in lines), default=0)
    spans = [figure.fit(f"< {figure.duration(line.high, unit)}", SPAN_COLUMNS, right=True) for line in lines]
    return [
        f"{span} {bar(line.count / largest, columns - SPAN_COLUMNS - 1)}"
        for span, line in zip(spans, lines, strict=True)
    ]
