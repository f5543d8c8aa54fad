"""Draws sparklines and small charts: zero is at the bottom, and an unknown value is a gap."""

from __future__ import annotations

from collections.abc import Sequence

from netconsole.base import figure

BLOCKS = "▁▂▃▄▅▆▇█"
GAP = " "


def spark(values: Sequence[float | None], columns: int, top: float | None = None) -> str:
    """The last ``columns`` samples, with blanks on the left. Zero is the lowest block; any other value is higher.

    ``top`` is the value of the full block, by default the largest of the samples shown.
    """
    shown = list(values)[-columns:] if columns > 0 else []
    largest = top if top is not None else max((value for value in shown if value is not None), default=0.0)
    return GAP * (columns - len(shown)) + "".join(_block(value, largest) for value in shown)


def labelled(values: Sequence[float | None], columns: int, unit: str = "") -> str:
    """A sparkline with its maximum on the right, in exactly ``columns`` cells: ``▁▂█ 412``."""
    label_columns = 5 if not unit else 8
    drawn = max(0, columns - label_columns - 1)
    shown = [value for value in list(values)[-drawn:] if value is not None] if drawn else []
    if not shown:
        return GAP * columns
    top = max(shown)
    label = figure.quantity(top, unit) if unit else figure.number(top)
    return f"{spark(values, drawn, top)} {figure.fit(label, label_columns)}"


def condense(values: Sequence[float | None], columns: int, tick: int) -> list[float | None]:
    """Shortens a long history: the largest value of each group of samples, None when the group has no known sample.

    ``tick`` is the number of the last sample. It decides the groups, so that a sample stays in its group.
    """
    if columns <= 0 or len(values) <= columns:
        return list(values)
    size = -(-len(values) // columns)
    first = tick - len(values) + 1
    groups: dict[int, float | None] = {}
    for offset, value in enumerate(values):
        group = (first + offset) // size
        known = groups.setdefault(group, None)
        if value is not None and (known is None or value > known):
            groups[group] = value
    return [groups[group] for group in sorted(groups)][-columns:]


def chart(values: Sequence[float | None], columns: int, lines: int, top: float) -> list[str]:
    """A bar chart of several lines, the top line first. The rules are those of :func:`spark`."""
    shown = list(values)[-columns:]
    drawn = []
    for line in range(lines - 1, -1, -1):
        text = GAP * (columns - len(shown))
        for value in shown:
            if value is None:
                text += GAP
                continue
            eighths = 0 if top <= 0 else max(1, round(8 * lines * min(value, top) / top)) if value > 0 else 0
            part = eighths - 8 * line
            text += BLOCKS[min(part, 8) - 1] if part > 0 else "▁" if line == 0 else GAP
        drawn.append(text)
    return drawn


def _block(value: float | None, top: float) -> str:
    if value is None:
        return GAP
    if value <= 0 or top <= 0:
        return BLOCKS[0]
    return BLOCKS[max(1, min(7, round(7 * value / top)))]
